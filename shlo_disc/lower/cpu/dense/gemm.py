"""The dense kernel: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

A task is a block of C: `MC` x `NC` elements of one batch entry. Inside, blocks of K (outermost),
panels of columns, tiles of rows; a tile's accumulators are carried by the loop over K. Rows beyond
the last are clamped to it: they compute and store the same values twice, so that rows need no
masks; columns are masked.

B is read from panels of `columns` columns, K after K (`packed`: they are there; `scratch`: the
kernel copies its block first), or in place when its columns are neighbours (`direct`). A is read in
place, one element broadcast at a time, or from rows copied to scratch (another type or layout).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.dense.problem import Axis
from shlo_disc.lower.cpu.dense.repack import PREFETCH_ROWS, Source, repack
from shlo_disc.lower.cpu.dense.text import SizedText
from shlo_disc.lower.cpu.dense.tiles import Tile
from shlo_disc.lower.cpu.elements import Element
from shlo_disc.lower.cpu.index import Ix
from shlo_disc.lower.cpu.scalar import convert
from shlo_disc.lower.cpu.text import Text, lanes_of, vector_type

__all__ = [
    "Fill",
    "Finish",
    "Gemm",
    "Operand",
    "Writer",
    "copy_panel",
    "multiply_add",
    "pack_kernel",
    "walk",
]


CHAINS = 8
"""Sums that are added to in turn: two multiply-adds a cycle, four cycles until one is done."""


class Finish(Protocol):
    """Computes result elements from finished sums."""

    def __call__(
        self, b: SizedText, sums: str, place: list[str], row: str, column: str, mask: str
    ) -> str:
        """`sums`: a vector of the compute type, in the columns from `column` on of `row`.

        `place`: the index along every batch axis. Returns the vector of result registers; its
        lanes off in `mask` may hold anything.
        """
        ...

    @property
    def reads_rows(self) -> bool:
        """Does it read other memory than a vector of columns?"""
        ...

    def at(self, b: SizedText, sums: str, axes: Sequence[tuple[Axis, Ix]], mask: str | None) -> str:
        """Like a call, at an index along any axes of the result, one of them in lanes."""
        ...

    def ask(self, b: SizedText, place: list[str], row: str, column: str, mask: str) -> None:
        """Prefetch what a call for this place will read."""
        ...


class Fill(Protocol):
    """Computes elements of B that are not in memory."""

    def __call__(
        self, b: SizedText, place: list[str], k: str, column: str, mask: str | None
    ) -> str:
        """A vector of the compute type: B at `k`, columns from `column` on. Lanes off in `mask` may
        hold anything.

        `place`: the index along every batch axis.
        """
        ...


@dataclass(frozen=True)
class Operand:
    """How A or B lies in memory; its rows run along M (N for B)."""

    array: str
    """a or b: the sizes of this operand are named `ar0` (stride of the first row step), ..."""
    element: Element
    row_steps: int
    k_steps: int
    row_unit: bool
    """Neighbours along the innermost row step are neighbours in memory; likewise `k_unit`."""
    k_unit: bool
    batch: tuple[bool, ...]
    """Which batch axes move it."""
    first: bool = False
    """Its first element is not where its memory begins."""

    @property
    def row_run(self) -> bool:
        """Rows follow each other in memory, all of them; likewise `k_run`."""
        return self.row_unit and self.row_steps == 1

    @property
    def k_run(self) -> bool:
        """See `row_run`."""
        return self.k_unit and self.k_steps == 1


@dataclass(frozen=True)
class Gemm:
    """What is part of the text; sizes and strides are parameters."""

    a: Operand
    b: Operand
    c: Element
    compute: Element
    tile: Tile
    a_mode: str
    """direct or scratch."""
    b_mode: str
    """direct, scratch or packed."""
    c_unit: bool
    fma: bool
    finish: Finish | None = None
    """Computes the result from the sums (None: it is the sum, converted)."""
    fill: Fill | None = None
    """Computes B (mode scratch) instead of reading it."""

    @property
    def c_holds_sums(self) -> bool:
        """The result itself can hold unfinished sums between blocks of K."""
        return self.finish is None and self.c_unit and self.c.register == self.compute.register

    def write(self, sizes: dict[str, Expr]) -> tuple[str, tuple[Expr, ...]]:
        """The kernel over arguments (A, B, C, ...), and its parameters."""
        return Writer(self, SizedText(sizes)).write()


@dataclass(frozen=True)
class _Ahead:
    """What a tile asks for in advance: B from `start` on, `step` elements in a step along K."""

    start: str
    step: str


@dataclass(frozen=True)
class _At:
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
    ahead: _Ahead | None
    """The tile's share of the panel that is read next."""


