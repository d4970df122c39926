"""The register tile of the dense kernel: sums of a few rows and one panel of columns.

The accumulators are carried by the loop over K. Rows beyond the last are clamped to it: they
compute and store the same values twice, so that rows need no masks; columns are masked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.builder import CpuBuilder, SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.repack import PREFETCH_ROWS, load_as
from shlo_disc.lower.cpu.dense.tiles import WHOLE_MASKS
from shlo_disc.lower.cpu.dense.walk import Walk, digits_offset
from shlo_disc.lower.cpu.dense.words import Words
from shlo_disc.lower.kernels.strips import whole_strips
from shlo_disc.lower.products.prologue import OperandPlace
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Pointer,
    Register,
    Value,
    vector_type,
)

Multiply = Callable[[Register, Register, Register], Register]
"""From a factor of A, one of B and a sum to the sum with their product."""

CHAINS = 8
"""Sums that are added to in turn: two multiply-adds a cycle, four cycles until one is done."""


def chains_of(registers: int) -> int:
    """Into how many sums each of so many registers is split."""
    return max(1, CHAINS // registers)


@dataclass(frozen=True)
class Ahead:
    """What a tile asks for in advance: B from `start` on, `step` elements in a step along K."""

    start: IndexValue
    step: IndexValue
    panel: IndexValue
    """Where the panel begins that `start` is in."""


@dataclass(frozen=True)
class Place:
    """Where a tile is: its first row and column, those of its task, its part of K."""

    m: IndexValue
    m0: IndexValue
    n: IndexValue
    n0: IndexValue
    k0: IndexValue
    depth: IndexValue
    columns: list[Mask]
    """Masks of the columns that exist, by vector."""
    whole: Mask
    """True if all columns of the panel exist."""
    first: Mask
    """True in the first block of K: there are no sums yet."""
    b_at: IndexValue
    along_m: Walk | None
    """How A's rows follow each other, when they are read in place."""
    ahead: Ahead | None
    """The tile's share of the panel that is read next."""
    sums_at: IndexValue
    """Where the sums of the band begin in scratch memory."""
    is_whole: bool = False
    """The text is for panels of which all columns exist."""

    @property
    def masks(self) -> Sequence[Mask | None]:
        """Those that B is read with, by vector."""
        return [None] * len(self.columns) if self.is_whole else self.columns


