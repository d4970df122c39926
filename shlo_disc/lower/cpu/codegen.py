"""Machine code for the host CPU: of object files that `object_code.py` makes, or that were kept.

A loader of ours makes an object file executable (`ral/src/core/object_code.h`), and the kernel
store (`shlo_disc/store`) keeps it for later processes.

A :class:`Function` owns the machine code behind its address. Executables own the functions of their
kernels and of their host program; programs alive at the same time share equal kernels. The code of
a kernel is freed with the last program that uses it. The most recent ones (`RECENT`) are kept: a
function that is made, called and dropped in a loop is compiled once.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from typing import NamedTuple

from shlo_disc.base import flags, locks
from shlo_disc.base.errors import CacheMismatchError, InternalError, UnsupportedError
from shlo_disc.base.later import imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import Job, Workers, lets_others_run
from shlo_disc.lower.background import finish_later
from shlo_disc.lower.cpu.code_key import code_key
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.host.record import CodeNames
from shlo_disc.lower.plan import KeptText, KernelText, LateText, is_of_host, named, text_of
from shlo_disc.lower.recent import Recent
from shlo_disc.store.entries import COUNTS, current, mismatch
from shlo_disc.store.loader import KernelCell, LoadedCode, ObjectCodeError, load

_log = logging.getLogger(__name__)

generated = imported_later("shlo_disc.lower.cpu.object_code", "generated")
is_once = imported_later("shlo_disc.lower.cpu.object_code", "is_once")
is_tiled = imported_later("shlo_disc.lower.cpu.object_code", "is_tiled")
keep_a_context = imported_later("shlo_disc.lower.cpu.object_code", "keep_a_context")
lowered = imported_later("shlo_disc.lower.cpu.object_code", "lowered")
made = imported_later("shlo_disc.lower.cpu.object_code", "made")


def function_name(text: str, machine: Machine | None = None) -> str:
    """The symbol a kernel text gets on `machine`: equal texts get equal names."""
    key = f"{_features(machine)}{text}"
    kind = _TILED if is_tiled(text) else "k"
    return kind + hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


_TILED = "t"
"""What the symbols begin with of functions that have tiles of AMX in registers."""


def has_tiles(symbol: str) -> bool:
    """Whether a function runs only where the system permits tiles (`matrix_unit.py`)."""
    return symbol.startswith(_TILED)


def _features(machine: Machine | None) -> str:
    """The attribute of LLVM functions that keeps LLVM from using what `machine` is without."""
    if machine is None or not machine.without:
        return ""
    names = ", ".join(f'"-{_LLVM_NAMES.get(name, name)}"' for name in sorted(machine.without))
    return f"#llvm.target_features<[{names}]>"


_LLVM_NAMES = {
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx_vnni": "avxvnni",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "bmi1": "bmi",
}
"""Features of /proc/cpuinfo that LLVM calls otherwise."""


class _Code(NamedTuple):
    """Machine code of one function."""

    address: int
    size_bytes: int
    """Without its constants."""
    owner: LoadedCode
    mapped_bytes: int
    """Its share of the memory of `owner`."""
    from_store: bool
    is_best: bool
    """False: it was made quickly."""


class Function:
    """A compiled function, or one to compile; its code stays in memory as long as this object.

    Making code quickly takes a fifth of the time. Results have the same bits, and calls take 1.0 to
    1.5 times as long, until the best code takes its place in the cell. Both stay: a call may be in
    either.
    """

    def __init__(
        self, name: str, source: _Source | None = None, others: tuple[Function, ...] = ()
    ) -> None:
        """`source`: that of this function and `others`, in this order.

        Without one it is among the others of some function.
        """
        self.name = name
        self.cell = KernelCell()
        """Where programs find the code."""
        self._source, self._others, self._context = source, others, copy_context()
        self._lock = locks.lock()
        self._codes: list[_Code] = []
        self._late: weakref.WeakSet[LateFunction] = weakref.WeakSet()
        """Functions of the same text, which have its code, too."""

    def _put(self, code: _Code) -> None:
        self._codes.append(code)
        for cell in (self.cell, *(function.cell for function in self._late)):
            cell.address = code.address

    def share(self, function: LateFunction) -> None:
        """Give `function` the code that there is, and that will be."""
        with self._lock:
            self._late.add(function)
            function.cell.address = self.address

    @property
    def address(self) -> int:
        """Where the code is; 0: there is none."""
        return self.cell.address

    @property
    def size_bytes(self) -> int:
        """Of its code; its constants come on top."""
        return self._codes[-1].size_bytes if self._codes else 0

    @property
    def mapped_bytes(self) -> int:
        """Memory of its code, shared with the functions of the same text."""
        return sum(code.mapped_bytes for code in self._codes)

    @property
    def from_store(self) -> bool:
        """True if the code was not compiled in this process, but kept on disk."""
        return bool(self._codes) and self._codes[-1].from_store

    @property
    def is_finished(self) -> bool:
        """Whether it has its best code."""
        return bool(self._codes) and self._codes[-1].is_best

    @lets_others_run
    def compiled(self) -> Function:
        """Itself, with code. Raises what the code generator does."""
        with self._lock:
            if not self._codes:
                self._make_code(flags.compile_ahead())
                if not self.is_finished:
                    finish_later(self)
        return self

    def finish(self) -> None:
        """Make the best code. Raises what the code generator does."""
        with self._lock:
            if not self.is_finished:
                self._make_code(False)

    @property
    def _is_final(self) -> bool:
        """True if it has no better code, and need not be compiled by itself to be kept on disk."""
        source = self._source
        if source is None or current() is not None:
            return False
        return source.opt_level is None or is_once(source.text())

    def _make_code(self, quickly: bool) -> None:
        assert self._source is not None, self.name
        functions = (self, *self._others)
        codes = self._context.run(_compile, self._source, quickly=quickly)
        for function, code in zip(functions, codes, strict=True):
            function._put(code)
        RECENT.add(self._source.symbol, functions)

    @classmethod
    def compile_together(cls, functions: Sequence[Function]) -> None:
        """Give functions code, quickly: those that nobody has so far are one module of LLVM.

        A module takes 8 ms by itself, and short kernels little more. Raises what the code generator
        does, and then some functions may have no code.
        """
        with ExitStack() as held:
            for function in sorted(functions, key=lambda function: function.name):
                held.enter_context(function._lock)
            missing = []
            for function in functions:
                assert function._source is not None, function.name
                if not function._codes and (kept := _kept(function._source)) is not None:
                    function._put(*kept)
                if not function._codes:
                    missing.append(function._source)
            if missing:
                names = [source.symbol for source in missing]
                text = "\n".join(source.text() for source in missing)
                features = _features(missing[0].machine)
                object_code = generated(text, names[0], features)
                made = dict(zip(names, _new(object_code, names, is_best=False), strict=True))
                for function in functions:
                    if function.name in made:
                        function._put(made[function.name]._replace(is_best=function._is_final))
            for function in functions:
                RECENT.add(function.name, (function,))
                if not function.is_finished:
                    finish_later(function)


class LateFunction:
    """A function to compile of which the text is not written yet: see :class:`Function`.

    When it is compiled, it becomes one of those that share a function by text.
    """

    def __init__(self, source: LateText, function: Callable[[str], Function]) -> None:
        """`function`: that of a text, which programs share."""
        self.cell = KernelCell()
        self._source, self._function_of = source, function
        self._lock = locks.lock()
        self._shared: Function | None = None

    @property
    def _function(self) -> Function:
        with self._lock:
            if self._shared is None:
                shared = self._function_of(text_of(self._source))
                shared.share(self)
                self._shared = shared
            return self._shared

    @property
    def name(self) -> str:
        """Of its text, which is written now if it was not before."""
        return self._function.name

    @property
    def address(self) -> int:
        """Where the code is; 0: there is none."""
        return self.cell.address

    @property
    def size_bytes(self) -> int:
        """Of its code; its constants come on top."""
        return self._shared.size_bytes if self._shared is not None else 0

    @property
    def from_store(self) -> bool:
        """True if the code was not compiled in this process, but kept on disk."""
        return self._shared is not None and self._shared.from_store

    @property
    def is_finished(self) -> bool:
        """Whether it has its best code."""
        return self._shared is not None and self._shared.is_finished

    def compiled(self) -> LateFunction:
        """Itself, with code. Raises what the code generator does."""
        self._function.compiled()
        return self

    def finish(self) -> None:
        """Make the best code. Raises what the code generator does."""
        self._function.finish()


_functions: weakref.WeakValueDictionary[str, Function] = weakref.WeakValueDictionary()
"""Kernels in use somewhere, by name."""


def _kept_bytes(functions: tuple[Function, ...]) -> int:
    """Of the functions of one text, which share their memory."""
    return sum(function.mapped_bytes for function in functions)


RECENT = Recent(32 << 20, _kept_bytes)
"""Of this process."""


@dataclass(frozen=True)
class _Source:
    """What functions are compiled from."""

    symbol: str
    """Equal texts have equal ones."""
    names: tuple[str, ...]
    """Of the functions."""
    text: Callable[[], str]
    """The MLIR with these names; it may have to be read from the disk."""
    opt_level: int | None
    """Of LLVM; None: it is a host program."""
    machine: Machine | None
    """What it is for; None: this process's."""
    known_key: bytes = b""

    @property
    def key(self) -> bytes:
        """What the store has the code under."""
        options = (self.names, self.opt_level, _features(self.machine))
        return self.known_key or code_key(self.text(), *options)


