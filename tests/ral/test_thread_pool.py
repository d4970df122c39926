"""parallel_for: every task once, from any thread, in a default floating-point environment."""

import ctypes
import platform
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shlo_disc import ral
from tests.children import at_once, forked, python

X86 = platform.machine() == "x86_64"
FTZ_DAZ_ROUND_UP = 0x1F80 | 0x8040 | 0x4000


def launch(standins, kernel, arrays, extent, grain, params=(), scratch_bytes=0):
    pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
    sizes = (ctypes.c_int64 * max(1, len(params)))(*params)
    ral.parallel_for(
        standins.address(kernel),
        ctypes.addressof(pointers),
        ctypes.addressof(sizes),
        extent,
        grain,
        scratch_bytes,
    )


def counts(standins, extent, grain):
    # One beyond the end on both sides shows chunks that reach too far.
    array = np.zeros(max(extent, 0) + 2, np.int64)
    launch(standins, "count_kernel", [array[1:]], extent, grain)
    return array


@settings(max_examples=60, deadline=None)
@given(extent=st.integers(-3, 5000), grain=st.integers(-1, 6000))
def test_every_task_runs_once(standins, extent, grain):
    array = counts(standins, extent, grain)
    assert array[0] == array[-1] == 0
    assert (array[1:-1] == 1).all()


def test_huge_extents_are_cut_without_overflow(standins):
    # The kernel does nothing, so the extent may be anything.
    for extent in (2**62, 2**63 - 1):
        ral.parallel_for(standins.address("nothing_kernel"), 0, 0, extent, 2**57)


def test_chunks_are_at_least_the_grain(standins):
    extent, grain = 100, 7
    who = np.zeros(extent, np.uint64)
    chunk = np.zeros(extent, np.int64)
    launch(standins, "who_kernel", [who, chunk], extent, grain)
    last = chunk[-1]
    assert (chunk[: extent - last] >= grain).all()


@pytest.mark.skipif(ral.num_threads() < 2, reason="one core: the caller works alone")
def test_several_threads_work(standins):
    who = np.zeros(64, np.uint64)
    chunk = np.zeros(64, np.int64)
    for _ in range(20):  # on a busy machine the others may come too late
        launch(standins, "who_kernel", [who, chunk], 64, 1)
        if len(set(who.tolist())) > 1:
            break
    assert 2 <= len(set(who.tolist())) <= ral.num_threads()
    assert ral.threads_started()
    # What is not worth a second thread stays on the caller's.
    launch(standins, "who_kernel", [who[:4], chunk[:4]], 4, 4)
    assert set(who[:4].tolist()) == {threading.get_ident()}


@pytest.mark.parametrize("scratch_bytes", [1, 64, 1000, 100_000])
def test_scratch_is_private_and_aligned(standins, scratch_bytes):
    errors = np.zeros(1, np.int64)

    def work(_):
        launch(standins, "scratch_kernel", [errors], 40, 1, [scratch_bytes], scratch_bytes)

    at_once(work, range(3))
    assert errors[0] == 0


def test_scratch_that_cannot_be_had_is_an_error(standins):
    array = np.zeros(100, np.int64)
    for grain in (1, 100):
        with pytest.raises(MemoryError):
            launch(standins, "count_kernel", [array], 100, grain, scratch_bytes=2**60)
    assert (counts(standins, 100, 1)[1:-1] == 1).all()


def test_sixteen_callers_at_once(standins):
    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            array = counts(standins, int(rng.integers(0, 3000)), int(rng.integers(1, 50)))
            assert not array[0]
            assert not array[-1]
            assert (array[1:-1] == 1).all()

    at_once(work, range(16))


def test_more_callers_than_job_slots(standins):
    def work(_):
        launch(standins, "who_kernel", [np.zeros(8, np.uint64), np.zeros(8, np.int64)], 8, 1)
        assert (counts(standins, 50, 1)[1:-1] == 1).all()

    at_once(work, range(100))


@pytest.mark.parametrize("n", [0, 1, 2, 31])
def test_nested(standins, n):
    exe = standins.executable(
        "nested",
        [("float32", (-1,))],
        [("int64", 1, False)],
        kernels=["nested_kernel", "inner_kernel"],
    )
    (got,) = exe.run_numpy([np.zeros(n, "f4")])
    np.testing.assert_array_equal(got, np.ones(7 * n))


@pytest.mark.skipif(not X86, reason="reads MXCSR")
def test_callers_floating_point_environment(standins):
    exe = standins.executable(
        "fp",
        [("float32", (-1,))],
        [("uint32", 1, False), ("float32", 1, False)],
        kernels=["fp_kernel"],
        guards=[],
    )
    get, set_ = standins.library.get_control, standins.library.set_control
    get.restype = ctypes.c_uint32
    set_.argtypes = [ctypes.c_uint32]
    before = get()
    try:
        for control in (FTZ_DAZ_ROUND_UP, 0x1F80, 0x1FBF, 0x9FC0):
            for n in (1, 400):
                x = np.zeros(n, "f4")
                set_(control)
                words, denormals = exe.run_numpy([x])
                after = get()
                set_(before)
                assert after == control
                assert set(words.tolist()) == {0x1F80}
                assert (denormals == np.float32(1e-40)).all()
            # Errors leave it alone, too.
            set_(control)
            with pytest.raises(ral.ArgumentError):
                exe.run_numpy([1.0, 2.0])
            assert get() == control
            set_(before)
            # parallel_for by itself, as FFI and native callers use it.
            words, denormals = np.zeros(300, np.uint32), np.zeros(300, "f4")
            set_(control)
            launch(standins, "fp_kernel", [words, denormals], 300, 1)
            after = get()
            set_(before)
            assert after == control
            assert set(words.tolist()) == {0x1F80}
            assert (denormals == np.float32(1e-40)).all()
    finally:
        set_(before)


