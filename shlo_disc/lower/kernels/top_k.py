"""Kind `top_k`: the k largest of each row, in order, with their positions; ties by position.

Floats are ordered as XLA's TopK orders them, by IEEE-754 totalOrder: -0 below +0, NaN (without
sign) above infinity. Up to 64 elements are inserted into a list of the best so far; whole vectors
that hold nothing better are skipped. For more the row is sorted.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.element_types import ElementType, Special
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.merge_sort import Keys, MergeSort
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.kernels.strips import whole_strips
from shlo_disc.lower.plan import Condition, If, KernelPlan, Launch
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of, wrap
from shlo_disc.lower.values.index import Group, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

_LIST = 64
"""Longest list of the insertion variant."""


def emit_top_k(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `chlo.top_k` or a call of @stablehlo.dynamic_top_k."""
    top = TopK(SingleOp.of(fusion, machine))
    if top.k.is_const:
        return KernelPlan((top.by_list() if top.k.value <= _LIST else top.by_sorting(),))
    small = Condition(top.k, "<=", Expr.const(_LIST))
    return KernelPlan((If(small, (top.by_list(),), (top.by_sorting(),)),))


class TopK:
    """A `top_k`: rows, the order of their elements as integers, and the results."""

    def __init__(self, single: SingleOp) -> None:
        self.single = single
        self.operand = single.op.operands[0]
        self.sizes = single.shape(self.operand)
        self.n = self.sizes[-1]
        self.rows = Expr.product(self.sizes[:-1])
        self.element: ElementType = element_of(self.operand)
        self.positions: ElementType = element_of(single.op.results[1])
        self.k = single.shape(single.op.results[0])[-1]
        bits = max(8, self.element.bits)
        self.key_type = f"i{bits}"
        self.storages = [(self.key_type, bits // 8), ("i64", 8)]
        self.has_sign = self.element.is_float and self.element.format.special is not Special.SCALE
        self.left = bits - self.element.bits if self.has_sign else 0
        """Bits by which a float is shifted, so that its sign is the sign of the key."""
        self.above = "sgt" if self.has_sign or self.element.is_signed else "ugt"

    def key(self, e: Elemental, value: Register) -> Register:
        """An integer (or lanes of it) in the order of the element."""
        b = e.b
        if self.element.kind == "b":
            return b.cast("arith.extui", value, "i8")
        if not self.element.is_float:
            return wrap(b, value, self.element)
        type_ = value.like(self.key_type)
        raw = value if value.type == type_ else b.bitcast(value, type_)
        return self.flipped(e, raw << b.constant(self.left, type_) if self.left else raw)

    def flipped(self, e: Elemental, raw: Register) -> Register:
        """Negative floats with all bits but the sign turned over, and back."""
        if not self.has_sign:
            return raw
        b, type_ = e.b, raw.type
        sign = raw.sar(b.constant(max(8, self.element.bits) - 1, type_))
        return raw ^ sign >> b.constant(1, type_)

    def store(
        self, e: Elemental, key: Register | None, position: Register | None, at: IndexValue
    ) -> None:
        """One result: a key, or nothing where nobody reads it, and a position."""
        b = e.b
        values, positions = self.single.results
        if values is not None and key is not None:
            memory = b.memref(e.arguments.slot(values), self.element.storage)
            raw = self.flipped(e, key)
            if self.left:
                raw = raw >> b.constant(self.left, raw.type)
            if raw.type != self.element.storage:
                raw = b.bitcast(raw, self.element.storage)
            memory.store(raw, at)
        if positions is not None and position is not None:
            memory = b.memref(e.arguments.slot(positions), self.positions.storage)
            if self.positions.bits < position.element_bits:
                position = b.cast("arith.trunci", position, self.positions.storage)
            memory.store(position, at)

    def by_list(self) -> Launch:
        """A task for each row, with a list of the best so far."""
        lanes = self.single.machine.lanes(self.element.bytes)
        e = self.single.kernel(lanes)
        b = e.b
        n, k = b.param(self.n, opaque=True), b.param(self.k)
        keys = b.scratch(self.key_type)
        places = b.scratch("i64", _LIST * 8)

        def insert(key: Register, at: IndexValue, last: IndexValue) -> None:
            """Into the list, whose record `last` may be overwritten."""

            def go_on(carried: list[IndexValue]) -> Mask:
                (j,) = carried
                before = keys.load(b.max(j - 1, 0), readonly=False)
                inside = j > 0
                return inside & b.cmpi(self.above, key, before)

            def shift(carried: list[IndexValue]) -> list[IndexValue]:
                before = carried[0] - 1
                for memory in (keys, places):
                    memory.store(memory.load(before, readonly=False), carried[0])
                return [before]

            (place,) = b.while_([last], go_on, shift)
            keys.store(key, place)
            places.store(b.cast("arith.index_cast", at, "i64"), place)

        some = k > 0
        with b.if_(some), b.loop(b.lo, b.hi, 1, hint="row") as row:
            start = row.index * n

            def one(at: IndexValue) -> Register:
                return self.key(e, self.single.read(e, self.operand, start + at))

            with b.loop(0, k, 1, hint="j") as loop:
                insert(one(loop.index), loop.index, loop.index)
            worst_at = k - 1

            def consider(first: IndexValue, last: IndexValue) -> None:
                with b.loop(first, last, 1, hint="j") as loop:
                    key = one(loop.index)
                    worst = keys.load(worst_at, readonly=False)
                    with b.if_(b.cmpi(self.above, key, worst)):
                        insert(key, loop.index, worst_at)

            def vector(at: IndexValue, _: list[Register]) -> None:
                index = (Group(self.sizes, Ix(start + at, 1)),)
                key = self.key(e, e.value_at(self.operand, index, None))
                worst = b.broadcast(keys.load(worst_at, readonly=False), lanes)
                with b.if_(b.cmpi(self.above, key, worst).any()):
                    consider(at, at + lanes)

            end = whole_strips(b, k, n, lanes, vector, hint="v")[0]
            consider(end, n)
            out = row.index * k
            with b.loop(0, k, 1, hint="j") as loop:
                key = keys.load(loop.index, readonly=False)
                self.store(e, key, places.load(loop.index, readonly=False), out + loop.index)
        return self.single.launch(e, "top_k", self.rows, self.n + self.k * 20 + 20, _LIST * 16)

    def by_sorting(self) -> Launch:
        """A task for each row, which it sorts."""
        e = self.single.kernel(0)
        b = e.b
        n, k = b.param(self.n, opaque=True), b.param(self.k)

        def before(x: Keys, y: Keys) -> Mask:
            return b.cmpi(self.above, Register.of(x[0]), Register.of(y[0]))

        sorter = MergeSort(b, self.storages, self.n, before, [True, False])
        with b.loop(b.lo, b.hi, 1, hint="row") as row:
            start = row.index * n
            with b.loop(0, n, 1, hint="j") as loop:
                value = self.single.read(e, self.operand, start + loop.index)
                position = b.cast("arith.index_cast", loop.index, "i64")
                sorter.put(loop.index, [self.key(e, value), position])
            first = sorter.sort()
            out = row.index * k
            with b.loop(0, k, 1, hint="j") as loop:
                key, place = sorter.get(first + loop.index)
                self.store(e, key, place, out + loop.index)
        scratch = MergeSort.scratch_bytes(self.storages, self.n)
        return self.single.launch(e, "top_k_sort", self.rows, self.n * 40 + 20, scratch)
