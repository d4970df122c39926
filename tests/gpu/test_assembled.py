"""What NVIDIA's assembler makes of every kernel of products of 16-bit floats: none spills."""

from __future__ import annotations

import pytest

from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.codegen import assembly, shape_of
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.plan import Launch
from tests.gpu.resources import WHY_NOT, Used, of_nvidia
from tests.gpu.test_matrix_products import LAYOUTS
from tests.gpu.test_warpgroup_products import COLUMNS, in_bands, launches, planned

REGISTERS = 64 << 10
"""Of a multiprocessor."""
SHARED_BYTES = 228 << 10
"""Of a multiprocessor; each block takes 1 KiB besides its own."""
BLOCKS = {"wide": 1, "narrow": 1, "little": 2}
"""Blocks for which a multiprocessor has room."""


def used_by(launch: Launch, machine: Machine) -> Used:
    text = launch.kernel.text
    image = KernelImage("KERNEL", assembly(text, machine).encode(), shape_of(text))
    try:
        return of_nvidia(launch.kernel.name, image, machine.name)
    except FileNotFoundError:
        pytest.skip(WHY_NOT)


@pytest.mark.parametrize("layout", [0, 1, 3])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
def test_products_of_halves(architecture: str, layout: int) -> None:
    machine = machine_of(architecture)
    found = set()
    for launch in launches(planned(LAYOUTS[layout], machine=machine).plan.steps):
        made = used_by(launch, machine)
        assert (made.spilled, made.warnings) == (0, ()), made
        text = launch.kernel.text
        name = next((x for x, n in COLUMNS.items() if f"m64n{n}k16" in text), "")
        blocks = BLOCKS.get(name, 1)
        # A warp gets registers in steps of 8 a thread.
        assert -(-made.registers // 8) * 8 * made.threads * blocks <= REGISTERS, made
        assert (made.shared_bytes + 1024) * blocks <= SHARED_BYTES, made
        found.add(name)
    assert found == ({"", *BLOCKS} if architecture == "sm_90a" else {""})


@pytest.mark.parametrize("bands", [2, 3, 4])
def test_bands(bands: int) -> None:
    machine = machine_of("sm_90a")
    (launch, _) = launches(in_bands(bands, 128, 130, is_along_k=False).plan.steps)
    made = used_by(launch, machine)
    assert "wgmma" in launch.kernel.text
    assert (made.spilled, made.warnings) == (0, ()), made
