"""Where MLIR's shared libraries are, without loading them."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _found() -> Path:
    spec = importlib.util.find_spec("torch_mlir")
    assert spec is not None, "the package depends on torch-mlir"
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "_mlir_libs"


LIBRARY_FOLDER = _found()