_ENTRIES = ("prepare", "run")
"""Functions of a host program."""
_TOGETHER = 50_000
"""Characters of texts that are compiled together when that is quick: 60 ms of LLVM."""
_ALONE = 20_000
"""Characters of a text that is compiled by itself: what a module takes matters less.

The best code of a kernel alone can be kept on disk."""
_LESS = 4
"""So much less work for LLVM is a line of a host program than one of a kernel."""
BEST = 3
"""The level of LLVM for kernels."""


def _kernel_source(text: str, opt_level: int | None, machine: Machine | None) -> _Source:
    name = function_name(text, machine)
    return _Source(name, (name,), lambda: _with_names({name: text}), opt_level, machine)


def _host_source(text: str, machine: Machine | None) -> _Source:
    name = function_name(text, machine)
    return _Source(name, _ENTRIES, lambda: text, None, machine)


class Builder(Workers):
    """Compiles kernel texts (each one `func.func @KERNEL(...)`) on threads while more are written.

    A context: on the way out it waits for what was begun, or gives up what was not when an
    exception passes. A text whose function is in use somewhere in this process is not compiled
    again; the builder keeps the functions it was asked for.
    """

    def __init__(self, opt_level: int = BEST, machine: Machine | None = None) -> None:
        self._opt_level, self._machine = opt_level, machine
        super().__init__()
        self._lock = locks.lock()
        self._held: list[KernelText] = []
        self._room = _TOGETHER if flags.compile_ahead() else 0
        """Characters of texts that are begun together."""
        self._wanted: set[KernelText] = set()
        self._begun: list[Job[None]] = []
        self._found: dict[KernelText, Function | LateFunction] = {}
        self._refused: dict[KernelText, Exception] = {}

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._found.clear()  # an error kept in `_refused` knows this object
        self._held.clear()

    def add(self, source: KernelText, *, wanted: bool = True) -> None:
        """Have a kernel compiled. What is not `wanted` is written and compiled later."""
        with self._lock:
            found = self._found.get(source)
            if found is None or (wanted and isinstance(found, LateFunction)):
                if isinstance(source, LateText) and not wanted:
                    found = LateFunction(source, partial(self._function, opt_level=self._opt_level))
                else:
                    found = self._shared(source)
                    if found.address:
                        RECENT.add(found.name, (found,))
                self._found[source] = found
            if wanted and not found.address and source not in self._wanted:
                self._wanted.add(source)
                if _length(source) >= _ALONE:
                    self._begin([source])
                    return
                self._held.append(source)
                if sum(map(_length, self._held)) >= self._room:
                    self._begin_held()

    def _begin_held(self) -> None:
        held, self._held = self._held, []
        self._begin(held)

    def _begin(self, sources: Sequence[KernelText]) -> None:
        self._begun.append(self.begin(self._compile, sources))

    def _shared(self, source: KernelText) -> Function:
        """The function of `source` that programs share."""
        if not isinstance(source, KeptText):
            level = None if is_of_host(source) else self._opt_level
            return self._function(text_of(source), level)
        level = None if source.of_host else BEST
        return _kept_function(
            source.symbol, source.key, partial(text_of, source), level, self._machine
        )

    def _function(self, text: str, opt_level: int | None) -> Function:
        """The function of `text` that programs share."""
        source = _kernel_source(text, opt_level, self._machine)
        return _functions.setdefault(source.symbol, Function(source.symbol, source))

    @lets_others_run
    def _compile(self, sources: Sequence[KernelText]) -> None:
        """Compile some texts; errors are kept for `functions`, which knows which are wanted."""
        keep_a_context()
        if len(sources) > 1:
            functions = {source: self._shared(source) for source in sources}
            try:
                Function.compile_together([*dict.fromkeys(functions.values())])
            except MemoryError:
                raise
            except Exception as error:  # one by one, it is told of which
                _log.info("%d kernels do not compile together: %s", len(sources), error)
            else:
                return
        for source in sources:
            try:
                self._found[source].compiled()
            except (CacheMismatchError, MemoryError):
                raise
            except Exception as error:
                self._refused[source] = error

    def functions(self, sources: Sequence[KernelText]) -> list[Function | LateFunction]:
        """The functions of kernels; waits for all that were added and wanted.

        Raises KernelsRefused when some do not compile.
        """
        for source in sources:
            if source not in self._found:
                self.add(source)
        with self._lock:
            if self._held:
                self._begin_held()
        for future in self._begun:
            future.result()
        refused = {text_of(s): self._refused[s] for s in sources if s in self._refused}
        if refused:
            from shlo_disc.lower.refused import KernelsRefused  # noqa: PLC0415 - as above

            raise KernelsRefused(refused) from next(iter(refused.values()))
        return [self._found[source] for source in sources]


