"""Products by the matrix units of AMD's GPUs (MFMA, WMMA): `instructions.py` has the types.

A block of waves computes a tile of C. While waves multiply one stage of shared memory, threads
write the next one, and load the one behind that from memory. Operands that do not consist of whole
chunks of 16 bytes are loaded element by element; the host program chooses by sizes and strides.
Where tiles are few, waves share a tile and each takes a part of every stage. Their sums are added
in the order of the waves. So sizes and strides alone decide a rounding.

f32 is multiplied and added in f32: `precision="highest"` is the default. gfx90a takes f16 and bf16
that are not normal for zero. Source: AMD's MIOpen documentation, "MI200 MFMA behavior specifics".

The matrix units add along K in whatever order both operands share. A lane reads 16 bytes along K at
once, and gives them to one instruction after the other.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.element_types import ElementType
from shlo_disc.lower.gpu.few_rows import FewRowsProduct
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.matrix_products import Least, Write
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.gpu.sums import Piece, store_pieces
from shlo_disc.lower.plan import Step
from shlo_disc.lower.rocm.instructions import SIDE, MatrixInstruction, instruction_for
from shlo_disc.lower.rocm.machine import ARCHITECTURES
from shlo_disc.lower.rocm.operands import STAGES, Operand
from shlo_disc.lower.values.typed import IndexValue, Register

__all__ = ["MatrixProduct", "MatrixWriter", "Tile"]

LANES = 4
"""Columns that a thread finishes and stores at once."""

GROUP = 8
"""Tiles below each other that share tiles of B in L2."""

_PAD = 4
"""Sums behind a row in shared memory: eight rows lie in different banks."""


@dataclass(frozen=True)
class Tile:
    """How a block divides its work."""

    rows: int
    columns: int
    """Of each band."""
    depth_bytes: int
    """What a stage has along K."""
    down: int
    """Waves below each other."""
    across: int
    """Waves side by side."""
    deep: int = 1
    """Waves that share a stage, a part along K for each."""

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return self.down * self.across * self.deep


@dataclass(frozen=True)
class _Tiles:
    """The tiles for waves of one size: 256 threads where registers allow it."""

    large: Tile
    small: Tile
    strip: Tile
    """For few rows."""
    banded: tuple[int, int]
    """Waves of a banded tile, down and across."""


_TILES = {
    64: _Tiles(
        Tile(128, 128, 64, 2, 2), Tile(64, 64, 128, 2, 2), Tile(16, 64, 256, 1, 1, 4), (2, 2)
    ),
    32: _Tiles(
        Tile(128, 128, 64, 2, 4), Tile(64, 64, 64, 2, 2), Tile(16, 64, 256, 1, 1, 4), (4, 2)
    ),
}
"""By the threads of a wave."""

_ROOM = 128 << 10
"""Bytes of shared memory from which on large tiles have stages of twice the depth.

