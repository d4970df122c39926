"""Kind `scatter`: the updates of a place by one thread, in the order of the indices.

=================  =============================================================================
`scatter_each`     indices are unique: a thread for each update
`scatter_atomic`   integers, and one commutative operation: atomic updates, in any order
`scatter_runs`     windows that are equal or apart: a sort of (place, number of the index) brings
                   those of a place together, and a thread applies them in order
`scatter`          few indices, or windows that overlap in part: every task reads all indices
=================  =============================================================================

All of them give the bits of the CPU's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.gpu.block_sort import BlockSort
from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.sorted_rows import RadixKey, Rows
from shlo_disc.lower.kernels.merge_sort import Keys
from shlo_disc.lower.kernels.scatter import Scatter
from shlo_disc.lower.kernels.single_op import SingleOp, digits, offset
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Launch, Step, Workspace
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.reduction import simple_body
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, Value
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

FEW = 8
"""Indices that every task may as well read: a sort takes two launches more."""

_HALF = 32
"""Bits of a place, and of the number of an index, in what is sorted."""
_MOST = (1 << _HALF - 1) - 1

_BATCH = 16
"""Updates of a place that are on their way from memory at once, where there are many."""
_AHEAD = (4, 1)
"""The same where few are left."""

_ATOMIC = {
    "stablehlo.add": ("add", "add"),
    "stablehlo.and": ("_and", "_and"),
    "stablehlo.maximum": ("max", "umax"),
    "stablehlo.minimum": ("min", "umin"),
    "stablehlo.or": ("_or", "_or"),
    "stablehlo.xor": ("_xor", "_xor"),
}
"""Operations of `llvm.atomicrmw` on signed and on unsigned integers."""


def emit_scatter(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `scatter`: all dimension numbers, operands and update computations."""
    scatter = _Scatter(SingleOp.of(fusion, machine), machine)
    return scatter.plan(scatter.steps(), scatter.sorted_bytes)


