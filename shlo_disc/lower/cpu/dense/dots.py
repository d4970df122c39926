"""Few rows against a B whose columns run along K: inner products, several columns at a time.

B is read once, in place (attention scores of one token, a weight that is not kept packed). A vector
holds neighbours along K; the accumulators of `GROUP` columns are then added up lane by lane
in a tree of exchanges, which leaves one vector with a column in each lane.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.dense.gemm import Writer
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.repack import load_as
from shlo_disc.lower.cpu.dense.text import SizedText
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.cpu.text import Text, lanes_of, vector_type

__all__ = ["GROUP", "add_up", "write_dots"]

GROUP = 8
"""Columns at a time: enough chains for two FMA units, and as many addresses as x86 has registers
for."""


def write_dots(gemm: Gemm, sizes: dict[str, Expr]) -> tuple[str, tuple[Expr, ...]]:
    """The kernel over arguments (A, B, C, ...), with the tasks of the tiled kernel."""
    return _Dots(gemm, SizedText(sizes)).write()


class _Dots(Writer):
    def write(self) -> tuple[str, tuple[Expr, ...]]:
        g, b = self.g, self.b
        group = min(GROUP, g.tile.lanes)
        self.a_in, self.b_in = b.memref(0, g.a.element.storage), b.memref(1, g.b.element.storage)
        self.c_out = b.memref(2, g.c.storage)
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            _, m0, n0 = self._place(task.index)
            m1 = b.min(b.add(m0, b.size("MC")), b.size("M"))
            n1 = b.min(b.add(n0, b.size("NC")), b.size("N"))
            last = b.sub(b.size("N"), 1)
            with b.loop(n0, n1, group, hint="n") as n:
                columns = [b.min(b.add(n.index, i), last) for i in range(group)]
                starts = [b.add(self.b_base, b.mul(c, b.size("br0"))) for c in columns]
                mask = b.mask(b.sub(b.size("N"), n.index), group)
                with b.loop(m0, m1, 1, hint="m") as m:
                    row = b.add(self.a_base, b.mul(m.index, b.size("ar0")))
                    sums = add_up(b, self._sums(row, starts), group, g.compute.is_float)
                    self.write_result(sums, m.index, n.index, mask)
        return b.finish()

    def _sums(self, row: str, starts: list[str]) -> list[str]:
        """The products of one row with every column, spread over lanes."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        depth = b.size("K")
        whole = b.sub(depth, b.rem(depth, lanes))

        def step(k: str, sums: list[str], mask: str | None) -> list[str]:
            x = load_as(b, self.a_in, g.a.element, b.add(row, k), lanes, g.compute, mask)
            out = []
            for start, total in zip(starts, sums, strict=True):
                at = b.add(start, k)
                y = load_as(b, self.b_in, g.b.element, at, lanes, g.compute, mask)
                out.append(multiply_add(b, x, y, total, g.compute, g.fma))
            return out

        zeros = [b.constant(0, vector_type(lanes, g.compute.register))] * len(starts)
        with b.loop(0, whole, lanes, zeros, hint="k") as k:
            k.yield_(*step(k.index, k.args, None))
        sums = k.results
        with b.if_(b.cmpi("slt", whole, depth)) as rest:
            rest.yield_(*step(whole, sums, b.mask(b.sub(depth, whole), lanes)))
            with rest.otherwise():
                rest.yield_(*sums)
        return rest.results


def add_up(b: Text, vectors: list[str], count: int, is_float: bool) -> str:
    """One vector whose lane i is the sum of all lanes of vectors[i]; `count` of them, a power of 2.

    In each step vector i and its partner give one: it keeps half of the lanes of each, added to
    the other half. In the end the top bits of a lane number say whose sums it holds.
    """
    add = "arith.addf" if is_float else "arith.addi"
    lanes = lanes_of(b.type_of(vectors[0]))
    half = lanes // 2
    while len(vectors) > 1:
        low = [j if not j & half else lanes + j - half for j in range(lanes)]
        high = [j + half if not j & half else lanes + j for j in range(lanes)]
        pairs = zip(vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :], strict=True)
        vectors = [b.op(add, b.shuffle(x, y, low), b.shuffle(x, y, high)) for x, y in pairs]
        half //= 2
    (total,) = vectors
    while lanes > count:
        even, odd = range(0, lanes, 2), range(1, lanes, 2)
        total = b.op(add, b.shuffle(total, total, even), b.shuffle(total, total, odd))
        lanes //= 2
    return total
