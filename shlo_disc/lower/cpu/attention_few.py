"""Attention of a few rows: a step of decoding. Keys and values are read once, where they lie.

Panels pay when many rows read them; here copying them would take longer than the products.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.cpu.dense.gemm import Writer
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.kernels.strips import masked_strips, strips, whole_strips
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register

FEW_ROWS = 2
"""Rows up to which keys and values are not packed. Time against packing, over 4096 keys of 64 to
128 elements: one row 0.2 to 0.7, two rows 0.5 to 0.9, three rows 1."""

CHAINS = 8
"""Vectors of a row of the result at once: as many sums that do not wait for each other."""


def reads_in_place(score: Gemm, mix: Gemm) -> bool:
    """True if rows of queries and keys are runs along the depth, and values along their width. All
    must have the type that is computed with.
    """
    as_is = all(
        x.element.storage == g.compute.register for g, x in ((score, score.b), (mix, mix.b))
    )
    return as_is and score.a_mode == "direct" and score.b.k_run and mix.b.row_run


class FewRows:
    """Writes both products of one row at a time: of queries [m, depth] with keys [n, depth], and of
    weights [m, n] with values [n, width]; f32 or f64 (see `reads_in_place`).
    """

    def __init__(self, score: Writer, mix: Writer, keys: MemRef, values: MemRef) -> None:
        """`keys`, `values`: their memrefs."""
        self.s, self.v, self.keys, self.values = score, mix, keys, values
        self.b = score.b

    def scores(self, m: IndexValue, k_base: IndexValue) -> None:
        """Row `m` of the scores, as many keys at once as there are lanes."""
        b, s, lanes = self.b, self.s, self.s.g.tile.lanes
        count, depth = s.size("N"), s.size("K")
        query = s.a_base + m * s.size("ar0")
        to = s.c_base + m * s.size("c_m")
        zero, last = b.constant(0, s.vector), count - 1

        with b.loop(0, count, lanes, hint="key") as key:
            numbers = [b.min(key.index + i, last) for i in range(lanes)]
            rows = [k_base + n * s.size("br0") for n in numbers]

            def step(at: IndexValue, mask: Mask | None, sums: Sequence[Register]) -> list[Register]:
                def load(memory: MemRef, row: IndexValue) -> Register:
                    if mask is None:
                        return memory.vector_load(row + at, lanes)
                    return memory.masked_load(row + at, mask, zero)

                x = load(MemRef.of(s.a_in), query)
                return [
                    multiply_add(b, x, load(self.keys, row), total, s.g.compute)
                    for row, total in zip(rows, sums, strict=True)
                ]

            products = strips(b, 0, depth, lanes, step, [zero] * lanes, hint="d")
            mask = b.mask(count - key.index, lanes)
            s.c_out.masked_store(self._sums(products), to + key.index, mask)

    def _sums(self, vectors: Sequence[Register]) -> Register:
        """Lane i is the sum of the lanes of vector i: pairs of neighbours, then pairs of pairs."""
        b, found = self.b, list(vectors)
        lanes = len(found)
        even, odd = list(range(0, 2 * lanes, 2)), list(range(1, 2 * lanes, 2))
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [b.shuffle(x, y, even) + b.shuffle(x, y, odd) for x, y in pairs]
        return found[0]

    def mix(self, m: IndexValue, v_base: IndexValue) -> None:
        """Row `m` of the result."""
        b, v, lanes = self.b, self.v, self.v.g.tile.lanes
        width = v.size("N")
        weights = v.a_base + m * v.size("ar0")
        zero = b.constant(0, v.vector)

        def run(first: IndexValue, count: int, mask: Mask | None) -> None:
            """`count` vectors from column `first` on."""
            with b.loop(0, v.size("K"), 1, [zero] * count, hint="key") as key:
                weight = v.a_mem.load(weights + key.index, readonly=False)
                factor = b.broadcast(weight, lanes)
                row = v_base + first + key.index * v.size("bk0")
                starts = [row + i * lanes for i in range(count)]
                values = [
                    self.values.vector_load(x, lanes)
                    if mask is None
                    else self.values.masked_load(x, mask, zero)
                    for x in starts
                ]
                pairs = zip(values, key.args, strict=True)
                key.yield_(*(multiply_add(b, factor, x, y, v.g.compute) for x, y in pairs))
            on = mask if mask is not None else b.flags(True, lanes)
            for i, total in enumerate(key.results):
                v.write_result(total, m, first + i * lanes, on)

        end, _ = whole_strips(
            b, 0, width, CHAINS * lanes, lambda at, _: run(at, CHAINS, None), hint="e"
        )
        masked_strips(b, end, width, lanes, lambda at, mask, _: run(at, 1, mask), hint="e")
