"""Object files of LLVM's made executable: the part of the runtime's extension that `lower` needs.

`lower` gives functions with addresses, so it loads what it compiles. Files of the kernel store go
the same way (`ral/src/core/object_code.h`): code is the same, compiled or kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shlo_disc.ral import (
    KernelCell,
    LoadedCode,
    ObjectCodeError,
    SignalHandlers,
    check_object_code,
    cpu_identity,
)

__all__ = [
    "KernelCell",
    "Loaded",
    "LoadedCode",
    "ObjectCodeError",
    "SignalHandlers",
    "check_object_code",
    "cpu_identity",
    "load",
]


class Loaded(NamedTuple):
    """One function of an object file."""

    address: int
    size_bytes: int
    owner: LoadedCode
    """Its memory, shared with the other functions of the file."""


def load(object_code: bytes, names: Sequence[str]) -> list[Loaded]:
    """The functions `names` of an object file, in executable memory.

    Raises ObjectCodeError for a damaged file, an unknown part of one, and a function it lacks;
    OSError where the system gives no executable memory.
    """
    owner = LoadedCode(object_code)
    functions = owner.functions
    if missing := [name for name in names if name not in functions]:
        raise ObjectCodeError(f"no functions {missing}; there are {sorted(functions)}")
    return [Loaded(*functions[name], owner) for name in names]
