"""Products by the matrix units of NVIDIA's GPUs (`mma.sync`, from sm_80 on).

    f16, bf16   as they are
    f32         rounded to tf32, where the program allows it (`Problem.may_round`)
    f64, i8, ui8    through registers (`gpu/fragment_products.py`)

A block of warps computes a tile of C. Tiles of A and B pass through a ring of stages in shared
memory, which `cp.async` fills ahead of the products. Where rows do not lie at multiples of 16 bytes
threads copy elements instead; the host program chooses by the strides. Sums are f32. Every sum is
added up in steps of 32 bytes along K. Where tiles are few, warps share a tile and take steps in
turn; their sums are added in the order of the warps. So sizes and strides alone decide a rounding.

The layouts of fragments are those of NVIDIA's PTX ISA, sections 9.7.14.5.7 and 8 (m16n8k8, k16).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.aligned_copies import AlignedCopy
from shlo_disc.lower.cuda.box_products import BoxWriter, most_index
from shlo_disc.lower.cuda.direct_products import (
    BANDED_DIRECTLY,
    FLAT,
    FLAT_WIDE,
    SLIM,
    WARP_BYTES,
    DirectTile,
    DirectWriter,
    is_direct,
)
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.instructions import (
    STEP_BYTES,
    commit_copies,
    multiply,
    wait_for_copies,
)
from shlo_disc.lower.cuda.machine import WITH_WARPGROUPS
from shlo_disc.lower.cuda.matrix_instructions import instruction_for
from shlo_disc.lower.cuda.persistent_products import PersistentWriter
from shlo_disc.lower.cuda.register_products import RegisterWriter
from shlo_disc.lower.cuda.split_products import Parts, TotalWriter
from shlo_disc.lower.cuda.stages import Stages
from shlo_disc.lower.cuda.warpgroup_products import (
    BANDED,
    CopiedWriter,
    WarpgroupTile,
    multiples_of_chunks,
)
from shlo_disc.lower.cuda.ways import (
    LEAST_TIME,
    MOST_SPLIT,
    MULTIPROCESSORS,
    Way,
    largest_tile,
    ways,
)
from shlo_disc.lower.gpu.fragment_products import (
    FragmentProduct,
    FragmentTile,
    FragmentTiles,
    MatrixUnit,
)
from shlo_disc.lower.gpu.matrix_products import Least, Write
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Condition, Step
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register

LANES = 4
"""Columns that a thread finishes and stores at once."""


@dataclass(frozen=True)
class Tile:
    """How a block divides its work."""

    rows: int
    columns: int
    depth_bytes: int
    """What a stage has along K."""
    down: int
    """Warps below each other."""
    across: int
    """Warps side by side."""
    deep: int
    """Warps that take steps along K in turn."""
    stages: int
    """Stages of the ring in shared memory."""

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.down * self.across * self.deep


LARGE = Tile(128, 128, 128, 2, 4, 1, 3)
SMALL = Tile(64, 64, 128, 2, 2, 2, 4)
STRIP = Tile(16, 32, 512, 1, 1, 8, 3)
"""For few rows: all warps share 16 of them."""

ENOUGH = {LARGE: 200, SMALL: 48}
"""Tiles from which on they take less time than smaller ones.

H200, bf16, K = 768: 48 small tiles take 7.7 us, strips 10.7; 24 take 7.9, strips 6.1.
"""

LEAST_COPIED = 128
"""Rows, columns and products in a sum from which on operands are copied for aligned rows."""

ENOUGH_NARROW = 40
"""Tiles of bands from which on warpgroups compute them."""

FEW_ROWS_DEPTH = 2048
"""Bytes of a row of A from which on few columns are computed directly, not by warpgroups.

