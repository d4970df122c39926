"""Object code for the host CPU from MLIR text: MLIR -> LLVM -> object code in memory.

Passes and the execution engine are driven through MLIR's C API rather than its Python binding. The
binding's `raw_lookup` gives a packed wrapper instead of the function itself. A foreign call
releases the GIL: several threads generate code at once, while another writes more kernels.

Only the object file that MLIR's engine writes is kept: an engine takes 1 MB of memory, the code of
a kernel 10 kB. A process that loads all its programs from the disk does not import this module.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

from shlo_disc.base import flags, locks
from shlo_disc.base.errors import InternalError
from shlo_disc.base.threads import begins
from shlo_disc.ir.library_folder import LIBRARY_FOLDER
from shlo_disc.ir.mlir import PassManager, ir, kernel_context, pointer, run_pipeline, walk
from shlo_disc.ir.mlir_libraries import translate_module_to_llvmir
from shlo_disc.lower.background import free_later
from shlo_disc.lower.cpu import host_parts
from shlo_disc.lower.cpu.builder import COLD, EITHER, SCALAR
from shlo_disc.lower.host.writer import INLINED
from shlo_disc.lower.llvm.llvm_text import for_older_llvm
from shlo_disc.lower.plan import ONCE, SMALL_STEPS, TILES
from shlo_disc.store.loader import SignalHandlers

_LOOPS, _ONCE = 1, 0
"""Levels of LLVM: of host programs with loops, of those whose text runs once a call."""
_QUICK = 0
"""A level of LLVM that changes no bit of results, and takes a third of the time or less."""

_CONVERSIONS = "convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts"
"""Passes from vector/scf/memref/math/arith/llvm to the LLVM dialect."""
_SIMPLIFICATIONS = "canonicalize,cse"


class _Handle(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p)]


class _Result(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int8)]


class _StringRef(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]


@functools.cache
def _capi() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY_FOLDER / "libTorchMLIRAggregateCAPI.so"))
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
    library.mlirExecutionEngineDestroy.restype = None
    library.mlirExecutionEngineDestroy.argtypes = [_Handle]
    library.mlirExecutionEngineLookup.restype = ctypes.c_void_p
    library.mlirExecutionEngineLookup.argtypes = [_Handle, _StringRef]
    library.mlirExecutionEngineDumpToObjectFile.restype = None
    library.mlirExecutionEngineDumpToObjectFile.argtypes = [_Handle, _StringRef]
    return library


def _handle(owner: Any) -> _Handle:
    """What a Python object of MLIR's binding owns."""
    return _Handle(pointer(owner))


def _string(text: str) -> _StringRef:
    data = text.encode()
    return _StringRef(data, len(data))


def lower_to_llvm(
    text: str, context: ir.Context, *, host: bool = False, quickly: bool = False
) -> ir.Module:
    """The module of `text` lowered to the LLVM dialect, in `context`.

    `quickly`: nothing is simplified, which takes a quarter of the time here, and none from LLVM;
    kernels are left unoptimised. `host`: it is a host program, whose long functions are cut into
    parts. The result is verified once, not after every pass: that took a third of the time.
    """
    is_optimised = not host or _has_loops(text)
    limits = host_parts.OPTIMISED if is_optimised else host_parts.UNOPTIMISED
    cut = host and host_parts.may_be_long(text, limits)
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        if cut:
            host_parts.cut_long_functions(module, limits)
        simplifies = is_optimised and not quickly and not _is_made_once(module)
        pipeline = f"{_SIMPLIFICATIONS},{_CONVERSIONS}" if simplifies else _CONVERSIONS
        passes = PassManager.parse(f"builtin.module({pipeline})")
        passes.enable_verifier(False)
        done = _capi().mlirPassManagerRunOnOp(_handle(passes), _handle(module.operation))
        if not done.value:
            module = ir.Module.parse(text)
            run_pipeline(module, pipeline)  # raises with MLIR's messages
        module.operation.verify()  # raises with MLIR's messages
        if not is_optimised:
            _leave_unoptimised(module)
            return module
        if cut:
            host_parts.keep_parts(module)
        _say_what_to_inline(module)
        if quickly and not host:
            _leave_unoptimised(module)
        return module


