"""The functions of `disc.h`, by ctypes."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from shlo_disc_runtime.errors import RuntimeLibraryError, error_of

_NAME = "libdisc_ral.so"
POINTER = ctypes.c_void_p
INT64S = ctypes.POINTER(ctypes.c_int64)


class Handler(ctypes.Structure):
    """`disc_handler`, with the names that `jax.ffi` has for its fields."""

    _fields_ = [
        ("target", ctypes.c_char_p),
        ("instantiate", POINTER),
        ("prepare", POINTER),
        ("initialize", POINTER),
        ("execute", POINTER),
        ("type_id", POINTER),
        ("type_info", POINTER),
    ]


class Options(ctypes.Structure):
    """`disc_options`."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("target", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("context", POINTER),
        ("allocate", POINTER),
        ("release", POINTER),
        ("parallel_for", POINTER),
        ("log", POINTER),
        ("device", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("handlers", ctypes.POINTER(Handler)),
        ("handler_count", ctypes.c_size_t),
        ("lapack", ctypes.c_char_p),
    ]


class Spec(ctypes.Structure):
    """`disc_spec`."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", INT64S),
        ("texts", ctypes.POINTER(ctypes.c_char_p)),
        ("is_donated", ctypes.c_int32),
        ("is_packable", ctypes.c_int32),
        ("donated_to", ctypes.c_int64),
    ]


class Array(ctypes.Structure):
    """`disc_array`."""

    _fields_ = [
        ("data", POINTER),
        ("sizes", INT64S),
        ("strides", INT64S),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("weight", POINTER),
    ]


class Buffer(ctypes.Structure):
    """`disc_buffer`."""

    _fields_ = [
        ("data", POINTER),
        ("bytes", ctypes.c_size_t),
        ("sizes", INT64S),
        ("memory", POINTER),
    ]


TRUST_CONSTANTS = 1


def _folders() -> Iterator[Path]:
    """Where the library may be: beside this package, or in `shlo_disc`, which is not imported."""
    yield Path(__file__).parent / "lib"
    spec = importlib.util.find_spec("shlo_disc")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder) / "ral" / "lib"
    for folder in sys.path:
        yield Path(folder) / "shlo_disc" / "ral" / "lib"


@functools.cache
def library() -> ctypes.CDLL:
    """The library, loaded.

    Raises RuntimeLibraryError where it is not installed.
    """
    paths = (folder / _NAME for folder in _folders())
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise RuntimeLibraryError(
            f"{_NAME} was found neither beside shlo_disc_runtime nor in shlo_disc; install "
            "shlo_disc_runtime again"
        )
    found = ctypes.CDLL(os.fspath(path))
    size, text = ctypes.c_size_t, ctypes.c_char_p
    for name, result, arguments in (
        ("disc_error_code", ctypes.c_int, [POINTER]),
        ("disc_error_message", text, [POINTER]),
        ("disc_error_free", None, [POINTER]),
        ("disc_dtype_name", text, [ctypes.c_int32]),
        ("disc_dtype_bytes", ctypes.c_int64, [ctypes.c_int32]),
        ("disc_program_open", POINTER, [text, ctypes.POINTER(Options), ctypes.POINTER(POINTER)]),
        ("disc_program_close", None, [POINTER]),
        ("disc_program_name", text, [POINTER]),
        ("disc_program_compiler", text, [POINTER]),
        ("disc_program_target", text, [POINTER]),
        ("disc_program_arguments", size, [POINTER]),
        ("disc_program_results", size, [POINTER]),
        ("disc_program_argument", POINTER, [POINTER, size, ctypes.POINTER(Spec)]),
        ("disc_program_result", POINTER, [POINTER, size, ctypes.POINTER(Spec)]),
        ("disc_program_run", POINTER, [POINTER, POINTER, size, POINTER, size]),
        ("disc_memory_release", None, [POINTER]),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def check(error: int | None) -> None:
    """Raise the exception for what a function of the library returned; null is success."""
    if error:
        functions = library()
        code, message = functions.disc_error_code(error), functions.disc_error_message(error)
        functions.disc_error_free(error)
        raise error_of(code, message.decode(errors="replace"))
