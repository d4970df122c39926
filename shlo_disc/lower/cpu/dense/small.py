"""Products of small matrices: a task is a whole batch entry, a row of C is in one vector.

A tile of registers has no use for most of its rows and columns then. To find the place of a task in
the blocks of C takes longer than the task. Rows of A are read an element at a time, rows of B in
place.

A row is stored in runs of powers of two, as its length has bits. A masked store takes many cycles
without AVX-512, and does not forward to a load in the next step of a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.repack import as_number, load_as
from shlo_disc.lower.cpu.dense.tile_writer import chains_of, multiply_add
from shlo_disc.lower.cpu.dense.tiles import Tile
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.plan import Condition, Launch
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Problem
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, MemRef, Register, vector_type

SMALL = 8
"""Rows, columns and terms of a sum up to which this kernel is used, if a vector has the lanes."""


def when_small(p: Problem, tile: Tile) -> list[Condition] | None:
    """When `p` is for this kernel; None: never.

    Only where tiles of this height add in the same order, so that no result depends on the kernel.
    """
    in_place = p.n[-1].b == 1 and p.n[-1].c == 1
    if len([*p.m, *p.n, *p.k]) != 3 or not in_place or p.bands != 1 or p.b_value is not None:
        return None
    split = [h for h in tile.heights if not p.is_short and chains_of(h * tile.vectors) > 1]
    most = min(SMALL, tile.lanes)
    return [
        Condition(p.rows, ">", Expr.const(max(split, default=0))),
        Condition(p.rows, "<=", Expr.const(min(most, tile.rows))),
        Condition(p.columns, "<=", Expr.const(most)),
        Condition(p.depth, "<=", Expr.const(most)),
    ]


def small_launch(request: Request) -> Launch:
    """The kernel of a problem, see `when_small`."""
    p, arguments = request.problem, Arguments(request.args)
    (m,), (n,), (k,) = p.m, p.n, p.k
    lanes = min(SMALL, request.machine.lanes(p.compute.bytes))
    sizes = {"M": m.size, "N": n.size, "K": k.size, "am": m.a, "cm": m.c, "ak": k.a, "bk": k.b}
    for i, axis in enumerate(p.batch):
        sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
    b = SizedBuilder(request.machine, sizes | {"a_first": p.a_first, "b_first": p.b_first})
    a_in, b_in, c_out = (b.memref(i, e.storage) for i, e in enumerate((p.a, p.b, request.result)))
    mask = b.mask(b.size("N"), lanes)

    def base(array: str, digits: Sequence[IndexValue]) -> IndexValue:
        start = b.index(0) if array == "c" else b.size(f"{array}_first")
        moves = [getattr(axis, array) != 0 for axis in p.batch]
        for i, digit in enumerate(digits[: len(moves)]):
            start = start + digit * b.size(f"{array}{i}") if moves[i] else start
        return start

    def task(_: IndexValue, digits: list[IndexValue]) -> None:
        a_start, b_start, c_start = (base(array, digits) for array in "abc")
        zero = b.constant(0, vector_type(lanes, p.compute.register))
        with b.loop(0, b.size("M"), 1, hint="m") as row:
            a_row = a_start + row.index * b.size("am")
            with b.loop(0, b.size("K"), 1, [zero], hint="k") as term:
                x = a_in.load(a_row + term.index * b.size("ak"))
                x = b.broadcast(convert(b, x, as_number(p.a), p.compute), lanes)
                at = b_start + term.index * b.size("bk")
                y = load_as(b, b_in, p.b, at, lanes, p.compute, mask)
                term.yield_(multiply_add(b, x, y, term.args[0], p.compute, p.is_short))
            places = [(axis, Ix(d)) for axis, d in zip(p.batch, digits, strict=False)]
            places += [(m, Ix(row.index)), (n, Ix(b.index(0), 1, multiple=lanes))]
            value = request.stored(b, arguments, term.results[0], places, mask)
            _store_first(b, value, c_out, c_start + row.index * b.size("cm"), b.size("N"))

    odometer(b, [b.size(f"s{i}") for i in range(len(p.batch))] or [b.index(1)], task)
    work = (m.size * (k.size + 4)) + 4
    return arguments.launch(b.finish(), f"{request.label}_small", p.batches, work)


def _store_first(
    b: SizedBuilder, value: Register, memory: MemRef, at: IndexValue, count: IndexValue
) -> None:
    """Store the first `count` lanes, at most all, in runs of powers of two."""
    run, lanes = value.lanes, value.lanes
    while run > 1:
        end = at + (count - count % (2 * run))  # of the longer runs
        with b.if_(count % (2 * run) >= run) as branch:
            memory.vector_store(value if run == lanes else b.shuffle(value, value, range(run)), end)
            branch.yield_(b.shuffle(value, value, [k % lanes for k in range(run, run + lanes)]))
            with branch.otherwise():
                branch.yield_(value)
        (value,) = branch.results
        run //= 2
    with b.if_(count % 2 >= 1):
        memory.store(b.extract(value, 0), at + (count - 1))
