"""A serving process: calls while other functions are compiled, and forks."""

import statistics
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.children import at_once, python

THREADS = 16


def served(x, w):
    return jnp.tanh(x @ w).sum(-1)


def expected(x, w):
    return np.tanh(x.astype(np.float64) @ w).sum(-1)


def compiles_until(stop):
    """Compile new functions, one after the other."""
    number = 0
    while not stop.is_set():
        number += 1
        f = shlo_disc.jit(lambda x, k=number: jnp.sin(x) * k + x.sum())
        f(np.ones(3, np.float32))


@pytest.fixture
def compiling():
    """Another thread compiles all the time."""
    stop = threading.Event()
    thread = threading.Thread(target=compiles_until, args=(stop,))
    thread.start()
    yield
    stop.set()
    thread.join()


def rows(*sizes):
    return np.random.default_rng(0).standard_normal(sizes, np.float32)


def test_a_call_does_not_wait_for_another_version():
    """Two cores serve the compiler's threads, too: single calls may lose a slice of time."""
    f = shlo_disc.jit(lambda x, w, others: served(x, w) + sum(jnp.sin(y).sum() for y in others))
    w = rows(16, 16)
    f(rows(3, 16), w, [])
    stop, seconds = threading.Event(), []

    def other_versions():
        count = 0
        while not stop.is_set():
            count += 1
            f(rows(3, 16), w, [rows(2, 3)] * count)

    thread = threading.Thread(target=other_versions)
    thread.start()
    for n in range(400):
        x = jnp.asarray(rows(1 + n % 40, 16))  # known sizes, and new ones of a finished version
        start = time.perf_counter()
        f(x, w, [])
        seconds.append(time.perf_counter() - start)
        time.sleep(0.001)
    stop.set()
    thread.join()
    assert statistics.median(seconds) < 0.005
    assert statistics.quantiles(seconds, n=10)[-1] < 0.02
    assert f.cache_info().misses > 2


def calls_from_threads(count):
    f = shlo_disc.jit(served)
    w = rows(16, 16)
    f(rows(3, 16), w)

    def work(number):
        for k in range(count):
            x = rows(1 + (number + k) % 9, 16)
            np.testing.assert_allclose(f(x, w), expected(x, w), rtol=1e-4, atol=1e-5)

    at_once(work, range(THREADS))
    assert f.cache_info().misses == 1


@pytest.mark.usefixtures("compiling")
def test_threads_call_while_another_compiles():
    calls_from_threads(60)


@pytest.mark.slow
@pytest.mark.usefixtures("compiling")
def test_threads_call_ten_thousand_times_in_flat_memory():
    calls_from_threads(1000)
    shlo_disc.trim()
    before = resident_bytes()
    calls_from_threads(10_000)
    shlo_disc.trim()
    assert resident_bytes() - before < 32 << 20


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_forked_child_calls_what_was_compiled():
    """What a child cannot compile is an error at once. `docs/serving.md` says why nobody else may
    be inside JAX at the fork; `tests/ral/test_thread_pool.py` forks under load without JAX.
    """
    code = """
        import os, signal, warnings
        warnings.simplefilter("ignore")
        import numpy as np
        import shlo_disc
        from tests.test_serving import expected, rows, served

        f, w = shlo_disc.jit(served), rows(16, 16)
        f(rows(3, 16), w)
        ended = []
        for number in range(8):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(60)  # a hang ends here
                    for count in (3, 20 + number):  # a known shape and a new one
                        x = rows(count, 16)
                        np.testing.assert_allclose(f(x, w), expected(x, w), rtol=1e-4, atol=1e-5)
                    others = (
                        lambda: shlo_disc.jit(lambda x: x * 2)(x),
                        lambda: f(x.astype(np.float16), w),
                    )
                    try:
                        others[number % 2]()
                    except shlo_disc.ForkError as error:
                        status = "forked process" not in str(error)
                finally:
                    os._exit(status)
            ended.append(os.waitpid(child, 0)[1])
        print(ended)
    """
    assert python(code, timeout=600) == str([0] * 8)


@pytest.mark.parametrize("kind", ["lock", "reentrant_lock"])
def test_a_lock_held_by_another_thread_is_free_in_a_child(kind):
    code = f"""
        import os, signal, threading
        from shlo_disc.base import locks

        guard = locks.{kind}()
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with guard:
                entered.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            with guard:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
        print(status)
    """
    assert python(code, timeout=600) == "0"


def test_trim_gives_back_memory_and_later_calls_are_right():
    f = shlo_disc.jit(served)
    w = jnp.asarray(rows(300, 300))
    x = rows(40, 300)
    want = expected(x, np.asarray(w))
    for _ in range(3):
        np.testing.assert_allclose(f(x, w), want, rtol=1e-3, atol=1e-3)
    assert shlo_disc.trim() > 0
    numbers = shlo_disc.stats()
    assert numbers["pool"]["idle_bytes"] == numbers["packs"]["bytes"] == 0
    assert numbers["machine_code"] == {"entries": 0, "bytes": 0}
    for _ in range(3):
        np.testing.assert_allclose(f(x, w), want, rtol=1e-3, atol=1e-3)
