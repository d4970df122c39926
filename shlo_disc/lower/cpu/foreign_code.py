"""Object files for machines whose code this process cannot run, by the LLVM of llvmlite.

The texts of kernels and host programs are those of any CPU, and so are the passes in front of LLVM
(`object_code.py`). A :class:`ForeignFunction` has an object file in place of an address. Programs
made of such functions are saved, and run by the runtime of the other machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from shlo_disc.base.later import imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import lets_others_run
from shlo_disc.lower.cpu import codegen
from shlo_disc.lower.cpu.code_key import code_key
from shlo_disc.lower.cpu.machine import ARCHITECTURES, Machine
from shlo_disc.lower.kernel_jobs import KernelJobs
from shlo_disc.lower.llvm.kept_code import kept_or_made, makers
from shlo_disc.lower.plan import KernelText, is_of_host, named, text_of
from shlo_disc.lower.recent import Recent
from shlo_disc.store.loader import KernelCell, check_object_code

llvm_ir = imported_later("shlo_disc.lower.cpu.object_code", "llvm_ir")
compiled = imported_later("shlo_disc.lower.llvm.workers", "compiled")


@dataclass(frozen=True)
class _Llvm:
    """What LLVM calls a machine."""

    triple: str
    chip: str
    features: str = ""
    model: str = "default"
    """Of the code: how calls and constants are reached; see `ral/src/core/object_code.cpp`."""


_LLVM = {
    "aarch64": _Llvm("aarch64-linux-gnu", "generic", "+neon"),
    **{
        level.abi_name: _Llvm("x86_64-linux-gnu", level.abi_name, model="large")
        for level in ARCHITECTURES.values()
    },
}
"""Name of an instruction set, or of a level of one, to the machine that stands for all of them.

On AArch64 code and constants are addressed relative to the program counter. On x86-64 addresses
have 64 bits, as in the code that MLIR's engine makes.
"""

HOST_FUNCTIONS = ("prepare", "run")
"""Functions of a host program."""


def object_code(text: str, cpu: str) -> bytes:
    """The object file of MLIR `text` for a name in `_LLVM`.

    Raises UnsupportedError without llvmlite, InternalError for what LLVM does not accept.
    """
    return _code(text, cpu, "object", is_host=False)


def _code(text: str, cpu: str, form: str, *, is_host: bool) -> bytes:
    llvm, ir = _LLVM[cpu], llvm_ir(text, is_host=is_host)
    names = llvm.triple, llvm.chip, llvm.features
    # Whatever the level of a quick first call: what is made here is made once, and runs for long.
    code: bytes = compiled(ir, *names, form=form, level=codegen.BEST, model=llvm.model)
    return code


@dataclass(frozen=True)
class Objects:
    """Makes object files for one architecture, on any machine."""

    machine: Machine
    level: str = ""
    """Of its instruction set, such as "x86-64-v3"; "": it has none."""

    @property
    def _cpu(self) -> str:
        return self.level or self.machine.instruction_set

    def of_kernel(self, text: str, *, is_host: bool = False) -> bytes:
        """The object file of a kernel text, with one function, called :meth:`kernel_name`.

        `is_host`: the text is that of a plan's function, which a host program calls. Raises
        UnsupportedError without llvmlite, InternalError for what LLVM does not accept.
        """
        return self._made(named(text, self.kernel_name(text)), is_host=is_host)

    def of_host(self, text: str) -> bytes:
        """The object file of a host program, with :data:`HOST_FUNCTIONS`. Raises as `of_kernel`."""
        return self._made(text, is_host=True)

    def kernel_name(self, text: str) -> str:
        """The name of the function of a kernel text."""
        return codegen.function_name(text, self.machine)

    def assembly_of(self, text: str) -> str:
        """The assembly of a kernel text. Raises as `of_kernel`."""
        return _code(
            named(text, self.kernel_name(text)), self._cpu, "assembly", is_host=False
        ).decode()

    def _made(self, text: str, *, is_host: bool = False) -> bytes:
        key = code_key(text, "object file", self._cpu, is_host, makers(Path(__file__)))
        known = RECENT.get(key.hex())
        if known is None:
            known, _ = kept_or_made(key, partial(self._new, text, is_host=is_host))
            RECENT.add(key.hex(), known)
        return known

    def _new(self, text: str, *, is_host: bool) -> bytes:
        made = _code(text, self._cpu, "object", is_host=is_host)
        check_object_code(made, self.machine.instruction_set)
        return made


RECENT: Recent[bytes] = Recent(32 << 20, len)
"""Object files of this process, by key."""


class ForeignFunction:
    """A function for another machine: :class:`shlo_disc.lower.target.Function`."""

    from_store = False
    address = 0

    def __init__(self, name: str, make: Callable[[], bytes]) -> None:
        """`make`: gives the object file that has it."""
        self.name = name
        self.cell = KernelCell()
        """Empty: a call of a program of such functions is refused."""
        self._make = make

    @property
    def object_code(self) -> bytes:
        """The object file that has the function, under its name."""
        return self._make()

    @property
    def size_bytes(self) -> int:
        """Bytes of the object file, if it is made."""
        return len(self.object_code)

    def compiled(self) -> ForeignFunction:
        """Itself; its object file is made. Raises what the code generator does."""
        self._make()
        return self

    def finish(self) -> None:
        """There is no better code."""
        self._make()


class Builder(KernelJobs[bytes]):
    """Compiles kernel texts on threads: :class:`shlo_disc.lower.target.CodeGenerator`."""

    def __init__(self, objects: Objects) -> None:
        super().__init__()
        self._objects = objects

    @lets_others_run
    def _compile(self, source: KernelText) -> bytes:
        return self._objects.of_kernel(text_of(source), is_host=is_of_host(source))

    def functions(self, sources: Sequence[KernelText]) -> list[ForeignFunction]:
        """The functions of kernels, in order; a file has all of them. See `KernelJobs.made`."""
        self.made(sources)
        return [
            kernel_function(self._objects, text_of(source), is_host=is_of_host(source))
            for source in sources
        ]


def kernel_function(objects: Objects, text: str, *, is_host: bool = False) -> ForeignFunction:
    """The function of a kernel text, or of a plan's."""
    make = partial(objects.of_kernel, text, is_host=is_host)
    return ForeignFunction(objects.kernel_name(text), make)


def host_functions(objects: Objects, text: str) -> tuple[ForeignFunction, ForeignFunction]:
    """`prepare` and `run` of the host program `text`, compiled."""
    prepare, run = (
        ForeignFunction(name, partial(objects.of_host, text)) for name in HOST_FUNCTIONS
    )
    return prepare.compiled(), run


def kept_functions(
    objects: Objects, texts: Callable[[], tuple[str, Sequence[str], Sequence[str]]]
) -> tuple[list[ForeignFunction], list[ForeignFunction], tuple[ForeignFunction, ForeignFunction]]:
    """Kernels, plans, and the functions of the host program, of a program kept on disk."""
    host, kernels, plans = texts()
    return (
        [kernel_function(objects, text) for text in kernels],
        [kernel_function(objects, text, is_host=True) for text in plans],
        host_functions(objects, host),
    )
