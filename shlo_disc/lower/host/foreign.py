"""Calls of the runtime in the host program: XLA FFI handlers, Fourier transforms.

The runtime is given addresses, as kernels are, and keeps the order of operations (`memory.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ir.mlir import ir, walk
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.writer import ADDRESS, FFT, FOREIGN, HostWriter
from shlo_disc.lower.plan import FfiCall, FftCall
from shlo_disc.lower.values.typed import Pointer
from shlo_disc.passes.records import may_fail

_FFT_BUFFERS = 4


def can_fail(func: ir.Operation) -> bool:
    """True if a step of `func` can end the call."""
    found: list[ir.Operation] = []
    walk(func, lambda op: found.append(op) if may_fail(op) else None)
    return bool(found)


def emit_foreign(
    w: HostWriter,
    memory: HostMemory,
    number: int,
    call: FfiCall,
    operands: Sequence[Pointer],
    results: Sequence[Pointer],
) -> None:
    """Call handler `number` of the executable on the addresses of `operands` and `results`.

    An operand that the handler changes is copied to where the result will be, unless plan-buffers
    made both one buffer.
    """
    operands = list(operands)
    for alias in call.aliases:
        source, destination = operands[alias.operand], results[alias.result]
        if source != destination:
            memory.copy(w, destination, source, alias.bytes)
            operands[alias.operand] = destination
    buffers = w.array(len(operands) + len(results), ADDRESS, f"buffers of {number}")
    for position, address in enumerate((*operands, *results)):
        w.store_element(address, buffers, position)
    handler = w.context(FOREIGN)
    sizes = w.sizes_array([*call.sizes, *(size for _, size in call.size_attributes)])
    w.call(handler, w.the_context, w.const(number), buffers, sizes)


def emit_fft(w: HostWriter, call: FftCall, addresses: Sequence[Pointer]) -> None:
    """Transform one dimension of the operands at `addresses` into the results behind them."""
    buffers = w.array(_FFT_BUFFERS, ADDRESS, "buffers of transforms")
    for position, address in enumerate(addresses):
        w.store_element(address, buffers, position)
    function = w.context(FFT)
    sizes = [w.size(size) for size in (call.batch, call.length, call.inner)]
    w.call(function, w.the_context, w.const(call.options), *sizes, buffers)
