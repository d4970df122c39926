"""Few rows against a B whose columns run along K: inner products, several columns at a time.

B is read once, in place (attention scores of one token, a weight that is not kept packed). A vector
holds neighbours along K; a register tile of rows and columns shares its loads. A tree of exchanges
then adds up the accumulators of a row and leaves one vector with a column in each lane.

A is read in place, or from a copy in scratch memory where its rows do not run along K.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.gemm import Product, Writer, builder_of, late_if_data, write_product
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.repack import load_as
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.kernels.sized import Written
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.products.prologue import OperandPlace
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type

GROUP = 8
"""Columns at a time: enough chains for two FMA units, and as many addresses as x86 has registers
for."""
HEIGHTS = {32: (5, 4, 3, 2, 1), 16: (3, 2, 1)}
"""Row counts there is code for, by number of vector registers. All rows share one load of B."""
CLAMPED_HEIGHT = {32: 3, 16: 2}
"""The same where A is copied: rows beyond the last are the last one again, so one height does. With
two heights (5 and 2) a kernel took as long to run, and more time to compile."""
FIRST_LINES = 3
"""Cache lines of each column of the next group that are prefetched: there the hardware's prefetch
has not begun yet. Time of three rows against none: 0.92 to 0.98 in L3; eight lines 1.02 to 1.1."""
AHEAD_ROWS = 4
"""Height from which on the loop prefetches the next group of columns. With so much work for each
line, out-of-order execution does not run ahead to the next one. Four and five rows take 0.6 of the
time without prefetch where B is in memory, and 0.95 to 1.0 in L3. Three rows take 1.15 in L3 (a
core of an EPYC)."""


def write_dots(gemm: Gemm, sizes: Mapping[str, Expr], label: str) -> Product:
    """The kernel over arguments (A, B, C, ...), with the tasks of the tiled kernel."""
    # All of K is one block, and B is read along it.
    own = {name: size for name, size in sizes.items() if name not in ("KC", "bk0")}
    if gemm.finish is None:
        return Product(late_if_data(_dots, gemm, own), ())
    return write_product(_dots, gemm, own, label, _Dots)


def _dots(gemm: Gemm, sizes: Mapping[str, Expr]) -> Written:
    return _Dots(gemm, builder_of(gemm, sizes)).write()


def dots_scratch_bytes(registers: int) -> int:
    """Scratch memory of a kernel with an epilogue: the sums of one group of columns."""
    return max(HEIGHTS[registers]) * GROUP * 8


class _Dots(Writer):
    def __init__(self, gemm: Gemm, b: SizedBuilder) -> None:
        super().__init__(gemm, b)
        self.registers = gemm.machine.vector_registers
        self.group = min(GROUP, gemm.tile.lanes)

    def write(self) -> Written:
        g, b, group = self.g, self.b, self.group
        self.a_in, self.b_in = b.memref(0, g.a.element.storage), b.memref(1, g.b.element.storage)
        copies = g.a_mode == "scratch"
        self.a_mem = b.scratch(g.copied, b.size("a_scratch")) if copies else self.a_in
        if g.called is not None:
            self.sums = b.scratch(self.compute)
        else:
            self.c_out = b.memref(2, g.c.storage)
        init = [b.index(-1)] if copies else []
        with b.loop(b.lo, b.hi, 1, init, hint="task") as task:
            batch, m0, n0 = self._place(task.index)
            m1 = b.min(m0 + b.size("MC"), b.size("M"))
            n1 = b.min(n0 + b.size("NC"), b.size("N"))
            if copies:
                work = self._number(batch, m0, self.zero, "M", g.a)
                copy = functools.partial(self.copy_a, m0, m1, self.zero, b.size("K"))
                self._once(task.args[0], work, copy)
            with b.loop(n0, n1, group, hint="n") as n:
                starts = self._starts(n.index, group)
                # Hardware prefetch starts anew at every column.
                step = b.size("br0")
                ask = self.b_base + (n.index + group) * step
                for _ in range(group if g.fill is None else 0):
                    for number in range(FIRST_LINES):
                        MemRef.of(self.b_in).prefetch(ask + 64 // g.b.element.bytes * number)
                    ask = ask + step
                if copies:
                    self._clamped(m0, m1, n.index, starts)
                else:
                    self._exactly(m0, m1, n.index, starts)
            if copies:
                task.yield_(work)
        return b.finish()

    def _exactly(
        self, m0: IndexValue, m1: IndexValue, n: IndexValue, starts: list[IndexValue]
    ) -> None:
        """Rows `m0` to `m1`, on a height for every remainder."""
        b, m = self.b, m0
        for height in HEIGHTS[self.registers]:
            end = m1 - (m1 - m) % height
            with b.loop(m, end, height, hint="m") as at:
                rows = [at.index + r for r in range(height)]
                lines = [self.a_base + row * b.size("ar0") for row in rows]
                self._rows(rows, lines, n, starts)
            m = end

    def _clamped(
        self, m0: IndexValue, m1: IndexValue, n: IndexValue, starts: list[IndexValue]
    ) -> None:
        """Rows `m0` to `m1` of the copy of A, on one height."""
        b, height = self.b, CLAMPED_HEIGHT[self.registers]
        with b.loop(m0, m1, height, hint="m") as at:
            rows = [b.min(at.index + r, m1 - 1) for r in range(height)]
            self._rows(rows, [(row - m0) * b.size("a_row") for row in rows], n, starts)

    def _starts(self, n: IndexValue, count: int) -> list[IndexValue]:
        """Where columns `n` to `n + count` of B begin; those beyond the last are the last.

        Of a B that is computed these are the columns themselves.
        """
        b, last = self.b, self.b.size("N") - 1
        columns = [b.min(n + i, last) for i in range(count)]
        if self.g.fill is not None:
            return columns
        return [self.b_base + c * b.size("br0") for c in columns]

    def _rows(
        self,
        rows: list[IndexValue],
        lines: list[IndexValue],
        n: IndexValue,
        starts: list[IndexValue],
    ) -> None:
        """Write the results of `rows` in the group of columns from `n` on.

        `lines`: where these rows of A begin. `starts`: where these columns of B begin.
        """
        g, b, group, height = self.g, self.b, self.group, len(rows)
        count = group
        while count > 1 and height * count + height + 1 > self.registers:
            count //= 2
        with b.loop(0, group, count, hint="c") as c:
            column = n + c.index
            own = starts if count == group else self._starts(column, count)
            mask = b.mask(b.size("N") - column, count)
            for number, sums in enumerate(self._sums(lines, own)):
                total = add_up(b, sums, count)
                if g.called is None:
                    self.write_result(total, rows[number], column, mask)
                else:
                    self.sums.vector_store(total, c.index + number * group)
        if g.called is not None:
            self.call(0, [rows[0], n, rows[-1] + 1, self.c_base, *self.batch_digits])

    def finish_sums(self, m: IndexValue, n: IndexValue, base: IndexValue) -> None:
        """See `Writer.finish_sums`: of rows from `m` on in a group of columns; `base` ends them."""
        b, mask = self.b, self.b.mask(self.b.size("N") - n, self.group)
        with b.loop(m, base, 1, hint="row") as row:
            at = (row.index - m) * self.group
            total = self.sums.vector_load(at, self.group, readonly=False)
            self.write_result(total, row.index, n, mask)

    def _sums(self, lines: list[IndexValue], starts: list[IndexValue]) -> list[list[Register]]:
        """The sums of every row (`lines`: where it begins in A) with every column (`starts`: in B).

        A list of columns for each row; each sum is still spread over the lanes of a vector. Lane i
        adds up the products i, i + lanes, ... in this order, whatever the numbers of rows and
        columns.
        """
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        depth = b.size("K")
        following = b.size("br0") * self.group
        copied = g.a_mode == "scratch"
        element = g.compute if copied else g.a.element

        def step(k: IndexValue, mask: Mask | None, sums: list[Register]) -> list[Register]:
            xs = [
                load_as(b, self.a_mem, element, line + k, lanes, g.compute, mask, not copied)
                for line in lines
            ]
            out = list(sums)
            for c, start in enumerate(starts):
                y = self._right(start, k, mask, following if len(lines) >= AHEAD_ROWS else None)
                for r, x in enumerate(xs):
                    i = r * len(starts) + c
                    out[i] = multiply_add(b, x, y, sums[i], g.compute)
            return out

        zero = b.constant(0, vector_type(lanes, g.compute.register))
        init = [zero] * (len(lines) * len(starts))
        flat = strips(b, 0, depth, lanes, step, init, hint="k")
        width = len(starts)
        return [flat[r * width : (r + 1) * width] for r in range(len(lines))]

    def _right(
        self, start: IndexValue, k: IndexValue, mask: Mask | None, following: IndexValue | None
    ) -> Register:
        """A vector of B along K, from `k` on in the column that begins at `start`.

        `following`: from there on to where the same is in the next group, which is prefetched.
        """
        g, b = self.g, self.b
        if g.fill is not None:
            value = g.fill(b, OperandPlace(self.batch_digits, k, start), mask)
            return value if mask is None else b.select(mask, value, value.constant(0))
        memory = MemRef.of(self.b_in)
        if following is not None:
            memory.prefetch(start + (k + following))
        return load_as(b, memory, g.b.element, start + k, g.tile.lanes, g.compute, mask)


def add_up(b: KernelBuilder, vectors: list[Register], count: int) -> Register:
    """One vector whose lane i is the sum of all lanes of vectors[i]; `count` of them, a power of 2.

    In each step vector i and its partner give one: it keeps half of the lanes of each, added to
    the other half. What is kept stays in its lanes (a blend). In the end the top bits of a lane
    number say whose sums it holds.
    """
    lanes = vectors[0].lanes
    half = lanes // 2
    while len(vectors) > 1:
        low = [j if not j & half else lanes + j for j in range(lanes)]
        high = [j + half if not j & half else lanes + j - half for j in range(lanes)]
        pairs = zip(vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :], strict=True)
        vectors = [b.shuffle(x, y, low) + b.shuffle(x, y, high) for x, y in pairs]
        half //= 2
    (total,) = vectors
    while lanes > count:
        even, odd = range(0, lanes, 2), range(1, lanes, 2)
        total = b.shuffle(total, total, even) + b.shuffle(total, total, odd)
        lanes //= 2
    return total
