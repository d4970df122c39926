"""Code of kernels for GPUs: texts are compiled while more are written, each once.

A kernel's text is lowered to LLVM IR in this process, on a thread; a worker process makes code of
that (`workers.py`). The images that were made most recently are kept (`RECENT`).
"""

from __future__ import annotations

import contextvars
import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.lower.gpu import workers
from shlo_disc.lower.gpu.lowering import llvm_text
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage, LaunchShape, TensorMap
from shlo_disc.lower.plan import KernelText, text_of
from shlo_disc.lower.recent import Recent
from shlo_disc.lower.refused import KernelsRefused

__all__ = [
    "RECENT",
    "Builder",
    "assembly",
    "assembly_of_all",
    "function_name",
    "image",
    "llvm",
    "shape_of",
]


_SIGNATURE = re.compile(
    r"gpu\.func @\w+\(([^)]*)\).*?known_block_size = array<i32: (\d+),(.*?)disc\.tasks = (\d+)"
    r".*?disc\.shared = (\d+)",
    re.S,
)


def shape_of(text: str) -> LaunchShape:
    """The shape of the kernel in `text`."""
    match = _SIGNATURE.search(text)
    assert match is not None, text
    arguments = [argument.strip() for argument in match[1].split(",")]
    front = [a for a in arguments if not a.startswith(("%p", "%bytes", "%all", "%tasks"))]
    by_value = tuple(k for k, a in enumerate(front) if a.startswith("%v"))
    params = len(arguments) - len(front) - 1
    _, _, described = match[3].partition("disc.maps")
    maps = tuple(map(TensorMap.parse, re.findall(r'"([^"]*)"', described)))
    threads, tasks, shared = (int(match[k]) for k in (2, 4, 5))
    return LaunchShape(threads, tasks, len(front), by_value, params, shared, maps)


def function_name(text: str, machine: Machine) -> str:
    """The symbol that a kernel text gets on `machine`: equal texts get equal names."""
    key = f"{machine.name} {machine.features}\0{text}"
    return "k" + hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def assembly(text: str, machine: Machine) -> str:
    """The kernel in `text` as PTX, or as assembly of AMD's."""
    name = function_name(text, machine)
    return _rewritten(workers.compiled(llvm_text(text, name, machine), machine), machine).decode()


def _rewritten(code: bytes, machine: Machine) -> bytes:
    return machine.rewrite(code.decode()).encode() if machine.rewrite else code


def assembly_of_all(texts: Sequence[str], machine: Machine) -> str:
    """Kernel texts as :func:`assembly`."""
    return "\n".join(assembly(text, machine) for text in texts)


def image(text: str, machine: Machine) -> KernelImage:
    """What a device loads of the kernel in `text`: PTX and a cubin, or a code object of AMD's."""
    name = function_name(text, machine)
    lowered, shape = llvm_text(text, name, machine), shape_of(text)
    if machine.link is not None:
        code = machine.link(workers.compiled(lowered, machine, form="object"))
        return KernelImage(name, code, shape)
    code = _rewritten(workers.compiled(lowered, machine), machine)
    machine_code = machine.assemble(code, machine.architecture) if machine.assemble else b""
    return KernelImage(name, code, shape, machine_code)


def llvm(texts: Sequence[str], machine: Machine) -> str:
    """LLVM IR of kernel texts, before LLVM's own passes."""
    return "\n".join(llvm_text(text, function_name(text, machine), machine) for text in texts)


RECENT: Recent[KernelImage] = Recent(64 << 20, lambda made: made.size_bytes)
"""Of this process."""


class Builder:
    """Compiles kernel texts on threads while more are written: `lower.target.CodeGenerator`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 8))
        self._begun: dict[str, Future[KernelImage]] = {}

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        self._begun.clear()  # an error kept in a future knows this object

    def add(self, source: KernelText, *, wanted: bool = True) -> None:
        """Have a kernel compiled, wanted now or later."""
        self._image(text_of(source))

    def _image(self, text: str) -> Future[KernelImage]:
        name = function_name(text, self._machine)
        if name not in self._begun:
            self._begun[name] = self._pool.submit(
                contextvars.copy_context().run, self._compiled, name, text
            )
        return self._begun[name]

    def _compiled(self, name: str, text: str) -> KernelImage:
        made = RECENT.get(name)
        if made is None:
            made = image(text, self._machine)
            RECENT.add(name, made)
        return made

    def functions(self, sources: Sequence[KernelText]) -> list[KernelImage]:
        """The images of kernels, in order.

        Raises KernelsRefused when some do not compile, and UnsupportedError without llvmlite.
        """
        made: dict[str, KernelImage] = {}
        refused: dict[str, Exception] = {}
        texts = [*map(text_of, sources)]
        for text in texts:
            try:
                made[text] = self._image(text).result()
            except (MemoryError, UnsupportedError):
                raise
            except Exception as error:  # told by name, and planned again
                refused[text] = error
        if refused:
            raise KernelsRefused(refused) from next(iter(refused.values()))
        return [made[text] for text in texts]
