"""Long rows in stages: what each of a few launches does to every piece of a row.

One stage a sweep would read a row once per level of chained reductions. In two forms the second of
two chained sums is taken in the first one's stage, relative to a value of the piece alone. It is
put right when the pieces are combined:

* `sum(exp(x - f(max x)))`: with r instead of f(max x), the sum is too large by exp(f(max x) - r)
  (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018).
* `sum((x - c)^2)`: around the mean m of n columns it is smaller by n (m - c)^2 (T. Chan, G. Golub,
  R. LeVeque, "Algorithms for computing the sample variance", 1983); c is any value of the row.

`stages_of` is the one matcher of these forms. It belongs to the schedule and not to the records of
`passes/`: only rows that are split ask, and a split changes no fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.views import BROADCASTS
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.schedule.row_reduction import Plan, Sweep
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.reduction import simple_body
from shlo_disc.passes.op_classes import RESHAPES

_CHOICES = frozenset(
    {*BROADCASTS, *RESHAPES, "stablehlo.is_finite", "stablehlo.maximum", "stablehlo.select"}
)
"""Ops that make one of their operands, or a number as safe, of the maximum of a row."""


@dataclass(frozen=True)
class Relative:
    """A sum over columns that a piece takes relative to a value of its own."""

    op: ir.Operation
    """The reduction."""
    reference: ir.Value
    """What is subtracted from every column; full-size."""
    row: ir.Value
    """The value of the row that `reference` repeats."""
    total: ir.Operation | None
    """For squares, the sum of the columns; None: a sum of exponentials."""


@dataclass
class Stage:
    """One launch over the pieces of all rows, and one over rows that combines its reductions."""

    sweep: Sweep
    relative: list[Relative] = field(default_factory=list)

    @property
    def reductions(self) -> list[ir.Operation]:
        """What is not relative to anything."""
        return [*self.sweep.general, *self.sweep.simple]


def stages_of(plan: Plan) -> list[Stage]:
    """The stages of a plan that keeps nothing between its sweeps; row results come with the last
    stage that reduces.
    """
    stages: list[Stage] = []
    waiting: list[int] = []
    number = 0
    while number < len(plan.sweeps):
        sweep = plan.sweeps[number]
        stage = Stage(replace(sweep, outputs=[*waiting, *sweep.outputs]))
        waiting = []
        following = plan.sweeps[number + 1] if number + 1 < len(plan.sweeps) else None
        if following is not None and following.simple and not following.general:
            found = [_relative(plan, op, sweep.simple) for op in following.simple]
            relative = [r for r in found if r is not None]
            if len(relative) == len(found) and _agree(relative):
                stage.relative = relative
                waiting = following.outputs
                number += 1
        stages.append(stage)
        number += 1
    stages.append(Stage(Sweep(outputs=waiting)))
    return [stage for stage in stages if stage.reductions or stage.sweep.outputs]


def _agree(relatives: Sequence[Relative]) -> bool:
    """True if one value of a piece serves all sums relative to the same reference."""
    totals: dict[ir.Value, ir.Operation | None] = {}
    return all(totals.setdefault(r.reference, r.total) == r.total for r in relatives)


def _relative(plan: Plan, op: ir.Operation, before: Sequence[ir.Operation]) -> Relative | None:
    """`op` as a sum of exponentials or squares relative to a value of the row."""
    term, kept_as = producer(op.operands[0]), element_of(op.operands[0]).register
    if term is None or simple_body(op) != "stablehlo.add" or kept_as not in ("f32", "f64"):
        return None
    squares = term.name == "stablehlo.multiply" and term.operands[0] == term.operands[1]
    if not squares and term.name != "stablehlo.exponential":
        return None
    difference = producer(term.operands[0])
    if difference is None or difference.name != "stablehlo.subtract":
        return None
    columns, reference = difference.operands
    repeat = producer(reference)
    if repeat is None or repeat.name not in BROADCASTS:
        return None
    row = repeat.operands[0]
    equal = plan.shapes.constraints.product_equal
    if not equal(plan.shapes.shape(row), plan.lines):
        return None
    if not squares:
        return Relative(op, reference, row, None) if _is_maximum(row, columns, before) else None
    for total in before:
        if simple_body(total) == "stablehlo.add" and total.operands[0] == columns:
            return Relative(op, reference, row, total)
    return None


def _is_maximum(row: ir.Value, columns: ir.Value, before: Sequence[ir.Operation]) -> bool:
    """True if `row` is made of the maximum of `columns`, so that no exponential overflows."""
    found, waiting = False, [row]
    while waiting:
        op = producer(waiting.pop())
        if op is not None and op in before:
            if simple_body(op) != "stablehlo.maximum" or op.operands[0] != columns:
                return False
            found = True
        elif op is not None and op.name in _CHOICES:
            waiting += op.operands
        elif op is None or op.name not in ("stablehlo.constant", "disc.sizes"):
            return False
    return found
