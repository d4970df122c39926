"""Number of elements that a thread loads and stores at once."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import row_of
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.kernels.lanes import choose_lanes
from shlo_disc.lower.values.elements import element_of

_CHEAP = 10
"""Cycles of an op below which it is worth twice the code. Functions are long: an access of 8 bytes
hides behind them."""

_CHEAP_ALONE = 40
"""The same where elements are all that is computed. gelu of bf16, 8192 x 8192 on an H200: 82 us
with whole accesses, 105 us with accesses of 8 bytes. Softmax takes as long with either."""

_MOST_NARROW = 8
"""Elements of narrow floats, at most: they are computed in f32, so each takes a register."""


def access_lanes(
    block: ir.Block, roots: Sequence[ir.Value], machine: Machine, *, alone: bool = False
) -> int:
    """Elements that one access takes, where all of them are computed in registers.

    `alone`: nothing is reduced.

    As `choose_lanes`, but whole accesses for floats of 8 and 16 bits where every array is narrow
    and all ops are cheap. 0 where an op computes element by element.
    """
    lanes = choose_lanes(block, machine)
    arrays = [value for value in (*block.arguments, *roots) if ir.ShapedType(value.type).rank]
    widest = max((element_of(value).bytes for value in arrays), default=0)
    if not lanes or not 0 < widest < 4:
        return lanes
    cheap = _CHEAP_ALONE if alone else _CHEAP
    if any(row_of(view.operation).cost >= cheap for view in block.operations):
        return lanes
    return max(lanes, min(_MOST_NARROW, machine.lanes(widest)))
