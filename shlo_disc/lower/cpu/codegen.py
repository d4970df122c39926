"""Machine code for the host CPU from MLIR text: MLIR -> LLVM -> object code in memory.

The execution engine is driven through MLIR's C API rather than its Python binding, for two
reasons: the binding's `raw_lookup` gives a packed wrapper instead of the function itself, and a
foreign call releases the GIL, so that several threads generate code at once.

Code lives as long as the process (a JAX FFI target cannot be taken back).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch_mlir import _mlir_libs
from torch_mlir.dialects import llvm as llvm_dialect

from shlo_disc.errors import InternalError, UnsupportedError
from shlo_disc.mlir import ir, new_context, run_pipeline

__all__ = [
    "PIPELINE",
    "assembly",
    "code_bytes",
    "compile_functions",
    "compile_host",
    "function_name",
    "llvm_text",
    "lower_to_llvm",
]

PIPELINE = (
    "canonicalize,cse,convert-scf-to-cf,convert-math-to-llvm,"
    "convert-vector-to-llvm{enable-x86=true},finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,convert-ub-to-llvm,"
    "reconcile-unrealized-casts"
)
"""From vector/scf/memref/math/arith/llvm to the LLVM dialect."""

_lock = threading.Lock()
_kept: list[Any] = []
_functions: dict[str, tuple[int, int]] = {}
"""Address and size in bytes of what was compiled, by name."""


class _Handle(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p)]


class _StringRef(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]


@functools.cache
def _capi() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(_mlir_libs.__path__[0]) / "libTorchMLIRAggregateCAPI.so"))
    library.mlirExecutionEngineCreate.restype = _Handle
    library.mlirExecutionEngineCreate.argtypes = [
        _Handle,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(_StringRef),
        ctypes.c_bool,
        ctypes.c_bool,
    ]
    library.mlirExecutionEngineLookup.restype = ctypes.c_void_p
    library.mlirExecutionEngineLookup.argtypes = [_Handle, _StringRef]
    library.mlirExecutionEngineDumpToObjectFile.restype = None
    library.mlirExecutionEngineDumpToObjectFile.argtypes = [_Handle, _StringRef]
    return library


def _handle(module: ir.Module) -> _Handle:
    capsule = module._CAPIPtr
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _Handle(pointer(capsule, name(capsule)))


def _string(text: str) -> _StringRef:
    data = text.encode()
    return _StringRef(data, len(data))


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

    Texts compiled before in this process are not compiled again; the others are spread over
    the cores by length.
    """
    names = [function_name(text) for text in texts]
    with _lock:
        missing = {n: t for n, t in zip(names, texts, strict=True) if n not in _functions}
    if missing:
        cores = min(len(os.sched_getaffinity(0)), 8, len(missing))
        shares: list[dict[str, str]] = [{} for _ in range(cores)]
        for name, text in sorted(missing.items(), key=lambda item: -len(item[1])):
            lightest = min(shares, key=lambda share: sum(map(len, share.values())))
            lightest[name] = text
        with ThreadPoolExecutor(cores) as pool:
            for found in pool.map(lambda share: _compile_share(share, opt_level), shares):
                with _lock:
                    for name, function in found.items():
                        _functions.setdefault(name, function)
    return [_functions[name][0] for name in names]


def code_bytes(texts: Sequence[str]) -> int:
    """Bytes of machine code of functions compiled before; their constants come on top."""
    return sum(_functions[function_name(text)][1] for text in texts)


def compile_host(text: str) -> tuple[int, int]:
    """Addresses of `prepare` and `run` in the host program `text`."""
    found = _compile(text, ["prepare", "run"], opt_level=1)
    return found["prepare"][0], found["run"][0]


def _compile_share(functions: dict[str, str], opt_level: int) -> dict[str, tuple[int, int]]:
    return _compile(_with_names(functions), list(functions), opt_level)


def _with_names(functions: dict[str, str]) -> str:
    return "\n".join(t.replace("@KERNEL", f"@{n}") for n, t in functions.items())


def _engine(text: str, opt_level: int, *, keep_object: bool) -> tuple[_Handle, ir.Module]:
    module = lower_to_llvm(text, new_context())
    _refuse_foreign_ops(module)
    # enable_object_dump keeps a copy of the object code: only wanted for disassembly.
    engine = _capi().mlirExecutionEngineCreate(
        _handle(module), opt_level, 0, None, keep_object, False
    )
    if not engine.pointer:
        raise InternalError("LLVM did not accept a generated module; set SHLO_DISC_DUMP to keep it")
    return engine, module


_END = "end_of_code"


def _compile(text: str, names: Sequence[str], opt_level: int) -> dict[str, tuple[int, int]]:
    """Address and size in bytes of each function; `text` defines them in the order of `names`."""
    # LLVM lays functions out in their order: one more tells where the last ends.
    text += f"\nfunc.func @{_END}() {{\nreturn\n}}\n"
    engine, module = _engine(text, opt_level, keep_object=False)
    with _lock:
        _kept.append((engine, module))
    every = [*names, _END]
    addresses = [_capi().mlirExecutionEngineLookup(engine, _string(name)) for name in every]
    if not all(addresses):
        found = dict(zip(every, addresses, strict=True))
        raise InternalError(f"generated functions not found: {found}")
    ordered = sorted(addresses)
    following = dict(zip(ordered, [*ordered[1:], ordered[-1]], strict=True))
    return {
        name: (address, following[address] - address)
        for name, address in zip(names, addresses, strict=False)
    }


def _refuse_foreign_ops(module: ir.Module) -> None:
    """Translation to LLVM IR crashes the process on an op it does not know."""

    def visit(op: ir.Operation) -> ir.WalkResult:
        if not op.name.startswith(("llvm.", "builtin.module")):
            raise InternalError(f"{op.name} was left in a kernel after lowering to LLVM:\n{op}")
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def llvm_text(texts: Sequence[str]) -> str:
    """LLVM IR (before LLVM's own optimisation) of kernel texts, as text."""
    functions = {function_name(text): text for text in texts}
    module = lower_to_llvm(_with_names(functions), new_context())
    _refuse_foreign_ops(module)
    return str(llvm_dialect.translate_module_to_llvmir(module.operation))


def assembly(texts: Sequence[str]) -> str:
    """Machine code of kernel texts, disassembled by binutils' `objdump`.

    Raises UnsupportedError when `objdump` is not installed.
    """
    functions = {function_name(text): text for text in texts}
    engine, _module = _engine(_with_names(functions), 3, keep_object=True)
    library = _capi()
    for name in functions:
        library.mlirExecutionEngineLookup(engine, _string(name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.o"
        library.mlirExecutionEngineDumpToObjectFile(engine, _string(str(path)))
        try:
            command = ["objdump", "-d", "--no-show-raw-insn", "-M", "intel", str(path)]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except FileNotFoundError:
            raise UnsupportedError(
                "as_text('asm') needs objdump; install binutils or use as_text('llvm')"
            ) from None