class TileWriter:
    """Writes the products of one tile; `Writer` says where it is and what it reads."""

    def __init__(self, gemm: Gemm, b: SizedBuilder, prefix: str = "") -> None:
        """`prefix` is in front of the names of all sizes, where a kernel has several products."""
        self.g, self.b, self.prefix = gemm, b, prefix
        self.compute = gemm.compute.register
        self.vector = vector_type(gemm.tile.lanes, self.compute)
        self.zero = b.index(0)
        self.a_in: MemRef | None = None
        self.b_in: MemRef | None = None
        """The arrays that are read, where there are any."""
        self.c_out: MemRef
        self.a_mem: MemRef
        """A in the type that is computed with: `a_in`, or a copy in scratch memory."""
        self.b_mem: MemRef
        """The same of B."""
        self.sums: MemRef
        """Where sums are kept: `c_out`, or scratch memory."""
        self.a_base = self.b_base = self.c_base = self.zero
        self.batch_digits: list[IndexValue] = []
        """The index along every batch axis."""

    def size(self, name: str) -> IndexValue:
        """The size called `name`."""
        return self.b.size(self.prefix + name)

    @property
    def keeps_sums_in_registers(self) -> bool:
        """Whether a step along K has room for the sums, as it is written.

        It holds the sums, a register of A, those of B, and without AVX-512 masks of B in place.
        """
        g, machine = self.g, self.g.machine
        masks = g.b_mode == "direct" and machine.vector_bytes < WHOLE_MASKS
        held = g.tile.rows * g.tile.vectors + 1 + g.tile.vectors * (1 + masks)
        return held <= machine.vector_registers

    @property
    def block_rows(self) -> IndexValue:
        """Rows of a block of B in scratch memory."""
        return self.size("KC") if self.g.words is None else self.size("KC") + 1

    @property
    def a_note(self) -> IndexValue:
        """Where the note of a block of A is, behind its rows."""
        return self.size("MC") * self.size("a_row")

    def tiles(self, heights: Sequence[int], left: IndexValue, at: Place) -> None:
        """The rows that are left on the smallest height that holds them, or the largest."""
        b, (height, *more) = self.b, list(heights)
        if not more:
            self._tile(height, at)
            return
        b.either(left <= height, lambda: self._tile(height, at), lambda: self.tiles(more, left, at))

    def b_start(self, n: IndexValue, n0: IndexValue, k0: IndexValue) -> IndexValue:
        """Where the panel of column `n` starts, of several bands that of the first."""
        g, _b = self.g, self.b
        if g.b_mode == "scratch":
            return (n - n0) * g.bands * self.block_rows
        if g.b_mode == "packed":
            panel = n * g.bands * self.size("K" if g.words is None else "K_panel")
            if g.words is not None:  # a note behind every block
                k0 = k0 + k0 // self.size("KC")
            return self.b_base + panel + k0 * g.tile.columns
        if g.b_mode == "computed":  # which counts rows
            return k0
        return self.b_base + n + k0 * self.size("bk0")

    def _tile(self, height: int, at: Place) -> None:
        """Add `depth` products to the sums of `height` rows and one panel of columns."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        last_row = self.size("M") - 1
        rows = [b.min(at.m + r, last_row) if r else at.m for r in range(height)]
        a_at = [self._a_start(x, at) for x in rows]
        c_at = self._sums_at(rows, at)
        zero = b.constant(0, self.vector)
        # From zero in every block of K, and added to what there is: the rounding error of a sum
        # grows with the length of its chain.
        sums = [zero] * (height * g.tile.vectors)
        if g.a_mode == "scratch" or g.a.k_steps == 1:
            k0 = self.zero if g.a_mode == "scratch" else at.k0
            starts = [a + k0 * g.a.k_apart for a in a_at]
            if g.words is not None:
                sums = self._products_of_words(g.words, starts, at, sums)
            else:
                sums = self._products(starts, at, self.zero, at.depth, sums)
        else:
            # A block of K is whole runs of A.
            run = self.size("a_run")
            safe = b.max(run, 1)
            first, runs = at.k0 // safe, at.depth // safe
            with b.loop(0, runs, 1, sums, hint="run") as outer:
                offset = digits_offset(b, f"{g.a.array}k", g.a.k_steps - 1, first + outer.index)
                k = outer.index * run
                outer.yield_(*self._products(a_at, at, k, run, outer.args, first=offset))
            sums = outer.results
        places = [(c + v * lanes, at.columns[v]) for c in c_at for v in range(g.tile.vectors)]
        # All loads before all stores: rows beyond the last are the last row again.
        self._store_sums(self._with_earlier(sums, places, at), places, at)

    def _with_earlier(
        self, sums: Sequence[Register], places: Sequence[tuple[IndexValue, Mask]], at: Place
    ) -> list[Register]:
        """The sums of this block of K and those before it."""
        zero, pairs = self.b.constant(0, self.vector), list(zip(places, sums, strict=True))
        return self.b.either(
            at.first,
            lambda: sums,
            lambda: [self._load_sums(*place, zero) + total for place, total in pairs],
        )

    def _load_sums(self, place: IndexValue, columns: Mask, zero: Register) -> Register:
        if self.g.c_holds_sums:
            return self.sums.masked_load(place, columns, zero, readonly=False)
        return self.sums.vector_load(place, self.g.tile.lanes, readonly=False)

    def _store_sums(
        self, values: Sequence[Register], places: Sequence[tuple[IndexValue, Mask]], at: Place
    ) -> None:
        def store_whole() -> None:
            for (place, _), value in zip(places, values, strict=True):
                self.sums.vector_store(value, place)

        def store_masked() -> None:
            for (place, columns), value in zip(places, values, strict=True):
                self.sums.masked_store(value, place, columns)

        if not self.g.c_holds_sums:  # scratch memory has room for whole panels
            store_whole()
        elif self.g.machine.vector_bytes >= WHOLE_MASKS:  # as fast, and half of the text
            store_masked()
        elif at.is_whole:
            store_whole()
        else:
            self.b.either(at.whole, store_whole, store_masked)

    def _products_of_words(
        self, words: Words, a_at: Sequence[IndexValue], at: Place, zeros: list[Register]
    ) -> list[Register]:
        """The sums of a block; `a_at`: where the words of each row begin."""
        g, b = self.g, self.b
        note = at.b_at + at.depth * g.tile.columns
        if not words.is_float:
            init = zeros
            if words.inverts_a:
                init = [
                    self.b_mem.vector_load(note + v * g.tile.lanes, g.tile.lanes, readonly=False)
                    for v in range(g.tile.vectors)
                ] * len(a_at)
            multiply = functools.partial(words.multiply_add, b)
            return self._products(a_at, at, self.zero, at.depth, init, multiply)
        bounds = [
            self.a_mem.load(self.a_note, readonly=False), self.b_mem.load(note, readonly=False)
        ]  # fmt: skip
        products = functools.partial(self._products, a_at, at, self.zero, at.depth, zeros)
        return b.either(
            words.are_large(*bounds),
            lambda: products(functools.partial(words.multiply_add, b)),
            lambda: products(functools.partial(words.multiply_add_widened, b)),
        )

    def _products(
        self,
        a_at: Sequence[IndexValue],
        at: Place,
        k0: IndexValue,
        depth: IndexValue,
        init: Sequence[Register],
        multiply: Multiply | None = None,
        first: IndexLike = 0,
    ) -> list[Register]:
        """`init` plus `depth` products; A from element `first` behind `a_at` on, B from its k0-th
        row in the block on.

        `multiply`: in place of a multiply-add of the compute type.
        """
        g, b = self.g, self.b
        multiply = multiply or functools.partial(multiply_add, b, compute=g.compute, short=g.short)
        step: IndexLike = 1 if g.b_mode == "computed" else g.tile.columns
        if g.b_mode == "direct":
            step = self.size("bk0")
        # Carried, not computed from k: the unrolled loop then needs no address arithmetic.
        places = [at.b_at + k0 * step]
        if at.ahead is not None:
            places.append(at.ahead.start + k0 * at.ahead.step)
        split = len(places)
        # The rows, not where their runs begin: these all move by one index.
        rows, first = [b.place_in(self.a_mem, row) for row in a_at], b.index(first)
        chains = 1 if g.short else chains_of(len(init))
        if chains == 1:
            with b.loop(0, depth, 1, [*places, *init], hint="k") as k:
                places, sums = IndexValue.each_of(k.args[:split]), Register.each_of(k.args[split:])
                places, sums = self._step(rows, at, first, k.index, places, sums, step, multiply)
                k.yield_(*places, *sums)
            return Register.each_of(k.results[split:])
        # Few rows: several sums an element, of every n-th product, so that none waits for another.
        zero = b.constant(0, self.vector)
        sums = [*init, *[zero] * (len(init) * (chains - 1))]

        def several(k: IndexValue, carried: list[Value]) -> list[Value]:
            places, parts = IndexValue.each_of(carried[:split]), Register.each_of(carried[split:])
            out: list[Register] = []
            for chain in range(chains):
                mine = parts[chain * len(init) : (chain + 1) * len(init)]
                places, after = self._step(rows, at, first, k + chain, places, mine, step, multiply)
                out += after
            return [*places, *out]

        end, carried = whole_strips(b, 0, depth, chains, several, [*places, *sums], hint="k")
        places, sums = IndexValue.each_of(carried[:split]), Register.each_of(carried[split:])
        with b.loop(end, depth, 1, [*places, *sums[: len(init)]], hint="k") as k:
            places, mine = IndexValue.each_of(k.args[:split]), Register.each_of(k.args[split:])
            places, mine = self._step(rows, at, first, k.index, places, mine, step, multiply)
            k.yield_(*places, *mine)
        sums[: len(init)] = Register.each_of(k.results[split:])
        while len(sums) > len(init):
            half = len(sums) // 2
            sums = [x + y for x, y in zip(sums[:half], sums[half:], strict=True)]
        return sums

    def _step(
        self,
        a_at: Sequence[Pointer],
        at: Place,
        first: IndexValue,
        k: IndexValue,
        places: Sequence[IndexValue],
        sums: Sequence[Register],
        step: IndexLike,
        multiply: Multiply,
    ) -> tuple[list[IndexValue], list[Register]]:
        """One product added to every sum; `places`: where B is, and what is asked for."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        line, sums = places[0], list(sums)
        following = [line + step]
        if g.b_mode == "computed":
            values = self._computed_b(at, line)
        else:
            masks = enumerate(at.masks)
            values = [self._load_b(line + v * lanes, mask) for v, mask in masks]
        if g.b_mode == "direct":
            far = line + self.size("bk0") * PREFETCH_ROWS
            for v in range(g.tile.vectors):
                self.b_mem.prefetch(far + v * lanes)
        if at.ahead is not None:
            # The hardware's own prefetch starts anew in every page and stands still while a
            # panel is read from L2: without this, few rows run at 0.7 of the speed.
            lines = max(1, g.tile.columns * g.compute.bytes // 64)
            apart = at.ahead.step // lines
            for number in range(lines):
                self.b_mem.prefetch(places[1] + apart * number)
            following.append(places[1] + at.ahead.step)
        for r, a in enumerate(a_at):
            readonly = self.a_mem is self.a_in
            scalar = b.load_at(a, first + k * g.a.k_apart, self.a_mem.element, readonly=readonly)
            factor = b.broadcast(scalar, lanes)
            for v, value in enumerate(values):
                i = r * g.tile.vectors + v
                sums[i] = multiply(factor, value, sums[i])
        return following, sums

    def _a_start(self, row: IndexValue, at: Place) -> IndexValue:
        """Where the elements of a row of A start (in scratch: those of this block of K)."""
        if at.along_m is None:
            return (row - at.m0) * self.size("a_row")
        start = self.a_base + at.along_m.first
        return start + at.along_m.offset(row - at.m0)

    def _computed_b(self, at: Place, row: IndexValue) -> list[Register]:
        """The vectors of B at `row`."""
        g, b = self.g, self.b
        assert g.fill is not None, "B is computed"
        ahead = b.min(row + PREFETCH_ROWS, self.size("K") - 1)
        g.fill.ask(b, OperandPlace(self.batch_digits, ahead, at.n), None)
        return [
            g.fill(b, OperandPlace(self.batch_digits, row, at.n + v * g.tile.lanes), mask)
            for v, mask in enumerate(at.masks)
        ]

    def _load_b(self, at: IndexValue, mask: Mask | None) -> Register:
        """Lanes of B; in place, the columns beyond the last are not there to be read."""
        g, b = self.g, self.b
        if g.b_mode == "direct":
            return load_as(b, self.b_mem, g.b.element, at, g.tile.lanes, g.compute, mask)
        return self.b_mem.vector_load(at, g.tile.lanes, readonly=self.b_mem is self.b_in)

    def _sums_at(self, rows: Sequence[IndexValue], at: Place) -> list[IndexValue]:
        """Where the sums of each row are kept."""
        if self.g.c_holds_sums:
            return [self.c_base + (x * self.size("c_m") + at.n) for x in rows]
        base = at.sums_at + self.kept_at(at.m, at.m0, at.n, at.n0)
        return [base + r * self.size("c_row") for r in range(len(rows))]

    def kept_at(self, m: IndexValue, m0: IndexValue, n: IndexValue, n0: IndexValue) -> IndexValue:
        """Where the sums of a tile are kept in scratch memory.

        One tile is enough when K is one block (`many` is 0), else the task's block of C is kept.
        """
        down = (m - m0) * self.size("c_row")
        return self.size("many") * (down + (n - n0))


def multiply_add(
    b: CpuBuilder,
    x: Register,
    y: Register,
    total: Register,
    compute: ElementType,
    short: bool = False,
) -> Register:
    """`total + x * y`, rounded once where the machine does that in hardware.

    `short`: always rounded twice (`Problem.is_short`).
    """
    if compute.is_float and b.machine.has_fma and not short:
        return b.op("math.fma", x, y, total)
    return total + x * y
