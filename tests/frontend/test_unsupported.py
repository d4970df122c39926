"""`on_unsupported`: what is not compiled is an error, or runs as under `jax.jit`, which is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.sizes.messages import without_frames
from tests.refused import unchanged

REAL = True

X = np.linspace(1, 2, 6, dtype=np.float32)


def looping(x):
    return jax.lax.fori_loop(0, 2, lambda _, c: unchanged(c) + x, x * 2)


def noisy(x):
    return jnp.tanh(unchanged(jnp.sin(x)))


BY_XLA = {looping: "scan", noisy: "rng_uniform ("}
PROGRAMS = list(BY_XLA)


@pytest.mark.parametrize("program", PROGRAMS)
def test_xla_runs_what_is_not_compiled(program, caplog):
    f = shlo_disc.jit(program, on_unsupported="xla")
    for x in (X, X[:4], X):
        np.testing.assert_allclose(f(x), jax.jit(program)(x), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda x: f(x) + 1)(X), program(X) + 1, rtol=1e-5)
    (told,) = caplog.messages
    assert told.startswith(f"{program.__name__} runs in parts; XLA runs, compiled for every shape:")
    assert BY_XLA[program] in told
    assert told in f.explain()
    assert f.cache_info().misses == 1
    assert f.cache_info().hits == 2
    assert f.explain().count(f"{program.__name__}_part: ") >= 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_may_be_an_error(program):
    with pytest.raises(shlo_disc.UnsupportedError):
        shlo_disc.jit(program, on_unsupported="error")(X)


WAYS = {
    "jit": lambda f: jax.jit(lambda x: f(x) + 1),
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "jit of grad": lambda f: jax.jit(jax.grad(lambda x: f(x).sum())),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
}


@pytest.mark.parametrize("way", WAYS)
def test_by_default_xla_runs_derivatives_and_batches(way, caplog):
    """Nothing was compiled before, so that the program itself is found to be refused."""
    with flags.overridden(on_unsupported=flags.FLAGS["on_unsupported"].default):
        f = shlo_disc.jit(noisy)
    for x in (X, X[:4]):
        np.testing.assert_allclose(WAYS[way](f)(x), WAYS[way](jax.jit(noisy))(x), rtol=1e-4)
    assert caplog.messages
    assert all("runs as jax.jit runs it" in text for text in caplog.messages)
    assert len(set(caplog.messages)) == len(caplog.messages)
    assert caplog.messages[0] in f.explain()


def test_a_warmup_tells_what_xla_will_run(caplog):
    f = shlo_disc.jit(noisy, on_unsupported="xla")
    for _ in range(2):
        f.warmup((jax.ShapeDtypeStruct((6,), np.float32),))
    (told,) = caplog.messages
    f(X)
    assert caplog.messages == [told]
    assert told.startswith("noisy runs in parts")
    assert told in f.explain()
    assert f.statistics()["by_xla"]
    with pytest.raises(shlo_disc.UnsupportedError):
        shlo_disc.jit(noisy).warmup((X,))


def test_derivatives_and_batches_of_what_xla_runs():
    f = shlo_disc.jit(lambda x: noisy(x).sum(), on_unsupported="xla")
    expected = jax.grad(lambda x: noisy(x).sum())(X)
    np.testing.assert_allclose(jax.grad(f)(X), expected, rtol=1e-4)
    np.testing.assert_allclose(jax.vmap(f)(np.stack([X, X]))[0], noisy(X).sum(), rtol=1e-5)


def test_what_is_compiled_is_ours():
    f = shlo_disc.jit(lambda x: x * 2, on_unsupported="xla")
    np.testing.assert_array_equal(f(X), X * 2)
    assert f.cache_info().misses == 1
    assert "jax.jit" not in f.explain()


def test_a_reference():
    state = jax.new_ref(jnp.zeros(6))

    def count(x):
        state[...] += x
        return state[...] * 2

    with pytest.raises(shlo_disc.UnsupportedError, match=r"jax\.Ref"):
        shlo_disc.jit(count)(X)
    f = shlo_disc.jit(count, on_unsupported="xla")
    for k in (1, 2):
        np.testing.assert_allclose(f(X), X * 2 * k)


def test_a_reference_as_an_argument():
    def count(state, x):
        state[...] += x
        return x * 2

    state = jax.new_ref(jnp.zeros(6))
    with pytest.raises(shlo_disc.UnsupportedError, match=r"argument state is a jax\.Ref"):
        shlo_disc.jit(count)(state, X)
    f = shlo_disc.jit(count, on_unsupported="xla")
    for k in (1, 2):
        np.testing.assert_allclose(f(state, X), X * 2)
        np.testing.assert_allclose(state[...], X * k)
    assert "argument state is a jax.Ref" in f.explain()


def test_a_reference_of_the_program_around():
    f = shlo_disc.jit(lambda state, x: state[...] + x)

    def outer(x):
        state = jax.new_ref(x)
        state[...] *= 3
        return f(state, x)

    np.testing.assert_allclose(jax.jit(outer)(X), X * 4)
    assert "runs as a part of the program around it" in f.explain()


def test_donated_arguments_are_deleted():
    def whole(x):
        return jnp.abs(unchanged(x))

    f = shlo_disc.jit(whole, on_unsupported="xla", donate_argnums=0)
    x = jnp.asarray(X)
    np.testing.assert_allclose(f(x), whole(X), rtol=1e-5)
    assert x.is_deleted()


def test_a_bad_value():
    with pytest.raises(ValueError, match="on_unsupported"):
        shlo_disc.jit(lambda x: x, on_unsupported="ignore")


def test_an_error_behind_itself_is_kept_without_frames():
    try:
        try:
            raise UnsupportedError("one")
        except UnsupportedError as error:
            raise error from error
    except UnsupportedError as error:
        kept = without_frames(error)
    assert kept.__cause__ is kept
    assert kept.__traceback__ is None
