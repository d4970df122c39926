"""Kernels of a few elements, each of which is computed by itself, without lanes.

    q = [w*a - x*b, w*b + x*a]     ==>     %q0 = ..., %q1 = ...

Why     Steps of loops compute points, quaternions and small states that are stacked from scalars.
        In lanes, every part of a concatenation is computed for all lanes, under masks, and each
        reader computes it anew. What a kernel stores element by element is also found in registers
        by the next one, where both are in the host program. LLVM joins no scalars to vectors where
        all are few: the next step would wait for the shuffles, too.
Needs   A fusion in a loop, with few elements of every value, and their number known now.
Keeps   Reductions add one element after the other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.attributes import reduced_dims
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir, terminator
from shlo_disc.ir.ops import Role, row_of
from shlo_disc.lower.cpu import cost
from shlo_disc.lower.cpu.builder import EITHER, SCALAR, CpuBuilder
from shlo_disc.lower.cpu.joined_functions import DEAR, join_functions
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.short_factors import MOVING
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.plan import KernelPlan, Output
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.index import Index, Ix, Space
from shlo_disc.lower.values.typed import Mask, Register
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.records import Planned

_FEW = 4
"""Elements of every value at most: half a vector of AVX2 would be empty."""

_FEW_MOVED = 16
"""The same where elements come from several places."""

_MOST_WORK = 1024
"""Elements of all operations at most, which is the length of the kernel."""

_LONGEST_SUM = 8
"""Terms of a sum at most: one addition waits for the other. 16 take twice the time of two vectors.
"""

_DOT = "stablehlo.dot_general"

_NOTHING = (Role.FREE, Role.HOST, Role.RETURN)
"""Roles of ops that take no time."""


def has_few_elements(fusion: Planned[Any]) -> bool:
    """True if each element of `fusion`, which is in a loop, is better computed by itself."""
    ops = [v.operation for v in fusion.block.operations]
    ops = [op for op in ops if row_of(op).role not in _NOTHING]
    most = _FEW_MOVED if any(op.name in MOVING for op in ops) else _FEW
    roots = [Expr.product(fusion.shapes.shape(root)) for root in _roots(fusion)]
    if not ops or not roots or any(not r.is_const or not 0 < r.value <= most for r in roots):
        return False
    work = 0
    for op in ops:
        count = _count(op, fusion.shapes, most)
        if count is None or (count > 2 and cost.op_cycles(op) >= DEAR):
            return False  # a vector of sines takes as long as two of them
        work += count
    return work <= _MOST_WORK


def _count(op: ir.Operation, shapes: ShapeAnalysis, most: int) -> int | None:
    """Elements of `op` that a result of at most `most` may need, counting all terms of sums.

    None: there are too many, or no rule.
    """
    size = Expr.product(shapes.shape(op.results[0]))
    count = min(size.value, most) if size.is_const else most
    if op.name in SCALAR_OPS or op.name in DATA_MOVEMENT:
        return count
    if op.name == _DOT:
        if any(element_of(v).name not in ("f32", "f64") for v in (*op.operands, *op.results)):
            return None
        summed = dot_sides(op)[0].contracting
    elif op.name == "stablehlo.reduce":
        summed = tuple(reduced_dims(op))
    else:
        return None
    terms = Expr.product(shapes.shape(op.operands[0])[d] for d in summed)
    return count * terms.value if terms.is_const and terms.value <= _LONGEST_SUM else None


def _roots(fusion: Planned[Any]) -> list[ir.Value]:
    return list(terminator(fusion.block).operands)


def emit_few_elements(fusion: Planned[Any], machine: Machine) -> KernelPlan:
    """The plan of such a fusion: one launch of one task."""
    block, shapes, roots = fusion.block, fusion.shapes, _roots(fusion)
    b, arguments = CpuBuilder(machine), Arguments()
    e = Elemental(b, Space(b, shapes.constraints, [], 0), shapes, block, arguments)
    e.unrolls = True
    if told := _joins(block, shapes):
        b.tell(told)
    join_functions(e, block, machine)
    for view in block.operations:
        op = view.operation
        if op.name == _DOT:
            e.overrides[op.results[0]] = functools.partial(_product, e, op)
    with b.loop(b.lo, b.hi, 1, hint="task"):
        values = [[e.value_at(root, at) for at in _places(e, root)] for root in roots]
        for number, (root, found) in enumerate(zip(roots, values, strict=True)):
            for place, value in enumerate(found):
                e.store(Output(number), element_of(root), value, Ix(b.index(place)), None)
    name, one = fusion_name(fusion.op, kind_of(fusion.op).name), Expr.const(1)
    work = cost.of_block(block, shapes, one, machine)
    return KernelPlan((arguments.launch(b.finish(), name, one, work),))


def _joins(block: ir.Block, shapes: ShapeAnalysis) -> str:
    """What LLVM is told: that it must not join scalars, that it need not, or nothing.

    A step waits for the shuffles that join different scalars. `_FEW` elements of one operation are
    lanes without any, and more are work enough.
    """
    ops = [v.operation for v in block.operations if row_of(v.operation).role not in _NOTHING]
    sizes = [Expr.product(shapes.shape(op.results[0])) for op in ops]
    if any(not size.is_const or size.value > _FEW for size in sizes):
        return ""
    alike = [s.value == _FEW for op, s in zip(ops, sizes, strict=True) if op.name in SCALAR_OPS]
    return SCALAR if 2 * sum(alike) < len(alike) else EITHER


def _places(e: Elemental, value: ir.Value) -> Iterator[Index]:
    """The indices of all elements, in the order of memory."""
    sizes = e.shape(value)
    for places in itertools.product(*(range(size.value) for size in sizes)):
        yield e.space.of_dims(sizes, [e.space.uniform(e.b.index(place)) for place in places])


def _product(e: Elemental, op: ir.Operation, index: Index, mask: Mask | None) -> Register:
    """An element of a `dot_general`: terms are added first to last, each product rounded."""
    sides, shapes = dot_sides(op), [e.shape(operand) for operand in op.operands]
    here = e.space.dims(index)
    places: list[dict[int, Ix]] = []
    for side in sides:
        known = dict(zip(side.batch, here, strict=False))
        places.append(
            {**known, **{d: here[r] for d, r in zip(side.free, side.results, strict=True)}}
        )
    total = e.b.constant(0.0, element_of(op.results[0]).register)
    for at in itertools.product(*(range(shapes[0][d].value) for d in sides[0].contracting)):
        factors = []
        for operand, sizes, side, found in zip(op.operands, shapes, sides, places, strict=True):
            inner = (e.space.uniform(e.b.index(k)) for k in at)
            all_dims = {**found, **dict(zip(side.contracting, inner, strict=True))}
            dims = [all_dims[d] for d in range(len(sizes))]
            factors.append(e.value_at(operand, e.space.of_dims(sizes, dims), mask))
        total = total + factors[0] * factors[1]
    return total
