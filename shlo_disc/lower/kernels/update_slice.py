"""Kind `dynamic_update_slice`: copy the operand, then write the update into the copy.

The copy is a launch of its own, the first of the plan (`KernelPlan.copies_operand`). The host drops
it where the operand's buffer became the result's.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.single_op import SingleOp, digits, offset
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.plan import Input, KernelPlan, Output
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Group, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

_CHUNK = 4096
"""Elements of a task along the contiguous run."""

_FEW = 4
"""Elements of a run at most that are moved one by one: a masked vector would wait for what was just
stored element by element."""


def emit_dynamic_update_slice(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `dynamic_update_slice`; start indices are clamped, as specified."""
    single = SingleOp.of(fusion, machine)
    op = single.op
    operand, update, *starts = list(op.operands)
    sizes, window = single.shape(operand), single.shape(update)
    element = element_of(operand)
    result = Output(0)
    lanes = machine.lanes(element.bytes)
    chunk = machine.moved(_CHUNK, lanes)
    e = single.kernel(lanes)
    b = e.b
    # Dimensions from `cut` on are one contiguous run of operand and update.
    cut = len(sizes)
    while cut > 0 and (cut == len(sizes) or e.space.same(sizes[cut], window[cut])):
        cut -= 1
    run = Expr.product(window[cut:])
    pieces = ceil_div(run, chunk)
    steps, update_steps = dense_strides(sizes), dense_strides(window)
    one_by_one = run.is_const and run.value <= _FEW and not b.one_task
    begin = []
    for d, start in enumerate(starts):
        top = b.param(sizes[d]) - b.param(window[d])
        begin.append(b.max(b.min(e.scalar(start), top), 0))
    base = offset(b, begin, steps)
    with b.loop(b.lo, b.hi, 1, hint="task") as task:
        *row, piece = digits(b, task.index, [*window[:cut], pieces])
        to = base + offset(b, row, steps[:cut])
        source = offset(b, row, update_steps[:cut])
        if one_by_one:
            found = [single.read(e, update, source + k) for k in range(run.value)]
            for k, value in enumerate(found):
                e.store(result, element, value, Ix(to + k), None)
        else:
            first = piece * chunk
            last = b.min(first + chunk, b.param(run, opaque=True))

            def step(at: IndexValue, mask: Mask | None, _: list[Register]) -> None:
                index = (Group(window, Ix(source + at, 1)),) if window else ()
                value = e.value_at(update, index, mask)
                e.store(result, element, b.broadcast(value, lanes), Ix(to + at, 1), mask)

            strips(b, first, last, lanes, step)
    extent = Expr.product(window[:cut]) * pieces
    cost = Expr.min(run, Expr.const(chunk)) * element.bytes // 10 + 20
    launch = single.launch(e, "dynamic_update_slice", extent, cost)
    in_place = bool(fusion.op.operands) and e.inputs.get(operand) == 0
    aliased = operand in (update, *starts)
    first_step = single.copy(operand, result)
    plan = (first_step, launch)
    return KernelPlan(plan, copies_operand=in_place and not aliased and Input(0) in first_step.args)
