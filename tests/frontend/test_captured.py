"""Variables of the program around a function: tracers it reads are arguments of its program."""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify

import shlo_disc
from tests.cases import slow


def F(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), a, b)


class Jits:
    """A decorator, and the functions it made."""

    def __init__(self, **options):
        self.options = options
        self.made = []

    def __call__(self, function, **options):
        self.made.append(shlo_disc.jit(function, **{**self.options, **options}))
        return self.made[-1]

    def are_compiled(self):
        """True if XLA ran none of the functions as a part of the program around it."""
        return all("version 1" in f.explain() and "runs as" not in f.explain() for f in self.made)


def weights(jit):
    def outer(w, b, x):
        return jnp.sum(jit(lambda y: jnp.tanh(y @ w + b))(x) ** 2)

    return outer


def two_nested(jit):
    def outer(w, b, x):
        def inner(y):
            return jit(lambda z: jnp.tanh(z @ w) + y.sum())(y) * b

        return jnp.sum(jit(inner)(x))

    return outer


def one_after_another(jit):
    def outer(w, b, x):
        def layer(w):
            return jit(lambda y: jnp.tanh(y @ w).sum(0))

        return jnp.sum(layer(w)(x) * layer(w * 2)(x) + b)

    return outer


def a_method(jit):
    class Model:
        def __init__(self, w, b):
            self.layers = [{"w": w, "b": b}]

        def __call__(self, x):
            return [jnp.tanh(x @ layer["w"] + layer["b"]) for layer in self.layers]

    return lambda w, b, x: jit(Model(w, b).__call__)(x)[0].sum()


def loops_and_branches(jit):
    def outer(w, b, x):
        def inner(x):
            total, _ = lax.scan(lambda c, row: (jnp.sin(c + row @ w), None), b, x)
            total = lax.fori_loop(0, 3, lambda k, c: jnp.tanh(c * b) + w[0], total)
            return lax.cond(x[0, 0] > 0, lambda c: c @ w.T, lambda c: (c + b) @ w.T, total)

        return jit(inner)(x).sum()

    return outer


def programs_inside(jit):
    def outer(w, b, x):
        def inner(x):
            step = jax.jit(lambda y: y @ w)
            slope = jax.grad(lambda y: jnp.sum(jnp.tanh(y @ w)))(x)
            each = jax.vmap(lambda row: row @ w + b)(x)
            again = jax.checkpoint(lambda y: jnp.sin(y @ w))(x)
            return step(x).sum() + slope.sum() + each.sum() + again.sum() + w.shape[0] * x.size

        return jit(inner)(x)

    return outer


def rules_of_the_user(jit):
    @jax.custom_vjp
    def halved(x, w):
        return x @ w

    halved.defvjp(lambda x, w: (x @ w, (x, w)), lambda r, g: (g @ r[1].T / 2, r[0].T @ g / 2))

    @jax.custom_jvp
    def slow(x):
        return jnp.sin(x)

    slow.defjvp(lambda primals, tangents: (slow(*primals), 3 * tangents[0]))
    return lambda w, b, x: jnp.sum(jit(lambda y: slow(halved(y, w) + b))(x))


def arguments_and_constants_too(jit):
    table = jnp.arange(3.0) + 1

    def outer(w, b, x):
        y = x * 2

        def inner(z):
            return jnp.sum(jnp.tanh(z * table @ w) + jnp.sin(y @ w) * (z == y).sum() + b)

        return jit(inner)(y)

    return outer


def a_size_of_it(jit):
    def outer(w, b, x):
        n = w.shape[0]
        return jit(lambda y: jnp.sum((y @ w).reshape(-1, w.shape[1]) / n + b))(x)

    return outer


PROGRAMS = [
    weights,
    two_nested,
    one_after_another,
    a_method,
    loops_and_branches,
    programs_inside,
    rules_of_the_user,
    arguments_and_constants_too,
    a_size_of_it,
]
AROUND = {
    "jit": jax.jit,
    "grad": lambda f: jax.value_and_grad(f, (0, 1, 2)),
    "grad of jit": lambda f: jax.grad(jax.jit(f), (0, 1, 2)),
    "vmap": lambda f: jax.vmap(f, (None, 0, None)),
    "scan": lambda f: lambda w, b, x: lax.scan(lambda c, b: (c + f(w, b, x), c), 0.0, b)[0],
    "vmap of grad": lambda f: jax.vmap(jax.grad(f), (None, None, 0)),
    "jit of vmap of grad": lambda f: jax.jit(jax.vmap(jax.grad(f, (0, 2)), (0, None, 0))),
}


