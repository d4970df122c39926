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
from shlo_disc.ingest.arrays import constant, converted, iota
from shlo_disc.ingest.elimination import permutation
from shlo_disc.ingest.linear_algebra import lapack, nan_where_failed
from shlo_disc.ingest.size_arithmetic import sizes_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, element_of, integer, reduced, select, while_loop
from shlo_disc.ir.contractions import dot_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, spread
from shlo_disc.torch.linalg_rewrites import ops as own

aten = torch.ops.aten

_Size = tuple[int, ir.Value]
"""A size in a type, and as a value."""


def _sizes(x: ir.Value) -> list[_Size]:
    kind = ir.RankedTensorType(x.type)
    return [(n, extent(x, k)) for k, n in enumerate(kind.shape)]


def _smaller(a: _Size, b: _Size) -> _Size:
    dynamic = ir.ShapedType.get_dynamic_size()
    size = dynamic if dynamic in (a[0], b[0]) else min(a[0], b[0])
    return size, binary("minimum", a[1], b[1])


def _called(
    function: str,
    operands: Sequence[ir.Value],
    results: Sequence[tuple[Sequence[_Size], ir.Type]],
    **asked: str,
) -> list[ir.Value]:
    """Results of these sizes and element types; result 0 is in the place of operand 0."""
    types = [ir.RankedTensorType.get([n for n, _ in sizes], element) for sizes, element in results]
    shapes = [[value for _, value in sizes] for sizes, _ in results]
    return lapack(function, operands, types, asked, 0, shapes)


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _real(element: ir.Type) -> ir.Type:
    return element.element_type if isinstance(element, ir.ComplexType) else element


def _cholesky(call: BodyCall) -> list[ir.Value]:
    """`aten.linalg_cholesky_ex(self, upper, check_errors)`: the factor, and what has none."""
    a = call["self"]
    sizes, rank = _sizes(a), ir.RankedTensorType(a.type).rank
    results = [(sizes, element_of(a)), (sizes[:-2], _i32())]
    factor, info = _called("potrf", [a], results, uplo="U" if call["upper"] else "L")
    row, column = (iota(sizes_of(a), axis, _i32()) for axis in (rank - 2, rank - 1))
    kept = compare("LE" if call["upper"] else "GE", row, column)
    zero = spread(converted(constant(0, _i32()), element_of(a)), [], a)
    return [select(kept, nan_where_failed(factor, info), zero), info]


def _geqrf(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.geqrf(a)`: R, with the vectors of the reflections below it, and their factors."""
    a = call["a"]
    *batch, rows, columns = _sizes(a)
    factors = [*batch, _smaller(rows, columns)]
    return _called("geqrf", [a], [(_sizes(a), element_of(a)), (factors, element_of(a))])


def _householder_product(call: BodyCall) -> list[ir.Value]:
    """`aten.linalg_householder_product(input, tau)`: the first columns of the product."""
    a = call["input"]
    return _called("orgqr", [a, call["tau"]], [(_sizes(a), element_of(a))])


def _eigh(call: BodyCall) -> list[ir.Value]:
    """`aten._linalg_eigh(A, UPLO, compute_v)`: the eigenvalues, and the vectors or nothing."""
    a, is_whole = call["A"], call["compute_v"]
    sizes, element = _sizes(a), element_of(a)
    results = [(sizes, element), (sizes[:-1], _real(element)), (sizes[:-2], _i32())]
    vectors, values, info = _called(
        "syevd", [a], results, mode="V" if is_whole else "N", uplo=call["UPLO"].upper()
    )
    values = nan_where_failed(values, info)
    return [values, nan_where_failed(vectors, info) if is_whole else _nothing(element)]


def _nothing(element: ir.Type) -> ir.Value:
    kind = ir.RankedTensorType.get([0], _real(element))
    empty = create("stablehlo.constant", [], kind, value=ir.Attribute.parse(f"dense<> : {kind}"))
    return converted(empty, element)


def _svd(call: BodyCall) -> list[ir.Value]:
    """`aten._linalg_svd(A, full_matrices, compute_uv, driver)`: U, S and Vh."""
    a, is_full, is_whole = call["A"], call["full_matrices"], call["compute_uv"]
    element = element_of(a)
    *batch, rows, columns = _sizes(a)
    least = _smaller(rows, columns)
    results = [
        ([*batch, rows, columns], element),
        ([*batch, least], _real(element)),
        ([*batch, rows, rows if is_full else least], element),
        ([*batch, columns if is_full else least, columns], element),
        (batch, _i32()),
    ]
    mode = ("A" if is_full else "S") if is_whole else "N"
    _, values, u, v, info = _called("gesdd", [a], results, mode=mode)
    values = nan_where_failed(values, info)
    if not is_whole:
        return [_nothing(element), values, _nothing(element)]
    if is_full:
        u, v = _or_identity(u, least), _or_identity(v, least)
    return [nan_where_failed(u, info), values, nan_where_failed(v, info)]


def _or_identity(vectors: ir.Value, least: _Size) -> ir.Value:
    """`vectors`, or identities where `least` is 0: LAPACK writes none for empty matrices."""
    if least[0] > 0:
        return vectors
    i64 = ir.IntegerType.get_signless(64)
    rank = ir.RankedTensorType(vectors.type).rank
    row, column = (iota(sizes_of(vectors), axis, i64) for axis in (rank - 2, rank - 1))
    identity = converted(compare("EQ", row, column), element_of(vectors))
    is_empty = compare("EQ", least[1], constant(0, i64))
    return select(spread(is_empty, [], vectors), identity, vectors)


def _lu_factor(call: BodyCall) -> list[ir.Value]:
    """`aten.linalg_lu_factor_ex(A, pivot, check_errors)`: the factors, the pivots, the failures."""
    a = call["A"]
    if not call["pivot"]:
        raise UnsupportedError("without pivots is not covered")
    *batch, rows, columns = _sizes(a)
    return _called("getrf", [a], [
        ([*batch, rows, columns], element_of(a)), ([*batch, _smaller(rows, columns)], _i32()),
        (batch, _i32()),
    ])  # fmt: skip


def _row_order(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.row_order(a, pivots)`."""
    order = permutation(call["a"], call["pivots"])
    return [converted(order, ir.IntegerType.get_signless(64))]


def _squared(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.squared(a, times)`: a loop as long as the most of `times`."""
    a, times = call["a"], call["times"]
    rank = ir.RankedTensorType(a.type).rank
    batch = list(range(rank - 2))
    number = ir.RankedTensorType.get([], _i32())
    most = reduced(times, batch, "maximum", integer(0, number))
    dims = dot_numbers((batch, batch), ([rank - 1], [rank - 2]))

    def step(k: ir.Value, x: ir.Value) -> list[ir.Value]:
        left = compare("LT", spread(k, [], times), times)
        square = create("stablehlo.dot_general", [x, x], x.type, dot_dimension_numbers=dims)
        x = select(spread(left, batch, x), square, x)
        return [binary("add", k, integer(1, number)), x]

    states = [integer(0, number), a]
    return [while_loop(states, lambda k, _: compare("LT", k, most), step)[1]]


def _triangular_solve(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.triangular_solve(a, b, upper, left, unit)`."""
    a, b = call["a"], call["b"]
    return [
        create(
            "stablehlo.triangular_solve", [a, b], b.type,
            left_side=call["left"], lower=not call["upper"],
            unit_diagonal=call["unit"],
            transpose_a=ir.Attribute.parse("#stablehlo<transpose NO_TRANSPOSE>"),
        )
    ]  # fmt: skip


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
