"""Strip-mined loops: elements `first` to `last`, a vector at a time, and then those that are left.

=============== ==================================================================================
`strips`        whole vectors, then one masked vector
`whole_strips`  whole steps only; says where they end
`masked_strips` masked vectors only
`vector_loop`   `strips` over a factor of an iteration space
=============== ==================================================================================

All of them carry values from one vector to the next: the body is given them and returns as many,
of the same types. A body that carries nothing may return None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.lower.values.typed import IndexLike, IndexValue, Mask, Register, Value

V = TypeVar("V", bound=Value)


def strips(
    b: KernelBuilder,
    first: IndexLike,
    last: IndexValue,
    lanes: int,
    body: Callable[[IndexValue, Mask | None, list[Register]], Sequence[Register] | None],
    carry: Sequence[Register] = (),
    hint: str = "j",
    *,
    divisible: bool = False,
) -> list[Register]:
    """Write `body(index of the first lane, mask, carried)` for first <= index < last.

    The mask is None in whole vectors. The last vector, if not whole, has a mask: at least its first
    lane is on. `divisible` says that there is none. Returns what is carried in the end.
    """
    if divisible:
        with b.loop(first, last, lanes, list(carry), hint=hint) as loop:
            loop.yield_(*(body(loop.index, None, list(loop.args)) or ()))
        return loop.results
    end, carried = whole_strips(
        b, first, last, lanes, lambda at, args: body(at, None, args), carry, hint
    )
    return b.either(
        end < last, lambda: body(end, b.mask(last - end, lanes), list(carried)), lambda: carried
    )


def whole_strips(
    b: KernelBuilder,
    first: IndexLike,
    last: IndexValue,
    step: int,
    body: Callable[[IndexValue, list[V]], Sequence[V] | None],
    carry: Sequence[V] = (),
    hint: str = "j",
) -> tuple[IndexValue, list[V]]:
    """Write `body(index, carried)` for every whole `step` between `first` and `last`.

    Returns where these steps end and what is carried there; fewer than `step` elements are left.
    """
    count = last if first == 0 else last - first
    end = last - count % step
    with b.loop(first, end, step, list(carry), hint=hint) as loop:
        loop.yield_(*(body(loop.index, list(loop.args)) or ()))
    return end, loop.results


def masked_strips(
    b: KernelBuilder,
    first: IndexLike,
    last: IndexValue,
    lanes: int,
    body: Callable[[IndexValue, Mask, list[Register]], Sequence[Register] | None],
    carry: Sequence[Register] = (),
    hint: str = "j",
) -> list[Register]:
    """Write `body(index of the first lane, mask, carried)` for first <= index < last.

    Every vector has a mask: where there are a few only, a second copy of the body costs more.
    """
    with b.loop(first, last, lanes, list(carry), hint=hint) as loop:
        mask = b.mask(last - loop.index, lanes)
        loop.yield_(*(body(loop.index, mask, list(loop.args)) or ()))
    return loop.results


def vector_loop(
    b: KernelBuilder,
    space: Space,
    first: IndexValue,
    last: IndexValue,
    size: Expr,
    lanes: int,
    body: Callable[[Ix, Mask | None, list[Register]], Sequence[Register] | None],
    carry: Sequence[Register] = (),
) -> list[Register]:
    """`strips` of columns; `first` is a multiple of `lanes`.

    `size` is the whole extent. There is no masked vector if `size` is proved divisible, and nothing
    else if it is a constant below `lanes`. Without lanes (0) it is a loop over elements.
    """
    if not lanes:
        with b.loop(first, last, 1, list(carry), hint="j") as loop:
            loop.yield_(*(body(Ix(loop.index), None, list(loop.args)) or ()))
        return loop.results
    if size.is_const and size.value < lanes:
        mask = b.mask(size.value, lanes)
        return list(body(Ix(first, 1, multiple=0), mask, list(carry)) or ())

    def columns(
        at: IndexValue, mask: Mask | None, carried: list[Register]
    ) -> Sequence[Register] | None:
        return body(Ix(at, 1, multiple=lanes), mask, carried)

    divisible = space.divisible(size, lanes)
    return strips(b, first, last, lanes, columns, carry, divisible=divisible)
