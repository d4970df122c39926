"""Products by warpgroups of Hopper (`wgmma`, sm_90a): 16-bit floats, and f32 rounded to tf32.

Each warpgroup of a block multiplies 64 rows of A by all columns of the tile. Columns of several
bands lie side by side in shared memory. Tiles of A and B pass through a ring of stages in shared
memory. Sums are f32.

`CopiedWriter` fills a stage by `cp.async` while the warpgroups multiply two earlier ones.
`box_products.py` fills them by tensor maps, where an operand has no more than five dimensions.

In `CopiedWriter` steps along K end where K ends: the first one may be partial, with zeros in front
of K. So only the copies of the first stages ask which elements exist. Rows and columns that do not
exist are copies of the last ones; nothing stores their sums.

A stage has lines (`swizzle.py`), which run along K, or along 64 rows where those are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.fragments import LANES, store_sums
from shlo_disc.lower.cuda.instructions import (
    STEP_BYTES,
    commit_copies,
    copy_chunks,
    fence_for_warpgroups,
    global_address,
    multiply_by_warpgroup,
    wait_for_copies,
    wait_for_warpgroup,
)
from shlo_disc.lower.cuda.split_products import Parts
from shlo_disc.lower.cuda.swizzle import (
    CHUNK_BYTES,
    LINE,
    chunk_of_thread,
    layout,
    place_of_chunk,
    start_of_lines,
)
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, Value

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

CHUNK = 8
"""Elements of 16 bits in one copy."""

DEPTH = 64
"""Steps along K of a stage: a line of shared memory, of elements of 16 bits."""

GROUP = 16
"""Tiles below each other that share tiles of B in L2."""


@dataclass(frozen=True)
class WarpgroupTile:
    """How a block divides its work: each warpgroup has 64 rows."""

    warpgroups: int
    across: int
    """Columns of the tile, which all warpgroups multiply."""
    stages: int
    """Stages of the ring in shared memory: two are multiplied, the others are on their way."""
    bands: int = 1
    """The tile has `across` columns of each band."""
    has_producer: bool = True
    """A warp more fills the ring, where tensor maps do."""
    is_turned: bool = False
    """Rows and columns change places: each warpgroup has 64 columns, and `across` rows."""

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return self.across if self.is_turned else 64 * self.warpgroups

    @property
    def columns(self) -> int:
        """Columns of the tile, of each band."""
        return 64 * self.warpgroups if self.is_turned else self.across

    def count(self, plan: MatrixProduct) -> Expr:
        """Such tiles in a product."""
        p = plan.p
        return p.batches * ceil_div(p.rows, self.rows) * ceil_div(p.columns, self.columns)


BANDED = {
    2: WarpgroupTile(2, 128, 4, 2),
    3: WarpgroupTile(2, 64, 4, 3),
    4: WarpgroupTile(2, 64, 4, 4),
}
"""The tile of products that have so many bands."""


def multiples_of_chunks(plan: MatrixProduct) -> list[Expr] | None:
    """What must be multiples of a chunk for warpgroups; None: the layout is not theirs."""
    for array in "ab":
        if plan.contiguous(array) == f"{array}r" and len(plan.walks[f"{array}k"]) > 1:
            return None
    return plan.whole_chunks()


class Operand:
    """Tiles of one operand in the ring of stages: `size` rows of each band."""

    def __init__(self, w: WarpgroupWriter, array: str, size: int, bands: int = 1) -> None:
        self.w, self.array, b = w, array, w.b
        self.along_k = w.plan.contiguous(array) == f"{array}k"
        self.size, self.lines = size, size * bands
        self.stage_bytes = self.lines * LINE
        self.run = LINE // w.p.a.bytes
        """Elements of a line."""
        offset = self.offset = b.shared_offset(self.stage_bytes * w.tile_.stages)
        """Where the first stage begins in shared memory."""
        leading = 16 if self.along_k else self.run * LINE
        self.descriptor = start_of_lines(b, offset) + layout(leading)
        """The descriptor of the first stage, as index."""

    @property
    def advance(self) -> int:
        """Bytes in shared memory from the elements of one instruction to those of the next."""
        return STEP_BYTES if self.along_k else STEP_BYTES // self.w.p.a.bytes * LINE

    def described(self, stage: IndexValue, block: IndexValue | int = 0) -> Register:
        """The descriptor (i64) of a stage from its 64 rows number `block` on."""
        b = self.w.b
        at = self.descriptor + stage * (self.stage_bytes >> 4) + b.index(block) * (64 * LINE >> 4)
        return b.cast("arith.index_cast", at, "i64")


class WarpgroupWriter(ProductWriter):
    """What kernels of one tile share, however they fill the ring of stages."""

    plan: MatrixProduct

    def __init__(
        self,
        plan: MatrixProduct,
        tile: WarpgroupTile,
        parts: Parts | None = None,
        more_warps: int = 0,
    ) -> None:
        """`parts`: neighbouring blocks have the parts of a tile, whose sums they store as they are.

        `more_warps`: warps behind the warpgroups, which multiply nothing.
        """
        threads = (4 * tile.warpgroups + more_warps) * plan.machine.warp
        super().__init__(
            plan,
            rows=tile.rows,
            columns=tile.columns,
            threads=threads,
            lanes=min(LANES, 16 // plan.result.bytes),
            group=GROUP,
        )
        self.tile_, self.parts = tile, parts
        b = self.b
        self.part = b.index(0)
        self.sums_of_parts = parts.memory(self) if parts is not None else None
        b.shared_alignment = 8 * LINE  # the swizzle counts lines from there
        self.stage_depth = LINE // self.p.a.bytes
        """Steps along K of a stage."""
        self.steps = self.depth.ceil_div(self.stage_depth)
        self.warp = b.thread // plan.machine.warp
        self.warpgroup = b.thread // (4 * plan.machine.warp)
        self.ring_a = Operand(self, "a", tile.rows)
        self.ring_b = Operand(self, "b", tile.columns, tile.bands)
        rings = self.ring_a, self.ring_b
        self.left, self.right = reversed(rings) if tile.is_turned else rings
        """The operand of which each warpgroup has 64 rows, and the one that all have."""

    @property
    def storing_threads(self) -> int:
        """See `ProductWriter.storing_threads`."""
        return 4 * self.tile_.warpgroups * self.plan.machine.warp

    def range_of_steps(self) -> tuple[IndexValue, IndexValue]:
        """The first step along K of the task, and one past the last."""
        if self.parts is None:
            return self.b.index(0), self.steps
        count = self.parts.count
        return self.steps * self.part // count, self.steps * (self.part + 1) // count

    def launch(self) -> Launch:
        """See `ProductWriter.launch`."""
        launch = super().launch()
        if self.parts is None:
            return launch
        kernel = replace(launch.kernel, name=f"{launch.kernel.name}_{self.parts.count}_parts")
        return replace(launch, kernel=kernel, extent=launch.extent * self.parts.count)

    def task(self, number: IndexValue) -> None:
        """See `ProductWriter.task`."""
        if self.parts is not None:
            self.part, number = number % self.parts.count, number // self.parts.count
        super().task(number)

    def store(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: Sequence[Register],
        mask: Mask,
    ) -> None:
        """See `ProductWriter.store`."""
        if self.parts is None or self.sums_of_parts is None:
            super().store(place, row, column, sums, mask)
            return
        at = self.parts.place(self, place, self.part, row, column)
        self.sums_of_parts.vector_store(sums[0], at, aligned=True)

    def next_stage(self, stage: IndexValue) -> IndexValue:
        """The stage behind `stage` in the ring."""
        b = self.b
        return b.select((stage + 1).equals(self.tile_.stages), b.index(0), stage + 1)

    def zeros(self) -> list[Register]:
        """The sums of a thread before the first step."""
        return [self.b.constant(0.0, "f32")] * (self.right.lines // 2)

    def multiplied(
        self, stage: IndexValue, sums: list[Register], added: Register | None = None
    ) -> list[Register]:
        """The sums after the products of a stage, which `wait_for_warpgroup` waits for.

        `added` (i32): 0 where `sums` are anything, and count as 0.
        """
        rings = self.left, self.right
        assert self.plan.element is not None
        return multiply_by_warpgroup(
            self.b,
            self.plan.element,
            self.left.described(stage, self.warpgroup),
            self.right.described(stage),
            [x.advance for x in rings],
            [not x.along_k for x in rings],
            LINE // STEP_BYTES,
            sums,
            added,
        )

    def store_tile(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue, sums: list[Register]
    ) -> None:
        """Store the tile, once all products are done: sums take the place of the stages."""
        own, t = (self.warp * 16, 0), self.tile_
        self.barrier()
        store_sums(
            self,
            place,
            row,
            column,
            sums,
            own,
            t.across,
            bands=t.bands,
            is_turned=t.is_turned,
        )


class _Copies:
    """Where this thread copies chunks of an operand from and to."""

    def __init__(self, w: CopiedWriter, ring: Operand) -> None:
        self.w, self.ring = w, ring
        b = w.b
        self.line, self.chunk = chunk_of_thread(b)
        self.lines_at_once = b.threads * CHUNK_BYTES // LINE
        self.to = place_of_chunk(b, self.line, self.chunk, ring.offset)
        """Where this thread's first chunk of the first stage goes (i32)."""

    def copies(
        self, memory: MemRef, origin: IndexValue, first: IndexValue, size: IndexValue
    ) -> Callable[[IndexValue, IndexValue, bool], None]:
        """What fills a stage with rows `first`, ... of `size` in each band, for a step along K.

        The third argument is true where K may begin within the step.
        """
        w, b, ring = self.w, self.w.b, self.ring
        walk_rows, walk_k = f"{ring.array}r", f"{ring.array}k"
        begin = global_address(b, memory) + origin * 2
        sources, before = [], []
        for e in range(ring.lines // self.lines_at_once):
            band, within = divmod(e * self.lines_at_once, ring.size)
            line = self.line + within
            if ring.along_k:
                row, k = b.min(first + line, size - 1), self.chunk * CHUNK
            else:
                here = first + line // DEPTH * 64 + self.chunk * CHUNK
                row, k = b.min(here, size - CHUNK), line % DEPTH
            if band:
                row = row + size * band
            at = w.walk(walk_rows, row) + w.walk(walk_k, k)
            sources.append(begin + at * 2)
            before.append(k)
        advance = w.walk(walk_k, b.index(DEPTH)) * 2
        shift = w.walk(walk_k, w.shift) * 2

        def copy(number: IndexValue, stage: IndexValue, is_first: bool) -> None:
            to = self.to + b.cast("arith.index_cast", stage * ring.stage_bytes, "i32")
            there = number * advance - shift
            counts = []
            if is_first:
                start = number * DEPTH - w.shift
                counts = [
                    b.select(start + k >= 0, b.constant(2 * CHUNK, "i32"), b.constant(0, "i32"))
                    for k in before
                ]
            step = self.lines_at_once * LINE
            copy_chunks(b, to, step, [source + there for source in sources], counts)

        return copy


class CopiedWriter(WarpgroupWriter):
    """Writes the kernel in which the threads that multiply fill the ring by `cp.async`."""

    units = "warpgroups"

    def __init__(
        self, plan: MatrixProduct, tile: WarpgroupTile, parts: Parts | None = None
    ) -> None:
        super().__init__(plan, tile, parts)
        self.shift = self.steps * DEPTH - self.depth
        """Zeros in front of K."""
        self.copied_a, self.copied_b = _Copies(self, self.ring_a), _Copies(self, self.ring_b)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, (first_step, end) = self.b, self.range_of_steps()
        assert self.b_array is not None
        copies = [
            self.copied_a.copies(self.a, self.origin(place, "a"), row, self.m),
            self.copied_b.copies(self.b_array, self.origin(place, "b"), column, self.n),
        ]

        def begin(number: IndexValue, stage: IndexValue, is_first: bool) -> None:
            """Begin to fill `stage` for a step, if there is one."""
            with b.if_(number < end):
                for copy in copies:
                    copy(number, stage, is_first)
            commit_copies(b)  # groups are counted, empty ones too

        ahead = self.tile_.stages - 2
        with b.loop(0, ahead, 1, hint="stage", barrier=True) as first:
            begin(first_step + first.index, first.index, True)
        start: list[Value] = [b.index(0), b.index(ahead), *self.zeros()]
        with b.loop(first_step, end, 1, start, hint="k", barrier=True) as k:
            full, free = IndexValue.each_of(k.args[:2])
            wait_for_copies(b, ahead - 1)
            fence_for_warpgroups(b)
            b.barrier_of_block()  # the full stage is there, and the free one is read
            sums = self.multiplied(full, Register.each_of(k.args[2:]))
            begin(k.index + ahead, free, False)
            wait_for_warpgroup(b, 1)
            k.yield_(self.next_stage(full), self.next_stage(free), *sums)
        wait_for_warpgroup(b, 0)
        self.store_tile(place, row, column, Register.each_of(k.results[2:]))