def code_names(
    host: str, kernels: Sequence[str], plans: Sequence[str], machine: Machine | None = None
) -> CodeNames:
    """The symbols and keys of the text of a host program, and of those of kernels and plans."""

    def name(source: _Source) -> tuple[str, bytes]:
        return source.symbol, source.key

    return CodeNames(
        name(_host_source(host, machine)),
        tuple(name(_kernel_source(text, BEST, machine)) for text in kernels),
        tuple(name(_kernel_source(text, None, machine)) for text in plans),
    )


def kept_functions(
    names: CodeNames,
    details: Callable[[], tuple[str, Sequence[str], Sequence[str]]],
    machine: Machine | None,
) -> tuple[list[Function], list[Function], tuple[Function, Function]]:
    """The functions of `code_names(*details(), machine)`: of kernels, of plans, of the host.

    Kernels get their code when a call needs it. Texts are asked for where the store has no code.
    """
    kernels = [
        _kept_function(symbol, key, partial(_text, details, 1, number), BEST, machine)
        for number, (symbol, key) in enumerate(names.kernels)
    ]
    plans = [
        _kept_function(symbol, key, partial(_text, details, 2, number), None, machine).compiled()
        for number, (symbol, key) in enumerate(names.functions)
    ]
    symbol, key = names.host
    source = _Source(symbol, _ENTRIES, lambda: details()[0], None, machine, known_key=key)
    return kernels, plans, _host_functions(source)


