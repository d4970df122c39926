"""The loop over the tasks of a kernel: task numbers are indices of an outer iteration space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue


def digits_of(
    b: KernelBuilder, number: IndexValue, sizes: Sequence[IndexValue]
) -> list[IndexValue]:
    """`number` in mixed radix `sizes`, of which there is one at least."""
    return split(b, number, reversed(sizes[1:]))


def split(b: KernelBuilder, number: IndexValue, sizes: Iterable[IndexValue]) -> list[IndexValue]:
    """The same; `sizes` are those of all digits but the first, from the last on."""
    digits: list[IndexValue] = []
    for size in sizes:
        radix = b.max(size, 1)
        digits.insert(0, number % radix)
        number = number // radix
    return [number, *digits]


def following(
    b: KernelBuilder, digits: Sequence[IndexValue], sizes: Sequence[IndexValue], zero: IndexValue
) -> list[IndexValue]:
    """The digits of the next number; the first size is not asked for."""
    found, up = list(digits), digits[-1] + 1
    for k in range(len(found) - 1, 0, -1):
        full = up.equals(sizes[k])
        found[k] = b.select(full, zero, up)
        more = found[k - 1] + 1
        up = b.select(full, more, found[k - 1])
    return [up, *found[1:]]


def odometer(
    b: KernelBuilder,
    sizes: Sequence[IndexValue],
    body: Callable[[IndexValue, list[IndexValue]], None],
) -> None:
    """Write the task loop; `body(task, digits)` with the task number in mixed radix `sizes`."""
    if b.one_task:
        with b.if_(b.lo < b.hi):
            body(b.lo, digits_of(b, b.lo, sizes or [b.lo]))
        return
    if len(sizes) <= 1:
        with b.loop(b.lo, b.hi, 1, hint="task") as loop:
            body(loop.index, [loop.index])
        return
    with b.loop(b.lo, b.hi, 1, digits_of(b, b.lo, sizes), hint="task") as loop:
        body(loop.index, loop.args)
        loop.yield_(*following(b, loop.args, sizes, b.index(0)))
