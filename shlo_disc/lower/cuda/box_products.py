"""Products by warpgroups whose stages tensor maps fill (TMA): `wgmma` and `cp.async.bulk.tensor`.

    warps 0 to 3, ...   wait until a stage is full, multiply it, count it as read
    the last warp       one thread waits until a stage is read, and asks for the next boxes

So no thread that multiplies computes addresses, and none waits for another but by the two
`mbarrier` objects of each stage. Without the last warp (`WarpgroupTile.has_producer`) the first
thread asks for boxes. Then a multiprocessor has registers for a second block, whose products hide
what this one does before and behind its own.

What is outside of an operand is zeros: the last step along K may be partial, and so may the last
tile.

A box has lines of 128 bytes with the 128-byte swizzle, as `swizzle.py` describes them.
The driver encodes tensor maps (`TensorMap`) at the launch. A map has the two dimensions of the
matrix, the contiguous one first, and the batch axes along which the operand moves. Strides are
multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from shlo_disc.artifacts.manifest import TensorMap
from shlo_disc.base.records import dataclass
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
from shlo_disc.lower.cuda.swizzle import LINE
from shlo_disc.lower.cuda.warpgroup_products import (
    Operand,
    WarpgroupTile,
    WarpgroupWriter,
)
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.typed import IndexValue, Register, Value

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

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
        if _may_overlap(plan, array):
            return None
        if len(moving) > MOST_RANK - 2:
            return None
    return p.rows + p.columns * p.bands + p.depth + p.batches


def _may_overlap(plan: MatrixProduct, array: str) -> bool:
    """True if lines of an operand may share elements, as the windows of a convolution do.

    The driver may refuse a map with a stride that is less than the size in front of it.
    """
    own = plan.contiguous(array)
    other = f"{array}{'r' if own == f'{array}k' else 'k'}"
    if own is None:
        return True
    room = plan.walks[other][0][1] - plan.walks[own][0][0]
    least, _ = plan.shapes.constraints.bounds(room)
    return least is None or least < 0


@dataclass(frozen=True)
class State:
    """A stage of the ring, and the parity (i32) of the phase that ends when it is full, or read."""

    stage: IndexValue
    parity: Register

    @classmethod
    def of(cls, values: Sequence[Value]) -> State:
        """The state with these :attr:`values`."""
        (stage,), (parity,) = IndexValue.each_of(values[:1]), Register.each_of(values[1:])
        return cls(stage, parity)

    @property
    def values(self) -> list[Value]:
        """As a loop carries them."""
        return [self.stage, self.parity]


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
    producers: ClassVar[int] = 1
    """Warps behind the warpgroups, of which a thread fills stages."""

    def __init__(
        self, plan: MatrixProduct, tile: WarpgroupTile, parts: Parts | None = None
    ) -> None:
        super().__init__(plan, tile, parts, more_warps=self.producers if tile.has_producer else 0)
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

    def full(self, stage: IndexValue) -> Register:
        """The object (i32) whose phase ends when `stage` is full."""
        b = self.b
        return b.shared_base + b.cast("arith.index_cast", stage * 8 + self._phases, "i32")

    def read(self, stage: IndexValue) -> Register:
        """Likewise when all warps have read `stage`."""
        return self.full(stage + self.tile_.stages)

    def begin_phases(self) -> None:
        """Initialise these objects, by the first thread."""
        b, warps = self.b, 4 * self.tile_.warpgroups
        with b.if_(b.thread.equals(0)):
            stages = [b.index(k) for k in range(self.tile_.stages)]
            full, read = ([of(x) for x in stages] for of in (self.full, self.read))
            begin_phases(b, [*((x, 1) for x in full), *((x, warps) for x in read)])

    def first_stage(self, parity: int) -> list[Value]:
        """The first stage, and the parity (i32) of its phase."""
        return [self.b.index(0), self.b.constant(parity, "i32")]

    def filling(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> Fill:
        """What asks for the boxes of a tile."""

        def fill(step: IndexValue, stage: IndexValue) -> None:
            full, here = self.full(stage), step * self.stage_depth
            expect_bytes(self.b, full, self.ring_a.stage_bytes + self.ring_b.stage_bytes)
            self.boxes_a.copy(place, row, here, stage, full)
            self.boxes_b.copy(place, column, here, stage, full)

        return fill

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, (first, end) = self.b, self.range_of_steps()
        fill, has_producer = self.filling(place, row, column), self.tile_.has_producer
        self.begin_phases()
        if not has_producer:
            with b.if_(b.thread.equals(0)):
                ahead = b.min(end - first, self.tile_.stages)
                with b.loop(0, ahead, 1, hint="stage", barrier=True) as stage:
                    fill(first + stage.index, stage.index)
        b.barrier_of_block()
        start = State.of(self.first_stage(0))
        if not has_producer:
            _, _, sums = self.multiply_stages(start, fill)
            self.store_tile(place, row, column, sums)
            return
        with b.if_(self.warp < 4 * self.tile_.warpgroups) as branch:
            _, _, sums = self.multiply_stages(start)
            self.store_tile(place, row, column, sums)
            with branch.otherwise(), b.if_(b.thread.equals(self.storing_threads)):
                # Stages that nothing was read of count as read in the phase before the first.
                self.produce(fill, State.of(self.first_stage(1)))

    def produce(self, fill: Fill, start: State) -> State:
        """Fill stages from `start` on, each once it has been read; the stage behind the last."""
        b, (first, end) = self.b, self.range_of_steps()
        with b.loop(first, end, 1, start.values, hint="k", barrier=True) as k:
            state = State.of(k.args)
            wait_for_phase(b, self.read(state.stage), state.parity)
            fill(k.index, state.stage)
            k.yield_(*self._next(state).values)
        return State.of(k.results)

    def multiply_stages(
        self, start: State, fill: Fill | None = None
    ) -> tuple[State, State, list[Register]]:
        """Multiply stages from `start` on, each once it is full, to the end.

        `fill`: the first thread fills stages again once all warps have read them. Gives the stage
        behind the last, the last one, which nobody counts as read yet, and the sums.
        """
        b, (first, end) = self.b, self.range_of_steps()
        behind = int(self.overlaps)  # steps that are still multiplied
        begin: list[Value] = [*start.values, *start.values, *self.zeros()]
        with b.loop(first, end, 1, begin, hint="k", barrier=True) as k:
            state, before = State.of(k.args[:2]), State.of(k.args[2:4])
            wait_for_phase(b, self.full(state.stage), state.parity)
            added = self.added(k.index, first)
            sums = self.multiplied(state.stage, Register.each_of(k.args[4:]), added)
            wait_for_warpgroup(b, behind)
            done = before if behind else state
            with b.if_(self.is_first_lane & (k.index >= first + behind)):
                arrive(b, self.read(done.stage))
            if fill is not None:
                again = k.index + (self.tile_.stages - behind)
                is_due = b.thread.equals(0) & (k.index >= first + behind) & (again < end)
                with b.if_(is_due):
                    wait_for_phase(b, self.read(done.stage), done.parity)
                    fill(again, done.stage)
            k.yield_(*self._next(state).values, *state.values, *sums)
        wait_for_warpgroup(b, 0)
        return State.of(k.results[:2]), State.of(k.results[2:4]), Register.each_of(k.results[4:])

    def added(self, step: IndexValue, first: IndexValue) -> Register | None:
        """What `multiplied` is told of the sums before a step; `first`: the first step."""
        return None

    def _next(self, state: State) -> State:
        """The stage behind a stage."""
        stage = self.next_stage(state.stage)
        parity = self.b.select(stage.equals(0), state.parity ^ 1, state.parity)
        return State(stage, parity)
