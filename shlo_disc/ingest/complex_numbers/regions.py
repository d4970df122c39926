"""Ops with regions, and what carries their values: reductions, sorts, scatters, control flow.

An operand of complex numbers becomes two operands, and so do the arguments of regions. Where the
region computes the parts apart (a sum), the op becomes one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shlo_disc.ingest.complex_numbers.planes import Planes, is_complex, plane_type, planes_of
from shlo_disc.ingest.complex_numbers.rewriter import New, Rewriter, attributes_of
from shlo_disc.ir.builders import create, write_region
from shlo_disc.ir.mlir import at, clone, ir, producer


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
    if (pairs := _reduced_pairs(rewriter, op)) is not None:
        return [pairs]
    new = rewriter.rebuild(op, rewriter.flat(list(op.operands)))
    rewriter.finally_(lambda: _split(new, _operands_of_reduction))
    return rewriter.results(op, list(new.results))


def _operands_of_reduction(op: ir.Operation, group: Sequence[int]) -> list[ir.Value]:
    count, operands = len(op.results), list(op.operands)
    return [operands[first + k] for first in (0, count) for k in group] + operands[2 * count :]


def _reduced_pairs(rewriter: Rewriter, op: ir.Operation) -> Planes | None:
    """The sum of an array of pairs that the program has already; None for any other reduction.

    One pass over contiguous memory, where sums of planes would take two with a stride.
    """
    if op.name != "stablehlo.reduce" or len(op.results) != 1:
        return None
    z, init = (rewriter.planes(v) for v in op.operands)
    if z.pairs is None or not (_is_zero(init.re) and _is_zero(init.im)):
        return None
    if not _adds(op.regions[0].blocks[0]):
        return None
    kind = plane_type(op.results[0].type)
    pairs = ir.RankedTensorType.get([*kind.shape, 2], kind.element_type)
    new = ir.Operation.create(
        op.name,
        results=[pairs],
        operands=[z.pairs, init.re],
        attributes=attributes_of(op),
        regions=1,
    )
    scalar = init.re.type
    write_region(
        new.regions[0], [scalar] * 2, lambda *pair: [create("stablehlo.add", pair, scalar)]
    )
    return planes_of(new.results[0])


def _is_zero(value: ir.Value) -> bool:
    """True for a constant +0.0: one initial value then stands for both."""
    op = producer(value)
    if op is None or op.name != "stablehlo.constant":
        return False
    number = float(ir.FloatAttr(op.attributes["value"].get_splat_value()).value)
    return number == 0 and math.copysign(1, number) > 0


def _adds(block: ir.Block) -> bool:
    """True if the block returns the sum of its two arguments."""
    names = [view.operation.name for view in block.operations]
    if names != ["stablehlo.add", "stablehlo.return"]:
        return False
    return set(block.operations[0].operands) == set(block.arguments)


def scatter(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Operands are arrays, indices and updates."""
    new = rewriter.rebuild(op, rewriter.flat(list(op.operands)))
    rewriter.finally_(lambda: _split(new, _operands_of_scatter))
    return rewriter.results(op, list(new.results))


def _operands_of_scatter(op: ir.Operation, group: Sequence[int]) -> list[ir.Value]:
    count, operands = len(op.results), list(op.operands)
    arrays, updates = ([operands[first + k] for k in group] for first in (0, count + 1))
    return [*arrays, operands[count], *updates]


# --- parts that do not depend on each other -------------------------------------------------------


def _split(
    op: ir.Operation, operands_of: Callable[[ir.Operation, Sequence[int]], list[ir.Value]]
) -> None:
    """Make several ops of one whose region computes results apart.

    `operands_of` gives the operands of an op that computes only some results.
    """
    block = op.regions[0].blocks[0]
    groups = _independent(block, len(op.results))
    if len(groups) == 1:
        return
    for group in groups:
        with at(op):
            part = ir.Operation.create(
                op.name,
                results=[op.results[k].type for k in group],
                operands=operands_of(op, group),
                attributes=attributes_of(op),
                regions=1,
            )
            _copy(block, part.regions[0], group, len(op.results))
        for k, result in zip(group, part.results, strict=True):
            op.results[k].replace_all_uses_with(result)
    op.erase()


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
            known.update(zip(op.results, clone(op, known).results, strict=True))
        ir.Operation.create(last.name, operands=[known.get(v, v) for v in wanted])
