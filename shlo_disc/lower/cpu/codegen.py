"""Machine code for the host CPU from MLIR text: MLIR -> LLVM -> object code in memory.

Passes and the execution engine are driven through MLIR's C API rather than its Python binding, for
two reasons: the binding's `raw_lookup` gives a packed wrapper instead of the function itself, and
a foreign call releases the GIL, so that several threads generate code at once, while another
writes more of it.

Code lives as long as the process (a JAX FFI target cannot be taken back).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import heapq
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from torch_mlir import _mlir_libs

from shlo_disc.errors import InternalError, UnsupportedError
from shlo_disc.lower.refused import KernelsRefused
from shlo_disc.mlir import PassManager, ir, new_context, run_pipeline, walk

__all__ = [
    "PIPELINE",
    "Builder",
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


class _Result(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int8)]


class _StringRef(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]


@functools.cache
def _capi() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(_mlir_libs.__path__[0]) / "libTorchMLIRAggregateCAPI.so"))
    library.mlirPassManagerRunOnOp.restype = _Result
    library.mlirPassManagerRunOnOp.argtypes = [_Handle, _Handle]
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


def _handle(owner: Any) -> _Handle:
    """What a Python object of MLIR's binding owns."""
    capsule = owner._CAPIPtr
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
        passes = PassManager.parse(f"builtin.module({PIPELINE})")
        done = _capi().mlirPassManagerRunOnOp(_handle(passes), _handle(module.operation))
        if not done.value:
            module = ir.Module.parse(text)
            run_pipeline(module, PIPELINE)  # raises with MLIR's messages
        return module


class Builder:
    """Compiles kernel texts (each one `func.func @KERNEL(...)`) on threads while more are written.

    A context: on the way out it waits for what was begun, or gives up what was not when an
    exception passes. A text that was compiled before in this process is not compiled again.
    """

    def __init__(self, opt_level: int = 3) -> None:
        self._opt_level = opt_level
        self._pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 8))
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, str, str]] = []
        self._begun: dict[str, Future[None]] = {}
        self._refused: dict[str, Exception] = {}

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)

    def add(self, text: str) -> str:
        """Have `text` compiled; the symbol it gets."""
        name = function_name(text)
        with _lock:
            known = name in _functions
        with self._lock:
            if not known and name not in self._begun:
                heapq.heappush(self._waiting, (-len(text), name, text))
                self._begun[name] = self._pool.submit(self._longest)
        return name

    def _longest(self) -> None:
        """Compile the longest text that waits: begun last, it would keep the others waiting."""
        with self._lock:
            _, name, text = heapq.heappop(self._waiting)
        try:
            found = _compile(_with_names({name: text}), [name], self._opt_level)
        except MemoryError:
            raise
        except Exception as error:  # told by `addresses`, which knows whether it is wanted
            self._refused[name] = error
            return
        with _lock:
            _functions.setdefault(name, found[name])

    def addresses(self, texts: Sequence[str]) -> list[int]:
        """Where the functions of `texts` are; waits for all that were added.

        Raises KernelsRefused when some do not compile.
        """
        names = [self.add(text) for text in texts]
        for future in self._begun.values():
            future.result()
        refused = {t: self._refused[n] for t, n in zip(texts, names, strict=True)
                   if n in self._refused}  # fmt: skip
        if refused:
            raise KernelsRefused(refused) from next(iter(refused.values()))
        return [_functions[name][0] for name in names]


def compile_functions(texts: Sequence[str], opt_level: int = 3) -> list[int]:
    """Addresses of the functions in `texts` (see :class:`Builder`)."""
    with Builder(opt_level) as builder:
        return builder.addresses(texts)


def code_bytes(texts: Sequence[str]) -> int:
    """Bytes of machine code of functions compiled before; their constants come on top."""
    return sum(_functions[function_name(text)][1] for text in texts)


def compile_host(text: str) -> tuple[int, int]:
    """Addresses of `prepare` and `run` in the host program `text`."""
    found = _compile(text, ["prepare", "run"], opt_level=1)
    return found["prepare"][0], found["run"][0]


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

    def visit(op: ir.Operation) -> None:
        if not op.name.startswith(("llvm.", "builtin.module")):
            raise InternalError(f"{op.name} was left in a kernel after lowering to LLVM:\n{op}")

    walk(module, visit)


def llvm_text(texts: Sequence[str]) -> str:
    """LLVM IR (before LLVM's own optimisation) of kernel texts, as text."""
    # Only here: its classes of operations take longer to load than a kernel to compile.
    from torch_mlir.dialects import llvm as llvm_dialect  # noqa: PLC0415

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
