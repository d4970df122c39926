"""Which combinations of parameters the default tests take, and which are slow."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def slow(cases: Iterable[Any]) -> list[Any]:
    """`cases` that the default tests leave out; one of several arguments is a tuple."""
    return [_slow(case) for case in cases]


def all_but(left_out: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """`cases` in their order; those in `left_out` are slow."""
    return [_slow(case) if case in left_out else case for case in cases]


def crossed(*axes: Iterable[Any], also: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
    """All combinations of values of `axes`, each a case of so many arguments.

    The default tests take one case for each value of the longest axis. The values of the other
    axes come in turn, so each value of every axis is in one. They take `also`, too. Other
    combinations are slow. Raises ValueError where `also` has one that is none of them.
    """
    values = [list(axis) for axis in axes]
    every = list(itertools.product(*values))
    turns = [itertools.cycle(axis) for axis in values]
    kept = [tuple(next(turn) for turn in turns) for _ in range(max(map(len, values)))]
    if any(case not in every for case in also):
        raise ValueError(f"cases that are no combinations: {also}")
    kept += also
    return [case if case in kept else _slow(case) for case in every]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
