"""Kind `sort`: rows by blocks of threads (`block_sort.py`)."""

from __future__ import annotations

from shlo_disc.lower.gpu.block_sort import BlockSort
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.sorted_rows import RadixKey, Rows
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.kernels.sort import SortedRows
from shlo_disc.lower.kernels.sort_key import sort_key
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.typed import IndexValue, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned


def emit_sort(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `sort`: any dimension, operands and comparator."""
    single = SingleOp.of(fusion, machine)
    op = SortedRows(single)

    def read(e: Elemental, i: int, row: IndexValue, at: IndexValue) -> Register:
        step, n = e.b.param(op.inner), e.b.param(op.size, opaque=True)
        divisor = e.space.positive(op.inner)
        start = row // divisor * n * step + row % divisor
        return op.read(e, i, start + at * step)

    rows = Rows(
        op.storages, op.keys, op.size, op.rows, op.inner, read, op.less, single.results,
        radix=_radix_key(op),
    )  # fmt: skip
    sorter = BlockSort(single, machine, rows, 0)
    return KernelPlan(sorter.steps(), tuple(sorter.workspaces))


def _radix_key(op: SortedRows) -> RadixKey | None:
    """The key of the comparator, if it has one."""
    key = sort_key(op.body)
    if key is None:
        return None
    element = op.elements[key.operand]

    def of(e: Elemental, value: Register) -> Register:
        return key.ordered(e, e.as_register(value, element))

    return RadixKey(key.operand, key.bits, of)
