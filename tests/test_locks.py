"""Locks, and what is made once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shlo_disc.base.locks import once
from shlo_disc.executables.bridge import jax_bridge


def test_threads_that_come_together_get_one_object():
    together = threading.Barrier(4, timeout=60)
    ran = []

    @once
    def make(key: int) -> object:
        ran.append(key)
        return object()

    def ask(key: int) -> object:
        together.wait()
        return make(key)

    with ThreadPoolExecutor(4) as pool:
        for key in range(50):
            assert len(set(pool.map(ask, [key] * 4))) == 1
    assert ran == list(range(50))


def test_a_function_that_asks_for_itself():
    @once
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert factorial(10) == 3628800


def test_an_error_is_not_kept():
    answers = iter([ZeroDivisionError("first"), 7])

    @once
    def make() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ZeroDivisionError, match="first"):
        make()
    assert make() == make() == 7


def test_there_is_one_bridge():
    assert jax_bridge() is jax_bridge()
