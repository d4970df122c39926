"""Kernels that a device loads: their texts, what is made of these, and how they are launched."""

from __future__ import annotations

import functools

from shlo_disc.artifacts.manifest import TensorMap
from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass

DESCRIPTOR = "!array"
"""The type that a memref is lowered to, in `GpuText.body`."""


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
class GpuText:
    """A `gpu.module` of one `gpu.func @KERNEL(arrays..., i64 sizes..., i64 tasks)`.

    The head alone depends on the bits of an index: it has the type `DESCRIPTOR`, and %_0 and %_1.
    """

    signature: KernelSignature
    declared: str
    """Lines of the module in front of the function."""
    body: str
    """Lines of the function."""

    @functools.cached_property
    def text(self) -> str:
        """The module."""
        made, size = self.signature, f"i{self.signature.index_bits}"
        each = f"array<1 x {size}>"
        layout = "#dlti.dl_spec<index = 32 : i32>"
        width = f" attributes {{dlti.dl_spec = {layout}}}" if size == "i32" else ""
        maps = ", ".join(f'"{described}"' for described in made.maps)
        described = f"    disc.maps = [{maps}],\n" if maps else ""
        return (
            f"{DESCRIPTOR} = !llvm.struct<(ptr, ptr, {size}, {each}, {each})>\n"
            f"gpu.module @kernels{width} {{\n{self.declared}"
            f"gpu.func @KERNEL({_parameters(made)}) kernel attributes {{\n"
            f"    known_block_size = array<i32: {made.threads}, 1, 1>,\n{described}"
            f"    disc.tasks = {made.tasks} : i64, disc.shared = {made.shared_bytes} : i64}} {{\n"
            f"  %_0 = llvm.mlir.constant(0 : {size}) : {size}\n"
            f"  %_1 = llvm.mlir.constant(1 : {size}) : {size}\n"
            f"{self.body}  gpu.return\n}}\n}}\n"
        )


def _parameters(made: KernelSignature) -> str:
    """Pointers %aN, scalars %vN and tensor maps %mN by their number, then sizes %pN."""
    names = [f"%a{k}: !llvm.ptr" for k in range(made.arrays)]
    for position, size in made.by_value:
        names[position] = f"%v{position}: i{8 * size}"
    for described in made.maps:
        names[described.argument] = f"%m{described.argument}: !llvm.ptr"
    names += [f"%p{k}: i64" for k in range(made.sizes)]
    return ", ".join([*names, "%tasks: i64"])


def signed(source: object) -> GpuText:
    """The text of a kernel for a GPU; InternalError for one of another target."""
    if not isinstance(source, GpuText):
        raise InternalError(f"a kernel of a GPU has no signature: {source}")
    return source


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
    from_store: bool = False
    """True if its image was not compiled in this process, but kept on disk."""

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

    def finish(self) -> None:
        """There is one code."""

    def compiled(self) -> KernelImage:
        """Itself: it has its code."""
        return self
