"""The first function of a host program: what the sizes of a call's arguments mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom
from shlo_disc.dynamic.program import ShapeProgram, size_symbol
from shlo_disc.lower.host.record import MOST_BYTES
from shlo_disc.lower.host.writer import HostWriter, polynomial
from shlo_disc.lower.values.typed import Mask, Register

_MOST_ELEMENTS = 2**59
"""NumPy makes no array whose sizes have a larger product, not even if one of them is 0."""


def prepare(
    program: ShapeProgram, slots: Sequence[Expr], workspaces: Sequence[tuple[Expr, ...]]
) -> str:
    """The function that turns argument sizes into symbols, checks, result sizes and arena bytes.

    It computes everything and then tells; divisions cannot trap (see HostWriter). `slots`: bytes of
    the arena's slots; `workspaces`: bytes of the temporary blocks of each kernel plan.
    """
    given = [
        size_symbol(argument, axis)
        for argument, shape in enumerate(program.arguments)
        for axis in range(len(shape))
    ]
    w = HostWriter("sizes", [*given, *program.elements])
    for index, step in enumerate(program.steps):
        above = w.symbol(step.size) - w.size(step.offset)
        value = above if step.scale == 1 else w.floor_division(above, w.const(step.scale))[0]
        w.define_symbol(step.symbol, value)
        w.store_element(value, w.argument("symbols"), index)
    position = 0
    for shape in program.results:
        for size in shape:
            w.store_element(w.size(size), w.argument("results"), position)
            position += 1
    total = w.const(0)
    for slot in slots:
        total = total + w.aligned(slot)
    largest = w.const(0)
    for sizes in workspaces:
        block = w.const(0)
        for size in sizes:
            block = block + w.aligned(size)
        largest = w.larger(largest, block)
    total = total + largest
    w.store_element(total, w.argument("arena"), 0)
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
        some = elements > 0.0
        extent = Expr.product(Expr.max(size, 1) for size in shape)
        fits.append(some | _at_most(w, extent, _MOST_ELEMENTS))
    if fits:
        too_large = w.const(len(program.checks) + 1)
        for fit in fits:
            status = w.select(fit, status, too_large)
    for number, check in reversed(list(enumerate(program.checks, 1))):
        holds = w.compare(w.size(check.lhs), check.op, w.size(check.rhs))
        status = w.select(holds, status, w.const(number))
    return w.function(
        "func.func @prepare(%sizes: !llvm.ptr, %symbols: !llvm.ptr, %results: !llvm.ptr, "
        "%arena: !llvm.ptr) -> i64",
        status,
    )


def _at_most(w: HostWriter, size: Expr, most: int) -> Mask:
    return _estimate(w, size) <= most


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


def _estimate(w: HostWriter, size: Expr) -> Register:
    """`size` in f64, which does not wrap; a remainder counts as its divisor."""
    return polynomial(
        size.terms, lambda atom: _estimated_atom(w, atom), lambda number: w.constant(number, "f64")
    )


def _estimated_atom(w: HostWriter, atom: Atom) -> Register:
    if not atom.op:
        return w.symbol(atom.key).cast("arith.sitofp", "f64")
    a, b = (_estimate(w, argument) for argument in atom.args)
    if atom.op == "mod":
        return b
    if atom.op == "floordiv":
        return a / w.op("arith.maximumf", b, w.constant(1.0, "f64"))
    name = {"max": "arith.maximumf", "min": "arith.minimumf"}[atom.op]
    return w.op(name, a, b)
