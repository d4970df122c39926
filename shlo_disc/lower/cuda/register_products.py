"""Products of f32, rounded to tf32, with an operand whose rows are contiguous: `wgmma` of sm_90a.

The instruction reads tf32 from shared memory only where K is contiguous. So a warpgroup loads the
other operand, 64 rows of it, to registers. It must be the left one of the instruction. Where it is
B, the instruction computes the transpose of C. Tiles of C go through shared memory on their way
out in any case.

A warpgroup multiplies while another one loads.
"""

from __future__ import annotations

from shlo_disc.lower.cuda.box_products import BoxWriter
from shlo_disc.lower.cuda.instructions import (
    STEP_BYTES,
    load_word,
    multiply_from_registers,
)
from shlo_disc.lower.cuda.swizzle import LINE
from shlo_disc.lower.values.typed import IndexValue, Register


class RegisterWriter(BoxWriter):
    """Writes the kernel of one tile, whose left operand has contiguous rows."""

    units = "warpgroups_registers"
    overlaps = False

    def multiplied(
        self, stage: IndexValue, sums: list[Register], added: Register | None = None
    ) -> list[Register]:
        """See `WarpgroupWriter.multiplied`; there are always sums."""
        assert added is None
        words, step = self._places(stage), STEP_BYTES // 4 * LINE
        left = [
            [load_word(self.b, word + k * step if k else word) for word in words]
            for k in range(LINE // STEP_BYTES)
        ]
        right = self.right
        return multiply_from_registers(self.b, left, right.described(stage), right.advance, sums)

    def _places(self, stage: IndexValue) -> list[Register]:
        """Where (i32) this thread's four words of the first step of a stage are.

        Lines run along 32 rows, so a warp has half a line of each step along K. A thread has rows
        `lane // 4` and 8 behind it, steps `lane % 4` and 4 behind it: rows first.
        """
        b, ring = self.b, self.left
        lane = b.thread % self.plan.machine.warp
        row, k = lane // 4, lane % 4
        block, half = self.warp // 2, self.warp % 2
        start = stage * ring.stage_bytes + ring.offset + block * (ring.run * LINE)
        start = start + k * LINE + row % 4 * 4
        chunk, line = (b.cast("arith.index_cast", x, "i32") for x in (half * 4 + row // 4, k))
        base = b.shared_base + b.cast("arith.index_cast", start, "i32")
        return [
            base + deep * LINE + ((chunk + down) ^ (line + deep)) * 16
            for deep in (0, 4)
            for down in (0, 2)
        ]