def _is_made_once(module: ir.Module) -> bool:
    """Whether it has a kernel that is best as it is written (`plan.ONCE`)."""
    return any(ONCE in view.operation.attributes for view in module.body.operations)


def is_once(text: str) -> bool:
    """Whether `text` is a kernel that is best as it is written (`plan.ONCE`)."""
    return f" attributes {{{ONCE}}} " in text.partition("\n")[0]


def is_tiled(text: str) -> bool:
    """Whether a function of `text` has `plan.TILES`."""
    return TILES in text


def _has_loops(host: str) -> bool:
    """Whether a host program runs some of its text more than once; such text may have kernels."""
    return "scf.while" in host


def _leave_unoptimised(module: ir.Module) -> None:
    """Have LLVM select instructions one by one, in a fifth of the time.

    A level does not: MLIR's engine has LLVM generate code at its default one. `prepare` of a layer
    takes 6 ns more so, of the optimiser step of an MLP 66 ns, in calls of 7 and 109 us. Kernels of
    `plan.ONCE` have no other code, and neither have their cold functions.
    """
    functions = [v.operation for v in module.body.operations if v.operation.name == "llvm.func"]
    others = [function for function in functions if ONCE not in function.attributes]
    if all(COLD in _name(function) for function in others):
        return
    with module.context:
        words = ir.ArrayAttr.get([ir.StringAttr.get(word) for word in ("optnone", "noinline")])
        for function in others:
            function.attributes["passthrough"] = words


def _say_what_to_inline(module: ir.Module) -> None:
    """LLVM inlines the copies of kernels that a host program calls, and no cold function.

    What is written in place of a call has the attributes of both functions. So scalars stay what
    they are if they shall in one copy, and may in all others.
    """
    functions = [v.operation for v in module.body.operations if v.operation.name == "llvm.func"]
    copies = [f for f in functions if INLINED in _name(f) and COLD not in _name(f)]
    told = [str(f.attributes.get("passthrough")) for f in copies]
    in_copies = ["alwaysinline"]
    if any(SCALAR in t for t in told) and all(SCALAR in t or EITHER in t for t in told):
        in_copies.append(SCALAR)
    for function in functions:
        cold = COLD in _name(function)
        if cold or function in copies:
            words = ["cold", "noinline"] if cold else in_copies
            texts = ir.ArrayAttr.get([ir.StringAttr.get(word) for word in words])
            function.attributes["passthrough"] = texts
            function.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")


def _name(function: ir.Operation) -> str:
    return str(function.attributes["sym_name"])


