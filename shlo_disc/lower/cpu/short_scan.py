"""Kind `scan` on a CPU: running totals of rows shorter than a vector have rows in lanes."""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.dynamic.expr import ceil_div
from shlo_disc.dynamic.seen import LONGEST_RUN
from shlo_disc.lower.cpu.interleaved import load_vectors, store_vectors
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.kernels.scan import Scan, emit_scan, scanned_dimension
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.kernels.strips import strips
from shlo_disc.lower.plan import Input, KernelPlan, Launch
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

CHUNK = 1024
"""Rows of a task."""


def emit(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `disc.scan`.

    Raises UnsupportedError for an element type or a reducer that is not compiled.
    """
    single = SingleOp.of(fusion, machine)
    _, size, inner = scanned_dimension(single)
    if not inner.is_one:
        return emit_scan(fusion, machine)
    if size.is_const and 1 < size.value <= LONGEST_RUN:
        lanes = machine.lanes(max(element_of(single.op.operands[0]).bytes, 4))
        return KernelPlan((_ShortRows(single, single.kernel(lanes)).launch(),))
    return replace(emit_scan(fusion, machine), short=(size,))


class _ShortRows(Scan):
    """Along the innermost dimension; a task is a run of rows."""

    def launch(self) -> Launch:
        b, e, count = self.b, self.e, self.size.value
        (place,) = self.single.results
        assert place is not None
        memory = b.memref(e.arguments.slot(Input(e.inputs[self.value])), self.element.storage)

        def strip(row: IndexValue, mask: Mask | None, _: list[Register]) -> None:
            first, totals = row * count, self.reducer.init(self.lanes)
            found: list[Register] = []
            values = load_vectors(b, memory, self.lanes, first, count, mask)
            for raw in reversed(values) if self.reverse else values:
                value = self.reducer.widen(e.as_register(raw, self.element), 0)
                totals = self.merge(totals, [value])
                found += self.reducer.finish(totals)
            found = found[::-1] if self.reverse else found
            store_vectors(e, place, self.op.results[0], found, first, mask)

        rows = b.param(self.outer)
        with b.loop(b.lo, b.hi, 1, hint="task") as task:
            start = task.index * CHUNK
            strips(b, start, b.min(start + CHUNK, rows), self.lanes, strip)
        extent = ceil_div(self.outer, CHUNK)
        return self.single.launch(e, "scan_short_rows", extent, self.size * CHUNK)
