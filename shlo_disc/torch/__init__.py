"""PyTorch programs: compiled once, run at every size.

    exe = shlo_disc.torch.compile(torch.export.export(model, args, dynamic_shapes=...))
    exe(x)

Needs the extra `torch`. JAX is not imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shlo_disc.torch.versions import check_versions

if TYPE_CHECKING:
    from shlo_disc.torch.dynamo import CompiledGraph, backend, compilations
    from shlo_disc.torch.exported import TorchExecutable, compile

__all__ = ["CompiledGraph", "TorchExecutable", "backend", "compilations", "compile"]

check_versions()

_LAZY = {
    "CompiledGraph": "shlo_disc.torch.dynamo",
    "TorchExecutable": "shlo_disc.torch.exported",
    "backend": "shlo_disc.torch.dynamo",
    "compilations": "shlo_disc.torch.dynamo",
    "compile": "shlo_disc.torch.exported",
}
"""Loaded behind the check: with another PyTorch these modules may not even be importable."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'shlo_disc.torch' has no attribute {name!r}")
