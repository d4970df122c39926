"""The loop over the tasks of a kernel: task numbers are indices of an outer iteration space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.typed import IndexValue


def digits_of(
    b: KernelBuilder, number: IndexValue, sizes: Sequence[IndexValue]
) -> list[IndexValue]:
    """`number` in mixed radix `sizes`, of which there is one at least."""
    digits: list[IndexValue] = []
    for size in reversed(sizes[1:]):
        radix = b.max(size, 1)
        digits.insert(0, number % radix)
        number = number // radix
    return [number, *digits]


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
        zero, following = b.index(0), list(loop.args)
        one = following[-1] + 1
        for k in range(len(sizes) - 1, 0, -1):
            full = one.equals(sizes[k])
            following[k] = b.select(full, zero, one)
            one = b.select(full, following[k - 1] + 1, following[k - 1])
        following[0] = one
        loop.yield_(*following)
