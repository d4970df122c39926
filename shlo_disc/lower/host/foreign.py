"""Calls of the runtime in the host program: XLA FFI handlers, Fourier transforms.

The runtime is given addresses, as kernels are, and keeps the order of operations (`memory.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.writer import FAILED, FFT, FOREIGN, HostWriter
from shlo_disc.lower.plan import FfiCall, FftCall
from shlo_disc.mlir import ir, walk
from shlo_disc.passes.records import may_fail

__all__ = ["can_fail", "emit_fft", "emit_foreign", "unless_failed"]

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
    operands: Sequence[str],
    results: Sequence[str],
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
    buffers = w.array(len(operands) + len(results), "!llvm.ptr", f"buffers of {number}")
    for position, address in enumerate((*operands, *results)):
        w.store(address, buffers, position, "!llvm.ptr")
    handler = w.context(FOREIGN)
    sizes = w.sizes_array([*call.sizes, *(size for _, size in call.size_attributes)])
    w.line(
        f"llvm.call {handler}(%ctx, {w.const(number)}, {buffers}, {sizes}) : "
        "!llvm.ptr, (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr) -> ()"
    )


def emit_fft(w: HostWriter, call: FftCall, addresses: Sequence[str]) -> None:
    """Transform one dimension of the operands at `addresses` into the results behind them."""
    buffers = w.array(_FFT_BUFFERS, "!llvm.ptr", "buffers of transforms")
    for position, address in enumerate(addresses):
        w.store(address, buffers, position, "!llvm.ptr")
    function = w.context(FFT)
    w.line(
        f"llvm.call {function}(%ctx, {w.const(call.options)}, {w.size(call.batch)}, "
        f"{w.size(call.length)}, {w.size(call.inner)}, {buffers}) : !llvm.ptr, "
        "(!llvm.ptr, i64, i64, i64, i64, !llvm.ptr) -> ()"
    )


def unless_failed(w: HostWriter, go: str) -> str:
    """The i1 `go`, false once a call has failed: what a loop computes may then never end it."""
    address = w.element_address("%ctx", FAILED, "i64")
    failed, still, both = w.fresh("failed"), w.fresh("still"), w.fresh("go")
    w.line(f"{failed} = llvm.load {address} : !llvm.ptr -> i64")
    w.line(f"{still} = arith.cmpi eq, {failed}, {w.const(0)} : i64")
    w.line(f"{both} = arith.andi {go}, {still} : i1")
    return both