class Writer:
    """Writes a kernel over tasks of `MC` x `NC` elements of C."""

    def __init__(self, gemm: Gemm, b: SizedText, prefix: str = "") -> None:
        """`prefix` is in front of the names of all sizes, where a kernel has several products."""
        self.g, self.b, self.prefix = gemm, b, prefix
        self.compute = gemm.compute.register
        self.vector = vector_type(gemm.tile.lanes, self.compute)
        self.zero = b.constant(0, "index")
        self.batch_digits: list[str] = []
        self.a_in = self.b_in = ""

    def size(self, name: str) -> str:
        """The size called `name`."""
        return self.b.size(self.prefix + name)

    # ---------------------------------------------------------------- tasks

    def write(self) -> tuple[str, tuple[Expr, ...]]:
        """The text and its parameters."""
        g, b = self.g, self.b
        self.a_in = b.memref(0, g.a.element.storage)
        b_storage = self.compute if g.b_mode == "packed" else g.b.element.storage
        self.b_in = b.memref(1, b_storage)
        self.c_out = b.memref(2, g.c.storage)
        self.a_mem, self.b_mem, self.sums = self.a_in, self.b_in, self.c_out
        if g.b_mode == "scratch":
            self.b_mem = b.scratch(self.compute)
        if g.a_mode == "scratch":
            self.a_mem = b.scratch(self.compute, self.size("a_scratch"))
        if not g.c_holds_sums:
            self.sums = b.scratch(self.compute, self.size("c_scratch"))
        copies = [mode == "scratch" for mode in (g.a_mode, g.b_mode)]
        never = b.constant(-1, "index")
        init = [never] * sum(copies)
        with b.loop(b.lo, b.hi, 1, init, hint="task") as task:
            batch, m0, n0 = self._place(task.index)
            m1 = b.min(b.add(m0, self.size("MC")), self.size("M"))
            n1 = b.min(b.add(n0, self.size("NC")), self.size("N"))
            # K = 0 runs once: the sums are zero.
            with b.loop(0, b.max(self.size("K"), 1), self.size("KC"), task.args, hint="k0") as kb:
                depth = b.min(b.sub(self.size("K"), kb.index), self.size("KC"))
                kept = list(kb.args)
                if g.b_mode == "scratch":
                    work = self._number(batch, n0, kb.index, "N", g.b)
                    self._once(kept[-1], work, lambda: self._copy_b(n0, n1, kb.index, depth))
                    kept[-1] = work
                if g.a_mode == "scratch":
                    work = self._number(batch, m0, kb.index, "M", g.a)
                    self._once(kept[0], work, lambda: self.copy_a(m0, m1, kb.index, depth))
                    kept[0] = work
                self.block(m0, m1, n0, n1, kb.index, depth)
                kb.yield_(*kept)
            task.yield_(*kb.results)
        return b.finish()

    def _place(self, task: str) -> tuple[str, str, str]:
        """(batch number, first row, first column); M is fastest where B is copied."""
        b = self.b
        if self.g.a_mode == "scratch" and self.g.b_mode != "scratch":
            rest, j = b.div(task, self.size("NB")), b.rem(task, self.size("NB"))
            batch, i = b.div(rest, self.size("MB")), b.rem(rest, self.size("MB"))
        else:
            rest, i = b.div(task, self.size("MB")), b.rem(task, self.size("MB"))
            batch, j = b.div(rest, self.size("NB")), b.rem(rest, self.size("NB"))
        self.batch_digits = self.digits_of(batch)
        self.a_base = self.batch_offset("a", self.g.a.batch, self.g.a.first)
        packed = self.g.b_mode == "packed"
        self.b_base = self.batch_offset("b", self.g.b.batch, self.g.b.first and not packed)
        self.c_base = self.batch_offset("c", (True,) * len(self.batch_digits))
        return batch, b.mul(i, self.size("MC")), b.mul(j, self.size("NC"))

    def digits_of(self, batch: str) -> list[str]:
        """The index along every batch axis of batch entry number `batch`."""
        b, rest = self.b, batch
        digits: list[str] = []
        for axis in range(len(self.g.a.batch) - 1, -1, -1):
            size = self.size(f"s{axis}")
            digits.insert(0, b.rem(rest, size) if axis else rest)
            rest = b.div(rest, size) if axis else rest
        return digits

    def batch_offset(self, array: str, moves: Sequence[bool], first: bool = False) -> str:
        """Where the present batch entry begins in `array` (a, b or c)."""
        b = self.b
        total = self.size(f"{array}_first") if first else self.zero
        for axis, digit in enumerate(self.batch_digits):
            if moves[axis]:
                total = b.add(total, b.mul(digit, self.size(f"{array}{axis}")))
        return total

    def _number(self, batch: str, at: str, k0: str, side: str, operand: Operand) -> str:
        """A number for the block of A or B that a task reads: equal blocks, equal numbers."""
        b = self.b
        number = batch if all(operand.batch) else self.zero
        if any(operand.batch) and not all(operand.batch):
            for axis, digit in enumerate(self.batch_digits):
                if operand.batch[axis]:
                    number = b.add(b.mul(number, self.size(f"s{axis}")), digit)
        number = b.add(b.mul(number, b.size(side)), at)
        return b.add(b.mul(number, b.max(self.size("K"), 1)), k0)

    def _once(self, done: str, work: str, copy: Callable[[], None]) -> None:
        with self.b.if_(self.b.cmpi("ne", done, work)):
            copy()

    # ---------------------------------------------------------------- copies

    def _copy_b(self, n0: str, n1: str, k0: str, depth: str) -> None:
        g, b = self.g, self.b
        if g.fill is not None:
            self._compute_b(g.fill, n0, n1, k0, depth)
            return
        along_k = walk(b, g.b, "k", k0, depth)
        with b.loop(n0, n1, g.tile.columns, hint="panel") as panel:
            to = b.mul(b.sub(panel.index, n0), self.size("KC"))
            copy_panel(
                b, g, self.b_in, self.b_base, panel.index, n1, along_k, depth, self.b_mem, to
            )

    def copy_a(self, m0: str, m1: str, k0: str, depth: str) -> None:
        """Copy rows of A to scratch memory, `depth` of K from `k0` on."""
        g, b = self.g, self.b
        lanes, count = g.tile.lanes, b.sub(m1, m0)
        k, m = walk(b, g.a, "k", k0, depth), walk(b, g.a, "r", m0, count)
        source = Source(
            self.a_in,
            g.a.element,
            b.add(self.a_base, b.add(k.first, m.first)),
            u_offset=k.offset,
            w_offset=m.offset,
            u_unit=g.a.k_run,
            w_unit=g.a.row_run,
            u_table=k.table,
        )
        room = b.mul(b.div(b.add(depth, lanes - 1), lanes), lanes)
        row = self.size("a_row")
        repack(b, source, self.a_mem, self.zero, row, depth, room, count, lanes, g.compute)

    def _compute_b(self, fill: Fill, n0: str, n1: str, k0: str, depth: str) -> None:
        b, lanes, columns = self.b, self.g.tile.lanes, self.g.tile.columns
        with b.loop(n0, n1, columns, hint="panel") as panel:
            start = b.mul(b.sub(panel.index, n0), self.size("KC"))

            def rows(*, whole: bool) -> None:
                with b.loop(0, depth, 1, hint="w") as w, b.loop(0, columns, lanes, hint="u") as u:
                    n = b.add(panel.index, u.index)
                    mask = None if whole else b.mask(b.sub(self.size("N"), n), lanes)
                    value = fill(b, self.batch_digits, b.add(k0, w.index), n, mask)
                    to = b.add(start, b.mul(w.index, columns))
                    b.vector_store(value, self.b_mem, b.add(to, u.index))

            fits = b.cmpi("sge", self.size("N"), b.add(panel.index, columns))
            with b.if_(fits) as branch:
                rows(whole=True)
                with branch.otherwise():
                    rows(whole=False)

    # ---------------------------------------------------------------- compute

    def block(self, m0: str, m1: str, n0: str, n1: str, k0: str, depth: str) -> None:
        """Rows `m0` to `m1`, columns `n0` to `n1` of C, `depth` of K from `k0` on."""
        g, b = self.g, self.b
        first = b.cmpi("eq", k0, self.zero)
        end = b.add(k0, self.size("KC"))
        last = b.cmpi("sge", end, self.size("K"))
        rows = g.tile.rows
        along_m = walk(b, g.a, "r", m0, b.sub(m1, m0)) if g.a_mode == "direct" else None
        with b.loop(n0, n1, g.tile.columns, hint="n") as panel:
            n = panel.index
            columns = [
                b.mask(b.sub(b.sub(self.size("N"), n), v * g.tile.lanes), g.tile.lanes)
                for v in range(g.tile.vectors)
            ]
            whole = b.cmpi("sge", self.size("N"), b.add(n, g.tile.columns))
            b_at = self._b_start(n, n0, k0)
            following = self._following(n, n0, n1, k0, last) if g.b_mode == "packed" else None
            tiles = b.div(b.add(b.sub(m1, m0), rows - 1), rows)
            step = b.div(b.add(tiles, g.tile.columns - 1), b.max(tiles, 1))
            share = b.mul(depth, step)

            with b.loop(m0, m1, rows, hint="m") as m:
                ahead = None
                if following is not None:
                    done = b.mul(b.div(b.sub(m.index, m0), rows), share)
                    ahead = _Ahead(b.add(following, done), step)
                if g.finish is not None and g.finish.reads_rows:
                    with b.if_(b.op("arith.andi", last, b.cmpi("eq", n, n0))):
                        self._ask(m.index, n0, n1, g.finish)
                at = _At(m.index, m0, n, n0, k0, depth, columns, whole, first, b_at, along_m, ahead)
                self._tiles([*reversed(g.tile.heights)], b.sub(m1, m.index), at)
                if not g.c_holds_sums:
                    with b.if_(last):
                        self._finish(m.index, m0, n, n0)

    def _following(self, n: str, n0: str, n1: str, k0: str, last: str) -> str:
        """Where B is read after the panel of column `n`: in this block of K, the next one, or the
        next task (perhaps beyond the end).
        """
        g, b = self.g, self.b
        in_next_block = self._b_start(n0, n0, b.add(k0, self.size("KC")))
        in_next_task = self._b_start(n1, n0, self.zero)
        after = b.add(n, g.tile.columns)
        more = b.cmpi("slt", after, n1)
        otherwise = b.select(last, in_next_task, in_next_block)
        return b.select(more, self._b_start(after, n0, k0), otherwise)

    def _tiles(self, heights: Sequence[int], left: str, at: _At) -> None:
        """The rows that are left on the smallest height that holds them, or the largest."""
        b, (height, *more) = self.b, list(heights)
        if not more:
            self._tile(height, at)
            return
        with b.if_(b.cmpi("sle", left, b.constant(height, "index"))) as branch:
            self._tile(height, at)
            with branch.otherwise():
                self._tiles(more, left, at)

    def _b_start(self, n: str, n0: str, k0: str) -> str:
        """Where the panel of column `n` starts."""
        g, b = self.g, self.b
        if g.b_mode == "scratch":
            return b.mul(b.sub(n, n0), self.size("KC"))
        if g.b_mode == "packed":
            panel = b.mul(n, self.size("K"))
            return b.add(b.add(self.b_base, panel), b.mul(k0, g.tile.columns))
        return b.add(b.add(self.b_base, n), b.mul(k0, self.size("bk0")))

    def _tile(self, height: int, at: _At) -> None:
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
        self, sums: Sequence[str], places: Sequence[tuple[str, str]], at: _At
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
        self, values: Sequence[str], places: Sequence[tuple[str, str]], at: _At
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
        self, a_at: Sequence[str], at: _At, k0: str, depth: str, init: Sequence[str]
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
        at: _At,
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
                sums[i] = multiply_add(b, factor, value, sums[i], g.compute, g.fma)
        return [*following, *sums]

    def _a_start(self, row: str, at: _At) -> str:
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

    def _sums_at(self, rows: Sequence[str], at: _At) -> list[str]:
        """Where the sums of each row are kept."""
        b = self.b
        if self.g.c_holds_sums:
            return [b.add(self.c_base, b.add(b.mul(x, self.size("c_m")), at.n)) for x in rows]
        base = self._kept_at(at.m, at.m0, at.n, at.n0)
        return [b.add(base, b.mul(r, self.size("c_row"))) for r in range(len(rows))]

    def _kept_at(self, m: str, m0: str, n: str, n0: str) -> str:
        """Where the sums of a tile are kept in scratch memory.

        One tile is enough when K is one block (`many` is 0), else the task's block of C is kept.
        """
        b = self.b
        down = b.mul(b.sub(m, m0), self.size("c_row"))
        return b.mul(self.size("many"), b.add(down, b.sub(n, n0)))

    # ---------------------------------------------------------------- results

    def _ask(self, m: str, n0: str, n1: str, finish: Finish) -> None:
        """Ask for the rows that `finish` reads; they arrive while the products are computed.

        A residual or the inputs of a recurrent step come from L3 or memory, and a panel takes a
        line of each row, where the hardware's prefetch does not help: half of the time of such a
        step. Asked for at the first panel, whole rows: memory likes neighbouring lines.
        """
        g, b = self.g, self.b
        valid = b.min(b.constant(g.tile.rows, "index"), b.sub(self.size("M"), m))
        line = max(g.tile.lanes, 64 // g.compute.bytes)
        with b.loop(0, valid, 1, hint="r") as r, b.loop(n0, n1, line, hint="j") as j:
            mask = b.mask(b.sub(n1, j.index), g.tile.lanes)
            finish.ask(b, self.batch_digits, b.add(m, r.index), j.index, mask)

    def _finish(self, m: str, m0: str, n: str, n0: str) -> None:
        """Turn the finished sums of a tile into result elements."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        base = self._kept_at(m, m0, n, n0)
        valid = b.min(b.constant(g.tile.rows, "index"), b.sub(self.size("M"), m))
        width = b.min(b.constant(g.tile.columns, "index"), b.sub(self.size("N"), n))
        with b.loop(0, valid, 1, hint="r") as r:
            row = b.add(m, r.index)
            line = b.add(base, b.mul(r.index, self.size("c_row")))
            with b.loop(0, width, lanes, hint="j") as j:
                at = b.add(line, j.index)
                sums = b.vector_load(self.sums, at, lanes, readonly=False)
                column = b.add(n, j.index)
                mask = b.mask(b.sub(width, j.index), lanes)
                self._write_result(sums, row, column, mask)

    def _write_result(self, sums: str, row: str, column: str, mask: str) -> None:
        """Compute and store result elements from finished sums of neighbouring columns."""
        g, b = self.g, self.b
        lanes = lanes_of(b.type_of(sums))
        if g.finish is None:
            value = convert(b, sums, g.compute, g.c)
        else:
            value = g.finish(b, sums, self.batch_digits, row, column, mask)
        if g.c.kind == "b":
            value = b.cast("arith.extui", value, "i8")
        line = b.add(self.c_base, b.mul(row, self.size("c_m")))
        if g.c_unit:
            b.masked_store(value, self.c_out, b.add(line, column), mask)
            return
        stride = self.size("c_n")
        base = b.add(line, b.mul(column, stride))
        steps = b.op("arith.muli", b.iota(lanes), b.broadcast(stride, lanes))
        b.scatter(value, self.c_out, base, steps, mask)


def multiply_add(b: Text, x: str, y: str, total: str, compute: Element, fma: bool) -> str:
    """`total + x * y`, rounded once where the machine does that in hardware."""
    if not compute.is_float:
        return b.op("arith.addi", total, b.op("arith.muli", x, y))
    if fma:
        return b.op("math.fma", x, y, total)
    return b.op("arith.addf", total, b.op("arith.mulf", x, y))


def digits_offset(b: SizedText, name: str, count: int, index: str) -> str:
    """The offset of `index` in mixed radix: sizes `{name}s1`, ..., strides `{name}0`, ...."""
    total, rest = b.constant(0, "index"), index
    for step in range(count - 1, -1, -1):
        size = b.max(b.size(f"{name}s{step}"), 1) if step else ""
        digit = b.rem(rest, size) if step else rest
        rest = b.div(rest, size) if step else rest
        total = b.add(total, b.mul(digit, b.size(f"{name}{step}")))
    return total


@dataclass(frozen=True)
class Walk:
    """Offsets along rows or K from some index on: `first + offset(i)`, i from 0."""

    first: str
    offset: Callable[[str], str]
    table: str | None = None


def walk(b: SizedText, operand: Operand, side: str, start: str, count: str) -> Walk:
    """The walk of `count` rows (`side` r) or along K (k) from `start` on.

    Walks of one step are multiplications, others are written to a table in scratch memory.
    """
    name = f"{operand.array}{side}"
    count_steps = operand.row_steps if side == "r" else operand.k_steps
    unit = operand.row_unit if side == "r" else operand.k_unit
    if count_steps == 1:
        if unit:
            return Walk(start, lambda i: i)
        stride = b.size(f"{name}0")
        return Walk(b.mul(start, stride), lambda i: b.mul(i, stride))
    table = b.scratch("i64", b.size(f"table_{side}"))
    sizes = ["", *(b.max(b.size(f"{name}s{i}"), 1) for i in range(1, count_steps))]
    strides = [b.size(f"{name}{i}") for i in range(count_steps)]
    digits, rest = [start] * count_steps, start
    for i in range(count_steps - 1, 0, -1):
        digits[i], rest = b.rem(rest, sizes[i]), b.div(rest, sizes[i])
    digits[0] = rest
    zero = b.constant(0, "index")
    with b.loop(0, count, 1, digits, hint="entry") as entry:
        offset = zero
        for digit, stride in zip(entry.args, strides, strict=True):
            offset = b.add(offset, b.mul(digit, stride))
        b.store(b.cast("arith.index_cast", offset, "i64"), table, entry.index)
        following = list(entry.args)
        up = b.add(following[-1], 1)
        for i in range(count_steps - 1, 0, -1):
            full = b.cmpi("eq", up, sizes[i])
            following[i] = b.select(full, zero, up)
            more = b.add(following[i - 1], 1)
            up = b.select(full, more, following[i - 1])
        following[0] = up
        entry.yield_(*following)

    def look_up(i: str) -> str:
        return b.cast("arith.index_cast", b.load(table, i, readonly=False), "index")

    return Walk(zero, look_up, table)


def copy_panel(
    b: SizedText,
    gemm: Gemm,
    memory: str,
    base: str,
    n: str,
    n_end: str,
    along_k: Walk,
    depth: str,
    to_memory: str,
    to: str,
) -> None:
    """Copy the columns of B from n on (at most a panel), `depth` of K, into a panel at `to`."""
    operand, tile = gemm.b, gemm.tile
    count = b.min(b.constant(tile.columns, "index"), b.sub(n_end, n))
    along_n = walk(b, operand, "r", n, count)
    source = Source(
        memory,
        operand.element,
        b.add(base, b.add(along_n.first, along_k.first)),
        u_offset=along_n.offset,
        w_offset=along_k.offset,
        u_unit=operand.row_run,
        w_unit=operand.k_run,
        u_table=along_n.table,
    )
    columns = tile.columns
    repack(b, source, to_memory, to, columns, count, columns, depth, tile.lanes, gemm.compute)


def pack_kernel(gemm: Gemm, sizes: dict[str, Expr]) -> tuple[str, tuple[Expr, ...]]:
    """The kernel that writes all panels of B; arguments (B, panels), a task a panel."""
    b, operand = SizedText(sizes), gemm.b
    memory, panels = b.memref(0, operand.element.storage), b.memref(1, gemm.compute.register)
    zero, depth = b.constant(0, "index"), b.size("K")
    along_k = walk(b, operand, "k", zero, depth)
    with b.loop(b.lo, b.hi, 1, hint="task") as task:
        count = b.size("panels")
        rest, panel = b.div(task.index, count), b.rem(task.index, count)
        base = b.size("b_first") if operand.first else zero
        for axis in range(len(operand.batch) - 1, -1, -1):
            if operand.batch[axis]:
                size = b.size(f"s{axis}")
                base = b.add(base, b.mul(b.rem(rest, size), b.size(f"b{axis}")))
                rest = b.div(rest, size)
        to = b.mul(b.mul(task.index, depth), gemm.tile.columns)
        n = b.mul(panel, gemm.tile.columns)
        copy_panel(b, gemm, memory, base, n, b.size("N"), along_k, depth, panels, to)
    return b.finish()
