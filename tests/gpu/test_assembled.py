"""What NVIDIA's assembler makes of every kernel of products by matrix units: none spills."""

from __future__ import annotations

import pytest

from shlo_disc.lower.cuda import ways
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.codegen import assembly, shape_of
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.plan import Launch
from tests.gpu.resources import WHY_NOT, Used, of_nvidia
from tests.gpu.test_matrix_products import LAYOUTS
from tests.gpu.test_warpgroup_products import in_bands, launches, planned

REGISTERS = 64 << 10
"""Of a multiprocessor."""
SHARED_BYTES = 228 << 10
"""Of a multiprocessor; each block takes 1 KiB besides its own."""
BLOCKS = {
    f"{rows}x{columns}": x.blocks
    for x in (*ways.ALL[0], *ways.ALL[1])
    for rows, columns in ((x.tile.rows, x.tile.columns), (x.tile.columns, x.tile.rows))
    if not x.stays
}
"""Blocks for which a multiprocessor has room, by tiles of warpgroups."""


def used_by(launch: Launch, machine: Machine) -> Used:
    text = launch.kernel.text
    image = KernelImage("KERNEL", assembly(text, machine).encode(), shape_of(text))
    try:
        return of_nvidia(launch.kernel.name, image, machine.name)
    except FileNotFoundError:
        pytest.skip(WHY_NOT)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("layout", [0, 1, 3])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
def test_products(architecture: str, layout: int, dtype: str) -> None:
    machine = machine_of(architecture)
    found = set()
    for launch in launches(planned(LAYOUTS[layout], dtype, machine=machine).plan.steps):
        made = used_by(launch, machine)
        is_slow = dtype == "f32" and "wgmma" not in launch.kernel.text  # some bytes, see SPILLED
        assert is_slow or (made.spilled, made.warnings) == (0, ()), made
        name = launch.kernel.name.split("_")[1] if "wgmma" in launch.kernel.text else ""
        blocks = 1 if launch.kernel.name.endswith("persistent") else BLOCKS.get(name, 1)
        # A warp gets registers in steps of 8 a thread; blocks get room for warps by fours.
        warps = -(-made.threads // 128) * 4
        assert -(-made.registers // 8) * 8 * 32 * warps * blocks <= REGISTERS, made
        assert (made.shared_bytes + 1024) * blocks <= SHARED_BYTES, made
        found.add(name)
    assert (len(found) >= 4) is (architecture == "sm_90a")


@pytest.mark.parametrize("bands", [2, 3, 4])
def test_bands(bands: int) -> None:
    machine = machine_of("sm_90a")
    emitted = in_bands(bands, 128, 12800, is_along_k=False)
    (launch,) = (x for x in launches(emitted.plan.steps) if "wgmma" in x.kernel.text)
    made = used_by(launch, machine)
    assert (made.spilled, made.warnings) == (0, ()), made
