"""What the emitters must know of the GPU they write for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.builder import ACCESS_BYTES, GpuBuilder, SizedGpuBuilder

_RUN = 16
"""Neighbouring elements of a task: threads have few, or too few threads run."""


@dataclass(frozen=True)
class Machine:
    """A GPU: what its code generator is told, and the sizes of its parts."""

    platform: str
    """JAX's name of the platform: "cuda" or "rocm"."""
    architecture: str
    """As the vendor calls it: "sm_90", "gfx942"."""
    triple: str
    """The target triple of LLVM."""
    features: str
    """Features of the architecture that LLVM is told besides its name."""
    conversion: str
    """The MLIR pass that converts the `gpu` dialect; `index_bits` is to be filled in."""
    warp: int
    """Threads that run in step: a warp of NVIDIA, a wave of AMD."""
    shared_bytes: int
    """Shared memory that a block of threads has without asking for more."""
    stack_space: int
    """LLVM's number of the address space of a thread's stack."""
    warp_barrier: tuple[str, ...]
    """Operations of `GpuBuilder.barrier_of_warp`; `{all_threads}` is a mask of 32 ones."""
    halves: tuple[str, ...] = ()
    """See `TextBuilder.halves`."""
    reciprocal: str = ""
    """LLVM's intrinsic of an approximate reciprocal of f32; see `GpuBuilder.ordinary_quotient`."""
    flags: tuple[tuple[str, int], ...] = ()
    """Flags of the LLVM module: name and value."""
    link: Callable[[bytes], bytes] | None = None
    """Makes an image of an object file. None where the driver takes assembly."""

    rewrite: Callable[[str], str] | None = None
    """What becomes of assembly before anything else reads it. None: nothing."""

    assemble: Callable[[bytes, str], bytes] | None = None
    """Makes machine code of assembly for an architecture, or nothing. None: nobody does."""
    assemble_saved: Callable[[bytes, str], bytes] | None = None
    """The same for files, whoever reads them."""

    @property
    def name(self) -> str:
        """The target's name: "cuda:sm_90"."""
        return f"{self.platform}:{self.architecture}"

    def lanes(self, element_bytes: int) -> int:
        """Elements of so many bytes that one load or store takes."""
        return max(1, ACCESS_BYTES // element_bytes)

    def run(self, elements: int) -> int:
        """Neighbouring elements that make a task."""
        return min(elements, _RUN)

    def moved(self, elements: int, lanes: int) -> int:
        """Of tasks that only move elements: one access, so that threads move what lies together."""
        return min(elements, lanes)

    def builder(self) -> GpuBuilder:
        """A new kernel in which a thread computes a task."""
        return GpuBuilder(self)

    def sized(self, sizes: Mapping[str, Expr]) -> SizedGpuBuilder:
        """The same with named sizes."""
        return SizedGpuBuilder(self, sizes)
