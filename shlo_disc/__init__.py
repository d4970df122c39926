"""shlo_disc: compile a JAX function once, run it at every shape.

f = shlo_disc.jit(function)
f(x)  # the first call compiles; other batch sizes and lengths do not
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from shlo_disc.base.errors import (
    ArtifactError,
    CacheMismatchError,
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
from shlo_disc.base.threads import lets_others_run

if TYPE_CHECKING:
    from shlo_disc import cache, numpy
    from shlo_disc.driver.compile import compile
    from shlo_disc.driver.load import load
    from shlo_disc.driver.process import stats, trim
    from shlo_disc.executables.data_sized import DataSizedExecutable
    from shlo_disc.executables.executable import Executable
    from shlo_disc.jax.function import CacheInfo, JitFunction
    from shlo_disc.jax.jit import jit
    from shlo_disc.lower.background import finish_compiling

__all__ = [
    "ArtifactError",
    "CacheInfo",
    "CacheMismatchError",
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
    "load",
    "numpy",
    "stats",
    "trim",
]

__version__ = "0.1.0"

_MODULES = {
    "cache": "shlo_disc.cache",
    "flags": "shlo_disc.base.flags",
    "numpy": "shlo_disc.numpy",
}
_LAZY = {
    "CacheInfo": "shlo_disc.jax.function",
    "DataSizedExecutable": "shlo_disc.executables.data_sized",
    "Executable": "shlo_disc.executables.executable",
    "JitFunction": "shlo_disc.jax.function",
    "compile": "shlo_disc.driver.compile",
    "finish_compiling": "shlo_disc.lower.background",
    "jit": "shlo_disc.jax.jit",
    "load": "shlo_disc.driver.load",
    "stats": "shlo_disc.driver.process",
    "trim": "shlo_disc.driver.process",
}
"""Loaded when first used: the tools work on MLIR alone and start without JAX."""


_imported = lets_others_run(importlib.import_module)
"""What a module has lives for good: a full collection of garbage, over all of JAX, takes 40 ms."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _imported(_MODULES[name])
    if name in _LAZY:
        return getattr(_imported(_LAZY[name]), name)
    raise AttributeError(f"module 'shlo_disc' has no attribute {name!r}")


if "jax" in sys.modules:
    # It notes the FFI handlers that are registered from here on (`jax_private/ffi.py`).
    _imported("shlo_disc.jax_private")
