"""Machine code for the host CPU from kernel texts: MLIR -> LLVM -> object code in memory.

Code lives as long as the process (JAX FFI targets are for ever, see `docs/architecture.md`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch_mlir import _mlir_libs
from torch_mlir.execution_engine import ExecutionEngine

from shlo_disc.mlir import ir, new_context, run_pipeline

__all__ = ["PIPELINE", "compile_functions", "function_name", "lower_to_llvm"]

PIPELINE = (
    "canonicalize,cse,convert-scf-to-cf,convert-math-to-llvm,"
    "convert-vector-to-llvm{enable-x86=true},finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts"
)
"""From vector/scf/memref/math/arith/llvm to the LLVM dialect."""

_lock = threading.Lock()
_engines: list[Any] = []
_addresses: dict[str, int] = {}


def function_name(text: str) -> str:
    """The symbol a kernel text gets: equal texts get equal names."""
    return "k" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def lower_to_llvm(text: str, context: ir.Context) -> ir.Module:
    """The module of `text` lowered to the LLVM dialect, in `context`."""
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        run_pipeline(module, PIPELINE)
        return module


def compile_functions(texts: Sequence[str], opt_level: int = 3) -> list[int]:
    """Addresses of the functions in `texts` (each one `func.func @KERNEL(...)`).

    Texts compiled before in this process are not compiled again.
    """
    names = [function_name(text) for text in texts]
    with _lock:
        missing = {n: t for n, t in zip(names, texts, strict=True) if n not in _addresses}
    if missing:
        _compile(missing, opt_level)
    return [_addresses[name] for name in names]


def _compile(functions: dict[str, str], opt_level: int) -> None:
    source = "\n".join(t.replace("@KERNEL", f"@{n}") for n, t in functions.items())
    context = new_context()
    module = lower_to_llvm(source, context)
    with context:
        engine = ExecutionEngine(module, opt_level=opt_level)
        with _lock:
            _engines.append((engine, context))
            for name in functions:
                _addresses[name] = engine.raw_lookup(name)
