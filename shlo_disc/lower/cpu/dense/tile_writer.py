"""The register tile of the dense kernel: sums of a few rows and one panel of columns.

The accumulators are carried by the loop over K. Rows beyond the last are clamped to it: they
compute and store the same values twice, so that rows need no masks; columns are masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shlo_disc.lower.cpu.builder import CpuBuilder, SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.repack import PREFETCH_ROWS
from shlo_disc.lower.cpu.dense.walk import Walk, digits_offset
from shlo_disc.lower.values.builder import vector_type
from shlo_disc.lower.values.elements import Element

__all__ = ["Ahead", "Place", "TileWriter", "multiply_add"]

CHAINS = 8
"""Sums that are added to in turn: two multiply-adds a cycle, four cycles until one is done."""


@dataclass(frozen=True)
class Ahead:
    """What a tile asks for in advance: B from `start` on, `step` elements in a step along K."""

    start: str
    step: str
    panel: str
    """Where the panel begins that `start` is in."""


@dataclass(frozen=True)
class Place:
    """Where a tile is: its first row and column, those of its task, its part of K."""

    m: str
    m0: str
    n: str
    n0: str
    k0: str
    depth: str
    columns: list[str]
    """Masks of the columns that exist, by vector."""
    whole: str
    """Do all columns of the panel exist?"""
    first: str
    """Is this the first block of K, so that there are no sums yet?"""
    b_at: str
    along_m: Walk | None
    """How A's rows follow each other, when they are read in place."""
    ahead: Ahead | None
    """The tile's share of the panel that is read next."""
    sums_at: str
    """Where the sums of the band begin in scratch memory."""


