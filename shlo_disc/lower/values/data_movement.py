"""Operations that only move elements: which element of which operand is element i of the result.

Most rules say, per dimension of the result, which operand dimension it passes through to unchanged
(`carry`); runs of such dimensions keep one flat index. The others get an index of their own.
Where an element may not exist in the operand (padding, pieces of a concatenation), the load is
masked and the value selected.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.attributes import integers
from shlo_disc.ir.element_types import ELEMENT_TYPES, ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import Op, element_of
from shlo_disc.lower.values.elementwise import convert, own_bits
from shlo_disc.lower.values.gathers import gather
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.index_propagation import DROP, OWN, assemble, carry
from shlo_disc.lower.values.typed import IndexValue, Mask, Register, element_type

# ------------------------------------------------------------------ reshapes, broadcasts, ...


def _reshape(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    operand = op.operands[0]
    return e.value_at(operand, e.space.reshape(index, e.shape(operand)), mask)


def _broadcast(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    operand = op.operands[0]
    sizes, out = e.shape(operand), e.shape(value)
    mapping = [DROP] * len(out)
    dims: dict[int, Ix] = {}
    unknown: dict[int, int] = {}
    for o, d in enumerate(integers(op, "broadcast_dimensions")):
        if e.space.same(sizes[o], out[d]):
            mapping[d] = o
        elif sizes[o].is_one or out[d].is_one:
            dims[o] = e.space.zero()
        else:
            mapping[d] = OWN
            unknown[d] = o
    groups, own = carry(e, index, mapping)
    for d, o in unknown.items():
        dims[o] = _expanded(e, own[d], sizes[o])
    return e.value_at(operand, assemble(sizes, groups, dims), mask)


def _expanded(e: Elemental, ix: Ix, size: Expr) -> Ix:
    """0 when the operand's size is 1 at run time, else the index."""
    b = e.b
    is_one = b.param(size).equals(1)
    if ix.is_uniform:
        return Ix(b.select(is_one, b.index(0), ix.base))
    lanes = e.space.lanes_of(ix)
    return e.space.uniform(b.select(is_one, lanes.constant(0), lanes))


