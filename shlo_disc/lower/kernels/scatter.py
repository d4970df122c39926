"""Kind `scatter`: copy the operands, then apply the updates in the order of their indices.

Updates that share a place are combined in row-major order of the index tensor, so results do not
depend on the number of threads. Tasks are what cannot meet: batching dimensions and pieces of the
contiguous part of the update window whose position no index changes. Of sorted indices, those of
one place are neighbours: tasks have places of their own. A window that does not lie inside the
operand entirely is skipped as a whole. XLA does so, and JAX's `mode="drop"` relies on it; the
StableHLO specification speaks of elements.

The copy of the first operand is the first step of the plan (`KernelPlan.copies_operand`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.indexing import scatter_numbers
from shlo_disc.ir.mlir import reads
from shlo_disc.ir.scalar_regions import takes_lanes
from shlo_disc.lower.kernels.flags import raise_flags, with_flags
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp, digits, offset
from shlo_disc.lower.kernels.strips import strips, whole_strips
from shlo_disc.lower.plan import Input, KernelPlan, Launch, Step
from shlo_disc.lower.values.elemental import Elemental, emit_region
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, Value
from shlo_disc.passes.match_single_op import Flag, SingleOpRecord
from shlo_disc.passes.records import Planned

_Body = Callable[[dict[int, IndexValue]], None]

_CHUNK = 512
"""Elements of a task along the contiguous run; every task reads all indices."""

_UPDATES = 512
"""Sorted indices of a task."""

_WIDE_UPDATES = 64
"""The same where each is read again for further columns: looked-up rows stay in a cache until then.
40 960 rows of 128 in 4096 places took 0.48 ms, 0.53 with 512."""

_VECTORS = 8
"""Vectors of a place that are in registers at once."""


def emit_scatter(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `scatter`: all dimension numbers, operands and update computations."""
    scatter = Scatter(SingleOp.of(fusion, machine))
    return scatter.plan((scatter.runs() if scatter.has_runs() else scatter.launch(),))


