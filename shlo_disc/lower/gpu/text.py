"""Texts of kernels for GPUs: what a builder wrote, under a head that is its signature as MLIR."""

from __future__ import annotations

import functools

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.lower.images import KernelSignature
from shlo_disc.lower.plan import KernelText

DESCRIPTOR = "!array"
"""The type that a memref is lowered to, in `GpuText.body`."""


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


def signed(source: KernelText) -> GpuText:
    """The text of a kernel for a GPU; InternalError for one of another target."""
    if not isinstance(source, GpuText):
        raise InternalError(f"a kernel of a GPU has no signature: {source}")
    return source