def _transpose(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    groups, _ = carry(e, index, integers(op, "permutation"))
    return e.value_at(op.operands[0], assemble(e.shape(op.operands[0]), groups, {}), mask)


def _reverse(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    turned, sizes = set(integers(op, "dimensions")), e.shape(value)
    groups, own = carry(e, index, [OWN if d in turned else d for d in range(len(sizes))])
    dims = {d: e.space.negate_from(e.b.param(sizes[d]) - 1, ix) for d, ix in own.items()}
    return e.value_at(op.operands[0], assemble(sizes, groups, dims), mask)


# ------------------------------------------------------------------ slices


def _scaled(e: Elemental, ix: Ix, by: Expr | IndexValue) -> Ix:
    """Index * by."""
    if isinstance(by, Expr):
        return e.space.scale(ix, by)
    if ix.is_uniform:
        return Ix(ix.base * by)
    return e.space.uniform(e.space.lanes_of(ix) * by)


def _name(e: Elemental, size: Expr | IndexValue) -> IndexValue:
    return size if isinstance(size, IndexValue) else e.b.param(size)


def _strided(
    e: Elemental,
    operand: ir.Value,
    value: ir.Value,
    index: Index,
    starts: Sequence[Expr | IndexValue],
    strides: Sequence[Expr | IndexValue],
    mask: Mask | None,
) -> Register:
    sizes, out = e.shape(operand), e.shape(value)

    def kept(d: int) -> bool:
        start, stride = starts[d], strides[d]
        whole = isinstance(start, Expr) and start.is_const and start.value == 0
        return (
            whole and isinstance(stride, Expr) and stride.is_one and e.space.same(sizes[d], out[d])
        )

    groups, own = carry(e, index, [d if kept(d) else OWN for d in range(len(out))])
    dims = {
        d: e.space.add(_scaled(e, ix, strides[d]), _name(e, starts[d])) for d, ix in own.items()
    }
    return e.value_at(operand, assemble(sizes, groups, dims), mask)


def _slice(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    starts = [Expr.const(k) for k in integers(op, "start_indices")]
    strides = [Expr.const(k) for k in integers(op, "strides")]
    return _strided(e, op.operands[0], value, index, starts, strides, mask)


def _real_dynamic_slice(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    operand, start, _, stride = op.operands
    rank = len(e.shape(operand))
    starts = [e.entry(start, d) for d in range(rank)]
    strides = [e.entry(stride, d) for d in range(rank)]
    return _strided(e, operand, value, index, starts, strides, mask)


def clamped_start(e: Elemental, start: IndexValue, size: Expr, window: Expr) -> Expr | IndexValue:
    """The start of a window of `window` elements clamped into a dimension of `size`."""
    if e.space.same(size, window):
        return Expr.const(0)
    b = e.b
    return b.max(b.min(start, b.param(size - window)), 0)


def _dynamic_slice(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    operand, *starts = op.operands
    sizes, out = e.shape(operand), e.shape(value)
    places: list[Expr | IndexValue] = [
        Expr.const(0) if e.space.same(n, w) else clamped_start(e, e.scalar(s), n, w)
        for s, n, w in zip(starts, sizes, out, strict=True)
    ]
    ones = [Expr.const(1)] * len(out)
    return _strided(e, operand, value, index, places, ones, mask)


# ------------------------------------------------------------------ parts that may not exist


def _within(
    e: Elemental,
    index: Index,
    mask: Mask | None,
    condition: Mask | None,
    inside: Callable[[Mask | None], Register],
    outside: Callable[[Mask | None], Register],
) -> Register:
    """`inside` where `condition`, else `outside`; each loads only where it is chosen."""
    if condition is None:
        return inside(mask)
    if condition.type == "i1":
        if condition.constant_lanes is not None:
            return inside(mask) if condition.constant_lanes[0] else outside(mask)
        lanes = e.width(index, mask)
        return e.branch(condition, lambda: inside(mask), lambda: outside(mask), lanes)
    a = inside(e.both(mask, condition))
    c = outside(e.both(mask, e.unless(condition)))
    return e.choose(condition, a, c)


def _pad_with(
    e: Elemental,
    op: ir.Operation,
    value: ir.Value,
    index: Index,
    mask: Mask | None,
    low: Sequence[Expr | IndexValue],
    interior: Sequence[Expr | IndexValue],
) -> Register:
    operand, padding = op.operands[0], op.operands[1]
    sizes, out = e.shape(operand), e.shape(value)

    def is_zero(x: Expr | IndexValue) -> bool:
        return isinstance(x, Expr) and bool(x.is_const) and x.value == 0

    def kept(d: int) -> bool:
        return is_zero(low[d]) and is_zero(interior[d]) and e.space.same(sizes[d], out[d])

    groups, own = carry(e, index, [d if kept(d) else OWN for d in range(len(out))])
    condition: Mask | None = None
    dims: dict[int, Ix] = {}
    for d, ix in own.items():
        b = e.b
        at = ix
        spread = _spread(e, ix, low[d], interior[d])
        if spread is not None:
            dims[d], lanes_on = spread
            condition = e.both(condition, lanes_on)
            condition = e.both(condition, e.below(dims[d], b.param(sizes[d])))
            continue
        if not is_zero(low[d]):
            at = e.space.negate_from(_name(e, low[d]), ix)  # low - i, turned below
            at = e.space.negate_from(b.index(0), at)
        if not is_zero(interior[d]):
            step = _name(e, interior[d]) + 1
            condition = e.both(condition, e.at_least(at, b.index(0)))
            name = e.space.name_of(at)
            # Negative lanes divide to anything: they are masked off already.
            at = e.space.uniform(b.op("arith.divsi", name, b.broadcast(step, _lanes(e, name))))
            back = e.space.name_of(at) * b.broadcast(step, _lanes(e, name))
            condition = e.both(condition, back.equals(name))
        condition = e.both(condition, e.below(at, b.param(sizes[d])))
        dims[d] = at

    def inside(m: Mask | None) -> Register:
        return e.value_at(operand, assemble(sizes, groups, dims), m)

    return _within(e, index, mask, condition, inside, lambda m: e.value_at(padding, (), None))


def _spread(
    e: Elemental, ix: Ix, low: Expr | IndexValue, interior: Expr | IndexValue
) -> tuple[Ix, Mask] | None:
    """The operand's index in the lanes that hold one of its elements, and which these are.

    None where that is not known now, or where there is no interior padding.
    """
    if isinstance(low, IndexValue) or isinstance(interior, IndexValue) or not e.lanes:
        return None
    if not low.is_const or not interior.is_const or interior.value == 0:
        return None
    step = interior.value + 1
    if ix.vector is not None or ix.stride != 1 or ix.multiple % step:
        return None
    places = [lane - low.value for lane in range(e.lanes)]
    at = e.space.steps(ix.base // step, [place // step for place in places])
    return at, e.b.dense_mask([place % step == 0 for place in places])


def _lanes(e: Elemental, name: IndexValue) -> int:
    return e.lanes if name.type != "index" else 0


def _pad(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    low = [Expr.const(k) for k in integers(op, "edge_padding_low")]
    interior = [Expr.const(k) for k in integers(op, "interior_padding")]
    return _pad_with(e, op, value, index, mask, low, interior)


def _dynamic_pad(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    rank = len(e.shape(value))
    low = [e.entry(op.operands[2], d) for d in range(rank)]
    interior = [e.entry(op.operands[4], d) for d in range(rank)]
    return _pad_with(e, op, value, index, mask, low, interior)


def _concatenate(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    rank = len(e.shape(value))
    pieces = [v for v in op.operands if not _empty(e, v, axis)] or [op.operands[0]]
    if len(pieces) == 1:
        return e.value_at(pieces[0], index, mask)
    groups, own = carry(e, index, [OWN if d == axis else d for d in range(rank)])
    return _Pieces(e, axis, index, groups, own[axis]).value(pieces, Expr.const(0), mask)


@dataclass(frozen=True)
class _Pieces:
    """What a concatenation has at one index."""

    e: Elemental
    axis: int
    index: Index
    groups: dict[int, Group]
    """The index along the other dimensions."""
    along: Ix
    """The index along the axis."""

    def value(self, pieces: Sequence[ir.Value], start: Expr, mask: Mask | None) -> Register:
        """The value of `pieces`, which begin at `start`, at an index not below that."""
        e, b = self.e, self.e.b
        piece, *others = pieces
        sizes = e.shape(piece)

        def inside(mask: Mask | None) -> Register:
            is_first = start.is_const and start.value == 0
            at = self.along if is_first else e.space.add(self.along, 0 - b.param(start))
            return e.value_at(piece, assemble(sizes, self.groups, {self.axis: at}), mask)

        if not others:
            return inside(mask)
        end = start + sizes[self.axis]
        before = e.below(self.along, b.param(end))
        return _within(
            e, self.index, mask, before, inside, lambda rest: self.value(others, end, rest)
        )


def _empty(e: Elemental, value: ir.Value, axis: int) -> bool:
    size = e.shape(value)[axis]
    return bool(size.is_const and size.value == 0)


def _dynamic_update_slice(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    operand, update, *starts = op.operands
    sizes, window = e.shape(operand), e.shape(update)
    whole = [e.space.same(n, w) for n, w in zip(sizes, window, strict=True)]
    groups, own = carry(e, index, [d if w else OWN for d, w in enumerate(whole)])
    condition: Mask | None = None
    dims: dict[int, Ix] = {}
    for d, ix in own.items():
        start = clamped_start(e, e.scalar(starts[d]), sizes[d], window[d])
        dims[d] = e.space.add(ix, 0 - _name(e, start))
        condition = e.both(condition, e.below(dims[d], e.b.param(window[d])))
    return _within(
        e,
        index,
        mask,
        condition,
        lambda m: e.value_at(update, assemble(window, groups, dims), m),
        lambda m: e.value_at(operand, index, m),
    )


# ------------------------------------------------------------------ values from no operand


def _iota(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    axis = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    rank = len(e.shape(value))
    _, own = carry(e, index, [OWN if d == axis else DROP for d in range(rank)])
    element = element_of(value)
    if not element.is_float:
        return e.from_index(own[axis], element)
    return convert(
        e.b, e.from_index(own[axis], ELEMENT_TYPES["i64"]), ELEMENT_TYPES["i64"], element
    )


def _constant(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    return e.splat(op)


def _dim(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    size = Expr.parse(ir.StringAttr(op.attributes["dim"]).value)
    element = element_of(value)
    if not element.is_float:
        return e.from_index(Ix(e.b.param(size)), element)
    return convert(
        e.b, e.from_index(Ix(e.b.param(size)), ELEMENT_TYPES["i64"]), ELEMENT_TYPES["i64"], element
    )


def _sizes(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    """A 1-D tensor of sizes used as data: select by position."""
    sizes = [Expr.parse(ir.StringAttr(d).value) for d in op.attributes["dims"]]
    element = element_of(value)
    (ix,) = e.space.dims(index)
    result = e.from_index(Ix(e.b.param(sizes[0])), element)
    for k, size in enumerate(sizes[1:], 1):
        here = e.at_least(ix, e.b.index(k))
        result = e.choose(here, e.from_index(Ix(e.b.param(size)), element), result)
    return result


# ------------------------------------------------------------------ others


def _bitcast_convert(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    """Between widths: the narrow side has one more, innermost dimension, lowest bits first."""
    operand = op.operands[0]
    source, target = element_of(operand), element_of(value)
    b = e.b
    if source.bits < target.bits:
        ratio = target.bits // source.bits
        parts = []
        for k in range(ratio):
            last = Group((Expr.const(ratio),), e.space.uniform(b.index(k)))
            part = e.value_at(operand, (*index, last), mask)
            wide = _resized(_raw(b, part, source), f"i{target.width}")
            by = wide.constant(k * source.bits)
            wide = wide << by if k else wide
            parts.append(wide)
        return _bitcast(functools.reduce(operator.or_, parts), target.register)
    rank = len(e.shape(value))
    groups, own = carry(e, index, [*range(rank - 1), OWN])
    whole = e.value_at(operand, assemble(e.shape(operand), groups, {}), mask)
    bits = _raw(b, whole, source)
    by = e.from_index(e.space.scale(own[rank - 1], target.bits), ELEMENT_TYPES[f"i{source.width}"])
    lanes = max(bits.lanes, by.lanes)
    shifted = b.broadcast(bits, lanes) >> b.broadcast(by, lanes)
    if target.kind == "b":
        return _resized(shifted, "i1")
    part = _resized(shifted, f"i{target.width}")
    return _bitcast(own_bits(b, part, target), target.register)


def _raw(b: KernelBuilder, register: Register, element: ElementType) -> Register:
    """The bits of an element as an integer of its width; zeros in front of fewer than 8."""
    if element.kind == "b":
        return _resized(register, "i8")
    return own_bits(b, _bitcast(register, f"i{element.width}"), element)


def _resized(register: Register, integer: str) -> Register:
    """Every lane as an integer type: its low bits, or with zeros in front."""
    old, new = int(element_type(register.type)[1:]), int(integer[1:])
    if old == new:
        return register
    return register.b.cast("arith.trunci" if new < old else "arith.extui", register, integer)


def _bitcast(register: Register, element: str) -> Register:
    """The bits of every lane as `element`, which has as many."""
    wanted = register.like(element)
    return register if register.type == wanted else register.b.bitcast(register, wanted)


DATA_MOVEMENT = {
    "disc.dim": _dim,
    "disc.sizes": _sizes,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_gather": gather,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": gather,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
"""Every op whose elements come from operands at other indices, or from none."""
