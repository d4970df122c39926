"""Loops and branches of the host program."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.lower.host.foreign import unless_failed
from shlo_disc.lower.host.frame import Frame
from shlo_disc.lower.host.values import Address
from shlo_disc.mlir import ir, terminator
from shlo_disc.passes.places import Mode, carries_of

__all__ = ["write_case", "write_while"]

_Block = Callable[[ir.Block], None]
"""Writes the operations of a block."""


def write_while(frame: Frame, op: ir.Operation, block: _Block, can_fail: bool) -> None:
    """Write a `while`; where a call `can_fail`, it ends after a failure."""
    w = frame.w
    condition, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    frame.record.enter(op)
    swaps: dict[int, tuple[int, int]] = {}
    stored: list[int] = []
    for index, carry in enumerate(carries_of(op)):
        if carry.slots is not None:
            swaps[index] = carry.slots
            continue
        if carry.mode == Mode.STORED:
            stored.append(index)
            continue
        carried = (condition.arguments[index], body.arguments[index], op.results[index])
        if carry.buffer is not None:
            start = frame.place(carry.buffer)
            if op.operands[index] in frame.pointers:  # a `disc.empty` has nothing to copy
                frame.copy(start, op.operands[index])
            for value in carried:
                frame.pointers.put(value, start)
        else:
            for value in carried:
                frame.pointers.same(value, op.operands[index])
        if carry.mode == Mode.SAME:
            for value in carried:
                frame.origins.same(value, op.operands[index])
    inits: list[Address] = []
    hints: list[str] = []
    for index, (first, second) in swaps.items():
        inits += [frame.pointers[op.operands[index]], frame.slots[first], frame.slots[second]]
        hints += ["now", "next", "other"]
    inits += [frame.pointers[op.operands[index]] for index in stored]
    hints += ["now" for _ in stored]
    moving = [3 * k for k in range(len(swaps))]
    moving += range(3 * len(swaps), len(hints))
    carried_now, results = w.while_(inits, hints)
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(condition.arguments[index], carried_now[k])
    block(condition)
    flag = terminator(condition).operands[0]
    go = frame.flag(flag)
    if can_fail:
        go = unless_failed(w, go)
    inner = w.condition(go, carried_now)
    outer_next = frame.next
    frame.next = {}
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(body.arguments[index], inner[k])
    for k, index in enumerate(swaps):
        frame.next[index] = inner[3 * k + 1]
    block(body)
    last = terminator(body)
    yields: list[Address] = []
    for k, index in enumerate(swaps):
        frame.copy(frame.next[index], last.operands[index])
        _, following, other = inner[3 * k : 3 * k + 3]
        yields += [following, other, following]
    yields += [frame.pointers[last.operands[index]] for index in stored]
    frame.next = outer_next
    w.end_while(yields)
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(op.results[index], results[k])
    frame.record.leave(op)


def write_case(frame: Frame, op: ir.Operation, block: _Block) -> None:
    """Write a `case` or an `if`."""
    w = frame.w
    frame.put_results(op)
    frame.record.enter(op)
    if op.name == "stablehlo.if":
        with w.if_(frame.flag(op.operands[0])):
            _branch(frame, op, 0, block)
            w.otherwise()
            _branch(frame, op, 1, block)
        frame.record.leave(op)
        return
    w.switch(frame.memory.read(w, frame.pointers[op.operands[0]], 32, "number"))
    last = len(op.regions) - 1
    for branch in range(last + 1):
        with w.case(branch if branch < last else None):
            _branch(frame, op, branch, block)
    frame.record.leave(op)


def _branch(frame: Frame, op: ir.Operation, number: int, block: _Block) -> None:
    branch = op.regions[number].blocks[0]
    block(branch)
    last = terminator(branch)
    for result, value in zip(op.results, last.operands, strict=True):
        frame.copy(frame.pointers[result], value)
