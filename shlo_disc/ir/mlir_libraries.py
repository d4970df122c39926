"""Loads the libraries of the `torch-mlir` wheel, also beside TensorFlow's.

Both contain LLVM. TensorFlow makes its symbols global, and libraries that are loaded later get them
for names of their own. LLVM then ends the process, because options are registered twice. With
RTLD_DEEPBIND a library looks into itself first. That flag is set only where TensorFlow is
loaded already, because sanitizers refuse it. TensorFlow may be loaded later at any time: the names
here are bound by then.

All libraries that shlo_disc uses are loaded here at once, because each looks up names of its own.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = [
    "PassManager",
    "ir",
    "quant",
    "stablehlo",
    "torch_mlir_binding",
    "translate_module_to_llvmir",
]


@contextlib.contextmanager
def _own_symbols_first() -> Iterator[None]:
    if "tensorflow" not in sys.modules:
        yield
        return
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


with _own_symbols_first():
    from torch_mlir import ir
    from torch_mlir._mlir_libs import _stablehlo as stablehlo
    from torch_mlir._mlir_libs import _torchMlir as torch_mlir_binding
    from torch_mlir._mlir_libs._mlirDialectsLLVM import (  # the dialect's Python is slow to load
        translate_module_to_llvmir,
    )
    from torch_mlir.dialects import quant
    from torch_mlir.passmanager import PassManager
