"""What kernels take of a GPU, as its assembler says.

    python -m tests.gpu.resources > benchmarks/results/gpu_resources.json

PTX is assembled by nvJitLink (package nvidia-nvjitlink), else by `ptxas` where it is installed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shlo_disc
from shlo_disc.lower.images import KernelImage
from tests.gpu.code_object import CodeObject
from tests.gpu.families import FAMILIES

__all__ = ["TARGETS", "WHY_NOT", "Used", "of_nvidia", "table", "used_by"]

TARGETS = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90a", "rocm:gfx942", "rocm:gfx1100")
WHY_NOT = "no assembler of PTX: pip install nvidia-nvjitlink, or put ptxas on PATH"
_PTX = 2  # nvJitLinkInputType


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


def used_by(family: str, target: str) -> list[Used]:
    """All kernels of a family. Raises FileNotFoundError without an assembler of PTX."""
    program = shlo_disc.compile(FAMILIES[family].exported, target=target)
    with program.target.generator() as generator:
        images: Sequence[Any] = generator.functions([k.text for k in program.host.kernels])
    of = _of_amd if program.target.platform == "rocm" else of_nvidia
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


def of_nvidia(name: str, image: KernelImage, target: str) -> Used:
    """Of one kernel. Raises FileNotFoundError without an assembler of PTX."""
    architecture = target.partition(":")[2]
    library = _nvjitlink()
    said = (
        _linked(library, image.image, architecture)
        if library is not None
        else _assembled(image.image, architecture)
    )

    def number(pattern: str) -> int:
        found = re.search(pattern, said)
        return int(found[1]) if found else 0

    return Used(
        name,
        image.shape.threads,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem") + image.shape.shared_bytes,
        number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        tuple(line for line in said.splitlines() if "warning" in line or "(C75" in line),
    )


@functools.cache
def _nvjitlink() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for path in Path(folder).glob("*/lib/libnvJitLink.so.*"):
            return ctypes.CDLL(str(path))
    return None


def _linked(library: ctypes.CDLL, ptx: bytes, architecture: str) -> str:
    """What nvJitLink says. Raises RuntimeError with its words if it does not take `ptx`."""
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 2)(f"-arch={architecture}".encode(), b"-Xptxas=-v")
    library.nvJitLinkCreate(ctypes.byref(handle), 2, options)
    failed = library.nvJitLinkAddData(handle, _PTX, ptx, ctypes.c_size_t(len(ptx)), b"kernel")
    failed = failed or library.nvJitLinkComplete(handle)
    log = "Error" if failed else "Info"
    getattr(library, f"nvJitLinkGet{log}LogSize")(handle, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    getattr(library, f"nvJitLinkGet{log}Log")(handle, text)
    library.nvJitLinkDestroy(ctypes.byref(handle))
    said = text.value.decode()
    if failed:
        raise RuntimeError(said)
    return said


def _assembled(ptx: bytes, architecture: str) -> str:
    """What ptxas says. Raises RuntimeError with its words if it does not take `ptx`."""
    tool = shutil.which("ptxas")
    if tool is None:
        raise FileNotFoundError(WHY_NOT)
    command = [tool, f"-arch={architecture}", "-v", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=ptx, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    if done.returncode:
        raise RuntimeError(said)
    return said


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
