"""The direct path of jax.Arrays: JAX's CPU arrays stand for those of the stand-in's device."""

from __future__ import annotations

import ctypes
import gc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from tests.children import at_once
from tests.gpu.conftest import new_bridge
from tests.gpu.stand_in import Launch
from tests.gpu.test_runtime import ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES, add1


@pytest.fixture
def added(stand_in, programs):
    """The executable y = x + 1, on arrays of JAX."""
    stand_in.library.stand_in_strict(0)
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    return programs.add1()


@pytest.fixture
def bridge(added):
    return new_bridge(waits=True)


@pytest.fixture
def behind(added):
    """A bridge whose calls end before their work is done."""
    return new_bridge(waits=False)


@pytest.fixture
def pair(stand_in, programs):
    """(x + 1, y + 1), in donated arguments."""
    stand_in.library.stand_in_strict(0)

    @stand_in.kernel("pair", 8, 8, 8, 8)
    def kernel(launch: Launch) -> None:
        count = launch.number(2)
        launch.array(1, [count])[:] = launch.array(0, [count]) + 1

    def made(**options):
        return programs.executable(
            "pair",
            [("float32", (-1,), "x"), ("float32", (-1,), "y")],
            [("float32", 1), ("float32", 1)],
            **options,
        )

    return made


def finish(stand_in):
    """Do all work."""
    stand_in.library.stand_in_finish()
    assert not stand_in.pending


def test_results_are_arrays_in_memory_of_ours(stand_in, bridge, added):
    for count in (0, 1, 256, 1000):
        x = jnp.arange(count, dtype="float32")
        (y,) = added.call(bridge, [x])
        assert type(y) is type(x)
        np.testing.assert_array_equal(y, np.arange(count) + 1)
        (z,) = added.call(bridge, [y])
        np.testing.assert_array_equal(jax.jit(lambda a: a * 2)(z), 2 * (np.arange(count) + 2))
        if count:
            assert is_ours(stand_in, y)


def is_ours(stand_in, array) -> bool:
    """True if the memory is the stand-in's."""
    found = ctypes.c_void_p(), ctypes.c_size_t()
    address = ctypes.c_void_p(array.unsafe_buffer_pointer())
    return bool(stand_in.library.stand_in_memory_at(address, *map(ctypes.byref, found)))


def test_the_host_waits_for_nothing(stand_in, behind, added):
    added.call(behind, [jnp.zeros(300)])  # loads
    finish(stand_in)
    waits, kernels = stand_in.count("waits"), stand_in.count("kernels")
    x = jnp.arange(300.0)
    (y,) = added.call(behind, [x])
    (z,) = added.call(behind, [y])
    (w,) = added.call(behind, [np.arange(300, dtype="f4")])
    assert stand_in.count("waits") == waits
    assert stand_in.count("kernels") == kernels
    finish(stand_in)
    np.testing.assert_array_equal(z, np.arange(300) + 2)
    np.testing.assert_array_equal(w, np.arange(300) + 1)


def test_numpy_may_change_after_the_call(stand_in, behind, added):
    x = np.arange(300, dtype="f4")
    (y,) = added.call(behind, [x])
    x[:] = -5
    finish(stand_in)
    np.testing.assert_array_equal(y, np.arange(300) + 1)


def test_memory_is_used_again_behind_what_reads_it(stand_in, behind, added):
    finish(stand_in)
    inputs = [jnp.arange(1000.0) + step for step in range(50)]  # XLA's memory has no stream here
    misses = ral.gpu_pool_stats("cuda")["misses"]
    results = []
    for step, x in enumerate(inputs):
        (y,) = added.call(behind, [x])
        (z,) = added.call(behind, [y])
        del y  # its memory may go to the next result at once
        results.append(z)
        if step % 10 == 9:
            finish(stand_in)
            for i, got in enumerate(results):
                np.testing.assert_array_equal(got, np.arange(1000) + step - len(results) + i + 3)
            results.clear()
    assert ral.gpu_pool_stats("cuda")["misses"] - misses < 30


def test_memory_of_one_stream_is_not_used_on_another(stand_in, behind, added):
    stream = ctypes.c_void_p()
    context = ctypes.c_void_p()
    stand_in.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    stand_in.library.cuCtxPushCurrent_v2(context)
    stand_in.library.cuStreamCreate(ctypes.byref(stream), 0)
    stand_in.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    other = new_bridge(waits=False, stream=stream.value)
    x, y = jnp.zeros(700), jnp.full(700, 10.0)
    added.call(other, [x])
    added.call(behind, [x])
    finish(stand_in)
    (first,) = added.call(behind, [x])
    del first  # its kernel has not run
    (second,) = added.call(other, [y])
    finish(stand_in)  # the latest stream first
    np.testing.assert_array_equal(second, np.full(700, 11))


