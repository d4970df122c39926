"""Products of 16-bit floats by warpgroups of Hopper (`wgmma`, sm_90a).

Each warpgroup of a block multiplies 64 rows of A by all columns of the tile. Columns of several
bands lie side by side in shared memory. Tiles of A and B pass
through a ring of stages in shared memory. `cp.async` fills a stage while the warpgroups multiply
two earlier ones. Sums are f32.

Steps of a product along K end where K ends: the first one may be partial, with zeros in front of K.
So only the copies of the first stages ask which elements exist. Rows and columns that do not exist
are copies of the last ones; nothing stores their sums.

A stage has lines of 128 bytes. Lines run along K, or along 64 rows where those are contiguous.
Chunk c of line l, 16 bytes, is at place `c ^ l % 8`: the 128-byte swizzle. Source: NVIDIA's PTX
ISA, section 9.7.15.5 ("Asynchronous warpgroup level matrix: shared memory layout, descriptors").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.instructions import (
    commit_copies,
    copy_chunks,
    fence_for_warpgroups,
    global_address,
    multiply_by_warpgroup,
    wait_for_copies,
    wait_for_warpgroup,
)
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register, Value

if TYPE_CHECKING:
    from shlo_disc.lower.cuda.products import MatrixProduct

__all__ = [
    "BANDED",
    "LITTLE",
    "NARROW",
    "WIDE",
    "WarpgroupTile",
    "WarpgroupWriter",
    "multiples_of_chunks",
]

CHUNK = 8
"""Elements of 16 bits in one copy."""

DEPTH = 64
"""Steps along K of a stage: a line of shared memory."""

_LINE, _BLOCK = 128, 8192
"""Bytes of a line; of 64 lines, which have 64 rows and all K of a stage."""

_STEP = 16
"""Steps along K of one instruction."""

LANES = 8
"""Columns that a thread finishes and stores at once."""

GROUP = 16
"""Tiles below each other that share tiles of B in L2."""


@dataclass(frozen=True)
class WarpgroupTile:
    """How a block divides its work: each warpgroup has 64 rows."""

    warpgroups: int
    columns: int
    stages: int
    """Stages of the ring in shared memory: two are multiplied, the others are on their way."""
    bands: int = 1
    """The tile has `columns` of each band."""

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return 64 * self.warpgroups

    def count(self, plan: MatrixProduct) -> Expr:
        """Such tiles in a product."""
        p = plan.p
        return p.batches * ceil_div(p.rows, self.rows) * ceil_div(p.columns, self.columns)


WIDE = WarpgroupTile(2, 256, 4)
NARROW = WarpgroupTile(2, 128, 6)
LITTLE = WarpgroupTile(1, 64, 6)
"""A multiprocessor has room for two."""
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


class _Operand:
    """Tiles of one operand: where this thread copies chunks from and to.

    `size` rows of each band.
    """

    def __init__(self, w: WarpgroupWriter, array: str, size: int, bands: int = 1) -> None:
        self.w, self.array, b = w, array, w.b
        self.along_k = w.plan.contiguous(array) == f"{array}k"
        self.size, self.lines = size, size * bands
        self.stage_bytes = self.lines * _LINE
        offset = b.shared_offset(self.stage_bytes * w.tile_.stages)
        chunks = _LINE // (2 * CHUNK)
        self.line, self.chunk = b.thread // chunks, b.thread % chunks
        self.lines_at_once = b.threads // chunks
        swizzled = b.cast("arith.index_cast", self.chunk, "i32") ^ (
            b.cast("arith.index_cast", self.line % 8, "i32")
        )
        base = b.cast("arith.index_cast", self.line * _LINE + offset, "i32")
        self.to = b.shared_base + base + swizzled * (2 * CHUNK)
        """Where this thread's first chunk of the first stage goes (i32)."""
        start = b.cast("arith.index_cast", b.index(offset), "i32") + b.shared_base
        address = b.to_index("arith.index_castui", start) // 16
        # Bytes, in units of 16, from 64 contiguous rows to the next, and from 8 lines to the next;
        # 1: the swizzle of 128 bytes.
        leading = 16 if self.along_k else _BLOCK
        described = leading >> 4 << 16 | 8 * _LINE >> 4 << 32 | 1 << 62
        self.descriptor = address + described
        """The descriptor of the first stage, as index."""

    @property
    def advance(self) -> int:
        """Bytes in shared memory from the elements of one instruction to those of the next."""
        return 2 * _STEP if self.along_k else _STEP * _LINE

    def described(self, stage: IndexValue, block: IndexValue | int = 0) -> Register:
        """The descriptor (i64) of a stage from its 64 rows number `block` on."""
        b = self.w.b
        at = self.descriptor + stage * (self.stage_bytes >> 4) + b.index(block) * (_BLOCK >> 4)
        return b.cast("arith.index_cast", at, "i64")

    def copies(
        self, memory: MemRef, origin: IndexValue, first: IndexValue, size: IndexValue
    ) -> Callable[[IndexValue, IndexValue, bool], None]:
        """What fills a stage with rows `first`, ... of `size` in each band, for a step along K.

        The third argument is true where K may begin within the step.
        """
        w, b = self.w, self.w.b
        begin = global_address(b, memory) + origin * 2
        sources, before = [], []
        for e in range(self.lines // self.lines_at_once):
            band, within = divmod(e * self.lines_at_once, self.size)
            line = self.line + within
            if self.along_k:
                row, k = b.min(first + line, size - 1), self.chunk * CHUNK
            else:
                here = first + line // DEPTH * 64 + self.chunk * CHUNK
                row, k = b.min(here, size - CHUNK), line % DEPTH
            if band:
                row = row + size * band
            at = w.walk(f"{self.array}r", row) + w.walk(f"{self.array}k", k)
            sources.append(begin + at * 2)
            before.append(k)
        advance = w.walk(f"{self.array}k", b.index(DEPTH)) * 2
        shift = w.walk(f"{self.array}k", w.shift) * 2

        def copy(number: IndexValue, stage: IndexValue, is_first: bool) -> None:
            to = self.to + b.cast("arith.index_cast", stage * self.stage_bytes, "i32")
            there = number * advance - shift
            counts = []
            if is_first:
                start = number * DEPTH - w.shift
                counts = [
                    b.select(start + k >= 0, b.constant(2 * CHUNK, "i32"), b.constant(0, "i32"))
                    for k in before
                ]
            step = self.lines_at_once * _LINE
            copy_chunks(b, to, step, [source + there for source in sources], counts)

        return copy


class WarpgroupWriter(ProductWriter):
    """Writes the kernel of one tile."""

    plan: MatrixProduct
    units = "warpgroups"

    def __init__(self, plan: MatrixProduct, tile: WarpgroupTile) -> None:
        threads = 4 * tile.warpgroups * plan.machine.warp
        super().__init__(
            plan,
            rows=tile.rows,
            columns=tile.columns,
            threads=threads,
            lanes=LANES,
            group=GROUP,
        )
        self.tile_ = tile
        b = self.b
        b.shared_alignment = 8 * _LINE  # the swizzle counts lines from there
        self.steps = self.depth.ceil_div(DEPTH)
        self.shift = self.steps * DEPTH - self.depth
        """Zeros in front of K."""
        self.a_tiles = _Operand(self, "a", tile.rows)
        self.b_tiles = _Operand(self, "b", tile.columns, tile.bands)
        self.warpgroup = b.thread // (4 * plan.machine.warp)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, (first_step, end) = self.b, self.range_of_steps()
        assert self.b_array is not None
        copies = [
            self.a_tiles.copies(self.a, self.origin(place, "a"), row, self.m),
            self.b_tiles.copies(self.b_array, self.origin(place, "b"), column, self.n),
        ]

        def begin(number: IndexValue, stage: IndexValue, is_first: bool) -> None:
            """Begin to fill `stage` for a step, if there is one."""
            with b.if_(number < end):
                for copy in copies:
                    copy(number, stage, is_first)
            commit_copies(b)  # groups are counted, empty ones too

        stages, ahead = self.tile_.stages, self.tile_.stages - 2

        def next_stage(stage: IndexValue) -> IndexValue:
            return b.select((stage + 1).equals(stages), b.index(0), stage + 1)

        with b.loop(0, ahead, 1, hint="stage", barrier=True) as first:
            begin(first_step + first.index, first.index, True)
        zero = b.constant(0.0, "f32")
        start: list[Value] = [b.index(0), b.index(ahead), *[zero] * (self.b_tiles.lines // 2)]
        with b.loop(first_step, end, 1, start, hint="k", barrier=True) as k:
            full, free = IndexValue.each_of(k.args[:2])
            wait_for_copies(b, ahead - 1)
            fence_for_warpgroups(b)
            b.barrier_of_block()  # the full stage is there, and the free one is read
            sums = self._multiplied(full, Register.each_of(k.args[2:]))
            begin(k.index + ahead, free, False)
            wait_for_warpgroup(b, 1)
            k.yield_(next_stage(full), next_stage(free), *sums)
        wait_for_warpgroup(b, 0)
        b.barrier_of_block()  # all have read the last stage: sums take its place
        warp = b.thread // self.plan.machine.warp
        sums = Register.each_of(k.results[2:])
        bands = self.tile_.bands
        store_sums(self, place, row, column, sums, (warp * 16, 0), self.columns, bands=bands)

    def range_of_steps(self) -> tuple[IndexValue, IndexValue]:
        """The first step along K of the task, and one past the last."""
        return self.b.index(0), self.steps

    def _multiplied(self, stage: IndexValue, sums: list[Register]) -> list[Register]:
        tiles = self.a_tiles, self.b_tiles
        return multiply_by_warpgroup(
            self.b,
            self.p.a.name,
            self.a_tiles.described(stage, self.warpgroup),
            self.b_tiles.described(stage),
            [x.advance for x in tiles],
            [not x.along_k for x in tiles],
            DEPTH // _STEP,
            sums,
        )
