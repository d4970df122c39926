"""expand-windows: windows of run-time size along one dimension, in terms of ops that have kernels.

    disc.reduce_window %x, window n, padding n - 1, 0    ==>  disc.scan %x (`cumsum`)
    disc.reduce_window %x, window k, padding low, high   ==>  pad, a loop that doubles, slice

Why     A window over all elements up to its own is a running total: one pass over the data.
Needs   `forward-carried`: sizes must be known.
Keeps   every result; elements are combined in another order.
Cost    Of what is left: O(n) element operations for a scan, O(n log k) for windows of k elements;
        XLA's own takes O(n * k).
Source  StableHLO spec, reduce_window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import dialect
from shlo_disc.ir.builders import (
    broadcast,
    compare,
    create,
    dimension,
    integer,
    pad,
    select,
    shape_of,
    vector,
    while_loop,
)
from shlo_disc.ir.mlir import at, ir, ops_of, replace
from shlo_disc.ir.scalar_regions import on_arrays, takes_lanes
from shlo_disc.passes.base import Pass, register


@dataclass(frozen=True)
class ExpandWindows(Pass):
    """See the module."""

    name: ClassVar[str] = "expand-windows"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of windows.

        Raises UnsupportedError for a reducer with control flow in it.
        """
        windows = ops_of(module, "disc.reduce_window")
        fixed = [
            (op, along)
            for op in ops_of(module, "stablehlo.reduce_window")
            if (along := _along_one(op)) is not None
        ]
        if not windows and not fixed:
            return 0
        known = shapes.now()
        scans = [(op, _running(op, known)) for op in windows]
        scans += [
            (op, found) for op, along in fixed if (found := _whole(op, *along, known)) is not None
        ]
        for op, found in scans:
            with at(op):
                replace(op, *([_scan(op, *found)] if found is not None else _doubling(op)))
        return len(scans)


# --- windows over all that comes before ----------------------------------------------------------


def _running(op: ir.Operation, shapes: ShapeAnalysis) -> tuple[int, bool] | None:
    """(dimension, from the end on) of a running total; None of another window."""
    if len(op.results) != 1 or not takes_lanes(op):
        return None
    axis = int(op.attributes["dimension"].value)
    numbers = [shapes.scalar(v) for v in list(op.operands)[2:]]
    return _whole(op, axis, numbers, shapes)


def _along_one(op: ir.Operation) -> tuple[int, list[Expr]] | None:
    """The one dimension a constant window is longer than 1 along, and (window, low, high padding);
    None of another window.
    """
    if len(op.results) != 1 or not takes_lanes(op):
        return None
    windows = list(ir.DenseI64ArrayAttr(op.attributes["window_dimensions"]))
    axes = [d for d, size in enumerate(windows) if size != 1]
    rest = ("window_strides", "base_dilations", "window_dilations")
    plain = all(
        set(ir.DenseI64ArrayAttr(op.attributes[name])) <= {1}
        for name in rest
        if name in op.attributes
    )
    if len(axes) != 1 or not plain or "padding" not in op.attributes:
        return None
    (axis,) = axes
    padding = [int(n) for n in ir.DenseIntElementsAttr(op.attributes["padding"])]
    ends = padding[2 * axis : 2 * axis + 2]
    if sum(map(abs, padding)) != sum(map(abs, ends)):
        return None
    return axis, [Expr.const(n) for n in (windows[axis], *ends)]


def _whole(
    op: ir.Operation, axis: int, numbers: Sequence[Expr | None], shapes: ShapeAnalysis
) -> tuple[int, bool] | None:
    """(axis, from the end on) where the window is all up to an element; None of another window."""
    window, low, high = numbers
    size = shapes.shape(op.operands[0])[axis]
    equal = shapes.constraints.equal
    if window is None or low is None or high is None or not equal(window, size):
        return None
    if equal(low, size - 1) and equal(high, 0):
        return axis, False
    if equal(low, 0) and equal(high, size - 1):
        return axis, True
    return None


def _scan(op: ir.Operation, axis: int, reverse: bool) -> ir.Value:
    value, init = list(op.operands)[:2]
    scan = dialect.Scan(value, init, axis, reverse=reverse)
    body = op.regions[0].blocks[0]
    body.append_to(scan.regions[0])
    return scan.results[0]


# --- other windows of a size known at run time --------------------------------------------------
#
# part[i] combines the `power` elements from i on, total[i] the `done` elements from i on, where
# power = 2**k and done = the lower k bits of the size. Indices that leave the array are clamped:
# they only reach elements behind the last full window, which the slice at the end drops.


