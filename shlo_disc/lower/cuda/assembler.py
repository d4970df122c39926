"""Machine code of PTX (cubins): by `ptxas` where it is installed, else by nvJitLink.

Without either the driver compiles PTX, when a program is first called on a device.

nvJitLink makes code that can be linked: 64-bit divisions and rounded ones are calls. The kernel
keeps registers free for these, and its `wgmma` instructions wait for each other (note C7509). ptxas
and the driver make whole programs. So a cubin of nvJitLink counts only if it calls nothing: its
registers and spills are those of ptxas then.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.lower.llvm import workers
from shlo_disc.lower.llvm.kept_code import kept_or_made
from shlo_disc.store.format import VERSION, key_of

_PTXAS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12")
_NVJITLINK = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")
_NVDISASM = ("nvidia-cuda-nvdisasm",)

_IS_NEWER = re.compile(
    r"is not defined for option 'gpu-name'|Unsupported \.version|UNRECOGNIZED_ARCH"
    "|nvJitLink error 6"
)
"""How an assembler says that it is older than the architecture, or than a version of PTX.

nvJitLink 12 calls both an internal error.
"""

_CALL = b"__cuda_sm"
"""Begins the names of the functions that nvJitLink links to a kernel."""


@cache
def ptxas() -> Path | None:
    """The assembler of PTX: of a package that `jax[cuda13]` installs too, else one on PATH."""
    return _file("ptxas", _PTXAS) or _on_path("ptxas")


@cache
def nvjitlink() -> str | None:
    """The library of nvJitLink: of a package, else one that the system's loader finds by name."""
    found = _file("libnvJitLink.so", _NVJITLINK)
    return str(found) if found else ctypes.util.find_library("nvJitLink")


@cache
def _nvdisasm() -> Path | None:
    return _file("nvdisasm", _NVDISASM) or _on_path("nvdisasm")


def cubin(ptx: bytes, architecture: str) -> bytes:
    """What a device of `architecture` loads in place of `ptx`; empty where the driver compiles it.

    Raises InternalError for PTX that the assembler does not take.
    """
    wanted = flags.gpu_cubins()
    if wanted is None:
        wanted = _has_driver(flags.value("cuda_library") or "libcuda.so.1")
    return assembled(ptx, architecture) if wanted else b""


def saved_cubin(ptx: bytes, architecture: str) -> bytes:
    """The same for a file, which other machines run."""
    return b"" if flags.gpu_cubins() is False else assembled(ptx, architecture)


@cache
def _has_driver(library: str) -> bool:
    """True if this machine may run what it compiles: a first call waits for machine code then."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def assembled(ptx: bytes, architecture: str) -> bytes:
    """Machine code of `ptx`; empty without an assembler that makes good code of it.

    Raises InternalError for PTX that the assembler does not take.
    """
    try:
        if (program := ptxas()) is not None:
            return _kept(ptx, architecture, program, with_ptxas)
        if (library := nvjitlink()) is not None:
            made = _kept(ptx, architecture, library, with_nvjitlink)
            return b"" if _CALL in made else made
    except InternalError as error:
        if _IS_NEWER.search(str(error)) is None:
            raise
    return b""


def _kept(
    ptx: bytes, architecture: str, tool: Path | str, make: Callable[[bytes, str, Any], bytes]
) -> bytes:
    """What `make` gives with `tool`, from disk if an earlier process asked."""
    try:
        file = Path(tool).stat()
    except OSError:  # a library that the system's loader finds by name
        return make(ptx, architecture, tool)
    key = key_of(f"cubin {VERSION} {tool} {file.st_size} {file.st_mtime_ns} {architecture}", ptx)
    return kept_or_made(key, lambda: make(ptx, architecture, tool))[0]


def with_ptxas(ptx: bytes, architecture: str, program: Path) -> bytes:
    """Machine code by `ptxas`. Raises InternalError with its words if it does not take `ptx`."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_bytes(ptx)
        command = [str(program), f"-arch={architecture}", str(source), "-o", str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InternalError(f"ptxas did not accept a kernel: {done.stderr.strip()}")
        return result.read_bytes()


def with_nvjitlink(ptx: bytes, architecture: str, library: str) -> bytes:
    """Machine code by nvJitLink. Raises InternalError with its words if it does not take `ptx`."""
    return workers.linked(ptx, architecture, library)


def disassembled(ptx: bytes, architecture: str) -> str:
    """The instructions of the machine code of `ptx` (SASS).

    Raises UnsupportedError without an assembler or without `nvdisasm`.
    """
    program = _nvdisasm()
    if program is None:
        raise UnsupportedError(
            "as_text('sass') needs nvdisasm: pip install nvidia-cuda-nvdisasm, or put one of a "
            "CUDA toolkit on PATH; as_text('ptx') needs neither"
        )
    code = assembled(ptx, architecture)
    if not code:
        raise UnsupportedError(
            f"as_text('sass') needs an assembler of PTX that knows {architecture}: pip install "
            "nvidia-cuda-nvcc, or put ptxas of a CUDA toolkit on PATH"
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.cubin")
        source.write_bytes(code)
        command = [str(program), "-c", str(source)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _file(name: str, packages: tuple[str, ...]) -> Path | None:
    """The file of the first of `packages` whose name begins with `name`."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for file in importlib.metadata.files(package) or ():
                path = Path(str(file.locate()))
                if path.name.startswith(name) and path.parent.name in ("bin", "lib"):
                    return path
    return None


_TOOLKIT = Path("/usr/local/cuda/bin")
"""Where a toolkit of CUDA puts its programs, on PATH or not."""


def _on_path(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path=str(_TOOLKIT))
    return Path(found) if found else None
