"""What this machine can do: operations a second and bytes a second, measured in this process.

The kernels that measure are generated and run as all others are (same code generator, same
threads), so the floor they give is one that a better kernel could really reach.
"""

from __future__ import annotations

import ctypes
import functools
import time
from dataclasses import dataclass

import numpy as np

from shlo_disc import ral
from shlo_disc.lower.cpu import codegen
from shlo_disc.lower.cpu.machine import host_target

__all__ = ["Machine", "machine"]

_CHAINS = 12
"""Independent multiply-adds in flight: latency 4 times 2 a cycle, and some to spare."""
_STEPS = 2048


@dataclass(frozen=True)
class Machine:
    """Measured with all threads of the runtime."""

    gflops: float
    """Float32 multiply-adds in registers, two operations each, in 1e9 a second."""
    bandwidth: tuple[tuple[int, float], ...]
    """(bytes of the array read again and again, 1e9 bytes a second), by size."""

    def gigabytes_per_second(self, touched: int) -> float:
        """Reading speed of data of this size that was touched before."""
        for size, speed in self.bandwidth:
            if touched <= size:
                return speed
        return self.bandwidth[-1][1]

    def floor_ms(self, flops: float, moved: float) -> float:
        """No kernel that does these operations and moves these bytes is faster, in ms.

        Operations are counted at the float32 rate; bytes at that of the cache they fit in.
        """
        speed = self.gigabytes_per_second(int(moved))
        return max(flops / self.gflops, moved / speed) / 1e6


@functools.cache
def machine() -> Machine:
    """Measured once in a process, in about half a second."""
    lanes = host_target().vector_bytes // 4
    products, reads = codegen.compile_functions([_products(lanes), _reads(lanes)])
    tasks = ral.num_threads() * 8
    flops = 2.0 * lanes * _CHAINS * _STEPS * tasks * 16
    gflops = flops / _best(products, 0, 16, tasks * 16, 8) / 1e9
    bandwidth = []
    for size in (1 << 17, 1 << 19, 1 << 22, 1 << 24, 1 << 28):
        data = np.ones(size // 4, np.float32)
        # Small arrays again and again in one launch: threads cost microseconds.
        block = max(4096, min(1 << 16, size // tasks)) // 4
        repeat = max(1, (1 << 24) // size)
        count = size // 4 // block
        seconds = _best(reads, data.ctypes.data, block, count * repeat, 8, count)
        bandwidth.append((size, size * repeat / seconds / 1e9))
    return Machine(gflops, tuple(bandwidth))


def _best(
    kernel: codegen.Function, data: int, block: int, extent: int, attempts: int, count: int = 1
) -> float:
    arguments = (ctypes.c_void_p * 1)(data)
    sizes = (ctypes.c_int64 * 2)(block, count)
    times = []
    for _ in range(attempts):
        start = time.perf_counter()
        ral.parallel_for(
            kernel.address, ctypes.addressof(arguments), ctypes.addressof(sizes), extent, 1, 4096
        )
        times.append(time.perf_counter() - start)
    return min(times)


_HEAD = (
    "func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %lo: i64, %hi: i64, "
    "%scratch: !llvm.ptr) {\n"
    "%zero = arith.constant 0 : i64\n%one = arith.constant 1 : i64\n"
)


def _products(lanes: int) -> str:
    """Each task: `_STEPS` rounds of `_CHAINS` independent multiply-adds."""
    vector = f"vector<{lanes}xf32>"
    chains = range(_CHAINS)
    starts = ", ".join(f"%a{k} = %start" for k in chains)
    types = ", ".join([vector] * _CHAINS)
    return (
        f"{_HEAD}%steps = arith.constant {_STEPS} : i64\n"
        f"%start = arith.constant dense<1.0> : {vector}\n"
        f"%factor = arith.constant dense<0.999> : {vector}\n"
        "scf.for %task = %lo to %hi step %one : i64 {\n"
        f"%r:{_CHAINS} = scf.for %i = %zero to %steps step %one iter_args({starts}) -> ({types}) "
        ": i64 {\n"
        + "".join(f"%b{k} = vector.fma %a{k}, %factor, %start : {vector}\n" for k in chains)
        + f"scf.yield {', '.join(f'%b{k}' for k in chains)} : {types}\n}}\n"
        + _sum([f"%r#{k}" for k in chains], vector)
        + "}\nreturn\n}\n"
    )


def _reads(lanes: int) -> str:
    """Task i reads block `i mod params[1]` of params[0] float32 elements."""
    vector = f"vector<{lanes}xf32>"
    wide = range(8)
    starts = ", ".join(f"%a{k} = %start" for k in wide)
    types = ", ".join([vector] * 8)
    body = ""
    for k in wide:
        body += (
            f"%o{k} = arith.constant {k * lanes} : i64\n%j{k} = arith.addi %i, %o{k} : i64\n"
            f"%p{k} = llvm.getelementptr %from[%j{k}] : (!llvm.ptr, i64) -> !llvm.ptr, f32\n"
            f"%v{k} = llvm.load %p{k} {{alignment = 4 : i64}} : !llvm.ptr -> {vector}\n"
            f"%b{k} = arith.addf %a{k}, %v{k} : {vector}\n"
        )
    return (
        f"{_HEAD}%start = arith.constant dense<0.0> : {vector}\n"
        f"%width = arith.constant {8 * lanes} : i64\n"
        "%data = llvm.load %args : !llvm.ptr -> !llvm.ptr\n"
        "%block = llvm.load %params : !llvm.ptr -> i64\n"
        "%second = llvm.getelementptr %params[1] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        "%count = llvm.load %second : !llvm.ptr -> i64\n"
        "scf.for %task = %lo to %hi step %one : i64 {\n"
        "%at = arith.remui %task, %count : i64\n"
        "%first = arith.muli %at, %block : i64\n"
        "%from = llvm.getelementptr %data[%first] : (!llvm.ptr, i64) -> !llvm.ptr, f32\n"
        f"%r:8 = scf.for %i = %zero to %block step %width iter_args({starts}) -> ({types}) "
        f": i64 {{\n{body}"
        f"scf.yield {', '.join(f'%b{k}' for k in wide)} : {types}\n}}\n"
        + _sum([f"%r#{k}" for k in wide], vector)
        + "}\nreturn\n}\n"
    )


def _sum(values: list[str], vector: str) -> str:
    """Keeps the values alive: their sum goes to scratch memory."""
    text, total = "", values[0]
    for k, value in enumerate(values[1:]):
        text += f"%s{k} = arith.addf {total}, {value} : {vector}\n"
        total = f"%s{k}"
    return text + f"llvm.store {total}, %scratch {{alignment = 4 : i64}} : {vector}, !llvm.ptr\n"
