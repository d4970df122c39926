"""`Program`: an artifact that is loaded, called on numpy arrays."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shlo_disc_runtime.errors import UnsupportedError
from shlo_disc_runtime.library import (
    TRUST_CONSTANTS,
    Array,
    Buffer,
    Handler,
    Options,
    Spec,
    check,
    library,
)

_SCALARS = (bool, int, float, complex)
_RANK_OF_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
"""Python's numbers go to types of their own kind, and to those of a higher number."""


class ArraySpec(NamedTuple):
    """The type of one argument or result: sizes are numbers or symbolic expressions."""

    name: str
    dtype: np.dtype[Any]
    sizes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {_typed(self)}"


class Signature(NamedTuple):
    """What a program takes and gives."""

    arguments: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]

    def __str__(self) -> str:
        takes, gives = ", ".join(map(str, self.arguments)), ", ".join(map(_typed, self.results))
        return f"({takes}) -> ({gives})"


def _typed(spec: ArraySpec) -> str:
    return f"{spec.dtype.name}[{', '.join(spec.sizes)}]"


def load(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    threads: int = 0,
    trust_constants: bool = False,
    device: int = 0,
    handlers: Mapping[str, Any] | None = None,
    lapack: str | os.PathLike[str] | None = None,
) -> Program:
    """The program that `shlo_disc` saved at `path`, for this processor.

    `target`: the one to take, as "x86-64-v3"; by default the first that the processor can run.
    One for a GPU, as "cuda:sm_90a", runs on the GPU of number `device`; arrays are copied there and
    back. `threads`: how many work on a call, by default as many as there are cores. With
    `trust_constants` the weights are not read to check them.

    `handlers`: those of XLA's FFI that the program calls, by the names of their targets: what
    `jax.ffi.register_ffi_target` takes, so a capsule, or several by stage ("instantiate",
    "prepare", "initialize", "execute"). Addresses and functions of ctypes do as well, and
    "type_id" and "type_info" of `jax.ffi.register_ffi_type` beside stages. `lapack`: the library
    with LAPACK's functions, for a program that calls them. By default it is that of the environment
    variable DISC_LAPACK, else the OpenBLAS in the wheels of SciPy or NumPy, else one of the system.

    The file is mapped: replace it, never write into it. Raises ArtifactError for another file, a
    damaged one and one of a later version. Raises UnsupportedError where it has no code for this
    processor, and where a handler or LAPACK is missing. Raises OSError for a file that cannot be
    read.
    """
    return Program(path, target, threads, trust_constants, device, handlers or {}, lapack)


