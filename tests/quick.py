"""Parameters of tests, of which only some belong to the default run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["each_once", "others_slow"]


def others_slow(values: Iterable[Any], quick: Collection[Any] | Callable[[Any], bool]) -> list[Any]:
    """`values` for `pytest.mark.parametrize`; those that are not `quick` are slow tests."""
    is_quick = quick if callable(quick) else quick.__contains__
    return [value if is_quick(value) else _slow(value) for value in values]


def each_once(first: Collection[Any], second: Sequence[Any]) -> list[Any]:
    """All pairs as parameters. Quick are one pair for each of `first`, with `second` in turn."""
    quick = {(a, second[k % len(second)]) for k, a in enumerate(first)}
    return others_slow(itertools.product(first, second), quick)


def _slow(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