class Scatter:
    """A `scatter`: how its arrays go together, and its launches for tasks."""

    def __init__(self, single: SingleOp) -> None:
        self.single = single
        values = list(single.op.operands)
        count = len(single.op.results)
        self.operands, self.indices = values[:count], values[count]
        self.updates = values[count + 1 :]
        numbers = scatter_numbers(single.op)
        self.sizes = single.shape(self.operands[0])
        self.update_sizes = single.shape(self.updates[0])
        self.index_sizes = single.shape(self.indices)
        self.vector_dim = numbers.index_vector_dim
        self.indexed = numbers.indexed_dims
        kept = numbers.kept_dims(len(self.sizes))
        self.window = dict(zip(numbers.window_dims, kept, strict=True))
        """Update dimension to operand dimension."""
        self.scattered = [d for d in range(len(self.update_sizes)) if d not in self.window]
        """Update dimensions that run over the indices, in the order of the indices' own."""
        index_dims = numbers.place_dims(len(self.index_sizes))
        of_index = dict(zip(index_dims, self.scattered, strict=True))
        self.batching = {
            of_index[i]: d
            for i, d in zip(numbers.index_batching_dims, numbers.batching_dims, strict=True)
        }
        """Update dimension to operand dimension, where indices and operand go together."""
        self.run = self._run()
        self.places, self.workspaces = single.places(list(single.op.results))
        """Where the results are, and the bytes of those that nobody reads."""

    def plan(self, steps: tuple[Step, ...], workspaces: Sequence[Expr] = ()) -> KernelPlan:
        """Copies of the operands, and then `steps`."""
        single = self.single
        copies = [single.copy(v, p) for v, p in zip(self.operands, self.places, strict=True)]
        in_place = (
            single.results[0] is not None
            and single.results[0].index == 0
            and Input(0) in copies[0].args
            and self.operands[0] not in reads(single.op)[1:]
        )
        both = (*self.workspaces, *workspaces)
        return KernelPlan((*copies, *steps), both, copies_operand=in_place)

    def _run(self) -> int:
        """Update dimensions from here on are one contiguous run that no index moves.

        No run where elements are computed one by one.
        """
        if not takes_lanes(self.single.op):
            return len(self.update_sizes)
        same = self.single.shapes.constraints.equal
        rank, cut = len(self.update_sizes), len(self.update_sizes)
        for distance in range(1, min(rank, len(self.sizes)) + 1):
            d, o = rank - distance, len(self.sizes) - distance
            if self.window.get(d) != o or o in self.indexed:
                break
            if distance > 1 and not same(self.update_sizes[d + 1], self.sizes[o + 1]):
                break
            cut = d
        return cut

    def launch(self) -> Launch:
        """The updates, by tasks that cannot meet."""
        single, run = self.single, self.run
        elements = [element_of(v) for v in self.operands]
        lanes = self._run_lanes()
        e = single.kernel(lanes)
        b = e.b
        length = Expr.product(self.update_sizes[run:])
        chunk = single.machine.run(_CHUNK)
        pieces = ceil_div(length, chunk)
        batch = sorted(self.batching)
        task_sizes = [*(self.update_sizes[d] for d in batch), pieces]
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            *where, piece = digits(b, task.index, task_sizes)
            index = dict(zip(batch, where, strict=True))
            first = piece * chunk
            last = b.min(first + chunk, b.param(length, opaque=True))
            free = [d for d in self.scattered if d not in self.batching]
            moved = [d for d in range(run) if d in self.window]

            def window(index: dict[int, IndexValue]) -> None:
                self.raise_flags(e, {d: e.space.uniform(index[d]) for d in self.scattered})
                starts = self.starts(e, index)
                with b.if_(self.inside(e, starts)):
                    self._over(e, moved, index, lambda i: self._apply(e, i, starts, first, last))

            self._over(e, free, index, window)
        updates = Expr.product(self.update_sizes[d] for d in (*free, *moved))
        bytes_ = sum(x.bytes for x in elements)
        cost = updates * (Expr.min(length, Expr.const(chunk)) * bytes_ // 8 + 8) + 20
        extent = Expr.product(task_sizes)
        return with_flags(single.launch(e, "scatter", extent, cost), single.flags)

    def has_runs(self) -> bool:
        """True if indices are sorted, and each of them has one run of elements, or one element."""
        if not attr.integer(self.single.op, "indices_are_sorted", 0):
            return False
        return len(self.scattered) == 1 and not self.batching and self.run <= 1

    def runs(self) -> Launch:
        """The updates by places: a task has all those of the places that it meets first.

        Elements are in registers while the updates of their place are applied.
        """
        e = self.single.kernel(self._run_lanes())
        b = e.b
        (d,) = self.scattered
        length = Expr.product(self.update_sizes[self.run :])
        is_wide = e.lanes and not (length.is_const and length.value <= _VECTORS * e.lanes)
        chunk = self.single.machine.run(_WIDE_UPDATES if is_wide else _UPDATES)
        order = _SortedPlaces(self, e, b.param(self.update_sizes[d], opaque=True))
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            first, last = order.of_task(task.index * chunk, chunk)

            def apply(columns: Sequence[_Column]) -> None:
                b.while_(
                    [first],
                    lambda at: IndexValue.of(at[0]) < last,
                    lambda at: [order.apply(IndexValue.of(at[0]), columns)],
                )

            self._columns(e, length, apply)
        bytes_ = sum(element_of(v).bytes for v in self.operands)
        cost = chunk * (length * bytes_ // 16 + 4) + 20
        extent = ceil_div(self.update_sizes[d], chunk)
        launch = self.single.launch(e, "scatter_runs", extent, cost)
        return with_flags(launch, self.single.flags)

    def _columns(
        self, e: Elemental, length: Expr, body: Callable[[Sequence[_Column]], None]
    ) -> None:
        """`body` of every few vectors of a run of `length` elements.

        Each reads all updates of the task, so what is left of a run are as few as can be.
        """
        b, lanes = e.b, e.lanes
        if not lanes:
            body([_Column(None)])
            return

        def vectors(at: IndexValue, count: int, mask: Mask | None = None) -> list[_Column]:
            starts = [at + k * lanes for k in range(count)]
            found = [_Column(Ix(start, 1, multiple=lanes)) for start in starts]
            return found if mask is None else [*found[:-1], replace(found[-1], mask=mask)]

        def several(count: int, at: IndexValue, _: list[Value]) -> None:
            body(vectors(at, count))

        if length.is_const:
            end, rest = length.value - length.value % (_VECTORS * lanes), length.value % lanes
            if end:
                with b.loop(0, end, _VECTORS * lanes) as loop:
                    body(vectors(loop.index, _VECTORS))
            if left := ceil_div(length.value - end, lanes):
                mask = b.mask(rest, lanes) if rest else None
                body(vectors(b.index(end), left, mask))
            return
        size, at, count = b.param(length, opaque=True), b.index(0), _VECTORS
        while count > 1:
            step = functools.partial(several, count)
            at, _ = whole_strips(b, at, size, count * lanes, step)
            count //= 2
        divisible = e.space.divisible(length, lanes)
        strips(
            b, at, size, lanes, lambda at, mask, _: body(vectors(at, 1, mask)), divisible=divisible
        )

    def raise_flags(self, e: Elemental, index: dict[int, Ix]) -> None:
        """What is told of the updates at `index`."""
        rows = [d for d in self.scattered if not self.update_sizes[d].is_one]

        def place(flag: Flag) -> Index:
            at = iter(rows)
            sizes = self.single.shape(flag.truths)
            zero = e.space.zero()
            return e.space.of_dims(
                sizes,
                [zero if s.is_one else index[next(at)] for s in sizes],
            )

        raise_flags(e, self.single.flags, place)

    def _run_lanes(self) -> int:
        """Elements of a run that are computed at once; 0 where each is by itself."""
        if self.run == len(self.update_sizes):
            return 0
        return self.single.machine.lanes(max(element_of(v).bytes for v in self.operands))

    def _over(
        self, e: Elemental, rest: Sequence[int], index: dict[int, IndexValue], body: _Body
    ) -> None:
        """Loops over the dimensions `rest` of the update, around `body`."""
        if not rest:
            body(index)
            return
        with e.b.loop(0, e.b.param(self.update_sizes[rest[0]], opaque=True), 1) as loop:
            self._over(e, rest[1:], {**index, rest[0]: loop.index}, body)

    def starts(self, e: Elemental, index: dict[int, IndexValue]) -> dict[int, IndexValue]:
        """Where the window starts in the indexed operand dimensions."""
        b = e.b
        at = [index[d] for d in self.scattered]
        starts = {}
        for k, o in enumerate(self.indexed):
            place = list(at)
            if self.vector_dim < len(self.index_sizes):
                place.insert(self.vector_dim, b.index(k))
            flat = offset(b, place, dense_strides(self.index_sizes))
            register = self.single.read(e, self.indices, flat)
            starts[o] = e.to_index(register, element_of(self.indices))
        return starts

    def inside(self, e: Elemental, starts: dict[int, IndexValue]) -> Mask:
        """True if the whole window lies in the operand."""
        b = e.b
        extents = {o: self.update_sizes[d] for d, o in self.window.items()}
        inside = b.flags(True)
        for o, start in starts.items():
            room = b.param(self.sizes[o]) - b.param(extents.get(o, Expr.const(1)))
            # Two signed comparisons: `room` is negative where the operand is empty.
            within = (start >= 0) & (start <= room)
            inside = inside & within
        return inside

    def _apply(
        self,
        e: Elemental,
        index: dict[int, IndexValue],
        starts: dict[int, IndexValue],
        first: IndexValue,
        last: IndexValue,
    ) -> None:
        """One run of the update into the operand."""
        place = self.target(e, index, starts)
        if not e.lanes:
            self._combine(e, Ix(place), self.source(e, index), None)
            return

        def step(at: IndexValue, mask: Mask | None, _: list[Register]) -> None:
            source = self.source(e, index, Ix(at, 1, multiple=e.lanes))
            self._combine(e, Ix(place + at, 1), source, mask)

        strips(e.b, first, last, e.lanes, step)

    def target(
        self, e: Elemental, index: dict[int, IndexValue], starts: dict[int, IndexValue]
    ) -> IndexValue:
        """Where the run of the update at `index` goes in the operand."""
        target = [e.b.index(0)] * len(self.sizes)
        for d, o in (*self.window.items(), *self.batching.items()):
            if d < self.run or d in self.batching:
                target[o] = index[d]
        for o, start in starts.items():
            target[o] = start + target[o]
        return offset(e.b, target, dense_strides(self.sizes))

    def source(self, e: Elemental, index: dict[int, IndexValue], at: Ix | None = None) -> Index:
        """The update at `index`, and at `at` in its contiguous run, if there is one.

        Dimensions stay apart: what computes an update need not divide to find its row.
        """
        sizes, run = self.update_sizes, self.run
        lead = [Group((sizes[d],), e.space.uniform(index[d])) for d in range(run)]
        return (*lead, *([] if at is None else [Group(sizes[run:], at)]))

    def _combine(self, e: Elemental, to: Ix, source: Index, mask: Mask | None) -> None:
        """`operand = computation(operand, update)` for the elements of one vector."""
        self.store(e, self.combined(e, self.load(e, to, mask), source, mask), to, mask)

    def load(self, e: Elemental, at: Ix, mask: Mask | None) -> list[Register]:
        """Elements of the results."""
        return [
            e.as_register(e.load_from(memory, at, mask, readonly=False), element)
            for memory, element in self._memories(e)
        ]

    def combined(
        self, e: Elemental, old: Sequence[Register], source: Index, mask: Mask | None
    ) -> list[Register]:
        """`computation(old, update)`."""
        return self.applied(e, old, self.updates_at(e, source, mask))

    def applied(
        self, e: Elemental, old: Sequence[Register], new: Sequence[Register]
    ) -> list[Register]:
        """The same of an update in registers."""
        args = [e.b.broadcast(v, e.lanes) for v in (*old, *new)]
        return emit_region(e, self.single.op.regions[0].blocks[0], args)

    def updates_at(self, e: Elemental, source: Index, mask: Mask | None) -> list[Register]:
        """Elements of the updates."""
        return [e.value_at(v, source, mask) for v in self.updates]

    def store(self, e: Elemental, values: Sequence[Register], at: Ix, mask: Mask | None) -> None:
        """The same, changed."""
        for (memory, element), value in zip(self._memories(e), values, strict=True):
            stored = e.b.cast("arith.extui", value, "i8") if element.kind == "b" else value
            e.store_to(memory, e.b.unchosen(stored), at, mask)

    def _memories(self, e: Elemental) -> list[tuple[MemRef, ElementType]]:
        return [
            (e.b.memref(e.arguments.slot(place), element.storage), element)
            for place, element in zip(self.places, map(element_of, self.operands), strict=True)
        ]


@dataclass(frozen=True)
class _Column:
    """Elements of a run that are in a register."""

    at: Ix | None
    """None: the update has one element."""
    mask: Mask | None = None


@dataclass(frozen=True)
class _SortedPlaces:
    """Updates in the order of their places; those of one place are neighbours."""

    scatter: Scatter
    e: Elemental
    n: IndexValue
    """How many there are."""

    def of_task(self, first: IndexValue, count: int) -> tuple[IndexValue, IndexValue]:
        """From the first place that begins in `count` updates to the last one of such places."""
        b = self.e.b
        last = b.min(first + count, self.n)
        begin = self._next_place(first, last)
        start: list[Value] = [b.select(begin < last, last, begin)]
        (end,) = b.while_(
            start,
            lambda at: (begin < last) & self._goes_on(IndexValue.of(at[0]), self.n),
            _following,
        )
        return begin, IndexValue.of(end)

    def _next_place(self, first: IndexValue, limit: IndexValue) -> IndexValue:
        """The first update from `first` on that is not of the place of the one before it."""
        start: list[Value] = [first]
        (found,) = self.e.b.while_(
            start, lambda at: self._goes_on(IndexValue.of(at[0]), limit), _following
        )
        return IndexValue.of(found)

    def _goes_on(self, at: IndexValue, limit: IndexValue) -> Mask:
        """True if update `at`, which is in front of `limit`, has the place of the one before it."""
        before = self._starts(self.e.b.max(at - 1, 0))
        return (at > 0) & (at < limit) & self._is_at(at, before)

    def apply(self, first: IndexValue, columns: Sequence[_Column]) -> IndexValue:
        """Apply the updates of the place of update `first`; the one behind them."""
        scatter, e, b = self.scatter, self.e, self.e.b
        (d,) = scatter.scattered
        starts = self._starts(first)
        place = scatter.target(e, {d: first}, starts)
        to = [Ix(place) if c.at is None else Ix(place + c.at.base, 1) for c in columns]
        each = len(scatter.operands)

        def goes_on(carried: list[Value]) -> Mask:
            at = IndexValue.of(carried[0])
            return (at < self.n) & self._is_at(at, starts)

        def update(carried: list[Value]) -> list[Value]:
            at, old = IndexValue.of(carried[0]), Register.each_of(carried[1:])
            scatter.raise_flags(e, {d: e.space.uniform(at)})
            new: list[Value] = []
            for k, column in enumerate(columns):
                source = scatter.source(e, {d: at}, column.at)
                values = scatter.updates_at(e, source, column.mask)
                new += scatter.applied(e, old[k * each : (k + 1) * each], values)
            return [at + 1, *new]

        def passed(carried: list[Value]) -> list[Value]:
            scatter.raise_flags(e, {d: e.space.uniform(IndexValue.of(carried[0]))})
            return _following(carried)

        with b.if_(scatter.inside(e, starts), Value) as branch:
            pairs = list(zip(to, columns, strict=True))
            old = [value for x, column in pairs for value in scatter.load(e, x, column.mask)]
            end, *found = b.while_(update([first, *old]), goes_on, update)
            for k, (x, column) in enumerate(pairs):
                own = Register.each_of(found[k * each : (k + 1) * each])
                scatter.store(e, own, x, column.mask)
            branch.yield_(end)
            with branch.otherwise():
                start: list[Value] = [first]
                branch.yield_(*b.while_(start, goes_on, passed))
        return IndexValue.of(branch.results[0])

    def _starts(self, at: IndexValue) -> dict[int, IndexValue]:
        (d,) = self.scatter.scattered
        return self.scatter.starts(self.e, {d: at})

    def _is_at(self, at: IndexValue, place: dict[int, IndexValue]) -> Mask:
        """True if update `at`, or the last one where there is none, is at `place`."""
        same = self.e.b.flags(True)
        for o, start in self._starts(self.e.b.min(at, self.n - 1)).items():
            same = same & start.equals(place[o])
        return same


def _following(carried: list[Value]) -> list[Value]:
    return [IndexValue.of(carried[0]) + 1]
