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

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.dense.repack import Source, repack
from shlo_disc.lower.cpu.dense.text import SizedText
from shlo_disc.lower.cpu.dense.tiles import Tile
from shlo_disc.lower.cpu.elements import Element
from shlo_disc.lower.cpu.scalar import convert
from shlo_disc.lower.cpu.text import vector_type

__all__ = ["Finish", "Gemm", "Operand", "pack_kernel"]

Finish = Callable[[SizedText, str, str, str, str], str]
"""(text, accumulators as a vector of the compute type, batch number, row, first column) -> the
vector of result elements to store, in register form."""


@dataclass(frozen=True)
class Operand:
    """How A or B lies in memory; `row` is M for A and N for B."""

    element: Element
    row_unit: bool
    """Neighbours along M (N) are neighbours in memory; likewise `k_unit`."""
    k_unit: bool
    batch: tuple[bool, ...]
    """Which batch axes move it."""


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
    k_axes: int
    fma: bool
    finish: Finish | None = None
    """Computes the result from the sums (None: it is the sum, converted)."""

    @property
    def c_holds_sums(self) -> bool:
        """The result itself can hold unfinished sums between blocks of K."""
        return self.finish is None and self.c_unit and self.c.register == self.compute.register

    def write(self, sizes: dict[str, Expr]) -> tuple[str, tuple[Expr, ...]]:
        """The kernel over arguments (A, B, C, ...), and its parameters."""
        return _Writer(self, SizedText(sizes)).write()


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
    held: list[str]
    """Masks of the columns whose sums were begun by an earlier block of K."""
    b_at: str


