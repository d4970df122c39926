"""Kernels that a device loads: what a code generator of a GPU gives, and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelImage", "LaunchShape"]


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel is launched, as its text says."""

    threads: int
    """Threads of a block."""
    tasks: int
    """Tasks that a block computes."""
    pointers: int
    """Parameters in front of the sizes: pointers, and scalars by value."""
    by_value: tuple[int, ...]
    """Which of these are scalars by value."""
    params: int
    """Sizes that it takes."""
    shared_bytes: int = 0
    """Shared memory of a block that the launch asks for, beside what the code declares."""


@dataclass(frozen=True)
class KernelImage:
    """A compiled kernel: `lower.target.Function` of a GPU."""

    name: str
    """The symbol of the kernel."""
    image: bytes
    """PTX, or a code object of AMD's."""
    shape: LaunchShape
    machine_code: bytes = b""
    """A cubin, which devices of its architecture load in place of PTX; empty: there is none."""

    @property
    def address(self) -> int:
        """There is none: a device loads the image."""
        return 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the image, and of its machine code."""
        return len(self.image) + len(self.machine_code)
