"""AMD's GPUs: what differs from other GPUs is the table of `machine.py`, and the linker."""

from __future__ import annotations

import functools

from shlo_disc.lower.cpu.codegen import compile_host
from shlo_disc.lower.gpu import codegen
from shlo_disc.lower.gpu.model import MODEL
from shlo_disc.lower.gpu.target import EMITTERS, gpu_target
from shlo_disc.lower.rocm.machine import for_device, machine_of
from shlo_disc.lower.target import Target

__all__ = ["for_device", "target"]


def target(architecture: str) -> Target:
    """The target of `architecture`, such as "gfx942".

    Raises ValueError for an unknown one.
    """
    machine = machine_of(architecture)
    assembly = functools.partial(codegen.assembly_of_all, machine=machine)
    return gpu_target(machine, MODEL, EMITTERS, compile_host, {"amdgcn": assembly})
