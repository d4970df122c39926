"""Factors of matrices and solutions of systems, which become calls of LAPACK in ingest."""

from __future__ import annotations

from shlo_disc.builders import compare, create, with_element
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.mlir import ir
from shlo_disc.tensorflow.ops.values import (
    broadcast_to,
    constant,
    element_of,
    flag,
    iota,
    sizes_of,
)

__all__ = ["cholesky", "triangular_solve"]

Values = list[ir.Value]


def cholesky(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cholesky(input)`: the lower factor, zeros above; NaN where TensorFlow raises an error."""
    (array,) = op.operands
    factor = create("stablehlo.cholesky", [array], array.type, lower=ir.BoolAttr.get(True))
    full = sizes_of(array)
    rows, columns = (iota(full, len(full) - k, "i32") for k in (2, 1))
    truth = with_element(factor.type, ir.IntegerType.get_signless(1))
    is_kept = compare("GE", rows, columns, truth)
    zeros = broadcast_to(constant(0, element_of(array)), [], full)
    return [create("stablehlo.select", [is_kept, factor, zeros], factor.type)]


def triangular_solve(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixTriangularSolve(matrix, rhs)`."""
    matrix, right = op.operands
    own, given = (ir.RankedTensorType(value.type) for value in (matrix, right))
    if own.rank != given.rank:
        raise UnsupportedError(f"a matrix of rank {own.rank} beside a right side of {given.rank}")
    adjoint = "ADJOINT" if flag(op, "adjoint") else "NO_TRANSPOSE"
    return [
        create(
            "stablehlo.triangular_solve",
            [matrix, right],
            right.type,
            left_side=ir.BoolAttr.get(True),
            lower=ir.BoolAttr.get(flag(op, "lower")),
            unit_diagonal=ir.BoolAttr.get(False),
            transpose_a=ir.Attribute.parse(f"#stablehlo<transpose {adjoint}>"),
        )
    ]
