"""The first function of a host program: what the sizes of a call's arguments mean."""

from __future__ import annotations

from collections.abc import Iterable

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.program import ShapeProgram, size_symbol
from shlo_disc.lower.host_writer import HostWriter

__all__ = ["prepare"]


def prepare(
    program: ShapeProgram, slots: Iterable[Expr], workspaces: Iterable[tuple[Expr, ...]]
) -> str:
    """The function that turns argument sizes into symbols, checks, result sizes and arena bytes.

    It computes everything and then tells; divisions cannot trap (see HostWriter). `slots`: bytes of
    the arena's slots; `workspaces`: bytes of the temporary blocks of each kernel plan.
    """
    w = HostWriter("%none", [])
    position = 0
    for argument, shape in enumerate(program.arguments):
        for axis in range(len(shape)):
            address = w.element_address("%sizes", position, "i64")
            name = size_symbol(argument, axis)
            w.define(name, w.once(f"llvm.load {address} : !llvm.ptr -> i64"))
            position += 1
    for index, step in enumerate(program.steps):
        above = w.once(f"arith.subi {w.symbol(step.size)}, {w.size(step.offset)} : i64")
        value = above if step.scale == 1 else w.floor_division(above, w.const(step.scale))[0]
        w.define(step.symbol, value)
        w.store(value, "%symbols", index, "i64")
    position = 0
    for shape in program.results:
        for size in shape:
            w.store(w.size(size), "%results", position, "i64")
            position += 1
    total = w.const(0)
    for slot in slots:
        total = w.once(f"arith.addi {total}, {w.aligned(slot)} : i64")
    largest = w.const(0)
    for sizes in workspaces:
        block = w.const(0)
        for size in sizes:
            block = w.once(f"arith.addi {block}, {w.aligned(size)} : i64")
        largest = w.once(f"arith.maxsi {largest}, {block} : i64")
    total = w.once(f"arith.addi {total}, {largest} : i64")
    w.store(total, "%arena", 0, "i64")
    status = w.const(0)
    for number, check in reversed(list(enumerate(program.checks, 1))):
        holds = w.compare(w.size(check.lhs), check.op, w.size(check.rhs))
        status = w.once(f"arith.select {holds}, {status}, {w.const(number)} : i64")
    return w.function(
        "func.func @prepare(%sizes: !llvm.ptr, %symbols: !llvm.ptr, %results: !llvm.ptr, "
        "%arena: !llvm.ptr) -> i64",
        f"{status} : i64",
    )
