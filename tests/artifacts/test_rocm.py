"""Artifacts for AMD's GPUs: code objects, loaded by the stand-in for HIP's runtime.

Kernels run as functions of the tests, by their symbols, which the loader finds in the code objects.
With an emulator (`tests/gpu/emulator.py`) the code objects themselves run.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import shlo_disc
import shlo_disc_runtime
from shlo_disc.artifacts import container, manifest
from shlo_disc.artifacts.read import read
from shlo_disc.base.errors import DeviceError, UnsupportedError
from shlo_disc_runtime.library import Buffer, library
from tests.artifacts.building import parts_of, put_together, with_code
from tests.artifacts.cards import enqueue, rows_of
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.artifacts.test_save import same_bits
from tests.children import python
from tests.gpu import emulator

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("stand_in")

TARGET = "rocm:gfx942"
MEMBER = "device/rocm-gfx942.bin"
TWICE = """func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}"""
SMALL = [{"n": n} for n in (1, 7, 20)]
SIZES = (1, 4, 1025, 5000)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The artifact of a program of one kernel, for a GPU and for the processor."""
    path = tmp_path_factory.mktemp("rocm") / "m.disc"
    shlo_disc.compile(TWICE).save(path, [TARGET, "x86-64-v3"])
    return path


@pytest.fixture
def kernel(path, stand_in):
    """What runs for the kernel of the artifact; the number of its launches is in the list."""
    (device,) = read(path).manifest.devices
    (row,) = device.kernels
    launches = []

    @stand_in.kernel(row.symbol, 8, 8, 8, 8)
    def run(launch):
        launches.append(launch.module)
        launch.array(1, [launch.number(2)])[:] = 2 * launch.array(0, [launch.number(2)])

    return launches


def run_alone(path):
    """A call of the artifact without the compiler."""
    program = shlo_disc_runtime.load(path, target=TARGET)
    return lambda given: program(*given)


def test_a_code_object_is_loaded_and_launched(path, kernel, stand_in):
    for program in (shlo_disc.load(path).run_numpy, run_alone(path)):
        before = len(kernel)
        for n in SIZES:
            x = np.arange(n, dtype="f4")
            (y,) = program([x])
            np.testing.assert_array_equal(y, 2 * x)
        assert len(kernel) == before + len(SIZES)
    assert shlo_disc.load(path).record.target == shlo_disc_runtime.load(path).target == TARGET
    code_objects = {
        bytes(read(path).bytes_of(span)) for span in read(path).manifest.devices[0].images
    }
    assert set(kernel) == code_objects
    assert not stand_in.pending


def test_what_is_in_the_file(path):
    artifact = read(path)
    row, host = artifact.manifest.targets
    (device,) = artifact.manifest.devices
    assert (row.name, row.machine, row.kernels, host.name) == (TARGET, "x86-64", (), "x86-64-v3")
    assert (device.platform, device.architecture) == ("rocm", "gfx942")
    for image, machine_code in zip(device.images, device.machine_code, strict=True):
        assert bytes(artifact.bytes_of(image))[:4] == b"\x7fELF"
        assert machine_code.size == 0  # the code object is machine code
    assert [member.name for member in artifact.manifest.members if "device" in member.name] == [
        MEMBER
    ]


def test_memory_of_the_device(path, kernel, card):
    program = shlo_disc_runtime.load(path)
    place = ctypes.c_int32(), ctypes.c_int32()
    library().disc_program_device(program._handle, *map(ctypes.byref, place))
    assert [number.value for number in place] == [10, 0]
    x = np.arange(33, dtype="f4")
    results = (Buffer * 1)()
    enqueue(program, None, rows_of(card, [x]), results)
    assert ctypes.string_at(results[0].data, results[0].bytes) == (2 * x).tobytes()
    library().disc_memory_release(results[0].memory)
    assert kernel


def test_a_device_of_another_architecture(path, tmp_path, stand_in):
    shlo_disc.compile(TWICE).save(tmp_path / "other.disc", ["rocm:gfx1100"])
    told = r"gfx1100.*the device is .*\(rocm:0, gfx942\)"
    for load in (shlo_disc.load, shlo_disc_runtime.load):
        with pytest.raises(NotImplementedError, match=told):
            load(tmp_path / "other.disc")
    with pytest.raises(UnsupportedError, match="no target 'rocm:gfx1100'"):
        shlo_disc.load(path, "rocm:gfx1100")


def test_without_a_driver(path, tmp_path):
    """The machine takes code of its processor, or is told why there is none."""
    shlo_disc.compile(TWICE).save(tmp_path / "gpu.disc", [TARGET])
    script = f"""
import os
os.environ["SHLO_DISC_ROCM_LIBRARY"] = "/nowhere/libamdhip64.so"
import numpy, shlo_disc, shlo_disc_runtime
for load in shlo_disc.load, shlo_disc_runtime.load:
    assert load({str(path)!r})(numpy.ones(3, "f4"))[0][0] == 2
    try:
        load({str(tmp_path / "gpu.disc")!r})
    except NotImplementedError as error:
        print(error)
"""
    lines = python(script).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "/nowhere/libamdhip64.so cannot be loaded" in line


def changed_code(path, change):
    """The artifact with another code object, whose digest is right."""
    parts = parts_of(path.read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    place = [member.name for member in known.members].index(MEMBER)
    return put_together(with_code(parts, place, change(bytes(parts[MEMBER]))))


def test_damaged_code_objects_are_refused(path, tmp_path):
    parts, damaged = parts_of(path.read_bytes()), tmp_path / "m.disc"
    code = bytearray(parts[MEMBER])
    code[100] ^= 1
    damaged.write_bytes(put_together(parts | {MEMBER: bytes(code)}))
    with pytest.raises(shlo_disc_runtime.ArtifactError, match=r"rocm-gfx942\.bin has a wrong"):
        shlo_disc_runtime.load(damaged)
    # The driver refuses what is no code object, and the call says so.
    damaged.write_bytes(changed_code(path, lambda code: b"refused" + code[7:]))
    loaded = shlo_disc.load(damaged, TARGET).run_numpy
    for program, error in ((loaded, DeviceError), (run_alone(damaged), ValueError)):
        with pytest.raises(error, match=r"\(rocm:0, gfx942\) does not load kernel"):
            program([np.ones(3, "f4")])


def test_kernels_that_lie_are_refused(path, tmp_path):
    parts = parts_of(path.read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    (device,) = known.devices
    for lie in (
        replace(device, platform="cuda", architecture="sm_90"),
        replace(device, architecture="gfx1100"),
        replace(device, machine_code=()),
    ):
        packed = manifest.packed(replace(known, devices=(lie,)))
        (tmp_path / "m.disc").write_bytes(put_together(parts | {container.MANIFEST: packed}))
        with pytest.raises((ValueError, NotImplementedError)):
            shlo_disc.load(tmp_path / "m.disc", TARGET)


@pytest.mark.skipif(not emulator.CHECKOUT, reason=emulator.WHY_NOT)
@pytest.mark.parametrize("name", ["element-wise", "product", "weights", "integers"])
def test_an_artifact_has_the_bits_of_the_compiled_program(name, tmp_path):
    compiled = shlo_disc.compile(export(PROGRAMS[name]), target=TARGET)
    compiled.save(tmp_path / "m.disc")
    loaded, alone = (load(tmp_path / "m.disc") for load in (shlo_disc.load, shlo_disc_runtime.load))
    for sizes in SMALL:
        given = arguments(PROGRAMS[name], sizes)
        want = compiled.run_numpy(given)
        same_bits(loaded.run_numpy(given), want)
        same_bits(alone(*given), want)