@pytest.mark.parametrize(("setting", "threads"), [("1", "1"), ("5", "5")])
def test_thread_count_from_the_environment(setting, threads):
    code = "from shlo_disc import ral; print(ral.num_threads(), ral.threads_started())"
    assert forked(code, SHLO_DISC_NUM_THREADS=setting) == f"{threads} False"


@pytest.mark.parametrize("setting", ["", "0"])
def test_thread_count_defaults_to_the_cores_we_may_use(setting):
    code = """
        import os
        from shlo_disc import ral
        print(ral.num_threads() == len(os.sched_getaffinity(0)))
    """
    assert forked(code, SHLO_DISC_NUM_THREADS=setting) == "True"


def test_more_threads_than_cores(standins):
    code = f"""
        import sys, threading
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        import numpy as np
        from tests.ral.conftest import Standins
        from tests.ral.test_thread_pool import counts
        standins = Standins({str(standins.path)!r})
        for _ in range(300):
            assert (counts(standins, 97, 1)[1:-1] == 1).all()
        print(len(list(__import__('pathlib').Path('/proc/self/task').iterdir())) >= 13)
    """
    assert forked(code, SHLO_DISC_NUM_THREADS="13", JAX_PLATFORMS="cpu") == "True"


def test_a_limit_of_threads_is_the_calling_threads(standins):
    who, chunk = np.zeros(64, np.uint64), np.zeros(64, np.int64)
    assert ral.limit_threads(1) == 0
    try:
        for _ in range(20):
            launch(standins, "who_kernel", [who, chunk], 64, 1)
            assert set(who.tolist()) == {threading.get_ident()}
        other = []
        thread = threading.Thread(target=lambda: other.append(ral.limit_threads(5)))
        thread.start()
        thread.join(30)
        assert other == [0]
    finally:
        assert ral.limit_threads(-3) == 1
    assert ral.limit_threads(0) == 0


def test_no_more_threads_than_the_limit_work(standins):
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        import numpy as np
        from shlo_disc import ral
        from tests.ral.conftest import Standins
        from tests.ral.test_thread_pool import counts, launch
        standins = Standins({str(standins.path)!r})
        who, chunk = np.zeros(500, np.uint64), np.zeros(500, np.int64)
        most = []
        for limit in (2, 3, 0):
            ral.limit_threads(limit)
            number = 0
            for _ in range(100):
                launch(standins, "who_kernel", [who, chunk], 500, 1)
                number = max(number, len(set(who.tolist())))
                assert (counts(standins, 97, 1)[1:-1] == 1).all()
            most.append(number)
        assert most[0] <= 2 and most[1] <= 3, most
        print(max(most) > 1)
    """
    assert forked(code, SHLO_DISC_NUM_THREADS="8", JAX_PLATFORMS="cpu") == "True"


# A forked child of a process with threads waits for ever in a sanitizer's allocator.
@pytest.mark.unsanitized
def test_fork(standins):
    """A child forked while the pool and other threads are busy runs programs of its own."""
    code = f"""
        import os, signal, sys, threading, time, warnings
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        warnings.simplefilter("ignore")
        import numpy as np
        from shlo_disc import ral
        from tests.ral.conftest import Standins
        from tests.ral.test_thread_pool import counts

        standins = Standins({str(standins.path)!r})
        exe = standins.add1()

        def packing(n):
            return standins.executable(
                "pack_constant", [("float32", (-1,))], [("float32", 1, False), ("int32", 0, False)],
                constants=[np.ones(n, "f4")], pack_layouts=["fork"])

        pack = packing(5)
        x = np.ones((50, 60), "f4")
        stop, busy = threading.Event(), threading.Event()

        def work():
            while not stop.is_set():
                busy.wait()
                assert (exe.run_numpy([x])[0] == 2).all()
                assert (pack.run_numpy([np.ones(5, "f4")])[0] == 3).all()
                counts(standins, 500, 1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for attempt in range(15):
            if attempt % 5 == 0:  # somebody is reading packs when we fork: 17 fills slowly
                slow = threading.Thread(target=packing(17).run_numpy, args=([np.ones(17, "f4")],))
                slow.start()
            busy.set()
            time.sleep(0.03)
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a hang ends here
                assert not ral.threads_started()
                for _ in range(20):
                    assert (counts(standins, 500, 1)[1:-1] == 1).all()
                    assert (exe.run_numpy([x])[0] == 2).all()
                    assert (pack.run_numpy([np.ones(5, "f4")])[0] == 3).all()
                ral.pool_trim()
                ral.pack_clear()
                assert (pack.run_numpy([np.ones(5, "f4")])[0] == 3).all()
                assert ral.threads_started() == (ral.num_threads() > 1)
                os._exit(0)
            busy.clear()  # the child shares the cores with nobody
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        busy.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        print("ok")
    """
    # Up to eight workers are moved between cores. Beside moves for callers that take turns, Linux
    # 6.18 lets the parent wait up to 30 s for a child that has ended.
    assert python(code, timeout=300, SHLO_DISC_NUM_THREADS="9", JAX_PLATFORMS="cpu") == "ok"
