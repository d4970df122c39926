"""The first function of a host program: what the sizes of a call's arguments mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom
from shlo_disc.dynamic.program import ShapeProgram, size_symbol
from shlo_disc.lower.host.writer import HostWriter

__all__ = ["MOST_BYTES", "TOO_LARGE", "prepare"]

MOST_BYTES = 2**46
"""Of an array of a program with size arguments; no machine has more, and 2**63 is far."""

_MOST_ELEMENTS = 2**59
"""NumPy makes no array whose sizes have a larger product, not even if one of them is 0."""

TOO_LARGE = f"an array of this call would take more than 2**{MOST_BYTES.bit_length() - 1} bytes"
"""The check behind all others, where products of sizes may wrap."""


def prepare(
    program: ShapeProgram, slots: Sequence[Expr], workspaces: Sequence[tuple[Expr, ...]]
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
    for name in program.elements:
        address = w.element_address("%sizes", position, "i64")
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
    # Products of sizes may wrap in i64: an array without elements has sizes of any number. So may
    # elements that are sizes, which no memory bounds.
    arrays = [*slots, *(size for sizes in workspaces for size in sizes)]
    if program.size_arguments:
        arrays += [Expr.product(shape) for shape in program.results]
    else:
        arrays = [size for size in arrays if _multiplies(size)]
    fits = [_at_most(w, size, MOST_BYTES) for size in dict.fromkeys(arrays)]
    for shape in dict.fromkeys(_without_limit(program)):
        # With elements it takes memory, whose lack is told with the result's name.
        elements = _estimate(w, Expr.product(shape))
        some = w.once(f"arith.cmpf ogt, {elements}, {_float(w, 0)} : f64")
        extent = Expr.product(Expr.max(size, 1) for size in shape)
        fits.append(w.once(f"arith.ori {some}, {_at_most(w, extent, _MOST_ELEMENTS)} : i1"))
    if fits:
        too_large = w.const(len(program.checks) + 1)
        for fit in fits:
            status = w.once(f"arith.select {fit}, {status}, {too_large} : i64")
    for number, check in reversed(list(enumerate(program.checks, 1))):
        holds = w.compare(w.size(check.lhs), check.op, w.size(check.rhs))
        status = w.once(f"arith.select {holds}, {status}, {w.const(number)} : i64")
    return w.function(
        "func.func @prepare(%sizes: !llvm.ptr, %symbols: !llvm.ptr, %results: !llvm.ptr, "
        "%arena: !llvm.ptr) -> i64",
        f"{status} : i64",
    )


def _at_most(w: HostWriter, size: Expr, most: int) -> str:
    return w.once(f"arith.cmpf ole, {_estimate(w, size)}, {_float(w, most)} : f64")


def _float(w: HostWriter, value: int) -> str:
    return w.once(f"arith.constant {value:.1f} : f64")


def _without_limit(program: ShapeProgram) -> Iterator[tuple[Expr, ...]]:
    """Shapes of results of which no argument tells that NumPy has such arrays."""
    taken = [Counter(shape) for shape in program.arguments]
    for shape in program.results:
        sizes = Counter(size for size in shape if not size.is_const)
        if sum(sizes.values()) > 1 and not any(sizes <= sizes_of for sizes_of in taken):
            yield tuple(shape)


def _multiplies(size: Expr) -> bool:
    """Whether `size` multiplies sizes with each other."""
    return any(
        sum(power for _, power in monomial) > 1
        or any(_multiplies(argument) for atom, _ in monomial for argument in atom.args)
        for monomial, _ in size.terms
    )


def _estimate(w: HostWriter, size: Expr) -> str:
    """`size` in f64, which does not wrap; a remainder counts as its divisor."""
    total = w.once("arith.constant 0.0 : f64")
    for monomial, coefficient in size.terms:
        term = w.once(f"arith.constant {float(coefficient):.1f} : f64")
        for atom, power in monomial:
            factor = _estimated_atom(w, atom)
            for _ in range(power):
                term = w.once(f"arith.mulf {term}, {factor} : f64")
        total = w.once(f"arith.addf {total}, {term} : f64")
    return total


def _estimated_atom(w: HostWriter, atom: Atom) -> str:
    if not atom.op:
        return w.once(f"arith.sitofp {w.symbol(atom.key)} : i64 to f64")
    a, b = (_estimate(w, argument) for argument in atom.args)
    if atom.op == "mod":
        return b
    if atom.op == "floordiv":
        one = w.once("arith.constant 1.0 : f64")
        divisor = w.once(f"arith.maximumf {b}, {one} : f64")
        return w.once(f"arith.divf {a}, {divisor} : f64")
    name = {"max": "arith.maximumf", "min": "arith.minimumf"}[atom.op]
    return w.once(f"{name} {a}, {b} : f64")
