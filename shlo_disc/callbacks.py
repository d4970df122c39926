"""Python functions that compiled programs call.

A custom call names its function by its target, `shlo_disc.callback.<number>`. Numbers are never used
again in a process. The lowered program and its executable own the :class:`PythonCallback`, so the
function goes with them.
"""

from __future__ import annotations

import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["PythonCallback", "callback_of", "is_callback", "last_failure"]

_PREFIX = "shlo_disc.callback."
_numbers = itertools.count(1)
_living: weakref.WeakValueDictionary[str, PythonCallback] = weakref.WeakValueDictionary()
_failures = threading.local()

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

        Results behind those of the function are the token that orders effects.
        """
        shapes = [sizes for _, sizes in results[: len(self._results)]]
        if self._is_pure and shapes and all(0 in sizes for sizes in shapes):
            return None  # as XLA
        try:
            arrays = [
                np.frombuffer(data, dtype).reshape(sizes)
                for (data, sizes), dtype in zip(operands, self._operands)
            ]
            found = self._results_of(arrays, shapes)
            for (memory, sizes), dtype, array in zip(results, self._results, found):
                np.frombuffer(memory, dtype).reshape(sizes)[...] = array
        except BaseException as error:
            _failures.last = error
            return f"CpuCallback error calling callback: {traceback.format_exc().rstrip()}"
        return None


def is_callback(target: str) -> bool:
    """True for the custom-call target of a :class:`PythonCallback`."""
    return target.startswith(_PREFIX)


def callback_of(target: str) -> PythonCallback | None:
    """The callback that is the target of a custom call; None if it is gone."""
    return _living.get(target)


def last_failure() -> BaseException | None:
    """The exception that ended the last callback to fail in this thread; forgotten then."""
    error: BaseException | None = getattr(_failures, "last", None)
    _failures.last = None
    return error