class _Writer:
    def __init__(self, gemm: Gemm, b: SizedText) -> None:
        self.g, self.b = gemm, b
        self.compute = gemm.compute.register
        self.vector = vector_type(gemm.tile.lanes, self.compute)
        self.zero = b.constant(0, "index")
        self.batch_digits: list[str] = []

    # ---------------------------------------------------------------- tasks

    def write(self) -> tuple[str, tuple[Expr, ...]]:
        g, b = self.g, self.b
        self.a_in = b.memref(0, g.a.element.storage)
        b_storage = self.compute if g.b_mode == "packed" else g.b.element.storage
        self.b_in = b.memref(1, b_storage)
        self.c_out = b.memref(2, g.c.storage)
        self.a_mem, self.b_mem, self.sums = self.a_in, self.b_in, self.c_out
        if g.b_mode == "scratch":
            self.b_mem = b.scratch(self.compute)
        if g.a_mode == "scratch":
            self.a_mem = b.scratch(self.compute, b.size("a_scratch"))
        if not g.c_holds_sums:
            self.sums = b.scratch(self.compute, b.size("c_scratch"))
        copies = [mode == "scratch" for mode in (g.a_mode, g.b_mode)]
        never = b.constant(-1, "index")
        init = [never] * sum(copies)
        with b.loop(b.lo, b.hi, 1, init, hint="task") as task:
            batch, m0, n0 = self._place(task.index)
            m1 = b.min(b.add(m0, b.size("MC")), b.size("M"))
            n1 = b.min(b.add(n0, b.size("NC")), b.size("N"))
            # K = 0 runs once: the sums are zero.
            with b.loop(0, b.max(b.size("K"), 1), b.size("KC"), task.args, hint="k0") as kb:
                depth = b.min(b.sub(b.size("K"), kb.index), b.size("KC"))
                kept = list(kb.args)
                if g.b_mode == "scratch":
                    work = self._number(batch, n0, kb.index, "N", g.b)
                    self._once(kept[-1], work, lambda: self._copy_b(n0, n1, kb.index, depth))
                    kept[-1] = work
                if g.a_mode == "scratch":
                    work = self._number(batch, m0, kb.index, "M", g.a)
                    self._once(kept[0], work, lambda: self._copy_a(m0, m1, kb.index, depth))
                    kept[0] = work
                self._block(batch, m0, m1, n0, n1, kb.index, depth)
                kb.yield_(*kept)
            task.yield_(*kb.results)
        return b.finish()

    def _place(self, task: str) -> tuple[str, str, str]:
        """(batch number, first row, first column); M is fastest where B is copied."""
        b = self.b
        if self.g.a_mode == "scratch" and self.g.b_mode != "scratch":
            rest, j = b.div(task, b.size("NB")), b.rem(task, b.size("NB"))
            batch, i = b.div(rest, b.size("MB")), b.rem(rest, b.size("MB"))
        else:
            rest, i = b.div(task, b.size("MB")), b.rem(task, b.size("MB"))
            batch, j = b.div(rest, b.size("NB")), b.rem(rest, b.size("NB"))
        digits: list[str] = []
        rest = batch
        axes = len(self.g.a.batch)
        for axis in range(axes - 1, -1, -1):
            size = b.size(f"s{axis}")
            digits.insert(0, b.rem(rest, size) if axis else rest)
            rest = b.div(rest, size) if axis else rest
        self.batch_digits = digits
        self.a_base = self._batch_offset("a", self.g.a.batch)
        self.b_base = self._batch_offset("b", self.g.b.batch)
        self.c_base = self._batch_offset("c", (True,) * axes)
        return batch, b.mul(i, b.size("MC")), b.mul(j, b.size("NC"))

    def _batch_offset(self, array: str, moves: Sequence[bool]) -> str:
        b, total = self.b, self.zero
        for axis, digit in enumerate(self.batch_digits):
            if moves[axis]:
                total = b.add(total, b.mul(digit, b.size(f"{array}{axis}")))
        return total

    def _number(self, batch: str, at: str, k0: str, side: str, operand: Operand) -> str:
        """A number for the block of A or B that a task reads: equal blocks, equal numbers."""
        b = self.b
        number = batch if all(operand.batch) else self.zero
        if any(operand.batch) and not all(operand.batch):
            for axis, digit in enumerate(self.batch_digits):
                if operand.batch[axis]:
                    number = b.add(b.mul(number, b.size(f"s{axis}")), digit)
        number = b.add(b.mul(number, b.size(side)), at)
        return b.add(b.mul(number, b.max(b.size("K"), 1)), k0)

    def _once(self, done: str, work: str, copy: Callable[[], None]) -> None:
        with self.b.if_(self.b.cmpi("ne", done, work)):
            copy()

    # ---------------------------------------------------------------- copies

    def _k_offset(self, array: str) -> Callable[[str], str]:
        """From k to its offset in A or B."""
        return k_offset(self.b, array, self.g.k_axes)

    def _copy_b(self, n0: str, n1: str, k0: str, depth: str) -> None:
        g, b = self.g, self.b
        columns = g.tile.columns
        with b.loop(n0, n1, columns, hint="panel") as panel:
            to = b.mul(b.sub(panel.index, n0), b.size("KC"))
            _copy_panel(
                b,
                g.b,
                self.b_in,
                self.b_base,
                g.k_axes,
                panel.index,
                n1,
                k0,
                depth,
                self.b_mem,
                to,
                g.tile,
                g.compute,
            )

    def _copy_a(self, m0: str, m1: str, k0: str, depth: str) -> None:
        g, b = self.g, self.b
        lanes = g.tile.lanes
        offset = self._k_offset("a")
        row = b.mul(m0, b.size("a_m")) if not g.a.row_unit else m0
        source = Source(
            self.a_in,
            g.a.element,
            b.add(self.a_base, row),
            u_offset=lambda u: offset(b.add(k0, u)),
            w_offset=lambda w: w if g.a.row_unit else b.mul(w, b.size("a_m")),
            u_unit=g.a.k_unit and g.k_axes == 1,
            w_unit=g.a.row_unit,
        )
        room = b.mul(b.div(b.add(depth, lanes - 1), lanes), lanes)
        if g.a.k_unit and g.k_axes == 1:
            source = Source(
                source.memory,
                source.element,
                b.add(source.base, k0),
                source.u_offset,
                source.w_offset,
                source.u_unit,
                source.w_unit,
            )
        repack(
            b,
            source,
            self.a_mem,
            self.zero,
            b.size("a_row"),
            depth,
            room,
            b.sub(m1, m0),
            lanes,
            g.compute,
        )

    # ---------------------------------------------------------------- compute

    def _block(self, batch: str, m0: str, m1: str, n0: str, n1: str, k0: str, depth: str) -> None:
        g, b = self.g, self.b
        first = b.cmpi("eq", k0, self.zero)
        end = b.add(k0, b.size("KC"))
        last = b.cmpi("sge", end, b.size("K"))
        rows = g.tile.rows
        with b.loop(n0, n1, g.tile.columns, hint="n") as panel:
            n = panel.index
            columns = [
                b.mask(b.sub(b.sub(b.size("N"), n), v * g.tile.lanes), g.tile.lanes)
                for v in range(g.tile.vectors)
            ]
            again = b.op("arith.xori", first, b.constant(True, "i1"))
            whole = vector_type(g.tile.lanes, "i1")
            held = [
                b.op("arith.andi", c, b.broadcast(again, g.tile.lanes), type_=whole)
                for c in columns
            ]
            b_at = self._b_start(n, n0, k0)

            with b.loop(m0, m1, rows, hint="m") as m:
                at = _At(m.index, m0, n, n0, k0, depth, columns, held, b_at)
                self._tiles([*reversed(g.tile.heights)], b.sub(m1, m.index), at)
                if not g.c_holds_sums:
                    with b.if_(last):
                        self._finish(batch, m.index, m0, n, n0)

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
            return b.mul(b.sub(n, n0), b.size("KC"))
        if g.b_mode == "packed":
            panel = b.mul(n, b.size("K"))
            return b.add(b.add(self.b_base, panel), b.mul(k0, g.tile.columns))
        return b.add(b.add(self.b_base, n), b.mul(k0, b.size("b_k")))

    def _tile(self, height: int, at_: _At) -> None:
        """Add `depth` products to the sums of `height` rows and one panel of columns."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        m, m0, k0, columns = at_.m, at_.m0, at_.k0, at_.columns
        last_row = b.sub(b.size("M"), 1)
        rows = [b.min(b.add(m, r), last_row) if r else m for r in range(height)]
        if g.a_mode == "direct":
            a_at = [
                b.add(
                    self.a_base,
                    b.add(
                        x if g.a.row_unit else b.mul(x, b.size("a_m")),
                        k0 if g.a.k_unit else b.mul(k0, b.size("a_k")),
                    ),
                )
                for x in rows
            ]
        else:
            a_at = [b.mul(b.sub(x, m0), b.size("a_row")) for x in rows]
        c_at = self._sums_at(rows, m, m0, at_.n, at_.n0)
        zero = b.constant(0, self.vector)
        init = [
            b.masked_load(self.sums, b.add(at, v * lanes), at_.held[v], zero, readonly=False)
            for at in c_at
            for v in range(g.tile.vectors)
        ]
        step: str | int = b.size("b_k") if g.b_mode == "direct" else g.tile.columns
        with b.loop(0, at_.depth, 1, init, hint="k") as k:
            line = b.add(at_.b_at, b.mul(k.index, step))
            values = [
                self._load_b(b.add(line, v * lanes), columns[v]) for v in range(g.tile.vectors)
            ]
            sums = list(k.args)
            along = k.index
            if g.a_mode == "direct" and not g.a.k_unit:
                along = b.mul(k.index, b.size("a_k"))
            for r, at in enumerate(a_at):
                scalar = b.load(self.a_mem, b.add(at, along), readonly=g.a_mode == "direct")
                factor = b.broadcast(scalar, lanes)
                for v, value in enumerate(values):
                    i = r * g.tile.vectors + v
                    sums[i] = self._multiply_add(factor, value, sums[i])
            k.yield_(*sums)
        for r, at in enumerate(c_at):
            for v in range(g.tile.vectors):
                value = k.results[r * g.tile.vectors + v]
                b.masked_store(value, self.sums, b.add(at, v * lanes), columns[v])

    def _load_b(self, at: str, mask: str) -> str:
        """Lanes of B; in place, the columns beyond the last are not there to be read."""
        g, b = self.g, self.b
        if g.b_mode == "direct":
            return b.masked_load(self.b_mem, at, mask, b.constant(0, self.vector))
        return b.vector_load(self.b_mem, at, g.tile.lanes, readonly=g.b_mode == "packed")

    def _sums_at(self, rows: Sequence[str], m: str, m0: str, n: str, n0: str) -> list[str]:
        """Where the sums of each row are kept."""
        g, b = self.g, self.b
        if g.c_holds_sums:
            return [b.add(self.c_base, b.add(b.mul(x, b.size("c_m")), n)) for x in rows]
        # One tile is enough when K is one block (`many` 0), else the task's block of C is kept.
        many, stride = b.size("many"), b.size("c_row")
        column = b.mul(many, b.sub(n, n0))
        base = b.add(b.mul(b.mul(many, b.sub(m, m0)), stride), column)
        return [b.add(base, b.mul(r, stride)) for r in range(len(rows))]

    def _multiply_add(self, x: str, y: str, total: str) -> str:
        b = self.b
        if not self.g.compute.is_float:
            return b.op("arith.addi", total, b.op("arith.muli", x, y))
        if self.g.fma:
            return b.op("math.fma", x, y, total)
        return b.op("arith.addf", total, b.op("arith.mulf", x, y))

    # ---------------------------------------------------------------- results

    def _finish(self, batch: str, m: str, m0: str, n: str, n0: str) -> None:
        """Turn the finished sums of a tile into result elements."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        (base,) = self._sums_at([m], m, m0, n, n0)
        valid = b.min(b.constant(g.tile.rows, "index"), b.sub(b.size("M"), m))
        width = b.min(b.constant(g.tile.columns, "index"), b.sub(b.size("N"), n))
        with b.loop(0, valid, 1, hint="r") as r:
            row = b.add(m, r.index)
            line = b.add(base, b.mul(r.index, b.size("c_row")))
            with b.loop(0, width, lanes, hint="j") as j:
                at = b.add(line, j.index)
                sums = b.vector_load(self.sums, at, lanes, readonly=False)
                column = b.add(n, j.index)
                mask = b.mask(b.sub(width, j.index), lanes)
                if g.finish is None:
                    value = convert(b, sums, g.compute, g.c)
                else:
                    value = g.finish(b, sums, batch, row, column)
                if g.c.kind == "b":
                    value = b.cast("arith.extui", value, "i8")
                self._store(value, row, column, mask)

    def _store(self, value: str, row: str, column: str, mask: str) -> None:
        g, b = self.g, self.b
        line = b.add(self.c_base, b.mul(row, b.size("c_m")))
        if g.c_unit:
            b.masked_store(value, self.c_out, b.add(line, column), mask)
            return
        stride = b.size("c_n")
        base = b.add(line, b.mul(column, stride))
        steps = b.op("arith.muli", b.iota(g.tile.lanes), b.broadcast(stride, g.tile.lanes))
        b.scatter(value, self.c_out, base, steps, mask)


