"""Products by warpgroups whose blocks stay: each computes one tile after another.

The producer goes on with the next tile while the warps that multiplied store their sums. These go
through shared memory of their own, a few columns at once, so that no warp waits for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cuda.box_products import BoxWriter, State
from shlo_disc.lower.cuda.instructions import arrive, set_registers
from shlo_disc.lower.cuda.warpgroup_products import WarpgroupTile
from shlo_disc.lower.cuda.ways import MULTIPROCESSORS
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import IndexValue, Register

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

_REGISTERS, _REGISTERS_OF_PRODUCER = 232, 40
"""Of each thread: the kernel begins with 168, of three warpgroups."""

_COLUMNS, _PAD = 32, 8
"""Columns that a warp stores at once, and elements behind a row of them in shared memory."""


class PersistentWriter(BoxWriter):
    """Writes the kernel of one tile, which has a producer and is not turned."""

    units = "warpgroups_persistent"
    producers = 4

    def __init__(self, plan: MatrixProduct, tile: WarpgroupTile) -> None:
        super().__init__(plan, tile)
        warps = 4 * tile.warpgroups
        self._scratch = self.b.shared_offset(4 * warps * 16 * (_COLUMNS + _PAD))
        self._state: State | None = None

    def launch(self) -> Launch:
        """See `ProductWriter.launch`."""
        b, count = self.b, self.tile_.count(self.plan)
        tiles, blocks = b.param(count, opaque=True), b.tasks
        self.begin_phases()
        b.barrier_of_block()
        with b.if_(self.warp < 4 * self.tile_.warpgroups) as branch:
            set_registers(b, _REGISTERS, True)
            with b.loop(b.lo, tiles, blocks, self.first_stage(0), hint="tile", barrier=True) as t:
                self._state = State.of(t.args)
                self.task(t.index)
                t.yield_(*self._state.values)
            with branch.otherwise():
                set_registers(b, _REGISTERS_OF_PRODUCER, False)
                with b.if_(b.thread.equals(self.storing_threads)):
                    start = self.first_stage(1)
                    with b.loop(b.lo, tiles, blocks, start, hint="tile", barrier=True) as t:
                        self._state, self._is_producer = State.of(t.args), True
                        self.task(t.index)
                        t.yield_(*self._state.values)
        name = f"{self.plan.label}_{self.rows}x{self.columns}_{self.units}"
        return self.arguments.launch(b.finish(), name, Expr.min(count, MULTIPROCESSORS))

    _is_producer = False

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, (first, end) = self.b, self.range_of_steps()
        assert self._state is not None
        if self._is_producer:
            self._state = self.produce(self.filling(place, row, column), self._state)
            return
        self._state, done, sums = self.multiply_stages(self._state)
        with b.if_(self.is_first_lane & (end > first)):
            arrive(b, self.read(done.stage))
        self._store(place, row, column, sums)

    def zeros(self) -> list[Register]:
        """See `WarpgroupWriter.zeros`; anything, since the first step of a tile adds nothing.

        Registers that other instructions write between tiles would make products wait.
        """
        poison = self.b.define(Register, "llvm.mlir.poison : f32", "f32", [])
        return [poison] * len(super().zeros())

    def added(self, step: IndexValue, first: IndexValue) -> Register:
        """See `BoxWriter.added`."""
        one, zero = self.b.constant(1, "i32"), self.b.constant(0, "i32")
        return self.b.select(step > first, one, zero)

    def _store(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue, sums: list[Register]
    ) -> None:
        """Store the 16 rows of each warp, a few columns at once."""
        b, line = self.b, _COLUMNS + _PAD
        lane = b.thread % self.plan.machine.warp
        memory = b.shared_at("f32", self._scratch, 4 * self.tile_.warpgroups * 16 * line)
        mine = self.warp * (16 * line)
        own = mine + lane // 4 * line + lane % 4 * 2
        vectors = _COLUMNS // self.lanes
        for start in range(0, self.columns, _COLUMNS):
            for at in range(start // 4, (start + _COLUMNS) // 4):
                fragment, half = divmod(at, 2)
                there = own + (8 * half * line + fragment * 8 - start)
                memory.vector_store(b.joined(sums[2 * at : 2 * at + 2]), there, aligned=True)
            b.barrier_of_warp()
            with b.loop(lane, 16 * vectors, self.plan.machine.warp, hint="v", barrier=True) as v:
                down, right = v.index // vectors, v.index % vectors * self.lanes
                r, c = row + self.warp * 16 + down, column + right + start
                with b.if_((r < self.m) & (c < self.n)):
                    at_ = mine + down * line + right
                    found = memory.vector_load(at_, self.lanes, False, aligned=True)
                    self.store(place, r, c, [found], b.mask(self.n - c, self.lanes))
            b.barrier_of_warp()
