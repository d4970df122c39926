"""`torch.linalg` by calls of LAPACK: factorizations, eigenvalues, singular values, substitution.

    %w, %v = aten._linalg_eigh(%a, "L", true)
    ==>
    %v, %w, %info = custom_call @lapack_ssyevd_ffi(%a) {mode = V, uplo = L}

Matrices may have any sizes, and any number of dimensions in front. Where LAPACK fails, and PyTorch
raises LinAlgError, floats are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ingest.elimination import permutation
from shlo_disc.ingest.linear_algebra import lapack, nan_where_failed
from shlo_disc.ingest.size_arithmetic import smaller, static, value_of
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall
from shlo_disc.torch.linalg_rewrites import ops as own

aten = torch.ops.aten


def _called(
    function: str,
    operands: Sequence[Array],
    results: Sequence[tuple[Sequence[Any], ir.Type | str]],
    **asked: str,
) -> list[Array]:
    """Results of these sizes and element types; result 0 is in the place of operand 0."""
    types = []
    for sizes, element in results:
        inner = ir.Type.parse(element) if isinstance(element, str) else element
        types.append(ir.RankedTensorType.get(static(sizes), inner))
    shapes = [list(map(value_of, sizes)) for sizes, _ in results]
    return list(map(Array, lapack(function, operands, types, asked, 0, shapes)))


def _real(element: ir.Type) -> ir.Type:
    return element.element_type if isinstance(element, ir.ComplexType) else element


def _checked(found: Array, info: Array) -> Array:
    return Array(nan_where_failed(found, info))


def _cholesky(call: BodyCall) -> list[Array]:
    """`aten.linalg_cholesky_ex(self, upper, check_errors)`: the factor, and what has none."""
    a = call["self"]
    results = [(a.sizes, a.element), (a.sizes[:-2], "i32")]
    factor, info = _called("potrf", [a], results, uplo="U" if call["upper"] else "L")
    row, column = (a.iota(axis, "i32") for axis in (a.rank - 2, a.rank - 1))
    kept = row <= column if call["upper"] else row >= column
    return [kept.where(_checked(factor, info), Array.constant(0, "i32").to(a.element)), info]


def _geqrf(call: BodyCall) -> list[Array]:
    """`shlo_disc.geqrf(a)`: R, with the vectors of the reflections below it, and their factors."""
    a = call["a"]
    *batch, rows, columns = a.sizes
    factors = [*batch, smaller(rows, columns)]
    return _called("geqrf", [a], [(a.sizes, a.element), (factors, a.element)])


def _householder_product(call: BodyCall) -> list[Array]:
    """`aten.linalg_householder_product(input, tau)`: the first columns of the product."""
    a = call["input"]
    return _called("orgqr", [a, call["tau"]], [(a.sizes, a.element)])


def _eigh(call: BodyCall) -> list[Array]:
    """`aten._linalg_eigh(A, UPLO, compute_v)`: the eigenvalues, and the vectors or nothing."""
    a, is_whole = call["A"], call["compute_v"]
    sizes, element = a.sizes, a.element
    results = [(sizes, element), (sizes[:-1], _real(element)), (sizes[:-2], "i32")]
    mode = "V" if is_whole else "N"
    vectors, values, info = _called("syevd", [a], results, mode=mode, uplo=call["UPLO"].upper())
    return [_checked(values, info), _checked(vectors, info) if is_whole else _nothing(element)]


def _nothing(element: ir.Type) -> Array:
    return Array.constant(0, _real(element), [0]).to(element)


def _svd(call: BodyCall) -> list[Array]:
    """`aten._linalg_svd(A, full_matrices, compute_uv, driver)`: U, S and Vh."""
    a, is_full, is_whole = call["A"], call["full_matrices"], call["compute_uv"]
    element = a.element
    *batch, rows, columns = a.sizes
    least = smaller(rows, columns)
    results = [
        (a.sizes, element),
        ([*batch, least], _real(element)),
        ([*batch, rows, rows if is_full else least], element),
        ([*batch, columns if is_full else least, columns], element),
        (batch, "i32"),
    ]
    mode = ("A" if is_full else "S") if is_whole else "N"
    _, values, u, v, info = _called("gesdd", [a], results, mode=mode)
    values = _checked(values, info)
    if not is_whole:
        return [_nothing(element), values, _nothing(element)]
    if is_full and not (isinstance(least, int) and least > 0):
        u, v = (_or_identity(vectors, Array.size(least)) for vectors in (u, v))
    return [_checked(u, info), values, _checked(v, info)]


def _or_identity(vectors: Array, least: Array) -> Array:
    """`vectors`, or identities where `least` is 0: LAPACK writes none for empty matrices."""
    row, column = (vectors.iota(axis) for axis in (vectors.rank - 2, vectors.rank - 1))
    identity = row.equals(column).to(vectors.element)
    return least.equals(0).spread([], vectors).where(identity, vectors)


def _lu_factor(call: BodyCall) -> list[Array]:
    """`aten.linalg_lu_factor_ex(A, pivot, check_errors)`: the factors, the pivots, the failures."""
    a = call["A"]
    if not call["pivot"]:
        raise UnsupportedError("without pivots is not covered")
    *batch, rows, columns = a.sizes
    pivots = [*batch, smaller(rows, columns)]
    return _called("getrf", [a], [(a.sizes, a.element), (pivots, "i32"), (batch, "i32")])


def _row_order(call: BodyCall) -> list[Array]:
    """`shlo_disc.row_order(a, pivots)`."""
    return [Array(permutation(call["a"], call["pivots"])).to("i64")]


def _squared(call: BodyCall) -> list[Array]:
    """`shlo_disc.squared(a, times)`: a loop as long as the most of `times`."""
    a, times = call["a"], call["times"]
    batch, last = list(range(a.rank - 2)), a.rank - 1
    zero = Array.constant(0, "i32")
    most = times.reduce("maximum", batch, zero)

    def step(k: Array, x: Array) -> list[Array]:
        square = BodyCall.cast(x.dot(x, last, last - 1, batch=last - 1), x.type)
        return [k + 1, (times > k).spread(batch, x).where(square, x)]

    return [loop([zero, a], lambda k, _: k < most, step)[1]]


def _triangular_solve(call: BodyCall) -> list[Array]:
    """`shlo_disc.triangular_solve(a, b, upper, left, unit)`."""
    a, b = call["a"], call["b"]
    made = create(
        "stablehlo.triangular_solve", [a, b], b.type,
        left_side=call["left"], lower=not call["upper"], unit_diagonal=call["unit"],
        transpose_a=ir.Attribute.parse("#stablehlo<transpose NO_TRANSPOSE>"),
    )  # fmt: skip
    return [Array(made)]


LAPACK: dict[Any, Body] = {
    aten._linalg_eigh.default: _eigh,
    aten._linalg_svd.default: _svd,
    aten.linalg_cholesky_ex.default: _cholesky,
    aten.linalg_householder_product.default: _householder_product,
    aten.linalg_lu_factor_ex.default: _lu_factor,
    own.geqrf.default: _geqrf,
    own.row_order.default: _row_order,
    own.squared.default: _squared,
    own.triangular_solve.default: _triangular_solve,
}
"""Overload -> what writes its results, of real and of complex numbers."""
