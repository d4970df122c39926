"""Which device has which block: tiles and groups against what they mean, device by device."""

import itertools

import numpy as np
import pytest

from shlo_disc.jax.derived.splits.blocks import Grid, numbers_along


def test_numbers_along_an_axis_are_those_of_the_tiles():
    tiles = np.array([[[3, 1]], [[0, 2]]])  # two blocks of rows, each on two devices
    assert numbers_along(tiles, 0) == (1, 0, 1, 0)
    assert numbers_along(tiles, 1) == (0, 0, 0, 0)


GRIDS = {
    "nothing": {},
    "one": {"b": (0, 1, 2, 3, 4, 5, 6, 7)},
    "replicas": {"b": (0, 0, 1, 1, 2, 2, 3, 3)},
    "two": {"b": (0, 0, 0, 0, 1, 1, 1, 1), "t": (0, 1, 2, 3, 0, 1, 2, 3)},
    "two with replicas": {"b": (0, 0, 0, 0, 1, 1, 1, 1), "t": (1, 0, 0, 1, 0, 1, 1, 0)},
}


@pytest.mark.parametrize("name", GRIDS)
def test_tiles_and_groups(name):
    grid = Grid(8, GRIDS[name])
    assert grid.is_even
    tiles = grid.tiles(3, {"b": 2, "t": 0})
    for symbol, axis in (("b", 2), ("t", 0)):
        assert tiles.shape[axis] == grid.count(symbol)
        if symbol in grid.numbers:
            assert numbers_along(tiles, axis) == grid.numbers[symbol]
    assert sorted(tiles.flat) == list(range(8))
    for count in range(len(grid.numbers) + 1):
        for over in itertools.combinations(grid.numbers, count):
            groups = grid.groups(over)
            assert sorted(d for group in groups for d in group) == list(range(8))
            for group in groups:
                own = [tuple(grid.numbers[s][d] for s in over) for d in group]
                others = {
                    tuple(grid.numbers[s][d] for s in grid.numbers if s not in over) for d in group
                }
                assert len(others) == 1
                expected = itertools.product(*(range(grid.count(s)) for s in over))
                assert sorted(own) == sorted(expected)


def test_an_uneven_grid():
    assert not Grid(4, {"b": (0, 0, 0, 1)}).is_even
    assert not Grid(4, {"b": (0, 0, 1, 1), "t": (0, 0, 1, 1)}).is_even
