"""Memory of a CPU is the host's own; kernels run on the threads of the runtime."""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.host.memory import HostMemory, OwnMemory
from shlo_disc.lower.host.writer import PARALLEL_FOR, HostWriter
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import Mask, Pointer, Register


class CpuMemory(OwnMemory, HostMemory):
    """Loads, stores, and kernels that the runtime runs on its threads."""

    calls_kernels: ClassVar[bool] = True

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Pointer, arguments: Pointer, sizes: Pointer
    ) -> None:
        """See HostMemory."""
        extent = w.size(launch.extent)
        if launch.extent == 1 and launch.scratch_bytes == 0:
            # One task, a scalar of a loop: no thread to ask, no scratch memory to find.
            w.call(kernel, arguments, sizes, w.const(0), extent, w.null())
            return
        grain = _grain(w, launch.cost)
        scratch = w.size(launch.scratch_bytes)
        runner = w.context(PARALLEL_FOR)
        w.call(runner, w.the_context, kernel, arguments, sizes, extent, grain, scratch)

    def is_alone(self, w: HostWriter, launch: Launch) -> Mask | bool:
        """See HostMemory."""
        if launch.scratch_bytes != 0:
            return False
        extent, cost = launch.extent, launch.cost
        if extent == 1 or (extent.is_const and cost.is_const):
            return 0 < extent.value <= _grain_of(cost.value if cost.is_const else 1)
        number = w.size(extent)
        return (number > 0) & w.compare(number, "<=", _grain(w, cost))


def _grain(w: HostWriter, cost: Expr) -> Register:
    """Tasks of `cost` nanoseconds each that make a chunk."""
    if cost.is_const:
        return w.const(_grain_of(cost.value))
    positive = w.larger(w.size(cost), w.const(1))
    return w.op("arith.divsi", positive + (MODEL.costs.chunk_ns - 1), positive)


def _grain_of(cost: int) -> int:
    return max(1, ceil_div(MODEL.costs.chunk_ns, max(1, cost)))
