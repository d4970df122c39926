"""Artifacts for GPUs on the stand-in driver: in Python, by the runtime, on memory of the device."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import shlo_disc
import shlo_disc_runtime
from shlo_disc import ral
from shlo_disc.artifacts import container, manifest
from shlo_disc.artifacts.read import read
from shlo_disc.base import flags
from shlo_disc.base.errors import ArtifactError, DeviceError, UnsupportedError
from shlo_disc.lower.cuda import assembler
from shlo_disc.tools import disc_compile, disc_dump
from shlo_disc_runtime.library import POINTER, Buffer, check, library
from tests.artifacts.building import parts_of, put_together
from tests.artifacts.cards import enqueue, rows_of
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.artifacts.test_save import same_bits
from tests.children import python

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("stand_in")

TARGET = "cuda:sm_90"
RUN = ("element-wise", "product", "weights", "integers", "scan")
"""Element-wise work, products, constants, and a loop that reads memory of the device."""
SMALL = [{"n": n} for n in (1, 7, 20)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The artifact of a program for a GPU, with the program."""
    folder, made = tmp_path_factory.mktemp("artifacts"), {}

    def path_of(name):
        if name not in made:
            path = folder / f"{name}.disc"
            compiled = shlo_disc.compile(export(PROGRAMS[name]), target=TARGET)
            compiled.save(path)
            made[name] = path, compiled
        return made[name]

    return path_of


@pytest.mark.parametrize("name", RUN)
def test_an_artifact_has_the_bits_of_the_compiled_program(name, saved, stand_in):
    path, compiled = saved(name)
    loaded, alone = shlo_disc.load(path), shlo_disc_runtime.load(path)
    assert (loaded.record.target, alone.target) == (TARGET, TARGET)
    assert str(loaded.signature) == str(compiled.signature)
    for sizes in SMALL:
        given = arguments(PROGRAMS[name], sizes)
        want, launches = compiled.run_numpy(given), stand_in.count("launches")
        same_bits(loaded.run_numpy(given), want)
        assert stand_in.count("launches") > launches
        same_bits(alone(*given), want)


def test_what_is_in_the_file(saved):
    manifest_ = read(saved("product")[0]).manifest
    (row,), (device,) = manifest_.targets, manifest_.devices
    assert (row.name, row.machine, row.kernels) == (TARGET, "x86-64", ())
    assert manifest_.device_of(0) is device
    assert (device.platform, device.architecture) == ("cuda", "sm_90")
    assert len(device.images) == len(device.machine_code) == len(device.kernels) > 0
    assert [member.name for member in manifest_.members if "device" in member.name] == [
        "device/cuda-sm_90.bin"
    ]


def test_disc_compile_and_disc_dump(tmp_path):
    (tmp_path / "m.mlir").write_text("""
        func.func public @main(%x: tensor<?xf32> {disc.shape = ["n"]}) -> tensor<?xf32> {
          %y = stablehlo.add %x, %x : tensor<?xf32>
          return %y : tensor<?xf32>
        }""")
    out = tmp_path / "m.disc"
    runner = CliRunner()
    made = runner.invoke(
        disc_compile.main, [f"{tmp_path}/m.mlir", "-o", str(out), "--target", TARGET]
    )
    assert made.exit_code == 0, made.output
    (y,) = shlo_disc_runtime.load(out)(np.ones(5, "f4"))
    np.testing.assert_array_equal(y, np.full(5, 2, "f4"))
    told = runner.invoke(disc_dump.main, [str(out), "--kernels"]).output
    assert f"{TARGET}, made for" in told
    assert re.search(
        r"1 kernels, .*\n  for sm_90: [\d,]+ bytes of images, [\d,]+ of machine code", told
    )
    assert "device/cuda-sm_90.bin" in told


def test_cubins_are_beside_the_text(tmp_path, stand_in):
    """The stand-in refuses them, as an older driver does, and takes the PTX."""
    if assembler.ptxas() is None and assembler.nvjitlink() is None:
        pytest.skip("no assembler of PTX")
    program = PROGRAMS["integers"]
    compiled = shlo_disc.compile(export(program), target=TARGET)
    with flags.overridden(gpu_cubins=1):
        compiled.save(tmp_path / "m.disc")
    artifact = read(tmp_path / "m.disc")
    (device,) = artifact.manifest.devices
    assert all(bytes(artifact.bytes_of(span))[:4] == b"\x7fELF" for span in device.machine_code)
    shlo_disc_runtime.load(tmp_path / "m.disc")(*arguments(program, {"n": 3}))
    assert stand_in.refused_images >= len(device.kernels)


