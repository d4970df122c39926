"""Factors and inverses of matrices, determinants, and solutions of systems.

Cholesky factors and systems of triangles become calls of LAPACK in ingest. General systems are
solved by elimination. Where TensorFlow raises an error for a singular matrix, the result is not
finite: a program does not look at its data.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, iota
from shlo_disc.ingest.elimination import (
    back_substituted,
    determinant,
    eliminated,
    inverted,
    log_determinant,
)
from shlo_disc.ingest.size_arithmetic import known, must_be_equal, sizes_of, value_of
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import compare, create, element_of, select, transposed
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir

Values = list[ir.Value]


def cholesky(sizes: Sizes, op: ir.Operation) -> Values:
    """`Cholesky(input)`: the lower factor, zeros above; NaN where TensorFlow raises an error."""
    (array,) = op.operands
    factor = create("stablehlo.cholesky", [array], array.type, lower=True)
    full = sizes_of(array)
    rows, columns = (iota(full, len(full) - k, "i32") for k in (2, 1))
    is_kept = compare("GE", rows, columns)
    zeros = broadcast_to(constant(0, element_of(array)), [], full)
    return [select(is_kept, factor, zeros)]


def triangular_solve(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixTriangularSolve(matrix, rhs)`: batches are broadcast."""
    matrix, right = _broadcast(sizes, op)
    adjoint = "ADJOINT" if flag(op, "adjoint") else "NO_TRANSPOSE"
    return [
        create(
            "stablehlo.triangular_solve",
            [matrix, right],
            right.type,
            left_side=True,
            lower=flag(op, "lower"),
            unit_diagonal=False,
            transpose_a=ir.Attribute.parse(f"#stablehlo<transpose {adjoint}>"),
        )
    ]


def _broadcast(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
    """The matrices and the right sides with a common batch, which every call checks."""
    shapes = [sizes_of(array) for array in op.operands]
    rank = max(map(len, shapes))
    columns = [
        [value_of(own[k - rank]) for own in shapes if len(own) >= rank - k] for k in range(rank - 2)
    ]
    batch = [known(size) for size in sizes.common(op, columns)]
    return [
        broadcast_to(array, range(rank - len(own), rank), [*batch, *own[-2:]])
        for array, own in zip(op.operands, shapes, strict=True)
    ]


# -- by elimination --------------------------------------------------------------------------------


def solve(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixSolve(matrix, rhs)`, and of the adjoint matrix."""
    matrix, right = op.operands
    matrix = _square(op, matrix)
    for axis, (own, given) in enumerate(
        zip(sizes_of(matrix)[:-1], sizes_of(right)[:-1], strict=True)
    ):
        text = (
            f"{source_line(op)}: dimension {axis} of the matrix is {{0}}, of the right side {{1}}"
        )
        must_be_equal(own, given, text)
    found = eliminated(matrix, [right])
    return [back_substituted(found.factors, found.right[0])]


def inverse(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixInverse(input)`, and of the adjoint matrix."""
    return [inverted(_square(op, op.operands[0]))[0]]


def matrix_determinant(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixDeterminant(input)`."""
    return [determinant(eliminated(_square(op, op.operands[0])))]


def log_matrix_determinant(sizes: Sizes, op: ir.Operation) -> Values:
    """`LogMatrixDeterminant(input)`: the sign, and the logarithm of the size."""
    return [*log_determinant(eliminated(_square(op, op.operands[0])))]


def _square(op: ir.Operation, matrix: ir.Value) -> ir.Value:
    """The matrix, or the adjoint one, of real numbers; every call checks that it is square."""
    if not isinstance(element_of(matrix), ir.F32Type | ir.F64Type):
        raise UnsupportedError(
            f"elements of type {element_of(matrix)}; float32 and float64 compile"
        )
    rows, columns = sizes_of(matrix)[-2:]
    must_be_equal(rows, columns, f"{source_line(op)}: the matrix is no square: {{0}} x {{1}}")
    rank = ir.RankedTensorType(matrix.type).rank
    if not flag(op, "adjoint"):
        return matrix
    return transposed(matrix, [*range(rank - 2), rank - 1, rank - 2])