_freed = itertools.count(1)
_ENGINES_A_TRIM = 32
"""After so many engines the pages that compilations left free go back to the system.

LLVM's short-lived objects lie between JAX's long-lived ones. In a process that makes and drops
functions the C library keeps up to 100 MB of free pages. Giving them back takes about 10 ms; 32
engines took over a second to compile.
"""


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The function of glibc; other C libraries have none."""
    function: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return function


def _trim() -> None:
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


_idle_engines: deque[_Handle] = deque()
_MOST_IDLE_ENGINES = 32
"""An engine that goes compiles how it would run destructors, for 2 ms. So the first call leaves
these to the background."""


def _leave(engine: _Handle) -> None:
    _idle_engines.append(engine)
    if not flags.compile_ahead() or len(_idle_engines) > _MOST_IDLE_ENGINES:
        _free_an_engine()
    elif len(_idle_engines) == 1:
        free_later(_free_an_engine)


def _free_an_engine() -> bool:
    """Whether there is another one."""
    try:
        engine = _idle_engines.popleft()
    except IndexError:  # another thread was faster
        return False
    _capi().mlirExecutionEngineDestroy(engine)
    if next(_freed) % _ENGINES_A_TRIM == 0:
        _trim()
    return bool(_idle_engines)


def _object_code(module: ir.Module, name: str, opt_level: int) -> bytes:
    """The object file that LLVM makes of `module`, which has a function `name`."""
    handle = _capi().mlirExecutionEngineCreate(_handle(module), opt_level, 0, None, True, False)
    if not handle.pointer:
        raise InternalError("LLVM did not accept a generated module")
    try:
        # Compiles the module. Writing would, too, but looks for functions that LLVM inlined.
        if not _capi().mlirExecutionEngineLookup(handle, _string(name)):
            raise InternalError(f"generated function not found: {name}")
        with _file_in_memory() as file:
            _dump(handle, f"/proc/self/fd/{file.fileno()}")
            object_code = file.read()
    finally:
        _leave(handle)
    if not object_code:
        raise InternalError("LLVM made no object file of a generated module")
    return object_code


def _file_in_memory() -> BinaryIO:
    try:
        return os.fdopen(os.memfd_create("kernel"), "rb")
    except OSError:  # some sandboxes have no such files
        return tempfile.TemporaryFile()


_dump_first = locks.lock()
_dumped = threading.Event()


def _dump(engine: _Handle, path: str) -> None:
    """Have `engine` write the object file it has compiled.

    When LLVM first writes a file, it takes over the signals that end a process, to remove the file
    then. The handlers before are set again, those of Python among them. A thread of its own does
    that, because LLVM also changes the signal stack of the thread.
    """
    if not _dumped.is_set():
        with _dump_first:
            if not _dumped.is_set():
                first = threading.Thread(target=_dump_and_restore_handlers, args=(engine, path))
                if begins(first):
                    first.join()
                else:
                    _dump_and_restore_handlers(engine, path)
                return
    _capi().mlirExecutionEngineDumpToObjectFile(engine, _string(path))


def _dump_and_restore_handlers(engine: _Handle, path: str) -> None:
    handlers = SignalHandlers()
    try:
        _capi().mlirExecutionEngineDumpToObjectFile(engine, _string(path))
    finally:
        handlers.restore()
        _dumped.set()


_of_this_thread = threading.local()


def keep_a_context() -> None:
    """Have what this thread compiles share a context, which takes 1.4 ms and ends with it."""
    if not hasattr(_of_this_thread, "context"):
        _of_this_thread.context = kernel_context()


def lowered(text: str, features: str, *, host: bool = False, quickly: bool = False) -> ir.Module:
    """The module of `text` in the LLVM dialect; `features`: the attribute of its functions."""
    context: ir.Context | None = getattr(_of_this_thread, "context", None)
    module = lower_to_llvm(text, context or kernel_context(), host=host, quickly=quickly)
    _refuse_foreign_ops(module)
    if features:
        with module.context:
            attribute = ir.Attribute.parse(features)
            for view in module.body.operations:
                if view.operation.name == "llvm.func":
                    view.operation.attributes["target_features"] = attribute
    return module


def made(
    text: str, name: str, level: int | None, features: str, *, quickly: bool
) -> tuple[bytes, bool]:
    """The object file of `text`, which has a function `name`, and whether it has the best code.

    `level`: of LLVM; None: it is a host program.
    """
    is_host, is_best = level is None, not quickly
    if level is None:
        level = _LOOPS if _has_loops(text) else _ONCE
    if level == _ONCE or (is_host and SMALL_STEPS in text):
        is_best = True
    elif quickly:
        level = _QUICK
    module = lowered(text, features, host=is_host, quickly=level == _QUICK)
    if _is_made_once(module):
        level, is_best = _QUICK, True
    return _object_code(module, name, level), is_best


def llvm_ir(text: str, *, is_host: bool = False) -> str:
    """LLVM IR of `text` as the LLVM of llvmlite reads it.

    `is_host`: it is a host program. No function is unwound, so tables for that are left out.
    """
    module = lowered(text, "", host=is_host)
    with module.context:
        for view in module.body.operations:
            if view.operation.name == "llvm.func":
                view.operation.attributes["no_unwind"] = ir.UnitAttr.get()
        return for_older_llvm(translate_module_to_llvmir(module.operation))


def generated(text: str, name: str, features: str) -> bytes:
    """The object file of `text`, which has a function `name`, made quickly."""
    return _object_code(lowered(text, features, quickly=True), name, _QUICK)


def _refuse_foreign_ops(module: ir.Module) -> None:
    """Translation to LLVM IR crashes the process on an op it does not know."""

    def visit(op: ir.Operation) -> None:
        if not op.name.startswith(("llvm.", "builtin.module")):
            raise InternalError(f"{op.name} was left in a kernel after lowering to LLVM:\n{op}")

    walk(module, visit)
