"""Loops and branches of the host program."""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.lower.host.foreign import unless_failed
from shlo_disc.lower.host.frame import Frame
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
    result = w.fresh("loop")
    inits, names = [], []
    for index, (first, second) in swaps.items():
        inits += [frame.pointers[op.operands[index]], frame.slots[first], frame.slots[second]]
        names += [w.fresh("now"), w.fresh("next"), w.fresh("other")]
    inits += [frame.pointers[op.operands[index]] for index in stored]
    names += [w.fresh("now") for _ in stored]
    moving = [3 * k for k in range(len(swaps))]
    moving += range(3 * len(swaps), len(names))
    types = ", ".join(["!llvm.ptr"] * len(inits))
    heads = ", ".join(f"{n} = {i}" for n, i in zip(names, inits, strict=True))
    into = f"{result}:{len(inits)} = " if inits else ""
    w.line(f"{into}scf.while ({heads}) : ({types}) -> ({types}) {{")
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(condition.arguments[index], names[k])
    block(condition)
    flag = terminator(condition).operands[0]
    go = frame.flag(flag)
    if can_fail:
        go = unless_failed(w, go)
    tail = f" {', '.join(names)} : {types}" if names else ""
    w.line(f"scf.condition({go}){tail}")
    w.line("} do {")
    inner = [w.fresh("b") for _ in names]
    w.line("^bb0(" + ", ".join(f"{n}: !llvm.ptr" for n in inner) + "):")
    outer_next = frame.next
    frame.next = {}
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(body.arguments[index], inner[k])
    for k, index in enumerate(swaps):
        frame.next[index] = inner[3 * k + 1]
    block(body)
    last = terminator(body)
    yields = []
    for k, index in enumerate(swaps):
        frame.copy(frame.next[index], last.operands[index])
        _, following, other = inner[3 * k : 3 * k + 3]
        yields += [following, other, following]
    yields += [frame.pointers[last.operands[index]] for index in stored]
    frame.next = outer_next
    w.line(f"scf.yield {', '.join(yields)} : {types}" if yields else "scf.yield")
    w.line("}")
    for k, index in zip(moving, (*swaps, *stored), strict=True):
        frame.pointers.put(op.results[index], f"{result}#{k}")
    frame.record.leave(op)


def write_case(frame: Frame, op: ir.Operation, block: _Block) -> None:
    """Write a `case` or an `if`."""
    w = frame.w
    frame.put_results(op)
    frame.record.enter(op)
    if op.name == "stablehlo.if":
        w.line(f"scf.if {frame.flag(op.operands[0])} {{")
        _branch(frame, op, 0, block)
        w.line("} else {")
        _branch(frame, op, 1, block)
        w.line("}")
        frame.record.leave(op)
        return
    number = frame.memory.read(w, frame.pointers[op.operands[0]], "i32", "number")
    index = w.fresh("branch")
    w.line(f"{index} = arith.index_cast {number} : i32 to index")
    w.line(f"scf.index_switch {index}")
    for branch in range(len(op.regions) - 1):
        w.line(f"case {branch} {{")
        _branch(frame, op, branch, block)
        w.line("scf.yield")
        w.line("}")
    w.line("default {")
    _branch(frame, op, len(op.regions) - 1, block)
    w.line("scf.yield")
    w.line("}")
    frame.record.leave(op)


def _branch(frame: Frame, op: ir.Operation, number: int, block: _Block) -> None:
    branch = op.regions[number].blocks[0]
    block(branch)
    last = terminator(branch)
    for result, value in zip(op.results, last.operands, strict=True):
        frame.copy(frame.pointers[result], value)
