"""Main diagonals of matrices: made, taken and set. Other diagonals are refused."""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, iota, padded
from shlo_disc.ingest.size_arithmetic import Size, minus, sizes_of, smaller
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.builders import compare, element_of, select, summed
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.shapes import front
from shlo_disc.tensorflow.ops.values import known_integers

Values = list[ir.Value]


def matrix_of_diagonal(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixDiagV3(diagonal, k, num_rows, num_cols, padding_value)`: square matrices."""
    diagonal, place, rows, columns, other = op.operands
    _check_main(place)
    if [*known_integers(rows, "num_rows"), *known_integers(columns, "num_cols")] != [-1, -1]:
        raise UnsupportedError("num_rows and num_cols; leave them out")
    own = sizes_of(diagonal)
    full = [*own, own[-1]]
    rest = broadcast_to(other, [], full)
    return [_chosen(broadcast_to(diagonal, range(len(own)), full), rest, full)]


def matrix_diagonal(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixDiagPartV3(input, k, padding_value)`."""
    array = op.operands[0]
    _check_main(op.operands[1])
    full = sizes_of(array)
    zeros = broadcast_to(constant(0, element_of(array)), [], full)
    last = len(full) - 1
    # Every other element of a row is 0.
    found = summed(_chosen(array, zeros, full), [last])
    return [front(found, last - 1, smaller(full[-2], full[-1]))]


def matrix_with_diagonal(sizes: Sizes, op: ir.Operation) -> Values:
    """`MatrixSetDiagV3(input, diagonal, k)`."""
    array, diagonal, place = op.operands
    _check_main(place)
    full = sizes_of(array)
    own = sizes_of(diagonal)
    behind = minus(full[-2], smaller(full[-2], full[-1]))
    if behind != 0:
        diagonal = padded(diagonal, [*[(0, 0)] * (len(own) - 1), (0, behind)])
    return [_chosen(broadcast_to(diagonal, range(len(own)), full), array, full)]


def _check_main(place: ir.Value) -> None:
    if set(known_integers(place, "k")) != {0}:
        raise UnsupportedError("a diagonal beside the main one")


def _chosen(diagonal: ir.Value, rest: ir.Value, full: list[Size]) -> ir.Value:
    """The elements of `diagonal` on the main diagonals, and of `rest` elsewhere."""
    rows, columns = (iota(full, len(full) - k, "i32") for k in (2, 1))
    is_main = compare("EQ", rows, columns)
    return select(is_main, diagonal, rest)
