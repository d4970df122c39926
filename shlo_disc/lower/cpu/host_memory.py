"""Memory of a CPU is the host's own: operations are done when they are given."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.writer import PARALLEL_FOR, HostWriter
from shlo_disc.lower.plan import FUNCTION_TYPE, Launch

__all__ = ["CpuMemory"]


class CpuMemory(HostMemory):
    """Loads, stores, and kernels that the runtime runs on its threads."""

    def launch(
        self, w: HostWriter, launch: Launch, kernel: str, arguments: str, sizes: str
    ) -> None:
        """See HostMemory."""
        if launch.extent == 1 and launch.scratch_bytes == 0:
            # One task, a scalar of a loop: no thread to ask, no scratch memory to find.
            zero, one, nothing = w.const(0), w.const(1), w.once("llvm.mlir.zero : !llvm.ptr")
            operands = f"{arguments}, {sizes}, {zero}, {one}, {nothing}"
            w.line(f"llvm.call {kernel}({operands}) : !llvm.ptr, {FUNCTION_TYPE}")
            return
        extent = w.size(launch.extent)
        grain = _grain(w, launch.cost)
        scratch = w.size(launch.scratch_bytes)
        w.line(
            f"llvm.call {w.context(PARALLEL_FOR)}(%ctx, {kernel}, {arguments}, {sizes}, {extent}, "
            f"{grain}, {scratch}) : !llvm.ptr, "
            "(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()"
        )

    def copy(self, w: HostWriter, destination: str, source: str, count: Expr) -> None:
        """See HostMemory."""
        w.line(
            f'"llvm.intr.memcpy"({destination}, {source}, {w.size(count)}) '
            "<{isVolatile = false}> : (!llvm.ptr, !llvm.ptr, i64) -> ()"
        )

    def zero(self, w: HostWriter, address: str, count: Expr) -> None:
        """See HostMemory."""
        w.line(
            f'"llvm.intr.memset"({address}, {w.once("arith.constant 0 : i8")}, {w.size(count)}) '
            "<{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()"
        )

    def read(self, w: HostWriter, address: str, kind: str, hint: str) -> str:
        """See HostMemory."""
        name = w.fresh(hint)
        w.line(f"{name} = llvm.load {address} : !llvm.ptr -> {kind}")
        return name

    def write(self, w: HostWriter, value: str, address: str, kind: str) -> None:
        """See HostMemory."""
        w.line(f"llvm.store {value}, {address} : {kind}, !llvm.ptr")


def _grain(w: HostWriter, cost: Expr) -> str:
    """Tasks of `cost` nanoseconds each that make a chunk."""
    worth = MODEL.costs.chunk_ns
    if cost.is_const:
        return w.const(max(1, ceil_div(worth, max(1, cost.value))))
    positive = w.once(f"arith.maxsi {w.size(cost)}, {w.const(1)} : i64")
    grown = w.once(f"arith.addi {positive}, {w.const(worth - 1)} : i64")
    return w.once(f"arith.divsi {grown}, {positive} : i64")