class _Scatter(Scatter):
    def __init__(self, single: SingleOp, machine: Machine) -> None:
        super().__init__(single)
        self.machine = machine
        self.sorted_bytes: list[Expr] = []
        """Bytes of the workspaces of a sort."""
        self.count = Expr.product(self.update_sizes[d] for d in self.scattered)
        self.moved = [d for d in range(self.run) if d in self.window]
        """Window dimensions that are no part of the contiguous run."""
        self.length = Expr.product(self.update_sizes[self.run :])
        self.lanes = self._lanes()
        self.pieces = self.length // max(1, self.lanes)

    def _lanes(self) -> int:
        """Elements of a thread: one whole access, or 0 for one element."""
        lanes = self.machine.lanes(max(element_of(v).bytes for v in self.operands))
        rank = len(self.update_sizes) - self.run
        row = Expr.product(self.sizes[len(self.sizes) - rank :])
        divisible = self.single.shapes.constraints.divisible
        is_whole = rank and all(divisible(size, lanes) for size in (self.length, row))
        return lanes if is_whole and lanes > 1 else 0

    def steps(self) -> tuple[Step, ...]:
        """The launches behind the copies."""
        if _atomic(self.single.op):
            return (self._atomic(),)
        if attr.integer(self.single.op, "unique_indices", 0):
            return (self._each(),)
        direct = (self.launch(),)
        if not self._are_equal_or_apart():
            return direct
        most = Expr.const(_MOST)
        is_sorted = All(
            (
                Condition(self.count, ">", Expr.const(FEW)),
                Condition(self.count, "<=", most),
                Condition(self._place_count(), "<=", most),
            )
        )
        return (If(is_sorted, self._sorted(), direct),)

    # ---------------------------------------------------------------- updates that need no order

    def _each(self) -> Launch:
        """Every update by itself."""
        e = self.single.kernel(self.lanes)
        with e.b.loop(e.b.lo, e.b.hi, 1, hint="task") as task:
            to, source, inside = self._update(e, task.index)
            with e.b.if_(inside):
                self.store(e, self.combined(e, self.load(e, to, None), source, None), to, None)
        return self.single.launch(e, "scatter_each", self._updates(self.pieces), Expr.const(1))

    def _atomic(self) -> Launch:
        """The same, of integers by atomic operations."""
        lanes, self.lanes = self.lanes, 0
        e = self.single.kernel(0)
        b = e.b
        assert isinstance(b, GpuBuilder)
        (operand,), (place,) = self.operands, self.places
        element = element_of(operand)
        name = _ATOMIC[str(simple_body(self.single.op))][not element.is_signed]
        memory = b.memref(e.arguments.slot(place), element.storage)
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            to, source, inside = self._update(e, task.index)
            with b.if_(inside):
                (value,) = self.updates_at(e, source, None)
                b.atomic(name, memory, to.base, value)
        self.lanes = lanes
        return self.single.launch(e, "scatter_atomic", self._updates(self.length), Expr.const(1))

    def _updates(self, pieces: Expr) -> Expr:
        """Tasks that take a piece of an update each."""
        return self.count * Expr.product(self.update_sizes[d] for d in self.moved) * pieces

    def _update(self, e: Elemental, task: IndexValue) -> tuple[Ix, Index, Mask]:
        """Where the elements of a task go and come from, and whether they go anywhere."""
        pieces = self.pieces if self.lanes else self.length
        sizes = [self.update_sizes[d] for d in (*self.scattered, *self.moved)]
        *where, piece = digits(e.b, task, [*sizes, pieces])
        index = dict(zip((*self.scattered, *self.moved), where, strict=True))
        starts = self.starts(e, index)
        to = self._elements(self.target(e, index, starts), piece)
        return to, self.source(e, index, self._in_run(piece)), self.inside(e, starts)

    def _elements(self, run: IndexValue, piece: IndexValue) -> Ix:
        """The elements of a piece of the run that begins at `run`."""
        at = self._within(piece)
        return Ix(run + at.base, at.stride, multiple=at.multiple)

    def _within(self, piece: IndexValue) -> Ix:
        """The elements of a piece of a run, counted from its beginning."""
        if not self.lanes:
            return Ix(piece)
        return Ix(piece * self.lanes, 1, multiple=self.lanes)

    def _in_run(self, piece: IndexValue) -> Ix | None:
        """The same; None where updates have no run."""
        return self._within(piece) if self.run < len(self.update_sizes) else None

    # ---------------------------------------------------------------- updates in order

    def _are_equal_or_apart(self) -> bool:
        """True if two windows have the same elements, or none in common."""
        same = self.single.shapes.constraints.equal
        extents = {o: self.update_sizes[d] for d, o in self.window.items()}

        def is_one_or_whole(o: int) -> bool:
            extent = extents.get(o, Expr.const(1))
            return same(extent, Expr.const(1)) or same(extent, self.sizes[o])

        return bool(self.scattered) and all(map(is_one_or_whole, self.indexed))

    def _place_dims(self) -> list[int]:
        """Operand dimensions that tell windows apart."""
        return sorted({*self.indexed, *self.batching.values()})

    def _place_count(self) -> Expr:
        return Expr.product(self.sizes[o] for o in self._place_dims())

    def _sorted(self) -> tuple[Step, ...]:
        """A sort of the indices, and the launch that applies the updates."""
        first = len(self.workspaces)
        order = Workspace(first)

        def less(_: Elemental, x: Keys, y: Keys) -> Mask:
            return Register.of(x[0]) < Register.of(y[0])

        rows = Rows(
            [("i64", 8)], [True], self.count, Expr.const(1), Expr.const(1),
            lambda e, _, row, at: self._key(e, at), less, [order],
            radix=RadixKey(0, _HALF, _place_of, self._place_count()),
        )  # fmt: skip
        sorter = BlockSort(self.single, self.machine, rows, first + 1)
        self.sorted_bytes = [self.count * 8, *sorter.workspaces]
        return (*sorter.steps(), self._runs(order))

    def _key(self, e: Elemental, number: IndexValue) -> Register:
        """What is sorted: the place of index `number`, above the number itself.

        Windows that do not lie inside the operand are last.
        """
        b = e.b
        sizes = [self.update_sizes[d] for d in self.scattered]
        index = dict(zip(self.scattered, digits(b, number, sizes), strict=True))
        starts = self.starts(e, index)
        at = {o: index[d] for d, o in self.batching.items()} | starts
        dims = self._place_dims()
        steps = dense_strides([self.sizes[o] for o in dims])
        place = offset(b, [at[o] for o in dims], steps)
        place = b.select(self.inside(e, starts), place, b.param(self._place_count()))
        wide, low = (b.cast("arith.index_cast", x, "i64") for x in (place, number))
        return (wide << _HALF) | low

    def _runs(self, order: Workspace) -> Launch:
        """The updates of a place, one after the other, by a thread for each access."""
        e = self.single.kernel(self.lanes)
        b = e.b
        keys = b.memref(e.arguments.slot(order), "i64")
        n = b.param(self.count, opaque=True)
        nowhere = b.cast("arith.index_cast", b.param(self._place_count(), opaque=True), "i64")
        moved = [self.update_sizes[d] for d in self.moved]
        pieces = self.pieces if self.lanes else self.length
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            first, *where, piece = digits(b, task.index, [self.count, *moved, pieces])
            own, before = keys.load(first), keys.load(b.max(first - 1, 0))
            place = own >> _HALF
            is_first = first.equals(0) | place.differs(before >> _HALF)
            with b.if_(is_first & (place < nowhere)):
                within = dict(zip(self.moved, where, strict=True))
                index = self._index(e, own) | within
                to = self._elements(self.target(e, index, self.starts(e, index)), piece)

                def read(at: IndexValue) -> list[Register]:
                    source = self._source(e, keys.load(at), within, self._in_run(piece))
                    return self.updates_at(e, source, None)

                run = _Run(e, keys, n, place, read, partial(self.applied, e))
                self.store(e, run.total(first, self.load(e, to, None)), to, None)
        return self.single.launch(e, "scatter_runs", self._updates(pieces), Expr.const(1))

    def _index(self, e: Elemental, key: Register) -> dict[int, IndexValue]:
        """Update dimension to place in it, of the index of a sorted key."""
        number = e.b.to_index("arith.index_cast", key & _MOST)
        sizes = [self.update_sizes[d] for d in self.scattered]
        return dict(zip(self.scattered, digits(e.b, number, sizes), strict=True))

    def _source(
        self, e: Elemental, key: Register, within: dict[int, IndexValue], at: Ix | None
    ) -> Index:
        """The update of that index, and `at` in its run."""
        count = len(self.scattered)
        if self.scattered != list(range(count)):
            return self.source(e, self._index(e, key) | within, at)
        # Rows of the updates lie in the order of the indices: there is nothing to divide.
        number = e.b.to_index("arith.index_cast", key & _MOST)
        first = Group(self.update_sizes[:count], e.space.uniform(number))
        nowhere = dict.fromkeys(self.scattered, e.b.index(0))
        return (first, *self.source(e, nowhere | within, at)[count:])