def _text(
    details: Callable[[], tuple[str, Sequence[str], Sequence[str]]], kind: int, number: int
) -> str:
    return details()[kind][number]


def _kept_function(
    symbol: str, key: bytes, text: Callable[[], str], opt_level: int | None, machine: Machine | None
) -> Function:
    """The function of a text that programs share; the store may have its code."""
    source = _Source(
        symbol, (symbol,), lambda: _with_names({symbol: text()}), opt_level, machine, known_key=key
    )
    return _functions.setdefault(symbol, Function(symbol, source))


def _length(source: KernelText) -> int:
    """Characters that LLVM reads, unless the store has the code."""
    if isinstance(source, KeptText):
        return 0
    return len(text_of(source)) // (_LESS if is_of_host(source) else 1)


def compile_functions(
    texts: Sequence[str], machine: Machine | None = None, opt_level: int = BEST
) -> list[Function | LateFunction]:
    """The functions in `texts` (see :class:`Builder`), with their best code."""
    with Builder(opt_level, machine) as builder:
        functions = builder.functions(texts)
    for function in functions:
        function.finish()
    return functions


def compile_host(text: str, machine: Machine | None = None) -> tuple[Function, Function]:
    """`prepare` and `run` of the host program `text`.

    `machine`: what the kernels are for that it has copies of.
    """
    return _host_functions(_host_source(text, machine))


