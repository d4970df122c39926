"""The dense kernel: C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n].

A task is a block of C: `MC` x `NC` elements of one batch entry. Inside, blocks of K (outermost),
panels of columns, tiles of rows; a tile's accumulators are carried by the loop over K. Rows beyond
the last are clamped to it: they compute and store the same values twice, so that rows need no
masks; columns are masked.

B is read from panels of `columns` columns, K after K. `packed`: they are there; `scratch`: the
kernel copies its block first. B whose columns are neighbours is read in place (`direct`), and
`computed` B is in registers alone. A is read in place, one element broadcast at a time, or from
rows copied to scratch (another type or layout).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from shlo_disc.base.later import imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Called, Gemm, Operand
from shlo_disc.lower.cpu.dense.repack import Block, Source, repack, transpose
from shlo_disc.lower.cpu.dense.tile_writer import Ahead, Place, TileWriter
from shlo_disc.lower.cpu.dense.walk import Walk, walk
from shlo_disc.lower.cpu.dense.words import Words, bits_of, repack_words, word_of
from shlo_disc.lower.kernels.odometer import split
from shlo_disc.lower.kernels.sized import Written, written_late
from shlo_disc.lower.plan import Kernel, KernelText
from shlo_disc.lower.products.epilogue import ResultPlace
from shlo_disc.lower.products.prologue import OperandPlace, Prologue
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

matrix_writer = imported_later("shlo_disc.lower.cpu.dense.matrix_tiles", "MatrixWriter")


@dataclass(frozen=True)
class Product:
    """The kernel of a product, and those that it calls."""

    made: Written
    called: tuple[Kernel, ...]
    """They stand in front of the arguments (A, B, C, ...)."""


def write_gemm(gemm: Gemm, sizes: Mapping[str, Expr], label: str) -> Product:
    """The kernel over arguments (A, B, C, ...); `label` begins the names of those it calls."""
    return write_product(_gemm, gemm, sizes, label, Writer)


def write_product(
    write: Callable[[Gemm, Mapping[str, Expr]], Written],
    gemm: Gemm,
    sizes: Mapping[str, Expr],
    label: str,
    writer: type[Writer],
) -> Product:
    """What `write` writes of `gemm`. Where C does not hold sums, `writer` writes what it calls."""
    if gemm.c_holds_sums:
        return Product(late_if_data(write, gemm, sizes), ())
    # As in `Gemm.sizes_read`, but for these kernels, whatever the product.
    own = {name: sizes.get(name, Expr.const(0)) for name in _OF_RESULTS}
    b = SizedBuilder(gemm.machine, own, in_order=True)
    called = tuple(Kernel(f"{label}_{name}", text) for name, text in writer(gemm, b).called())
    gemm = replace(
        gemm, c=gemm.compute, c_unit=True, finish=None, finish_bands=None,
        called=Called(len(called) > 1, 0),
    ).as_read  # fmt: skip
    sizes = gemm.sizes_read(sizes)
    gemm = replace(gemm, called=Called(len(called) > 1, len(sizes)))
    params = b.params_in_order
    if gemm.is_data:
        late, known = written_late(write, gemm, sizes)
        return Product((late, (*known, *params)), called)
    # More sizes follow, which what computes elements asks for.
    more = {f"epilogue{n}": size for n, size in enumerate(params)}
    return Product(write(gemm, sizes | more), called)


_OF_RESULTS = ("M", "N", "c_m", "c_n", "c_row", "c_band", "c_scratch")


def late_if_data(
    write: Callable[[Gemm, Mapping[str, Expr]], Written], gemm: Gemm, sizes: Mapping[str, Expr]
) -> tuple[KernelText, tuple[Expr, ...]]:
    """What `write` writes of `gemm` over the sizes that it reads; later, if these are known now.

    What computes elements in it asks for buffers and sizes while it is written, and so does a copy
    by a table of places.
    """
    gemm = gemm.as_read
    sizes = gemm.sizes_read(sizes)
    return written_late(write, gemm, sizes) if gemm.is_data else write(gemm, sizes)


def _gemm(gemm: Gemm, sizes: Mapping[str, Expr]) -> Written:
    writer = (matrix_writer if gemm.has_tiles else Writer)(gemm, builder_of(gemm, sizes))
    written: Written = writer.write()
    return written


def builder_of(gemm: Gemm, sizes: Mapping[str, Expr]) -> SizedBuilder:
    """Of the kernel of a product."""
    b = SizedBuilder(gemm.machine, sizes, in_order=True)
    b.called = 0 if gemm.called is None else gemm.called.count
    return b


class Writer(TileWriter):
    """Writes a kernel over tasks of `MC` x `NC` elements of C."""

    # ---------------------------------------------------------------- tasks

    def write(self) -> Written:
        """The text and its parameters."""
        g, b = self.g, self.b
        self._tell_if_once()
        a_in = self.a_in = b.memref(0, g.a.element.storage)
        b_storage = g.copied if g.b_mode == "packed" else g.b.element.storage
        b_in = self.b_in = b.memref(1, b_storage)
        self.a_mem, self.b_mem = a_in, b_in
        if g.b_mode == "scratch":
            self.b_mem = b.scratch(g.copied)
        if g.a_mode == "scratch":
            self.a_mem = b.scratch(g.copied, self.size("a_scratch"))
        if g.c_holds_sums:
            self.sums = b.memref(2, g.c.storage)
        else:
            self.sums = b.scratch(self.compute, self.size("c_scratch"))
        copy_a = self._copying("a", Writer.copy_a) if g.a_mode == "scratch" else None
        copy_b = self._copying("b", Writer._copy_b) if g.b_mode == "scratch" else None
        never = b.index(-1)
        init = [never for copy in (copy_a, copy_b) if copy]
        self.enter()
        with b.loop(b.lo, b.hi, 1, init, hint="task") as task:
            batch, m0, n0 = self._place(task.index)
            m1 = b.min(m0 + self.size("MC"), self.size("M"))
            n1 = b.min(n0 + self.size("NC"), self.size("N"))
            # K = 0 runs once: the sums are zero.
            with b.loop(0, b.max(self.size("K"), 1), self.size("KC"), task.args, hint="k0") as kb:
                depth = b.min(self.size("K") - kb.index, self.size("KC"))
                kept = list(kb.args)
                if copy_b is not None:
                    work = self._number(batch, n0, kb.index, "N", g.b)
                    block = [n0, n1, kb.index, depth]
                    self._once(kept[-1], work, functools.partial(copy_b, block))
                    kept[-1] = work
                if copy_a is not None:
                    work = self._number(batch, m0, kb.index, "M", g.a)
                    block = [m0, m1, kb.index, depth]
                    self._once(kept[0], work, functools.partial(copy_a, block))
                    kept[0] = work
                self.block(m0, m1, n0, n1, kb.index, depth)
                kb.yield_(*kept)
            task.yield_(*kb.results)
        self.leave()
        return b.finish()

    def enter(self) -> None:
        """What a call of the kernel does in front of its tasks."""

    def leave(self) -> None:
        """What it does behind them."""

    def _tell_if_once(self) -> None:
        if self.keeps_sums_in_registers and not self.g.gathers:
            self.b.make_once()

    def _place(self, task: IndexValue) -> tuple[IndexValue, IndexValue, IndexValue]:
        """(batch number, first row, first column)."""
        if not self.g.rows_first:
            rest, j = task // self.size("NB"), task % self.size("NB")
            batch, i = rest // self.size("MB"), rest % self.size("MB")
        else:
            rest, i = task // self.size("MB"), task % self.size("MB")
            batch, j = rest // self.size("NB"), rest % self.size("NB")
        self.batch_digits = self.digits_of(batch)
        self.a_base = self.batch_offset("a", self.g.a.batch, self.g.a.first)
        packed = self.g.b_mode == "packed"
        self.b_base = self.batch_offset("b", self.g.b.batch, self.g.b.first and not packed)
        self.c_base = self.batch_offset("c", (True,) * len(self.batch_digits))
        return batch, i * self.size("MC"), j * self.size("NC")

    def digits_of(self, batch: IndexValue) -> list[IndexValue]:
        """The index along every batch axis of batch entry number `batch`."""
        count = len(self.g.a.batch)
        sizes = (self.size(f"s{axis}") for axis in range(count - 1, 0, -1))
        return split(self.b, batch, sizes) if count else []

    def batch_offset(self, array: str, moves: Sequence[bool], first: bool = False) -> IndexValue:
        """Where the present batch entry begins in `array` (a, b or c)."""
        total = self.size(f"{array}_first") if first else self.zero
        for axis, digit in enumerate(self.batch_digits):
            if moves[axis]:
                total = total + digit * self.size(f"{array}{axis}")
        return total

    def _number(
        self, batch: IndexValue, at: IndexValue, k0: IndexValue, side: str, operand: Operand
    ) -> IndexValue:
        """A number for the block of A or B that a task reads: equal blocks, equal numbers."""
        b = self.b
        number = batch if all(operand.batch) else self.zero
        if any(operand.batch) and not all(operand.batch):
            for axis, digit in enumerate(self.batch_digits):
                if operand.batch[axis]:
                    number = number * self.size(f"s{axis}") + digit
        number = number * b.size(side) + at
        return number * b.max(self.size("K"), 1) + k0

    def _elements(self, k0: IndexValue, depth: IndexValue) -> tuple[IndexValue, IndexValue]:
        return elements_of(self.b, self.g, k0, depth, self.prefix)

    def _once(self, done: IndexValue, work: IndexValue, copy: Callable[[], None]) -> None:
        with self.b.if_(done.differs(work)):
            copy()

    # ---------------------------------------------------------------- copies

    def _copying(
        self,
        array: str,
        copy: Callable[[Self, IndexValue, IndexValue, IndexValue, IndexValue], None],
    ) -> Callable[[list[IndexValue]], None]:
        """What calls a function of its own that runs `copy`, which copies a block of A or B.

        See `SizedBuilder.part_text`: the constants of its shuffles took two registers from sums.
        """
        names = [f"{array}_in", f"{array}_mem"]
        memory: list[MemRef] = [getattr(self, name) for name in names]
        digits = len(self.g.a.batch)

        def write(b: SizedBuilder, there: list[MemRef], values: list[IndexValue]) -> None:
            inner = self._inside(b)
            base, *block = values[: len(values) - digits]
            inner.batch_digits = values[len(values) - digits :]
            for name, value in zip((*names, f"{array}_base"), (*there, base), strict=True):
                setattr(inner, name, value)
            copy(inner, *block)

        name = f"{self.prefix}copy_{array}"
        elements = [one.element for one in memory]
        text = self.b.part_text(name, elements, 1 + 4 + digits, write)

        def call(block: list[IndexValue]) -> None:
            base: IndexValue = getattr(self, f"{array}_base")
            self.b.part(name, text, memory, [base, *block, *self.batch_digits])

        return call

    def _copy_b(self, n0: IndexValue, n1: IndexValue, k0: IndexValue, depth: IndexValue) -> None:
        g, b = self.g, self.b
        if g.fill is not None:
            self._compute_b(g.fill, n0, n1, k0, depth)
            return
        first, elements = self._elements(k0, depth)
        along_k = walk(b, g.b, "k", first, elements)

        def copy(band: IndexValue) -> None:
            aside = band * self.size("N")
            with b.loop(n0, n1, g.tile.columns, hint="panel") as panel:
                to = band * self.size("b_band") + (panel.index - n0) * g.bands * self.block_rows
                n, end = panel.index + aside, n1 + aside
                copy_panel(
                    b, g, MemRef.of(self.b_in), self.b_base, n, end, along_k, depth, self.b_mem, to,
                    elements,
                )  # fmt: skip

        self._each_band(copy)

    def copy_a(self, m0: IndexValue, m1: IndexValue, k0: IndexValue, depth: IndexValue) -> None:
        """Copy rows of A to scratch memory, `depth` of K from `k0` on."""
        g, b = self.g, self.b
        lanes, count = g.tile.lanes, m1 - m0
        first, elements = self._elements(k0, depth)
        k, m = walk(b, g.a, "k", first, elements), walk(b, g.a, "r", m0, count)
        source = Source(
            MemRef.of(self.a_in),
            g.a.element,
            self.a_base + (k.first + m.first),
            u_offset=k.offset,
            w_offset=m.offset,
            u_unit=g.a.k_run,
            w_unit=g.a.row_run,
            u_table=k.table,
            w_table=m.table if g.a.row_unit else None,
        )
        room = depth.round_up(lanes)
        row = self.size("a_row")
        block = Block(self.a_mem, self.zero, row, depth, room, count, lanes)
        if g.words is None:
            repack(b, source, block, g.compute)
            return
        repack_words(b, g.words, source, block, k_is_u=True, elements=elements)
        if g.words.is_float:
            with b.loop(0, count, 1, [g.words.no_note(b, lanes)], hint="w") as w:
                line = w.index * row
                with b.loop(0, room, lanes, w.args, hint="u") as u:
                    words = self.a_mem.vector_load(line + u.index, lanes, readonly=False)
                    u.yield_(g.words.noted(b, words, u.args[0]))
                w.yield_(*u.results)
            self.a_mem.store(g.words.closed(b, w.results[0]), self.a_note)

    def _compute_b(
        self, fill: Prologue, n0: IndexValue, n1: IndexValue, k0: IndexValue, depth: IndexValue
    ) -> None:
        b, lanes, columns, words = self.b, self.g.tile.lanes, self.g.tile.columns, self.g.words
        first, elements = self._elements(k0, depth)
        with b.loop(n0, n1, columns, hint="panel") as panel:
            start = (panel.index - n0) * self.block_rows

            def rows(*, whole: bool) -> None:
                with b.loop(0, depth, 1, hint="w") as w, b.loop(0, columns, lanes, hint="u") as u:
                    n = panel.index + u.index
                    mask = None if whole else b.mask(self.size("N") - n, lanes)

                    def value(k: IndexValue) -> Register:
                        return fill(b, OperandPlace(self.batch_digits, first + k, n), mask)

                    if words is None:
                        made = value(w.index)
                    else:
                        bits = functools.partial(bits_of, words)
                        made = word_of(b, words, w.index, elements, lambda k: bits(value(k)))
                    to = start + w.index * columns
                    self.b_mem.vector_store(made, to + u.index)

            if fill.along_k:
                self._compute_columns(fill, panel.index, k0, depth, start)
            else:
                fits = self.size("N") >= panel.index + columns
                b.either(fits, lambda: rows(whole=True), lambda: rows(whole=False))
            if words is not None and words.has_notes:
                _note_panel(b, self.g, words, self.b_mem, start, depth)

    def _compute_columns(
        self, fill: Prologue, n: IndexValue, k0: IndexValue, depth: IndexValue, start: IndexValue
    ) -> None:
        """Compute a panel of B by vectors along K: squares of them, transposed."""
        b, lanes, columns = self.b, self.g.tile.lanes, self.g.tile.columns
        last = self.size("N") - 1

        def square(w: IndexValue, u: IndexValue, left: IndexValue | None) -> None:
            mask = None if left is None else b.mask(left, lanes)
            places = [b.min(n + u + i, last) for i in range(lanes)]
            rows = [fill(b, OperandPlace(self.batch_digits, k0 + w, c), mask) for c in places]
            for j, row in enumerate(transpose(b, rows)):
                to = start + (w + j) * columns + u
                if left is None:
                    self.b_mem.vector_store(row, to)
                    continue
                with b.if_(left > j):
                    self.b_mem.vector_store(row, to)

        whole = depth.round_down(lanes)
        with b.loop(0, columns, lanes, hint="u") as u:
            with b.loop(0, whole, lanes, hint="w") as w:
                square(w.index, u.index, None)
            with b.if_(whole < depth):
                square(whole, u.index, depth - whole)

    # ---------------------------------------------------------------- compute

    def block(
        self,
        m0: IndexValue,
        m1: IndexValue,
        n0: IndexValue,
        n1: IndexValue,
        k0: IndexValue,
        depth: IndexValue,
    ) -> None:
        """Rows `m0` to `m1`, columns `n0` to `n1` of C, `depth` of K from `k0` on."""
        g, b = self.g, self.b
        first = k0.equals(self.zero)
        end = k0 + self.size("KC")
        last = end >= self.size("K")
        rows = g.tile.rows
        along_m = walk(b, g.a, "r", m0, m1 - m0) if g.a_mode == "direct" else None
        with b.loop(n0, n1, g.tile.columns, hint="n") as panel:
            n = panel.index
            columns = [
                b.mask(self.size("N") - n - v * g.tile.lanes, g.tile.lanes)
                for v in range(g.tile.vectors)
            ]
            whole = self.size("N") >= n + g.tile.columns
            b_at = self.b_start(n, n0, k0)
            following = self._following(n, n0, n1, k0, last) if g.b_mode == "packed" else None
            tiles = (m1 - m0).ceil_div(rows)
            step = (tiles + (g.tile.columns - 1)) // b.max(tiles, 1)
            share = depth * step

            with b.loop(m0, m1, rows, hint="m") as m:
                ahead = None
                if following is not None:
                    done = (m.index - m0) // rows * share
                    ahead = Ahead(following + done, step, following)
                if g.called is not None and g.called.asks:
                    with b.if_(last & n.equals(n0)):
                        self.call(1, [m.index, n0, n1, *self.batch_digits])
                at = Place(
                    m.index, m0, n, n0, k0, depth, columns, whole, first, b_at, along_m, ahead,
                    self.zero,
                )  # fmt: skip
                self._each_band(functools.partial(self._tiles_of, at=at, m1=m1))
                if g.called is not None or g.part:
                    kept = self.kept_at(m.index, m0, n, n0)
                    values = [m.index, n, kept, self.c_base, *self.batch_digits]
                    with b.if_(last):
                        if g.called is not None:
                            self.call(0, values)
                        else:
                            b.part(f"{self.prefix}finish", g.part, [self.c_out, self.sums], values)
                else:
                    assert g.c_holds_sums, "sums would not become results"

    def _each_band(self, body: Callable[[IndexValue], None]) -> None:
        """`body(number)` for every band of columns."""
        if self.g.bands == 1:
            body(self.zero)
            return
        with self.b.loop(0, self.g.bands, 1, hint="band") as band:
            body(band.index)

    def _tiles_of(self, band: IndexValue, *, at: Place, m1: IndexValue) -> None:
        """The sums of a tile in one band."""
        b, ahead = self.b, at.ahead
        if self.g.bands > 1:
            moved = band * self.size("b_band")
            b_at, sums_at = at.b_at + moved, band * self.size("c_band")
            if ahead is not None:
                more = band < self.g.bands - 1
                done = ahead.start - ahead.panel
                beside = b_at + self.size("b_band") + done
                ahead = replace(ahead, start=b.select(more, beside, ahead.start))
            at = replace(at, b_at=b_at, ahead=ahead, sums_at=sums_at)

        def write(at: Place) -> None:
            self.tiles([*reversed(self.g.tile.heights)], m1 - at.m, at)

        if self.g.splits_columns:
            b.either(at.whole, lambda: write(replace(at, is_whole=True)), lambda: write(at))
        else:
            write(at)

    def _following(
        self, n: IndexValue, n0: IndexValue, n1: IndexValue, k0: IndexValue, last: Mask
    ) -> IndexValue:
        """Where B is read after the panel of column `n`: in this block of K, the next one, or the
        next task (perhaps beyond the end).
        """
        g, b = self.g, self.b
        in_next_block = self.b_start(n0, n0, k0 + self.size("KC"))
        in_next_task = self.b_start(n1, n0, self.zero)
        after = n + g.tile.columns
        more = after < n1
        otherwise = b.select(last, in_next_task, in_next_block)
        return b.select(more, self.b_start(after, n0, k0), otherwise)

    # ---------------------------------------------------------------- results

    def _ask(self, m: IndexValue, n0: IndexValue, n1: IndexValue) -> None:
        """Ask for the rows that the epilogue reads; they arrive while the products are computed.

        A residual or the inputs of a recurrent step come from L3 or memory, and a panel takes a
        line of each row, where the hardware's prefetch does not help: half of the time of such a
        step. Asked for at the first panel, whole rows: memory likes neighbouring lines.
        """
        g, b = self.g, self.b
        finish = g.finish_bands or g.finish
        assert finish is not None, "it reads rows"
        valid = b.min(b.index(g.tile.rows), self.size("M") - m)
        line = max(g.tile.lanes, 64 // g.compute.bytes)
        with b.loop(0, valid, 1, hint="r") as r, b.loop(n0, n1, line, hint="j") as j:
            mask = b.mask(n1 - j.index, g.tile.lanes)
            finish.ask(b, ResultPlace(self.batch_digits, m + r.index, j.index), mask)

    def call(self, number: int, values: Sequence[IndexValue]) -> None:
        """Call a kernel of :meth:`called`."""
        g, b = self.g, self.b
        assert g.called is not None, "it calls no kernels"
        args = b.place(b.args, g.called.count, "!llvm.ptr")
        params = b.place(b.params, g.called.params_at, "i64")
        b.call_with(b.pointer(number - g.called.count), args, params, values)

    def called(self) -> Iterator[tuple[str, str]]:
        """The names and texts of the kernels that a product calls in place of `finish`.

        They compute results from the sums of a tile, and ask for rows to read. Their arguments are
        those of the product, then their own.
        """
        digits, finish = len(self.g.a.batch), self.g.finish_bands or self.g.finish

        def write(b: SizedBuilder, _: list[MemRef], values: list[IndexValue]) -> None:
            inner = self._inside(b)
            inner.c_out = b.memref(2, self.g.c.storage)
            inner.sums = b.scratch(self.compute, b.size("c_scratch"))
            *place, inner.c_base, inner.batch_digits = *values[:4], values[4:]
            inner.finish_sums(*place)

        def ask(b: SizedBuilder, _: list[MemRef], values: list[IndexValue]) -> None:
            inner = self._inside(b)
            m, n0, n1, *inner.batch_digits = values
            inner._ask(m, n0, n1)

        self.b.make_once()
        yield "epilogue", self.b.part_text("", [], 4 + digits, write)
        if finish is not None and finish.reads_rows:
            yield "ask", self.b.part_text("", [], 3 + digits, ask)

    def part(self) -> str:
        """The function of the same text that computes results from the sums of a tile."""

        def write(b: SizedBuilder, memory: list[MemRef], values: list[IndexValue]) -> None:
            inner = self._inside(b)
            inner.c_out, inner.sums = memory
            m, n, base, inner.c_base, *inner.batch_digits = values
            inner.finish_sums(m, n, base)

        elements = [self.g.c.storage, self.compute]
        return self.b.part_text(f"{self.prefix}finish", elements, 4 + len(self.g.a.batch), write)

    def _inside(self, b: SizedBuilder) -> Self:
        """Itself, in a function with a builder of its own."""
        inner = copy.copy(self)
        inner.b, inner.zero = b, b.index(0)
        return inner

    def finish_sums(self, m: IndexValue, n: IndexValue, base: IndexValue) -> None:
        """Turn the sums of a tile, which are kept from `base` on, into result elements."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        valid = b.min(b.index(g.tile.rows), self.size("M") - m)
        width = b.min(b.index(g.tile.columns), self.size("N") - n)
        # Rows inside: what depends on columns alone, such as a mask or a bias, is there once.
        with b.loop(0, width, lanes, hint="j") as j:
            column, mask = n + j.index, b.mask(width - j.index, lanes)
            with b.loop(0, valid, 1, hint="r") as r:
                row = m + r.index
                at = base + r.index * self.size("c_row") + j.index
                apart = self.size("c_band") if g.bands > 1 else self.zero
                starts = [at + apart * band for band in range(g.bands)]
                sums = [self.sums.vector_load(x, lanes, readonly=False) for x in starts]
                if g.finish_bands is not None:
                    at_result = ResultPlace(self.batch_digits, row, column)
                    g.finish_bands.write(b, sums, at_result, mask)
                else:
                    self.write_result(sums[0], row, column, mask)

    def write_result(self, sums: Register, row: IndexValue, column: IndexValue, mask: Mask) -> None:
        """Compute and store result elements from finished sums of neighbouring columns."""
        g, b = self.g, self.b
        lanes = sums.lanes
        if g.finish is None:
            value = convert(b, sums, g.compute, g.c)
        else:
            value = g.finish(b, sums, ResultPlace(self.batch_digits, row, column), mask)
        if g.c.kind == "b":
            value = b.cast("arith.extui", value, "i8")
        line = self.c_base + row * self.size("c_m")
        if g.c_unit:
            self.c_out.masked_store(value, line + column, mask)
            return
        stride = self.size("c_n")
        base = line + column * stride
        steps = b.iota(lanes) * b.broadcast(stride, lanes)
        b.scatter(value, self.c_out, base, steps, mask)


