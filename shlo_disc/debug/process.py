"""Calls of machine code in a process of their own that shares this one's memory.

A fault, or an endless loop, ends that process and not this one. Nothing is copied, so a run costs
some 50 microseconds; a fork of a process with JAX in it costs 10 ms. The process runs no Python: a
trampoline in machine code makes the calls.

Source: clone(2) with CLONE_VM and without CLONE_THREAD.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.lower.plan import FUNCTION_TYPE
from shlo_disc.lower.target import Function

Code = Callable[[Sequence[str]], Sequence[Function]]
"""Gives the functions of kernel texts."""


@dataclass(frozen=True)
class KernelCall:
    """A call of a `disc_kernel`; all but `lo` and `hi` are addresses."""

    function: int
    args: int
    params: int
    lo: int
    hi: int
    scratch: int

    def record(self) -> list[int]:
        """The words that the trampoline reads."""
        return [self.function, self.args, self.params, self.lo, self.hi, self.scratch]


@dataclass(frozen=True)
class Zeroing:
    """Zeroes `size_bytes` bytes at `address`."""

    address: int
    size_bytes: int

    def record(self) -> list[int]:
        """The words that the trampoline reads: no function."""
        return [0, self.address, 0, 0, self.size_bytes, 0]


@dataclass(frozen=True)
class Ended:
    """How a run failed."""

    call: int
    """Which call it was at."""
    signal: int | None
    """The signal that ended it; None if it did not end in time."""


_WORDS = 6

_TRAMPOLINE = f"""\
func.func @KERNEL(%list: !llvm.ptr) -> i32 {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %byte = arith.constant 0 : i8
  %null = llvm.mlir.zero : !llvm.ptr
  %count = llvm.load %list : !llvm.ptr -> i64
  %at = llvm.getelementptr %list[1] : (!llvm.ptr) -> !llvm.ptr, i64
  scf.for %number = %zero to %count step %one : i64 {{
    llvm.store volatile %number, %at : i64, !llvm.ptr
    %words = arith.constant {_WORDS} : i64
    %offset = arith.muli %number, %words : i64
    %first = llvm.getelementptr %list[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %record = llvm.getelementptr %first[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i64
    %function = llvm.load %record : !llvm.ptr -> !llvm.ptr
    %p1 = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %args = llvm.load %p1 : !llvm.ptr -> !llvm.ptr
    %p2 = llvm.getelementptr %record[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %params = llvm.load %p2 : !llvm.ptr -> !llvm.ptr
    %p3 = llvm.getelementptr %record[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %lo = llvm.load %p3 : !llvm.ptr -> i64
    %p4 = llvm.getelementptr %record[4] : (!llvm.ptr) -> !llvm.ptr, i64
    %hi = llvm.load %p4 : !llvm.ptr -> i64
    %p5 = llvm.getelementptr %record[5] : (!llvm.ptr) -> !llvm.ptr, i64
    %scratch = llvm.load %p5 : !llvm.ptr -> !llvm.ptr
    %zeroes = llvm.icmp "eq" %function, %null : !llvm.ptr
    scf.if %zeroes {{
      scf.for %k = %zero to %hi step %one : i64 {{
        %here = llvm.getelementptr %args[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i8
        llvm.store volatile %byte, %here : i8, !llvm.ptr
      }}
    }} else {{
      llvm.call %function(%args, %params, %lo, %hi, %scratch)
          : !llvm.ptr, {FUNCTION_TYPE}
    }}
  }}
  %status = arith.constant 0 : i32
  return %status : i32
}}
"""

_STACK_BYTES = 8 << 20
_CLONE_VM = 0x100
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_SIGACTION_BYTES = 152
"""At least what `struct sigaction` takes in any C library of Linux."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
_handlers = threading.Lock()


def run_calls(calls: Sequence[KernelCall | Zeroing], code: Code, limit_s: float) -> Ended | None:
    """Make the calls, in order, in a process of their own; how it failed, or None.

    Raises OSError if the process cannot be made.
    """
    (trampoline,) = code([_TRAMPOLINE])
    words = [len(calls), 0, *(word for call in calls for word in call.record())]
    memory = (ctypes.c_int64 * len(words))(*words)
    with mmap.mmap(-1, _STACK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as stack:
        bottom = ctypes.c_char.from_buffer(stack)
        low = ctypes.addressof(bottom)
        _libc.mprotect(low, mmap.PAGESIZE, 0)
        child = _cloned(trampoline.address, low + _STACK_BYTES, ctypes.addressof(memory))
        status = _wait(child, limit_s)
        del bottom
    if status == 0:
        return None
    return Ended(memory[1], -status if status is not None else None)


def _cloned(function: int, stack: int, argument: int) -> int:
    """A new process in `function`, for which faults are fatal: handlers of Python are none."""
    default = ctypes.create_string_buffer(_SIGACTION_BYTES)
    before: dict[int, Any] = {}
    with _handlers:
        for number in _FAULTS:
            before[int(number)] = ctypes.create_string_buffer(_SIGACTION_BYTES)
            _libc.sigaction(number, default, before[int(number)])
        try:
            child = int(_libc.clone(function, stack, _CLONE_VM | signal.SIGCHLD, argument))
        finally:
            for caught, handler in before.items():
                _libc.sigaction(caught, handler, None)
    if child < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no process to run kernels in: {os.strerror(error)}")
    return child


def _wait(child: int, limit_s: float) -> int | None:
    """The exit status, negative for a signal; None, and the process is killed, after the limit."""
    end, pause = time.monotonic() + limit_s, 1e-5
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
