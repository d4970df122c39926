"""Kernels that measure a CPU: multiply-adds in registers, and reads of memory."""

from __future__ import annotations

from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.target import Probes

__all__ = ["probes"]

_CHAINS = 12
"""Independent multiply-adds in flight: latency 4 times 2 a cycle, and some to spare."""
_STEPS = 2048


def probes(machine: Machine) -> Probes:
    """The kernels for `machine`."""
    lanes = machine.lanes(4)
    return Probes(_products(lanes), 2 * lanes * _CHAINS * _STEPS, _reads(lanes))


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
