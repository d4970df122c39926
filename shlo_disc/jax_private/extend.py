"""Names of `jax.extend`, from where it has them: the whole of it imports Pallas, for 30 ms."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from jax._src import core as _core
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]

ClosedJaxpr = _core.ClosedJaxpr
DebugInfo = _core.DebugInfo
DropVar = _core.DropVar
Jaxpr = _core.Jaxpr
Literal = _core.Literal
Primitive = _core.Primitive
Var = _core.Var
jaxpr_as_fun = _core.jaxpr_as_fun
ir: Any = _ir
"""`jax.extend.mlir.ir`."""

_PRIMITIVES = "jax.extend.core.primitives"


def primitives() -> ModuleType:
    """`jax.extend.core.primitives`, whose file imports nothing of `jax.extend`."""
    return sys.modules.get(_PRIMITIVES) or _loaded()


@functools.cache
def _loaded() -> ModuleType:
    file = Path(jax.__file__).parent.joinpath(*_PRIMITIVES.split(".")[1:]).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"{__name__}.primitives", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
