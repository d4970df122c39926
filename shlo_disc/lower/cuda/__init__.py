"""NVIDIA's GPUs: what differs from other GPUs is the table of `machine.py`."""

from __future__ import annotations

import functools

from shlo_disc.lower.cpu.codegen import compile_host
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu import codegen
from shlo_disc.lower.gpu.target import gpu_target
from shlo_disc.lower.target import Target

__all__ = ["target"]


def target(architecture: str) -> Target:
    """The target of `architecture`, such as "sm_90".

    Raises ValueError for an unknown one.
    """
    machine = machine_of(architecture)
    ptx = functools.partial(codegen.ptx_of_all, machine=machine)
    return gpu_target(machine, compile_host, {"ptx": ptx})
