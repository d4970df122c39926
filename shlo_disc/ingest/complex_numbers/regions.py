"""Ops with regions, and what carries their values: reductions, sorts, scatters, control flow.

An operand of complex numbers becomes two operands, and so do the arguments of regions. Where the
region computes the parts apart (a sum), the op becomes one for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.complex_numbers.planes import is_complex
from shlo_disc.ingest.complex_numbers.rewriter import New, Rewriter, attributes_of
from shlo_disc.locations import source_line
from shlo_disc.mlir import ir

__all__ = ["control_flow", "reduction", "scatter", "select_and_scatter", "sort", "terminator"]


def terminator(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """A `stablehlo.return` of planes."""
    ir.Operation.create(op.name, operands=rewriter.flat(list(op.operands)))
    return []


def control_flow(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """`while`, `if` and `case`: more values are carried or given."""
    new = rewriter.rebuild(op, rewriter.flat(list(op.operands)))
    return rewriter.results(op, list(new.results))


def sort(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """The planes are sorted together: the comparator takes pairs of each."""
    order: list[int] = []
    for operand in op.operands:
        first = len(order)
        order += (
            [first, first + 2, first + 1, first + 3]
            if is_complex(operand.type)
            else [first, first + 1]
        )
    operands = rewriter.flat(list(op.operands))
    new = ir.Operation.create(
        op.name,
        results=[v.type for v in operands],
        operands=operands,
        attributes=attributes_of(op),
        regions=1,
    )
    rewriter.adopt(op.regions[0], new.regions[0], order)
    return rewriter.results(op, list(new.results))


def reduction(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """`reduce` and `reduce_window`: operands are inputs, initial values and what is not reduced."""
    new = rewriter.rebuild(op, rewriter.flat(list(op.operands)))
    count = len(new.results)
    operands = list(new.operands)
    rest = operands[2 * count :]

    def of(group: Sequence[int]) -> list[ir.Value]:
        return [operands[first + k] for first in (0, count) for k in group] + rest

    return rewriter.results(op, _apart(new, of))


def scatter(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Operands are arrays, indices and updates."""
    new = rewriter.rebuild(op, rewriter.flat(list(op.operands)))
    count = len(new.results)
    operands = list(new.operands)

    def of(group: Sequence[int]) -> list[ir.Value]:
        arrays, updates = ([operands[first + k] for k in group] for first in (0, count + 1))
        return [*arrays, operands[count], *updates]

    return rewriter.results(op, _apart(new, of))


def select_and_scatter(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    raise UnsupportedError(
        f"{source_line(op)}: {op.name} of complex numbers is not compiled; select by a real array"
    )


# --- parts that do not depend on each other -------------------------------------------------------


def _apart(op: ir.Operation, operands_of: object) -> list[ir.Value]:
    """The results of `op`, of several ops where its region computes them apart.

    `operands_of` gives the operands of an op that computes only these results.
    """
    assert callable(operands_of)
    block = op.regions[0].blocks[0]
    groups = _independent(block, len(op.results))
    if len(groups) == 1:
        return list(op.results)
    values: dict[int, ir.Value] = {}
    for group in groups:
        part = ir.Operation.create(
            op.name,
            results=[op.results[k].type for k in group],
            operands=operands_of(group),
            attributes=attributes_of(op),
            regions=1,
        )
        _copy(block, part.regions[0], group, len(op.results))
        values.update(zip(group, part.results, strict=True))
    op.erase()
    return [values[k] for k in range(len(values))]


def _independent(block: ir.Block, count: int) -> list[list[int]]:
    """The results in groups, such that each group needs only its own arguments."""
    needs: dict[ir.Value, set[int]] = {a: {a.arg_number % count} for a in block.arguments}
    *body, last = (view.operation for view in block.operations)
    for op in body:
        if len(op.regions):
            return [list(range(count))]
        union = set().union(*(needs.get(v, set()) for v in op.operands))
        for result in op.results:
            needs[result] = union
    groups: list[set[int]] = []
    for k, value in enumerate(last.operands):
        joined = {k} | needs.get(value, set())
        joined = joined.union(*(g for g in groups if g & joined))
        groups = [g for g in groups if not g & joined] + [joined]
    return sorted(sorted(g) for g in groups)


def _copy(block: ir.Block, region: ir.Region, group: Sequence[int], count: int) -> None:
    """A block in `region` that computes the results `group` of `block`."""
    old = [block.arguments[first + k] for first in (0, count) for k in group]
    made = region.blocks.append(*(a.type for a in old), arg_locs=[a.location for a in old])
    known = dict(zip(old, made.arguments, strict=True))
    *body, last = (view.operation for view in block.operations)
    wanted = [last.operands[k] for k in group]
    needed: set[ir.Value] = set(wanted)
    kept = []
    for op in reversed(body):
        if any(r in needed for r in op.results):
            kept.append(op)
            needed.update(op.operands)
    with ir.InsertionPoint(made):
        for op in reversed(kept):
            copy = op.clone()
            for k, operand in enumerate(op.operands):
                copy.operands[k] = known.get(operand, operand)
            known.update(zip(op.results, copy.results, strict=True))
        ir.Operation.create(last.name, operands=[known.get(v, v) for v in wanted])
