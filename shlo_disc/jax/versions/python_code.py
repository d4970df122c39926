"""The Python code that a function consists of, and the values that it may read, by a digest.

A trace shows what a function did. Where a trace is spared, two functions must be the same in what
no trace shows: branches that were not taken. Code is named by its place in a file, and the file by
its time and size; installed packages by the time of their folder. What cannot be named has no
digest.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import logging
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax import export

_log = logging.getLogger("shlo_disc")

_MOST = 5_000
"""Objects of one function; reading more takes longer than a trace of most functions."""

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), type(...), range))
_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    np.ufunc,
)
"""Functions written in C."""


class _OpaqueError(Exception):
    """A value cannot be named, or has a size of a trace in it."""


def code_of(*values: Any) -> bytes | None:
    """The digest of functions, all that they close over and read, and the files of this program.

    It is the same in every process that runs the same files. Arrays count by shape and type. None
    where something has no name: code that is in no file, objects of C, more than 5 000 objects. And
    None for symbolic sizes, which a function that remembers sizes has after a trace.
    """
    code = _Code()
    try:
        code.add(*_files())
        for value in values:
            code.value(value)
    except Exception as error:  # attributes of objects may be code of the user's
        _log.debug("what a function reads has no name: %s", error)
        return None
    return code.digest()


def _files() -> Iterator[object]:
    """What tells the files of this program: those of loaded modules, and installed packages."""
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) is None:
        if sys.argv[:1] != ["-c"]:
            raise _OpaqueError("the program is typed in")
        yield sys.orig_argv[sys.orig_argv.index("-c") + 1]
    yield sys.version
    folders, _ = _installed()
    for folder in folders:
        yield _stamp(folder) if os.path.isdir(folder) else folder
    modules = [m for m in [*sys.modules.values()] if isinstance(m, types.ModuleType)]
    files = {file for m in modules if (file := vars(m).get("__file__")) and not _is_installed(file)}
    yield from map(_stamp, sorted(files))


def _stamp(file: str) -> tuple[object, ...]:
    try:
        found = os.stat(file)
    except OSError:
        raise _OpaqueError(f"{file} cannot be read") from None
    return file, found.st_mtime_ns, found.st_size


@functools.cache
def _installed() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders whose time is another after each installation, and how paths of theirs begin."""
    folders = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    ours = os.path.dirname(os.path.abspath(sys.modules["shlo_disc"].__file__ or ""))
    rest = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    starts = [os.path.join(folder, "") for folder in (*folders, *rest, ours)]
    return tuple(folders), (*starts, "<frozen ")


def _is_installed(file: str) -> bool:
    return file.startswith(_installed()[1])


class _Code:
    def __init__(self) -> None:
        self._told: list[object] = []
        self._known: dict[int, tuple[int, object]] = {}
        """Numbers of objects by address. They are kept."""

    def add(self, *parts: object) -> None:
        """Tell `parts`, whose `repr` is the same in every process."""
        self._told += parts

    def digest(self) -> bytes:
        return hashlib.blake2b(repr(self._told).encode(errors="surrogatepass")).digest()

    def value(self, value: Any) -> None:
        if type(value) in _PLAIN:
            self.add(value)
        elif (known := self._known.get(id(value))) is not None:
            self.add("again", known[0])
        else:
            if len(self._known) == _MOST:
                raise _OpaqueError(f"it has more than {_MOST} objects")
            self._known[id(value)] = len(self._known), value
            self.add(f"{type(value).__module__}.{type(value).__qualname__}")
            self._object(value)

    def _values(self, values: Iterable[Any]) -> None:
        for value in values:
            self.value(value)
        self.add("end")

    def _object(self, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._values((value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            self._values((value.func, value.args, value.keywords))
        elif isinstance(value, tuple | list | deque):
            self._values(value)
        elif isinstance(value, dict):
            self._values(part for item in value.items() for part in item)
        elif isinstance(value, set | frozenset) and all(type(x) in _PLAIN for x in value):
            self.add(*sorted(map(repr, value)))
        elif isinstance(value, types.ModuleType | logging.Logger):
            self.add(getattr(value, "__name__", "") or value.name)
        elif isinstance(value, type):
            self.add(value.__module__, value.__qualname__)
        elif isinstance(value, _BUILTIN):
            self.add(getattr(value, "__qualname__", value.__name__))
            bound = getattr(value, "__self__", None)
            self.value(bound)
        elif isinstance(value, enum.Enum):
            self.add(value.name)
        elif isinstance(value, np.dtype | np.generic | slice):
            self.add(repr(value))
        elif isinstance(value, jax.core.Tracer) or export.is_symbolic_dim(value):
            raise _OpaqueError("it remembers a value of a trace")
        elif isinstance(value, np.ndarray | jax.Array):
            self.add(repr(value.shape), str(value.dtype))
        elif isinstance(value, jax.tree_util.PyTreeDef):
            self._values((value.node_data(), value.children()))
        elif isinstance(value, staticmethod | classmethod):
            self.value(value.__func__)
        elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
            self.value(wrapped)
        else:
            self._instance(value)

    def _instance(self, value: Any) -> None:
        """An object with attributes."""
        slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
        if not hasattr(value, "__dict__") and not any(slots):
            raise _OpaqueError(f"it reads an object of {type(value).__qualname__}")
        names = [name for row in slots for name in ((row,) if isinstance(row, str) else row)]
        self._values(getattr(value, name, None) for name in names if name != "__weakref__")
        self.value(getattr(value, "__dict__", None))

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self.add(code.co_qualname, code.co_firstlineno, code.co_linetable)
        self._values((function.__defaults__, function.__kwdefaults__, function.__dict__))
        for cell in function.__closure__ or ():
            try:
                self.value(cell.cell_contents)
            except ValueError:
                self.add("empty")
        if _is_installed(code.co_filename):
            self.add(code.co_filename)
            return
        self.add(_stamp(code.co_filename))
        for name in dict.fromkeys(_names(code)):
            if name in function.__globals__:
                self.add(name)
                self.value(function.__globals__[name])


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names that code may read, and those of its attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
