"""The runtime: executables, the thread pool, the buffer pool and the pack cache.

Everything here is a thin face of the C++ extension `_ral`; the contract with generated code is
`include/disc_ral.h`. Nothing here imports JAX: what is needed of it is handed in as a
:class:`JaxBridge`.

Environment, read once per process: `SHLO_DISC_NUM_THREADS` (default: the cores the process may run
on), `SHLO_DISC_POOL_BYTES` (idle memory kept for reuse), `SHLO_DISC_PACK_BYTES` (packed weights),
both by default a quarter of the machine's memory. A bad value of them raises ValueError on import.
For GPUs there are `SHLO_DISC_CUDA_LIBRARY`, `SHLO_DISC_ROCM_LIBRARY`, `SHLO_DISC_GPU_POOL_BYTES`,
`SHLO_DISC_GPU_OVERLAP`, `SHLO_DISC_GPU_GRAPHS` and `SHLO_DISC_GPU_SYNC`.
"""

from __future__ import annotations

from pathlib import Path

from shlo_disc.base import flags
from shlo_disc.ral import _ral
from shlo_disc.ral._ral import *  # noqa: F403 - all names of the extension are of this package

flags.check_runtime()

FFI_TARGET = "shlo_disc.call"
"""The name of the one XLA FFI target; its attribute `executable` (i64) names the program."""


def include_dir() -> str:
    """The directory of `disc_ral.h` and `disc.h`."""
    return str(Path(__file__).parent / "include")


def library() -> str:
    """The shared library with the functions of `disc.h`."""
    return str(Path(_ral.__file__).parent / "lib" / "libdisc_ral.so")


def cmake_dir() -> str:
    """What CMake's `find_package(disc_ral)` takes as `disc_ral_DIR`."""
    return str(Path(_ral.__file__).parent / "lib" / "cmake" / "disc_ral")
