"""Products of complex arrays as one product of real arrays.

The real and imaginary parts of both operands are rows and columns of one real product, which reads
the pairs where they are. It has the four sums that the result is made of:

    dot_general %x: c[m x k], %y: c[k x n]
    ==>
    dot_general %pairs: f[m x k x 2], %pairs: f[k x n x 2], contracting [1] x [0]
    : f[m x 2 x n x 2]                       re = [., 0, ., 0] - [., 1, ., 1]

Many rows that run along K are worth it to write the right operand as matrices first. A complex
number a + ib times c + id is the row (a, b) times ((c, d), (-d, c)):

    dot_general %x: c[m x k], %y: c[k x n]
    ==>
    dot_general %pairs: f[m x k x 2], %matrices: f[k x 2 x n x 2], contracting [1, 2] x [0, 1]

Its result is the pairs, and sums run along memory. Where the number of rows is not known, both
products are compiled, and each call chooses. A vector is written as matrices whichever side it is
on, and so are the kernels of convolutions. A product of two vectors is a sum of products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.ingest.complex_numbers.planes import (
    Planes,
    is_complex,
    joined,
    pairs_of,
    pairs_type,
    plane_type,
    planes_of,
    taken,
)
from shlo_disc.ingest.complex_numbers.rewriter import (
    New,
    Rewriter,
    attributes_of,
    on_each_plane,
)
from shlo_disc.ir.builders import (
    compare,
    convert,
    create,
    dimension,
    integer,
    summed,
    transposed,
    vector,
)
from shlo_disc.ir.contractions import Side, dot_numbers, dot_sides
from shlo_disc.ir.convolutions import conv_numbers
from shlo_disc.ir.mlir import ir

MANY_ROWS = 64
"""Rows from which on matrices of the right operand are worth their memory.

