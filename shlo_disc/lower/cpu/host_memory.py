"""Memory of a CPU is the host's own: operations are done when they are given."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.values import Address, Integer
from shlo_disc.lower.host.writer import CONTEXT, PARALLEL_FOR, HostWriter
from shlo_disc.lower.plan import Launch

__all__ = ["CpuMemory"]


class CpuMemory(HostMemory):
    """Loads, stores, and kernels that the runtime runs on its threads."""

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Address, arguments: Address, sizes: Address
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
        w.call(runner, CONTEXT, kernel, arguments, sizes, extent, grain, scratch)

    def copy(self, w: HostWriter, destination: Address, source: Address, count: Expr) -> None:
        """See HostMemory."""
        w.copy_bytes(destination, source, w.size(count))

    def zero(self, w: HostWriter, address: Address, count: Expr) -> None:
        """See HostMemory."""
        w.set_bytes(address, w.const(0, 8), w.size(count))

    def read(self, w: HostWriter, address: Address, bits: int, hint: str) -> Integer:
        """See HostMemory."""
        return w.body.load(address, bits, hint)

    def write(self, w: HostWriter, value: Integer, address: Address) -> None:
        """See HostMemory."""
        w.store(value, address)


def _grain(w: HostWriter, cost: Expr) -> Integer:
    """Tasks of `cost` nanoseconds each that make a chunk."""
    worth = MODEL.costs.chunk_ns
    if cost.is_const:
        return w.const(max(1, ceil_div(worth, max(1, cost.value))))
    positive = w.entry.at_least(w.size(cost), w.const(1))
    grown = w.entry.add(positive, w.const(worth - 1))
    return w.entry.binary("arith.divsi", grown, positive)
