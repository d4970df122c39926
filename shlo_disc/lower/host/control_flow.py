"""Loops and branches of the host program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shlo_disc.dynamic.loops import is_counted, steps_of
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.ir.mlir import ir, ops_of, terminator
from shlo_disc.lower.host.frame import Frame
from shlo_disc.lower.values.typed import Mask, Pointer
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.place import Place
from shlo_disc.passes.places import Mode, carries_of

_Block = Callable[[ir.Block], None]
"""Writes the operations of a block."""


def write_while(frame: Frame, op: ir.Operation, block: _Block, can_fail: bool) -> None:
    """Write a `while`; where a call `can_fail`, it ends after a failure."""
    can_fail = can_fail or (frame.memory.calls_kernels and _asks_for_kernels(op))
    w = frame.w
    condition, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    frame.record.enter(op)
    swaps: dict[int, tuple[Place, Place]] = {}
    stored: list[int] = []
    copies: dict[int, tuple[Pointer, Pointer]] = {}
    for index, carry in enumerate(carries_of(op)):
        if carry.slots is not None and not all(map(frame.is_small, carry.slots)):
            swaps[index] = carry.slots
            continue
        if carry.mode == Mode.STORED:
            stored.append(index)
            continue
        carried = (condition.arguments[index], body.arguments[index], op.results[index])
        if carry.slots is not None:
            here, following = map(frame.place, carry.slots)
            copies[index] = here, following
            frame.copy(here, op.operands[index])
            for value in carried:
                frame.pointers.put(value, here)
        elif carry.buffer is not None:
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
    inits: list[Pointer] = []
    for index, (first, second) in swaps.items():
        inits += [frame.pointers[op.operands[index]], frame.place(first), frame.place(second)]
    inits += [frame.pointers[op.operands[index]] for index in stored]
    moving = [3 * k for k in range(len(swaps))]
    moving += range(3 * len(swaps), len(inits))

    def put(values: Sequence[ir.Value], carried: Sequence[Pointer]) -> None:
        for k, index in zip(moving, (*swaps, *stored), strict=True):
            frame.pointers.put(values[index], carried[k])

    def go_on(carried: list[Pointer]) -> Mask:
        put(condition.arguments, carried)
        block(condition)
        go = frame.flag(terminator(condition).operands[0])
        return go & w.goes_on() if can_fail else go

    def step(carried: list[Pointer]) -> list[Pointer]:
        outer_next = frame.next
        put(body.arguments, carried)
        frame.next = {index: carried[3 * k + 1] for k, index in enumerate(swaps)}
        frame.next |= {index: following for index, (_, following) in copies.items()}
        block(body)
        last = terminator(body)
        yields: list[Pointer] = []
        for k, index in enumerate(swaps):
            frame.copy(frame.next[index], last.operands[index])
            _, following, other = carried[3 * k : 3 * k + 3]
            yields += [following, other, following]
        yields += [frame.pointers[last.operands[index]] for index in stored]
        for index in copies:
            frame.copy(frame.next[index], last.operands[index])
        for index, (here, following) in copies.items():
            frame.memory.copy(w, here, following, value_bytes(body.arguments[index], frame.shapes))
        frame.next = outer_next
        return yields

    outside, frame.steps = frame.steps, steps_of(op, frame.shapes)
    frame.loops += 1
    put(op.results, w.while_(inits, go_on, step))
    frame.loops -= 1
    frame.steps = outside
    frame.record.leave(op)


def _asks_for_kernels(op: ir.Operation) -> bool:
    """Whether a step may ask for a kernel, which may not compile: see `PlanWriter`."""
    counted = [loop for loop in ops_of(op, "stablehlo.while") if is_counted(loop)]
    return any(kind_of(f).is_contraction for loop in counted for f in ops_of(loop, "disc.fusion"))


def write_case(frame: Frame, op: ir.Operation, block: _Block) -> None:
    """Write a `case` or an `if`."""
    w = frame.w
    frame.put_results(op)
    frame.record.enter(op)
    outside, frame.steps = frame.steps, None  # not every step runs a branch
    if op.name == "stablehlo.if":
        with w.if_(frame.flag(op.operands[0])) as branches:
            _branch(frame, op, 0, block)
            with branches.otherwise():
                _branch(frame, op, 1, block)
    else:
        w.switch(frame.number(op.operands[0]))
        last = len(op.regions) - 1
        for branch in range(last + 1):
            with w.case(branch if branch < last else None):
                _branch(frame, op, branch, block)
    frame.steps = outside
    frame.record.leave(op)


def _branch(frame: Frame, op: ir.Operation, number: int, block: _Block) -> None:
    branch = op.regions[number].blocks[0]
    block(branch)
    last = terminator(branch)
    for result, value in zip(op.results, last.operands, strict=True):
        frame.copy(frame.pointers[result], value)