class Program:
    """A program for every shape that its signature allows. Any number of threads may call it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: str | None,
        threads: int,
        trust_constants: bool,
        device: int,
        handlers: Mapping[str, Any],
        lapack: str | os.PathLike[str] | None,
    ) -> None:
        functions = library()
        options = Options(struct_size=ctypes.sizeof(Options), threads=threads, device=device)
        options.target = None if target is None else target.encode()
        options.flags = TRUST_CONSTANTS if trust_constants else 0
        rows = (Handler * len(handlers))(*map(_handler, handlers.items()))
        options.handlers, options.handler_count = rows, len(rows)
        if lapack is None and not os.environ.get("DISC_LAPACK"):
            lapack = _bundled_lapack()
        options.lapack = None if lapack is None else os.fsencode(lapack)
        self._handlers = dict(handlers)  # which may own their code
        handle = ctypes.c_void_p()
        error = functions.disc_program_open(os.fsencode(path), options, ctypes.byref(handle))
        check(error)
        self._handle = handle
        self._closed = weakref.finalize(self, functions.disc_program_close, handle)
        self.name: str = functions.disc_program_name(handle).decode()
        self.target: str = functions.disc_program_target(handle).decode()
        """The one that runs: "x86-64-v4"."""
        self.compiler: str = functions.disc_program_compiler(handle).decode()
        """What made the artifact: "shlo_disc 0.1.0"."""
        takes = range(functions.disc_program_arguments(handle))
        gives = range(functions.disc_program_results(handle))
        self.signature = Signature(
            tuple(self._spec(functions.disc_program_argument, k, f"args[{k}]") for k in takes),
            tuple(self._spec(functions.disc_program_result, k, f"result[{k}]") for k in gives),
        )
        self._numbers = {name: number for number, name in _names().items()}
        self._run = functions.disc_program_run
        self._release = functions.disc_memory_release
        self._ranks = [len(spec.sizes) for spec in self.signature.results]

    def _spec(self, ask: Callable[..., int | None], index: int, name: str) -> ArraySpec:
        spec = Spec(struct_size=ctypes.sizeof(Spec))
        check(ask(self._handle, index, spec))
        sizes = tuple(spec.texts[k].decode() for k in range(spec.rank))
        told = (spec.name or b"").decode()
        return ArraySpec(told or name, _dtype(spec.dtype), sizes)

    def __call__(self, *arrays: Any) -> tuple[npt.NDArray[Any], ...]:
        """Run on arrays in the order of `signature.arguments`; the results are numpy arrays.

        Takes numpy arrays, what numpy makes one of, and Python numbers. Arrays that are dense and
        aligned are not copied. Raises ShapeMismatchError for sizes that break a constraint,
        TypeError for another number or type of arguments, and MemoryError.
        """
        count, results = len(arrays), self._ranks
        if count != len(self.signature.arguments):
            raise TypeError(
                f"{self.name}: {count} arguments were given, the program takes "
                f"{len(self.signature.arguments)}"
            )
        given = (Array * count)()
        held = [self._readable(index, array, given) for index, array in enumerate(arrays)]
        sizes = [(ctypes.c_int64 * rank)() for rank in results]
        made = (Buffer * len(results))()
        for buffer, own in zip(made, sizes, strict=True):
            buffer.sizes = own
        check(self._run(self._handle, given, count, made, len(results)))
        del held
        return tuple(
            self._array(buffer, tuple(own), spec.dtype)
            for buffer, own, spec in zip(made, sizes, self.signature.results, strict=True)
        )

    def _readable(self, index: int, value: Any, given: Any) -> npt.NDArray[Any]:
        """The array that row `index` of `given` tells of, which must live during the call."""
        is_number = isinstance(value, _SCALARS)
        array = self._number(index, value) if is_number else np.asarray(value)
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = np.array(array, order="C")
        dtype = self._numbers.get(array.dtype.name)
        if dtype is None:
            raise TypeError(f"{self._place(index)}: dtype is {array.dtype}, which no program takes")
        row = given[index]
        row.data, row.dtype, row.rank = array.ctypes.data, dtype, array.ndim
        row.sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        return array

    def _number(self, index: int, value: Any) -> npt.NDArray[Any]:
        dtype = self.signature.arguments[index].dtype
        kind = np.asarray(value).dtype.kind
        if _RANK_OF_KIND[kind] > _RANK_OF_KIND[dtype.kind]:
            raise TypeError(f"{self._place(index)}: {value!r} is no {dtype.name}")
        return np.asarray(value, dtype)

    def _place(self, index: int) -> str:
        return f"{self.name}: argument {index} ({self.signature.arguments[index].name!r})"

    def _array(self, buffer: Any, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        memory = _Memory(buffer.data, buffer.bytes)
        weakref.finalize(memory, self._release, buffer.memory)
        if buffer.bytes == 0:
            return np.empty(sizes, dtype)
        return np.asarray(memory).view(dtype).reshape(sizes)

    def __repr__(self) -> str:
        return f"<shlo_disc_runtime.Program {self.name}{self.signature} for {self.target}>"


_OF_HANDLER = tuple(field[0] for field in Handler._fields_[1:])
"""What a handler may have beside its target: its stages, and the type of its state."""


def _handler(item: tuple[str, Any]) -> Handler:
    name, given = item
    stages = given if isinstance(given, Mapping) else {"execute": given}
    if unknown := [stage for stage in stages if stage not in _OF_HANDLER]:
        raise ValueError(f"the handler {name!r} has {unknown[0]!r}, which is none of {_OF_HANDLER}")
    return Handler(name.encode(), *(_address(name, stages.get(stage)) for stage in _OF_HANDLER))


def _address(name: str, given: Any) -> int | None:
    """What a capsule, a function or pointer of ctypes, or an integer points to."""
    if given is None or isinstance(given, int):
        return given
    if type(given).__name__ == "PyCapsule":
        pointer: int | None = _pointer_of_capsule(given, _name_of_capsule(given))
        return pointer
    try:
        if not isinstance(given, str | bytes):
            return ctypes.cast(given, ctypes.c_void_p).value
    except (TypeError, ctypes.ArgumentError):
        pass  # as below
    raise TypeError(
        f"the handler {name!r} must be a capsule, a function of ctypes or an address, got "
        f"{type(given).__name__}"
    )


_name_of_capsule = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@functools.cache
def _bundled_lapack() -> str | None:
    """The OpenBLAS in the wheel of SciPy or NumPy; None: there is none."""
    for name in ("scipy", "numpy"):
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            found = sorted(Path(f"{folder}.libs").glob("libscipy_openblas*"))
            if found:
                return os.fspath(found[0])
    return None


class _Memory:
    """Memory of the library, which is given back with the last array that is in it."""

    def __init__(self, data: int, size: int) -> None:
        self.__array_interface__ = {
            "data": (data, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


@functools.cache
def _names() -> dict[int, str]:
    """The name of every number of `disc_dtype`."""
    names = map(library().disc_dtype_name, itertools.count())
    return {number: name.decode() for number, name in enumerate(iter(names.__next__, None))}


@functools.cache
def _dtype(number: int) -> np.dtype[Any]:
    """NumPy's type for a number of `disc_dtype`; of those it lacks, that of ml_dtypes."""
    name = _names()[number]
    if hasattr(np, name):
        return np.dtype(name)
    try:
        types = importlib.import_module("ml_dtypes")
    except ImportError:
        raise UnsupportedError(f"elements of type {name} need ml_dtypes; install it") from None
    found: np.dtype[Any] = np.dtype(getattr(types, name))
    return found
