"""AMD's architectures."""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.rocm.linker import link

CODE_OBJECT_VERSION = 5
"""Of the code objects: what runtimes since ROCm 5.7 load."""


@dataclass(frozen=True)
class _Row:
    wave: int
    """Threads of a wave."""
    shared_bytes: int
    """Local data share that a block may have."""
    units: int
    """Compute units of the largest device: tiles that leave none without work."""


ARCHITECTURES: dict[str, _Row] = {
    "gfx90a": _Row(wave=64, shared_bytes=64 << 10, units=110),
    "gfx942": _Row(wave=64, shared_bytes=64 << 10, units=304),
    "gfx950": _Row(wave=64, shared_bytes=160 << 10, units=256),
    "gfx1100": _Row(wave=32, shared_bytes=64 << 10, units=96),
    "gfx1201": _Row(wave=32, shared_bytes=64 << 10, units=64),
}
"""Sources: LLVM's "User Guide for AMDGPU Backend"; AMD's document on the instructions of each,
and "ROCm: accelerator and GPU hardware specifications"."""


def machine_of(architecture: str) -> Machine:
    """The machine `architecture`, one of :data:`ARCHITECTURES`.

    Raises ValueError for another one.
    """
    row = ARCHITECTURES.get(architecture)
    if row is None:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"target 'rocm:{architecture}' is unknown; architectures: {known}")
    return Machine(
        platform="rocm",
        architecture=architecture,
        triple="amdgcn-amd-amdhsa",
        features="",
        conversion=(
            f"convert-gpu-to-rocdl{{{{chipset={architecture} "
            "index-bitwidth={index_bits} runtime=HIP}}"
        ),
        warp=row.wave,
        shared_bytes=row.shared_bytes,
        stack_space=5,
        warp_barrier=(
            'llvm.fence syncscope("wavefront") release',
            'llvm.call_intrinsic "llvm.amdgcn.wave.barrier"() : () -> ()',
            'llvm.fence syncscope("wavefront") acquire',
        ),
        flags=(("amdhsa_code_object_version", 100 * CODE_OBJECT_VERSION),),
        link=link,
    )


def for_device(device: str) -> str:
    """The architecture of a device that the driver calls `device`, such as "gfx942:sramecc+"."""
    return device.partition(":")[0]
