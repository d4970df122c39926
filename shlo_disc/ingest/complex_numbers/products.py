"""Products of complex arrays as one product of real arrays.

A complex number a + ib times c + id is the row (a, b) times the matrix ((c, d), (-d, c)). So an
array of pairs contracts its pairs with a second operand of 2 x 2 matrices:

    dot_general %x: c[m x k], %y: c[k x n]
    ==>
    dot_general %pairs: f[m x k x 2], %matrices: f[k x 2 x n x 2], contracting [1, 2] x [0, 1]

The result is an array of pairs. One real product of the same number of operations reads the pairs
where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.builders import create, dimension, integer, vector
from shlo_disc.contractions import dot_numbers, dot_sides
from shlo_disc.convolutions import conv_numbers
from shlo_disc.ingest.complex_numbers.planes import (
    Planes,
    is_complex,
    joined,
    pairs_of,
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
from shlo_disc.mlir import ir

__all__ = ["convolution", "dot_general"]

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def dot_general(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """One real `dot_general`; the operand of matrices is the right one unless it is much larger."""
    if not all(is_complex(v.type) for v in op.operands):
        return on_each_plane(rewriter, op)
    lhs, rhs = (rewriter.planes(v) for v in op.operands)
    sides = dot_sides(op)
    batch = [list(side.batch) for side in sides]
    summed = [list(side.contracting) for side in sides]
    free = [side.free for side in sides]
    turned = _is_much_smaller(lhs, rhs, free)
    operands, positions = [], []
    for side, z in enumerate((lhs, rhs)):
        inner = max(summed[side], default=z.type.rank - 1) + 1
        if side == turned:
            value, inserted = _paired(z, inner), [inner]
        else:
            outer = max(free[side], default=z.type.rank - 1) + 1
            value, inner, outer = _matrices(z, inner, outer)
            inserted = sorted([inner, outer])
        operands.append(value)
        positions.append((inner, inserted))
    for side in (0, 1):
        inner, inserted = positions[side]
        batch[side] = [_moved(d, inserted) for d in batch[side]]
        summed[side] = [*(_moved(d, inserted) for d in summed[side]), inner]
    kind = plane_type(op.results[0].type)
    axis = len(batch[0]) + len(free[0]) if turned else kind.rank
    shape = [*kind.shape[:axis], 2, *kind.shape[axis:]]
    attributes = attributes_of(op) | {
        "dot_dimension_numbers": dot_numbers((batch[0], batch[1]), (summed[0], summed[1]))
    }
    result = create(
        op.name, operands, ir.RankedTensorType.get(shape, kind.element_type), **attributes
    )
    if axis == kind.rank:
        return [planes_of(result)]
    return [Planes(taken(result, axis, 0), taken(result, axis, 1))]


def _is_much_smaller(lhs: Planes, rhs: Planes, free: Sequence[Sequence[int]]) -> bool:
    """True if matrices of the left operand cost less: it has a quarter of the elements."""
    if not free[0] and free[1]:
        return True
    if not (lhs.type.has_static_shape and rhs.type.has_static_shape):
        return False
    return 4 * _count(lhs.type) <= _count(rhs.type)


def _count(kind: ir.RankedTensorType) -> int:
    total = 1
    for size in kind.shape:
        total *= int(size)
    return total


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
