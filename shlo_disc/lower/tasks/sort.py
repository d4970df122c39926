"""Kind `sort`: one row along the sorted dimension a task, merge sort in scratch memory.

Every sort is stable, whatever the op asks for.
"""

from __future__ import annotations

from shlo_disc.dynamic import attributes as attr
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.tasks.machine import TaskMachine
from shlo_disc.lower.tasks.merge_sort import Keys, MergeSort
from shlo_disc.lower.tasks.single_op import SingleOp
from shlo_disc.lower.values.elemental import emit_region
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.typed import Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

__all__ = ["emit_sort"]


def emit_sort(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `sort`: any dimension, operands and comparator."""
    single = SingleOp.of(fusion, machine)
    op = single.op
    operands = list(op.operands)
    sizes = single.shape(operands[0])
    dimension = attr.integer(op, "dimension", -1)
    dimension += len(sizes) if dimension < 0 else 0
    size = sizes[dimension]
    inner = Expr.product(sizes[dimension + 1 :])
    outer = Expr.product(sizes[:dimension])
    elements = [element_of(v) for v in operands]
    storages = [(x.storage, x.bytes) for x in elements]
    body = op.regions[0].blocks[0]
    keys = [
        any(True for argument in body.arguments[2 * i : 2 * i + 2] for _ in argument.uses)
        for i in range(len(operands))
    ]
    e = single.kernel(0)
    b = e.b

    def less(x: Keys, y: Keys) -> Mask:
        args = []
        for i, element in enumerate(elements):
            for value in (x[i], y[i]):
                if keys[i]:
                    args.append(e.as_register(Register.of(value), element))
                else:
                    args.append(b.constant(0, "i8"))
        return Mask.of(emit_region(e, body, args)[0])

    def in_memory(value: Register, i: int) -> Register:
        return b.cast("arith.extui", value, "i8") if elements[i].kind == "b" else value

    sorter = MergeSort(b, storages, size, less, keys)
    step = b.param(inner)
    with b.loop(b.lo, b.hi, 1, hint="row") as row:
        divisor = e.space.positive(inner)
        column = row.index % divisor
        start = row.index // divisor * sorter.n * step + column
        with b.loop(0, sorter.n, 1, hint="j") as loop:
            at = start + loop.index * step
            record = [in_memory(single.read(e, v, at), i) for i, v in enumerate(operands)]
            sorter.put(loop.index, record)
        first = sorter.sort()
        for i, place in enumerate(single.results):
            if place is None:
                continue
            memory = b.memref(e.arguments.slot(place), elements[i].storage)
            with b.loop(0, sorter.n, 1, hint="j") as loop:
                value = b.load(sorter.memory[i], first + loop.index, readonly=False)
                memory.store(value, start + loop.index * step)
    scratch = MergeSort.scratch_bytes(storages, size)
    launch = single.launch(e, "sort", outer * inner, size * 40 + 20, scratch)
    return KernelPlan((launch,))
