"""GPUs that artifacts are made for: kernels as images, and a host program for any x86-64-v3."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.lower.cpu.foreign_code import Objects, host_functions
from shlo_disc.lower.cpu.machine import ARCHITECTURES, HOST_OF_GPUS, machine_of_level
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.target import ArtifactTarget, parse


def artifact_target(name: str, cores: int) -> ArtifactTarget | None:
    """GPUs of an architecture, such as "cuda:sm_90a"; None for a name without a platform of GPUs.

    Raises ValueError for an unknown architecture, UnsupportedError for none.
    """
    platform, _, architecture = name.partition(":")
    if platform not in ("cuda", "rocm"):
        return None
    if not architecture:
        example = {"cuda": "sm_90a", "rocm": "gfx942"}[platform]
        raise UnsupportedError(f"artifacts name an architecture: '{platform}:{example}'")
    level = ARCHITECTURES[HOST_OF_GPUS]
    objects = Objects(machine_of_level(HOST_OF_GPUS, cores), level.abi_name)
    target = replace(parse(name), compile_host=partial(host_functions, objects))
    # "sm_90a" has what "sm_90" has, and more.
    number = 2 * int("".join(filter(str.isdigit, architecture)))
    generation = number + (not architecture[-1].isdigit())
    assemble = partial(_machine_code, target.machine)
    return ArtifactTarget(name, "x86-64", level.abi_features, target, generation, assemble)


def _machine_code(machine: Machine, kernel: KernelImage) -> bytes:
    if kernel.machine_code or machine.assemble_saved is None:
        return kernel.machine_code
    return machine.assemble_saved(kernel.image, machine.architecture)