def k_offset(b: SizedText, array: str, axes: int) -> Callable[[str], str]:
    """From a flat k to its offset in array `a` or `b`."""

    def offset(k: str) -> str:
        total, rest = b.constant(0, "index"), k
        for axis in range(axes - 1, -1, -1):
            size = b.size(f"k{axis}") if axis else ""
            digit = b.rem(rest, size) if axis else rest
            rest = b.div(rest, size) if axis else rest
            total = b.add(total, b.mul(digit, b.size(f"k{array}{axis}")))
        return total

    return offset


def _copy_panel(
    b: SizedText,
    operand: Operand,
    memory: str,
    base: str,
    k_axes: int,
    n: str,
    n_end: str,
    k0: str,
    depth: str,
    to_memory: str,
    to: str,
    tile: Tile,
    compute: Element,
) -> None:
    """Copy columns n.. of B (at most a panel), `depth` of K from k0 on, into a panel at `to`."""
    offset = k_offset(b, "b", k_axes)
    row = n if operand.row_unit else b.mul(n, b.size("b_n"))
    base = b.add(base, row)
    # Where K is one axis with neighbours in memory its offset is k itself.
    unit = operand.k_unit and k_axes == 1
    source = Source(
        memory,
        operand.element,
        b.add(base, k0) if unit else base,
        u_offset=lambda u: u if operand.row_unit else b.mul(u, b.size("b_n")),
        w_offset=lambda w: w if unit else offset(b.add(k0, w)),
        u_unit=operand.row_unit,
        w_unit=unit,
    )
    count = b.min(b.constant(tile.columns, "index"), b.sub(n_end, n))
    repack(b, source, to_memory, to, tile.columns, count, tile.columns, depth, tile.lanes, compute)


def pack_kernel(
    operand: Operand, tile: Tile, compute: Element, k_axes: int, sizes: dict[str, Expr]
) -> tuple[str, tuple[Expr, ...]]:
    """The kernel that writes all panels of B; arguments (B, panels), a task a panel."""
    b = SizedText(sizes)
    memory, panels = b.memref(0, operand.element.storage), b.memref(1, compute.register)
    with b.loop(b.lo, b.hi, 1, hint="task") as task:
        count = b.size("panels")
        batch, panel = b.div(task.index, count), b.rem(task.index, count)
        base, rest = b.constant(0, "index"), batch
        for axis in range(len(operand.batch) - 1, -1, -1):
            if operand.batch[axis]:
                size = b.size(f"s{axis}")
                base = b.add(base, b.mul(b.rem(rest, size), b.size(f"b{axis}")))
                rest = b.div(rest, size)
        to = b.mul(b.mul(task.index, b.size("K")), tile.columns)
        _copy_panel(
            b,
            operand,
            memory,
            base,
            k_axes,
            b.mul(panel, tile.columns),
            b.size("N"),
            b.constant(0, "index"),
            b.size("K"),
            panels,
            to,
            tile,
            compute,
        )
    return b.finish()