Sums and elements of f64 have no registers left for that.
"""

_BANDED = {2: 64, 3: 32, 4: 32}
"""Bands to the columns of each in a tile."""


def _tiles_of(machine: Machine, element: ElementType) -> _Tiles:
    tiles = _TILES[machine.warp]
    if machine.shared_bytes < _ROOM or element.bytes == 8:
        return tiles
    return replace(tiles, large=replace(tiles.large, depth_bytes=2 * tiles.large.depth_bytes))


class MatrixProduct(FewRowsProduct):
    """Plans one problem: by matrix units where the types are theirs."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        bands = self.p.bands
        if self.instruction is None or (bands > 1 and bands not in _BANDED):
            return super().steps()
        sizes, tiles = self.whole_chunks(), _tiles_of(self.machine, self.p.a)
        asked = None if sizes is None else self._multiples(sizes)
        if bands > 1:
            banded = Tile(64, _BANDED[bands], 128, *tiles.banded)
            return self._where(asked, self._write(banded), self._write(banded, by_chunks=False))
        large, small = tiles.large, tiles.small
        units = ARCHITECTURES[self.machine.architecture].units
        enough = (
            (self._count(large), units),
            (self.p.rows, large.rows // 2 + 1),
            (self.p.columns, large.columns // 2 + 1),
        )
        enough_small = ((self._count(small), units // 2), (self.p.rows, tiles.strip.rows + 1))
        options: list[tuple[Least, Write]] = [
            (enough, self._write(large)),
            (enough_small, self._write(small)),
        ]
        return self._where(
            asked,
            lambda: self._by_size(options, self._write(tiles.strip)),
            self._write(tiles.small, by_chunks=False),
        )

    @functools.cached_property
    def instruction(self) -> MatrixInstruction | None:
        """What multiplies; None: the threads do."""
        element = self.operand
        if element is None:
            return None
        return instruction_for(self.machine.architecture, element)

    def contiguous(self, array: str) -> str | None:
        """See `VariantProduct.contiguous`; runs of neighbours are enough, such as channels."""
        for side in "kr":
            if self.is_unit(f"{array}{side}"):
                return f"{array}{side}"
        return None

    def _count(self, tile: Tile) -> Expr:
        p = self.p
        return p.batches * ceil_div(p.rows, tile.rows) * ceil_div(p.columns, tile.columns)

    def _write(self, tile: Tile, *, by_chunks: bool = True) -> Write:
        return lambda: (MatrixWriter(self, tile, by_chunks=by_chunks).launch(),)


class MatrixWriter(ProductWriter):
    """Writes one variant; `by_chunks`: operands consist of whole chunks of 16 bytes."""

    plan: MatrixProduct
    units = "waves"

    def __init__(self, plan: MatrixProduct, tile: Tile, *, by_chunks: bool) -> None:
        wave = plan.machine.warp
        super().__init__(
            plan, rows=tile.rows, columns=tile.columns, threads=tile.waves * wave, lanes=LANES,
            group=GROUP,
        )  # fmt: skip
        assert plan.instruction is not None
        assert self.b_array is not None
        one = self.instruction = plan.instruction
        self.tile_, self.by_chunks = tile, by_chunks
        b, bands = self.b, plan.p.bands
        self.stage_depth = tile.depth_bytes // plan.p.a.bytes
        number, lane = b.thread // wave, b.thread % wave
        deep, flat = number // (tile.down * tile.across), number % (tile.down * tile.across)
        self.deep = deep if tile.deep > 1 else b.index(0)
        self.down, self.across = tile.rows // tile.down, tile.columns // tile.across
        self.warp = (flat // tile.across * self.down, flat % tile.across * self.across)
        """First row and column of this wave in the tile."""
        own, group = lane % SIDE, lane // SIDE
        self.lane = (own, group * one.count)
        """First row and column of this lane in the sums of an instruction."""
        self.lefts = Operand(self, "a", self.a, tile.rows, self.stage_depth)
        self.rights = Operand(self, "b", self.b_array, tile.columns, self.stage_depth, bands)
        # A lane reads so many elements at once: of its own steps along K, or of all.
        self.count = max(plan.chunk, one.each)
        self.step = self.count * (1 if one.is_doubled else one.groups)
        first = self.deep * (self.stage_depth // tile.deep)
        first = first if one.is_doubled else first + group * self.count
        # Columns of B are in an order in which the sums of a lane are neighbours.
        turned = own % one.groups * one.count + own // one.groups if one.is_strided else own
        self.left = self.lefts.fragments(self.warp[0] + own, first, self.count)
        self.right = self.rights.fragments(self.warp[1] + turned, first, self.count)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, operands = self.b, (self.lefts, self.rights)
        loads = [
            operand.loads(place, first, size)
            for operand, first, size in zip(operands, (row, column), (self.m, self.n), strict=True)
        ]

        def load(number: IndexValue) -> list[Register]:
            """What this thread brings to a stage."""
            return [x for each in loads for x in each(number * self.stage_depth)]

        def store(loaded: list[Register], stage: IndexValue) -> None:
            rest = loaded
            for operand in operands:
                operand.store(rest[: operand.count], stage)
                rest = rest[operand.count :]

        with b.if_(self.depth > 0) as branch:
            store(load(b.index(0)), b.index(0))
            following = load(b.index(1))
            branch.yield_(*following)
            with branch.otherwise():
                branch.yield_(*(b.constant(0, x.type) for x in following))
        b.barrier_of_block()
        zero = b.constant(0.0, self.instruction.sums_type)
        count = self.down // SIDE * (self.across // SIDE) * self.p.bands
        start = [*[zero] * count, *branch.results]
        steps = self.depth.ceil_div(self.stage_depth)
        with b.loop(0, steps, 1, start, hint="k", barrier=True) as k:
            # All have read that stage: they were at the last barrier behind it.
            store(list(k.args[count:]), (k.index + 1) % STAGES)
            following = load(k.index + 2)
            sums = self._multiplied(k.index % STAGES, list(k.args[:count]))
            b.barrier_of_block()
            k.yield_(*sums, *following)
        self._store_sums(place, row, column, k.results[:count])

    def _multiplied(self, stage: IndexValue, sums: list[Register]) -> list[Register]:
        """Sums of 16 rows and 16 columns after each other: along columns, bands, then rows."""
        b, one, t = self.b, self.instruction, self.tile_
        left, right = self.left(stage), self.right(stage)
        for step in range(0, self.stage_depth // t.deep, self.step):
            mine = [one.given(b, left(SIDE * i, step)) for i in range(self.down // SIDE)]
            theirs = [
                one.given(b, right(band * t.columns + SIDE * j, step))
                for band in range(self.p.bands)
                for j in range(self.across // SIDE)
            ]
            for i, rows in enumerate(mine):
                for j, columns in enumerate(theirs):
                    number = i * len(theirs) + j
                    for x, y in zip(rows, columns, strict=True):
                        # What is given first becomes the rows of a lane: neighbours in C.
                        sums[number] = one.multiply(b, y, x, sums[number])
        return sums

    def _store_sums(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: list[Register],
    ) -> None:
        across, bands, t = self.across // SIDE, self.p.bands, self.tile_
        pieces = []
        for number, one in enumerate(sums):
            group, j = divmod(number, across)
            i, band = divmod(group, bands)
            pieces.append(Piece(one, SIDE * i, SIDE * j, band))
        # As much at once as fits where the operands were.
        size = (t.columns + _PAD) * bands * t.deep * self.p.compute.bytes
        at_once = self.down
        while at_once > SIDE and size * t.down * at_once > self.b.shared_bytes:
            at_once //= 2
        store_pieces(
            self, place, row, column, pieces, self.warp, self.lane, pad=_PAD, parts=t.deep,
            part=self.deep, bands=bands, warp_rows=self.down, at_once=at_once,
        )  # fmt: skip