def _doubling(op: ir.Operation) -> list[ir.Value]:
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    axis, count = int(op.attributes["dimension"].value), len(op.results)
    values = list(op.operands)
    inits = values[count : 2 * count]
    size, low, high = values[2 * count :]
    padded = [_padded(x, init, axis, low, high) for x, init in zip(values, inits, strict=False)]
    length = dimension(padded[0], axis)
    shape = shape_of(padded[0])
    totals = [
        create(
            "stablehlo.dynamic_broadcast_in_dim",
            [init, shape],
            x.type,
            broadcast_dimensions=[],
        )
        for init, x in zip(inits, padded, strict=True)
    ]

    def spread(value: ir.Value) -> ir.Value:
        kind = ir.RankedTensorType(padded[0].type)
        element = ir.RankedTensorType(value.type).element_type
        return broadcast(value, [], ir.RankedTensorType.get(kind.shape, element), lambda: shape)

    carried = [integer(1, i32), integer(0, i32), *totals, *padded]

    def is_left(power: ir.Value, *_: ir.Value) -> ir.Value:
        return compare("LE", power, size)

    def doubled(power: ir.Value, done: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
        total, part = arrays[:count], arrays[count:]
        bit = create("stablehlo.and", [size, power], i32)
        here = compare("NE", bit, integer(0, i32))
        behind = [_shifted(p, done, axis, length) for p in part]
        longer = on_arrays(op, [*total, *behind], spread)
        new_total = [select(here, a, b) for a, b in zip(longer, total, strict=True)]
        behind = [_shifted(p, power, axis, length) for p in part]
        new_part = on_arrays(op, [*part, *behind], spread)
        new_done = create("stablehlo.add", [done, bit], i32)
        new_power = create("stablehlo.add", [power, power], i32)
        return [new_power, new_done, *new_total, *new_part]

    results = while_loop(carried, is_left, doubled)[2 : 2 + count]
    return [
        _first(value, axis, size, result.type)
        for value, result in zip(results, op.results, strict=True)
    ]


def _padded(x: ir.Value, init: ir.Value, axis: int, low: ir.Value, high: ir.Value) -> ir.Value:
    rank = ir.RankedTensorType(x.type).rank
    zero = integer(0, low.type)
    before, after = ([end if d == axis else zero for d in range(rank)] for end in (low, high))
    return pad(x, init, before, after, [zero] * rank)


def _shifted(value: ir.Value, by: ir.Value, axis: int, length: ir.Value) -> ir.Value:
    """`value[i + by]` along `axis`, indices clamped into the array."""
    kind = ir.RankedTensorType(value.type)
    i32 = ir.IntegerType.get_signless(32)
    line = ir.RankedTensorType.get([kind.shape[axis]], i32)
    sizes = create("stablehlo.reshape", [length], ir.RankedTensorType.get([1], i32))
    iota = create(
        "stablehlo.dynamic_iota",
        [sizes],
        line,
        iota_dimension=0,
    )
    offset = create(
        "stablehlo.dynamic_broadcast_in_dim",
        [by, sizes],
        line,
        broadcast_dimensions=[],
    )
    index = create("stablehlo.add", [iota, offset], line)
    others = [k for k in range(kind.rank) if k != axis]
    numbers = (
        f"#stablehlo.gather<offset_dims = {others}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = 1>"
    )
    scalar = ir.RankedTensorType.get([], i32)
    entries = [integer(1, scalar) if k == axis else dimension(value, k) for k in range(kind.rank)]
    return create(
        "stablehlo.dynamic_gather",
        [value, index, vector(entries)],
        kind,
        dimension_numbers=ir.Attribute.parse(numbers),
        indices_are_sorted=True,
    )


def _first(value: ir.Value, axis: int, size: ir.Value, kind: ir.Type) -> ir.Value:
    """Elements 0 .. length - size of `value` along `axis`: one for each full window."""
    rank = ir.RankedTensorType(value.type).rank
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    limits = [dimension(value, k) for k in range(rank)]
    behind = create("stablehlo.subtract", [limits[axis], size], i32)
    limits[axis] = create("stablehlo.add", [behind, integer(1, i32)], i32)
    vectors = [vector([integer(0, i32)] * rank), vector(limits), vector([integer(1, i32)] * rank)]
    return create("stablehlo.real_dynamic_slice", [value, *vectors], kind)


register(ExpandWindows())
