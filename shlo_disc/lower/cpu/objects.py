"""Object files for any CPU of AArch64 or of a level of x86-64, whatever CPU this process runs on.

MLIR's engine makes code for the CPU of its process. Here LLVM runs in child processes, which are
told the CPU (`lower/llvm/workers.py`). So all hosts make the same bytes. All code is the best one,
of all variants: where it runs there is no compiler.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Sequence
from contextvars import copy_context
from pathlib import Path
from types import TracebackType

from shlo_disc.base.errors import InternalError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import Job, Workers
from shlo_disc.ir.mlir_libraries import translate_module_to_llvmir
from shlo_disc.lower.cpu.code_key import code_key
from shlo_disc.lower.cpu.machine import ARCHITECTURES
from shlo_disc.lower.cpu.object_code import best_module, keep_a_context
from shlo_disc.lower.llvm import workers
from shlo_disc.lower.llvm.llvm_text import for_older_llvm
from shlo_disc.lower.plan import KernelText, named, text_of
from shlo_disc.lower.refused import KernelsRefused
from shlo_disc.store.entries import current
from shlo_disc.store.loader import KernelCell, ObjectCodeError, check_object_code

_KERNEL_LEVEL = 3
"""The level of LLVM for kernels, as in `codegen.py`."""
_CODE_LEVEL = 2
"""That of its code generator for all functions, as in MLIR's engine."""
_ENTRIES = ("prepare", "run")
"""Functions of a host program."""


@dataclass(frozen=True)
class _Cpu:
    """What all machines of an artifact's target are, as LLVM knows it."""

    architecture: str
    triple: str = "x86_64-unknown-linux-gnu"
    features: str = ""
    model: str = "large"
    """The code model, as the loader expects it. The large one has 64-bit addresses for calls and
    constants. The small one has distances within the file, and stubs for calls out of it."""
    instruction_set: str = "x86-64"


_CPUS = {
    **{level.abi_name: _Cpu(level.abi_name) for level in ARCHITECTURES.values()},
    "aarch64": _Cpu("generic", "aarch64-linux-gnu", "+neon", "small", "aarch64"),
}
"""By the names of artifacts' targets."""


@dataclass(frozen=True)
class ObjectFunction:
    """A function in an object file, which this process does not load."""

    name: str
    object_code: bytes
    cell: KernelCell | None = None
    address: int = 0
    from_store: bool = False

    @property
    def size_bytes(self) -> int:
        """Of the object file."""
        return len(self.object_code)

    def compiled(self) -> ObjectFunction:
        """Itself: it has its code."""
        return self

    def finish(self) -> None:
        """Its code is the best one."""


def _symbol(text: str) -> str:
    return "k" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class ObjectMaker:
    """Makes object files for an artifact's target, such as "x86-64-v3" or "aarch64"."""

    def __init__(self, name: str) -> None:
        self._cpu = _CPUS[name]

    def host(self, text: str) -> tuple[ObjectFunction, ObjectFunction]:
        """`prepare` and `run` of a host program."""
        made = self._object(text, _ENTRIES[0], None)
        return ObjectFunction(_ENTRIES[0], made), ObjectFunction(_ENTRIES[1], made)

    def kernel(self, text: str) -> ObjectFunction:
        """The function of a kernel text."""
        name = _symbol(text)
        return ObjectFunction(name, self.of_text(named(text, name), name))

    def of_text(self, text: str, name: str) -> bytes:
        """The object file of MLIR that has a function `name`."""
        return self._object(text, name, _KERNEL_LEVEL)

    def _object(self, text: str, name: str, level: int | None) -> bytes:
        """The object file of `text`, which has a function `name`; `level`: None: a host program."""
        store = current()
        key = code_key(text, "object file", self._cpu, level, _versions())
        kept = None if store is None else store.read(key)
        if kept is not None:
            return kept
        module, passes_level = best_module(text, level)
        made = workers.compiled(
            for_older_llvm(translate_module_to_llvmir(module.operation)),
            self._cpu,
            form="object",
            level=passes_level,
            code_level=_CODE_LEVEL,
            model=self._cpu.model,
        )
        try:
            check_object_code(made, self._cpu.instruction_set)
        except ObjectCodeError as error:
            raise InternalError(f"generated code of {name} was refused: {error}") from error
        if store is not None:
            store.write(key, made)
        return made


def _versions() -> tuple[str, str]:
    """What makes object files, beyond what `code_key` names."""
    source = hashlib.blake2b(Path(__file__).read_bytes()).hexdigest()
    return importlib.metadata.version("llvmlite"), source


class ObjectBuilder:
    """Makes object files of kernels while more are written: `lower.target.CodeGenerator`."""

    def __init__(self, maker: ObjectMaker) -> None:
        self._maker = maker
        self._threads = Workers(min(len(os.sched_getaffinity(0)), 8))
        self._begun: dict[str, Job[ObjectFunction]] = {}

    def __enter__(self) -> ObjectBuilder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.__exit__(kind, error, trace)
        self._begun.clear()  # an error kept in a job knows this object

    def add(self, source: KernelText, *, wanted: bool = True) -> None:
        """Have a kernel compiled, whether the first call wants it or not."""
        self._job(text_of(source))

    def _job(self, text: str) -> Job[ObjectFunction]:
        if text not in self._begun:
            self._begun[text] = self._threads.begin(copy_context().run, self._made, text)
        return self._begun[text]

    def _made(self, text: str) -> ObjectFunction:
        keep_a_context()
        return self._maker.kernel(text)

    def functions(self, sources: Sequence[KernelText]) -> list[ObjectFunction]:
        """The functions of kernels, in order.

        Raises KernelsRefused when some do not compile, and UnsupportedError without llvmlite.
        """
        made: list[ObjectFunction] = []
        refused: dict[str, Exception] = {}
        for text in map(text_of, sources):
            try:
                made.append(self._job(text).result())
            except (MemoryError, UnsupportedError):
                raise
            except Exception as error:  # told by name, and planned again
                refused[text] = error
        if refused:
            raise KernelsRefused(refused) from next(iter(refused.values()))
        return made
