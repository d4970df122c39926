"""Which XLA FFI targets are registered with JAX, and where their handlers are.

Targets are looked up when a program is compiled: `jax.ffi.register_ffi_target` may come at any time
before that. LAPACK is registered by jaxlib itself, and gets its functions from SciPy.

A program for a GPU calls the handler of the GPU's platform. A handler of the CPU is called where
there is no other: the runtime copies operands to the host and results back
(`ral/src/core/gpu_foreign.cpp`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from shlo_disc.base.callbacks import callback_of, is_callback
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass

PLATFORMS = {"cpu": "Host", "cuda": "CUDA", "rocm": "ROCM"}
"""XLA's name of a target's platform."""

STAGES = ("instantiate", "prepare", "initialize", "execute")
"""The stages of a handler, in the order of XLA's `XLA_FFI_ExecutionStage`."""

_OF_XLA = frozenset(
    (
        "xla_buffer_python_cpu_callback",
        "xla_ffi_partitioned_python_cpu_callback",
        "xla_ffi_python_cpu_callback",
    )
)
"""Handlers that reach into XLA's own runtime: they work only when XLA calls them."""

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


@dataclass(frozen=True)
class FfiTarget:
    """A registered target."""

    name: str
    platform: str
    """Of its handlers: "cpu", "cuda" or "rocm"."""
    addresses: tuple[int, ...]
    """Of its handlers, one for each of `STAGES`; 0 where there is none."""
    owners: tuple[Any, ...]
    """The capsules; they may own what the handlers need."""
    types: tuple[tuple[int, int], ...] = ()
    """Addresses of `XLA_FFI_TypeId` and `XLA_FFI_TypeInfo` of states that a handler may leave."""
    numbers: tuple[tuple[str, int], ...] = ()
    """More i64 attributes of its calls, by name."""


def is_lapack(name: str) -> bool:
    """True for the targets of LAPACK, which jaxlib registers. The runtime has some of its own."""
    return name.startswith("lapack_")


def ffi_target(name: str, where: str, platform: str, *, extern: bool = False) -> FfiTarget:
    """The target that JAX knows by `name`, for programs of `platform`; else that of the CPU.

    `where` is the source line of a call, for messages. Raises UnsupportedError where none is
    registered, where it is of the API before FFI, and for those that only XLA can call. With
    `extern` a target that is not registered is one of the CPU without handlers.
    """
    advice = "keep it outside shlo_disc.jit, or have XLA run it: on_unsupported='xla'"
    if is_callback(name):
        return _of_callback(name, where)
    if name in _OF_XLA:
        raise UnsupportedError(f"{where}: custom_call @{name} calls back into Python; {advice}")
    from shlo_disc import jax_private  # noqa: PLC0415 - programs without calls work without JAX

    found, of = jax_private.ffi.ffi_handlers(name, PLATFORMS[platform]), platform
    if found is None and platform != "cpu":
        found, of = jax_private.ffi.ffi_handlers(name, PLATFORMS["cpu"]), "cpu"
    if found is None and extern:
        return FfiTarget(name, "cpu", (0,) * len(STAGES), ())
    if found is None:
        raise UnsupportedError(_not_registered(name, where, platform))
    if not isinstance(found, dict):
        raise UnsupportedError(
            f"{where}: custom_call @{name} is registered with the API that FFI has replaced "
            f"(api_version=0); {advice}"
        )
    capsules = [found.get(stage) for stage in STAGES]
    addresses = tuple(map(_address, capsules))
    types = tuple((_address(a), _address(b)) for a, b in jax_private.ffi.ffi_types(PLATFORMS[of]))
    owners = tuple(c for c in capsules if c is not None)
    return FfiTarget(name, of, addresses, owners, types if len(owners) > 1 else ())


def _of_callback(name: str, where: str) -> FfiTarget:
    """The handler of the runtime that calls a Python function, which the target owns."""
    callback = callback_of(name)
    if callback is None:
        raise UnsupportedError(
            f"{where}: custom_call @{name} calls a Python function of another process, or one that "
            "is gone; trace the program again"
        )
    from shlo_disc.ral import python_callback_address  # noqa: PLC0415 - ingest needs no runtime

    address = python_callback_address()
    return FfiTarget(
        name, "cpu", (0, 0, 0, address), (callback,), numbers=(("callback", id(callback)),)
    )


def _not_registered(name: str, where: str, platform: str) -> str:
    """What the user is told of a target that JAX does not know."""
    register = f"jax.ffi.register_ffi_target({name!r}, ..., platform="
    if platform == "cpu":
        return (
            f"{where}: custom_call @{name}: no FFI target of this name is registered for the CPU; "
            f"register it before the program is compiled or loaded: {register}'cpu')"
        )
    title = PLATFORMS[platform]
    return (
        f"{where}: custom_call @{name}: no FFI target of this name is registered for {title} or "
        "for the CPU; import jax, then shlo_disc, and register it before the program is compiled "
        f"or loaded: {register}{title!r}), or platform='cpu' to have it called on the host, with "
        "copies"
    )


def _address(capsule: Any) -> int:
    return 0 if capsule is None else int(_pointer(capsule, _name(capsule)) or 0)
