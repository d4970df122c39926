"""Products of 16-bit floats by the matrix units of NVIDIA's GPUs (`mma.sync`, from sm_80 on).

A block of warps computes a tile of C. Tiles of A and B pass through a ring of stages in shared
memory, which `cp.async` fills ahead of the products. Where rows do not lie at multiples of 16 bytes
threads copy elements instead; the host program chooses by the strides. Sums are f32. Every sum is
added up in blocks of 16 along K, first to last, in the order of the matrix unit.

The layout of fragments is that of NVIDIA's PTX ISA, section 9.7.14.5.8 (m16n8k16).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.instructions import (
    commit_copies,
    copy_16_bytes,
    load_matrices,
    multiply,
    wait_for_copies,
)
from shlo_disc.lower.cuda.machine import WITH_WARPGROUPS
from shlo_disc.lower.cuda.warpgroup_products import (
    LITTLE,
    NARROW,
    WIDE,
    WarpgroupTile,
    WarpgroupWriter,
    multiples_of_chunks,
)
from shlo_disc.lower.gpu import products
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.products import ProductWriter, TiledProduct
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register
from shlo_disc.passes.match_dense import ConvRecord, DenseRecord
from shlo_disc.passes.records import Planned

__all__ = ["emit_conv", "emit_dense"]

CHUNK = 8
"""Elements of 16 bits in one copy."""

LANES = 4
"""Columns that a thread finishes and stores at once."""

Write = Callable[[], tuple[Step, ...]]

Least = tuple[tuple[Expr, Expr], ...]
"""Sizes, and what each must be at least."""


@dataclass(frozen=True)
class Tile:
    """How a block divides its work."""

    rows: int
    columns: int
    depth: int
    """Steps along K of a stage."""
    warps_down: int
    warps_across: int
    stages: int
    """Stages of the ring in shared memory."""

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.warps_down * self.warps_across


LARGE = Tile(128, 128, 32, 2, 4, 4)
SMALL = Tile(64, 64, 32, 2, 2, 4)

ENOUGH_TILES = 200
"""Large tiles from which on they leave no multiprocessor without work: 132 of an H100 have room
for two each."""

ENOUGH_NARROW = 40
"""Narrow tiles of warpgroups from which on they read as fast as four times as many little ones,
which read twice as much."""

MULTIPROCESSORS = 132
"""Of an H100 and an H200; each has room for one wide or narrow tile of warpgroups."""

WIDE_TURN, NARROW_TURN = 5, 3
"""Time of a turn, in which each multiprocessor computes a tile. Narrow ones read more for as many
products."""

LEAST = 65
"""Rows, and columns, from which on these tiles are more than half full."""


class MatrixProduct(TiledProduct):
    """Plans one problem: by matrix units where the types and layouts are theirs."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        if not self._is_for_matrix_units():
            return super().steps()
        asked = self._asked_by_warpgroups()
        if asked is None:
            return self._by_warps()
        wide, narrow, little = (
            functools.partial(self._by_warpgroups, tile) for tile in (WIDE, NARROW, LITTLE)
        )
        turns_of_wide, turns = (
            ceil_div(tile.count(self), MULTIPROCESSORS) for tile in (WIDE, NARROW)
        )
        enough = (
            (NARROW.count(self), Expr.const(ENOUGH_NARROW)),
            (self.p.rows, Expr.const(LEAST)),
            (self.p.columns, Expr.const(LEAST)),
        )
        slower = ((turns * NARROW_TURN, turns_of_wide * WIDE_TURN),)
        return self._where(
            asked,
            lambda: self._by_size(enough, lambda: self._by_size(slower, wide, narrow), little),
            lambda: self._by_warps(never=asked),
        )

    def _by_warps(self, never: Sequence[Condition] = ()) -> tuple[Step, ...]:
        """By warps; not all of `never` hold, if there are any."""
        p = self.p
        tiles = p.batches * ceil_div(p.rows, LARGE.rows) * ceil_div(p.columns, LARGE.columns)
        large, small = (functools.partial(self._with, tile, never) for tile in (LARGE, SMALL))
        enough = ((tiles, Expr.const(ENOUGH_TILES)),)
        return self._by_size(enough, large, small)

    def _by_size(self, sizes: Least, then: Write, otherwise: Write) -> tuple[Step, ...]:
        """`then` where all of `sizes` are large enough."""
        asked: list[Condition] = []
        for size, enough in sizes:
            least, most = self.shapes.constraints.bounds(size - enough)
            if most is not None and most < 0:
                return otherwise()
            if least is None or least < 0:
                asked.append(Condition(size, ">=", enough))
        return self._where(asked, then, otherwise)

    def _with(self, tile: Tile, never: Sequence[Condition]) -> tuple[Step, ...]:
        def launched(by_chunks: bool) -> tuple[Step, ...]:
            return (_MatrixWriter(self, tile, by_chunks=by_chunks).launch(),)

        asked = None
        if all(self.contiguous(array) for array in "ab"):
            asked = self._multiples(self.strides())
        if asked and set(asked) == set(never):
            asked = None
        return self._where(asked, lambda: launched(True), lambda: launched(False))

    def _by_warpgroups(self, tile: WarpgroupTile) -> tuple[Step, ...]:
        return (WarpgroupWriter(self, tile).launch(),)

    @staticmethod
    def _where(asked: list[Condition] | None, then: Write, otherwise: Write) -> tuple[Step, ...]:
        """`then` where all of `asked` holds; None never does."""
        if asked is None:
            return otherwise()
        if not asked:
            return then()
        condition = asked[0] if len(asked) == 1 else All(tuple(asked))
        return (If(condition, then(), otherwise()),)

    def _multiples(self, sizes: Sequence[Expr]) -> list[Condition] | None:
        """What must be asked for all to be multiples of a chunk; None: one never is."""
        asked = [
            Condition(size % CHUNK, "==", Expr.const(0))
            for size in dict.fromkeys(sizes)
            if not self.divisible(size, CHUNK)
        ]
        return None if any(condition.lhs.is_const for condition in asked) else asked

    def _asked_by_warpgroups(self) -> list[Condition] | None:
        """What must be asked for warpgroups to compute the product; None: they never do."""
        if self.machine.architecture not in WITH_WARPGROUPS:
            return None
        sizes = multiples_of_chunks(self)
        return None if sizes is None else self._multiples(sizes)

    def _is_for_matrix_units(self) -> bool:
        p = self.p
        is_half = p.a.name in ("f16", "bf16") and p.a.name == p.b.name
        return is_half and p.compute.name == "f32" and p.bands == 1 and self.fill is None

    def contiguous(self, array: str) -> str | None:
        """The walk along which neighbours of A or B follow each other in memory, all of them."""
        for side in "kr":
            walk = self.walks[f"{array}{side}"]
            if len(walk) == 1 and walk[0][1] == 1:
                return f"{array}{side}"
        return None

    def strides(self) -> list[Expr]:
        """Steps between chunks, which must be multiples of one."""
        p, found = self.p, [self.p.a_first, self.p.b_first]
        for array in "ab":
            own = self.contiguous(array)
            found += [getattr(axis, array) for axis in p.batch]
            for side in "kr":
                if f"{array}{side}" != own:
                    found += [stride for _, stride in self.walks[f"{array}{side}"]]
        return found


