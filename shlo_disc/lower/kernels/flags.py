"""Flags of `loop` and `scatter` fusions: whether any truth value of the rows is true.

A launch begins with flags of 0 (`Launch.zeroed`). Whoever meets a true value stores 1, so tasks
need no order, and the common case of no true value stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import Launch, Output
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Index
from shlo_disc.lower.values.typed import IndexValue, Mask
from shlo_disc.passes.match_single_op import Flag


def raise_flags(
    e: Elemental, flags: Sequence[Flag], index: Callable[[Flag], Index], mask: Mask | None = None
) -> None:
    """Store 1 in every flag that is true at its index, in lanes that are on in `mask`."""
    b = e.b
    for flag in flags:
        if flag.outside is not None and _clamp(e, flag, index(flag), mask):
            continue
        truth = Mask.of(e.value_at(flag.truths, index(flag), mask))
        if truth.lanes:
            truth = (truth if mask is None else truth & b.broadcast(mask, truth.lanes)).any()
        with b.if_(b.unlikely(truth)):
            _raise(e, flag)


def _raise(e: Elemental, flag: Flag) -> None:
    memory = e.b.memref(e.arguments.slot(Output(flag.number)), "i8")
    memory.store(e.b.constant(1, "i8"), 0)


def _clamp(e: Elemental, flag: Flag, index: Index, mask: Mask | None) -> bool:
    """Tell of one integer, which readers of that place then need not clamp; False: of several.

    A comparison that is never true costs less than the clamp of a gather.
    """
    assert flag.outside is not None
    b, (integers, size) = e.b, flag.outside
    if e.width(index, mask):
        return False
    register = e.value_at(integers, index, mask)
    at = e.to_index(register, element_of(integers))
    count = b.param(size)
    with b.if_(b.unlikely(b.cmpi("uge", at, count)), IndexValue) as branch:
        _raise(e, flag)
        branch.yield_(b.max(b.min(at, count - 1), 0))
        with branch.otherwise():
            branch.yield_(at)
    clamped = branch.results[0]
    e.remember_clamped(register, size, clamped)
    return True


def with_flags(launch: Launch, flags: Sequence[Flag]) -> Launch:
    """A launch that stores the flags."""
    zeroed = tuple((Output(flag.number), Expr.const(1)) for flag in flags)
    return replace(launch, zeroed=(*launch.zeroed, *zeroed))
