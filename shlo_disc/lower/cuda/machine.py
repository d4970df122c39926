"""NVIDIA's architectures."""

from __future__ import annotations

from shlo_disc.lower.cuda import assembler
from shlo_disc.lower.cuda.overlap import overlapping
from shlo_disc.lower.gpu.machine import Machine

ARCHITECTURES: dict[str, str] = {
    "sm_75": "+ptx70",
    "sm_80": "+ptx70",
    "sm_86": "+ptx71",
    "sm_89": "+ptx78",
    "sm_90": "+ptx80",
    "sm_90a": "+ptx80",
    "sm_100": "+ptx86",
    "sm_120": "+ptx87",
}
"""Architecture to the first version of PTX that knows it, and what its kernels use.

Source: NVIDIA's PTX ISA, "Release Notes".
"""

NATIVE = {"sm_90": "sm_90a"}
"""A device's architecture to that of code with instructions which no later device has."""

WITH_WARPGROUPS = ("sm_90a",)
"""Architectures with `wgmma`: Hopper's only."""

_WITH_HALVES = 80
"""The first architecture with arithmetic of bf16, and with maxima of f16 that hand on NaN."""


WITH_OVERLAP = 90
"""The first architecture on which a kernel may be launched before the one in front has ended."""


def machine_of(architecture: str) -> Machine:
    """The machine `architecture`, one of :data:`ARCHITECTURES`.

    Raises ValueError for another one.
    """
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"target 'cuda:{architecture}' is unknown; architectures: {known}")
    return Machine(
        platform="cuda",
        architecture=architecture,
        triple="nvptx64-nvidia-cuda",
        features=ARCHITECTURES[architecture],
        conversion="convert-gpu-to-nvvm{{index-bitwidth={index_bits}}}",
        warp=32,
        shared_bytes=48 << 10,
        stack_space=0,
        warp_barrier=("nvvm.bar.warp.sync {all_threads} : i32",),
        rewrite=overlapping if _number(architecture) >= WITH_OVERLAP else None,
        assemble=assembler.cubin,
        assemble_saved=assembler.saved_cubin,
        halves=() if _number(architecture) < _WITH_HALVES else ("bf16", "f16"),
        reciprocal="llvm.nvvm.rcp.approx.ftz.f",
    )


def for_device(device: str) -> str:
    """The architecture whose code gets the most of a device that the driver calls `device`.

    A device runs PTX of older architectures, so one that is not in the table gets the newest of
    those. It gets its own name if all are newer.
    """
    if device in NATIVE or device in ARCHITECTURES:
        return NATIVE.get(device, device)
    older = [
        name for name in ARCHITECTURES if name[-1].isdigit() and _number(name) <= _number(device)
    ]
    return max(older, key=_number, default=device)


def _number(architecture: str) -> int:
    """90 of "sm_90", "sm_90a"."""
    digits = architecture.removeprefix("sm_").rstrip("af")
    return int(digits) if digits.isdigit() else 0
