"""Long sums with few results: K is cut into parts that run in parallel, and their sums are added.

With fewer tasks than cores a product of a few rows and columns would run on one core. Cut into `S`
equal parts along K it is a batched product, with its results one after the other in a temporary
block. A second kernel adds them up and turns the sums into result elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.dense.gemm import Writer
from shlo_disc.lower.cpu.dense.operands import Gemm
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.model import LONG_SUM
from shlo_disc.lower.plan import All, Condition, If, Launch, Step, Workspace
from shlo_disc.lower.products.request import Request
from shlo_disc.lower.schedule.contraction import Problem, split_problem
from shlo_disc.lower.values.elemental import Arguments

MOST = 1 << 12
"""Result elements up to which it is: more of them are enough tasks, and the block stays small."""


def parts_of(machine: Machine) -> int:
    """Number of parts: two a core, a power of two, so that it divides most sums."""
    parts = 2
    while parts < 2 * machine.cores and parts < 32:
        parts *= 2
    return parts


def split_steps(
    problem: Problem,
    machine: Machine,
    general: tuple[Step, ...],
    tasks: Expr,
    partial: Callable[[Problem], tuple[Step, ...]],
    combine: Callable[[int], Launch],
) -> tuple[tuple[Step, ...], tuple[Expr, ...]]:
    """`general`, or the parts and their sum where there are few tasks; and the temporary blocks.

    `partial` plans the split problem into Workspace(0), `combine` adds up that many parts.
    """
    parts = parts_of(machine)
    elements = problem.batches * problem.rows * problem.columns
    too_short = problem.depth.is_const and problem.depth.value < LONG_SUM
    too_many = elements.is_const and elements.value > MOST
    cut = None if too_short or too_many else split_problem(problem, parts)
    if cut is None or machine.cores < 2:
        return general, ()
    conditions = All(
        (
            Condition(problem.depth, ">=", Expr.const(LONG_SUM)),
            Condition(problem.depth % parts, "==", Expr.const(0)),
            Condition(elements, "<=", Expr.const(MOST)),
            Condition(tasks, "<", Expr.const(machine.cores)),
        )
    )
    room = Expr.min(elements, MOST) * (parts * problem.compute.bytes) + 64
    steps = (*partial(cut), combine(parts))
    return (If(conditions, steps, general),), (room,)


class _Sum(Writer):
    """A task adds up the parts of one row."""

    def add_up(self, parts: int) -> None:
        """Write the kernel over arguments (parts, C, ...)."""
        g, b, lanes = self.g, self.b, self.g.tile.lanes
        self.sums = b.memref(0, self.compute)
        self.c_out = b.memref(1, g.c.storage)
        rows, columns = self.size("M"), self.size("N")
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            batch, row = task.index // rows, task.index % rows
            self.batch_digits = self.digits_of(batch)
            self.c_base = self.batch_offset("c", (True,) * len(self.batch_digits))
            line = task.index * columns
            with b.loop(0, columns, lanes, hint="j") as j:
                mask = b.mask(columns - j.index, lanes)
                zero = b.constant(0, self.vector)
                total = zero
                for part in range(parts):
                    at = line + j.index + self.size("part") * part
                    value = self.sums.masked_load(at, mask, zero)
                    total = total + value
                self.write_result(total, row, j.index, mask)


def combine_launch(request: Request, gemm: Gemm, sizes: Mapping[str, Expr], parts: int) -> Launch:
    """The kernel that adds up the parts in Workspace(0) and finishes the result."""
    p, arguments = request.problem, Arguments([Workspace(0), request.out])
    if request.finish is not None:
        gemm = replace(gemm, finish=request.finish(arguments, gemm.tile.lanes))
    b = SizedBuilder(gemm.machine, {**sizes, "part": p.batches * p.rows * p.columns})
    _Sum(gemm, b).add_up(parts)
    work = p.columns * parts // 4 + 50
    return arguments.launch(b.finish(), f"{request.label}_sum", p.batches * p.rows, work)
