"""Kind `sort`: one row along the sorted dimension a task, merge sort in scratch memory.

Every sort is stable, whatever the op asks for.
"""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.lower.kernels.machine import TaskMachine
from shlo_disc.lower.kernels.merge_sort import Keys, MergeSort
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.values.elemental import Elemental, emit_region
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned


class SortedRows:
    """What a `sort` asks for: rows along its dimension, and the order of their records."""

    def __init__(self, single: SingleOp) -> None:
        op, self.single = single.op, single
        self.operands = list(op.operands)
        sizes = single.shape(self.operands[0])
        dimension = attr.integer(op, "dimension", -1)
        dimension += len(sizes) if dimension < 0 else 0
        self.size = sizes[dimension]
        self.inner = Expr.product(sizes[dimension + 1 :])
        self.rows = Expr.product(sizes[:dimension]) * self.inner
        self.elements = [element_of(v) for v in self.operands]
        self.storages = [(x.storage, x.bytes) for x in self.elements]
        self.body = op.regions[0].blocks[0]
        self.keys = [
            any(True for argument in self.body.arguments[2 * i : 2 * i + 2] for _ in argument.uses)
            for i in range(len(self.operands))
        ]
        """Which operands the comparator reads."""

    def less(self, e: Elemental, x: Keys, y: Keys) -> Mask:
        """True if the comparator puts `x` before `y`."""
        args = []
        for i, element in enumerate(self.elements):
            for value in (x[i], y[i]):
                if self.keys[i]:
                    args.append(e.as_register(Register.of(value), element))
                else:
                    args.append(e.b.constant(0, "i8"))
        return Mask.of(emit_region(e, self.body, args)[0])

    def read(self, e: Elemental, i: int, at: IndexValue) -> Register:
        """Element `at` of operand `i`, as it lies in memory."""
        value = self.single.read(e, self.operands[i], at)
        return e.b.cast("arith.extui", value, "i8") if self.elements[i].kind == "b" else value


def emit_sort(fusion: Planned[SingleOpRecord], machine: TaskMachine) -> KernelPlan:
    """The plan of a `sort`: any dimension, operands and comparator."""
    single = SingleOp.of(fusion, machine)
    rows = SortedRows(single)
    e = single.kernel(0)
    b = e.b
    sorter = MergeSort(b, rows.storages, rows.size, lambda x, y: rows.less(e, x, y), rows.keys)
    step = b.param(rows.inner)
    with b.loop(b.lo, b.hi, 1, hint="row") as row:
        divisor = e.space.positive(rows.inner)
        column = row.index % divisor
        start = row.index // divisor * sorter.n * step + column
        with b.loop(0, sorter.n, 1, hint="j") as loop:
            at = start + loop.index * step
            sorter.put(loop.index, [rows.read(e, i, at) for i in range(len(rows.operands))])
        first = sorter.sort()
        for i, place in enumerate(single.results):
            if place is None:
                continue
            memory = b.memref(e.arguments.slot(place), rows.elements[i].storage)
            with b.loop(0, sorter.n, 1, hint="j") as loop:
                value = b.load(sorter.memory[i], first + loop.index, readonly=False)
                memory.store(value, start + loop.index * step)
    scratch = MergeSort.scratch_bytes(rows.storages, rows.size)
    launch = single.launch(e, "sort", rows.rows, rows.size * 40 + 20, scratch)
    return KernelPlan((launch,))
