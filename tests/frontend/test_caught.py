"""Errors of JAX that the program catches: they are raised where `jax.jit` raises them."""

import contextlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.jax.sizes.askers import is_caught_by_program
from tests.cases import all_but
from tests.frontend.test_questions import F

TWO = {  # of two matrices, whose sizes agree at some calls
    "add": lambda x, y: x + y,
    "stack": lambda x, y: jnp.stack([x, y]),
    "lexsort": lambda x, y: jnp.lexsort((x, y)),
    "einsum": lambda x, y: jnp.einsum("ij,ij->i", x, y),
    "einsum of three": lambda x, y: jnp.einsum("ij,jk,kl->il", x, y, y),
    "reshape": lambda x, y: x.reshape(y.shape),
    "vmap": jax.vmap(jnp.dot),
    "scan": lambda x, y: lax.scan(lambda c, v: (c + v[0].sum() * v[1].sum(), None), 0.0, (x, y)),
    "cond": lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y),
}
SHAPES = [((3, 5), (4, 5)), ((2, 2), (2, 2)), ((3, 4), (4, 2)), ((1, 3), (4, 3))]

ONE = {  # of a matrix
    "rows": lambda x: x.reshape(4, -1),
    "count": lambda x: x.reshape(2, 3),
    "unpacked": lambda x: sum(w * v for w, v in zip((1, 2, 3), unpacked(*x), strict=True)),
    "constant": lambda x: jnp.einsum("ij,j->i", x, jnp.ones(4)),
    "diagonal": lambda x: x[jnp.diag_indices_from(x)],
    "transposed": lambda x: jnp.stack([x, x.T]),
}


def unpacked(a, b, c):
    return a, b, c


LIKE_OTHERS = ("stack", "lexsort", "einsum of three", "cond", "count", "transposed")
"""Their errors are raised and caught as those of the others are."""


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, TWO))
def test_an_error_of_two_shapes_that_the_program_catches(name):
    def program(x, y):
        try:
            return TWO[name](x, y)
        except (TypeError, ValueError):
            return x.sum() - y.sum()

    agree(program, [(F(*a), F(*b)) for a, b in SHAPES])


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, ONE))
def test_an_error_of_one_shape_that_the_program_catches(name):
    def program(x):
        try:
            return ONE[name](x)
        except (TypeError, ValueError):
            return x.sum() * 3

    agree(program, [(F(*shape),) for shape in ((5, 3), (4, 4), (2, 3), (3, 3))])


def agree(program, calls):
    f = shlo_disc.jit(program)
    for args in calls:
        got, want = jax.tree.leaves(f(*args)), jax.tree.leaves(jax.jit(program)(*args))
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), (program, [x.shape for x in args])
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_sums_of_products_are_right_without_a_handler():
    def program(x, y):
        return jnp.einsum("ij,jk->ik", x, y)

    f = shlo_disc.jit(program)
    for n in (3, 4, 5):
        want = np.asarray(F(n, n), np.float64) @ np.asarray(F(n, 2), np.float64)
        np.testing.assert_allclose(f(F(n, n), F(n, 2)), want, rtol=1e-5, atol=1e-6)
    assert f.cache_info().misses == 1
    with pytest.raises(ValueError, match="does not match"):
        shlo_disc.jit(program)(F(2, 3), F(4, 2))


def test_who_catches_an_error():
    def here():
        return is_caught_by_program(sys._getframe(1))

    def caught():
        try:
            return here()
        except ValueError:
            return None

    def passed_on():
        try:
            return here()
        finally:
            np.zeros(1)

    def inside_with():
        with np.errstate():
            return here()

    def suppressed():
        with contextlib.suppress(ValueError):
            return here()

    def handled_before():
        try:
            np.zeros(1)
        except ValueError:
            return None
        return here()

    def anything():
        try:
            return passed_on()
        except:  # noqa: E722
            return None

    found, others = [], (passed_on, inside_with, handled_before)

    def program(x):
        found[:] = [k() for k in (caught, anything, suppressed, *others)]
        return x

    try:  # who calls the function is no part of the program
        shlo_disc.jit(program).lower(F(3))
    except ValueError:
        raise
    assert found == [True] * 3 + [False] * 3
