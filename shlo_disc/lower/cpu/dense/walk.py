"""How the rows of an operand, or its elements along K, follow each other in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.operands import Operand

__all__ = ["Walk", "digits_offset", "walk"]


def digits_offset(b: SizedBuilder, name: str, count: int, index: str) -> str:
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


def walk(b: SizedBuilder, operand: Operand, side: str, start: str, count: str) -> Walk:
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
