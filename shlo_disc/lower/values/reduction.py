"""Reductions: `reduce` and `reduce_window` computed for one element (a lane) by a sequential loop.

The order is that of the operand, first to last, starting from the init value; it depends on
nothing but the sizes. `Reducer` is also what the row emitter builds its vector accumulators from.
Accumulators of 16-bit floats are f32 when the body is one known operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.attributes import reduced_dims
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.values.elemental import Elemental, emit_region
from shlo_disc.lower.values.elements import Op, element_of, from_compute, half_op, to_compute
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.index_propagation import OWN, assemble, carry
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.op_classes import IOTAS

_BODIES: dict[str, dict[str, str]] = {
    "stablehlo.add": {"f": "arith.addf", "i": "arith.addi", "u": "arith.addi", "b": "arith.ori"},
    "stablehlo.and": {"i": "arith.andi", "u": "arith.andi", "b": "arith.andi"},
    "stablehlo.maximum": {
        "f": "arith.maximumf",
        "i": "arith.maxsi",
        "u": "arith.maxui",
        "b": "arith.ori",
    },
    "stablehlo.minimum": {
        "f": "arith.minimumf",
        "i": "arith.minsi",
        "u": "arith.minui",
        "b": "arith.andi",
    },
    "stablehlo.multiply": {
        "f": "arith.mulf",
        "i": "arith.muli",
        "u": "arith.muli",
        "b": "arith.andi",
    },
    "stablehlo.or": {"i": "arith.ori", "u": "arith.ori", "b": "arith.ori"},
    "stablehlo.xor": {"i": "arith.xori", "u": "arith.xori", "b": "arith.xori"},
}
"""Bodies of one associative and commutative operation, by kind of element."""


def _identity(name: str, element: ElementType) -> float:
    """The value that changes nothing under `name`."""
    if name in ("stablehlo.add", "stablehlo.or", "stablehlo.xor"):
        # -0.0: adding it keeps even the sign of a zero.
        return -0.0 if element.is_float else 0
    if name == "stablehlo.multiply":
        return 1
    if name == "stablehlo.and":
        return 1 if element.kind == "b" else -1
    low = name == "stablehlo.maximum"
    if element.is_float:
        return -math.inf if low else math.inf
    if element.kind == "b":
        return 0 if low else 1
    if element.kind == "u":
        return 0 if low else -1
    bits = element.bits - 1
    return -(1 << bits) if low else (1 << bits) - 1


def simple_body(op: ir.Operation) -> str | None:
    """The name of the one commutative operation the body is, None of any other body."""
    block = op.regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    if len(op.results) != 1 or len(ops) != 2 or ops[0].name not in _BODIES:
        return None
    element = element_of(op.results[0])
    same = element_of(block.arguments[0]) == element
    both = set(ops[0].operands) == set(block.arguments)
    returned = ops[1].operands[0] == ops[0].results[0]
    known = element.kind in _BODIES[ops[0].name]
    return ops[0].name if same and both and returned and known else None


def _is_arg_reduce(op: ir.Operation) -> bool:
    """True if `op` is an arg-max or arg-min over one trailing dimension as JAX writes it.

    (value, index) pairs; the first NaN wins, of equals the first. With `<` for arg-min:
    `pick = a > b or a != a`, `select(pick, a, b)`, `select(pick or (a == b and i < j), i, j)`.
    """
    if op.name != "stablehlo.reduce" or len(op.results) != 2:
        return False
    index, rank = producer(op.operands[1]), len(ir.RankedTensorType(op.operands[1].type).shape)
    if index is None or index.name not in IOTAS:
        return False
    dimension = ir.IntegerAttr(index.attributes["iota_dimension"]).value
    if reduced_dims(op) != [rank - 1] or dimension != rank - 1:
        return False
    block = op.regions[0].blocks[0]
    a, i, b, j = "aibj"
    known = dict(zip(block.arguments, (a, i, b, j), strict=True))
    for view in block.operations:
        inner = view.operation
        if any(v not in known for v in inner.operands):
            return False
        operands = ",".join(known[v] for v in inner.operands)
        if inner.name == "stablehlo.return":
            return any(
                operands == f"select({pick},a,b),select(or({pick},and(EQ(a,b),LT(i,j))),i,j)"
                for pick in ("or(GT(a,b),NE(a,a))", "or(LT(a,b),NE(a,a))", "GT(a,b)", "LT(a,b)")
            )
        name = inner.name.removeprefix("stablehlo.")
        if name == "compare":
            name = comparison(inner)
        known[inner.results[0]] = f"{name}({operands})"
    return False


def takes_any_order(op: ir.Operation) -> bool:
    """True if columns may be reduced in any order."""
    return simple_body(op) is not None or _is_arg_reduce(op)


class Reducer:
    """The accumulators of one `reduce` or `reduce_window`, with any number of lanes."""

    def __init__(self, e: Elemental, op: ir.Operation) -> None:
        self.e, self.op = e, op
        self.count = len(op.operands) // 2
        self.inputs = list(op.operands)[: self.count]
        self.inits = list(op.operands)[self.count :]
        self.block = op.regions[0].blocks[0]
        self.elements = [element_of(r) for r in op.results]
        self.simple = simple_body(op)
        self._is_arg = _is_arg_reduce(op)
        self._in_halves = (
            self.simple in ("stablehlo.maximum", "stablehlo.minimum")
            and self.elements[0].name in e.b.halves
        )
        """True if accumulators are those floats of 16 bits, which loses nothing."""

    @property
    def types(self) -> list[str]:
        """The element types of accumulators."""
        is_wide = self.simple is not None and not self._in_halves
        return [e.compute if is_wide else e.register for e in self.elements]

    def init(self, lanes: int) -> list[Register]:
        """Accumulators that hold the init values."""
        return [
            self.e.b.broadcast(self.widen(self.e.value_at(v, (), None), i), lanes)
            for i, v in enumerate(self.inits)
        ]

    def neutral(self, lanes: int) -> list[Register]:
        """Accumulators that hold the identity of a simple body, else the init values.

        The specification lets an implementation insert the init value anywhere in the schedule.
        """
        if self.simple is None:
            return self.init(lanes)
        element = self.elements[0]
        value = _identity(self.simple, element)
        one = self.e.b.constant(value, element.name if self._in_halves else element.compute)
        if self._in_halves:
            one = one.bits()
        return [self.e.b.broadcast(one, lanes)]

    def step(self, accumulators: Sequence[Register], values: Sequence[Register]) -> list[Register]:
        """`body(accumulators, values)`; values as they come from `value_at`."""
        wide = [self.widen(v, i) for i, v in enumerate(values)]
        return self.merge(accumulators, wide)

    def merge(self, a: Sequence[Register], b: Sequence[Register]) -> list[Register]:
        """`body(a, b)` of two sets of accumulators."""
        text = self.e.b
        lanes = max(v.lanes for v in (*a, *b))
        a, b = [text.broadcast(v, lanes) for v in a], [text.broadcast(v, lanes) for v in b]
        if self.simple is not None:
            name = _BODIES[self.simple][self.elements[0].kind]
            half = half_op(text, name, [a[0], b[0]], self.elements[0]) if self._in_halves else None
            return [text.op(name, a[0], b[0]) if half is None else half]
        return [text.broadcast(v, lanes) for v in emit_region(self.e, self.block, [*a, *b])]

    def combine(self, a: Sequence[Register], b: Sequence[Register]) -> list[Register]:
        """`body(a, b)` of accumulators of any columns; an arg-max wants the first ones first."""
        if not self._is_arg:
            return self.merge(a, b)
        text = self.e.b
        later = text.cmpi("slt" if self.elements[1].is_signed else "ult", b[1], a[1])
        pairs = [
            (text.select(later, y, x), text.select(later, x, y)) for x, y in zip(a, b, strict=True)
        ]
        return self.merge([x for x, _ in pairs], [y for _, y in pairs])

    def finish(self, accumulators: Sequence[Register]) -> list[Register]:
        """The results in their own types."""
        if self.simple is None or self._in_halves:
            return list(accumulators)
        return [from_compute(self.e.b, accumulators[0], self.elements[0])]

    def widen(self, value: Register, i: int) -> Register:
        """A value of operand `i`, as it comes from `value_at`, as accumulators hold it."""
        if self.simple is None or self._in_halves:
            return value
        return to_compute(self.e.b, value, self.elements[i])


def _pick(e: Elemental, op: ir.Operation, value: ir.Value, index: Index, mask: Mask | None,
          results: Sequence[Register]) -> Register:  # fmt: skip
    """Remember all results of `op` at this index; the one that was asked for."""
    for result, register in zip(op.results, results, strict=True):
        e.remember(result, index, mask, register)
    return results[list(op.results).index(value)]


def _reduce(e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None) -> Register:
    reducer = Reducer(e, op)
    operand = reducer.inputs[0]
    sizes = e.shape(operand)
    gone = reduced_dims(op)
    kept = [d for d in range(len(sizes)) if d not in gone]
    groups, _ = carry(e, index, kept)
    runs: list[list[int]] = []
    for d in gone:
        if runs and runs[-1][-1] == d - 1:
            runs[-1].append(d)
        else:
            runs.append([d])
    found = _runs(e, reducer, runs, groups, mask, reducer.init(e.width(index, mask)))
    return _pick(e, op, value, index, mask, reducer.finish(found))


def _runs(
    e: Elemental,
    reducer: Reducer,
    runs: Sequence[list[int]],
    found: dict[int, Group],
    mask: Mask | None,
    accs: list[Register],
) -> list[Register]:
    """The accumulators after loops over `runs` of dimensions, inside those that were `found`."""
    sizes = e.shape(reducer.inputs[0])
    if not runs:
        at = assemble(sizes, found, {})
        return reducer.step(accs, [e.value_at(v, at, mask) for v in reducer.inputs])
    first, last = runs[0][0], runs[0][-1] + 1
    number = Expr.product(sizes[first:last])
    if e.unrolls and number.is_const:
        for k in range(number.value):
            run = Group(tuple(sizes[first:last]), e.space.uniform(e.b.index(k)))
            accs = _runs(e, reducer, runs[1:], {**found, first: run}, mask, accs)
        return accs
    count = e.b.param(number)
    with e.b.loop(0, count, 1, accs, hint="k") as loop:
        run = Group(tuple(sizes[first:last]), Ix(loop.index))
        inside = {**found, first: run}
        loop.yield_(*_runs(e, reducer, runs[1:], inside, mask, loop.args))
    return loop.results


def _list(op: ir.Operation, name: str, rank: int) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else [1] * rank


def _reduce_window(
    e: Elemental, op: Op, value: ir.Value, index: Index, mask: Mask | None
) -> Register:
    return _pick(e, op, value, index, mask, _Window(e, op, index, mask).results())


class _Window:
    """The elements of a window, reduced one after the other."""

    def __init__(self, e: Elemental, op: ir.Operation, index: Index, mask: Mask | None) -> None:
        self.e, self.index, self.mask = e, index, mask
        self.reducer = Reducer(e, op)
        self.sizes = e.shape(self.reducer.inputs[0])
        rank = self.rank = len(self.sizes)
        self.windows = _list(op, "window_dimensions", rank)
        self.strides = _list(op, "window_strides", rank)
        self.base_dilations = _list(op, "base_dilations", rank)
        self.dilation = _list(op, "window_dilations", rank)
        self.padding = [0] * (2 * rank)
        if "padding" in op.attributes:
            self.padding = [int(v) for v in ir.DenseIntElementsAttr(op.attributes["padding"])]
        kept = [d if self._is_plain(d) else OWN for d in range(rank)]
        self.groups, self.own = carry(e, index, kept)

    def _is_plain(self, d: int) -> bool:
        alone = self.windows[d] == self.strides[d] == self.base_dilations[d] == 1
        return alone and self.padding[2 * d : 2 * d + 2] == [0, 0]

    def results(self) -> list[Register]:
        """What the reduction gives."""
        start = self.reducer.init(self.e.width(self.index, self.mask))
        return self.reducer.finish(self._nest(0, {}, None, start))

    def _nest(
        self, d: int, dims: dict[int, Ix], inside: Mask | None, accs: list[Register]
    ) -> list[Register]:
        """The accumulators after loops over dimension `d` and those behind it."""
        e, b = self.e, self.e.b
        if d == self.rank:
            place = assemble(self.sizes, self.groups, dims)
            inputs, inits = self.reducer.inputs, self.reducer.inits
            values = [e.value_at(v, place, e.both(self.mask, inside)) for v in inputs]
            if inside is not None:  # Padding holds the init values, and is reduced like the rest.
                pads = [e.value_at(v, (), None) for v in inits]
                values = [e.choose(inside, v, p) for v, p in zip(values, pads, strict=True)]
            return self.reducer.step(accs, values)
        if d not in self.own:
            return self._nest(d + 1, dims, inside, accs)
        if self.windows[d] == 1:
            return self._at(d, dims, inside, None, accs)
        with b.loop(0, self.windows[d], 1, accs, hint="w") as loop:
            loop.yield_(*self._at(d, dims, inside, loop.index, loop.args))
        return loop.results

    def _at(
        self,
        d: int,
        dims: dict[int, Ix],
        inside: Mask | None,
        k: IndexValue | None,
        accs: list[Register],
    ) -> list[Register]:
        """The same at place `k` of the window along dimension `d`; None: it has one place."""
        e, b = self.e, self.e.b
        here = e.space.scale(self.own[d], self.strides[d])
        if k is not None:
            here = e.space.add(here, k * self.dilation[d])
        here, ok = e.space.add(here, -self.padding[2 * d]), inside
        if self.base_dilations[d] > 1:
            ok = e.both(ok, e.at_least(here, b.index(0)))
            name = e.space.name_of(here)
            step = name.constant(self.base_dilations[d])
            quotient = b.op("arith.divsi", name, step)
            ok = e.both(ok, (quotient * step).equals(name))
            here = e.space.uniform(quotient)
        if self.base_dilations[d] > 1 or self.padding[2 * d] or self.padding[2 * d + 1]:
            ok = e.both(ok, e.below(here, b.param(self.sizes[d])))
        return self._nest(d + 1, {**dims, d: here}, ok, accs)


REDUCTIONS = {"stablehlo.reduce": _reduce, "stablehlo.reduce_window": _reduce_window}
"""Ops whose elements need a loop over operand elements."""
