"""Packed weights: made of what the first call is given and of arrays that come twice."""

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc import ral
from tests.children import at_once, forked

DIRECT, READY, FILL = 0, 1, 2


pytestmark = pytest.mark.usefixtures("no_packs")


def status(exe, bridge, x, w):
    y, answer = exe.call(bridge, [x, w]) if bridge else exe.run_numpy([x, w])
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) + 2 * np.asarray(w))
    return int(answer)


def test_policy(standins, bridge):
    exe = standins.pack()
    x, w = jnp.ones(5), jnp.arange(5.0)
    assert [status(exe, bridge, x, w) for _ in range(3)] == [FILL, READY, READY]
    # The first argument is not packable: it may change at every call.
    assert [status(exe, bridge, jnp.full(5, float(i)), w) for i in range(3)] == [READY] * 3
    # Another array with equal contents is another buffer.
    other = jnp.arange(5.0)
    assert [status(exe, bridge, x, other) for _ in range(3)] == [DIRECT, FILL, READY]
    assert status(exe, bridge, x, w) == READY


def test_fresh_arrays_are_not_packed(standins, bridge):
    exe = standins.pack()
    before = ral.pack_stats()["filled"]
    for i in range(20):  # as a rule the address of the dead one is used again
        first = i == 0
        assert status(exe, bridge, jnp.ones(5), jnp.full(5, float(i))) == (
            FILL if first else DIRECT
        )
    assert ral.pack_stats()["filled"] == before + 1


def test_an_array_passed_twice_was_not_seen_before(standins, bridge):
    exe = standins.executable(
        "pack",
        [("float32", (-1,)), ("float32", (-1,))],
        [("float32", 1, False), ("int32", 0, False)],
        pack_layouts=["twice"],
        packable=[0, 1],
    )
    v, w = jnp.ones(4), jnp.arange(4.0)
    assert [status(exe, bridge, v, v) for _ in range(2)] == [FILL, READY]
    assert [status(exe, bridge, w, w) for _ in range(3)] == [DIRECT, FILL, READY]


def test_mutable_arguments_are_never_packed(standins, bridge):
    exe = standins.pack()
    w = np.arange(5, dtype="f4")
    for i in range(4):
        w[0] = i
        assert status(exe, bridge, jnp.ones(5), w) == DIRECT
        assert status(exe, None, np.ones(5, "f4"), w) == DIRECT


def test_a_call_that_needs_a_copy_often_makes_one_of_its_own(standins, bridge):
    exe = standins.executable(
        "pack_loop",
        [("float32", (-1,)), ("float32", (-1,))],
        [("float32", 1, False), ("int32", 0, False)],
        pack_layouts=["loop"],
        packable=[1],
    )
    x, w = jnp.ones(5), jnp.arange(5.0)
    packs, held = ral.pack_stats()["packs"], []
    for i in range(4):  # the third use makes it, and the next call starts anew
        assert status(exe, bridge, x, np.full(5, i, "f4")) == 211
        assert status(exe, None, np.ones(5, "f4"), np.full(5, i, "f4")) == 211
        held.append(ral.pool_stats()["in_use_blocks"])
    assert ral.pack_stats()["packs"] == packs
    assert max(held) == held[0]
    # A kept copy comes before one for the call.
    assert [status(exe, bridge, x, w) for _ in range(2)] == [21111, 11111]
    other = jnp.arange(5.0)
    assert [status(exe, bridge, x, other) for _ in range(3)] == [211, 21111, 11111]


def test_equal_layouts_are_shared_between_executables(standins, bridge):
    x, w = jnp.ones(5), jnp.arange(5.0)
    first, second, other = standins.pack("twice"), standins.pack("twice"), standins.pack("other")
    assert [status(first, bridge, x, w) for _ in range(2)] == [FILL, READY]
    assert status(second, bridge, x, w) == READY
    assert [status(other, bridge, x, w) for _ in range(2)] == [FILL, READY]
    assert ral.pack_stats()["packs"] == 2


