"""AMD's GPUs: what differs from other GPUs is tables, the linker and products by matrix units."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from shlo_disc.lower.cpu.codegen import compile_host
from shlo_disc.lower.gpu import codegen
from shlo_disc.lower.gpu import target as gpu_target_module
from shlo_disc.lower.gpu.launches import Emit
from shlo_disc.lower.gpu.model import MODEL
from shlo_disc.lower.gpu.products import emit_dense
from shlo_disc.lower.gpu.target import gpu_target
from shlo_disc.lower.products.conv import emit_conv
from shlo_disc.lower.rocm.machine import for_device, machine_of
from shlo_disc.lower.rocm.products import MatrixProduct
from shlo_disc.lower.target import Target

__all__ = ["EMITTERS", "for_device", "target"]

EMITTERS: Mapping[str, Emit] = {
    **gpu_target_module.EMITTERS,
    "conv": functools.partial(emit_conv, make_planner=MatrixProduct),
    "dense": functools.partial(emit_dense, make_planner=MatrixProduct),
}
"""The emitter of every kind of fusion."""


def target(architecture: str) -> Target:
    """The target of `architecture`, such as "gfx942".

    Raises ValueError for an unknown one.
    """
    machine = machine_of(architecture)
    assembly = functools.partial(codegen.assembly_of_all, machine=machine)
    return gpu_target(machine, MODEL, EMITTERS, compile_host, {"amdgcn": assembly})
