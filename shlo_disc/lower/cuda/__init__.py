"""NVIDIA's GPUs: what differs from other GPUs is the table of `machine.py`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from shlo_disc.lower.cpu.codegen import compile_host
from shlo_disc.lower.cuda import assembler, attention
from shlo_disc.lower.cuda.machine import for_device, machine_of
from shlo_disc.lower.cuda.products import MatrixProduct
from shlo_disc.lower.gpu import codegen
from shlo_disc.lower.gpu import target as gpu_target_module
from shlo_disc.lower.gpu.launches import Emit
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.products import emit_dense
from shlo_disc.lower.gpu.target import gpu_target
from shlo_disc.lower.plan import KernelText
from shlo_disc.lower.products.conv import emit_conv
from shlo_disc.lower.target import Target

__all__ = ["EMITTERS", "for_device", "target"]

EMITTERS: Mapping[str, Emit] = {
    **gpu_target_module.EMITTERS,
    "attention": attention.emit_attention,
    "conv": functools.partial(emit_conv, make_planner=MatrixProduct),
    "dense": functools.partial(emit_dense, make_planner=MatrixProduct),
}
"""The emitter of every kind of fusion."""


def target(architecture: str) -> Target:
    """The target of `architecture`, such as "sm_90".

    Raises ValueError for an unknown one.
    """
    machine = machine_of(architecture)
    ptx = functools.partial(codegen.assembly_of_all, machine=machine)
    views = {"ptx": ptx, "sass": functools.partial(_sass, machine=machine)}
    model = attention.model(machine)
    return gpu_target(machine, model, EMITTERS, compile_host, views, _details)


def _details() -> Mapping[str, str]:
    return {"Assembler of PTX": str(assembler.ptxas() or assembler.nvjitlink() or "the driver")}


def _sass(sources: Sequence[KernelText], machine: Machine) -> str:
    """Machine code of kernels, disassembled.

    Raises UnsupportedError where the tools of CUDA for that are missing.
    """
    return "\n".join(
        assembler.disassembled(codegen.assembly(source, machine).encode(), machine.architecture)
        for source in sources
    )
