"""shlo_disc: compile a JAX function once, run it at every shape.

f = shlo_disc.jit(function)
f(x)  # the first call compiles; other batch sizes and lengths do not
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from shlo_disc.errors import (
    ChangedArrayError,
    DeletedArrayError,
    DeviceError,
    ForeignCallError,
    ForkError,
    IndexRangeError,
    InternalError,
    InvalidModuleError,
    NumberRangeError,
    ShapeMismatchError,
    ShloDiscError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from shlo_disc import cache, numpy
    from shlo_disc.compile import compile
    from shlo_disc.data_sized import DataSizedExecutable
    from shlo_disc.executable import Executable
    from shlo_disc.frontend.function import CacheInfo, JitFunction
    from shlo_disc.frontend.jit import jit
    from shlo_disc.lower.background import finish_compiling
    from shlo_disc.process import stats, trim

__all__ = [
    "CacheInfo",
    "ChangedArrayError",
    "DataSizedExecutable",
    "DeletedArrayError",
    "DeviceError",
    "Executable",
    "ForeignCallError",
    "ForkError",
    "IndexRangeError",
    "InternalError",
    "InvalidModuleError",
    "JitFunction",
    "NumberRangeError",
    "ShapeMismatchError",
    "ShloDiscError",
    "UnsupportedError",
    "__version__",
    "cache",
    "compile",
    "finish_compiling",
    "jit",
    "numpy",
    "stats",
    "trim",
]

__version__ = "0.1.0"

_LAZY = {
    "CacheInfo": "shlo_disc.frontend.function",
    "DataSizedExecutable": "shlo_disc.data_sized",
    "Executable": "shlo_disc.executable",
    "JitFunction": "shlo_disc.frontend.function",
    "compile": "shlo_disc.compile",
    "finish_compiling": "shlo_disc.lower.background",
    "jit": "shlo_disc.frontend.jit",
    "stats": "shlo_disc.process",
    "trim": "shlo_disc.process",
}
"""Loaded when first used: the tools work on MLIR alone and start without JAX."""


def __getattr__(name: str) -> Any:
    if name in ("cache", "numpy"):
        return importlib.import_module(f"shlo_disc.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'shlo_disc' has no attribute {name!r}")


class _Package(types.ModuleType):
    """`shlo_disc.compile` is the function, also once the module of that name has been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "compile" and isinstance(value, types.ModuleType):
            value = value.compile
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if "jax" in sys.modules:
    # It notes the FFI handlers that are registered from here on (`jax_private/ffi.py`).
    importlib.import_module("shlo_disc.jax_private")
