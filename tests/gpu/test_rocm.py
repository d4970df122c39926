"""Programs for AMD's GPUs: code objects in the stand-in for HIP's runtime, and what goes wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import DeviceError
from tests.children import forked
from tests.gpu import emulator
from tests.gpu.families import FAMILIES, families_of

pytest.importorskip("llvmlite")


def doubled(architecture: str = "gfx942"):
    text = """func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
      %y = stablehlo.add %x, %x : tensor<?xf32>
      return %y : tensor<?xf32>
    }"""
    return shlo_disc.compile(text, target=f"rocm:{architecture}")


def symbol(program) -> str:
    (kernel,) = program.host.kernels
    return program.target.function_name(kernel.text)


def test_a_code_object_is_loaded_and_launched(stand_in):
    program = doubled()
    grids = []

    @stand_in.kernel(symbol(program), 8, 8, 8, 8)
    def kernel(launch) -> None:
        grids.append((launch.grid, launch.block, launch.number(2), launch.number(3)))
        launch.array(1, [launch.number(2)])[:] = 2 * launch.array(0, [launch.number(2)])

    for n in (1, 4, 1024, 1025, 5000):
        x = np.arange(n, dtype="float32")
        (y,) = program.run_numpy([x])
        np.testing.assert_array_equal(y, 2 * x)
    tasks = [-(-n // 4) for n in (1, 4, 1024, 1025, 5000)]  # vectors of four elements
    assert grids == [
        ((-(-t // 256), 1, 1), (256, 1, 1), n, t)
        for n, t in zip((1, 4, 1024, 1025, 5000), tasks, strict=True)
    ]
    assert not stand_in.errors
    assert not stand_in.pending


def test_the_loader_reads_what_the_linker_wrote(stand_in):
    """The stand-in looks the kernel up in the code object; without an emulator it runs nothing."""
    if emulator.CHECKOUT:
        pytest.skip("the emulator runs the kernel")
    with pytest.raises(DeviceError, match="error 719"):
        doubled().run_numpy([np.ones(5, "float32")])
    (error,) = stand_in.errors
    assert isinstance(error, FileNotFoundError)
    assert "SHLO_DISC_TEST_TINYGRAD" in str(error)


def test_a_kernel_that_is_not_in_its_code_object(stand_in, programs):
    program = doubled()
    with program.target.generator() as generator:
        (made,) = generator.functions([program.host.kernels[0].text])
    exe = programs.add1(platform="rocm", architecture="gfx942", images=[made.image])
    with pytest.raises(DeviceError, match=r"kernel add1_kernel \(model.py:7\) is not in its image"):
        exe.run_numpy([np.ones(3, "float32")])


def test_an_image_that_is_no_code_object(stand_in, programs):
    exe = programs.add1(
        platform="rocm", architecture="gfx942", images=[b"\x7fELF\x02\x01\x01" + bytes(93)]
    )
    with pytest.raises(DeviceError) as raised:
        exe.run_numpy([np.ones(3, "float32")])
    assert str(raised.value) == (
        "add1: Stand-in 0 (rocm:0, gfx942) does not load kernel add1_kernel (model.py:7): ERROR "
        "(error 200)"
    )


def test_faults_are_told_at_the_wait(stand_in):
    program = doubled()
    stand_in.kernel(symbol(program), 8, 8, 8, 8)(lambda launch: None)
    program.run_numpy([np.ones(3, "float32")])
    stand_in.library.stand_in_fault(0, 700)
    with pytest.raises(DeviceError, match=r"rocm:0, gfx942.*ILLEGAL_ADDRESS"):
        program.run_numpy([np.ones(3, "float32")])


def test_code_objects_of_another_architecture(stand_in):
    with pytest.raises(DeviceError) as raised:
        doubled("gfx1100").run_numpy([np.ones(3, "float32")])
    assert str(raised.value) == (
        "main: the kernels are compiled for gfx1100, the device is Stand-in 0 (rocm:0, gfx942); "
        "compile with target='rocm:gfx942'"
    )


@pytest.mark.parametrize("named", ["gfx1100", "gfx90a:sramecc+:xnack-"])
def test_the_machines_own_device_is_a_target(named):
    """HIP names the features of a device behind its architecture."""
    said = forked(
        f"""
import shlo_disc
from tests.gpu.stand_in import StandIn
driver = StandIn.started()
driver.library.stand_in_architecture(b"{named}")
program = shlo_disc.compile("func.func @main() {{return}}", target="rocm")
print(program.target.name, program.target.machine.warp)
"""
    )
    wave = 64 if named.startswith("gfx9") else 32
    assert said == f"rocm:{named.partition(':')[0]} {wave}"


def test_an_architecture_without_a_table_names_those_with_one():
    said = forked(
        """
import shlo_disc
from tests.gpu.stand_in import StandIn
driver = StandIn.started()
driver.library.stand_in_architecture(b"gfx906:sramecc+:xnack-")
try:
    shlo_disc.compile("func.func @main() {return}", target="rocm")
except ValueError as error:
    print(error)
"""
    )
    assert said.startswith("target 'rocm:gfx906' is unknown; architectures: gfx90a, gfx942")


def test_scalars_come_to_kernels_in_their_arguments():
    """Values lie in the private memory of a thread only until LLVM has promoted them."""
    program = shlo_disc.compile(FAMILIES["scalars"].exported, target="rocm:gfx942")
    assert "llvm.alloca" in program.as_text("kernels")
    assert "addrspace(5)" in program.as_text("llvm")
    assert "private_segment_fixed_size: 0" in program.as_text("amdgcn")


@pytest.mark.slow
@pytest.mark.skipif(not emulator.CHECKOUT, reason=emulator.WHY_NOT)
@pytest.mark.parametrize("architecture", ["gfx942", "gfx1100"])
def test_every_family_gives_what_the_cpu_gives(architecture):
    said = forked(
        f"""
import json
from tests.gpu.emulated import report
print(json.dumps(report("{architecture}", [])))
"""
    )
    found = json.loads(said)
    assert found.keys() == families_of("rocm").keys()
    for name, of in found.items():
        assert "error" not in of, (name, of)
        assert all(run["difference"] <= of["allowed"] for run in of["runs"]), (name, of)