Measured on AVX-512, 2 cores, beside four sums. 2048 rows are 4 to 7 times as fast with 1 or 3
columns, as fast with 24 and more. 32 rows are half as fast, one row a seventh.
"""

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def dot_general(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """One real `dot_general`; of two vectors, a sum."""
    if not all(is_complex(v.type) for v in op.operands):
        return on_each_plane(rewriter, op)
    operands = tuple(rewriter.planes(v) for v in op.operands)
    sides = dot_sides(op)
    if not sides[0].free and not sides[1].free:
        return [_sum_of_products(operands, sides)]
    for side in (0, 1):
        other = sides[1 - side]
        runs_along_k = (
            other.contracting and max(other.contracting) == operands[1 - side].type.rank - 1
        )
        if not sides[side].free and other.free and runs_along_k:
            return [_with_matrices(op, operands, side)]
    left, right = sides
    if not left.contracting or max(left.contracting) != operands[0].type.rank - 1 or not right.free:
        return [_of_four_sums(op, operands, sides)]
    shape = operands[0].type.shape
    if not any(shape[d] == _DYNAMIC for d in left.free):
        has_many_rows = math.prod(shape[d] for d in left.free) >= MANY_ROWS
        return [
            _with_matrices(op, operands, 1) if has_many_rows else _of_four_sums(op, operands, sides)
        ]
    return [_of_rows(op, operands, sides)]


def _of_rows(op: ir.Operation, operands: Sequence[Planes], sides: Sequence[Side]) -> Planes:
    """The better one of two products for the number of rows, which each call has."""
    kind = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
    rows = integer(1, kind)
    for d in sides[0].free:
        size = convert(dimension(operands[0].re, d), kind)
        rows = create("stablehlo.multiply", [rows, size], kind)
    pairs = [pairs_of(z) for z in operands]
    is_many = compare("GE", rows, integer(MANY_ROWS, kind))
    choice = ir.Operation.create(
        "stablehlo.if", results=[pairs_type(op.results[0].type)], operands=[is_many], regions=2
    )
    for many, region in zip((True, False), choice.regions, strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            # Planes that are taken outside would be written by kernels of their own.
            inner = [planes_of(value) for value in pairs]
            product = _with_matrices(op, inner, 1) if many else _of_four_sums(op, inner, sides)
            ir.Operation.create("stablehlo.return", operands=[pairs_of(product)])
    return planes_of(choice.results[0])


def _sum_of_products(operands: Sequence[Planes], sides: Sequence[Side]) -> Planes:
    """A product without rows and columns."""
    (a, b), (c, d) = (
        [transposed(plane, [*side.batch, *side.contracting]) for plane in (z.re, z.im)]
        for z, side in zip(operands, sides, strict=True)
    )
    kind = a.type
    ac, bd, ad, bc = (create("stablehlo.multiply", [x, y], kind)
                      for x, y in ((a, c), (b, d), (a, d), (b, c)))  # fmt: skip
    re = create("stablehlo.subtract", [ac, bd], kind)
    im = create("stablehlo.add", [ad, bc], kind)
    batch = len(sides[0].batch)
    gone = range(batch, batch + len(sides[0].contracting))
    return Planes(summed(re, gone), summed(im, gone))


def _of_four_sums(op: ir.Operation, operands: Sequence[Planes], sides: Sequence[Side]) -> Planes:
    """Every part of the left operand times every part of the right one."""
    kind = plane_type(op.results[0].type)
    left = len(sides[0].batch) + len(sides[0].free)
    shape = [*kind.shape[:left], 2, *kind.shape[left:], 2]
    sums = create(
        op.name,
        [pairs_of(z) for z in operands],
        ir.RankedTensorType.get(shape, kind.element_type),
        **attributes_of(op),
    )

    def part(of_left: int, of_right: int) -> ir.Value:
        return taken(taken(sums, len(shape) - 1, of_right), left, of_left)

    re = create("stablehlo.subtract", [part(0, 0), part(1, 1)], kind)
    return Planes(re, create("stablehlo.add", [part(0, 1), part(1, 0)], kind))


def _with_matrices(op: ir.Operation, operands: Sequence[Planes], turned: int) -> Planes:
    """Pairs of one operand times matrices of the other one, which has no free dimension."""
    sides = dot_sides(op)
    batch = [list(side.batch) for side in sides]
    summed = [list(side.contracting) for side in sides]
    values: list[ir.Value] = []
    for side, z in enumerate(operands):
        inner = max(summed[side]) + 1
        if side != turned:
            value, inserted = _paired(z, inner), [inner]
        else:
            value, inner, outer = _matrices(z, inner, z.type.rank)
            inserted = sorted([inner, outer])
        values.append(value)
        batch[side] = [_moved(d, inserted) for d in batch[side]]
        summed[side] = [*(_moved(d, inserted) for d in summed[side]), inner]
    kind = plane_type(op.results[0].type)
    axis = kind.rank if turned else len(batch[0])
    shape = [*kind.shape[:axis], 2, *kind.shape[axis:]]
    attributes = attributes_of(op) | {
        "dot_dimension_numbers": dot_numbers((batch[0], batch[1]), (summed[0], summed[1]))
    }
    result = create(
        op.name, values, ir.RankedTensorType.get(shape, kind.element_type), **attributes
    )
    if axis == kind.rank:
        return planes_of(result)
    return Planes(taken(result, axis, 0), taken(result, axis, 1))


def _paired(z: Planes, axis: int) -> ir.Value:
    """Pairs along a new dimension at `axis`."""
    return pairs_of(z) if axis == z.type.rank else joined(z.re, z.im, axis)


def _matrices(z: Planes, inner: int, outer: int) -> tuple[ir.Value, int, int]:
    """The matrices ((c, d), (-d, c)), and where their rows and columns are.

    `inner` and `outer` are the dimensions of `z` in front of which rows and columns go.
    """
    minus = create("stablehlo.negate", [z.im], z.im.type)
    rows = [joined(a, b, outer) for a, b in ((z.re, z.im), (minus, z.re))]
    place = inner + (inner > outer)
    return joined(rows[0], rows[1], place), place, outer + (outer >= inner)


def _moved(dimension: int, inserted: Sequence[int]) -> int:
    """Where a dimension is after others were inserted at these final places, in order."""
    for place in inserted:
        dimension += place <= dimension
    return dimension


# --- convolutions ---------------------------------------------------------------------------------


def convolution(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """One real convolution of twice the features: pairs of them, and a kernel of matrices."""
    if not all(is_complex(v.type) for v in op.operands[:2]):
        return on_each_plane(rewriter, op)
    x, kernel = (rewriter.planes(v) for v in op.operands[:2])
    numbers = conv_numbers(op)
    feature, result = numbers.input.feature, numbers.output.feature
    inner, outer = numbers.kernel_input_feature, numbers.kernel_output_feature
    pairs = _merged(_paired(x, feature + 1), [feature])
    matrices, *_ = _matrices(kernel, inner + 1, outer + 1)
    first = min(inner, outer)
    second = max(inner, outer) + 1
    weights = _merged(matrices, [second, first])
    plane = plane_type(op.results[0].type)
    shape = list(plane.shape)
    shape[result] = shape[result] * 2 if shape[result] != _DYNAMIC else _DYNAMIC
    kind = ir.RankedTensorType.get(shape, plane.element_type)
    made = create(op.name, [pairs, weights, *op.operands[2:]], kind, **attributes_of(op))
    apart = _cut(made, result)
    if result + 1 == plane.rank:
        return [planes_of(apart)]
    return [Planes(taken(apart, result + 1, 0), taken(apart, result + 1, 1))]


def _merged(x: ir.Value, dimensions: Sequence[int]) -> ir.Value:
    """Each of these dimensions and the next, of size 2, as one; the last dimension first."""
    kind = ir.RankedTensorType(x.type)
    shape = list(kind.shape)
    sizes = [_size(x, d) for d in range(kind.rank)] if not kind.has_static_shape else []
    for d in dimensions:
        shape[d : d + 2] = [shape[d] * 2 if shape[d] != _DYNAMIC else _DYNAMIC]
        if sizes:
            sizes[d : d + 2] = [_doubled(sizes[d])]
    return _reshaped(x, ir.RankedTensorType.get(shape, kind.element_type), sizes)


def _cut(x: ir.Value, axis: int) -> ir.Value:
    """A dimension as one of half its size and one of size 2."""
    kind = ir.RankedTensorType(x.type)
    shape = list(kind.shape)
    shape[axis : axis + 1] = [shape[axis] // 2 if shape[axis] != _DYNAMIC else _DYNAMIC, 2]
    sizes = []
    if not kind.has_static_shape:
        sizes = [_size(x, d) for d in range(kind.rank)]
        two = integer(2, ir.RankedTensorType(sizes[0].type))
        half = create("stablehlo.divide", [sizes[axis], two], two.type)
        sizes[axis : axis + 1] = [half, two]
    return _reshaped(x, ir.RankedTensorType.get(shape, kind.element_type), sizes)


def _size(x: ir.Value, axis: int) -> ir.Value:
    return dimension(x, axis)


def _doubled(size: ir.Value) -> ir.Value:
    two = integer(2, ir.RankedTensorType(size.type))
    return create("stablehlo.multiply", [size, two], two.type)


def _reshaped(x: ir.Value, kind: ir.RankedTensorType, sizes: Sequence[ir.Value]) -> ir.Value:
    if kind.has_static_shape and ir.RankedTensorType(x.type).has_static_shape:
        return create("stablehlo.reshape", [x], kind)
    return create("stablehlo.dynamic_reshape", [x, vector(sizes)], kind)