def test_the_newest_gpu_first_and_the_processor_last(tmp_path):
    program = PROGRAMS["integers"]
    path = tmp_path / "m.disc"
    targets = ["x86-64-v3", "cuda:sm_80", "cuda:sm_120", "cuda:sm_90a"]
    shlo_disc.compile(export(program)).save(path, targets)
    rows = [row.name for row in read(path).manifest.targets]
    assert rows == ["cuda:sm_120", "cuda:sm_90a", "cuda:sm_80", "x86-64-v3"]
    given = arguments(program, {"n": 5})
    for one in rows[1:]:
        loaded, alone = shlo_disc.load(path, one), shlo_disc_runtime.load(path, target=one)
        same_bits(alone(*given), loaded.run_numpy(given))
    assert shlo_disc.load(path).record.target == shlo_disc_runtime.load(path).target == rows[1]
    for load in (shlo_disc.load, lambda p, t: shlo_disc_runtime.load(p, target=t)):
        with pytest.raises(NotImplementedError, match=r"sm_120.*the device is .*sm_90"):
            load(path, "cuda:sm_120")


def test_without_a_driver(tmp_path, saved):
    """A machine without one takes code of its processor, or says why there is none."""
    path = tmp_path / "m.disc"
    shlo_disc.compile(export(PROGRAMS["integers"])).save(path, ["cuda:sm_90", "x86-64-v3"])
    script = f"""
import os
os.environ["SHLO_DISC_CUDA_LIBRARY"] = "/nowhere/libcuda.so.1"
import shlo_disc, shlo_disc_runtime
for load in shlo_disc.load, shlo_disc_runtime.load:
    assert load({str(path)!r}).signature
    try:
        load({str(saved("integers")[0])!r})
    except NotImplementedError as error:
        print(error)
"""
    lines = python(script).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "no CUDA driver: /nowhere/libcuda.so.1 cannot be loaded" in line


def test_another_number_of_a_device(saved):
    path = saved("integers")[0]
    with pytest.raises(shlo_disc_runtime.UnsupportedError, match="there is no device cuda:3"):
        shlo_disc_runtime.load(path, device=3)
    with pytest.raises(DeviceError, match="compiled for sm_120"):
        ral.gpu_check_architecture("cuda", "sm_120")


def test_what_no_artifact_for_a_gpu_is(tmp_path):
    compiled = shlo_disc.compile(export(PROGRAMS["integers"]))
    with pytest.raises(UnsupportedError, match="artifacts name an architecture"):
        compiled.save(tmp_path / "m.disc", ["cuda"])
    with pytest.raises(ValueError, match="'cuda:sm_1' is unknown"):
        compiled.save(tmp_path / "m.disc", ["cuda:sm_1"])
    with pytest.raises(UnsupportedError, match="'cuda:sm_90a'"):
        compiled.save(tmp_path / "m.disc", ["metal:m4"])


def test_memory_of_the_device_and_a_stream_of_the_caller(saved, card, stand_in):
    path, compiled = saved("element-wise")
    program = shlo_disc_runtime.load(path)
    place = ctypes.c_int32(), ctypes.c_int32()
    library().disc_program_device(program._handle, *map(ctypes.byref, place))
    assert [number.value for number in place] == [2, 0]
    given = arguments(PROGRAMS["element-wise"], {"n": 7})
    want = compiled.run_numpy(given)
    stream = card.stream()
    for its in (stream, None):
        rows, results = rows_of(card, given), (Buffer * 2)()
        out = np.zeros_like(want[1])
        results[1].data, results[1].bytes = card.memory(out), out.nbytes  # the caller's
        theirs = results[1].data
        enqueue(program, its, rows, results)
        assert bool(stand_in.pending) == bool(its)
        if its:
            card.wait(its)
        assert results[1].data == theirs
        assert not results[1].memory
        assert results[0].memory
        for result, wanted in zip(results, want, strict=True):
            assert ctypes.string_at(result.data, result.bytes) == wanted.tobytes()
        library().disc_memory_release(results[0].memory)


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p),
        ("delete", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]  # fmt: skip


def run_dlpack(program, tensors):
    made = (ctypes.POINTER(Managed) * 2)()
    pointers = (ctypes.c_void_p * len(tensors))(*map(ctypes.addressof, tensors))
    function = library().disc_program_run_dlpack
    function.restype, function.argtypes = POINTER, [
        POINTER, POINTER, ctypes.c_size_t, POINTER, ctypes.c_size_t,
    ]  # fmt: skip
    check(function(program._handle, pointers, len(tensors), made, 2))
    return made


