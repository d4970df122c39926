"""Which device has which block of a program: arithmetic of places in a list of devices.

`places[d]` is the number of the block, along one symbol, that the device at place `d` has. Blocks
along several symbols make a grid if each combination of numbers has as many devices.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shlo_disc.base.records import dataclass


def numbers_along(tiles: np.ndarray[Any, Any], axis: int) -> tuple[int, ...]:
    """The block of each device along an axis of an array that is cut in `tiles`."""
    numbers = [0] * tiles.size
    for place in itertools.product(*map(range, tiles.shape)):
        numbers[int(tiles[place])] = place[axis]
    return tuple(numbers)


@dataclass(frozen=True)
class Grid:
    """The blocks along some symbols, and their devices."""

    devices: int
    numbers: Mapping[str, tuple[int, ...]]
    """For each symbol that is split, the number of each device's block."""

    @property
    def is_even(self) -> bool:
        """True if every combination of blocks has as many devices."""
        found = Counter(self._at(device, self.numbers) for device in range(self.devices))
        combinations = np.prod([self.count(symbol) for symbol in self.numbers], dtype=int)
        return len(found) == combinations and len(set(found.values())) <= 1

    def count(self, symbol: str) -> int:
        """The number of blocks along a symbol; 1 if it is not split."""
        return max(self.numbers[symbol]) + 1 if symbol in self.numbers else 1

    def _at(self, device: int, symbols: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.numbers[symbol][device] for symbol in symbols)

    def tiles(self, rank: int, axes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """The tiles of an array that is cut along these axes: `rank` dimensions and replicas."""
        axes = {symbol: axis for symbol, axis in axes.items() if symbol in self.numbers}
        shape = [1] * rank
        for symbol, axis in axes.items():
            shape[axis] = self.count(symbol)
        in_order = sorted(axes, key=lambda symbol: axes[symbol])
        order = sorted(range(self.devices), key=lambda device: self._at(device, in_order))
        return np.array(order).reshape(*shape, -1)

    def groups(self, symbols: Sequence[str]) -> list[list[int]]:
        """Devices whose values add up: one for each block along `symbols`, of the same others."""
        others = [symbol for symbol in self.numbers if symbol not in symbols]
        seen: Counter[tuple[int, ...]] = Counter()
        found: dict[tuple[tuple[int, ...], int], list[int]] = {}
        for device in range(self.devices):
            here = self._at(device, self.numbers)
            found.setdefault((self._at(device, others), seen[here]), []).append(device)
            seen[here] += 1
        return list(found.values())