@pytest.mark.parametrize("weak", [False, True])
def test_commitment_and_weak_types(stand_in, programs, weak):
    stand_in.library.stand_in_strict(0)
    stand_in.kernel("add1", 8, 8, 8, 8)(add1)
    bridge = new_bridge(waits=True)
    exe = programs.add1(weak=weak)
    device = jax.devices("cpu")[0]
    for x, committed in (
        (jnp.ones(20), False),
        (np.ones(20, "f4"), False),
        (jax.device_put(np.ones(20, "f4"), device), True),
    ):
        (y,) = exe.call(bridge, [x])
        assert y.committed is committed
        assert y.weak_type is weak
        assert y.devices() == {device}
        assert y.aval == jax.core.ShapedArray((20,), np.dtype("f4"), weak_type=weak)
        (z,) = exe.call(bridge, [y])
        assert z.committed is committed
        np.testing.assert_array_equal(z, np.full(20, 3))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     ml_dtypes.bfloat16, "float32", "float64", "complex64", "complex128", "float8_e4m3fn"],
    ids=lambda d: np.dtype(d).name,
)  # fmt: skip
def test_every_dtype_comes_through(stand_in, programs, dtype):
    stand_in.library.stand_in_strict(0)
    stand_in.kernel("copy")(lambda launch: None)
    bridge = new_bridge(waits=True)
    with jax.enable_x64(True):
        exe = programs.executable(
            "sized",
            [(dtype, (-1,), "x"), ("int64", (1,), "n")],
            [(dtype, 1)],
            size_arguments=[1],
            kernel={"symbol": "copy"},
        )
        x = jnp.asarray(np.arange(128) % 2).astype(dtype)  # the program reads 4 * n bytes
        count = 32 // np.dtype(dtype).itemsize
        for n in (np.array([count]), jnp.array([count])):
            (y,) = exe.call(bridge, [x, n])
            assert y.dtype == np.dtype(dtype)
            used = min(count, 4 * count // np.dtype(dtype).itemsize)
            np.testing.assert_array_equal(
                np.asarray(y)[:used].view("u1"), np.asarray(x)[:used].view("u1")
            )


def test_arrays_that_jax_has_not_finished_are_ordered_on_the_stream(added):
    asked = []

    def order(array, stream):
        asked.append(stream)
        array.block_until_ready()

    bridge = new_bridge(waits=True, order=order)
    slow = jax.jit(lambda a: (a @ a @ a @ a)[0])
    a = jnp.eye(900) * 2
    slow(a).block_until_ready()
    for _ in range(3):
        (y,) = added.call(bridge, [slow(a)])
        np.testing.assert_array_equal(y, np.r_[17, np.ones(899)].astype("f4"))
    assert asked
    assert len(set(asked)) == 1


def test_arrays_of_another_device_are_refused(added):
    elsewhere = new_bridge(waits=True, sharding=lambda device: None)
    with pytest.raises(ral.ArgumentError) as error:
        added.call(elsewhere, [jnp.ones(20)])
    where = jax.devices("cpu")[0]
    assert error.value.args == (
        0, "device", f"is on {where}, the program runs on Stand-in 0 (cuda:0, sm_90)"
    )  # fmt: skip


def test_programs_and_bridges_of_another_kind(stand_in, programs, bridge, added):
    exe = programs.add1(platform="rocm", architecture="gfx942")
    with pytest.raises(DeviceError, match=r"compiled for gfx942, and was called on Stand-in 0"):
        exe.call(bridge, [jnp.ones(20)])


def test_our_donated_memory_takes_the_result(stand_in, pair, bridge):
    exe = pair(donated=[0, 1], reuses=[(0, 0), (1, 1)])
    x, y = exe.call(bridge, [np.ones(300, "f4"), np.ones(400, "f4")])
    before = x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer()
    a, b = exe.call(bridge, [x, y])
    assert x.is_deleted()
    assert y.is_deleted()
    assert (a.unsafe_buffer_pointer(), b.unsafe_buffer_pointer()) == before
    np.testing.assert_array_equal(a, np.full(300, 3))
    with pytest.raises(ral.ArgumentError, match="deleted"):
        exe.call(bridge, [x, b])


def test_donated_memory_with_a_view_is_left_alone(pair, bridge):
    exe = pair(donated=[0, 1], reuses=[(0, 0), (1, 1)])
    x, y = exe.call(bridge, [np.ones(300, "f4"), np.ones(400, "f4")])
    view = np.from_dlpack(x)
    a, _ = exe.call(bridge, [x, y])
    assert x.is_deleted()
    np.testing.assert_array_equal(view, np.full(300, 2))
    np.testing.assert_array_equal(a, np.full(300, 3))


def test_donated_memory_of_jax_is_deleted_behind_the_work(pair, bridge):
    exe = pair(donated=[0], reuses=[(0, 0)])
    x, y = jnp.ones(300), jnp.ones(400)
    a, _ = exe.call(bridge, [x, y])
    assert x.is_deleted()
    assert not y.is_deleted()
    np.testing.assert_array_equal(a, np.full(300, 2))


def test_an_array_that_is_donated_twice_is_refused(pair, bridge):
    exe = pair(donated=[0], reuses=[(0, 0)])
    x = jnp.ones(300)
    with pytest.raises(ral.ArgumentError, match="is donated and is argument 1, too"):
        exe.call(bridge, [x, x])
    assert not x.is_deleted()


def test_results_are_donated_to_jax(bridge, added):
    (y,) = added.call(bridge, [jnp.ones(300)])
    z = jax.jit(lambda a: a + 1, donate_argnums=0)(y)
    np.testing.assert_array_equal(z, np.full(300, 3))
    with pytest.raises(ral.ArgumentError, match="deleted"):
        added.call(bridge, [y])


def test_deleted_results_give_their_memory_back(stand_in, bridge, added):
    added.call(bridge, [jnp.ones(3000)])
    gc.collect()
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    (y,) = added.call(bridge, [jnp.ones(3000)])
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] > held
    y.delete()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held
    for _ in range(100):
        added.call(bridge, [jnp.ones(3000)])
    gc.collect()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held


