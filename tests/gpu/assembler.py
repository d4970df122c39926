"""The assembler of NVIDIA, where it is installed: the package nvidia-cuda-nvcc-cu12, or a toolkit.

It says what the driver's compiler makes of PTX: registers, spills, warnings.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PTXAS", "WHY_NOT", "Assembled", "assembled"]

_PACKAGES = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")


def _found() -> str | None:
    for package in _PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "ptxas":
                return str(file.locate())
    return shutil.which("ptxas")


PTXAS = _found()
"""The program; None where there is none."""

WHY_NOT = "no ptxas: pip install nvidia-cuda-nvcc-cu12, or put one on PATH"


@dataclass(frozen=True)
class Assembled:
    """What the assembler says of a kernel."""

    registers: int
    spill_bytes: int
    """Stored and loaded."""
    stack_bytes: int
    """Of a thread."""
    shared_bytes: int
    """That the kernel declares."""
    warnings: tuple[str, ...]


@functools.lru_cache(maxsize=64)
def assembled(ptx: str, architecture: str) -> Assembled:
    """Assemble the one kernel in `ptx`. Raises CalledProcessError where it is refused."""
    assert PTXAS is not None, "no ptxas"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [
            PTXAS,
            f"-arch={architecture}",
            "-v",
            str(source),
            "-o",
            f"{folder}/kernel.cubin",
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (registers,) = re.findall(r"Used (\d+) registers", said)
    spilled, stack, shared = (
        sum(map(int, re.findall(rf"(\d+) bytes {what}", said)))
        for what in ("spill", "stack frame", "smem")
    )
    warnings = (line for line in said.splitlines() if "warning" in line.lower() or "(C75" in line)
    return Assembled(int(registers), spilled, stack, shared, tuple(warnings))
