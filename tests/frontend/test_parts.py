"""Programs in parts: the cut, equations at the sizes of a call, and whole functions."""

import gc
import logging
import random
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.jax.equations.at_sizes import closed_at, read, run_equations
from shlo_disc.jax.equations.partition import COMPILED, READ, XLA, closed_part, flatten, partition
from tests.refused import unchanged

REAL = True


def flat_of(function, *arguments):
    return flatten(jax.make_jaxpr(function)(*arguments), lambda e: e.primitive.name == "jit")


def run_parts(flat, parts, arguments):
    """The results, and what every part was given."""
    values = dict(flat.constants)
    values.update(zip(flat.arguments, arguments, strict=True))
    for part in parts:
        inside = dict(flat.constants)
        inside.update((v, values[v]) for v in part.inputs)  # and nothing else
        run_equations(part.equations, inside, {})
        values.update((v, inside[v]) for v in part.outputs)
    return [read(values, atom) for atom in flat.results]


def random_function(seed):
    """A function of two arrays with shared values, constants, and results that are arguments."""
    rng = random.Random(seed)
    steps = [(rng.randrange(6), rng.random(), rng.random()) for _ in range(rng.randrange(3, 14))]
    numbers = np.linspace(0, 1, 4, dtype=np.float32)

    def function(x, y):
        values = [x, y]
        for kind, a, b in steps:
            one, two = (values[int(place * len(values))] for place in (a, b))
            values.append(
                [
                    lambda one=one: jnp.tanh(one),
                    lambda one=one, two=two: one * two,
                    lambda one=one: one + numbers,
                    lambda: jnp.arange(4, dtype=jnp.float32) * 2,
                    lambda one=one: jax.jit(lambda v: (v + 1).sum() + jnp.zeros(4))(one),
                    lambda one=one, two=two: jnp.sort(one) - two,
                ][kind]()
            )
        return [values[k] for k in sorted({0, len(values) // 2, len(values) - 1})] + [2.0]

    return function


@pytest.mark.parametrize("seed", range(40))
def test_any_cut_computes_the_same(seed):
    x, y = (np.linspace(a, 1, 4, dtype=np.float32) for a in (-1, 0.5))
    function = random_function(seed)
    flat = flat_of(function, x, y)
    rng = random.Random(seed)
    for chance in (0.0, 0.3, 0.7, 1.0):
        kinds = [XLA if rng.random() < chance else COMPILED for _ in flat.equations]
        parts = partition(flat, kinds, {})
        for part in parts:
            closed_part(flat, part)
            assert len(set(part.outputs)) == len(part.outputs)
        found = [e for part in parts for e in part.equations]
        once = [e for e, kind in zip(flat.equations, kinds, strict=True) if kind == XLA]
        assert all(sum(e is f for f in found) == 1 for e in once)
        if chance in (0.0, 1.0):
            assert len(parts) <= 2  # the second: results that depend on no argument
        for got, want in zip(run_parts(flat, parts, (x, y)), function(x, y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_few_parts():
    """`a` and `c` run together although `b` stands between them."""

    def function(x):
        a = jnp.tanh(x)
        b = jnp.sort(a)
        c = jnp.exp(x)
        return jnp.sort(c * b)

    flat = flat_of(function, np.ones(3, np.float32))
    kinds = [XLA if e.primitive.name == "sort" else COMPILED for e in flat.equations]
    names = [[e.primitive.name for e in p.equations] for p in partition(flat, kinds, {})]
    assert names == [["tanh", "exp"], ["sort"], ["mul"], ["sort"]]


def test_what_needs_no_argument_is_repeated():
    """No part hands an `iota` to another."""

    def function(x):
        return jnp.sort(x + jnp.arange(3)) * jnp.arange(3)

    flat = flat_of(function, np.ones(3, np.float32))
    kinds = [XLA if e.primitive.name == "sort" else COMPILED for e in flat.equations]
    parts = partition(flat, kinds, {})
    assert [len(p.inputs) for p in parts] == [1, 1, 1]


def test_effects_keep_their_order():
    def function(x):
        jax.debug.print("one {}", x)
        y = jnp.tanh(x)
        jax.debug.print("two {}", y)
        jax.debug.print("three {}", x)
        return y

    flat = flat_of(function, np.ones(3, np.float32))
    kinds = [XLA if e.effects else COMPILED for e in flat.equations]
    order = [e.params["fmt"] for p in partition(flat, kinds, {}) for e in p.equations if e.effects]
    assert order == ["one {}", "two {}", "three {}"]


PROGRAMS_OF_SIZES = {
    "shapes": lambda x: (jnp.ones((x.shape[0], 2)) * x.shape[0], x.reshape(-1)[1:]),
    "scan": lambda x: jax.lax.scan(
        lambda c, r: (c + r.sum(), jnp.zeros(x.shape[1]) + c), jnp.float32(0), x
    ),
    "while": lambda x: jax.lax.while_loop(lambda s: s < x.shape[0], lambda s: s + 2, 0),
    "fori": lambda x: jax.lax.fori_loop(0, x.shape[0], lambda k, c: c + jnp.asarray(x)[k], x[0]),
    "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda: x[1:], lambda: -x[1:]),
    "custom": lambda x: jax.nn.relu(x) + jax.nn.logsumexp(x, 1, keepdims=True),
    "gather": lambda x: x[jnp.argsort(x[:, 0])] @ jnp.ones((x.shape[1], 3)),
    "remat": jax.checkpoint(lambda x: jnp.tanh(x).sum(0)),
    "type": lambda x: jax.lax.conj_p.bind(x, input_dtype=np.float32).imag,
}


@pytest.mark.parametrize("name", PROGRAMS_OF_SIZES)
def test_equations_at_sizes(name):
    """What was traced with symbols computes at numbers what the function does there."""
    function = PROGRAMS_OF_SIZES[name]
    n, m = export.symbolic_shape("n, m")
    closed = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((n, m), jnp.float32))
    for sizes in ({"n": 4, "m": 3}, {"n": 2, "m": 1}):
        x = np.linspace(-1, 2, sizes["n"] * sizes["m"], dtype=np.float32).reshape(*sizes.values())
        found = closed_at(closed, sizes)
        assert "n" not in {str(s) for aval in found.out_avals for s in aval.shape}
        got = jax.extend.core.jaxpr_as_fun(found)(x)
        for ours, theirs in zip(got, jax.tree.leaves(function(x)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    (other,) = export.symbolic_shape("k")
    some = closed_at(closed, {"m": 3, "n": 2 * other + 1})
    assert {str(s) for aval in some.in_avals for s in aval.shape} == {"2*k + 1", "3"}


def test_an_argument_returned_under_vmap_is_an_array_of_jax():
    printed = in_parts(lambda x: (jax.debug.print("{}", x.sum()), x)[1])
    given = np.ones((3, 2), np.float32)
    assert type(jax.vmap(printed)(given)) is type(jax.vmap(jax.jit(lambda x: x))(given))


# ---- whole functions -----------------------------------------------------------------------------


def in_parts(function, **options):
    return shlo_disc.jit(function, on_unsupported="xla", **options)


def alike(function, *calls, rtol=1e-5, **options):
    """Compares with `jax.jit`, leaf by leaf; returns ours."""
    f, g = in_parts(function, **options), jax.jit(function)
    for args in calls:
        for ours, theirs in zip(jax.tree.leaves(f(*args)), jax.tree.leaves(g(*args)), strict=True):
            assert ours.aval == theirs.aval  # weak types, too
            if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
                ours, theirs = map(jax.random.key_data, (ours, theirs))
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-5)
    return f


def rows(*sizes):
    return [(np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3),) for n in sizes]


def test_many_kinds_of_values_between_parts():
    """Keys, integers, complex numbers, booleans, arguments and constants as results."""

    def function(x):
        spectrum = unchanged(jnp.fft.fft(x, axis=1).real) + 1j * x
        key = jax.random.key(x.shape[0])
        jax.debug.callback(lambda k: None, jax.random.key_data(key))
        noise = jax.random.uniform(jax.random.split(key)[0], x.shape)
        return {
            "complex": spectrum,
            "real": jnp.tanh(spectrum.real) + noise,
            "key": jax.random.fold_in(key, 3),
            "argument": x,
            "weak": x.sum() * 0 + 2,
            "number": 3.0,
            "size": x.shape[0],
            "constant": np.arange(3),
            "true": jnp.abs(spectrum) > 1,
        }

    f = alike(function, *rows(4, 7, 4, 2))
    assert f.cache_info().misses == 1


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_between_caller_and_parts(implementation):
    """One key, many of them, one that nobody reads; as arguments and as results."""

    def function(tree, x, unread):
        noise = unchanged(jax.random.normal(tree["key"], x.shape) + x)
        rows = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(tree["keys"])
        return noise * 2, rows, jax.random.split(tree["key"], 2), tree["keys"][::-1]

    def arguments(n):
        key, unread = (jax.random.key(k, impl=implementation) for k in (n, 0))
        tree = {"key": key, "keys": jax.random.split(key, n)}
        return tree, np.ones((n, 3), np.float32), unread

    f = alike(function, *map(arguments, (4, 7, 1)))
    assert f.cache_info().misses == 1


def test_what_is_not_compiled_in_a_loop_takes_the_loop(caplog):
    def function(x):
        def body(c, r):
            return c + r.sum(), unchanged(jnp.tanh(r))

        total, y = jax.lax.scan(body, jnp.float32(0), x * 2)
        return total * 3, y

    f = alike(function, *rows(4, 7))
    (told,) = caplog.messages
    assert "scan" in told
    assert "mul" not in told
    assert f.cache_info().misses == 1


def test_calls_that_we_cannot_compile_inside_of_ours():
    def inner(x):
        return jnp.abs(unchanged(x)) + x

    def function(x):
        return jnp.tanh(shlo_disc.jit(inner)(x * 2))

    f = in_parts(function)
    for (x,) in rows(4, 5):
        np.testing.assert_allclose(f(x), jnp.tanh(inner(x * 2)), rtol=1e-5)
    assert f.cache_info().misses == 1


def test_a_rule_of_the_user_keeps_its_derivative(caplog):
    """Values may run in parts; a derivative has to see the rule, so XLA runs the whole function."""

    @jax.custom_jvp
    def spectrum(x):
        return jnp.abs(unchanged(x))

    spectrum.defjvp(lambda primals, tangents: (spectrum(*primals), 5 * tangents[0]))

    def function(x):
        return spectrum(jnp.tanh(x)).sum()

    ((x,),) = rows(4)
    f = alike(function, (x,))
    assert "rng_uniform" in caplog.messages[0]
    np.testing.assert_allclose(jax.grad(f)(x), jax.grad(function)(x), rtol=1e-5)
    assert "custom_jvp" in f.explain()


@pytest.mark.parametrize("way", ["grad", "vmap", "jit", "jvp", "grad of jit", "hessian"])
def test_transformations(way):
    def function(x):
        return jnp.sum(jnp.tanh(unchanged(jnp.sin(x) + 2)) ** 2)

    transform = {
        "grad": jax.grad,
        "vmap": jax.vmap,
        "jit": jax.jit,
        "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x + 1,)),
        "grad of jit": lambda f: jax.grad(jax.jit(f)),
        "hessian": jax.hessian,
    }[way]
    f = transforms_of(function)
    for (x,) in rows(2, 4):
        for ours, theirs in zip(
            jax.tree.leaves(transform(f)(x)), jax.tree.leaves(transform(function)(x)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


_made = {}


def transforms_of(function):
    """One function of ours for all tests that differentiate it."""
    return _made.setdefault(function.__code__, in_parts(function))


def test_prints_come_in_order(capfd):
    def function(x):
        jax.debug.print("first {}", x.shape[0], ordered=True)
        y = jnp.tanh(x)
        jax.debug.print("second {}", y.sum() > 100, ordered=True)
        return y

    f = in_parts(function)
    for (x,) in rows(3, 5):
        f(x)
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == [
        "first",
        "3",
        "second",
        "False",
        "first",
        "5",
        "second",
        "False",
    ]


def test_donated_arguments_and_those_that_are_results():
    f = in_parts(lambda x, y: (x, unchanged(y) * 1j), donate_argnums=(0, 1))
    x, y = jnp.ones(3), jnp.arange(4.0)
    with pytest.warns(UserWarning, match="donated arguments y; these arrays are kept"):
        kept, spectrum = f(x, y)
    assert x.is_deleted()
    assert not y.is_deleted()  # no result is real and as long
    np.testing.assert_array_equal(kept, np.ones(3))
    np.testing.assert_allclose(spectrum, np.arange(4) * 1j, rtol=1e-5)


def test_sizes_of_zero_and_one():
    def function(x):
        return jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(x.shape[0])).sum() + x.sum()

    alike(function, *rows(1, 0, 4, 1))


def test_static_arguments_and_questions(caplog):
    caplog.set_level(logging.ERROR)

    def function(x, scale):
        y = unchanged(x * scale)
        return y + 1 if x.shape[0] % 2 else y * 2

    f, g = (
        jit(function, static_argnums=1) for jit in (in_parts, jax.jit)
    )  # the order of calls chooses the versions
    for n, scale in ((3, 2), (4, 2), (5, 2), (6, 3), (9, 3)):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_allclose(f(x, scale), g(x, scale), rtol=1e-5, atol=1e-5)


def test_what_a_program_in_parts_tells():
    f = in_parts(lambda x: jnp.tanh(unchanged(jnp.sin(x))))
    (x,) = (np.ones(5, np.float32),)
    compiled = f.lower(x).compile()
    np.testing.assert_allclose(compiled(x), np.tanh(np.sin(x)), atol=1e-6)
    assert compiled.as_text().count("// part") == 2
    assert any(key.startswith("part 2: ") for key in compiled.cost_analysis())
    assert len(f.explain("json")) > 100
    with pytest.raises(shlo_disc.UnsupportedError, match="in parts"):
        f.profile(x)


def test_read_is_a_part_of_its_own():
    from shlo_disc.jax.sizes.fresh import FreshSizes, assuming

    def function(x):
        place = shlo_disc.numpy.flatnonzero(x > 0)
        return x[place].sum()

    with assuming(FreshSizes()):
        flat = flat_of(function, np.ones(3, np.float32))
    kinds = [READ if "read" in e.primitive.name else COMPILED for e in flat.equations]
    parts = partition(flat, kinds, {})
    assert [p.kind for p in parts] == [COMPILED, READ, COMPILED]


@pytest.mark.parametrize("kind", ["xla", "sizes"])
def test_parts_die_with_their_function(kind):
    def function(x):
        y = jnp.tanh(x)
        if kind == "xla":
            return jnp.abs(unchanged(y))
        return y[shlo_disc.numpy.flatnonzero(y > 0)] * 2

    f = in_parts(function)
    ((x,),) = rows(3)
    f(x.ravel())
    ((version,),) = (family.versions for family in f._families.values())
    parts = version.in_parts
    held = [weakref.ref(parts), *(weakref.ref(program) for program in parts.programs)]
    held += [weakref.ref(program.executable) for program in parts.programs]
    gc.collect()
    gc.disable()
    try:
        jax.clear_caches()
        del f, version, parts
        assert not any(made() for made in held)
    finally:
        gc.enable()
