"""Functions under what JAX does around them: values, axes and checks of outer programs, debugging
modes, and calls on arrays while something is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify

import shlo_disc

REAL = True


def F(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def same(program):
    """`program(jit)` is the same for our decorator and for JAX's."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        program(shlo_disc.jit),
        program(jax.jit),
    )


def in_jit(jit):
    def outer(w, x):
        return jit(lambda y: jnp.tanh(y @ w))(x).sum()

    return jax.jit(outer)(F(3, 2), F(4, 3)), jax.grad(outer, (0, 1))(F(3, 2), F(4, 3))


def in_vmap(jit):
    return jax.vmap(lambda w: jit(lambda y: y @ w)(F(4, 3)))(F(5, 3, 2))


def in_scan(jit):
    return lax.scan(lambda c, x: (jit(lambda y: jnp.tanh(y + c))(x), c.sum()), F(3), F(4, 3))


def a_method(jit):
    class Model:
        def __init__(self, w):
            self.w = w

        def __call__(self, x):
            return x @ self.w

    return jax.grad(lambda w, x: jit(Model(w).__call__)(x).sum())(F(3, 2), F(4, 3))


def an_axis(jit):
    f = jit(lambda x: (x - lax.pmean(x, "i")) * lax.axis_index("i"))
    return [jax.vmap(f, axis_name="i")(F(b, 3)) for b in (4, 2)]


@pytest.mark.parametrize("program", [in_jit, in_vmap, in_scan, a_method, an_axis])
def test_a_part_of_the_program_around_it(program):
    same(program)


def test_a_part_of_the_program_around_it_is_told_once(caplog):
    f = shlo_disc.jit(lambda x: x - lax.pmean(x, "i"), name="centred")
    for b in (4, 2):
        jax.vmap(f, axis_name="i")(F(b, 3))
    (told,) = caplog.messages
    assert told.startswith("centred runs as a part of the program around it")
    assert "axis name 'i'" in told
    assert told in f.explain()


def checked(x):
    checkify.check(jnp.all(x > 0), "not positive")
    return jnp.log(x)