class _Shared:
    """Tiles of one operand in shared memory, one for each stage.

    `lines` runs of `length` elements each; runs lie along K, or along rows.
    """

    def __init__(self, w: _MatrixWriter, array: str, size: int, depth: int) -> None:
        self.w, self.array = w, array
        walk = w.plan.contiguous(array) or f"{array}k"
        self.along_k = walk.endswith("k")
        self.lines, self.length = (size, depth) if self.along_k else (depth, size)
        # Eight lines that a matrix is read from lie in different banks.
        self.line_bytes = 2 * (self.length + CHUNK)
        self.stage_bytes = self.line_bytes * self.lines
        self.offset = w.b.shared_offset(self.stage_bytes * w.tile_.stages)

    def address(self, line: IndexValue, at: IndexValue) -> Register:
        """The address (i32) of element `at` of a line in the first stage."""
        b = self.w.b
        place = line * self.line_bytes + at * 2 + self.offset
        return b.shared_base + b.cast("arith.index_cast", place, "i32")

    def stage(self, number: IndexValue) -> Register:
        """Bytes (i32) from the first stage to a stage."""
        b = self.w.b
        return b.cast("arith.index_cast", number * self.stage_bytes, "i32")

    def step(self, rows: int, k: int) -> int:
        """Bytes from an element to the one `rows` and `k` further."""
        line, at = (rows, k) if self.along_k else (k, rows)
        return line * self.line_bytes + 2 * at


