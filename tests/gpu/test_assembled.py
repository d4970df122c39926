"""What NVIDIA's assembler makes of every kernel of products by matrix units: none spills."""

from __future__ import annotations

import pytest

import shlo_disc
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.lower.cuda import assembler, ways
from shlo_disc.lower.cuda.attention_tiles import ROOM
from shlo_disc.lower.cuda.machine import machine_of
from shlo_disc.lower.gpu.codegen import assembly
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import KernelImage, signed
from shlo_disc.lower.plan import Launch
from tests.gpu.families import FAMILIES
from tests.gpu.machine_code import early_writes
from tests.gpu.resources import WHY_NOT, Used, of_nvidia
from tests.gpu.test_attention import planned as attention_of
from tests.gpu.test_matrix_products import LAYOUTS
from tests.gpu.test_warpgroup_products import in_bands, launches, planned

pytestmark = pytest.mark.slow  # `make test-machine-code`

REGISTERS = 64 << 10
"""Of a multiprocessor."""
SHARED_BYTES = 228 << 10
"""Of a multiprocessor; each block takes 1 KiB besides its own."""
BLOCKS = {
    f"{rows}x{columns}": x.blocks
    for x in vars(ways).values()
    if isinstance(x, ways.Way) and not x.stays
    for rows, columns in ((x.tile.rows, x.tile.columns), (x.tile.columns, x.tile.rows))
}
"""Blocks for which a multiprocessor has room, by tiles of warpgroups."""


SPILLED = {("capped", "bfloat16", 128): 48, ("capped", "float32", 149): 48}
"""Bytes that a thread of an attention keeps in memory: caps on scores take registers, too."""


def used_by(launch: Launch, machine: Machine) -> Used:
    source = signed(launch.kernel.source)
    image = KernelImage("KERNEL", assembly(source, machine).encode(), source.signature)
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
        most = 16 if architecture == "sm_100" and launch.kernel.name.endswith("direct") else 0
        assert is_slow or (made.spilled <= most and made.warnings == ()), made
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


@pytest.mark.parametrize(
    ("dtype", "depth", "width"),
    [
        ("bfloat16", 128, 128),
        ("float16", 160, 160),
        ("bfloat16", 192, 128),
        ("bfloat16", 128, 256),
        ("bfloat16", 256, 256),
        ("float32", 64, 64),
        ("float32", 80, 80),
        ("float32", 128, 128),
        ("float32", 192, 192),
        ("float32", 256, 256),
        ("float32", 149, 51),
    ],
)
@pytest.mark.parametrize("way", ["causal", "capped"])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_attention(architecture: str, way: str, dtype: str, depth: int, width: int) -> None:
    """Tiles around which others are chosen have enough registers."""
    machine = machine_of(architecture)
    plan = attention_of(way, dtype, depth, width, machine).emitted.plan
    for launch in launches(plan.steps):
        made = used_by(launch, machine)
        most = SPILLED.get((way, dtype, depth), 0)
        if way == "capped" and launch.kernel.name.endswith("total"):
            most = 24  # around the divisions of `gelu`, at 56 registers at most
        assert made.spilled <= most, made
        assert made.registers * made.threads <= REGISTERS, made
        assert made.shared_bytes <= ROOM, made


def disassembled(ptx: str) -> str:
    try:
        return assembler.disassembled(ptx.encode(), "sm_90a")
    except UnsupportedError as missing:
        pytest.skip(str(missing))


LOOP = """
.L_x_1:
 /*0010*/ FMUL R4, R8, R9 ;
 /*0020*/ WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
 /*0030*/ FMUL R5, R8, R9 ;
 /*0040*/ HGMMA.64x64x16.F32.BF16 R24, R4, gdesc[UR4].tnspB, R24, gsb0 ;
 /*0050*/ @P0 BRA `(.L_x_1) ;
 /*0060*/ EXIT ;
"""


def test_writes_in_front_of_a_wait_are_found() -> None:
    assert early_writes(LOOP) == (1, ["FMUL R4, R8, R9"])
    assert early_writes(LOOP.replace("FMUL R4", "STS [R4]")) == (1, [])
    assert early_writes(LOOP.replace("0x0", "0x1")) == (1, ["FMUL R4, R8, R9", "FMUL R5, R8, R9"])


@pytest.mark.parametrize("name", ["attention", "attention_wide"])
def test_registers_of_weights_are_free_behind_the_wait(name: str) -> None:
    """Weights of the next keys in registers that products still read were wrong on an H200."""
    program = shlo_disc.compile(FAMILIES[name].exported, target="cuda:sm_90a")
    modules = [".version" + x for x in program.as_text("ptx").split(".version") if "wgmma" in x]
    assert modules
    for ptx in modules:
        held, writes = early_writes(disassembled(ptx))
        assert held >= 4
        assert writes == []


def test_registers_of_operands_are_free_behind_the_wait() -> None:
    machine, held = machine_of("sm_90a"), 0
    for launch in launches(planned(LAYOUTS[0], "f32", machine=machine).plan.steps):
        if "wgmma" in launch.kernel.text:
            found, writes = early_writes(disassembled(assembly(launch.kernel.source, machine)))
            held += found
            assert writes == [], launch.kernel.name
    assert held > 0
