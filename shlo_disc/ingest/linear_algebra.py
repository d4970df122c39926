"""`stablehlo.cholesky` and `stablehlo.triangular_solve` become calls of LAPACK.

    %l = cholesky %a, lower = true
    ==>
    %r:2 = custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}, ...}
    %l = select(%r#1 == 0, %r#0, NaN)

JAX lowers its own functions to such calls for CPUs; other front ends emit the two operations. The
calls are those of JAX, with the functions that jaxlib registers: fast for every size. Floats of
fewer than 32 bits are computed in f32.

The triangle of a Cholesky factor that the specification leaves open keeps the operand's elements. A
matrix that is not positive definite gives NaN, as in JAX.

Source: cholesky and triangular_solve in the StableHLO specification; jax/_src/lax/linalg.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.present import CONFIGURATION
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import (
    assert_sizes,
    broadcast_like,
    compare,
    convert,
    dimension,
    integer,
    no_sizes,
    scalar,
    select,
    vector,
    with_element,
)
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of, replace, stablehlo

_PREFIXES = {"f32": ("s", "c"), "f64": ("d", "z")}
"""Of LAPACK's functions: for real numbers, and for complex ones with parts of this type."""
_OF_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}
"""Functions with another name for complex numbers."""
_TRANSPOSED = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}


def call_lapack(module: ir.Module) -> int:
    """No such operation is left; how many there were.

    Raises UnsupportedError for an element type LAPACK does not compute with.
    """
    found = ops_of(module, "stablehlo.cholesky", "stablehlo.triangular_solve")
    for op in found:
        with at(op):
            solved = _cholesky(op) if op.name == "stablehlo.cholesky" else _triangular_solve(op)
            replace(op, solved)
    return len(found)


def _cholesky(op: ir.Operation) -> ir.Value:
    (a,) = op.operands
    shape = list(ir.RankedTensorType(a.type).shape)
    rank = len(shape)
    _must_be_equal(op, (a, rank - 2), (a, rank - 1))
    wide = _computed(op, a)
    i32 = ir.IntegerType.get_signless(32)
    batch = ir.RankedTensorType.get(shape[:-2], i32)
    asked = {"uplo": "L" if flag(op, "lower") else "U"}
    factor, info = lapack("potrf", [wide], [wide.type, batch], asked)
    return convert(nan_where_failed(factor, info), a.type)


def nan_where_failed(x: ir.Value, info: ir.Value) -> ir.Value:
    """`x`, and NaN where `info` of the dimensions in front is not 0."""
    kind = ir.RankedTensorType(info.type)
    zero = broadcast_like(integer(0, ir.RankedTensorType.get([], kind.element_type)), [], info)
    ok = compare("EQ", info, zero)
    ok = broadcast_like(ok, range(kind.rank), x)
    element = ir.RankedTensorType(x.type).element_type
    nan = broadcast_like(scalar(complex(math.nan, math.nan), element), [], x)
    return select(ok, x, nan)


def _triangular_solve(op: ir.Operation) -> ir.Value:
    a, b = op.operands
    rank = ir.RankedTensorType(a.type).rank
    left = flag(op, "left_side")
    _must_be_equal(op, (a, rank - 2), (a, rank - 1))
    _must_be_equal(op, (a, rank - 1), (b, rank - 2 if left else rank - 1))
    for axis in range(rank - 2):
        _must_be_equal(op, (a, axis), (b, axis))
    wide = _computed(op, b)
    transpose = stablehlo.TransposeAttr(op.attributes["transpose_a"]).value
    asked = {
        "side": "L" if left else "R",
        "uplo": "L" if flag(op, "lower") else "U",
        "trans_x": _TRANSPOSED[transpose],
        "diag": "U" if flag(op, "unit_diagonal") else "N",
    }
    (x,) = lapack("trsm", [_computed(op, a), wide], [wide.type], asked, 1)
    return convert(x, b.type)


