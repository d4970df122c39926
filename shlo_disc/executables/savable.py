"""What all programs have that can be saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, Unpack

import numpy.typing as npt

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.executables.process_bound import OfThisProcess

NO_ARRAYS: Mapping[int, npt.NDArray[Any]] = MappingProxyType({})


class SaveOptions(TypedDict, total=False):
    """Keywords of :meth:`Savable.save`, which says what they do."""

    cores: int | None
    weights: str
    packed_for: Sequence[Any] | None
    format: str
    ffi: str | None


class Saver(Protocol):
    """Compiles a program for other machines and writes an artifact."""

    def __call__(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] | None,
        fixed: Mapping[int, npt.NDArray[Any]],
        **options: Unpack[SaveOptions],
    ) -> None:
        """As :meth:`Executable.save`."""


class Savable(OfThisProcess):
    """A program that may know its source, from which artifacts are made."""

    name: str
    saver: Saver | None = None
    """Saves the program; None: nobody knows its source any more."""

    def save(
        self,
        path: str | os.PathLike[str],
        targets: Sequence[str] | None = None,
        *,
        fixed: Mapping[int, npt.NDArray[Any]] = NO_ARRAYS,
        **options: Unpack[SaveOptions],
    ) -> None:
        """Write an artifact, which :func:`shlo_disc.load`, `shlo_disc_runtime` and C run.

        It is compiled anew for each of `targets`, whatever this machine is: "x86-64-v3" (AVX2),
        "x86-64-v4" (AVX-512), "aarch64" (NEON). GPUs, such as "cuda:sm_90a", have host programs for
        AVX2. By default it is the first two, or the GPU that this program is compiled for.

        `cores`: those of the machine that will run it, by default as many as this process has. They
        decide the order of some long sums. `fixed`: arguments, by their numbers, that become
        constants of the artifact. `weights`: "inside", the default, or "separate" for constants in
        a safetensors file beside it, named as it with ".safetensors" behind. An artifact runs with
        the file that it was saved with, and with no other.

        `packed_for`: arguments of a call of the artifact, which is run here for each of `targets`.
        The copies of weights that it packs are in the artifact, and no process packs them then.

        `format`: "disc", the default, or "so" for a shared library that has the artifact, for
        programs that link with it and loaders of plug-ins. It runs on processors of one family; a
        linker is not needed.

        `ffi="extern"`: calls of FFI handlers of the user's are in the artifact by the names of
        their targets. Who loads it has the handlers; :func:`shlo_disc.load` takes those that JAX
        knows. Functions of LAPACK need no option: the runtime finds a LAPACK where there is no JAX.

        An existing file is replaced in one step. Raises UnsupportedError for a program that an
        artifact cannot hold, by name, and where llvmlite is missing. Raises OSError where the file
        cannot be written, TypeError and ValueError for wrong options. With `packed_for` it raises
        what the call raises, and UnsupportedError for a target that this machine cannot run.
        """
        if self.saver is None:
            raise UnsupportedError(
                f"{self.name} cannot be saved: nobody knows its source; save what "
                "shlo_disc.compile or f.lower(*args).compile() gives"
            )
        self.saver(path, targets, fixed, **options)