def test_tensors_of_dlpack(saved, card):
    path, compiled = saved("element-wise")
    program = shlo_disc_runtime.load(path)
    given = arguments(PROGRAMS["element-wise"], {"n": 7})
    want = compiled.run_numpy(given)

    def tensors(*devices):
        for device, array in zip(devices, given, strict=True):
            data = array.ctypes.data if device == (1, 0) else card.memory(array)
            sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
            yield Tensor(data, device, array.ndim, 2, 32, 1, sizes, None, 0)

    for device in ((1, 0), (2, 0)):
        for one, wanted in zip(run_dlpack(program, [*tensors(device, device)]), want, strict=True):
            tensor = one.contents.tensor
            assert (*tensor.device,) == device
            assert ctypes.string_at(tensor.data, wanted.nbytes) == wanted.tobytes()
            one.contents.delete(ctypes.addressof(one.contents))
    with pytest.raises(ValueError, match=r"argument 1.*is on another device than argument 0"):
        run_dlpack(program, [*tensors((2, 0), (1, 0))])
    with pytest.raises(ValueError, match=r"argument 0.*is neither on the CPU nor on .*cuda:0"):
        run_dlpack(program, [*tensors((2, 1), (2, 0))])


def test_what_is_wrong_with_memory_of_the_device(saved, card):
    program = shlo_disc_runtime.load(saved("element-wise")[0])
    given = arguments(PROGRAMS["element-wise"], {"n": 7})
    rows = rows_of(card, given)
    rows[0].data += 4
    with pytest.raises(ValueError, match=r"argument 0.*begins at no multiple of 16"):
        enqueue(program, None, rows, (Buffer * 2)())
    rows[0].data -= 4
    results = (Buffer * 2)()
    results[0].data, results[0].bytes = rows[1].data, given[1].nbytes
    with pytest.raises(ValueError, match="overlaps that of argument 1"):
        enqueue(program, None, rows, results)
    results[0].bytes = 8
    with pytest.raises(ValueError, match="its memory has 8"):
        enqueue(program, None, rows, results)
    rows[0].data = None
    with pytest.raises(ValueError, match="its memory is a null pointer"):
        enqueue(program, None, rows, (Buffer * 2)())


def test_a_program_of_the_processor_has_no_stream(tmp_path, card):
    path = tmp_path / "m.disc"
    shlo_disc.compile(export(PROGRAMS["integers"])).save(path, ["x86-64-v3"])
    program = shlo_disc_runtime.load(path)
    rows = rows_of(card, arguments(PROGRAMS["integers"], {"n": 7}))
    with pytest.raises(ValueError, match="runs on the CPU"):
        enqueue(program, None, rows, (Buffer * 2)())


def rewritten(path, change):
    """The bytes of an artifact whose kernels are what `change` makes of them, with true digests."""
    parts = parts_of(path.read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    devices = tuple(change(device) for device in known.devices)
    packed = manifest.packed(replace(known, devices=devices))
    return put_together(parts | {container.MANIFEST: packed})


def first_kernel(**changes):
    return lambda device: replace(
        device, kernels=(replace(device.kernels[0], **changes), *device.kernels[1:])
    )


MAP = manifest.TensorMap(0, "bf16", (8,), 0, (0,), ())
LIES = {
    "no target": lambda device: replace(device, target=7),
    "an image outside": lambda device: replace(
        device, images=(replace(device.images[0], offset=1 << 40), *device.images[1:])
    ),
    "no machine code": lambda device: replace(device, machine_code=()),
    "a kernel of no image": first_kernel(image=99),
}
LIES_OF_KERNELS = {
    "another platform": lambda device: replace(device, platform="metal"),
    "no threads": first_kernel(threads=0),
    "too many arguments": first_kernel(arrays=1 << 40),
    "a scalar that is no argument": first_kernel(by_value=((99, 4),)),
    "a map of another type": first_kernel(maps=(replace(MAP, element="f64"),)),
    "a map without sizes": first_kernel(maps=(replace(MAP, sizes=()),)),
    "a map of no param": first_kernel(maps=(replace(MAP, first=99),)),
    "a map of no argument": first_kernel(maps=(replace(MAP, argument=99),)),
}


@pytest.mark.parametrize("lie", [*LIES, *LIES_OF_KERNELS])
def test_manifests_that_lie_are_refused(lie, saved, tmp_path):
    path = tmp_path / "m.disc"
    path.write_bytes(rewritten(saved("product")[0], (LIES | LIES_OF_KERNELS)[lie]))
    with pytest.raises(shlo_disc_runtime.ArtifactError):
        shlo_disc_runtime.load(path)
    if lie in LIES:
        with pytest.raises(ArtifactError):
            shlo_disc.load(path)
    else:
        with pytest.raises((ArtifactError, ValueError)):
            shlo_disc.load(path)


def test_changed_kernels_are_refused(saved, tmp_path):
    path = tmp_path / "m.disc"
    parts = parts_of(saved("product")[0].read_bytes())
    code = bytearray(parts["device/cuda-sm_90.bin"])
    code[100] ^= 1
    path.write_bytes(put_together(parts | {"device/cuda-sm_90.bin": bytes(code)}))
    with pytest.raises(shlo_disc_runtime.ArtifactError, match=r"cuda-sm_90\.bin has a wrong"):
        shlo_disc_runtime.load(path)
    with pytest.raises(ArtifactError, match=r"device/cuda-sm_90\.bin is not what was written"):
        shlo_disc.load(path)