def elements_of(
    b: SizedBuilder, gemm: Gemm, k0: IndexValue, depth: IndexValue, prefix: str = ""
) -> tuple[IndexValue, IndexValue]:
    """The first element of the block of K from `k0` on, and how many it has; `depth`: its steps."""
    if gemm.words is None:
        return k0, depth
    first = k0 * gemm.words.count
    return first, b.min(b.size(prefix + "K_elements") - first, depth * gemm.words.count)


def copy_panel(
    b: SizedBuilder,
    gemm: Gemm,
    memory: MemRef,
    base: IndexValue,
    n: IndexValue,
    n_end: IndexValue,
    along_k: Walk,
    depth: IndexValue,
    to_memory: MemRef,
    to: IndexValue,
    elements: IndexValue | None = None,
) -> None:
    """Copy the columns of B from n on (at most a panel), `depth` of K, into a panel at `to`.

    `elements`: how many there are along K, where `depth` is a number of words.
    """
    operand, tile = gemm.b, gemm.tile
    count = b.min(b.index(tile.columns), n_end - n)
    along_n = walk(b, operand, "r", n, count)
    source = Source(
        memory,
        operand.element,
        base + (along_n.first + along_k.first),
        u_offset=along_n.offset,
        w_offset=along_k.offset,
        u_unit=operand.row_run,
        w_unit=operand.k_run,
        u_table=along_n.table,
        w_table=along_k.table if operand.k_unit else None,
        pairs=operand.pairs,
    )
    block = Block(to_memory, to, tile.columns, count, tile.columns, depth, tile.lanes)
    if gemm.words is None:
        repack(b, source, block, gemm.compute)
        return
    elements = depth if elements is None else elements
    repack_words(b, gemm.words, source, block, k_is_u=False, elements=elements)
    if gemm.words.has_notes:
        _note_panel(b, gemm, gemm.words, to_memory, to, depth)


