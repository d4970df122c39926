"""What NVIDIA's assembler makes of kernels of products: it takes them all, and none spills."""

from __future__ import annotations

import pytest

from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.codegen import assembly, shape_of
from tests.gpu.assembler import PTXAS, WHY_NOT, assembled
from tests.gpu.test_matrix_products import LAYOUTS
from tests.gpu.test_warpgroup_products import COLUMNS, in_bands, launches, planned

pytestmark = pytest.mark.skipif(PTXAS is None, reason=WHY_NOT)

REGISTERS = 64 << 10
"""Of a multiprocessor."""
SHARED_BYTES = 227 << 10
BLOCKS = {"wide": 1, "narrow": 1, "little": 2}
"""Blocks for which a multiprocessor has room."""


@pytest.mark.parametrize("layout", [0, 1, 3])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
def test_products_of_halves(architecture: str, layout: int) -> None:
    machine = machine_of(architecture)
    found = set()
    for launch in launches(planned(LAYOUTS[layout], machine=machine).plan.steps):
        text = launch.kernel.text
        made, shape = assembled(assembly(text, machine), architecture), shape_of(text)
        assert made.spill_bytes == 0
        assert made.warnings == ()
        name = next((x for x, n in COLUMNS.items() if f"m64n{n}k16" in text), "")
        blocks = BLOCKS.get(name, 1)
        # A warp gets registers in steps of 8 a thread, a block has 1 KiB of shared memory besides.
        assert -(-made.registers // 8) * 8 * shape.threads * blocks <= REGISTERS, name
        assert (shape.shared_bytes + 1024) * blocks <= SHARED_BYTES + 1024, name
        found.add(name)
    assert found == ({"", *BLOCKS} if architecture == "sm_90a" else {""})


@pytest.mark.parametrize("bands", [2, 3, 4])
def test_bands(bands: int) -> None:
    machine = machine_of("sm_90a")
    (launch, _) = launches(in_bands(bands, 128, 130, is_along_k=False).plan.steps)
    made = assembled(assembly(launch.kernel.text, machine), machine.architecture)
    assert "wgmma" in launch.kernel.text
    assert (made.spill_bytes, made.warnings) == (0, ())