class Misaligned:
    """An array of the device as another framework may have made it."""

    def __init__(self, data):
        self.data = data
        self.aval = jax.core.ShapedArray(data.shape, data.dtype)
        self.sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
        self._committed = False

    def is_deleted(self):
        return False

    def is_ready(self):
        return True

    def unsafe_buffer_pointer(self):
        return self.data.ctypes.data


def test_misaligned_arrays_are_copied_and_counted(added):
    raw = np.zeros(4 * 64 + 64, "u1")
    start = -raw.ctypes.data % 64 + 8
    x = raw[start : start + 256].view("f4")
    x[:] = np.arange(64)
    bridge = new_bridge(waits=True, array_type=Misaligned)
    (y,) = added.call(bridge, [Misaligned(x)])
    np.testing.assert_array_equal(y, np.arange(64) + 1)
    assert added.copies == ([1], 256)
    x[:] += 1
    np.testing.assert_array_equal(added.call(bridge, [Misaligned(x)])[0], np.arange(64) + 2)


def test_failures_lose_nothing(stand_in, bridge, added, pair):
    (y,) = added.call(bridge, [jnp.ones(300)])
    del y
    gc.collect()
    held = ral.gpu_pool_stats("cuda")["in_use_bytes"]
    for i in range(30):
        if i % 3 == 0:
            stand_in.library.stand_in_refuse_launch(0, LAUNCH_OUT_OF_RESOURCES)
        elif i % 3 == 1:
            stand_in.library.stand_in_fault(0, ILLEGAL_ADDRESS)
        else:
            ral.gpu_pool_trim("cuda")
            stand_in.memory(100)
        with pytest.raises((DeviceError, MemoryError)):
            added.call(bridge, [jnp.ones(500)])
        stand_in.library.stand_in_reset()
        stand_in.library.stand_in_strict(0)
        np.testing.assert_array_equal(added.call(bridge, [jnp.ones(20)])[0], np.full(20, 2))
    gc.collect()
    assert ral.gpu_pool_stats("cuda")["in_use_bytes"] == held


def test_out_of_memory_collects_what_is_dead(stand_in, bridge, added):
    class Cycle:
        pass

    ral.gpu_pool_trim("cuda")
    stand_in.memory(stand_in.count("bytes") + (10 << 20))
    threshold = gc.get_threshold()
    gc.set_threshold(0)  # it runs when it is asked to
    try:
        cycle = Cycle()
        cycle.me, cycle.array = cycle, added.call(bridge, [jnp.ones(1 << 20)])
        del cycle
        x = jnp.ones(1 << 20)
        np.testing.assert_array_equal(added.call(bridge, [x])[0], np.full(1 << 20, 2))
    finally:
        gc.set_threshold(*threshold)


def test_eight_threads(added, bridge):
    def work(seed: int) -> None:
        x = jnp.full(100 + seed, float(seed))
        for _ in range(20):
            (y,) = added.call(bridge, [x])
            (z,) = added.call(bridge, [y * 1])
            assert (np.asarray(z) == seed + 2).all()

    at_once(work, range(8))
