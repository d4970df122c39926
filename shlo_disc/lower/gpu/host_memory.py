"""Memory of a GPU: the host program enqueues operations, and waits where it reads.

All are functions of the runtime, reached through `disc_context` (`ral/include/disc_ral.h`, fields
10 to 14). After a failure they do nothing, and `read` gives 0.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.writer import (
    GPU_COPY,
    GPU_LAUNCH,
    GPU_READ,
    GPU_WRITE,
    GPU_ZERO,
    HostWriter,
)
from shlo_disc.lower.plan import Launch
from shlo_disc.lower.values.typed import Pointer, Register


class GpuMemory(HostMemory):
    """Calls of the runtime, for CUDA and ROCm alike."""

    can_fail: ClassVar[bool] = True

    def launch(
        self, w: HostWriter, launch: Launch, kernel: Pointer, arguments: Pointer, sizes: Pointer
    ) -> None:
        """See HostMemory. Raises InternalError for kernels to call, and for scratch memory."""
        if launch.called or launch.scratch_bytes != 0:
            raise InternalError(f"{launch.kernel.name} calls kernels or has scratch memory")
        tasks = w.size(launch.extent)
        w.call(w.context(GPU_LAUNCH), w.the_context, kernel, arguments, sizes, tasks)

    def copy(self, w: HostWriter, destination: Pointer, source: Pointer, count: Expr) -> None:
        """See Memory."""
        w.call(w.context(GPU_COPY), w.the_context, destination, source, w.size(count))

    def zero(self, w: HostWriter, address: Pointer, count: Expr) -> None:
        """See Memory."""
        w.call(w.context(GPU_ZERO), w.the_context, address, w.size(count))

    def read(self, w: HostWriter, address: Pointer, bits: int, hint: str) -> Register:
        """See Memory."""
        function, count = w.context(GPU_READ), w.const(bits // 8)
        whole = w.call_for(64, function, w.the_context, address, count, hint=hint)
        return whole if bits == 64 else whole.cast("arith.trunci", f"i{bits}")

    def write(self, w: HostWriter, value: Register, address: Pointer) -> None:
        """See Memory."""
        bits = value.element_bits
        whole = value if bits == 64 else value.cast("arith.extui", "i64")
        w.call(w.context(GPU_WRITE), w.the_context, address, whole, w.const(bits // 8))
