"""Kind `top_k`: the k largest of each row, in order, with their positions; ties by position.

Floats are ordered as XLA's TopK orders them, by IEEE-754 totalOrder: -0 below +0, NaN (without
sign) above infinity. Up to 64 elements by insertion into a list of the best so far, skipping whole
vectors that hold nothing better; more by sorting the row.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.merge_sort import MergeSort
from shlo_disc.lower.cpu.single_op import Single
from shlo_disc.lower.plan import Condition, If, KernelPlan, Launch
from shlo_disc.lower.values.builder import lanes_of, like
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import Element, element_of
from shlo_disc.lower.values.index import Group, Ix
from shlo_disc.mlir import ir

__all__ = ["emit_top_k"]

_LIST = 64
"""Longest list of the insertion variant."""


def emit_top_k(fusion: ir.Operation, shapes: ShapeAnalysis, machine: Machine) -> KernelPlan:
    """The plan of a `chlo.top_k` or a call of @stablehlo.dynamic_top_k."""
    top = _TopK(Single.of(fusion, shapes, machine))
    if top.k.is_const:
        return KernelPlan((top.by_list() if top.k.value <= _LIST else top.by_sorting(),))
    small = Condition(top.k, "<=", Expr.const(_LIST))
    return KernelPlan((If(small, (top.by_list(),), (top.by_sorting(),)),))


class _TopK:
    def __init__(self, single: Single) -> None:
        self.single = single
        self.operand = single.op.operands[0]
        self.sizes = single.shape(self.operand)
        self.n = self.sizes[-1]
        self.rows = Expr.product(self.sizes[:-1])
        self.element: Element = element_of(self.operand)
        self.positions: Element = element_of(single.op.results[1])
        self.k = single.shape(single.op.results[0])[-1]
        bits = max(8, self.element.bits)
        self.key_type = f"i{bits}"
        self.storages = [(self.key_type, bits // 8), ("i64", 8)]
        self.above = "sgt" if self.element.is_float or self.element.is_signed else "ugt"

    def key(self, e: Elemental, value: str) -> str:
        """An integer (or lanes of it) in the order of the element."""
        b = e.b
        if self.element.kind == "b":
            return b.cast("arith.extui", value, "i8")
        type_ = like(b.type_of(value), self.key_type)
        raw = value if b.type_of(value) == type_ else b.bitcast(value, type_)
        return self.flipped(e, raw)

    def flipped(self, e: Elemental, raw: str) -> str:
        """Negative floats with all bits but the sign turned over, and back."""
        if not self.element.is_float:
            return raw
        b, type_ = e.b, e.b.type_of(raw)
        sign = b.op("arith.shrsi", raw, b.constant(self.element.bits - 1, type_))
        return b.op("arith.xori", raw, b.op("arith.shrui", sign, b.constant(1, type_)))

    def store(self, e: Elemental, key: str, position: str, at: str) -> None:
        """One result."""
        b = e.b
        values, positions = self.single.results
        if values is not None:
            memory = b.memref(e.arguments.slot(values), self.element.storage)
            raw = self.flipped(e, key)
            if b.type_of(raw) != self.element.storage:
                raw = b.bitcast(raw, self.element.storage)
            b.store(raw, memory, at)
        if positions is not None:
            memory = b.memref(e.arguments.slot(positions), self.positions.storage)
            if self.positions.bits < 64:
                position = b.cast("arith.trunci", position, self.positions.storage)
            b.store(position, memory, at)

    def by_list(self) -> Launch:
        lanes = self.single.machine.lanes(self.element.bytes)
        e = self.single.kernel(lanes)
        b = e.b
        n, k = b.param(self.n, opaque=True), b.param(self.k)
        keys = b.scratch(self.key_type)
        places = b.scratch("i64", _LIST * 8)

        def insert(key: str, at: str, last: str) -> None:
            """Into the list, whose record `last` may be overwritten."""

            def go_on(carried: list[str]) -> str:
                (j,) = carried
                before = b.load(keys, b.max(b.sub(j, 1), 0), readonly=False)
                inside = b.cmpi("sgt", j, b.constant(0, "index"))
                return b.op("arith.andi", inside, b.cmpi(self.above, key, before))

            def shift(carried: list[str]) -> list[str]:
                before = b.sub(carried[0], 1)
                for memory in (keys, places):
                    b.store(b.load(memory, before, readonly=False), memory, carried[0])
                return [before]

            (place,) = b.while_([last], go_on, shift)
            b.store(key, keys, place)
            b.store(b.cast("arith.index_cast", at, "i64"), places, place)

        some = b.cmpi("sgt", k, b.constant(0, "index"))
        with b.if_(some), b.loop(b.lo, b.hi, 1, hint="row") as row:
            start = b.mul(row.index, n)

            def one(at: str) -> str:
                return self.key(e, self.single.read(e, self.operand, b.add(start, at)))

            with b.loop(0, k, 1, hint="j") as loop:
                insert(one(loop.index), loop.index, loop.index)
            worst_at = b.sub(k, 1)

            def consider(first: str, last: str) -> None:
                with b.loop(first, last, 1, hint="j") as loop:
                    key = one(loop.index)
                    worst = b.load(keys, worst_at, readonly=False)
                    with b.if_(b.cmpi(self.above, key, worst)):
                        insert(key, loop.index, worst_at)

            whole = b.sub(n, b.rem(b.sub(n, k), lanes))
            with b.loop(k, whole, lanes, hint="v") as loop:
                index = (Group(self.sizes, Ix(b.add(start, loop.index), 1)),)
                vector = self.key(e, e.value_at(self.operand, index, None))
                worst = b.broadcast(b.load(keys, worst_at, readonly=False), lanes)
                better = b.cmpi(self.above, vector, worst)
                if lanes_of(b.type_of(better)):
                    type_ = b.type_of(better)
                    right = f"vector.reduction <or>, {better} : {type_} into i1"
                    better = b.define(right, "i1", [better])
                with b.if_(better):
                    consider(loop.index, b.add(loop.index, lanes))
            consider(whole, n)
            out = b.mul(row.index, k)
            with b.loop(0, k, 1, hint="j") as loop:
                key, place = (b.load(m, loop.index, readonly=False) for m in (keys, places))
                self.store(e, key, place, b.add(out, loop.index))
        return self.single.launch(e, "top_k", self.rows, self.n + self.k * 20 + 20, _LIST * 16)

    def by_sorting(self) -> Launch:
        e = self.single.kernel(0)
        b = e.b
        n, k = b.param(self.n, opaque=True), b.param(self.k)

        def before(x: list[str], y: list[str]) -> str:
            return b.cmpi(self.above, x[0], y[0])

        sorter = MergeSort(b, self.storages, self.n, before, [True, False])
        with b.loop(b.lo, b.hi, 1, hint="row") as row:
            start = b.mul(row.index, n)
            with b.loop(0, n, 1, hint="j") as loop:
                value = self.single.read(e, self.operand, b.add(start, loop.index))
                position = b.cast("arith.index_cast", loop.index, "i64")
                sorter.put(loop.index, [self.key(e, value), position])
            first = sorter.sort()
            out = b.mul(row.index, k)
            with b.loop(0, k, 1, hint="j") as loop:
                key, place = sorter.get(b.add(first, loop.index))
                self.store(e, key, place, b.add(out, loop.index))
        scratch = MergeSort.scratch_bytes(self.storages, self.n)
        return self.single.launch(e, "top_k_sort", self.rows, self.n * 40 + 20, scratch)