def test_packs_die_with_the_array(standins, bridge):
    exe = standins.pack()
    baseline = ral.pack_stats()
    held = ral.pool_stats()["in_use_blocks"]
    w = jnp.arange(1000.0)
    x = jnp.ones(1000)
    for _ in range(3):
        status(exe, bridge, x, w)
    assert ral.pack_stats()["packs"] == baseline["packs"] + 1
    assert ral.pack_stats()["bytes"] >= 4000
    del w
    gc.collect()
    after = ral.pack_stats()
    assert (after["packs"], after["bytes"]) == (baseline["packs"], baseline["bytes"])
    assert after["owners"] == baseline["owners"]
    assert ral.pool_stats()["in_use_blocks"] == held


def test_packs_of_arrays_in_a_reference_cycle(standins, bridge):
    class Cycle:
        pass

    exe = standins.pack()
    owners = ral.pack_stats()["owners"]
    cycle = Cycle()
    cycle.me, cycle.w = cycle, jnp.arange(8.0)
    for _ in range(3):
        status(exe, bridge, jnp.ones(8), cycle.w)
    del cycle
    gc.collect()
    assert ral.pack_stats()["owners"] == owners
    assert ral.pack_stats()["packs"] == 0


def test_deleted_and_donated_arrays_are_refused(standins, bridge):
    exe = standins.pack()
    x = jnp.ones(5)
    donate = jax.jit(lambda a: a + 1, donate_argnums=0)
    for kill in (lambda a: a.delete(), donate):
        w = jnp.arange(5.0)
        for _ in range(3):
            status(exe, bridge, x, w)
        kill(w)
        with pytest.raises(ral.ArgumentError, match="deleted"):
            exe.call(bridge, [x, w])
    del w
    gc.collect()
    assert ral.pack_stats()["packs"] == 0


def test_constants_are_packed_on_first_use(standins, bridge):
    def exe():
        return standins.executable(
            "pack_constant",
            [("float32", (-1,))],
            [("float32", 1, False), ("int32", 0, False)],
            constants=[np.arange(6, dtype="f4")],
            pack_layouts=["constant"],
        )

    one = exe()
    packs = ral.pack_stats()["packs"]
    want = 1 + 2 * np.arange(6)
    for expected in (FILL, READY, READY):
        y, answer = one.run_numpy([np.ones(6, "f4")])
        assert answer == expected
        np.testing.assert_array_equal(y, want)
    assert exe().call(bridge, [jnp.ones(6)])[1] == FILL
    del one
    gc.collect()
    assert ral.pack_stats()["packs"] == packs


def test_one_filler_the_others_go_on_without(standins, bridge):
    exe = standins.pack("slow")
    x, w = jnp.ones(17), jnp.arange(17.0)  # 17: the filler takes 100 ms
    answers = []
    at_once(lambda _: answers.append(status(exe, bridge, x, w)), range(16))
    assert answers.count(FILL) == 1
    assert status(exe, bridge, x, w) == READY


def test_clear_waits_for_readers_and_packs_come_back(standins, bridge):
    exe = standins.pack("cleared")
    x, w = jnp.ones(17), jnp.arange(17.0)
    filler = threading.Thread(target=status, args=(exe, bridge, x, w))
    filler.start()
    ral.pack_clear()
    filler.join()
    ral.pack_clear()
    assert ral.pack_stats()["packs"] == ral.pack_stats()["bytes"] == 0
    assert [status(exe, bridge, x, w) for _ in range(2)] == [FILL, READY]

    stop = threading.Event()
    wrong = []

    def work():
        while not stop.is_set():
            try:
                status(exe, bridge, jnp.ones(5), weights)
            except AssertionError as error:
                wrong.append(error)

    weights = jnp.arange(5.0)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        ral.pack_clear()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert wrong == []


def test_memory_is_bounded(standins):
    code = f"""
import jax, jax.numpy as jnp
from shlo_disc import ral
from tests.ral.conftest import Standins, new_bridge
exe, bridge = Standins({str(standins.path)!r}).pack(), new_bridge(jax.devices()[0])
x, ws = jnp.ones(1000), [jnp.arange(1000.0) for _ in range(5)]
for _ in range(3):
    answers = [int(exe.call(bridge, [x, w])[1]) for w in ws]
stats = ral.pack_stats()
print(answers, stats["packs"], stats["bytes"] <= 10_000, stats["refused"] > 0)
"""
    assert forked(code, SHLO_DISC_PACK_BYTES="10000") == "[1, 1, 0, 0, 0] 2 True True"