H200, 16 rows, 768 columns: 4.7 and 4.1 us for 1536 bytes, 5.0 and 6.8 for 3072, 7.0 and 9.5 for
6144.
"""

MOST_INDEX = (1 << 31) - (1 << 16)
"""Of a box: a 32-bit integer, a tile less."""


THROUGH_REGISTERS = FragmentTiles(
    FragmentTile(128, 128, 64, 2, 4),
    FragmentTile(64, 64, 64, 2, 2),
    FragmentTile(16, 64, 256, 1, 1, 4),
    FragmentTile(64, 64, 64, 2, 4),
    (2, 2),
)
"""For f64 and 8-bit integers. A thread has up to 64 sums of f64, in 128 registers, and loads up to
32 elements one by one.
"""

LEAST_FEW = 4
"""Bytes of elements from which on vectors of few rows are 16 bytes (`few_rows.py`)."""


class MatrixProduct(FragmentProduct):
    """Plans one problem: by matrix units where the types and layouts are theirs."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        if self.element is None:
            if self.unit is None:
                return super().steps()
            few_first = self.p.a.bytes >= LEAST_FEW
            return self._if_few_rows(self.by_fragments) if few_first else self.by_fragments()
        if self.p.bands > 1:
            return self._in_bands()
        asked = self._asked_by_warpgroups()
        if asked is None or not self._takes_boxes():
            return self._few_or_many(asked)
        if not asked:  # large indices are too rare for more than one kernel
            return self._where(
                self._asked_by_boxes(),
                self._by_boxes_or_directly,
                functools.partial(self._launch, SMALL),
            )
        return self._where(
            [*asked, *self._asked_by_boxes()],
            self._by_boxes_or_directly,
            lambda: self._few_or_many(None, never=asked),
        )

    def _few_or_many(
        self, by_warpgroups: list[Condition] | None, never: Sequence[Condition] = ()
    ) -> tuple[Step, ...]:
        """Without tensor maps; `by_warpgroups`: where warpgroups copy. Not all of `never` hold."""
        asked = self._all(self._asked_directly(), self._asked_of(self._few_rows_at_most))
        return self._where(asked, self._directly, lambda: self._of_many_tiles(by_warpgroups, never))

    def _in_bands(self) -> tuple[Step, ...]:
        """Products whose columns are bands."""
        wide, direct = BANDED.get(self.p.bands), BANDED_DIRECTLY.get(self.p.bands)

        def few() -> tuple[Step, ...]:
            if direct is None:
                return super(MatrixProduct, self).steps()
            write = functools.partial(self._direct, direct)
            return self._where(self._asked_directly(), write, super(MatrixProduct, self).steps)

        if wide is None:
            return few()
        enough = self._asked_of(((wide.count(self), ENOUGH_NARROW),))
        asked = self._all(self._asked_by_warpgroups(), self._asked_by_boxes(), enough)
        return self._where(asked, functools.partial(self._by_warpgroups, wide), few)

    def _directly(self) -> tuple[Step, ...]:
        """Up to 16 rows of operands that consist of whole chunks."""
        tiles = (SLIM, FLAT[self.p.a.bytes])
        return self._by_size(
            [(self._in_a_turn(tile), functools.partial(self._direct, tile)) for tile in tiles],
            functools.partial(self._direct, FLAT_WIDE),
        )

    def _by_boxes_or_directly(self) -> tuple[Step, ...]:
        """Operands consist of whole chunks: directly, or as warpgroups take the least time."""
        if not is_direct(self):
            return self._least_time()
        least = FEW_ROWS_DEPTH // self.p.a.bytes
        is_slim = (*self._few_rows_at_most, *self._in_a_turn(SLIM), (self.p.depth, least))
        slim = functools.partial(self._direct, SLIM)
        return self._by_size([(is_slim, slim)], self._least_time)

    @property
    def _few_rows_at_most(self) -> Least:
        return ((SLIM.rows - self.p.rows, 0),)

    def _in_a_turn(self, tile: DirectTile) -> Least:
        """What is asked for each multiprocessor to have one tile at most; all rows are in one."""
        count = self.p.batches * ceil_div(self.p.columns, tile.columns)
        return ((MULTIPROCESSORS - count, 0),)

    def _direct(self, tile: DirectTile) -> tuple[Step, ...]:
        steps = ceil_div(self.p.depth, WARP_BYTES // self.p.a.bytes)
        return (DirectWriter(self, tile.for_depth(steps)).launch(),)

    def _of_many_tiles(
        self, by_warpgroups: list[Condition] | None, never: Sequence[Condition]
    ) -> tuple[Step, ...]:
        def otherwise() -> tuple[Step, ...]:
            there = [*never, *(by_warpgroups or ())]
            return self._with_copies(lambda: self._by_warps((LARGE, SMALL), never=there))

        return self._where(by_warpgroups, self._least_time, otherwise)

    def _with_copies(self, otherwise: Write) -> tuple[Step, ...]:
        """By warpgroups, of copies with aligned rows where operands may have others.

        `otherwise`: for products that are not worth it, and layouts without boxes.
        """
        p = self.p
        if not self._takes_boxes() or any(len(axes) > 1 for axes in (p.m, p.n, p.k)):
            return otherwise()
        enough = [(size, LEAST_COPIED) for size in (p.rows, p.columns, p.depth)]
        index = most_index(self)
        assert index is not None
        return self._by_size([((*enough, (MOST_INDEX - index, 1)), self._of_copies)], otherwise)

    def _of_copies(self) -> tuple[Step, ...]:
        assert self.panels is not None
        problem, first, copies = self.p, Expr.const(0), list[Step]()
        buffers = {"a": self.a_buffer, "b": self.b_buffer}
        for array in "ab":
            if all(self.divisible(size, self.chunk) for size in self.strides_of(array)):
                continue
            copy = AlignedCopy(self, array, first, self.panels)
            problem, first = copy.problem(problem), first + copy.elements
            buffers[array] = self.panels
            copies.append(copy.launch())
        # No memory where nothing is copied.
        sizes = [size % self.chunk for size in dict.fromkeys(self.whole_chunks() or [])]
        size = first * self.p.a.bytes * Expr.min(sum(sizes, Expr.const(0)), 1)
        for enough in (self.p.rows, self.p.columns, self.p.depth):
            size = size * Expr.min(enough // LEAST_COPIED, 1)
        self.panel_bytes = size if self.panel_bytes is None else Expr.max(self.panel_bytes, size)
        a, b = buffers["a"], buffers["b"]
        product = type(self)(replace(self.request, problem=problem, a_buffer=a, b_buffer=b))
        return (*copies, *product._by_boxes(largest_tile(product)))

    def _least_time(self) -> tuple[Step, ...]:
        """By the way of warpgroups that takes the least time."""
        return self._least_of([(way, way.time(self)) for way in ways(self)])

    def _least_of(self, timed: Sequence[tuple[Way, Expr]]) -> tuple[Step, ...]:
        (way, time), *others = timed
        write = functools.partial(self._by_way, way)
        if not others:
            return write()
        least: Least = ()
        if way.parts > 1:
            least += ((MOST_SPLIT - way.tile.count(self), 0),)
        if way.stays:
            least += ((self.p.depth, 1),)
        asked = self._all(_no_more(time, [other for _, other in others]), self._asked_of(least))
        return self._where(asked, write, lambda: self._least_of(others), LEAST_TIME)

    def _by_way(self, way: Way) -> tuple[Step, ...]:
        if way.stays:
            return (PersistentWriter(self, way.tile).launch(),)
        if way.parts == 1:
            return self._by_warpgroups(way.tile)
        assert self.panels is not None
        parts = Parts(way.parts, self.panels)
        most = MOST_SPLIT * way.tile.rows * way.tile.columns * 4 * way.parts
        self.panel_bytes = Expr.min(parts.bytes(self), most)
        return (*self._by_warpgroups(way.tile, parts), TotalWriter(self, parts).launch())

    def _by_warps(self, tiles: Sequence[Tile], never: Sequence[Condition] = ()) -> tuple[Step, ...]:
        """By `mma.sync`: the first of `tiles` of which there are enough.

        Not all of `never` hold, if there are any.
        """
        asked = None
        if all(self.contiguous(array) for array in "ab"):
            asked = self._multiples(self.strides())
        if asked and set(asked) == set(never):
            asked = None
        return self._where(
            asked,
            lambda: self._by_size([self._option(tile) for tile in tiles], self._strips),
            lambda: self._if_few_rows(
                lambda: (_MatrixWriter(self, SMALL, by_chunks=False).launch(),)
            ),
        )

    def _option(self, tile: Tile) -> tuple[Least, Write]:
        p = self.p
        count = p.batches * ceil_div(p.rows, tile.rows) * ceil_div(p.columns, tile.columns)
        return ((count, ENOUGH[tile]),), functools.partial(self._launch, tile)

    def _launch(self, tile: Tile) -> tuple[Step, ...]:
        return (_MatrixWriter(self, tile, by_chunks=True).launch(),)

    def _strips(self) -> tuple[Step, ...]:
        return self._launch(STRIP)

    def _by_warpgroups(self, tile: WarpgroupTile, parts: Parts | None = None) -> tuple[Step, ...]:
        if most_index(self) is None:
            return (CopiedWriter(self, tile, parts).launch(),)
        return self._by_boxes(tile, parts)

    def _by_boxes(self, tile: WarpgroupTile, parts: Parts | None = None) -> tuple[Step, ...]:
        in_registers = self.element == "tf32" and self._has_contiguous_rows()
        writer = RegisterWriter if in_registers else BoxWriter
        return (writer(self, tile, parts).launch(),)

    # ---------------------------------------------------------------- choices

    def _asked_by_warpgroups(self) -> list[Condition] | None:
        """What strides must be for warpgroups to compute the product; None: they never do."""
        if self.machine.architecture not in WITH_WARPGROUPS:
            return None
        if self.element == "tf32" and not self._takes_boxes():
            return None
        sizes = multiples_of_chunks(self)
        return None if sizes is None else self._multiples(sizes)

    def _takes_boxes(self) -> bool:
        """True if warpgroups compute products of this layout, of one band, by tensor maps."""
        if self.machine.architecture not in WITH_WARPGROUPS or self.p.bands > 1:
            return False
        if multiples_of_chunks(self) is None or most_index(self) is None:
            return False
        return self.element != "tf32" or not self._has_contiguous_rows("ab")

    def _asked_by_boxes(self) -> list[Condition]:
        """What sizes must be for boxes of tensor maps, whose indices are 32-bit integers."""
        size = most_index(self)
        if size is None:
            return []
        _, most = self.shapes.constraints.bounds(size)
        is_proved = most is not None and most < MOST_INDEX
        return [] if is_proved else [Condition(size, "<", Expr.const(MOST_INDEX))]

    def _has_contiguous_rows(self, arrays: str = "") -> bool:
        """True if neighbours along rows, not K, follow each other in memory: of all, or of one."""
        found = [self.contiguous(array) == f"{array}r" for array in "ab"]
        return all(found) if arrays else any(found)

    def _asked_directly(self) -> list[Condition] | None:
        """What must be asked for operands to go straight to registers; None: they never do."""
        sizes = multiples_of_chunks(self) if is_direct(self) else None
        return None if sizes is None else self._multiples(sizes)

    # ---------------------------------------------------------------- what a problem is

    @property
    def element(self) -> str | None:
        """What the matrix units multiply: "f16", "bf16" or "tf32"; None: it is not theirs."""
        operand = self.operand
        if operand == "f32":
            return "tf32" if self.p.may_round else None
        return operand if operand in ("f16", "bf16") else None

    @functools.cached_property
    def unit(self) -> MatrixUnit | None:
        """See `FragmentProduct.unit`; types of :attr:`element` have other kernels."""
        element = self.operand
        one = instruction_for(self.machine.architecture, element) if element is not None else None
        return None if one is None else MatrixUnit(one, THROUGH_REGISTERS, MULTIPROCESSORS)


class _MatrixWriter(ProductWriter):
    """Writes one variant; `by_chunks`: operands are copied 16 bytes at once."""

    plan: MatrixProduct
    units = "warps"

    def __init__(self, plan: MatrixProduct, tile: Tile, *, by_chunks: bool) -> None:
        threads = tile.warps * plan.machine.warp
        super().__init__(plan, rows=tile.rows, columns=tile.columns, threads=threads, lanes=LANES)
        self.tile_, self.threads = tile, threads
        b = self.b
        depth = tile.depth_bytes // plan.p.a.bytes
        self.stage_depth = depth
        self.lane = b.thread % plan.machine.warp
        warp = b.thread // plan.machine.warp
        self.deep, flat = warp // (tile.down * tile.across), warp % (tile.down * tile.across)
        self.down, self.across = tile.rows // tile.down, tile.columns // tile.across
        self.first_row = flat // tile.across * self.down
        self.first_column = flat % tile.across * self.across
        shared = (tile.stages, depth, by_chunks)
        self.lefts = Stages(self, "a", self._array("a"), tile.rows, *shared)
        self.rights = Stages(self, "b", self._array("b"), tile.columns, *shared)

    def _array(self, array: str) -> MemRef:
        found = self.a if array == "a" else self.b_array
        assert found is not None
        return found

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, t, depth = self.b, self.tile_, self.stage_depth
        copies = [
            self.lefts.copies(self.origin(place, "a"), row, self.m),
            self.rights.copies(self.origin(place, "b"), column, self.n),
        ]
        steps = self.depth.ceil_div(depth)
        whole = self.depth // depth
        is_whole = self.plan.divisible(self.p.depth, depth)

        def begin(number: IndexValue) -> None:
            """Begin to fill the stage of step `number`, if there is such a step."""
            stage = number % t.stages
            with b.if_(number < whole):
                for copy in copies:
                    copy(number * depth, stage, None)
            if not is_whole:
                with b.if_(number.equals(whole) & (whole < steps)):
                    for copy in copies:
                        copy(number * depth, stage, self.depth)
            commit_copies(b)  # groups are counted, empty ones too

        with b.loop(0, t.stages - 1, 1, hint="stage", barrier=True) as first:
            begin(first.index)
        zero = b.constant(0.0, "f32")
        count = self.down // 16 * (self.across // 8) * 4
        with b.loop(0, steps, 1, [zero] * count, hint="k", barrier=True) as k:
            wait_for_copies(b, t.stages - 2)
            b.barrier_of_block()  # the stage is there, and the one before has been read
            begin(k.index + (t.stages - 1))
            k.yield_(*self._multiplied(k.index % t.stages, list(k.args)))
        b.barrier_of_block()  # all have read the last stage: sums take its place
        own, sums = (self.first_row, self.first_column), k.results
        store_sums(self, place, row, column, sums, own, self.across, t.deep, self.deep)

    # ---------------------------------------------------------------- sums

    def _multiplied(self, stage: IndexValue, sums: list[Register]) -> list[Register]:
        b, t = self.b, self.tile_
        element = self.plan.element
        assert element is not None
        own = t.depth_bytes // t.deep
        left = self.lefts.fragments(stage, self.first_row, self.deep * own, is_left=True)
        right = self.rights.fragments(stage, self.first_column, self.deep * own, is_left=False)
        for step in range(0, own, STEP_BYTES):
            mine = [left(16 * i, step) for i in range(self.down // 16)]
            theirs = [
                half
                for j in range(self.across // 16)
                for whole in [right(16 * j, step)]
                for half in (whole[:2], whole[2:])
            ]
            for i, one in enumerate(mine):
                for j, other in enumerate(theirs):
                    place = 4 * (i * len(theirs) + j)
                    before = sums[place : place + 4]
                    sums[place : place + 4] = multiply(b, element, one, other, before)
        return sums


def _no_more(time: Expr, others: Sequence[Expr]) -> list[Condition] | None:
    """What must be asked for `time` to be at most each of `others`; None: it is not.

    Nothing is proved about times of run-time sizes: their formulas are long, and seldom comparable.
    """
    if time.is_const and any(other.is_const and other.value < time.value for other in others):
        return None
    return [
        Condition(other, ">=", time) for other in others if not (time.is_const and other.is_const)
    ]