@dataclass(frozen=True)
class _Run:
    """The updates of one place."""

    e: Elemental
    keys: MemRef
    """Sorted: the place above the number of the index."""
    n: IndexValue
    place: Register
    read: Callable[[IndexValue], list[Register]]
    """The update of a sorted key."""
    apply: Callable[[Sequence[Register], Sequence[Register]], list[Register]]

    def total(self, first: IndexValue, old: Sequence[Register]) -> list[Register]:
        """`old` with the updates from number `first` on."""
        b = self.e.b
        carried: list[Value] = [first, *old]
        with b.if_(self._has(2 * _BATCH, carried), Value) as branch:
            branch.yield_(*self._long(first, old))
            with branch.otherwise():
                branch.yield_(*carried)
        carried = branch.results
        for count in _AHEAD:
            carried = b.while_(carried, partial(self._has, count), partial(self._step, count))
        return Register.each_of(carried[1:])

    def _has(self, count: int, carried: list[Value]) -> Mask:
        """True if the run has so many more."""
        last = IndexValue.of(carried[0]) + (count - 1)
        key = self.keys.load(self.e.b.min(last, self.n - 1))
        return (last < self.n) & (key >> _HALF).equals(self.place)

    def _step(self, count: int, carried: list[Value]) -> list[Value]:
        at, values = IndexValue.of(carried[0]), Register.each_of(carried[1:])
        return [at + count, *self._applied(values, self._batch(at, count))]

    def _batch(self, first: IndexValue, count: int) -> list[Register]:
        """Updates, all of which are read before the first one is applied."""
        return [value for k in range(count) for value in self.read(first + k)]

    def _applied(self, values: list[Register], batch: Sequence[Register]) -> list[Register]:
        """`values` with a batch of updates; each has a register for each operand."""
        each = len(values)
        for k in range(0, len(batch), each):
            values = self.apply(values, batch[k : k + each])
        return values

    def _long(self, first: IndexValue, old: Sequence[Register]) -> list[Value]:
        """Whole batches, each of which is read before the one in front of it is applied."""
        count = 1 + len(old)

        def turn(carried: list[Value]) -> list[Value]:
            at, values = IndexValue.of(carried[0]) + _BATCH, Register.each_of(carried[1:count])
            following = self._batch(at, _BATCH)
            return [at, *self._applied(values, Register.each_of(carried[count:])), *following]

        start: list[Value] = [first, *old, *self._batch(first, _BATCH)]
        found = self.e.b.while_(start, partial(self._has, 2 * _BATCH), turn)
        values, last = Register.each_of(found[1:count]), Register.each_of(found[count:])
        return [IndexValue.of(found[0]) + _BATCH, *self._applied(values, last)]


def _place_of(_: Elemental, key: Register) -> Register:
    return (key >> _HALF).cast("arith.trunci", f"i{_HALF}")


def _atomic(op: ir.Operation) -> bool:
    """True if the order of the updates changes no bit, and memory can apply them."""
    body = simple_body(op)
    element = element_of(op.results[0])
    return body in _ATOMIC and element.kind in "iu" and element.bits in (32, 64)