def arguments(around, k, m, n):
    w, b, x = F(k, m), F(m), F(n, k)
    if around in ("vmap", "scan"):
        return w, F(2, m), x
    if around == "vmap of grad":
        return w, b, F(2, n, k)
    if around == "jit of vmap of grad":
        return F(2, k, m), b, F(2, n, k)
    return w, b, x


def same_as_jax(program, around):
    jit = Jits()
    args, wrap = arguments(around, 3, 2, 4), AROUND[around]
    close(wrap(program(jit))(*args), jax.jit(wrap(program(jax.jit)))(*args))
    assert jit.are_compiled() or program is two_nested


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_derivatives_are_those_of_jax(program):
    same_as_jax(program, "grad")


@pytest.mark.parametrize("around", [name for name in AROUND if name != "grad"])
def test_under_what_jax_does_around_it(around):
    same_as_jax(weights, around)


@pytest.mark.slow
@pytest.mark.parametrize("around", [name for name in AROUND if name != "grad"])
@pytest.mark.parametrize("program", PROGRAMS[1:])
def test_every_program_under_everything(program, around):
    same_as_jax(program, around)


def test_functions_nested_are_one_program():
    jit = Jits()
    jax.jit(two_nested(jit))(F(3, 2), F(2), F(4, 3))
    outer, *inner = jit.made
    assert "version 1" in outer.explain()
    assert all("has not been called" in f.explain() for f in inner)


HIGHER = {
    "hessian": lambda f: jax.hessian(f, (0, 1)),
    "jvp of grad": lambda f: lambda w, b, x: jax.jvp(jax.grad(f), (w, b, x), (w, b, x)),
    "grad of grad": lambda f: jax.grad(lambda w, b, x: jnp.sum(jax.grad(f, 2)(w, b, x) ** 2)),
    "linearize": lambda f: lambda *args: jax.linearize(f, *args)[1](*args),
}


@pytest.mark.parametrize("around", HIGHER)
def test_higher_derivatives(around):
    wrap, args = HIGHER[around], (F(3, 2), F(2), F(4, 3))
    close(wrap(weights(Jits()))(*args), jax.jit(wrap(weights(jax.jit)))(*args))


class Box:
    """Where a function finds a variable that changes from call to call."""


def of_box(function, **options):
    """`(w, x) -> function(w, x)` by one function of x, which reads w of a box."""
    box = Box()
    f = shlo_disc.jit(lambda x: function(box.w, x), **options)

    def outer(w, x):
        box.w = w
        try:
            return f(x)
        finally:
            del box.w

    return f, outer


def test_one_program_serves_outer_programs_at_other_sizes(standin):
    f, outer = of_box(lambda w, x: jnp.tanh(x @ w).sum())
    for k, m, n in ((3, 2, 4), (5, 1, 7), (2, 6, 1)):
        w, x = F(k, m), F(n, k)
        close(jax.jit(outer)(w, x), np.tanh(x @ w).sum())
        slope = 1 - np.tanh(x @ w) ** 2
        for wrap in (jax.grad, lambda f: jax.grad(jax.jit(f)), lambda f: jax.jit(jax.grad(f))):
            close(wrap(outer)(w, x), x.T @ slope)
    assert f.cache_info().currsize == 1
    assert len(standin) == f.cache_info().misses == 3  # the value; it with residuals; the slope


def test_a_function_of_a_new_closure_is_not_compiled_again(standin):
    jit = Jits()
    kept = [
        jax.jit(weights(jit)).lower(F(k, m), F(m), F(n, k)) for k, m, n in ((3, 2, 4), (5, 3, 7))
    ]
    assert len(kept) == len(jit.made) == 2
    assert len(standin) == 1


def test_each_call_reads_its_own_variable():
    _, outer = of_box(lambda w, x: jnp.tanh(x * w).sum())
    x = F(4)

    def twice(w):
        return outer(w, x) + 2 * outer(w * 3, x) + outer(jnp.float32(2), x)

    expected = np.tanh(x * 1.5).sum() + 2 * np.tanh(x * 4.5).sum() + np.tanh(x * 2).sum()
    close(jax.jit(twice)(1.5), expected)
    close(jax.value_and_grad(twice)(1.5)[0], expected)
    close(jax.vmap(twice)(np.float32([1.5, 1.5])), [expected] * 2)


