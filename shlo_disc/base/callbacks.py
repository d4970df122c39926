"""Python functions that compiled programs call.

A custom call names its function by its target, `shlo_disc.callback.<number>`. A process uses each
number once. The lowered program and its executable own the :class:`PythonCallback`, so the function
goes with them.
"""

from __future__ import annotations

import itertools
import re
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

_PREFIX = "shlo_disc.callback."
_TARGET = re.compile(re.escape(_PREFIX) + r"\d+")
_numbers = itertools.count(1)
_living: weakref.WeakValueDictionary[str, PythonCallback] = weakref.WeakValueDictionary()


class _State(threading.local):
    failure: BaseException | None = None
    attempts: Attempts | None = None


_state = _State()

Operands = Sequence[tuple[bytes, tuple[int, ...]]]
Results = Sequence[tuple[memoryview, tuple[int, ...]]]


class PythonCallback:
    """A function of NumPy arrays, with the dtypes of what it takes and returns.

    `results_of(arrays, shapes)` returns one array for each of `shapes`. A pure function is not
    called for results without elements.
    """

    def __init__(
        self,
        results_of: Callable[[list[np.ndarray], list[tuple[int, ...]]], Sequence[np.ndarray]],
        operands: Sequence[np.dtype[Any]],
        results: Sequence[np.dtype[Any]],
        *,
        is_pure: bool,
    ) -> None:
        self._results_of = results_of
        self._operands, self._results = tuple(operands), tuple(results)
        self._is_pure = is_pure
        self.target = f"{_PREFIX}{next(_numbers)}"
        _living[self.target] = self

    def __call__(self, operands: Operands, results: Results) -> str | None:
        """A call of the runtime; None, or the text of an error.

        Behind the operands and results of the function comes the token that orders effects.
        """
        given, taken = operands[: len(self._operands)], results[: len(self._results)]
        shapes = [sizes for _, sizes in taken]
        if self._is_pure and shapes and all(0 in sizes for sizes in shapes):
            return None  # as XLA
        try:
            arrays = [
                np.frombuffer(data, dtype).reshape(sizes)
                for (data, sizes), dtype in zip(given, self._operands, strict=True)
            ]
            found = self._found(arrays, shapes)
            for (memory, sizes), dtype, array in zip(taken, self._results, found, strict=True):
                np.frombuffer(memory, dtype).reshape(sizes)[...] = array
        except BaseException as error:
            _state.failure = error
            return f"CpuCallback error calling callback: {traceback.format_exc().rstrip()}"
        return None

    def _found(
        self, arrays: list[np.ndarray], shapes: list[tuple[int, ...]]
    ) -> Sequence[np.ndarray]:
        """The results, of an earlier attempt if there is one."""
        attempts = _state.attempts
        if attempts is None:
            return self._results_of(arrays, shapes)
        if attempts.position == len(attempts.results):
            _state.attempts = None  # calls that the function makes are not of this program
            try:
                attempts.results.append(self._results_of(arrays, shapes))
            finally:
                _state.attempts = attempts
        attempts.position += 1
        return attempts.results[attempts.position - 1]


class Attempts:
    """Results of callbacks, in order, of a program that may be run once more from its start."""

    def __init__(self) -> None:
        self.results: list[Sequence[np.ndarray]] = []
        self.position = 0
        """How many of them the attempt has had."""


@contextmanager
def attempts() -> Iterator[Attempts]:
    """In this thread, callbacks of a second attempt give the results of the first one.

    An attempt begins with `position = 0`. Up to where the last one ended, it makes the same calls.
    """
    before, _state.attempts = _state.attempts, Attempts()
    try:
        yield _state.attempts
    finally:
        _state.attempts = before


def is_callback(target: str) -> bool:
    """True for the custom-call target of a :class:`PythonCallback`."""
    return target.startswith(_PREFIX)


def without_numbers(text: str) -> tuple[str, list[str]]:
    """A program without the numbers of its callbacks, and their targets in order.

    Equal programs are equal so; the numbers are those of one process.
    """
    targets = [t for t in dict.fromkeys(_TARGET.findall(text)) if t in _living]
    places = {target: f"\0callback {place}" for place, target in enumerate(targets)}
    return _TARGET.sub(lambda found: places.get(found[0], found[0]), text), targets


def callback_of(target: str) -> PythonCallback | None:
    """The callback that is the target of a custom call; None if it is gone."""
    return _living.get(target)


def last_failure() -> BaseException | None:
    """The exception that ended the last callback to fail in this thread; forgotten then."""
    error, _state.failure = _state.failure, None
    return error
