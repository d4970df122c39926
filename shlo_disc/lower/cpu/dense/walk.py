"""How the rows of an operand, or its elements along K, follow each other in memory."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Operand
from shlo_disc.lower.kernels.odometer import following
from shlo_disc.lower.values.typed import IndexValue, MemRef


def digits_offset(b: SizedBuilder, name: str, count: int, index: IndexValue) -> IndexValue:
    """The offset of `index` in mixed radix: sizes `{name}s1`, ..., strides `{name}0`, ...."""
    total, rest = b.index(0), index
    for step in range(count - 1, -1, -1):
        digit = rest
        if step:
            size = b.max(b.size(f"{name}s{step}"), 1)
            digit, rest = rest % size, rest // size
        total = total + digit * b.size(f"{name}{step}")
    return total


@dataclass(frozen=True)
class Walk:
    """Offsets along rows or K from some index on: `first + offset(i)`, i from 0."""

    first: IndexValue
    offset: Callable[[IndexValue], IndexValue]
    table: MemRef | None = None


def walk(
    b: SizedBuilder, operand: Operand, side: str, start: IndexValue, count: IndexValue
) -> Walk:
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
        return Walk(start * stride, lambda i: i * stride)
    table, zero = b.scratch("i64", b.size(f"table_{side}")), b.index(0)
    sizes = [zero, *(b.max(b.size(f"{name}s{i}"), 1) for i in range(1, count_steps))]
    strides = [b.size(f"{name}{i}") for i in range(count_steps)]
    digits, rest = [start] * count_steps, start
    for i in range(count_steps - 1, 0, -1):
        digits[i], rest = rest % sizes[i], rest // sizes[i]
    digits[0] = rest
    with b.loop(0, count, 1, digits, hint="entry") as entry:
        offset = zero
        for digit, stride in zip(entry.args, strides, strict=True):
            offset = offset + digit * stride
        table.store(b.cast("arith.index_cast", offset, "i64"), entry.index)
        entry.yield_(*following(b, entry.args, sizes, zero))

    def look_up(i: IndexValue) -> IndexValue:
        return b.to_index("arith.index_cast", table.load(i, readonly=False))

    return Walk(zero, look_up, table)
