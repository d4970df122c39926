"""Memory of a CPU is the host's own; kernels run on the threads of the runtime."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.host.memory import HostMemory, OwnMemory
from shlo_disc.lower.host.writer import PARALLEL_FOR, HostWriter
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import Pointer, Register

__all__ = ["CpuMemory"]


class CpuMemory(OwnMemory, HostMemory):
    """Loads, stores, and kernels that the runtime runs on its threads."""

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Pointer, arguments: Pointer, sizes: Pointer
    ) -> None:
        """See HostMemory."""
        if launch.extent == 1 and launch.scratch_bytes == 0:
            # One task, a scalar of a loop: no thread to ask, no scratch memory to find.
            w.call(kernel, arguments, sizes, w.const(0), w.const(1), w.null())
            return
        extent = w.size(launch.extent)
        grain = _grain(w, launch.cost)
        scratch = w.size(launch.scratch_bytes)
        runner = w.context(PARALLEL_FOR)
        w.call(runner, w.the_context, kernel, arguments, sizes, extent, grain, scratch)


def _grain(w: HostWriter, cost: Expr) -> Register:
    """Tasks of `cost` nanoseconds each that make a chunk."""
    worth = MODEL.costs.chunk_ns
    if cost.is_const:
        return w.const(max(1, ceil_div(worth, max(1, cost.value))))
    positive = w.larger(w.size(cost), w.const(1))
    return w.op("arith.divsi", positive + (worth - 1), positive)