def lapack(
    function: str,
    operands: Sequence[ir.Value],
    types: Sequence[ir.Type],
    asked: Mapping[str, str] | None = None,
    alias: int = 0,
    shapes: Sequence[Sequence[ir.Value]] | None = None,
) -> list[ir.Value]:
    """A call of LAPACK as JAX writes it; result 0 is in the place of operand `alias`.

    Values of the rank of operand 0 are matrices. `shapes` are the sizes of the results, by default
    the first ones of operand `alias`.
    """
    element = ir.RankedTensorType(operands[0].type).element_type
    if isinstance(element, ir.ComplexType):
        function = _OF_COMPLEX.get(function, function)
    ui8 = ir.IntegerType.get_unsigned(8)
    config = {name: ir.IntegerAttr.get(ui8, ord(value)) for name, value in (asked or {}).items()}
    attributes: dict[str, ir.Attribute] = {
        "call_target_name": ir.StringAttr.get(f"lapack_{_prefix(element)}{function}_ffi"),
        CONFIGURATION: ir.DictAttr.get(config),
        "output_operand_aliases": ir.ArrayAttr.get(
            [stablehlo.OutputOperandAlias.get([0] if len(types) > 1 else [], alias, [])]
        ),
    }
    sizes: list[ir.Value] = []
    if not all(map(_is_static, types)):
        if shapes is None:
            ranks = [ir.RankedTensorType(kind).rank for kind in types]
            sizes = [_sizes(operands[alias], rank) for rank in ranks]
        else:
            sizes = [vector(each) if each else no_sizes() for each in shapes]
        places = range(len(operands), len(operands) + len(sizes))
        attributes["indices_of_shape_operands"] = ir.DenseIntElementsAttr.get(np.array(places))
    rank = ir.RankedTensorType(operands[0].type).rank
    given = [value.type for value in (*operands, *sizes)]
    layouts = [_layout(kind, columns=k < len(operands) and _rank(kind) == rank)
               for k, kind in enumerate(given)]  # fmt: skip
    attributes["operand_layouts"] = ir.ArrayAttr.get(layouts)
    attributes["result_layouts"] = ir.ArrayAttr.get(
        [_layout(kind, columns=_rank(kind) == rank) for kind in types]
    )
    call = ir.Operation.create(
        "stablehlo.custom_call",
        results=list(types),
        operands=[*operands, *sizes],
        attributes=attributes,
    )
    return list(call.results)


def _rank(kind: ir.Type) -> int:
    return int(ir.RankedTensorType(kind).rank)


def _layout(kind: ir.Type, *, columns: bool) -> ir.Attribute:
    """From the fastest dimension to the slowest; of matrices the rows are the fastest."""
    order = list(range(ir.RankedTensorType(kind).rank))[::-1]
    if columns:
        order[:2] = order[1::-1]
    return ir.DenseIntElementsAttr.get(np.array(order, np.int64), type=ir.IndexType.get())


def _sizes(value: ir.Value, rank: int) -> ir.Value:
    """The first `rank` sizes of `value`, as a vector."""
    if rank:
        return vector([dimension(value, axis) for axis in range(rank)])
    return no_sizes()


def _must_be_equal(op: ir.Operation, a: tuple[ir.Value, int], b: tuple[ir.Value, int]) -> None:
    """A guard where only the sizes of a call tell; the verifier has looked at the others."""
    kinds = [ir.RankedTensorType(value.type) for value, _ in (a, b)]
    if not any(k.is_dynamic_dim(axis) for k, (_, axis) in zip(kinds, (a, b), strict=True)):
        return
    sizes = [dimension(value, axis) for value, axis in (a, b)]
    same = compare("EQ", sizes[0], sizes[1])
    text = f"{source_line(op)}: {op.name}: sizes {{0}} and {{1}} must be equal"
    assert_sizes(same, text, sizes)


def _computed(op: ir.Operation, value: ir.Value) -> ir.Value:
    """`value` in a type LAPACK computes with."""
    kind = ir.RankedTensorType(value.type)
    row = known_element_type(kind.element_type)
    if row is not None and row.kind == "f" and row.bits < 32:
        return convert(value, with_element(kind, ir.F32Type.get()))
    if _prefix(kind.element_type) is None:
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} of element type {kind.element_type} is not supported; "
            "convert to f32 or f64"
        )
    return value


def _prefix(element: ir.Type) -> str | None:
    is_complex = isinstance(element, ir.ComplexType)
    part = known_element_type(element.element_type if is_complex else element)
    return _PREFIXES[part.name][is_complex] if part and part.name in _PREFIXES else None


def _is_static(kind: ir.Type) -> bool:
    return bool(ir.RankedTensorType(kind).has_static_shape)