@pytest.mark.parametrize(
    ("function", "errors", "argument"),
    [
        (checked, checkify.user_checks, np.float32([1, -1])),
        (checked, checkify.user_checks, np.float32([1, 2])),
        (lambda x: jnp.log(x) / x, checkify.float_checks, np.float32([1, -1])),
        (lambda x: jnp.log(x) / x, checkify.float_checks, np.float32([1, 0, 2])),
        (lambda x: jnp.log(x) / x, checkify.float_checks, np.float32([1, 2, 3, 4])),
        (lambda x: x[x.astype(int)], checkify.index_checks, np.float32([0, 1, 5])),
        (lambda x: x[x.astype(int)], checkify.index_checks, np.float32([0, 1, 1])),
    ],
)
@pytest.mark.parametrize("outer", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_checkify_looks_into_a_program(function, errors, argument, outer):
    def run(jit):
        error, result = outer(checkify.checkify(jit(function), errors=errors))(argument)
        return error.get(), result

    (told, result), (expected, reference) = run(shlo_disc.jit), run(jax.jit)
    assert (told is None) == (expected is None)
    assert told is None or told.splitlines()[0] == expected.splitlines()[0]
    np.testing.assert_allclose(result, reference, rtol=1e-6)


PLACES = {
    "gather": lambda x, i: x[i],
    "scatter": lambda x, i: x.at[i].add(1.0),
    "slice": lambda x, i: lax.dynamic_index_in_dim(x, i[0]),
    "update": lambda x, i: lax.dynamic_update_index_in_dim(x, 7.0, i[0], 0),
}


@pytest.mark.parametrize("name", PLACES)
def test_errors_of_places_in_arrays_of_any_size(name):
    """A result has numbers and tracebacks of a trace in its structure, and sizes of the call."""
    function = checkify.checkify(PLACES[name], errors=checkify.index_checks)
    f = shlo_disc.jit(function)
    for n, places in ((3, [3, 0]), (5, [4, 0]), (2, [9, 1])):
        x, places = np.arange(n, dtype=np.float32), np.int32(places)
        (error, result), (expected, reference) = f(x, places), jax.jit(function)(x, places)
        assert error.get() == expected.get()
        np.testing.assert_array_equal(result, reference)
    assert f.cache_info().misses == 1, f.guards()


def test_checkify_inside():
    def run(jit):
        error, result = jit(checkify.checkify(checked))(np.float32([1, -1]))
        return np.int32(error.get() is not None), result

    same(run)


@pytest.mark.parametrize(
    ("mode", "argument"), [(jax.debug_nans, np.float32([-1])), (jax.debug_infs, np.float32([0]))]
)
def test_numbers_that_jax_looks_for_are_errors(mode, argument):
    f = shlo_disc.jit(jnp.log)
    plain = f(argument)
    with mode(True):
        for _ in range(2):  # new, and known
            with pytest.raises(FloatingPointError):
                f(argument)
        f(np.float32([2]))
        with pytest.raises(FloatingPointError):
            jax.jit(lambda x: f(x) + 1)(argument)
    np.testing.assert_array_equal(f(argument), plain)


def test_results_under_a_transfer_guard():
    f = shlo_disc.jit(lambda x: (x + 1, x * 2))
    x = jnp.ones(3)
    with jax.transfer_guard("disallow"):
        for _ in range(2):
            first, second = f(x)
    np.testing.assert_array_equal(first, second)


def test_an_array_in_a_trace_is_a_part_of_it():
    f, calls = shlo_disc.jit(lambda x: x * 2), []

    def outer(y):
        made = f(np.float32([1, 2]))
        calls.append(isinstance(made, jax.core.Tracer))
        return made + y

    f(np.float32([1, 2]))
    np.testing.assert_array_equal(jax.jit(outer)(1.0), [3, 5])
    names = [str(e.primitive) for e in jax.make_jaxpr(outer)(1.0).eqns]
    assert "shlo_disc_call" in names
    assert calls == [True]
    np.testing.assert_array_equal(jax.vmap(outer)(np.ones(2, np.float32)), [[3, 5]] * 2)
    with jax.ensure_compile_time_eval():
        assert not isinstance(f(np.float32([1, 2])), jax.core.Tracer)


def exported(program, *args):
    """The `jax.export.Exported` of a program for two platforms, without our custom call."""
    made = jax.export.export(jax.jit(program), platforms=("cpu", "cuda"))(*args)
    assert "shlo_disc.call" not in made.mlir_module()
    return made


def test_an_export_has_the_operations_of_our_functions():
    f = shlo_disc.jit(lambda w, x: jnp.tanh(x @ w) + x.shape[0])

    def whole(w, x):
        return f(w, x).sum() * 2

    w, x, many = F(4, 4), F(3, 4), F(5, 3, 4)
    for program, args in (
        (whole, (w, x)),
        (jax.value_and_grad(whole), (w, x)),
        (jax.vmap(jax.grad(whole), (None, 0)), (w, many)),
    ):
        got, want = exported(program, *args).call(*args), program(*args)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)
    key = jax.random.key(0)
    draw = shlo_disc.jit(lambda key, x: x + jax.random.uniform(key, x.shape))
    np.testing.assert_array_equal(exported(draw, key, x).call(key, x), draw(key, x))


def test_an_export_with_symbolic_sizes_has_them_too():
    f = shlo_disc.jit(lambda x: jnp.tanh(x) * x.shape[0])
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 4"), np.float32)
    made = exported(lambda x: f(x) + 1, spec)
    for rows in (2, 5):
        np.testing.assert_allclose(made.call(F(rows, 4)), np.tanh(F(rows, 4)) * rows + 1, rtol=1e-5)
