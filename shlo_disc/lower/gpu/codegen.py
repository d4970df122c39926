"""Code of kernels for GPUs: texts are compiled while more are written, each once.

A kernel's text is lowered to LLVM IR in this process, on a thread; a worker process makes code of
that (`workers.py`). The images that were made most recently are kept (`RECENT`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from shlo_disc.lower.cpu.code_key import code_key
from shlo_disc.lower.gpu.lowering import llvm_text
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage, signed
from shlo_disc.lower.kernel_jobs import KernelJobs
from shlo_disc.lower.llvm import workers
from shlo_disc.lower.llvm.kept_code import kept_or_made, makers
from shlo_disc.lower.plan import KernelText, text_of
from shlo_disc.lower.recent import Recent


def function_name(text: str, machine: Machine) -> str:
    """The symbol that a kernel text gets on `machine`: equal texts get equal names."""
    key = f"{machine.name} {machine.features}\0{text}"
    return "k" + hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def assembly(source: KernelText, machine: Machine) -> str:
    """A kernel as PTX, or as assembly of AMD's."""
    return _code(source, machine, "assembly")[0].decode()


def _code(source: KernelText, machine: Machine, form: str) -> tuple[bytes, bool]:
    """The code of a kernel in a form of `workers.compiled`; whether it was kept on disk."""

    def made() -> bytes:
        names = machine.triple, machine.architecture, machine.features
        code = workers.compiled(_llvm(source, machine), *names, form=form)
        if form == "object":
            assert machine.link is not None
            return machine.link(code)
        return machine.rewrite(code.decode()).encode() if machine.rewrite else code

    names = machine.name, machine.features, form, makers(*_MAKERS)
    return kept_or_made(code_key(text_of(source), *names), made)


_MAKERS = [
    Path(__file__).parents[1] / f"{name}.py"
    for name in ("gpu/codegen", "gpu/lowering", "gpu/machine", "cuda/machine", "cuda/overlap",
                 "rocm/elf", "rocm/linker", "rocm/machine")
]  # fmt: skip
"""Modules between the text of a kernel and what a device loads."""


def _llvm(source: KernelText, machine: Machine) -> str:
    return llvm_text(signed(source), function_name(text_of(source), machine), machine)


def assembly_of_all(sources: Sequence[KernelText], machine: Machine) -> str:
    """Kernels as :func:`assembly`."""
    return "\n".join(assembly(source, machine) for source in sources)


def image(source: KernelText, machine: Machine) -> KernelImage:
    """What a device loads of a kernel: PTX and a cubin, or a code object of AMD's."""
    name, signature = function_name(text_of(source), machine), signed(source).signature
    code, was_kept = _code(source, machine, "assembly" if machine.link is None else "object")
    machine_code = machine.assemble(code, machine.architecture) if machine.assemble else b""
    return KernelImage(name, code, signature, machine_code, was_kept)


def llvm(sources: Sequence[KernelText], machine: Machine) -> str:
    """LLVM IR of kernels, before LLVM's own passes."""
    return "\n".join(_llvm(source, machine) for source in sources)


RECENT: Recent[KernelImage] = Recent(64 << 20, lambda made: made.size_bytes)
"""Of this process."""


class Builder(KernelJobs[KernelImage]):
    """Compiles kernel texts on threads while more are written: `lower.target.CodeGenerator`."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def _compile(self, source: KernelText) -> KernelImage:
        name = function_name(text_of(source), self._machine)
        made = RECENT.get(name)
        if made is None:
            made = image(source, self._machine)
            RECENT.add(name, made)
        return made

    def functions(self, sources: Sequence[KernelText]) -> list[KernelImage]:
        """The images of kernels, in order. See `KernelJobs.made`."""
        return self.made(sources)