def _host_functions(source: _Source) -> tuple[Function, Function]:
    known = RECENT.get(source.symbol)
    if known is None:
        first, second = source.names
        run = Function(second)
        known = Function(first, source, (run,)).compiled(), run
    prepare, run = known
    return prepare, run


def _with_names(functions: dict[str, str]) -> str:
    return "\n".join(named(text, name) for name, text in functions.items())


def _compile(source: _Source, *, quickly: bool = False) -> list[_Code]:
    """The functions of `source`, from the kernel store if it has them.

    The store has the best code alone: what is made `quickly` is not kept there.
    """
    kept = _kept(source)
    if kept is not None:
        return kept
    object_code, is_best = _made(source, quickly=quickly)
    functions = _new(object_code, source.names, is_best=is_best)
    store = current()
    if store is not None and is_best:
        store.write(source.key, object_code)
    return functions


def _kept(source: _Source) -> list[_Code] | None:
    """The functions of `source` from the kernel store; None if it has none."""
    store = current()
    kept = None if store is None else store.read(source.key)
    if store is None or kept is None:
        return None
    if flags.cache_verifies():
        object_code, _ = _made(source)
        if object_code != kept:
            raise mismatch(store, source.key, "it has other machine code")
        return _new(object_code, source.names, is_best=True)
    try:
        functions = _loaded(kept, source.names, from_store=True)
    except ObjectCodeError:  # written by a mistake of ours
        COUNTS.add("damaged")
        return None
    COUNTS.add("loaded")
    return functions


def _made(source: _Source, *, quickly: bool = False) -> tuple[bytes, bool]:
    """The object file of `source`, and whether it has the best code."""
    features = _features(source.machine)
    found: tuple[bytes, bool] = made(
        source.text(), source.names[0], source.opt_level, features, quickly=quickly
    )
    return found


def _new(object_code: bytes, names: Sequence[str], *, is_best: bool) -> list[_Code]:
    try:
        return _loaded(object_code, names, is_best=is_best)
    except ObjectCodeError as error:
        raise InternalError(f"generated code was refused: {error}") from error


def _loaded(
    object_code: bytes, names: Sequence[str], *, from_store: bool = False, is_best: bool = True
) -> list[_Code]:
    found = load(object_code, names)
    return [_Code(*one, one.owner.mapped_bytes // len(found), from_store, is_best) for one in found]


def llvm_text(texts: Sequence[str], machine: Machine | None = None) -> str:
    """LLVM IR (before LLVM's own optimisation) of kernel texts, as text."""
    # Only here: its classes of operations take longer to load than a kernel to compile.
    from torch_mlir.dialects import llvm as llvm_dialect  # noqa: PLC0415

    functions = {function_name(text, machine): text for text in texts}
    module = lowered(_with_names(functions), _features(machine))
    return str(llvm_dialect.translate_module_to_llvmir(module.operation))


def assembly(texts: Sequence[str], machine: Machine | None = None) -> str:
    """Machine code of kernel texts, disassembled by binutils' `objdump`.

    Raises UnsupportedError when `objdump` is not installed.
    """
    if not texts:
        return ""  # an engine without functions makes no object
    if len(texts) > 1:
        return "".join(assembly([text], machine) for text in texts)
    object_code, _ = _made(_kernel_source(texts[0], BEST, machine))
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(object_code)
        file.flush()
        try:
            command = ["objdump", "-d", "--no-show-raw-insn", "-M", "intel", file.name]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except FileNotFoundError:
            raise UnsupportedError(
                "as_text('asm') needs objdump; install binutils or use as_text('llvm')"
            ) from None
