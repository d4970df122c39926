"""Linear solves of lineax: its primitive calls back into Python only where it is lowered."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.libraries.harness import REASON, check

lx = pytest.importorskip("lineax", reason=REASON)


def system(b, t, rng):
    """A well-conditioned symmetric matrix and a right side, of t rows."""
    a = rng.standard_normal((t, t)).astype("f")
    return a @ a.T + t * np.eye(t, dtype="f"), rng.standard_normal(t).astype("f")


def solution(solver, tags=()):
    return lambda a, b: lx.linear_solve(lx.MatrixLinearOperator(a, tags), b, solver).value


slow = pytest.mark.slow
SOLVERS = {
    "LU": solution(lx.LU()),
    "Cholesky": solution(lx.Cholesky(), lx.positive_semidefinite_tag),
    "QR": solution(lx.QR()),
    "SVD": solution(lx.SVD()),
    "CG": solution(lx.CG(1e-6, 1e-6), lx.positive_semidefinite_tag),
    "GMRES": solution(lx.GMRES(1e-6, 1e-6)),
    "Tridiagonal": lambda a, b: (
        lx.linear_solve(
            lx.TridiagonalLinearOperator(*(jnp.diagonal(a, k) for k in (0, 1, -1))), b
        ).value
    ),
}
FAST = ("LU", "Cholesky")


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=slow) for n in SOLVERS])
def test_solvers(name):
    check(SOLVERS[name], system, count=3, tolerance=1e-3)


def test_gradient_and_batch():
    def loss(a, b):
        rows = b[None] * jnp.arange(1, 4, dtype=np.float32)[:, None]
        return jnp.sin(jax.vmap(SOLVERS["QR"], (None, 0))(a, rows)).sum()

    check(jax.grad(loss, (0, 1)), system, count=2, tolerance=1e-3)


def test_a_singular_matrix_raises():
    f = shlo_disc.jit(solution(lx.CG(1e-6, 1e-6, max_steps=2), lx.positive_semidefinite_tag))
    for t in (5, 7):
        matrix, side = np.diag(np.arange(t, dtype="f") ** 3), np.ones(t, "f")
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"solve"):
            f(matrix, side)
        np.testing.assert_allclose(f(np.eye(t, dtype="f"), side), side)
    assert f.cache_info().misses == 1


def test_noinline_of_a_function_of_the_program():
    """Each trace defines the function anew, and equinox numbers it anew."""

    def program(x):
        twice = eqx.internal.noinline(lambda x: jnp.sin(x) * 2)
        return twice(x) + jax.vmap(twice)(x)

    check(program, lambda b, t, rng: (rng.standard_normal((b, t)).astype("f"),))


def test_the_gradient_of_noinline():
    """Its transposed function holds types of arrays, whose sizes have to be numbers."""
    twice = eqx.internal.noinline(lambda x: jnp.sin(x) * 2)
    f = shlo_disc.jit(jax.grad(lambda x: twice(x).sum()))
    for n in (3, 5):
        np.testing.assert_allclose(f(np.ones(n, "f")), np.full(n, 2 * np.cos(1)), rtol=1e-6)


def test_noinline():
    twice = eqx.internal.noinline(lambda x: jnp.sin(x) * 2)
    check(lambda x: twice(x) + 1, lambda b, t, rng: (rng.standard_normal((b, t)).astype("f"),))
