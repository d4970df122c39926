"""Other threads get the interpreter soon while something is compiled, and Python makes no full
collections (`base/threads.py`).
"""

import gc
import importlib
import sys
import threading

import jax
import jax.numpy as jnp
import pytest

import shlo_disc
from shlo_disc.base.threads import COLLECTIONS, SWITCH_SECONDS, lets_others_run
from tests.children import python


@pytest.fixture
def usual():
    """Python's interval before a test, which must be there after it, as its thresholds of `gc`."""
    before, collections = sys.getswitchinterval(), gc.get_threshold()
    assert before > SWITCH_SECONDS
    assert collections[0]
    assert collections != COLLECTIONS
    yield before
    assert sys.getswitchinterval() == pytest.approx(before)
    assert gc.get_threshold() == collections


def is_short():
    return sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)


@pytest.mark.usefixtures("usual")
def test_traces_compilations_and_derivatives_are_interrupted(monkeypatch):
    seen = []
    compiler = importlib.import_module("shlo_disc.driver.stages")
    whole = compiler.compile_module

    def watched(*args, **kwargs):
        seen.append(("compiles", is_short()))
        return whole(*args, **kwargs)

    monkeypatch.setattr(compiler, "compile_module", watched)

    @jax.custom_vjp
    def twice(x):
        return 2 * x

    def backward(_, slope):
        seen.append(("derives", is_short()))
        return (2 * slope,)

    twice.defvjp(lambda x: (2 * x, None), backward)

    @shlo_disc.jit
    def f(x):
        seen.append(("traces", is_short()))
        return twice(x).sum()

    x = jnp.ones(3)
    f(x)
    jax.grad(f)(x)
    assert {kind for kind, _ in seen} == {"traces", "compiles", "derives"}
    assert all(short for _, short in seen), seen


def test_the_last_of_several_restores(usual):
    inside, leave = threading.Barrier(3), threading.Event()

    @lets_others_run
    def work():
        inside.wait(30)
        leave.wait(30)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(30)
    assert is_short()
    assert lets_others_run(lambda: 7)() == 7
    assert is_short()  # two are still inside
    leave.set()
    for thread in threads:
        thread.join()


def test_errors_restore(usual):
    @lets_others_run
    def fails():
        raise KeyError

    with pytest.raises(KeyError):
        fails()


def test_an_interval_that_is_set_meanwhile_stays(usual):
    @lets_others_run
    def sets():
        sys.setswitchinterval(0.02)

    sets()
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(usual)


def test_a_shorter_interval_stays(usual):
    sys.setswitchinterval(1e-5)
    lets_others_run(lambda: None)()
    assert sys.getswitchinterval() == pytest.approx(1e-5)
    sys.setswitchinterval(usual)


def test_no_full_collection_while_something_is_compiled(usual):
    full = []

    def seen(phase, info):
        full.append(info["generation"] == 2)

    def many():
        return [[k] for k in range(100_000)]

    gc.freeze()  # a full collection waits for more new objects than a quarter of the old ones
    gc.collect()
    gc.callbacks.append(seen)
    try:
        lets_others_run(many)()
        during = full.copy()
        many()
    finally:
        gc.callbacks.remove(seen)
        gc.unfreeze()
    assert during
    assert not any(during)
    assert any(full)  # so many objects lead to one


@pytest.mark.parametrize("thresholds", [(0, 10, 10), (123, 4, 5)])
def test_thresholds_of_the_program_stay(usual, thresholds):
    before = gc.get_threshold()

    @lets_others_run
    def sets():
        gc.set_threshold(*thresholds)

    sets()
    assert gc.get_threshold() == thresholds
    if not thresholds[0]:  # the program collects by itself
        lets_others_run(lambda: None)()
        assert lets_others_run(gc.get_threshold)() == thresholds
    gc.set_threshold(*before)


def test_an_import_makes_no_full_collection():
    code = """
        import gc, jax, jax.numpy
        gc.collect()
        gc.freeze()  # a few survivors are many
        gc.set_threshold(100, 1, 1)
        found = []
        gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
        import shlo_disc
        del found[:]  # of what it imports to begin with
        shlo_disc.jit
        print(2 in found, gc.get_threshold())
        """
    assert python(code) == "False (100, 1, 1)"


def test_a_forked_child_has_the_usual_interval():
    code = """
        import os, sys, threading, warnings
        warnings.simplefilter("ignore")
        from shlo_disc.base.threads import lets_others_run

        inside, leave, before = threading.Event(), threading.Event(), sys.getswitchinterval()

        @lets_others_run
        def work():
            inside.set()
            leave.wait()

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            os._exit(abs(sys.getswitchinterval() - before) > 1e-6)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
        print(status, abs(sys.getswitchinterval() - before) < 1e-6)
    """
    assert python(code) == "0 True"
