"""Products by matrix units whose operands pass through registers (`matrix_instruction.py`).

A block of warps computes a tile of C. While warps multiply one stage of shared memory, threads
write the next one, and load the one behind that from memory. Operands that do not consist of whole
chunks of 16 bytes are loaded element by element; the host program chooses by sizes and strides.
Where tiles are few, warps share a tile and each takes a part of every stage. Their sums are added
in the order of the warps. So sizes and strides alone decide a rounding.

The matrix units add along K in whatever order both operands share. A lane reads 16 bytes along K at
once, and gives them to one instruction after the other.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.gpu.few_rows import FewRowsProduct
from shlo_disc.lower.gpu.matrix_instruction import MatrixInstruction
from shlo_disc.lower.gpu.matrix_products import Least, Write
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.gpu.staged_operands import STAGES, Operand
from shlo_disc.lower.gpu.sums import Piece, store_pieces
from shlo_disc.lower.plan import Step
from shlo_disc.lower.values.typed import IndexValue, Register

LANES = 4
"""Columns that a thread finishes and stores at once."""

GROUP = 8
"""Tiles below each other that share tiles of B in L2."""

_PAD = 4
"""Sums behind a row in shared memory: eight rows lie in different banks."""


@dataclass(frozen=True)
class FragmentTile:
    """How a block divides its work."""

    rows: int
    columns: int
    """Of each band."""
    depth_bytes: int
    """What a stage has along K."""
    down: int
    """Warps below each other."""
    across: int
    """Warps side by side."""
    deep: int = 1
    """Warps that share a stage, a part along K for each."""

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.down * self.across * self.deep


@dataclass(frozen=True)
class FragmentTiles:
    """The tiles of products by one instruction."""

    large: FragmentTile
    small: FragmentTile
    strip: FragmentTile
    """For few rows."""
    by_elements: FragmentTile
    """For operands that do not consist of whole chunks."""
    banded: tuple[int, int]
    """Warps of a tile of 64 rows of bands, down and across."""


@dataclass(frozen=True)
class MatrixUnit:
    """What computes a product, and in which tiles."""

    instruction: MatrixInstruction
    tiles: FragmentTiles
    multiprocessors: int
    """Of the largest device: so many tiles leave none without work."""


BANDED = {2: 64, 3: 32, 4: 32}
"""Bands to the columns of each in a tile."""


class FragmentProduct(FewRowsProduct):
    """Plans one problem: by matrix units where the types are theirs."""

    @functools.cached_property
    @abstractmethod
    def unit(self) -> MatrixUnit | None:
        """What multiplies; None: the threads do."""

    def by_fragments(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        bands, unit = self.p.bands, self.unit
        if unit is None or (bands > 1 and bands not in BANDED):
            return FewRowsProduct.steps(self)
        tiles, sizes = unit.tiles, self.whole_chunks(self.along)
        asked = None if sizes is None else self._multiples(sizes)
        if bands > 1:
            banded = FragmentTile(64, BANDED[bands], 128, *tiles.banded)
            return self._where(asked, self._write(banded), self._write(banded, by_chunks=False))
        enough = (
            (self._count(tiles.large), unit.multiprocessors),
            (self.p.rows, tiles.large.rows // 2 + 1),
            (self.p.columns, tiles.large.columns // 2 + 1),
        )
        enough_small = (
            (self._count(tiles.small), unit.multiprocessors // 2),
            (self.p.rows, tiles.strip.rows + 1),
        )
        options: list[tuple[Least, Write]] = [
            (enough, self._write(tiles.large)),
            (enough_small, self._write(tiles.small)),
        ]
        return self._where(
            asked,
            lambda: self._by_size(options, self._write(tiles.strip)),
            self._write(tiles.by_elements, by_chunks=False),
        )

    def along(self, array: str) -> str | None:
        """As `contiguous`, but runs of neighbours are enough, such as channels."""
        for side in "kr":
            if self.is_unit(f"{array}{side}"):
                return f"{array}{side}"
        return None

    def _count(self, tile: FragmentTile) -> Expr:
        p = self.p
        return p.batches * ceil_div(p.rows, tile.rows) * ceil_div(p.columns, tile.columns)

    def _write(self, tile: FragmentTile, *, by_chunks: bool = True) -> Write:
        return lambda: (FragmentWriter(self, tile, by_chunks=by_chunks).launch(),)


class FragmentWriter(ProductWriter):
    """Writes one variant; `by_chunks`: operands consist of whole chunks of 16 bytes."""

    plan: FragmentProduct
    units: ClassVar[str] = "fragments"

    def __init__(self, plan: FragmentProduct, tile: FragmentTile, *, by_chunks: bool) -> None:
        warp = plan.machine.warp
        super().__init__(
            plan, rows=tile.rows, columns=tile.columns, threads=tile.warps * warp, lanes=LANES,
            group=GROUP,
        )  # fmt: skip
        assert plan.unit is not None
        assert self.b_array is not None
        one = self.instruction = plan.unit.instruction
        self.tile_, self.by_chunks = tile, by_chunks
        b, bands = self.b, plan.p.bands
        self.stage_depth = tile.depth_bytes // plan.p.a.bytes
        number, lane = b.thread // warp, b.thread % warp
        deep, flat = number // (tile.down * tile.across), number % (tile.down * tile.across)
        self.deep = deep if tile.deep > 1 else b.index(0)
        self.down, self.across = tile.rows // tile.down, tile.columns // tile.across
        self.warp = (flat // tile.across * self.down, flat % tile.across * self.across)
        """First row and column of this warp in the tile."""
        own, group = one.place(lane)
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
        zero = b.constant(0, self.instruction.sums_type)
        side = self.instruction.side
        count = self.down // side * (self.across // side) * self.p.bands
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
        """Sums of `side` rows and columns after each other: along columns, bands, then rows."""
        b, one, t = self.b, self.instruction, self.tile_
        left, right, side = self.left(stage), self.right(stage), one.side
        for step in range(0, self.stage_depth // t.deep, self.step):
            mine = [one.given(b, left(side * i, step)) for i in range(self.down // side)]
            theirs = [
                one.given(b, right(band * t.columns + side * j, step))
                for band in range(self.p.bands)
                for j in range(self.across // side)
            ]
            for i in range(0, len(mine), one.blocks):
                rows = list(zip(*mine[i : i + one.blocks], strict=True))
                for j, columns in enumerate(theirs):
                    places = [(i + k) * len(theirs) + j for k in range(one.blocks)]
                    for x, y in zip(rows, columns, strict=True):
                        found = one.multiply(b, x, y, [sums[place] for place in places])
                        for place, total in zip(places, found, strict=True):
                            sums[place] = total
        return sums

    def _store_sums(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: list[Register],
    ) -> None:
        side, bands, t = self.instruction.side, self.p.bands, self.tile_
        across = self.across // side
        pieces = []
        for number, one in enumerate(sums):
            group, j = divmod(number, across)
            i, band = divmod(group, bands)
            pieces.append(Piece(one, side * i, side * j, band))
        # As much at once as fits where the operands were.
        size = (t.columns + _PAD) * bands * t.deep * self.p.compute.bytes
        at_once = self.down
        while at_once > side and size * t.down * at_once > self.b.shared_bytes:
            at_once //= 2
        store_pieces(
            self, place, row, column, pieces, self.warp, self.lane, pad=_PAD, parts=t.deep,
            part=self.deep, bands=bands, warp_rows=self.down, at_once=at_once,
        )  # fmt: skip
