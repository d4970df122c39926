"""Products by warpgroups whose stages tensor maps fill (TMA): `wgmma` and `cp.async.bulk.tensor`.

    warps 0 to 3, ...   wait until a stage is full, multiply it, count it as read
    the last warp       one thread waits until a stage is read, and asks for the next boxes

So no thread that multiplies computes addresses, and none waits for another but by the two
`mbarrier` objects of each stage. Without the last warp (`WarpgroupTile.has_producer`) the first
thread asks for boxes. Then a multiprocessor has registers for a second block, whose products hide
what this one does before and behind its own.

What is outside of an operand is zeros: the last step along K may be partial, and so may the last
tile.

A box has lines of 128 bytes with the 128-byte swizzle, as `warpgroup_products.py` describes them.
The driver encodes tensor maps (`TensorMap`) at the launch. A map has the two dimensions of the
matrix, the contiguous one first, and the batch axes along which the operand moves. Strides are
multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cuda.instructions import (
    arrive,
    barrier_of_threads,
    begin_phases,
    copy_box,
    expect_bytes,
    wait_for_phase,
    wait_for_warpgroup,
)
from shlo_disc.lower.cuda.split_products import Parts
from shlo_disc.lower.cuda.warpgroup_products import (
    LINE,
    Operand,
    WarpgroupTile,
    WarpgroupWriter,
)
from shlo_disc.lower.images import TensorMap
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.typed import IndexValue, Register, Value

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

__all__ = ["BoxWriter", "most_index"]

MOST_RANK = 5
"""Dimensions of a tensor map."""

_CONSUMERS = 1
"""The number of the barrier of the warps that multiply."""

Fill = Callable[[IndexValue, IndexValue], None]
"""Asks for the boxes of a step along K (its number, its stage)."""


def most_index(plan: MatrixProduct) -> Expr | None:
    """A bound of all indices of boxes, which are 32-bit integers; None: no maps for the layout."""
    p = plan.p
    for array in "ab":
        moving = [axis for axis in p.batch if getattr(axis, array) != 0]
        if any(len(plan.walks[f"{array}{side}"]) > 1 for side in "rk"):
            return None
        if len(moving) > MOST_RANK - 2:
            return None
    return p.rows + p.columns * p.bands + p.depth + p.batches


class _Boxes:
    """The boxes of one operand: its tensor map, and what fills a stage."""

    def __init__(self, w: BoxWriter, ring: Operand, buffer: Buffer, size: str) -> None:
        """`size`: the name of the number of rows, those of all bands."""
        self.w, self.ring, b = w, ring, w.b
        array, along_k = ring.array, ring.along_k
        self.axes = [i for i, axis in enumerate(w.p.batch) if getattr(axis, array) != 0]
        sizes = ["depth", size] if along_k else [size, "depth"]
        sizes += [f"batch{i}" for i in self.axes]
        strides = [f"{array}{'r' if along_k else 'k'}0", *(f"batch{i}{array}" for i in self.axes)]
        self.box = (ring.run, ring.size if along_k else ring.run)
        assert w.plan.element is not None
        described = TensorMap(
            w.arguments.add(buffer),
            w.plan.element,
            self.box + (1,) * len(self.axes),
            b.number(f"{array}_first"),
            tuple(map(b.number, sizes)),
            tuple(map(b.number, strides)),
        )
        self.map = b.tensor_map(described)

    def copy(
        self,
        place: Sequence[IndexValue],
        row: IndexValue,
        k: IndexValue,
        stage: IndexValue,
        barrier: Register,
    ) -> None:
        """Begin to fill `stage` with rows `row`, ... of each band, steps `k`, ... along K."""
        b, ring = self.w.b, self.ring
        batch = [b.cast("arith.index_cast", place[i], "i32") for i in self.axes]
        start = b.shared_base + b.cast(
            "arith.index_cast", stage * ring.stage_bytes + ring.offset, "i32"
        )
        deep = b.cast("arith.index_cast", k, "i32")
        rows = ring.size if ring.along_k else ring.run
        for at in range(0, ring.lines, rows):
            band, within = divmod(at, ring.size)
            first = row + within
            if band:
                first = first + self.w.n * band
            down = b.cast("arith.index_cast", first, "i32")
            inner = [deep, down] if ring.along_k else [down, deep]
            to = start + at * LINE if at else start
            copy_box(b, to, self.map, [*inner, *batch], barrier)


class BoxWriter(WarpgroupWriter):
    """Writes the kernel of one tile."""

    units = "warpgroups_boxes"
    overlaps: ClassVar[bool] = True
    """A warpgroup begins with a stage while the one before is multiplied."""

    def __init__(
        self, plan: MatrixProduct, tile: WarpgroupTile, parts: Parts | None = None
    ) -> None:
        super().__init__(plan, tile, parts, more_warps=int(tile.has_producer))
        b = self.b
        self._phases = b.shared_offset(2 * 8 * tile.stages)
        self.boxes_a = _Boxes(self, self.ring_a, plan.a_buffer, "m")
        self.boxes_b = _Boxes(self, self.ring_b, plan.b_buffer, "bn")
        self.is_first_lane = (b.thread % plan.machine.warp).equals(0)

    def barrier(self) -> None:
        """See `ProductWriter.barrier`."""
        if self.tile_.has_producer:
            barrier_of_threads(self.b, _CONSUMERS, self.storing_threads)
        else:
            super().barrier()

    def _full(self, stage: IndexValue) -> Register:
        """The object (i32) whose phase ends when `stage` is full."""
        b = self.b
        return b.shared_base + b.cast("arith.index_cast", stage * 8 + self._phases, "i32")

    def _read(self, stage: IndexValue) -> Register:
        """Likewise when all warps have read `stage`."""
        return self._full(stage + self.tile_.stages)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, warps = self.b, 4 * self.tile_.warpgroups
        first, end = self.range_of_steps()

        def fill(step: IndexValue, stage: IndexValue) -> None:
            full, here = self._full(stage), step * self.stage_depth
            expect_bytes(b, full, self.ring_a.stage_bytes + self.ring_b.stage_bytes)
            self.boxes_a.copy(place, row, here, stage, full)
            self.boxes_b.copy(place, column, here, stage, full)

        with b.if_(b.thread.equals(0)):
            stages = [b.index(k) for k in range(self.tile_.stages)]
            full, read = ([of(x) for x in stages] for of in (self._full, self._read))
            begin_phases(b, [*((x, 1) for x in full), *((x, warps) for x in read)])
            if not self.tile_.has_producer:
                with b.loop(0, b.min(end - first, self.tile_.stages), 1, hint="stage") as ahead:
                    fill(first + ahead.index, ahead.index)
        b.barrier_of_block()
        if not self.tile_.has_producer:
            self._consume(place, row, column, fill)
            return
        with b.if_(self.warp < warps) as branch:
            self._consume(place, row, column)
            with branch.otherwise(), b.if_(b.thread.equals(self.storing_threads)):
                self._produce(fill)

    def _produce(self, fill: Fill) -> None:
        """Fill stages, each once it has been read."""
        b, (first, end) = self.b, self.range_of_steps()
        # A stage that nothing was read of counts as read in the phase before the first.
        with b.loop(first, end, 1, [b.index(0), b.constant(1, "i32")], hint="k", barrier=True) as k:
            (stage,), (parity,) = IndexValue.each_of(k.args[:1]), Register.each_of(k.args[1:])
            wait_for_phase(b, self._read(stage), parity)
            fill(k.index, stage)
            k.yield_(*self._next(stage, parity))

    def _consume(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        fill: Fill | None = None,
    ) -> None:
        """Multiply stages, each once it is full, and store the sums.

        `fill`: the first thread fills stages again once all warps have read them.
        """
        b, (first, end) = self.b, self.range_of_steps()
        behind = int(self.overlaps)  # steps that are still multiplied
        begin = [b.index(0), b.constant(0, "i32")]
        start: list[Value] = [*begin, *begin * behind, *self.zeros()]
        with b.loop(first, end, 1, start, hint="k", barrier=True) as k:
            (stage,), (parity,) = IndexValue.each_of(k.args[:1]), Register.each_of(k.args[1:2])
            wait_for_phase(b, self._full(stage), parity)
            sums = self.multiplied(stage, Register.each_of(k.args[2 + 2 * behind :]))
            wait_for_warpgroup(b, behind)
            (done,), (turn,) = (
                IndexValue.each_of(k.args[2 * behind : 2 * behind + 1]),
                Register.each_of(k.args[2 * behind + 1 : 2 * behind + 2]),
            )
            with b.if_(self.is_first_lane & (k.index >= first + behind)):
                arrive(b, self._read(done))
            again = k.index + (self.tile_.stages - behind)
            if fill is not None:
                is_due = b.thread.equals(0) & (k.index >= first + behind) & (again < end)
                with b.if_(is_due):
                    wait_for_phase(b, self._read(done), turn)
                    fill(again, done)
            own: list[Value] = [stage, parity]
            k.yield_(*self._next(stage, parity), *own * behind, *sums)
        wait_for_warpgroup(b, 0)
        self.store_tile(place, row, column, Register.each_of(k.results[2 + 2 * behind :]))

    def _next(self, stage: IndexValue, parity: Register) -> tuple[IndexValue, Register]:
        """The stage behind `stage`, and the parity of its phase."""
        following = self.next_stage(stage)
        return following, self.b.select(following.equals(0), parity ^ 1, parity)