class TileWriter:
    """Writes the products of one tile; `Writer` says where it is and what it reads."""

    def __init__(self, gemm: Gemm, b: SizedBuilder, prefix: str = "") -> None:
        """`prefix` is in front of the names of all sizes, where a kernel has several products."""
        self.g, self.b, self.prefix = gemm, b, prefix
        self.compute = gemm.compute.register
        self.vector = vector_type(gemm.tile.lanes, self.compute)
        self.zero = b.constant(0, "index")
        self.a_in = self.b_in = self.a_mem = self.b_mem = self.sums = ""
        self.a_base = self.b_base = self.c_base = self.zero

    def size(self, name: str) -> str:
        """The size called `name`."""
        return self.b.size(self.prefix + name)

    def tiles(self, heights: Sequence[int], left: str, at: Place) -> None:
        """The rows that are left on the smallest height that holds them, or the largest."""
        b, (height, *more) = self.b, list(heights)
        if not more:
            self._tile(height, at)
            return
        with b.if_(b.cmpi("sle", left, b.constant(height, "index"))) as branch:
            self._tile(height, at)
            with branch.otherwise():
                self.tiles(more, left, at)

    def b_start(self, n: str, n0: str, k0: str) -> str:
        """Where the panel of column `n` starts, of several bands that of the first."""
        g, b = self.g, self.b
        if g.b_mode == "scratch":
            return b.mul(b.mul(b.sub(n, n0), g.bands), self.size("KC"))
        if g.b_mode == "packed":
            panel = b.mul(b.mul(n, g.bands), self.size("K"))
            return b.add(b.add(self.b_base, panel), b.mul(k0, g.tile.columns))
        return b.add(b.add(self.b_base, n), b.mul(k0, self.size("bk0")))

    def _tile(self, height: int, at: Place) -> None:
        """Add `depth` products to the sums of `height` rows and one panel of columns."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        last_row = b.sub(self.size("M"), 1)
        rows = [b.min(b.add(at.m, r), last_row) if r else at.m for r in range(height)]
        a_at = [self._a_start(x, at) for x in rows]
        c_at = self._sums_at(rows, at)
        zero = b.constant(0, self.vector)
        # From zero in every block of K, and added to what there is: the rounding error of a sum
        # grows with the length of its chain.
        sums = [zero] * (height * g.tile.vectors)
        if g.a_mode == "scratch" or g.a.k_steps == 1:
            k0 = self.zero if g.a_mode == "scratch" else at.k0
            sums = self._products([b.add(a, k0) for a in a_at], at, self.zero, at.depth, sums)
        else:
            # A block of K is whole runs of A.
            run = self.size("a_run")
            safe = b.max(run, 1)
            first, runs = b.div(at.k0, safe), b.div(at.depth, safe)
            with b.loop(0, runs, 1, sums, hint="run") as outer:
                offset = digits_offset(
                    b, f"{g.a.array}k", g.a.k_steps - 1, b.add(first, outer.index)
                )
                starts = [b.add(a, offset) for a in a_at]
                k = b.mul(outer.index, run)
                outer.yield_(*self._products(starts, at, k, run, outer.args))
            sums = outer.results
        places = [(b.add(c, v * lanes), at.columns[v]) for c in c_at for v in range(g.tile.vectors)]
        # All loads before all stores: rows beyond the last are the last row again.
        self._store_sums(self._with_earlier(sums, places, at), places, at)

    def _with_earlier(
        self, sums: Sequence[str], places: Sequence[tuple[str, str]], at: Place
    ) -> list[str]:
        """The sums of this block of K and those before it."""
        g, b = self.g, self.b
        add = "arith.addf" if g.compute.is_float else "arith.addi"
        zero = b.constant(0, self.vector)
        with b.if_(at.first) as branch:
            branch.yield_(*sums)
            with branch.otherwise():
                branch.yield_(
                    *(
                        b.op(add, self._load_sums(place, columns, zero), total)
                        for (place, columns), total in zip(places, sums, strict=True)
                    )
                )
        return list(branch.results)

    def _load_sums(self, place: str, columns: str, zero: str) -> str:
        if self.g.c_holds_sums:
            return self.b.masked_load(self.sums, place, columns, zero, readonly=False)
        return self.b.vector_load(self.sums, place, self.g.tile.lanes, readonly=False)

    def _store_sums(
        self, values: Sequence[str], places: Sequence[tuple[str, str]], at: Place
    ) -> None:
        b = self.b

        def store_whole() -> None:
            for (place, _), value in zip(places, values, strict=True):
                b.vector_store(value, self.sums, place)

        if not self.g.c_holds_sums:  # scratch memory has room for whole panels
            store_whole()
            return
        with b.if_(at.whole) as branch:
            store_whole()
            with branch.otherwise():
                for (place, columns), value in zip(places, values, strict=True):
                    b.masked_store(value, self.sums, place, columns)

    def _products(
        self, a_at: Sequence[str], at: Place, k0: str, depth: str, init: Sequence[str]
    ) -> list[str]:
        """`init` plus `depth` products; A from `a_at` on, B from its k0-th row in the block on."""
        g, b = self.g, self.b
        step: str | int = self.size("bk0") if g.b_mode == "direct" else g.tile.columns
        # Carried, not computed from k: the unrolled loop then needs no address arithmetic.
        places = [b.add(at.b_at, b.mul(k0, step))]
        if at.ahead is not None:
            places.append(b.add(at.ahead.start, b.mul(k0, at.ahead.step)))
        chains = max(1, CHAINS // len(init))
        if chains == 1:
            with b.loop(0, depth, 1, [*places, *init], hint="k") as k:
                k.yield_(*self._step(a_at, at, k.index, k.args, len(places), step))
            return k.results[len(places) :]
        # Few rows: several sums an element, of every n-th product, so that none waits for another.
        zero = b.constant(0, self.vector)
        whole = b.sub(depth, b.rem(depth, chains))
        sums = [*init, *[zero] * (len(init) * (chains - 1))]
        with b.loop(0, whole, chains, [*places, *sums], hint="k") as k:
            carried, parts = k.args[: len(places)], k.args[len(places) :]
            out: list[str] = []
            for chain in range(chains):
                mine = parts[chain * len(init) : (chain + 1) * len(init)]
                index = b.add(k.index, chain)
                after = self._step(a_at, at, index, [*carried, *mine], len(places), step)
                carried, out = after[: len(places)], out + after[len(places) :]
            k.yield_(*carried, *out)
        results = k.results
        places, sums = results[: len(places)], results[len(places) :]
        with b.loop(whole, depth, 1, [*places, *sums[: len(init)]], hint="k") as k:
            k.yield_(*self._step(a_at, at, k.index, k.args, len(places), step))
        sums[: len(init)] = k.results[len(places) :]
        add = "arith.addf" if g.compute.is_float else "arith.addi"
        while len(sums) > len(init):
            half = len(sums) // 2
            sums = [b.op(add, x, y) for x, y in zip(sums[:half], sums[half:], strict=True)]
        return sums

    def _step(
        self,
        a_at: Sequence[str],
        at: Place,
        k: str,
        carried: Sequence[str],
        places: int,
        step: str | int,
    ) -> list[str]:
        """One product added to every sum; `carried`: where B is, what is asked for, the sums."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        line, sums = carried[0], list(carried[places:])
        following = [b.add(line, step)]
        values = [
            self._load_b(b.add(line, v * lanes), at.columns[v]) for v in range(g.tile.vectors)
        ]
        if g.b_mode == "direct":
            far = b.add(line, b.mul(self.size("bk0"), PREFETCH_ROWS))
            for v in range(g.tile.vectors):
                b.prefetch(self.b_mem, b.add(far, v * lanes))
        if at.ahead is not None:
            # The hardware's own prefetch starts anew in every page and stands still while a
            # panel is read from L2: without this, few rows run at 0.7 of the speed.
            lines = max(1, g.tile.columns * g.compute.bytes // 64)
            apart = b.div(at.ahead.step, lines)
            for number in range(lines):
                b.prefetch(self.b_mem, b.add(carried[1], b.mul(apart, number)))
            following.append(b.add(carried[1], at.ahead.step))
        for r, a in enumerate(a_at):
            scalar = b.load(self.a_mem, b.add(a, k), readonly=self.a_mem == self.a_in)
            factor = b.broadcast(scalar, lanes)
            for v, value in enumerate(values):
                i = r * g.tile.vectors + v
                sums[i] = multiply_add(b, factor, value, sums[i], g.compute)
        return [*following, *sums]

    def _a_start(self, row: str, at: Place) -> str:
        """Where the elements of a row of A start (in scratch: those of this block of K)."""
        b = self.b
        if at.along_m is None:
            return b.mul(b.sub(row, at.m0), self.size("a_row"))
        start = b.add(self.a_base, at.along_m.first)
        return b.add(start, at.along_m.offset(b.sub(row, at.m0)))

    def _load_b(self, at: str, mask: str) -> str:
        """Lanes of B; in place, the columns beyond the last are not there to be read."""
        g, b = self.g, self.b
        if g.b_mode == "direct":
            return b.masked_load(self.b_mem, at, mask, b.constant(0, self.vector))
        return b.vector_load(self.b_mem, at, g.tile.lanes, readonly=self.b_mem == self.b_in)

    def _sums_at(self, rows: Sequence[str], at: Place) -> list[str]:
        """Where the sums of each row are kept."""
        b = self.b
        if self.g.c_holds_sums:
            return [b.add(self.c_base, b.add(b.mul(x, self.size("c_m")), at.n)) for x in rows]
        base = b.add(at.sums_at, self.kept_at(at.m, at.m0, at.n, at.n0))
        return [b.add(base, b.mul(r, self.size("c_row"))) for r in range(len(rows))]

    def kept_at(self, m: str, m0: str, n: str, n0: str) -> str:
        """Where the sums of a tile are kept in scratch memory.

        One tile is enough when K is one block (`many` is 0), else the task's block of C is kept.
        """
        b = self.b
        down = b.mul(b.sub(m, m0), self.size("c_row"))
        return b.mul(self.size("many"), b.add(down, b.sub(n, n0)))


def multiply_add(b: CpuBuilder, x: str, y: str, total: str, compute: Element) -> str:
    """`total + x * y`, rounded once where the machine does that in hardware."""
    if not compute.is_float:
        return b.op("arith.addi", total, b.op("arith.muli", x, y))
    if b.machine.has_fma:
        return b.op("math.fma", x, y, total)
    return b.op("arith.addf", total, b.op("arith.mulf", x, y))
