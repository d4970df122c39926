"""Products by the matrix units of NVIDIA's GPUs (`mma.sync`, from sm_80 on).

    f16, bf16   as they are
    f32         rounded to tf32, where the program allows it (`Problem.may_round`)

A block of warps computes a tile of C. Tiles of A and B pass through a ring of stages in shared
memory, which `cp.async` fills ahead of the products. Where rows do not lie at multiples of 16 bytes
threads copy elements instead; the host program chooses by the strides. Sums are f32. Every sum is
added up in steps of 32 bytes along K. Where tiles are few, warps share a tile and take steps in
turn; their sums are added in the order of the warps. So sizes and strides alone decide a rounding.

The layouts of fragments are those of NVIDIA's PTX ISA, sections 9.7.14.5.7 and 8 (m16n8k8, k16).
"""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.fragments import STEP_BYTES, Stages
from shlo_disc.lower.cuda.instructions import commit_copies, multiply, wait_for_copies
from shlo_disc.lower.gpu import products
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.products import ProductWriter, TiledProduct
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register, vector_type
from shlo_disc.passes.match_dense import ConvRecord, DenseRecord
from shlo_disc.passes.records import Planned

__all__ = ["MatrixProduct", "Tile", "emit_conv", "emit_dense"]

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
NARROW = Tile(16, 32, 512, 1, 1, 8, 3)

ENOUGH_LARGE, ENOUGH_SMALL = 200, 100
"""Tiles from which on they leave no multiprocessor without work: 132 of an H100 have room for two
each."""


class MatrixProduct(TiledProduct):
    """Plans one problem: by matrix units where the types and layouts are theirs."""

    def steps(self) -> tuple[Step, ...]:
        """The launches, by sizes and strides."""
        if self.element is None:
            return super().steps()
        asked = [
            Condition(stride % self.chunk, "==", Expr.const(0))
            for stride in dict.fromkeys(self._strides())
            if not self.divisible(stride, self.chunk)
        ]
        never = any(self.contiguous(array) is None for array in "ab")
        if never or any(c.lhs.is_const for c in asked):
            return self._with(SMALL, by_chunks=False)
        fast = self._with(NARROW)
        for tile, least in ((SMALL, ENOUGH_SMALL), (LARGE, ENOUGH_LARGE)):
            fast = self._from(tile, least, fast)
        if not asked:
            return fast
        condition = asked[0] if len(asked) == 1 else All(tuple(asked))
        return (If(condition, fast, self._with(SMALL, by_chunks=False)),)

    def _from(self, tile: Tile, least: int, others: tuple[Step, ...]) -> tuple[Step, ...]:
        """`tile` where there are at least so many of it."""
        p = self.p
        tiles = p.batches * ceil_div(p.rows, tile.rows) * ceil_div(p.columns, tile.columns)
        low, high = self.shapes.constraints.bounds(tiles)
        if high is not None and high < least:
            return others
        if low is not None and low >= least:
            return self._with(tile)
        return (If(Condition(tiles, ">=", Expr.const(least)), self._with(tile), others),)

    def _with(self, tile: Tile, *, by_chunks: bool = True) -> tuple[Step, ...]:
        return (_MatrixWriter(self, tile, by_chunks=by_chunks).launch(),)

    @property
    def element(self) -> str | None:
        """What the matrix units multiply: "f16", "bf16" or "tf32"; None: it is not theirs."""
        p = self.p
        if p.a.name != p.b.name or p.compute.name != "f32" or p.bands != 1 or p.is_short:
            return None
        if self.fill is not None:
            return None
        if p.a.name == "f32":
            return "tf32" if p.may_round else None
        return p.a.name if p.a.name in ("f16", "bf16") else None

    @property
    def chunk(self) -> int:
        """Elements in one copy of 16 bytes."""
        return 16 // self.p.a.bytes

    def contiguous(self, array: str) -> str | None:
        """The walk along which neighbours of A or B follow each other in memory, all of them."""
        for side in "kr":
            walk = self.walks[f"{array}{side}"]
            if len(walk) == 1 and walk[0][1] == 1:
                return f"{array}{side}"
        return None

    def _strides(self) -> list[Expr]:
        """Steps between chunks, which must be multiples of one."""
        p, found = self.p, [self.p.a_first, self.p.b_first]
        for array in "ab":
            own = self.contiguous(array)
            found += [getattr(axis, array) for axis in p.batch]
            for side in "kr":
                if f"{array}{side}" != own:
                    found += [stride for _, stride in self.walks[f"{array}{side}"]]
        return found


class _MatrixWriter(ProductWriter):
    """Writes one variant; `by_chunks`: operands are copied 16 bytes at once."""

    plan: MatrixProduct

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
        self._store(place, row, column, k.results)

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

    # ---------------------------------------------------------------- results

    def _store(
        self, place: list[IndexValue], row: IndexValue, column: IndexValue, sums: list[Register]
    ) -> None:
        """Through shared memory, so that neighbouring threads store neighbouring columns."""
        b, t = self.b, self.tile_
        line = t.columns + 4
        memory = b.shared_at("f32", 0, line * t.rows * t.deep)
        pair = vector_type(2, "f32")
        above = self.deep * t.rows + self.first_row + self.lane // 4
        own = above * line + self.first_column + self.lane % 4 * 2
        across = self.across // 8
        for i in range(self.down // 16):
            for j in range(across):
                for half in range(2):
                    at = 4 * (i * across + j) + 2 * half
                    right = f"vector.from_elements {sums[at]}, {sums[at + 1]} : {pair}"
                    both = b.define(Register, right, pair, sums[at : at + 2])
                    there = own + ((16 * i + 8 * half) * line + 8 * j)
                    memory.vector_store(both, there, aligned=True)
        b.barrier_of_block()
        vectors = t.columns // LANES
        count = t.rows * vectors
        with b.loop(b.thread, count, self.threads, hint="part", barrier=True) as part:
            below, there = part.index // vectors, part.index % vectors * LANES
            r, c = row + below, column + there
            with b.if_((r < self.m) & (c < self.n)):
                start = below * line + there
                found = memory.vector_load(start, LANES, False, aligned=True)
                for warp in range(1, t.deep):
                    following = start + warp * t.rows * line
                    found = found + memory.vector_load(following, LANES, False, aligned=True)
                self.store(place, r, c, [found], b.mask(self.n - c, LANES))
        b.barrier_of_block()  # the next tile's copies go where the sums are


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
