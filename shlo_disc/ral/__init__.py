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
from typing import Any

from shlo_disc.base import flags
from shlo_disc.ral import _ral
from shlo_disc.ral._ral import (
    SIZE_OPERATIONS,
    SIZE_RELATIONS,
    ArgumentError,
    DispatchEntry,
    Dispatcher,
    Executable,
    FileStamps,
    ForeignCall,
    ForeignError,
    GpuBridge,
    GpuKernel,
    GpuProgram,
    GuardError,
    JaxBridge,
    KernelCell,
    LoadedCode,
    ObjectCodeError,
    SignalHandlers,
    SizePattern,
    TensorBridge,
    TensorCall,
    Weights,
    check_object_code,
    cpu_identity,
    ffi_learn_stream,
    fft_forget_plans,
    fft_plan_stats,
    fft_transform,
    gpu_check_architecture,
    gpu_devices,
    gpu_driver,
    gpu_learned_stream,
    gpu_pool_stats,
    gpu_pool_trim,
    limit_threads,
    num_threads,
    numpy_view,
    pack_clear,
    pack_stats,
    parallel_for,
    pool_stats,
    pool_trim,
    python_callback_address,
    threads_started,
)
from shlo_disc.ral._ral import ffi_handler as _ffi_handler

__all__ = [
    "FFI_TARGET",
    "SIZE_OPERATIONS",
    "SIZE_RELATIONS",
    "ArgumentError",
    "DispatchEntry",
    "Dispatcher",
    "Executable",
    "FileStamps",
    "ForeignCall",
    "ForeignError",
    "GpuBridge",
    "GpuKernel",
    "GpuProgram",
    "GuardError",
    "JaxBridge",
    "KernelCell",
    "LoadedCode",
    "ObjectCodeError",
    "SignalHandlers",
    "SizePattern",
    "TensorBridge",
    "TensorCall",
    "Weights",
    "check_object_code",
    "cmake_dir",
    "cpu_identity",
    "ffi_handler",
    "ffi_learn_stream",
    "fft_forget_plans",
    "fft_plan_stats",
    "fft_transform",
    "gpu_check_architecture",
    "gpu_devices",
    "gpu_driver",
    "gpu_learned_stream",
    "gpu_pool_stats",
    "gpu_pool_trim",
    "include_dir",
    "library",
    "limit_threads",
    "num_threads",
    "numpy_view",
    "pack_clear",
    "pack_stats",
    "parallel_for",
    "pool_stats",
    "pool_trim",
    "python_callback_address",
    "threads_started",
]

flags.check_runtime()

FFI_TARGET = "shlo_disc.call"
"""The name of the one XLA FFI target; its attribute `executable` (i64) names the program."""


def ffi_handler(on_gpu: bool = False) -> dict[str, Any]:
    """The capsules to register with JAX, by stage.

    `jax.ffi.register_ffi_target(FFI_TARGET, ffi_handler(), platform="cpu")`; once per process.
    `on_gpu`: those for the platforms "CUDA" and "ROCM", whose buffers are a GPU's.

    Programs become callable by :meth:`Executable.register_ffi`. The custom call takes the
    attribute `executable` (i64, the fingerprint) and optionally `sizes` (i64 array): the sizes of
    one more, zero-size argument that carries sizes no array shows. A program runs on its own
    platform; calls on another are refused.
    """
    return _ffi_handler(on_gpu)


def include_dir() -> str:
    """The directory of `disc_ral.h` and `disc.h`."""
    return str(Path(__file__).parent / "include")


def library() -> str:
    """The shared library with the functions of `disc.h`."""
    return str(Path(_ral.__file__).parent / "lib" / "libdisc_ral.so")


def cmake_dir() -> str:
    """What CMake's `find_package(disc_ral)` takes as `disc_ral_DIR`."""
    return str(Path(_ral.__file__).parent / "lib" / "cmake" / "disc_ral")
