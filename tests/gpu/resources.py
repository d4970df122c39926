"""What kernels take of a GPU, as its assembler says.

    python -m tests.gpu.resources > benchmarks/results/gpu_resources.json

PTX is assembled by `ptxas`: of the package nvidia-cuda-nvcc-cu12, else of a toolkit. nvJitLink
makes code that can be linked, in which instructions of warpgroups wait for each other (C7509).
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shlo_disc
from shlo_disc.lower.cuda.assembler import ptxas
from shlo_disc.lower.images import KernelImage
from tests.gpu.code_object import CodeObject
from tests.gpu.families import FAMILIES, Family, families_of

TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100")
WHY_NOT = "no ptxas: pip install nvidia-cuda-nvcc-cu12, or put one on PATH"


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
    warnings: tuple[str, ...] = ()
    """Of NVIDIA's assembler: others than the figures above."""


def used_by(family: Family | str, target: str) -> list[Used]:
    """All kernels of a family. Raises FileNotFoundError without an assembler of PTX."""
    made = FAMILIES[family] if isinstance(family, str) else family
    program = shlo_disc.compile(made.exported, target=target)
    with program.target.generator() as generator:
        images: Sequence[Any] = generator.functions([k.source for k in program.host.kernels])
    of = _of_amd if program.target.platform == "rocm" else of_nvidia
    return [
        of(kernel.name, image, target)
        for kernel, image in zip(program.host.kernels, images, strict=True)
    ]


def _of_amd(name: str, image: KernelImage, _: str) -> Used:
    told = CodeObject(image.image).kernels()[image.name]
    return Used(
        name,
        image.signature.threads,
        told[".vgpr_count"],
        told[".group_segment_fixed_size"] + image.signature.shared_bytes,
        told[".vgpr_spill_count"],
        told[".private_segment_fixed_size"],
    )


def of_nvidia(name: str, image: KernelImage, target: str) -> Used:
    """Of one kernel. Raises FileNotFoundError without an assembler of PTX."""
    said = _assembled(image.image.decode(), target.partition(":")[2])

    def number(what: str) -> int:
        return sum(map(int, re.findall(what, said)))

    return Used(
        name,
        image.signature.threads,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem") + image.signature.shared_bytes,
        number(r"(\d+) bytes spill"),
        number(r"(\d+) bytes stack frame"),
        tuple(line for line in said.splitlines() if "warning" in line or "(C75" in line),
    )


@functools.lru_cache(maxsize=64)
def _assembled(ptx: str, architecture: str) -> str:
    """What ptxas says. Raises RuntimeError with its words if it does not take `ptx`."""
    program = ptxas()
    if program is None:
        raise FileNotFoundError(WHY_NOT)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [
            str(program),
            f"-arch={architecture}",
            "-v",
            str(source),
            "-o",
            f"{folder}/cubin",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stderr


def table() -> dict[str, dict[str, dict[str, int]]]:
    """By family and target: kernels, and the most registers, shared and private bytes of one."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for family in FAMILIES:
        for target in TARGETS:
            if family not in families_of(target.partition(":")[0]):
                continue
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
