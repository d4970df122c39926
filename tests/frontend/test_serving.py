"""Functions in a serving process: threads, compilation in the background, warm-up, numbers."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.jax.calls import compiler as module
from tests.frontend.conftest import Standin

SECONDS = 30
"""More than any test here takes: who waits longer waits for ever."""


def ones(*shape):
    return jnp.ones(shape, jnp.float32)


class Gate:
    """A compiler that waits: `entered` is set when it is called, it goes on after `open`."""

    def __init__(self, monkeypatch, error=None):
        self.entered, self._opened = threading.Event(), threading.Event()
        self._error = error
        self.closed = True
        monkeypatch.setattr(module, "_compile", self)

    def __call__(self, exported, **options):
        if self.closed:
            self.entered.set()
            assert self._opened.wait(SECONDS)
        if self._error is not None:
            raise self._error
        return Standin(exported, **options)

    def open(self):
        self.closed = False
        self._opened.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as made:
        yield made


def test_a_call_that_fits_waits_for_no_compilation(monkeypatch, pool):
    f = shlo_disc.jit(lambda x: x * 2)
    f(ones(3))
    gate = Gate(monkeypatch)
    other = pool.submit(f, ones(3, 3))
    assert gate.entered.wait(SECONDS)
    for n in (3, 5, 9):  # known and new sizes of the finished version
        assert pool.submit(f, ones(n)).result(SECONDS).shape == (n,)
    also = pool.submit(f, ones(2, 4))  # fits the version that is being compiled
    assert not other.done()
    assert not also.done()
    gate.open()
    assert other.result(SECONDS).shape == (3, 3)
    assert also.result(SECONDS).shape == (2, 4)
    assert f.cache_info().misses == 2


def test_the_cache_is_cleared_while_a_version_is_compiled(monkeypatch, pool):
    f = shlo_disc.jit(lambda x: x * 2)
    gate = Gate(monkeypatch)
    first = pool.submit(f, ones(3))
    assert gate.entered.wait(SECONDS)
    f.cache_clear()
    gate.open()
    assert first.result(SECONDS).shape == (3,)
    assert f.cache_info().currsize == 0
    assert f(ones(4)).shape == (4,)
    assert f.cache_info().currsize == 1


def test_functions_that_call_each_other_while_traced_in_two_threads(pool):
    """Each asks the other for numbers while it is traced itself, and both are at it at once."""
    meet = threading.Barrier(2, timeout=SECONDS)

    def make(other):
        @shlo_disc.jit
        def function(x, inner):
            if not inner.shape[0] > 1:
                return x
            if meet.n_waiting < 2 and not met:
                meet.wait()
                met.append(True)
            with jax.ensure_compile_time_eval():
                number = float(other()(np.ones(2, np.float32), np.ones(1, np.float32)).sum())
            return x * number

        return function

    met: list[bool] = []
    f = make(lambda: g)
    g = make(lambda: f)
    calls = [pool.submit(h, ones(4), ones(3)) for h in (f, g)]
    for call in calls:
        np.testing.assert_array_equal(call.result(SECONDS), 2 * np.ones(4))


def test_jax_runs_the_calls_until_a_thread_has_compiled(monkeypatch, caplog, standin):
    caplog.set_level(logging.INFO, "shlo_disc")
    gate = Gate(monkeypatch)
    f = shlo_disc.jit(lambda x: x * 2, background=True)
    for n in (3, 4, 3):
        np.testing.assert_array_equal(f(ones(n)), 2 * np.ones(n))
    assert gate.entered.wait(SECONDS)
    assert f.cache_info().misses == 0
    assert "is being compiled; jax.jit runs its calls meanwhile" in f.explain()
    assert f.statistics()["compiling"] == 1
    gate.open()
    end = time.monotonic() + SECONDS
    while f.statistics()["compiling"] and time.monotonic() < end:
        time.sleep(0.01)
    np.testing.assert_array_equal(f(ones(5)), 2 * np.ones(5))
    assert [made.calls for made in standin] == [1]
    assert f.cache_info().misses == 1
    assert "meanwhile" not in f.explain()
    told = [m for m in caplog.messages if "in the background" in m or "was compiled in" in m]
    assert len(told) == 2


def test_an_error_of_the_background_is_raised_by_a_later_call(monkeypatch, caplog):
    gate = Gate(monkeypatch, shlo_disc.UnsupportedError("no such kernel"))
    f = shlo_disc.jit(lambda x: x * 2, background=True, dynamic=True)
    np.testing.assert_array_equal(f(ones(3)), 2 * np.ones(3))
    gate.open()
    end = time.monotonic() + SECONDS
    while f.statistics()["compiling"] and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(shlo_disc.UnsupportedError, match="no such kernel"):
        f(ones(3))
    assert any("could not be compiled in the background" in m for m in caplog.messages)


def test_warmup_compiles_and_runs_nothing(standin):
    f = shlo_disc.jit(lambda x, scale=1.0: x * scale)
    f.warmup((jax.ShapeDtypeStruct((3, 5), np.float32),), {"x": ones(7), "scale": 2.0})
    assert [made.calls for made in standin] == [0, 0]
    f(ones(6, 2))
    f(x=ones(4), scale=3.0)
    assert f.cache_info()[:2] == (2, 2)
    with pytest.raises(TypeError):
        f.warmup(("a word",))


def test_the_first_call_is_timed_in_the_log(caplog):
    caplog.set_level(logging.INFO, "shlo_disc")
    f = shlo_disc.jit(lambda x: x * 2)
    for n in (3, 4, 5):
        f(ones(n))
    (told,) = [m for m in caplog.messages if "the first call took" in m]
    assert told.endswith(" s")


def test_numbers_of_the_process():
    f = shlo_disc.jit(lambda x: x * 2, name="counted")
    for n in (3, 4, 3):
        f(ones(n))
    numbers = shlo_disc.stats()
    (row,) = [row for row in numbers["functions"] if row["name"] == "counted"]
    assert row == {"name": "counted", "versions": 1, "compilations": 1, "hits": 2,
                   "compiling": 0, "by_xla": False,
                   "traces": {"symbols": 1, "numbers": 1}}  # fmt: skip
    assert numbers["compilations"] >= 1
    assert numbers["hits"] >= 2
    assert {"in_use_bytes", "idle_bytes", "hits", "misses"} <= numbers["pool"].keys()
    assert {"bytes", "filled", "refused"} <= numbers["packs"].keys()
    assert numbers["machine_code"].keys() == {"entries", "bytes"}
    del f
    assert "counted" not in [row["name"] for row in shlo_disc.stats()["functions"]]
