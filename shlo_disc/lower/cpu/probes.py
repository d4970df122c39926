"""Kernels that measure a CPU: multiply-adds in registers, and reads of memory."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import text_of
from shlo_disc.lower.target import Probes
from shlo_disc.lower.values.typed import Register, vector_type

_CHAINS = 12
"""Independent multiply-adds in flight: latency 4 times 2 a cycle, and some to spare."""
_READS = 8
"""Independent loads in flight."""
_STEPS = 2048


def probes(machine: Machine) -> Probes:
    """The kernels for `machine`."""
    flops = 2 * machine.lanes(4) * _CHAINS * _STEPS
    return Probes(_products(machine), flops, _reads(machine))


def _products(machine: Machine) -> str:
    """Each task: `_STEPS` rounds of `_CHAINS` independent multiply-adds."""
    b = CpuBuilder(machine)
    type_ = vector_type(machine.lanes(4), "f32")
    start, factor = b.constant(1.0, type_), b.constant(0.999, type_)
    with b.loop(b.lo, b.hi, hint="task"):
        with b.loop(0, _STEPS, 1, [start] * _CHAINS) as steps:
            steps.yield_(*(b.op("math.fma", value, factor, start) for value in steps.args))
        _keep(b, steps.results)
    return text_of(b.finish()[0])


def _reads(machine: Machine) -> str:
    """Task i reads block `i mod params[1]` of params[0] float32 elements."""
    b, lanes = CpuBuilder(machine), machine.lanes(4)
    data, block, count = b.memref(0, "f32"), *(b.param(Expr.symbol(s)) for s in ("block", "count"))
    start = b.constant(0.0, vector_type(lanes, "f32"))
    with b.loop(b.lo, b.hi, hint="task") as task:
        first = task.index % count * block
        with b.loop(0, block, _READS * lanes, [start] * _READS) as reads:
            at = first + reads.index
            read = [data.vector_load(at + k * lanes, lanes) for k in range(_READS)]
            reads.yield_(*(total + new for total, new in zip(reads.args, read, strict=True)))
        _keep(b, reads.results)
    return text_of(b.finish()[0])


def _keep(b: CpuBuilder, values: Sequence[Register]) -> None:
    """Keeps the values alive: their sum goes to scratch memory."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    b.scratch("f32").vector_store(total, 0)
