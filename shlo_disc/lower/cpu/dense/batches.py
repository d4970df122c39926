"""Products of tiny matrices, whose elements are all in registers: lanes run along a batch of them.

Where the elements of a matrix are one run of memory, those of all lanes are, too. They are loaded
in whole vectors, which are sorted, and stored so. One product in a loop is worth a kernel of its
own. Lanes run along the columns of its result, or along its rows if there is one column.
"""

from __future__ import annotations

import itertools

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.seen import LONGEST_RUN
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.repack import as_number
from shlo_disc.lower.cpu.dense.tile_writer import multiply_add
from shlo_disc.lower.cpu.interleaved import by_turns, load_vectors
from shlo_disc.lower.kernels.odometer import odometer
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Axis, Problem
from shlo_disc.lower.values.elemental import Arguments
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

CHUNK = 512
"""Matrices of a task."""


def largest(p: Problem) -> Expr:
    """What must be short for this kernel: the matrices of a batch, or the dimensions of one."""
    if not p.batch:
        return Expr.max(Expr.max(p.rows, p.columns), p.depth)
    return Expr.max(Expr.max(p.rows * p.depth, p.depth * p.columns), p.rows * p.columns)


@dataclass(frozen=True)
class _Matrix:
    """How the elements of an array lie in memory."""

    offsets: dict[tuple[int, int], int]
    """By their places along both axes."""
    apart: int
    """From the matrix of one lane to the next; 0: all lanes read the same one."""

    @classmethod
    def of(cls, array: str, rows: Axis, columns: Axis, along: Axis) -> _Matrix | None:
        """None where the elements of neighbouring lanes are no runs of memory."""
        steps = [getattr(axis, array) for axis in (rows, columns, along)]
        if not all(step.is_const for step in steps):
            return None
        row, column, apart = (step.value for step in steps)
        places = itertools.product(range(rows.size.value), range(columns.size.value))
        offsets = {(i, j): i * row + j * column for i, j in places}
        is_run = apart <= LONGEST_RUN and all(0 <= offset < apart for offset in offsets.values())
        return cls(offsets, apart) if apart in (0, 1) or is_run else None

    @property
    def is_written(self) -> bool:
        """True if lanes hold all elements between the first and the last that they hold."""
        return self.apart == 1 or sorted(self.offsets.values()) == list(range(self.apart))


def batches_launch(request: Request) -> Launch | None:
    """The kernel of a problem, in a loop if it has no batch; None where another one does better."""
    p, lanes = request.problem, request.machine.lanes(request.problem.compute.bytes)
    if not len(p.m) == len(p.n) == len(p.k) == 1:
        return None
    (m,), (n,), (k,) = p.m, p.n, p.k
    along = p.batch[-1] if p.batch else m if n.size.is_one else n
    m, n = (Axis(Expr.const(1)) if axis is along else axis for axis in (m, n))
    size = Expr.max(Expr.max(m.size * k.size, k.size * n.size), m.size * n.size)
    # Each size, too: without rows and columns the matrices have no elements at any depth.
    if not all(x.is_const for x in (m.size, n.size, k.size, size)):
        return None
    if size.value > LONGEST_RUN or not lanes:
        return None
    if p.compute.is_float and not p.is_short:  # sums would be in another order
        return None
    is_one_vector = along.size.is_const and along.size.value <= lanes
    if is_one_vector == bool(p.batch):
        return None
    left = _Matrix.of("a", m, k, along)
    right = _Matrix.of("b", k, n, along)
    out = _Matrix.of("c", m, n, along)
    if left is None or right is None or out is None or not out.is_written:
        return None
    outer = p.batch[:-1]
    arguments = Arguments(request.args)
    sizes = {"V": along.size, "a_first": p.a_first, "b_first": p.b_first}
    for i, axis in enumerate(outer):
        sizes |= {f"s{i}": axis.size, f"a{i}": axis.a, f"b{i}": axis.b, f"c{i}": axis.c}
    b = SizedBuilder(request.machine, sizes)
    a_in, b_in, c_out = (b.memref(i, e.storage) for i, e in enumerate((p.a, p.b, request.result)))

    def loaded(
        number: int, matrix: _Matrix, first: IndexValue, v: IndexValue, mask: Mask | None
    ) -> dict[tuple[int, int], Register]:
        """The elements of the matrices of all lanes."""
        memory, element = ((a_in, p.a), (b_in, p.b))[number]
        if matrix.apart > 1:
            run = load_vectors(b, memory, lanes, first + v * matrix.apart, matrix.apart, mask)
            found = {place: run[offset] for place, offset in matrix.offsets.items()}
        elif matrix.apart:
            found = {
                place: load_vectors(b, memory, lanes, first + v + offset, 1, mask)[0]
                for place, offset in matrix.offsets.items()
            }
        else:
            found = {place: memory.load(first + at) for place, at in matrix.offsets.items()}
        return {
            place: b.broadcast(convert(b, x, as_number(element), p.compute), lanes)
            for place, x in found.items()
        }

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
                here = [(axis, Ix(digit)) for axis, digit in zip(outer, digits, strict=False)]
                here.append((along, Ix(v, 1, multiple=lanes)))
                for axis, at in ((m, i), (n, j)) if request.finish else ():
                    if axis in (*p.m, *p.n):
                        here.append((axis, Ix(b.index(at), multiple=at)))
                value = request.stored(b, arguments, total, here, mask)
                values[offset] = b.broadcast(value, lanes)
            start = bases[2] + v * out.apart
            stored = [(values[offset], mask, offset) for offset in sorted(values)]
            if out.apart > 1:
                turns = by_turns(b, [value for value, *_ in stored], mask)
                stored = [(value, on, lanes * place) for place, (value, on) in enumerate(turns)]
            for value, on, offset in stored:
                if on is None:
                    c_out.vector_store(value, start + offset)
                else:
                    c_out.masked_store(value, start + offset, on)

        if is_one_vector:
            whole = along.size.value == lanes
            strip(b.index(0), None if whole else b.mask(along.size.value, lanes), [])
        else:
            first = digits[-1] * CHUNK
            strips(b, first, b.min(first + CHUNK, b.size("V")), lanes, strip)

    counts = [b.size(f"s{i}") for i in range(len(outer))]
    odometer(b, [*counts, b.param(ceil_div(along.size, CHUNK))], task)
    tasks = Expr.product(axis.size for axis in outer) * ceil_div(along.size, CHUNK)
    work = Expr.min(along.size, Expr.const(CHUNK)) * (size * 2)
    return arguments.launch(b.finish(), f"{request.label}_batches", tasks, work)
