"""Kernels that a device loads: what a code generator of a GPU gives, and how they are launched."""

from __future__ import annotations

from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel that describes an array, boxes of which the kernel copies.

    The driver encodes it at every launch, from the array's address and sizes of the launch.
    """

    argument: int
    """The entry of `Launch.args` that it takes the place of."""
    element: str
    """ "f16", "bf16", or "tf32": f32 that the copy rounds."""
    box: tuple[int, ...]
    """Elements of a box, along the innermost dimension first."""
    first: int
    """The number of the param that counts elements in front of the tensor."""
    sizes: tuple[int, ...]
    """Numbers of the params that are its sizes, innermost first."""
    strides: tuple[int, ...]
    """Numbers of the params that are its strides, in elements, from the second dimension on."""

    @property
    def row(self) -> tuple[int, str, list[int], int, list[int], list[int]]:
        """As `ral.GpuKernel` takes it."""
        numbers = list(self.box), self.first, list(self.sizes), list(self.strides)
        return self.argument, self.element, *numbers

    def __str__(self) -> str:
        lists = ("x".join(map(str, x)) for x in (self.box, self.sizes, self.strides))
        return " ".join([str(self.argument), self.element, str(self.first), *lists])


@dataclass(frozen=True)
class KernelSignature:
    """How a kernel of a GPU is launched and lowered.

    Its builder knows that. The text of the kernel has the same, so that kernels with equal texts
    are launched alike; nobody reads it there.
    """

    threads: int
    """Threads of a block."""
    tasks: int
    """Tasks that a block computes."""
    arrays: int
    """Entries of `Launch.args`: pointers, scalars by value and tensor maps."""
    sizes: int
    """Entries of `Launch.params`."""
    by_value: tuple[tuple[int, int], ...] = ()
    """Which of `arrays` are scalars by value, and their bytes."""
    maps: tuple[TensorMap, ...] = ()
    """Which of `arrays` are tensor maps."""
    has_shared: bool = False
    """Threads of a block share memory."""
    shared_bytes: int = 0
    """Shared memory of a block that the launch asks for, beside what the code declares."""
    fits_32_bits: bool = False
    """Every index is a size, or a number of elements, tasks or threads: 32 bits hold it if they
    hold those.
    """
    index_bits: int = 64


@dataclass(frozen=True)
class KernelImage:
    """A compiled kernel: `lower.target.Function` of a GPU."""

    name: str
    """The symbol of the kernel."""
    image: bytes
    """PTX, or a code object of AMD's."""
    signature: KernelSignature
    machine_code: bytes = b""
    """A cubin, which devices of its architecture load in place of PTX; empty: there is none."""

    @property
    def cell(self) -> None:
        """There is none: a device loads the image."""

    @property
    def address(self) -> int:
        """There is none, as of a cell."""
        return 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the image, and of its machine code."""
        return len(self.image) + len(self.machine_code)

    @property
    def from_store(self) -> bool:
        """Images are not kept on disk."""
        return False

    def finish(self) -> None:
        """There is one code."""

    def compiled(self) -> KernelImage:
        """Itself: it has its code."""
        return self
