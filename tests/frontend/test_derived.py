"""Derivatives and batches where a rule of JAX refuses symbols: the sizes in its way become
constants, and nothing else does."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

REAL = True


def F(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def compare(ours, expected):
    def close(a, b):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    jax.tree.map(close, ours, expected)


def conv(x, w):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x[None], w, (1, 1), "SAME", dimension_numbers=layout)[0]


def combined(x):
    """A reduction whose derivative JAX unrolls over the size."""
    return lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b, (0,))


PRODUCTS = {
    "rows": lambda x: (jnp.prod(jnp.cos(x), 1) ** 2).sum(),
    "zeros": lambda x: jnp.prod(jnp.where(jnp.arange(x.shape[0])[:, None] == 1, 0, x), 0).sum(),
    "none": lambda x: jnp.prod(x[1:], 0).sum(),
    "several": lambda x: jnp.prod(x[:, None] * jnp.ones((1, 2, 1)), (2, 0)).sum(),
    "complex": lambda x: jnp.abs(jnp.prod(x + 1j, 0)).sum(),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_derivative_of_a_product_is_compiled_once(name):
    product = PRODUCTS[name]

    def second(g):
        return lambda x: jax.jvp(jax.grad(g), (x,), (x * 2,))

    derived = second if name == "rows" else jax.grad
    inside, around = shlo_disc.jit(derived(product)), derived(shlo_disc.jit(product))
    for n in (4, 1):
        expected = jax.jit(derived(product))(F(n, 3))
        compare(inside(F(n, 3)), expected)
        compare(around(F(n, 3)), expected)
    assert inside.cache_info().misses == 1


def test_a_derivative_that_needs_a_number_is_compiled_for_each(caplog):
    f = shlo_disc.jit(combined)
    for n in (6, 8, 6):
        compare(jax.grad(f)(F(n)), jax.grad(combined)(F(n)))
        compare(jax.jit(jax.grad(f))(F(n)), jax.grad(combined)(F(n)))
    # Two programs for the derivative at each of two sizes; the function itself is not called.
    assert f.cache_info().misses == 2 * 2
    assert f.cache_info().currsize == 1
    assert any("d0 == 6 in derived programs" in line for line in f.guards())
    assert caplog.text.count("d0 is made a constant in a derived program") == 1


def test_only_the_batch_is_a_constant_for_kernels_of_their_own():
    f = shlo_disc.jit(conv)
    batch, reference = jax.vmap(f), jax.vmap(conv)
    for b, height in ((3, 5), (3, 6), (3, 4), (2, 4)):
        arguments = F(b, height, 5, 2), F(b, 3, 3, 2, 3)
        compare(batch(*arguments), reference(*arguments))
    assert f.cache_info().misses == 2  # for batches of 3 and of 2
    compare(jax.jit(batch)(*arguments), reference(*arguments))


def test_batches_of_derivatives_and_derivatives_of_batches():
    def loss(g):
        return lambda x, w: (g(x, w) ** 2).sum()

    f = shlo_disc.jit(conv)
    for b in (3, 2):
        arguments = F(b, 5, 5, 2), F(b, 3, 3, 2, 3)
        expected = jax.jit(jax.vmap(jax.grad(loss(conv), (0, 1))))(*arguments)
        compare(jax.vmap(jax.grad(loss(f), (0, 1)))(*arguments), expected)
        whole = lambda x, w: jax.vmap(loss(f))(x, w).sum()  # noqa: E731
        compare(jax.grad(whole, (0, 1))(*arguments), expected)


@pytest.mark.parametrize(
    "loop",
    [
        lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + jnp.sin(x[i]) * i, 0.0),
        lambda x: lax.fori_loop(x.shape[0] - 2, x.shape[0] + 1, lambda i, c: c * x[i - 2], x[0]),
        lambda x: lax.fori_loop(5, x.shape[0], lambda i, c: c + x[i] * i, 1.0),
        lambda x: lax.fori_loop(1, x.shape[0] // 2, lambda i, c: c * x[-i], 2.0),
    ],
    ids=["all", "from", "some", "half"],
)
def test_a_loop_between_sizes_has_a_derivative(loop):
    f, grad = shlo_disc.jit(jax.value_and_grad(loop)), jax.value_and_grad(shlo_disc.jit(loop))
    for n in (4, 3, 7, 6):
        x = np.linspace(0.5, 1, n, dtype=np.float32)
        expected = jax.jit(jax.value_and_grad(loop))(x)
        compare(f(x), expected)
        compare(grad(x), expected)
    # Without rounds, the shape rules of what a derivative keeps want another program.
    assert f.cache_info().misses <= 2


def test_an_error_of_the_program_stays():
    def endless(x):
        return lax.while_loop(lambda c: c.sum() < 5, lambda c: c + 1, x).sum()

    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(shlo_disc.jit(endless))(F(3))


@pytest.mark.parametrize("options", [{"shapes": ("n",)}, {"dynamic": True}])
def test_sizes_stated_to_be_symbols_stay_symbols(options):
    f = shlo_disc.jit(combined, **options)
    compare(f(F(3)), combined(F(3)))
    with pytest.raises(jax.errors.InconclusiveDimensionOperation) as caught:
        jax.grad(f)(F(3))
    assert "stated to be symbols" in str(caught.value)


def test_programs_of_constants_die_with_their_function():
    f = shlo_disc.jit(combined)
    compare(jax.grad(f)(F(5)), jax.grad(combined)(F(5)))
    ((version,),) = (family.versions for family in f._families.values())
    programs = [weakref.ref(program) for program in version.program._relatives()]
    assert len(programs) > 3
    gc.collect()
    gc.disable()
    try:
        jax.clear_caches()
        del f, version
        assert not any(program() for program in programs)
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.array])
def test_derivatives_at_numbers_of_any_type(kind):
    """JAX keeps a number as it is, of 64 bits, behind a tracer of 32."""

    def function(x):
        return jnp.sin(x) * x

    x = kind(0.5)
    f, g = shlo_disc.jit(function), jax.jit(function)
    for derivative in (
        jax.grad,
        lambda h: jax.grad(jax.grad(h)),
        lambda h: jax.grad(jax.grad(jax.grad(h))),
        lambda h: lambda x: jax.jvp(jax.grad(h), (x,), (x,))[1],
    ):
        got, want = derivative(f)(x), derivative(g)(x)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_function_with_a_derivative_in_forward_mode_only():
    """JAX has no reverse mode for a window of a function that it does not know."""

    def windows(x):
        one = jnp.ones((), x.dtype)
        return lax.reduce_window(jnp.sin(x), one, lax.add, (2,), (1,), "VALID")

    f = shlo_disc.jit(windows)
    for n in (6, 9):
        x, slope = F(n), F(n + 1)[:n]
        compare(jax.jvp(f, (x,), (slope,)), jax.jvp(windows, (x,), (slope,)))
    assert f.cache_info().misses == 1
    push = jax.jit(lambda x, slope: jax.jvp(f, (x,), (slope,)))
    compare(push(x, slope), jax.jvp(windows, (x,), (slope,)))
    for g in (f, windows):
        with pytest.raises(ValueError, match="reverse-mode"):
            jax.grad(lambda x, g=g: g(x).sum())(F(4))


def test_an_error_that_no_constant_mends_is_the_one_that_jax_raises():
    """Not the complaint about a symbol with which the search for constants began."""

    @jax.custom_jvp
    def product(x):
        return combined(x)

    @product.defjvp
    def _(primals, tangents):
        jax.grad(combined)(primals[0])  # needs a number
        raise KeyError("of the rule")

    for f in (jax.jit(product), shlo_disc.jit(product)):
        with pytest.raises(KeyError, match="of the rule"):
            jax.jvp(f, (F(6),), (F(6),))