def test_a_number_that_python_reads_of_a_variable():
    """A derivative of Python's numbers: JAX lets a function read the value behind a tracer."""
    f, outer = of_box(lambda w, x: x * w if w else x - w)
    for w, expected in ((2.0, 6), (0.0, -4), (3.0, 6)):
        close(jax.grad(lambda w: outer(w, F(4) * 0 + 1.5).sum())(w), np.float32(expected))
    assert "captured[0]" in f.explain()


def test_a_size_that_python_keeps_of_a_variable():
    f, outer = of_box(lambda w, x: x / sizes[-1] + w[: sizes[-1]].sum())
    sizes = []
    for n in (3, 5):
        sizes.append(n)
        close(jax.jit(outer)(F(n + 1), F(2)), F(2) / n + F(n + 1)[:n].sum())
    assert f.cache_info().currsize == 2


@pytest.mark.parametrize(
    ("captured", "function"),
    [
        (F(0, 3), lambda w, x: x @ w.T),
        (F(3, 0), lambda w, x: (x @ w).sum() + w.shape[1]),
        (np.int32([2, 0, 2]), lambda w, x: x[w] * w.dtype.itemsize),
        (np.int8([2, 0, 2]), lambda w, x: (x * w).astype(w.dtype)),
        (np.bool_([True, False, True]), lambda w, x: jnp.where(w, x, 2 * x)),
        (2.5, lambda w, x: x.astype(jnp.bfloat16) * w),
        (np.float32(2.5), lambda w, x: x.astype(jnp.bfloat16) * w),
        (3, lambda w, x: x * w),
        ({"a": F(3), "b": [F(4, 3)]}, lambda w, x: (x + w["a"]) @ w["b"][0].T),
    ],
    ids=["0 rows", "0 columns", "int32", "int8", "bool", "weak", "scalar", "weak int", "tree"],
)
def test_types_of_variables(captured, function):
    for wrap in (jax.jit, lambda f: jax.jit(lambda w, x: f(w, x) * 2)):
        jit = Jits()
        result = wrap(lambda w, x: jit(lambda y: function(w, y))(x))(captured, F(4, 3))  # noqa: B023
        expected = wrap(lambda w, x: jax.jit(lambda y: function(w, y))(x))(captured, F(4, 3))
        assert (result.dtype, result.weak_type) == (expected.dtype, expected.weak_type)
        close(np.float32(result), np.float32(expected))
        assert jit.are_compiled()


def test_keys():
    key = jax.random.key(3)
    keys = jax.random.split(key, 4)

    def outer(jit):
        def whole(key, keys, x):
            draw = jit(lambda y: y + jax.random.uniform(key, y.shape))(x)
            return draw, jax.random.key_data(jit(lambda k: keys[k])(2)), jit(lambda _: key)(x)

        return whole

    for wrap in (jax.jit, lambda f: jax.vmap(f, (None, None, 0))):
        jit = Jits()
        got = wrap(outer(jit))(key, keys, F(3, 4))
        want = wrap(outer(jax.jit))(key, keys, F(3, 4))
        for a, b in zip((*got[:2], jax.random.key_data(got[2])),
                        (*want[:2], jax.random.key_data(want[2])), strict=True):  # fmt: skip
            np.testing.assert_array_equal(a, b)
        assert jit.are_compiled()


def test_a_rule_of_jax_that_needs_numbers():
    """The function cannot be traced again when JAX asks for the derivative of an outer program."""

    def combined(w, x):
        rows = lax.reduce(x @ w, np.float32(0), lambda a, b: a + b + a * b, (0,))
        return rows.sum() + w.sum()

    f, outer = of_box(combined)
    for k, n in ((3, 4), (2, 5), (3, 4)):
        w, x = F(k, 2), F(n, k)
        expected = jax.grad(combined, (0, 1))(w, x)
        for wrap in (lambda f: f, jax.jit):
            close(jax.grad(wrap(outer), (0, 1))(w, x), expected)
    assert f.cache_info().currsize == 1


def test_checkify_looks_into_a_program():
    f, outer = of_box(lambda w, x: jnp.log(x * w))
    for n in (2, 3):
        for value, is_error in ((1, False), (-1, True)):
            checked = checkify.checkify(jax.jit(outer), errors=checkify.float_checks)
            error, _ = checked(np.float32(value), np.arange(1, n + 1, dtype=np.float32))
            assert (error.get() is not None) == is_error
    assert f.cache_info().currsize == 1


