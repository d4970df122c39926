"""NVIDIA's architectures."""

from __future__ import annotations

from shlo_disc.lower.gpu.machine import Machine

__all__ = ["ARCHITECTURES", "NATIVE", "WITH_WARPGROUPS", "machine_of"]

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
        conversion="convert-gpu-to-nvvm{index-bitwidth=64}",
        warp=32,
        shared_bytes=48 << 10,
        stack_space=0,
    )
