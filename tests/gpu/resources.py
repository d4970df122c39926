"""What kernels take of a GPU, as its assembler says.

python -m tests.gpu.resources > benchmarks/results/gpu_resources.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import shlo_disc
from shlo_disc.lower.images import KernelImage
from tests.gpu.assembler import assembled
from tests.gpu.code_object import CodeObject
from tests.gpu.families import FAMILIES

__all__ = ["TARGETS", "Used", "table", "used_by"]

TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100")


@dataclass(frozen=True)
class Used:
    """Of one kernel."""

    name: str
    threads: int
    """Of a block."""
    registers: int
    """Of a thread."""
    shared_bytes: int
    """Of a block."""
    spilled: int
    """Bytes (NVIDIA) or registers (AMD) that a thread keeps in memory.

    Scalar registers of AMD's go to lanes of vector registers, which is no memory.
    """
    private_bytes: int
    """Memory of a thread."""


def used_by(family: str, target: str) -> list[Used]:
    """All kernels of a family; those of NVIDIA need an assembler of PTX (`assembler.py`)."""
    program = shlo_disc.compile(FAMILIES[family].exported, target=target)
    with program.target.generator() as generator:
        images: Sequence[Any] = generator.functions([k.text for k in program.host.kernels])
    of = _of_amd if program.target.platform == "rocm" else _of_nvidia
    return [
        of(kernel.name, image, target)
        for kernel, image in zip(program.host.kernels, images, strict=True)
    ]


def _of_amd(name: str, image: KernelImage, _: str) -> Used:
    told = CodeObject(image.image).kernels()[image.name]
    return Used(
        name,
        image.shape.threads,
        told[".vgpr_count"],
        told[".group_segment_fixed_size"] + image.shape.shared_bytes,
        told[".vgpr_spill_count"],
        told[".private_segment_fixed_size"],
    )


def _of_nvidia(name: str, image: KernelImage, target: str) -> Used:
    made = assembled(image.image.decode(), target.partition(":")[2])
    return Used(
        name,
        image.shape.threads,
        made.registers,
        made.shared_bytes + image.shape.shared_bytes,
        made.spill_bytes,
        made.stack_bytes,
    )


def table() -> dict[str, dict[str, dict[str, int]]]:
    """By family and target: kernels, and the most registers, shared and private bytes of one."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for family in FAMILIES:
        for target in TARGETS:
            used = used_by(family, target)
            found.setdefault(family, {})[target] = {
                "kernels": len(used),
                "registers": max(u.registers for u in used),
                "shared_bytes": max(u.shared_bytes for u in used),
                "private_bytes": max(u.private_bytes for u in used),
                "spilled": max(u.spilled for u in used),
            }
    return found


if __name__ == "__main__":
    json.dump(table(), sys.stdout, indent=1)