def _note_panel(
    b: SizedBuilder, gemm: Gemm, words: Words, panel: MemRef, at: IndexValue, depth: IndexValue
) -> None:
    """Write the note behind the `depth` words of every column of a panel at `at`."""
    lanes, columns = gemm.tile.lanes, gemm.tile.columns
    each = range(0, columns, lanes)
    init = [words.no_note(b, lanes)] * (1 if words.is_float else len(each))
    with b.loop(0, depth, 1, init, hint="w") as w:
        line, notes = at + w.index * columns, list(w.args)
        for v, column in enumerate(each):
            values = panel.vector_load(line + column, lanes, readonly=False)
            i = 0 if words.is_float else v
            notes[i] = words.noted(b, values, notes[i])
        w.yield_(*notes)
    to = at + depth * columns
    for note, column in zip(w.results, each, strict=False):
        closed = words.closed(b, note)
        if words.is_float:
            panel.store(closed, to)
        else:
            panel.vector_store(closed, to + column)


def pack_kernel(gemm: Gemm, sizes: Mapping[str, Expr]) -> tuple[KernelText, tuple[Expr, ...]]:
    """The kernel that writes all panels of B; arguments (B, panels), a task a panel."""
    gemm = replace(
        gemm, a=gemm.b, c=gemm.compute, a_mode="direct", b_mode="scratch", c_unit=True,
        then_rows=False, short=False,
    )  # fmt: skip
    own = {name: size for name, size in sizes.items() if name in _OF_PANELS or name[0] in "bs"}
    return late_if_data(_pack, gemm, own)


