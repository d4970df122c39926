"""The buffer pool: aligned, recycled, bounded, nothing lost."""

import gc
import os

import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc import ral
from tests.children import forked

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_pool():
    gc.collect()
    ral.pool_trim()
    yield
    gc.collect()


def change(before, name):
    return ral.pool_stats()[name] - before[name]


@pytest.mark.parametrize(
    "count",
    [0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4095, 4097, 80_000, 524_288, 700_001],
)
def test_blocks_are_aligned_and_large_enough(standins, count):
    x = np.arange(count, dtype="f4")
    (y,) = standins.copy("float32", 1).run_numpy([x])
    assert y.ctypes.data % 64 == 0
    if y.nbytes >= 2 * MIB:
        assert y.ctypes.data % (2 * MIB) == 0
    np.testing.assert_array_equal(y, x)
    # Masked code may read one vector beyond the end.
    beyond = (np.ctypeslib.ctypes.c_char * 64).from_address(y.ctypes.data + y.nbytes)
    assert len(bytes(beyond)) == 64


def test_memory_of_a_dead_result_is_used_again(standins, bridge):
    exe = standins.copy("float32", 1)
    x = np.ones(3 * MIB // 4, "f4")
    (y,) = exe.run_numpy([x])
    address = y.ctypes.data
    del y
    (y,) = exe.run_numpy([x])
    assert y.ctypes.data == address
    # Through JAX, which drops arrays lazily: two blocks serve any number of calls.
    (z,) = exe.call(bridge, [x])
    before = ral.pool_stats()
    addresses = set()
    for _ in range(20):
        (z,) = exe.call(bridge, [x])
        addresses.add(z.unsafe_buffer_pointer())
    assert len(addresses) <= 2
    assert change(before, "misses") <= 2


def test_views_keep_memory_alive(standins, bridge):
    exe = standins.copy("float32", 1)
    (y,) = exe.call(bridge, [np.arange(100, dtype="f4")])
    view = np.asarray(y)[50:]
    (plain,) = exe.run_numpy([np.arange(100, dtype="f4")])
    tail = plain[50:]
    del y, plain
    for _ in range(20):
        exe.call(bridge, [np.zeros(100, "f4")])
        exe.run_numpy([np.zeros(100, "f4")])
    np.testing.assert_array_equal(view, np.arange(50, 100))
    np.testing.assert_array_equal(tail, np.arange(50, 100))


def test_statistics_return_to_baseline(standins, bridge):
    exe = standins.add1()
    gc.collect()
    before = ral.pool_stats()
    held = [exe.call(bridge, [jnp.ones((n, 100))])[0] for n in (0, 1, 5, 7, 5000)]
    held += [exe.run_numpy([np.ones((n, 100), "f4")])[0] for n in (0, 1, 5, 7, 5000)]
    assert change(before, "in_use_blocks") == 10
    assert change(before, "in_use_bytes") >= 2 * 4 * 100 * 5013
    held.clear()
    gc.collect()
    assert change(before, "in_use_blocks") == 0
    assert change(before, "in_use_bytes") == 0
    idle = ral.pool_stats()["idle_bytes"]
    assert idle > 0
    assert ral.pool_trim() == idle
    assert ral.pool_stats()["idle_bytes"] == ral.pool_stats()["idle_blocks"] == 0


def test_results_take_at_most_twice_their_size(standins):
    exe = standins.copy("float32", 1)
    (big,) = exe.run_numpy([np.ones(1 << 20, "f4")])
    address = big.ctypes.data
    del big
    (small,) = exe.run_numpy([np.ones(1 << 18, "f4")])
    assert small.ctypes.data != address
    (similar,) = exe.run_numpy([np.ones(600_000, "f4")])
    assert similar.ctypes.data == address


def test_idle_memory_is_bounded_oldest_first(standins):
    code = f"""
import numpy as np
from shlo_disc import ral
from tests.ral.conftest import Standins
exe = Standins({str(standins.path)!r}).copy("float32", 1)
limit = ral.pool_stats()["limit_bytes"]
held = [exe.run_numpy([np.ones(n << 18, "f4")])[0] for n in (1, 2, 4, 8, 3)]
last = held[-1].ctypes.data
while held:
    held.pop(0)
    assert ral.pool_stats()["idle_bytes"] <= limit
print(limit, exe.run_numpy([np.ones(3 << 18, "f4")])[0].ctypes.data == last)
"""
    assert forked(code, SHLO_DISC_POOL_BYTES=str(8 * MIB)).split() == [str(8 * MIB), "True"]
    assert forked(code.replace("== last", "!= 0"), SHLO_DISC_POOL_BYTES="0").split() == [
        "0",
        "True",
    ]


def test_default_limit_is_a_quarter_of_memory():
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    got = forked(
        "from shlo_disc import ral; print(ral.pool_stats()['limit_bytes'])",
        SHLO_DISC_POOL_BYTES="",
    )
    assert got == str(memory // 4)


def test_too_large_is_a_memory_error(standins):
    exe = standins.executable(
        "copy", [("int8", (-1,))], [("int8", 1, False)], prepare="enormous", constants=[np.ones(1)]
    )
    before = ral.pool_stats()["in_use_blocks"]
    with pytest.raises(MemoryError):
        exe.run_numpy([np.ones(3, "i1")])
    assert ral.pool_stats()["in_use_blocks"] == before