def test_nothing_outlives_the_program_around():
    f, outer = of_box(lambda w, x: jnp.tanh(x @ w).sum())
    tracers = []

    def watched(w, x):
        w = w * 2
        tracers.append(weakref.ref(w))
        return outer(w, x)

    kept = jax.make_jaxpr(watched)(F(3, 2), F(4, 3)), jax.vjp(watched, F(3, 2), F(4, 3))
    jax.vmap(watched)(F(2, 3, 2), F(2, 4, 3))
    gc.collect()
    assert len(kept) == 2
    assert f.cache_info().currsize == 1
    assert len(tracers) == 3
    assert [ref() for ref in tracers] == [None] * 3


@pytest.mark.parametrize("program", [weights, *slow([a_method]), loops_and_branches])
def test_no_tracer_leaks(program):
    args = F(3, 2), F(2), F(4, 3)
    with jax.checking_leaks():
        for wrap in (jax.jit, jax.grad, lambda f: jax.jit(jax.grad(f))):
            close(wrap(program(shlo_disc.jit))(*args), jax.jit(wrap(program(jax.jit)))(*args))


@functools.cache
def results_of_jax(n):
    """Of `weights`, without and with its gradient, at n rows."""
    args, f = (F(3, 2), F(2), F(n, 3)), weights(jax.jit)
    return jax.jit(f)(*args), AROUND["grad"](f)(*args)


@pytest.mark.parametrize(
    "options",
    [
        *slow([{"dynamic": True}]),  # the default
        {"dynamic": False},
        {"dynamic": "checked"},
        {"shapes": ("n, k",), "constraints": "n >= 2"},
        {"shapes": {"y": "n, 3"}, "likely": {"n": 4}},
        {"donate_argnums": 0},
        {"on_unsupported": "xla"},
        {"background": True},
    ],
    ids=str,
)
def test_options(options):
    jit = Jits(**options)
    for n in (4, 5):
        args = F(3, 2), F(2), F(n, 3)
        value, both = results_of_jax(n)
        close(jax.jit(weights(jit))(*args), value)
        close(AROUND["grad"](weights(jit))(*args), both)
    assert jit.are_compiled()


def test_sizes_stated_of_the_arguments_hold():
    f, outer = of_box(lambda w, x: x @ w, shapes=("n, 3",))
    with pytest.raises(shlo_disc.ShapeMismatchError, match="3"):
        jax.jit(outer)(F(4, 2), F(5, 4))
    assert f.cache_info().currsize == 0


def test_an_error_of_the_program_is_that_of_jax():
    _, outer = of_box(lambda w, x: x @ w)
    with pytest.raises(TypeError, match="dot_general"):
        jax.jit(outer)(F(4, 2), F(5, 3))


def test_a_method_of_a_static_object():
    class Model:
        def __init__(self, w):
            self.w = w

        @(lambda f: shlo_disc.jit(f, static_argnums=0))
        def __call__(self, x):
            return jnp.tanh(x @ self.w).sum()

    for n in (4, 5):
        w, x = F(3, 2), F(n, 3)
        close(jax.grad(lambda w, x: Model(w)(x))(w, x), x.T @ (1 - np.tanh(x @ w) ** 2))


def test_names_of_variables():
    jit = Jits()
    jax.jit(a_method(jit))(F(3, 2), F(2), F(4, 3))
    jax.jit(weights(jit))(F(3, 2), F(2), F(4, 3))
    told = [f.explain() for f in jit.made]
    assert "self.layers[0]['w']: (d1, d3)" in told[0]
    assert "\n  w: (d1, d3)" in told[1]


def test_an_export_with_symbolic_sizes():
    jit = Jits()
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 3"), np.float32)
    f = jax.jit(lambda w: jit(lambda x: x @ w.T)(F(4, 3)))
    made = jax.export.export(f)(spec)
    for n in (2, 5):
        close(made.call(F(n, 3)), F(4, 3) @ F(n, 3).T)


def test_what_is_no_array_is_part_of_the_program_around(caplog):
    def outer(jit):
        def whole(x):
            state = jax.new_ref(x)

            def count(y):
                state[...] += y
                return state[...] * 2

            return jit(count)(x), state[...]

        return whole

    jit = Jits()
    close(jax.jit(outer(jit))(F(4)), jax.jit(outer(jax.jit))(F(4)))
    (told,) = caplog.messages
    assert "part of the program around it" in told
    assert "is no array" in told


def test_stages_name_the_variable():
    def outer(w):
        f = shlo_disc.jit(lambda x: x * w, name="scaled")
        with pytest.raises(shlo_disc.UnsupportedError, match="scaled reads a value that an outer"):
            f.lower(F(4))
        return f(F(4))

    close(jax.jit(outer)(2.0), F(4) * 2)
