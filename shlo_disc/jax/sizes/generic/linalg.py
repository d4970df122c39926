"""Functions of `jax.numpy.linalg` with formulas of their own for small matrices, for any size.

Each takes JAX's function first. The formula is chosen when a program runs, so results are those of
`jax.jit` at every size, and one program serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from shlo_disc.jax.sizes.marks import has_symbols, written_twice
from shlo_disc.jax_private.sizes import max_size, size_as_array


def _corner(a: Any, n: int) -> Any:
    """`a` as n x n matrices; where it has others, some of that shape.

    The padding is never read where `a` has such matrices: elements are then read in place, at
    distances that are numbers.
    """
    *batch, rows, columns = a.shape
    count = math.prod(batch)
    flat = a.reshape(count * rows * columns)
    missing = count * n * n - count * rows * columns
    return lax.pad(flat, jnp.zeros((), a.dtype), [(0, missing, 0)]).reshape(*batch, n, n)


def _by_size(a: Any, small: tuple[int, ...], formula: Callable[..., Any], any_size: Any) -> Any:
    """`formula` of an n x n matrix where n is in `small`, else `any_size`.

    The branch is a formula of the size, so kernels of a branch know it (`dynamic/branch_sizes.py`).
    """
    n = a.shape[-1]
    branch = sum(
        k * max_size(0, 1 - max_size(n - size, size - n)) for k, size in enumerate(small, 1)
    )

    def of(size: int) -> Callable[[Any], Any]:
        return lambda x: formula(_corner(x, size))

    return lax.switch(size_as_array(branch), [any_size, *map(of, small)], a)


def _is_symbolic(a: Any) -> bool:
    return np.ndim(a) >= 2 and has_symbols(np.shape(a)[-2:])


def _det(original: Callable[..., Any], a: Any) -> Any:
    """Of all sizes but 2 and 3, which `jnp.linalg.det` computes itself."""
    return written_twice(
        "det",
        _is_symbolic(a),
        lambda x: _by_size(x, (2, 3), jnp.linalg.det, original),
        original,
        a,
    )


def _slogdet_lu(original: Callable[..., Any], a: Any) -> Any:
    """Of all sizes but 1 and 2, which `jnp.linalg.slogdet` computes itself."""
    return written_twice(
        "slogdet",
        _is_symbolic(a),
        lambda x: _by_size(x, (1, 2), lambda c: tuple(jnp.linalg.slogdet(c)), original),
        original,
        a,
    )


def _same(name: str) -> Callable[..., Any]:
    """A formula for small matrices, the other way to write what has the mark `name`."""

    def small(original: Callable[..., Any], a: Any) -> Any:
        return written_twice(name, False, original, original, a)

    return small


def _matrix_rank(
    original: Callable[..., Any],
    M: Any,
    rtol: Any = None,
    *,
    hermitian: bool = False,
    tol: Any = None,
) -> Any:
    """The tolerance is a multiple of the size."""

    def of_any_size(x: Any) -> Any:
        s = jnp.linalg.svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
        most = size_as_array(max_size(*x.shape[-2:])).astype(s.dtype)
        least = s.max(-1) * most * np.finfo(s.dtype).eps
        return jnp.sum(s > jnp.expand_dims(least, -1), axis=-1)

    if rtol is not None or tol is not None or not isinstance(M, jnp.ndarray) or np.ndim(M) < 2:
        return original(M, rtol, hermitian=hermitian, tol=tol)
    return written_twice(
        "matrix_rank",
        _is_symbolic(M),
        of_any_size,
        lambda x: original(x, hermitian=hermitian),
        M,
    )


def solve_by_matrix(
    original: Callable[..., Any], tangent: Any, solution: Any, a: Any, b: Any, **named: Any
) -> Any:
    """The derivative of a `triangular_solve` by its matrix, in an order that the size decides.

    A trace with symbols has the order for several rows (`policy.is_more_than_one`).
    """

    def rule(*values: Any) -> Any:
        return original(*values, **named)

    symbolic = has_symbols(np.shape(b)[-2:])
    return written_twice("triangular_solve_jvp", symbolic, rule, rule, tangent, solution, a, b)


REPLACED: dict[str, Callable[..., Any]] = {
    "_det": _det,
    "_det_2x2": _same("det"),
    "_det_3x3": _same("det"),
    "_slogdet_lu": _slogdet_lu,
    "_slogdet_small": _same("slogdet"),
    "matrix_rank": _matrix_rank,
}
"""The replacement of every function, by the function's name in JAX."""