_OF_PANELS = ("K", "N", "K_elements", "K_panel", "KC", "panels", "table_k", "table_r")


def _pack(gemm: Gemm, sizes: Mapping[str, Expr]) -> Written:
    b, operand = SizedBuilder(gemm.machine, sizes, in_order=True), gemm.b
    b.make_once()
    memory, panels = b.memref(0, operand.element.storage), b.memref(1, gemm.copied)
    zero, depth = b.index(0), b.size("K")
    along_k = None if gemm.words else walk(b, operand, "k", zero, depth)
    with b.loop(b.lo, b.hi, 1, hint="task") as task:
        count = b.size("panels")
        # The panels of all bands side by side, in the order in which they are read.
        aside = task.index % gemm.bands * b.size("N")
        number = task.index // gemm.bands
        rest, panel = number // count, number % count
        base = b.size("b_first") if operand.first else zero
        for axis in range(len(operand.batch) - 1, -1, -1):
            if operand.batch[axis]:
                size = b.size(f"s{axis}")
                base = base + rest % size * b.size(f"b{axis}")
                rest = rest // size
        rows = b.size("K_panel") if gemm.words else depth
        to = task.index * rows * gemm.tile.columns
        n = panel * gemm.tile.columns + aside
        end = b.size("N") + aside
        if along_k is not None:
            copy_panel(b, gemm, memory, base, n, end, along_k, depth, panels, to)
        else:
            block = b.size("KC")
            with b.loop(0, b.max(depth, 1), block, hint="k0") as k0:
                words = b.min(depth - k0.index, block)
                first, elements = elements_of(b, gemm, k0.index, words)
                at = to + (k0.index + k0.index // block) * gemm.tile.columns
                along = walk(b, operand, "k", first, elements)
                copy_panel(b, gemm, memory, base, n, end, along, words, panels, at, elements)
    return b.finish()
