"""Products of batches of tiny matrices: lanes run along the batch.

All elements of a lane's matrices are in registers. Where they are one run of memory, the matrices
of all lanes are, too: they are loaded in whole vectors, which are sorted, and stored so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.seen import LONGEST_RUN
from shlo_disc.element_types import ElementType
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.repack import as_number
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.cpu.interleaved import by_turns, load_vectors
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import Buffer, Kernel, Launch
from shlo_disc.lower.products.finish import Finish
from shlo_disc.lower.schedule.contraction import Axis, Problem
from shlo_disc.lower.tasks.odometer import odometer
from shlo_disc.lower.tasks.strips import strips
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

__all__ = ["batches_launch", "largest"]

CHUNK = 512
"""Matrices of a task."""


def largest(p: Problem) -> Expr:
    """Elements of the largest of the three matrices: up to LONGEST_RUN, this kernel does better."""
    return Expr.max(Expr.max(p.rows * p.depth, p.depth * p.columns), p.rows * p.columns)


@dataclass(frozen=True)
class _Matrix:
    """How the elements of an array lie in memory."""

    offsets: dict[tuple[int, int], int]
    """By their places along both axes."""
    apart: int
    """From one matrix to the next; 0: all lanes read the same one."""

    @classmethod
    def of(cls, array: str, rows: Axis, columns: Axis, along: Axis) -> _Matrix | None:
        """None where matrices of neighbouring lanes are not neighbours."""
        steps = [getattr(axis, array) for axis in (rows, columns, along)]
        if not all(step.is_const for step in steps):
            return None
        row, column, apart = (step.value for step in steps)
        places = itertools.product(range(rows.size.value), range(columns.size.value))
        offsets = {(i, j): i * row + j * column for i, j in places}
        fits = all(0 <= offset < apart for offset in offsets.values())
        return cls(offsets, apart) if apart == 0 or (fits and apart <= LONGEST_RUN) else None

    @property
    def is_dense(self) -> bool:
        """True if every element between the first of one and of the next matrix is one of it."""
        return sorted(self.offsets.values()) == list(range(self.apart))


def batches_launch(
    problem: Problem,
    machine: Machine,
    args: tuple[Buffer, Buffer, Buffer],
    label: str,
    result: ElementType,
    finish: Callable[[Arguments, int], Finish] | None,
) -> Launch | None:
    """The kernel of a problem; None where another one does better.

    `result`, `finish`: as for `Planner`.
    """
    p, size = problem, largest(problem)
    single = len(p.m) == len(p.n) == len(p.k) == 1
    if not (p.batch and single and size.is_const and size.value <= LONGEST_RUN):
        return None
    if p.compute.is_float and not p.is_short:  # sums would be in another order
        return None
    *outer, along = p.batch
    (m,), (n,), (k,) = p.m, p.n, p.k
    lanes = machine.lanes(p.compute.bytes)
    matrices = [
        _Matrix.of(array, *axes, along)
        for array, axes in zip("abc", ((m, k), (k, n), (m, n)), strict=True)
    ]
    if along.size.is_const and along.size.value < lanes:
        return None
    if any(matrix is None for matrix in matrices) or not matrices[2].is_dense:
        return None
    left, right, out = matrices
    arguments = Arguments()
    arguments.buffers = list(args)
    sizes = {"V": along.size, "a_first": p.a_first, "b_first": p.b_first}
    for i, axis in enumerate(outer):
        sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
    b = SizedBuilder(machine, sizes)
    a_in, b_in, c_out = (
        b.memref(number, element.storage) for number, element in enumerate((p.a, p.b, result))
    )
    done = finish(arguments, lanes) if finish is not None else None

    def loaded(
        number: int, matrix: _Matrix, first: IndexValue, v: IndexValue, mask: Mask | None
    ) -> dict[tuple[int, int], Register]:
        """The elements of the matrices of all lanes."""
        memory, element = ((a_in, p.a), (b_in, p.b))[number]
        if matrix.apart:
            run = load_vectors(b, memory, lanes, first + v * matrix.apart, matrix.apart, mask)
        else:
            last = max(matrix.offsets.values())
            run = [memory.load(first + offset) for offset in range(last + 1)]
        run = [b.broadcast(convert(b, x, as_number(element), p.compute), lanes) for x in run]
        return {place: run[offset] for place, offset in matrix.offsets.items()}

    def task(_: IndexValue, digits: list[IndexValue]) -> None:
        bases = []
        for array in "abc":
            base = b.index(0) if array == "c" else b.size(f"{array}_first")
            for i, digit in enumerate(digits[:-1]):
                base = base + digit * b.size(f"{array}{i}")
            bases.append(base)

        def strip(v: IndexValue, mask: Mask | None, _: list[Register]) -> None:
            x = loaded(0, left, bases[0], v, mask)
            y = loaded(1, right, bases[1], v, mask)
            zero = b.broadcast(b.constant(0, p.compute.register), lanes)
            values: dict[int, Register] = {}
            for (i, j), offset in out.offsets.items():
                total = zero
                for t in range(k.size.value):
                    total = multiply_add(b, x[i, t], y[t, j], total, p.compute, p.is_short)
                if done is None:
                    value = convert(b, total, p.compute, p.c)
                else:
                    here = [(axis, Ix(digit)) for axis, digit in zip(outer, digits, strict=False)]
                    here += [(along, Ix(v, 1, multiple=lanes)), (m, Ix(b.index(i), multiple=i))]
                    value = done.at(b, total, [*here, (n, Ix(b.index(j), multiple=j))], mask)
                if result.kind == "b":
                    value = b.cast("arith.extui", value, "i8")
                values[offset] = b.broadcast(value, lanes)
            in_order = [values[offset] for offset in sorted(values)]
            for place, (vector, on) in enumerate(by_turns(b, in_order, mask)):
                at = bases[2] + v * out.apart + place * lanes
                if on is None:
                    c_out.vector_store(vector, at)
                else:
                    c_out.masked_store(vector, at, on)

        first = digits[-1] * CHUNK
        strips(b, first, b.min(first + CHUNK, b.size("V")), lanes, strip)

    counts = [b.size(f"s{i}") for i in range(len(outer))]
    odometer(b, [*counts, b.param(ceil_div(along.size, CHUNK))], task)
    text, params = b.finish()
    tasks = Expr.product(axis.size for axis in outer) * ceil_div(along.size, CHUNK)
    work = Expr.min(along.size, Expr.const(CHUNK)) * (size * 2)
    return Launch(Kernel(f"{label}_batches", text), tuple(arguments.buffers), params, tasks, work)
