"""How a value lies in the memory of another: slices, transposes and reshapes as sizes and strides.

    transpose [1, 0] (slice [0:m, 2:2+n] of %x [m, k])   ==>   sizes [n, m], strides [1, k], first 2

Kernels that walk through an operand by strides read such a value in place. Strides count elements
of the base, which is dense and row-major.

Source: StableHLO spec, slice, real_dynamic_slice, transpose, broadcast_in_dim and reshape. Strided
memory is reshaped by NumPy's rule: dimensions that follow each other in memory may be split anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.mlir import ir, producer

SLICES = frozenset({"stablehlo.real_dynamic_slice", "stablehlo.slice"})
"""What cuts a part out of an array at places known from sizes."""

MOST_BANDS = 8
"""Parts of equal width that :func:`band_of` looks for."""

ZERO, ONE = Expr.const(0), Expr.const(1)


@dataclass(frozen=True)
class View:
    """Element i of the value is element first + sum(i[d] // repeats[d] * strides[d]) of `base`."""

    base: ir.Value
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    first: Expr = ZERO
    repeats: tuple[Expr, ...] = ()
    """How often every index of a dimension comes in a row (`jnp.repeat`); (): once."""

    def repeat(self, dimension: int) -> Expr:
        """How often every index of a dimension comes in a row."""
        return self.repeats[dimension] if self.repeats else ONE

    def is_broadcast(self, dimension: int) -> bool:
        """Whether several indices of a dimension may be one place."""
        repeated = self.strides[dimension] == ZERO or not self.repeat(dimension).is_one
        return repeated and not self.sizes[dimension].is_one


def dense_strides(sizes: Sequence[Expr]) -> list[Expr]:
    """Row-major strides."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.insert(0, step)
        step = step * size
    return strides


def outermost_first(axes: Sequence[tuple[Expr, Expr]], facts: Constraints) -> list[int]:
    """The numbers of `axes`, sizes and strides of one dense array, the outermost one first.

    Sizes at which the facts hold tell their order: an outer stride is at least an inner one, or 0
    around a size of 0. Terms do not tell it, such as `3*floordiv(o, 3)` and `o`. What no sample
    tells, the degrees do.
    """
    values = [facts.sampled(stride) for _, stride in axes]
    sizes = [facts.sampled(size) for size, _ in axes]
    counts = {len(own) for own in (*values, *sizes)}
    several = range(counts.pop() if len(counts) == 1 else 0)
    points = [k for k in several if all(own[k] >= 0 for own in sizes)]

    def key(number: int) -> tuple[list[float], tuple[int, int]]:
        own = [values[number][k] or math.inf for k in points]
        return own, magnitude(axes[number][1])

    return sorted(range(len(axes)), key=key, reverse=True)


def magnitude(stride: Expr) -> tuple[int, int]:
    """An order of strides that are polynomials of symbols: degree, then coefficient."""
    degree = max((sum(p for _, p in monomial) for monomial, _ in stride.terms), default=0)
    return degree, max((abs(c) for _, c in stride.terms), default=0)


def view_of(
    value: ir.Value,
    bases: Container[ir.Value],
    shapes: ShapeAnalysis,
    through_broadcasts: bool = False,
) -> View | None:
    """`value` in the memory of one of `bases`, through ops of `VIEWS`; None where it is no view.

    `through_broadcasts`: through ops of `BROADCASTS`, too. An element may be at several indices.
    """
    if value in bases:
        sizes = tuple(shapes.shape(value))
        return View(value, sizes, tuple(dense_strides(sizes)))
    op = producer(value)
    if op is None:
        return None
    rule = VIEWS.get(op.name) or (BROADCASTS.get(op.name) if through_broadcasts else None)
    if rule is None:
        return None
    inner = view_of(op.operands[0], bases, shapes, through_broadcasts)
    if inner is None or (inner.repeats and op.name != "stablehlo.transpose"):
        return None
    return rule(op, inner, shapes)


def band_of(value: ir.Value, base: ir.Value, shapes: ShapeAnalysis) -> tuple[int, int] | None:
    """(number, count) if `value` is part `number` of `count` equal parts of `base`, else None.

    The parts are side by side along the last dimension (`jnp.split`).
    """
    op = producer(value)
    if op is None or op.name not in SLICES or op.operands[0] != base:
        return None
    view = view_of(value, [base], shapes)
    sizes, equal = tuple(shapes.shape(base)), shapes.constraints.equal
    if view is None or view.strides != tuple(dense_strides(sizes)):
        return None
    whole = all(equal(x, y) for x, y in zip(view.sizes[:-1], sizes[:-1], strict=True))
    width = view.sizes[-1]
    for count in range(2, MOST_BANDS + 1) if whole else ():
        if equal(width * count, sizes[-1]):
            numbers = (k for k in range(count) if equal(view.first, width * k))
            return next(((k, count) for k in numbers), None)
    return None


def _transpose(op: ir.Operation, x: View, shapes: ShapeAnalysis) -> View | None:
    order = attr.integers(op, "permutation")
    return replace(
        x,
        sizes=tuple(x.sizes[d] for d in order),
        strides=tuple(x.strides[d] for d in order),
        repeats=tuple(x.repeats[d] for d in order) if x.repeats else (),
    )


def _slice(op: ir.Operation, x: View, shapes: ShapeAnalysis) -> View | None:
    starts = [Expr.const(n) for n in attr.integers(op, "start_indices")]
    steps = [Expr.const(n) for n in attr.integers(op, "strides")]
    return _sliced(op, x, starts, steps, shapes)


def _real_dynamic_slice(op: ir.Operation, x: View, shapes: ShapeAnalysis) -> View | None:
    starts, steps = shapes.contents(op.operands[1]), shapes.contents(op.operands[3])
    if starts is None or steps is None:
        return None
    return _sliced(op, x, starts, steps, shapes)


def _sliced(
    op: ir.Operation,
    x: View,
    starts: Sequence[Expr],
    steps: Sequence[Expr],
    shapes: ShapeAnalysis,
) -> View:
    first = x.first
    for start, stride in zip(starts, x.strides, strict=True):
        first = first + start * stride
    strides = tuple(a * b for a, b in zip(x.strides, steps, strict=True))
    return View(x.base, tuple(shapes.shape(op.results[0])), strides, first)


def _reshape(op: ir.Operation, x: View, shapes: ShapeAnalysis) -> View | None:
    """Every run of the operand's dimensions is cut into dimensions of the result. A dimension that
    a broadcast has made goes into the one before it.
    """
    if ZERO in x.sizes:
        return None  # an array without elements has no runs
    equal = shapes.constraints.equal
    sizes = tuple(shapes.shape(op.results[0]))
    runs: list[tuple[Expr, Expr]] = []
    for size, stride in zip(x.sizes, x.strides, strict=True):
        if size.is_one:
            continue
        if runs and equal(runs[-1][1], stride * size):
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    strides: list[Expr] = []
    repeats: dict[int, Expr] = {}
    at = number = 0
    while number < len(runs):
        size, step = runs[number]
        cut = _cut(sizes, at, size, shapes)
        if cut is None:
            following = runs[number + 1] if number + 1 < len(runs) else (ONE, ONE)
            cut = _cut(sizes, at, size * following[0], shapes) if following[1] == ZERO else None
            if cut is None:
                return None
            often, last = following[0], sizes[cut - 1]
            if not equal(last // often * often, last):
                return None  # the repeats of an element are spread over several dimensions
            repeats[cut - 1] = often
            number += 1
        once = [s // repeats.get(d, ONE) for d, s in enumerate(sizes[at:cut], at)]
        strides += [s * step for s in dense_strides(once)]
        at, number = cut, number + 1
    if not all(size.is_one for size in sizes[at:]):
        return None
    strides += [ONE] * (len(sizes) - at)
    counts = tuple(repeats.get(d, ONE) for d in range(len(sizes))) if repeats else ()
    return View(x.base, sizes, tuple(strides), x.first, counts)


def _cut(sizes: Sequence[Expr], at: int, size: Expr, shapes: ShapeAnalysis) -> int | None:
    """Behind which of the dimensions from `at` on there are `size` elements."""
    count = ONE
    for cut in range(at, len(sizes)):
        count = count * sizes[cut]
        if shapes.constraints.equal(count, size):
            return cut + 1
    return None


def _broadcast(op: ir.Operation, x: View, shapes: ShapeAnalysis) -> View | None:
    equal = shapes.constraints.equal
    sizes = tuple(shapes.shape(op.results[0]))
    strides = [ZERO] * len(sizes)
    for d, place in enumerate(attr.integers(op, "broadcast_dimensions")):
        if equal(x.sizes[d], sizes[place]):
            strides[place] = x.strides[d]
        elif not x.sizes[d].is_one:
            return None
    return View(x.base, sizes, tuple(strides), x.first)


VIEWS: dict[str, Callable[[ir.Operation, View, ShapeAnalysis], View | None]] = {
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.reshape": _reshape,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
"""By op name: the result as a view of where its first operand is."""

BROADCASTS: dict[str, Callable[[ir.Operation, View, ShapeAnalysis], View | None]] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
}
"""The same for ops that put an element at several indices."""
