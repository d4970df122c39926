"""The GPU runtime on the stand-in driver: host programs in C, kernels in Python."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from shlo_disc.lower.gpu.builder import BLOCKS_ALONG_X
from tests.children import at_once
from tests.gpu.stand_in import REFUSED, Launch

ILLEGAL_ADDRESS = 700
LAUNCH_OUT_OF_RESOURCES = 701


def add1(launch: Launch) -> None:
    count = launch.number(2)
    assert launch.number(3) == count
    assert launch.blocks == -(-count // 256)
    launch.array(1, [count])[:] = launch.array(0, [count]) + 1


@pytest.fixture
def added(stand_in, programs):
    """The executable y = x + 1."""
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    return programs.add1()


def numbers(count: int) -> np.ndarray:
    return np.arange(count, dtype="float32")


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_launches_and_copies_at_every_size(stand_in, programs, platform):
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    architecture = {"cuda": "sm_80", "rocm": "gfx942"}[platform]
    exe = programs.add1(platform=platform, architecture=architecture)
    for count in (0, 1, 255, 256, 257, 1000):
        (y,) = exe.run_numpy([numbers(count)])
        np.testing.assert_array_equal(y, numbers(count) + 1)
    assert not stand_in.errors
    assert not stand_in.pending


def test_strided_arguments_are_copied(added):
    x = numbers(100)[::-2]
    (y,) = added.run_gpu([x])
    np.testing.assert_array_equal(y, x + 1)
    assert added.copies == ([1], 200)


def test_a_guard_is_checked_before_the_driver_is_asked(stand_in, added):
    launches = stand_in.count("launches")
    with pytest.raises(ral.GuardError, match="13"):
        added.run_gpu([numbers(13)])
    assert stand_in.count("launches") == launches


def test_scalars_are_passed_by_value(stand_in, programs):
    @stand_in.kernel("scalars", 8, 4, 1, 8, 8, 8)
    def kernel(launch: Launch) -> None:
        count = launch.number(4)
        scale, shift = launch.number(1, "float32"), launch.number(2, "int8")
        launch.array(3, [count])[:] = launch.array(0, [count]) * scale + shift

    exe = programs.executable(
        "scalars",
        [("float32", (-1,), "x")],
        [("float32", 1)],
        kernel={"args": 4, "by_value": [1, 2]},
    )
    (y,) = exe.run_gpu([numbers(9)])
    np.testing.assert_array_equal(y, numbers(9) * 2.5 - 3)


def test_the_host_program_reads_what_kernels_wrote(stand_in, programs):
    @stand_in.kernel("steps", 8, 8)
    def kernel(launch: Launch) -> None:
        x = launch.array(0, [1], "int64")
        x[0] = x[0] // 2 if x[0] % 2 == 0 else 3 * x[0] + 1

    exe = programs.executable(
        "steps", [("int64", (), "x")], [("int64", 0)], kernel={"args": 1, "params": 0}
    )
    waits = stand_in.count("waits")
    assert exe.run_gpu([np.int64(27)])[0] == 111
    assert stand_in.count("waits") - waits >= 112
    assert exe.run_gpu([np.int64(1)])[0] == 0


def test_reads_and_writes_of_every_width(stand_in, programs):
    exe = programs.executable("moves", [("uint8", (16,), "x")], [("uint8", 1)])
    stand_in.kernel("moves")(lambda launch: None)
    x = np.arange(250, 234, -1, dtype="uint8")
    (y,) = exe.run_gpu([x])
    want = np.zeros(32, "uint8")
    want[0] = x[0]
    want[8:10] = x[:2]
    want[16:18] = x[:2]
    want[18] = x[1]
    want[20:24] = x[8:12]
    want[24:32] = x[8:16]
    np.testing.assert_array_equal(y, want)


def test_constants_are_uploaded_once(stand_in, programs):
    @stand_in.kernel("table", 8, 8, 8, 8, 8)
    def kernel(launch: Launch) -> None:
        count = launch.number(3)
        launch.array(2, [count])[:] = launch.array(0, [count]) + launch.array(1, [count])

    tables = [numbers(5) * 10, numbers(5) * 100]
    exe = programs.executable(
        "table",
        [("float32", (-1,), "x")],
        [("float32", 1)],
        kernel={"args": 3},
        constants=tables,
    )
    for _ in range(3):
        (y,) = exe.run_gpu([np.ones(5, "f4")])
        np.testing.assert_array_equal(y, 1 + sum(tables))
    tables[0][:] = 0  # the program has its own
    np.testing.assert_array_equal(exe.run_gpu([np.ones(5, "f4")])[0], 1 + numbers(5) * 110)


@pytest.mark.parametrize(("platform", "architecture"), [("cuda", "sm_80"), ("rocm", "gfx942")])
def test_a_large_grid_has_rows(stand_in, programs, platform, architecture):
    """Of 1024 threads a block: AMD counts threads along x, in 32 bits."""
    grids = []
    stand_in.kernel("tasks", 8)(lambda launch: grids.append((launch.grid, launch.number(0))))
    exe = programs.executable(
        "tasks", [("uint8", (-1, 0), "x")], [],
        kernel={"args": 0, "params": 0, "threads": 1024}, platform=platform,
        architecture=architecture,
    )  # fmt: skip
    for tasks in (2**29, 2**29 + 1, 2**40, 2**45 - 2**29):
        exe.run_numpy([np.empty((tasks, 0), "uint8")])
        (x, y, z), given = grids.pop()
        assert given == tasks
        assert x * y * z >= -(-tasks // 256) > x * (y - 1)
        assert x <= BLOCKS_ALONG_X
    with pytest.raises(DeviceError, match=r"tasks: kernel tasks_kernel \(model.py:7\).*65535 rows"):
        exe.run_numpy([np.empty((2**45, 0), "uint8")])


def test_profiles_have_the_times_of_the_device(stand_in, programs):
    stand_in.kernel("tasks", 8)(lambda launch: threading.Event().wait(0.01))
    exe = programs.executable(
        "tasks", [("uint8", (-1, 0), "x")], [], kernel={"args": 0, "params": 0}
    )
    x = np.empty((1, 0), "uint8")
    events = stand_in.count("events")
    results, marks, begin, end, dropped = exe.profile(programs.tasks_run, None, [x])
    assert results == []
    assert dropped == begin == 0
    assert marks[:, :2].tolist() == [[7, 0], [7, 1]]
    assert 0 <= marks[0, 2] < marks[1, 2] - 9_000_000 < end
    assert stand_in.count("events") == events


def test_what_the_driver_tells_of_devices_and_kernels(stand_in, programs):
    assert ral.gpu_driver("cuda")["version"] == "13.0"
    (device,) = ral.gpu_devices("cuda")
    assert (device["architecture"], device["warp_size"]) == ("sm_90", 32)
    assert (device["multiprocessors"], device["shared_bytes"]) == (132, 227 << 10)
    (device,) = ral.gpu_devices("rocm")
    assert (device["architecture"], device["warp_size"]) == ("gfx942", 64)
    assert (device["multiprocessors"], device["l2_bytes"]) == (304, 4 << 20)
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    (kernel,) = programs.add1(kernel={"shared_bytes": 100_000}).gpu_kernels()
    assert kernel == {
        "name": "add1_kernel", "registers": 32, "local_bytes": 0, "shared_bytes": 100_000,
        "max_threads": 1024,
    }  # fmt: skip


def test_several_images_are_loaded_once_and_unloaded_with_the_program(stand_in, programs):
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    before = stand_in.count("modules")
    exe = programs.add1(images=[b"image %d" % i for i in range(20)], kernel={"image": 17})
    for _ in range(3):
        exe.run_gpu([numbers(3)])
    assert stand_in.count("modules") == before + 20
    del exe
    gc.collect()
    assert stand_in.count("modules") == before


@pytest.mark.parametrize(
    ("architecture", "image", "fits"),
    [
        ("sm_80", b"ptx", True),
        ("sm_90", b"ptx", True),
        ("sm_90a", b"ptx", True),
        ("sm_80a", b"ptx", False),
        ("sm_100", b"ptx", False),
        ("sm_90", b"\x7fELF", True),
        ("sm_80", b"\x7fELF", False),
        ("sm_100f", b"ptx", False),
    ],
)
def test_architectures(stand_in, programs, architecture, image, fits):
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    exe = programs.add1(architecture=architecture, images=[image])
    if fits:
        exe.run_gpu([numbers(3)])
        return
    with pytest.raises(DeviceError) as error:
        exe.run_gpu([numbers(3)])
    assert str(error.value) == (
        f"add1: the kernels are compiled for {architecture}, the device is Stand-in 0 (cuda:0, "
        "sm_90); compile with target='cuda:sm_90'"
    )


CUBIN = b"\x7fELF cubin"


@pytest.mark.parametrize(
    ("architecture", "machine_code", "loaded"),
    [
        ("sm_90", CUBIN, CUBIN),
        ("sm_90a", CUBIN, CUBIN),
        ("sm_80", CUBIN, b"ptx"),  # of another family
        ("sm_90", REFUSED, b"ptx"),  # made by a newer assembler than the driver's
        ("sm_90", b"", b"ptx"),
    ],
)
def test_machine_code_is_loaded_where_it_runs(
    stand_in, programs, architecture, machine_code, loaded
):
    found = []

    @stand_in.kernel("add1", 8, 8, 8, 8)
    def run(launch: Launch) -> None:
        found.append(launch.module)
        add1(launch)

    before = stand_in.count("modules")
    exe = programs.add1(architecture=architecture, images=[b"ptx"], machine_code=[machine_code])
    (y,) = exe.run_gpu([numbers(3)])
    np.testing.assert_array_equal(y, numbers(3) + 1)
    assert found == [loaded]
    assert stand_in.count("modules") == before + 1


def test_an_image_that_is_refused_after_its_machine_code_is_an_error(stand_in, programs):
    exe = programs.add1(architecture="sm_90", images=[REFUSED], machine_code=[REFUSED])
    with pytest.raises(DeviceError, match=r"does not load kernel add1_kernel .*\[ptxas fatal"):
        exe.run_gpu([numbers(3)])


def test_machine_code_is_of_every_image_or_of_none(programs):
    with pytest.raises(ValueError, match="an entry for each image"):
        programs.add1(images=[b"one", b"two"], machine_code=[CUBIN])


def test_code_objects_run_on_their_own_architecture(stand_in, programs):
    exe = programs.add1(platform="rocm", architecture="gfx1100")
    with pytest.raises(DeviceError, match=r"compiled for gfx1100, the device is .*gfx942"):
        exe.run_gpu([numbers(3)])


def test_an_image_that_the_driver_refuses_names_its_kernels(stand_in, programs):
    exe = programs.add1(images=[REFUSED])
    with pytest.raises(DeviceError) as error:
        exe.run_gpu([numbers(3)])
    assert str(error.value) == (
        "add1: Stand-in 0 (cuda:0, sm_90) does not load kernel add1_kernel (model.py:7) [ptxas "
        "fatal : not the stand-in's text]: ERROR (error 200)"
    )


def test_a_refused_launch_names_everything(stand_in, added):
    added.run_gpu([numbers(3)])
    stand_in.library.stand_in_refuse_launch(0, LAUNCH_OUT_OF_RESOURCES)
    with pytest.raises(DeviceError) as error:
        added.run_gpu([numbers(300)])
    assert str(error.value) == (
        "add1: Stand-in 0 (cuda:0, sm_90) refuses kernel add1_kernel (model.py:7), grid 2x1 of "
        "blocks of 128 threads with 0 bytes of dynamic shared memory: ERROR (error 701)"
    )
    np.testing.assert_array_equal(added.run_gpu([numbers(3)])[0], numbers(3) + 1)


def test_a_fault_shows_when_the_call_waits(stand_in, added):
    added.run_gpu([numbers(3)])
    stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
    for _ in range(2):  # a context does not recover
        with pytest.raises(DeviceError, match="ERROR_ILLEGAL_ADDRESS") as error:
            added.run_gpu([numbers(3)])
    stand_in.library.stand_in_reset()
    stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
    with pytest.raises(DeviceError) as error:
        added.run_gpu([numbers(3)])
    assert str(error.value) == (
        "add1: work on Stand-in 0 (cuda:0, sm_90) has failed, which shows at the end of the call: "
        "ERROR_ILLEGAL_ADDRESS (error 700); the driver may refuse all further work of this "
        "process. SHLO_DISC_GPU_SYNC=1 in the environment names the kernel"
    )


def test_a_fault_ends_a_loop_that_reads(stand_in, programs):
    stand_in.kernel("steps", 8, 8)(lambda launch: None)
    exe = programs.executable(
        "steps", [("int64", (), "x")], [("int64", 0)], kernel={"args": 1, "params": 0}
    )
    stand_in.library.stand_in_fault(5, ILLEGAL_ADDRESS)
    with pytest.raises(DeviceError, match="when the host program reads memory: ERROR_ILLEGAL_ADD"):
        exe.run_gpu([np.int64(27)])


def test_a_lost_device_is_an_error_everywhere(stand_in, added):
    added.run_gpu([numbers(3)])
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    stand_in.library.stand_in_lose(46)
    for _ in range(3):
        with pytest.raises(DeviceError, match="error 46"):
            added.run_gpu([numbers(3)])
    stand_in.reset()
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    np.testing.assert_array_equal(added.run_gpu([numbers(3)])[0], numbers(3) + 1)
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held


def test_out_of_memory_trims_the_pool_and_tries_again(stand_in, added):
    ral.gpu_pool_trim("cuda")
    used = stand_in.count("bytes")
    stand_in.memory(used + (10 << 20))
    for count in (2**18, 2**19):  # what the first one left must go
        np.testing.assert_array_equal(added.run_gpu([numbers(count)])[0], numbers(count) + 1)
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    with pytest.raises(MemoryError) as error:
        added.run_gpu([numbers(2**21)])
    text = str(error.value)
    assert text.startswith(
        "add1: result 0 takes 8388608 bytes (8.00 MiB) of Stand-in 0 (cuda:0, sm_90)"
    )
    assert f"shlo_disc holds {held + 2**23} bytes" in text
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in text
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held
    np.testing.assert_array_equal(added.run_gpu([numbers(2**18)])[0], numbers(2**18) + 1)


def test_a_kernel_with_too_much_shared_memory(stand_in, programs):
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    programs.add1(kernel={"shared_bytes": 227 << 10}).run_gpu([numbers(3)])
    with pytest.raises(DeviceError, match=r"takes 240000 bytes of shared memory.*has 232448"):
        programs.add1(kernel={"shared_bytes": 240_000}).run_gpu([numbers(3)])


def test_there_is_no_such_device(stand_in, added):
    with pytest.raises(DeviceError, match="there is no device cuda:3; devices: 1"):
        added.run_gpu([numbers(3)], device=3)
    stand_in.library.stand_in_devices(0)
    with pytest.raises(DeviceError, match=r"finds no device: ERROR_NO_DEVICE .*target='cpu'"):
        ral.gpu_devices("cuda")


def test_two_devices_have_their_own_memory_and_modules(stand_in, added):
    stand_in.library.stand_in_devices(2)
    before = stand_in.count("modules")
    for device in (1, 0, 1):
        np.testing.assert_array_equal(added.run_gpu([numbers(7)], device=device)[0], numbers(7) + 1)
    assert stand_in.count("modules") == before + 2


def test_eight_threads(stand_in, added):
    def work(seed: int) -> None:
        for i in range(25):
            x = numbers(20 + (seed * 37 + i * 11) % 700) + seed
            np.testing.assert_array_equal(added.run_gpu([x])[0], x + 1)

    at_once(work, range(8))


def test_memory_is_flat_over_a_thousand_calls(stand_in, added):
    def call(times: int) -> None:
        for i in range(times):
            added.run_gpu([numbers(20 + i % 600)])

    call(600)
    device, host = ral.gpu_pool_stats("cuda"), ral.pool_stats()["in_use_bytes"]
    allocations = stand_in.count("allocations")
    call(1000)
    after = ral.gpu_pool_stats("cuda")
    assert {k: v for k, v in after.items() if k != "hits"} == {
        k: v for k, v in device.items() if k != "hits"
    }
    assert ral.pool_stats()["in_use_bytes"] == host
    assert stand_in.count("allocations") == allocations


def test_faults_in_between_lose_nothing(stand_in, added):
    added.run_gpu([numbers(600)])
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"], ral.pool_stats()["in_use_bytes"]
    for i in range(60):
        if i % 3 == 0:
            stand_in.library.stand_in_refuse_launch(0, LAUNCH_OUT_OF_RESOURCES)
        elif i % 3 == 1:
            stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
        else:
            stand_in.memory(stand_in.count("bytes"))
            ral.gpu_pool_trim("cuda")
            stand_in.memory(100)
        with pytest.raises((DeviceError, MemoryError)):
            added.run_gpu([numbers(500)])
        stand_in.library.stand_in_reset()
        np.testing.assert_array_equal(added.run_gpu([numbers(9)])[0], numbers(9) + 1)
    assert held == (ral.gpu_pool_stats("cuda")["in_use_bytes"], ral.pool_stats()["in_use_bytes"])
    assert not stand_in.pending


def test_a_program_for_a_gpu_takes_nothing_of_the_cpu(programs):
    with pytest.raises(ValueError, match="neither kernels nor packs"):
        programs.add1(pack_layouts=["a"])
    for row, error in (
        ({"threads": 2000}, "add1_kernel: "),
        ({"by_value": [2]}, "by_value names an argument that does not exist"),
        ({"image": 1}, "it is in an image that does not exist"),
    ):
        with pytest.raises(ValueError, match=error):
            programs.add1(kernel=row)
    with pytest.raises(ValueError, match="no GPU platform is called 'vulkan'"):
        programs.add1(platform="vulkan")