class _MatrixWriter(ProductWriter):
    """Writes one variant; `by_chunks`: operands are copied 16 bytes at once."""

    plan: MatrixProduct

    def __init__(self, plan: MatrixProduct, tile: Tile, *, by_chunks: bool) -> None:
        threads = tile.warps * plan.machine.warp
        super().__init__(plan, rows=tile.rows, columns=tile.columns, threads=threads, lanes=LANES)
        self.tile_, self.by_chunks, self.threads = tile, by_chunks, threads
        b = self.b
        self.a_tiles = _Shared(self, "a", tile.rows, tile.depth)
        self.b_tiles = _Shared(self, "b", tile.columns, tile.depth)
        self.lane = b.thread % plan.machine.warp
        warp = b.thread // plan.machine.warp
        self.down = tile.rows // tile.warps_down
        self.across = tile.columns // tile.warps_across
        self.first_row = warp // tile.warps_across * self.down
        self.first_column = warp % tile.warps_across * self.across

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, t = self.b, self.tile_
        copies = [
            self._copies(self.a_tiles, self.a, self.origin(place, "a"), row, self.m),
            self._copies(self.b_tiles, self._b(), self.origin(place, "b"), column, self.n),
        ]

        def begin(number: IndexValue) -> None:
            """Begin to fill the stage of step `number`."""
            for copy in copies:
                copy(number * t.depth, number % t.stages)

        def begin_or_none(number: IndexValue) -> None:
            with b.if_(number < steps):
                begin(number)
            commit_copies(b)  # groups are counted, empty ones too

        steps = self.depth.ceil_div(t.depth)
        with b.loop(0, t.stages - 1, 1, hint="stage", barrier=True) as stage:
            begin_or_none(stage.index)
        zero = b.constant(0.0, "f32")
        count = self.down // 16 * (self.across // 8) * 4
        with b.loop(0, steps, 1, [zero] * count, hint="k", barrier=True) as k:
            wait_for_copies(b, t.stages - 2)
            b.barrier_of_block()  # the stage is there, and the one before has been read
            begin_or_none(k.index + (t.stages - 1))
            k.yield_(*self._multiplied(k.index % t.stages, list(k.args)))
        b.barrier_of_block()  # all have read the last stage: sums take its place
        first = self.first_row, self.first_column
        store_sums(self, place, row, column, k.results, first, self.across)

    def _b(self) -> MemRef:
        assert self.b_array is not None
        return self.b_array

    # ---------------------------------------------------------------- copies

    def _copies(
        self,
        to: _Shared,
        memory: MemRef,
        origin: IndexValue,
        first: IndexValue,
        size: IndexValue,
    ) -> Callable[[IndexValue, IndexValue], None]:
        """What fills a stage from a step of K on, with rows `first`, ... of `size`."""
        b = self.b
        line_walk = f"{to.array}{'r' if to.along_k else 'k'}"
        run_walk = f"{to.array}{'k' if to.along_k else 'r'}"
        chunks = to.length // CHUNK
        places = []
        for e in range(to.lines * chunks // self.threads):
            number = b.thread + e * self.threads
            places.append((number // chunks, number % chunks * CHUNK))

        def copy(k: IndexValue, stage: IndexValue) -> None:
            lines_from, run_from = (first, k) if to.along_k else (k, first)
            lines_to, run_to = (size, self.depth) if to.along_k else (self.depth, size)
            for line, at in places:
                there, start = lines_from + line, run_from + at
                left = b.select(there < lines_to, run_to - start, b.index(0))
                base = origin + self.walk(line_walk, there)
                address = to.address(line, at) + to.stage(stage)
                if self.by_chunks:
                    count = b.min(b.max(left, 0), CHUNK) * 2
                    # Nothing is read at a place that is no element's.
                    safe = b.select(left > 0, base + start, b.index(0))
                    source = b.element_pointer(memory, safe)
                    copy_16_bytes(b, address, source, b.cast("arith.index_cast", count, "i32"))
                else:
                    self._copy_elements(memory, base, run_walk, start, left, address)

        return copy

    def _copy_elements(
        self,
        memory: MemRef,
        base: IndexValue,
        walk: str,
        start: IndexValue,
        left: IndexValue,
        address: Register,
    ) -> None:
        b = self.b
        zero = b.constant(0, memory.element)
        for e in range(CHUNK):
            with b.if_(left > e) as branch:
                branch.yield_(memory.load(base + self.walk(walk, start + e)))
                with branch.otherwise():
                    branch.yield_(zero)
            b.store_shared(branch.results[0], address + 2 * e)

    # ---------------------------------------------------------------- sums

    def _first_matrix(self, tiles: _Shared, first: IndexValue, is_left: bool) -> Register:
        """Where this lane's row of the first four matrices is that a warp reads."""
        matrix, row = self.lane // 8, self.lane % 8
        # A fragment of A has rows first, then K, and one of B the other way round.
        outer, inner = (matrix % 2, matrix // 2) if is_left else (matrix // 2, matrix % 2)
        if tiles.along_k:
            return tiles.address(first + (outer * 8 + row), inner * 8)
        return tiles.address(inner * 8 + row, first + outer * 8)

    def _multiplied(self, stage: IndexValue, sums: list[Register]) -> list[Register]:
        b, t = self.b, self.tile_
        lefts, rights = self.a_tiles, self.b_tiles
        from_left = self._first_matrix(lefts, self.first_row, True) + lefts.stage(stage)
        from_right = self._first_matrix(rights, self.first_column, False) + rights.stage(stage)
        for k in range(0, t.depth, 16):
            left = [
                load_matrices(b, from_left + lefts.step(16 * i, k), not lefts.along_k)
                for i in range(self.down // 16)
            ]
            right: list[list[Register]] = []
            for j in range(self.across // 16):
                at = from_right + rights.step(16 * j, k)
                found = load_matrices(b, at, not rights.along_k)
                right += [found[:2], found[2:]]
            for i, mine in enumerate(left):
                for j, theirs in enumerate(right):
                    place = 4 * (i * len(right) + j)
                    own = sums[place : place + 4]
                    sums[place : place + 4] = multiply(b, self.p.a.name, mine, theirs, own)
        return sums


def emit_dense(fusion: Planned[DenseRecord], machine: Machine) -> KernelPlan:
    """The plan of a `dense` fusion.

    Raises UnsupportedError for an element type that is not compiled.
    """
    return products.emit_dense(fusion, machine, MatrixProduct)


def emit_conv(fusion: Planned[ConvRecord], machine: Machine) -> KernelPlan:
    """The plan of a `conv` fusion.

    Raises UnsupportedError for an element type that is not compiled.
    """
    return products.emit_conv(fusion, machine, MatrixProduct)
