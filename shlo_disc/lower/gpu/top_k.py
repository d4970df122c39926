"""Kind `top_k`: the best of each thread, then of each warp, then of the block; or a sort.

A thread keeps the best elements that it has seen, in order. The best head of the lists of a warp is
the best of all, and leaves its list. So the lists of a warp become one, then those of the block.
Few long rows are cut in pieces, and their candidates are taken as rows. Above 16 elements rows are
sorted (`block_sort.py`).

Elements are ordered by key and position, so ties are the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.block_sort import BlockSort
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.sorted_rows import RadixKey, Rows
from shlo_disc.lower.kernels.merge_sort import Keys
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.kernels.top_k import TopK
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Launch, Step, Workspace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

MOST = 16
"""Elements of a thread's list: registers."""

_BATCH = 8
"""Elements that a thread reads at once."""

_PIECE = 8192
"""Elements of a piece of a long row."""

_FEW_ROWS = 264
"""Rows by a block each, fewer than this many leave multiprocessors without work."""

_KEYS, _PLACES = Workspace(0), Workspace(1)
"""Candidates of the pieces."""

_Record = tuple[Register, Register]
"""A key and its position, of the type of the results."""

_Read = Callable[[IndexValue], _Record]


def emit_top_k(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `chlo.top_k` or a call of @stablehlo.dynamic_top_k."""
    top = _TopK(SingleOp.of(fusion, machine), machine)
    few = Condition(top.k, "<=", Expr.const(MOST))
    if top.k.is_const:
        steps = top.by_lists() if few.holds({}) else top.by_sort()
    else:
        steps = (If(few, top.by_lists(), top.by_sort()),)
    return KernelPlan(steps, tuple(top.workspaces))


class _TopK(TopK):
    def __init__(self, single: SingleOp, machine: Machine) -> None:
        super().__init__(single)
        self.machine = machine
        self.kept = self.k.value if self.k.is_const else MOST
        """Elements of a list."""
        self.pieces = ceil_div(self.n, _PIECE)
        self.workspaces: list[Expr] = []

    # ---------------------------------------------------------------- by sorting

    def by_sort(self) -> tuple[Step, ...]:
        """The launches that sort each row and keep its front."""

        def read(e: Elemental, i: int, row: IndexValue, at: IndexValue) -> Register:
            if i:
                return e.b.cast("arith.index_cast", at, self.positions.storage)
            n = e.b.param(self.n, opaque=True)
            return self.key(e, self.single.read(e, self.operand, row * n + at))

        def before(e: Elemental, x: Keys, y: Keys) -> Mask:
            return e.b.cmpi(self.above, Register.of(x[0]), Register.of(y[0]))

        def write(
            e: Elemental, row: IndexValue, at: IndexValue, record: Mapping[int, Register]
        ) -> None:
            k = e.b.param(self.k, opaque=True)
            with e.b.if_(at < k):
                self.store(e, record.get(0), record.get(1), row * k + at)

        storages = [self.storages[0], (self.positions.storage, self.positions.bytes)]
        rows = Rows(
            storages, [True, False], self.n, self.rows, Expr.const(1), read, before,
            self.single.results, write, RadixKey(0, int(self.key_type[1:]), self._from_largest),
        )  # fmt: skip
        sorter = BlockSort(self.single, self.machine, rows, len(self.workspaces))
        self.workspaces += sorter.workspaces
        return sorter.steps()

    def _from_largest(self, e: Elemental, key: Register) -> Register:
        """A key as an unsigned integer, the smaller the larger the key."""
        highest = -1 << int(self.key_type[1:]) - 1
        return key ^ e.b.constant(~highest if self.above == "sgt" else -1, self.key_type)

    # ---------------------------------------------------------------- by lists

    def by_lists(self) -> tuple[Step, ...]:
        """A block for each row, or for each piece and then for the candidates of a row."""
        if self.kept == 0:
            return ()
        whole = self._launch("top_k", self.rows, self._of_rows, self._store_results)
        pieces = self._launch(
            "top_k_pieces", self.rows * self.pieces, self._of_pieces, self._store_candidates
        )
        rest = self._launch("top_k_rest", self.rows, self._of_candidates, self._store_results)
        count = self.rows * self.pieces * Expr.min(self.n // (2 * _PIECE), 1) * self.kept
        self.workspaces += [count * self.storages[0][1], count * self.positions.bytes]
        long = Condition(self.n, ">=", Expr.const(2 * _PIECE))
        few = Condition(self.rows, "<", Expr.const(_FEW_ROWS))
        return (If(All((long, few)), (pieces, rest), (whole,)),)

    def _of_rows(self, e: Elemental, task: IndexValue) -> tuple[IndexValue, IndexValue, _Read]:
        n = e.b.param(self.n, opaque=True)
        return e.b.index(0), n, lambda at: self._element(e, task, at)

    def _of_pieces(self, e: Elemental, task: IndexValue) -> tuple[IndexValue, IndexValue, _Read]:
        b, pieces = e.b, e.b.param(self.pieces, opaque=True)
        first = task % pieces * _PIECE
        last = b.min(first + _PIECE, b.param(self.n, opaque=True))
        return first, last, lambda at: self._element(e, task // pieces, at)

    def _of_candidates(
        self, e: Elemental, task: IndexValue
    ) -> tuple[IndexValue, IndexValue, _Read]:
        b = e.b
        count = b.param(self.pieces, opaque=True) * self.kept
        keys, places = self._candidates(e)

        def read(at: IndexValue) -> _Record:
            return keys.load(task * count + at), places.load(task * count + at)

        return b.index(0), count, read

    def _element(self, e: Elemental, row: IndexValue, at: IndexValue) -> _Record:
        start = row * e.b.param(self.n, opaque=True)
        key = self.key(e, self.single.read(e, self.operand, start + at))
        return key, e.b.cast("arith.index_cast", at, self.positions.storage)

    def _candidates(self, e: Elemental) -> tuple[MemRef, MemRef]:
        slot = e.arguments.slot
        return (
            e.b.memref(slot(_KEYS), self.key_type),
            e.b.memref(slot(_PLACES), self.positions.storage),
        )

    def _store_results(
        self, e: Elemental, task: IndexValue, number: IndexValue, record: _Record
    ) -> None:
        k = e.b.param(self.k)
        with e.b.if_(number < k):
            self.store(e, *record, task * k + number)

    def _store_candidates(
        self, e: Elemental, task: IndexValue, number: IndexValue, record: _Record
    ) -> None:
        for memory, value in zip(self._candidates(e), record, strict=True):
            memory.store(value, task * self.kept + number)

    def _launch(
        self,
        name: str,
        blocks: Expr,
        elements: Callable[[Elemental, IndexValue], tuple[IndexValue, IndexValue, _Read]],
        store: Callable[[Elemental, IndexValue, IndexValue, _Record], None],
    ) -> Launch:
        """A block for each task: the best of its `elements`, in order, to `store`."""
        b = GroupBuilder(self.machine, THREADS, THREADS)
        e = self.single.kernel(0, b)
        warp, warps = b.machine.warp, THREADS // b.machine.warp
        keys = b.shared(self.key_type, warps * self.kept)
        places = b.shared(self.positions.storage, warps * self.kept)
        lane, own_warp = b.thread % warp, b.thread // warp
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            first, last, read = elements(e, task.index)
            best = self._best_of_thread(e, b.thread, first, last, read)
            nothing = self._nothing(b)
            with b.loop(0, self.kept, 1, best, hint="number") as loop:
                own = Register.each_of(loop.args)
                key, place = self._best_of_warp(b, (own[0], own[1]))
                with b.if_(lane.equals(0)):
                    keys.store(key, own_warp * self.kept + loop.index)
                    places.store(place, own_warp * self.kept + loop.index)
                is_taken = own[1].equals(place)
                shifted = [*own[2:], *nothing]
                loop.yield_(*(b.select(is_taken, y, x) for x, y in zip(own, shifted, strict=True)))
            b.barrier_of_block()
            # Lane i of the first warp has the list of warp i.
            with b.if_(own_warp.equals(0)):
                start = b.min(lane, warps - 1) * self.kept
                with b.loop(0, self.kept, 1, [b.index(0)], hint="number") as loop:
                    at = IndexValue.of(loop.args[0])
                    here = start + b.min(at, self.kept - 1)
                    is_there = (lane < warps) & (at < self.kept)
                    head = (
                        b.select(is_there, keys.load(here, readonly=False), nothing[0]),
                        b.select(is_there, places.load(here, readonly=False), nothing[1]),
                    )
                    found = self._best_of_warp(b, head)
                    with b.if_(lane.equals(0)):
                        store(e, task.index, loop.index, found)
                    is_taken = head[1].equals(found[1])
                    loop.yield_(b.select(is_taken, at + 1, at))
        return self.single.launch(e, name, blocks, Expr.const(1))

    def _best_of_thread(
        self, e: Elemental, thread: IndexValue, first: IndexValue, last: IndexValue, read: _Read
    ) -> list[Register]:
        """The list of a thread: keys and positions in turn."""
        b = e.b
        start = list(self._nothing(b)) * self.kept
        with b.loop(first + thread, last, THREADS * _BATCH, start, hint="batch") as loop:
            carried = Register.each_of(loop.args)
            worst = carried[-2], carried[-1]
            records = [read(b.min(loop.index + THREADS * k, last - 1)) for k in range(_BATCH)]
            is_better = b.flags(False)
            for record in records:
                is_better = is_better | self._is_before(b, record, worst)
            with b.if_(is_better) as branch:
                # Few batches come here: their elements are read once more.
                end = b.min(loop.index + THREADS * _BATCH, last)
                with b.loop(loop.index, end, THREADS, carried, hint="at") as each:
                    before = Register.each_of(each.args)
                    each.yield_(*self._inserted(b, before, read(each.index)))
                branch.yield_(*Register.each_of(each.results))
                with branch.otherwise():
                    branch.yield_(*carried)
            loop.yield_(*branch.results)
        return Register.each_of(loop.results)

    def _inserted(
        self, b: KernelBuilder, carried: Sequence[Register], record: _Record
    ) -> list[Register]:
        """A list with a record at its place; the last one goes."""
        found: list[Register] = []
        key, place = record
        for k in range(self.kept):
            old = carried[2 * k], carried[2 * k + 1]
            is_here = self._is_before(b, (key, place), old)
            found += [b.select(is_here, key, old[0]), b.select(is_here, place, old[1])]
            key, place = b.select(is_here, old[0], key), b.select(is_here, old[1], place)
        return found

    def _best_of_warp(self, b: GroupBuilder, record: _Record) -> _Record:
        """The first one of the records of the threads of a warp, in all of them."""
        distance = 1
        while distance < b.machine.warp:
            other = b.from_lane(record[0], distance), b.from_lane(record[1], distance)
            is_before = self._is_before(b, other, record)
            record = (
                b.select(is_before, other[0], record[0]),
                b.select(is_before, other[1], record[1]),
            )
            distance *= 2
        return record

    def _is_before(self, b: KernelBuilder, x: _Record, y: _Record) -> Mask:
        is_tie = b.cmpi("eq", x[0], y[0]) & b.cmpi("slt", x[1], y[1])
        return b.cmpi(self.above, x[0], y[0]) | is_tie

    def _nothing(self, b: KernelBuilder) -> _Record:
        """A record behind all elements."""
        bits = int(self.key_type[1:])
        least = -(1 << bits - 1) if self.above == "sgt" else 0
        nowhere = (1 << self.positions.bits - 1) - 1
        return b.constant(least, self.key_type), b.constant(nowhere, self.positions.storage)
