"""The harnesses of JAX by name, their arguments, and samples of them."""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from typing import Any

import numpy as np

AT_LEAST = 2
"""Harnesses of every group that come first in a sample, where the group has so many."""


@functools.cache
def harnesses() -> dict[str, Any]:
    """All harnesses of this JAX by full name; `jax_enable_x64` adds some."""
    from jax._src.internal_test_util import test_harnesses

    return {harness.fullname: harness for harness in test_harnesses.all_harnesses}


def group_of(name: str) -> str:
    """The group of a harness: most often the name of its primitive."""
    return harnesses()[name].group_name


def sample(count: int) -> list[str]:
    """Names of `count` harnesses, the same ones in every process; all where there are no more.

    Every group is there twice before any group is there three times. The other places are drawn
    from all harnesses alike.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(harnesses(), key=_draw):
        groups[group_of(name)].append(name)
    first = [
        names[turn]
        for turn in range(AT_LEAST)
        for names in sorted(groups.values(), key=lambda names: _draw(names[0]))
        if turn < len(names)
    ]
    taken = set(first)
    rest = [name for name in sorted(harnesses(), key=_draw) if name not in taken]
    return [*first, *rest][:count]


def arguments(name: str, draw: int = 0) -> list[np.ndarray]:
    """The arguments of a harness, other numbers for each `draw` where they are random."""
    rng = np.random.RandomState([_draw(name), draw])
    return [np.asarray(value) for value in harnesses()[name].dyn_args_maker(rng)]


def _draw(name: str) -> int:
    return zlib.crc32(name.encode())
