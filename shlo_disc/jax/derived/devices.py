"""A program on several devices: blocks of it where its arguments are cut along a split symbol.

XLA's partitioner decides how arrays are cut. Shardy is told by a rule which dimensions belong
together, and asks :class:`Blocks` what one device then runs. Whatever the proposal, that is the
program on blocks along symbols of `Program.splits`; other dimensions are gathered first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import custom_partitioning as _custom

from shlo_disc.jax.derived.derived import staged
from shlo_disc.jax.derived.program import Program, Sizes
from shlo_disc.jax.derived.splits.blocks import Grid, numbers_along
from shlo_disc.jax.derived.splits.splits import Split
from shlo_disc.jax.derived.splits.staged import Staged
from shlo_disc.jax.derived.splits.states import SUM, Kind
from shlo_disc.jax_private.jaxprs import without_mesh
from shlo_disc.jax_private.meshes import sharding_of_tiles, tiles_of

_partitioned: Any = _custom.custom_partitioning
_compound: Any = _custom.CompoundFactor
_mapping: Any = _custom.ArrayMapping
_rule_of: Any = _custom.SdyShardingRule
_psum: Any = jax.lax.psum
_AXIS = "shlo_disc_devices"

MOST_STAGES = 16
"""A program in more stages is not split: each is compiled by itself, and waits for all blocks."""

Run = Callable[[Program, Sizes, Sequence[Any]], Sequence[Any]]
"""Runs a program at sizes, in a trace, on arguments of these sizes."""


def mesh_of(count: int, platform: str) -> jax.sharding.Mesh | None:
    """A mesh that stands for any `count` devices of a platform; None for one, and where JAX has
    fewer.
    """
    if count == 1:
        return None
    devices = jax.devices(platform)[:count]
    return jax.sharding.Mesh(np.array(devices), (_AXIS,)) if len(devices) == count else None


class Blocks:
    """A program for several devices, at the sizes of the whole."""

    def __init__(self, program: Program, sizes: Sizes, run: Run) -> None:
        self._sizes = sizes
        self._run = run
        self._program = program
        values = dict(sizes)
        self._splits = [
            split
            for split in program.splits.values()
            if isinstance(split, Split) and values[split.symbol] > 1
        ]
        self._shapes = program.shapes(sizes)
        self._types = [aval.dtype for aval in program.out_avals]
        self._count = len(program.in_avals)

    def __call__(self, *arguments: Any) -> Any:
        """The results for arguments of the sizes of the whole, in a trace."""
        if not self._splits:
            return self._run(self._program, self._sizes, arguments)
        call = _partitioned(self._stand_in)
        call.def_partition(
            self._partition,
            infer_sharding_from_operands=self._infer,
            decode_shardings=False,
            sharding_rule=self._rule(),
        )
        return call(*arguments)

    def _stand_in(self, *arguments: Any) -> tuple[Any, ...]:
        """Arrays of the results' types: JAX asks for no more on several devices."""
        shapes = self._shapes[self._count :]
        return tuple(jnp.zeros(*pair) for pair in zip(shapes, self._types, strict=True))

    # -- what a device runs -----------------------------------------------------------------------

    def _in_stages(self, grid: Grid) -> Staged | None:
        """The program of a block, if blocks need more than their parts of arguments."""
        symbols = frozenset(grid.numbers)
        chosen = [split for split in self._splits if split.symbol in symbols]
        if not any(split.numbers or split.cuts for split in chosen):
            return None
        return staged(self._program, self._sizes, symbols)

    def _runs(self, staged: Staged | None, grid: Grid) -> bool:
        """True if the program of a block stands for the same as that of the whole."""
        if staged is None:
            return True
        sizes = _sizes_of(grid, self._sizes)
        return (
            grid.numbers.keys() <= staged.splits.keys()
            and len(staged.stages) <= MOST_STAGES
            and all(
                stage.program.constants == self._program.constants and stage.program.runs_at(sizes)
                for stage in staged.stages
            )
        )

    def _block(
        self, staged: Staged | None, grid: Grid, arguments: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The results of one block, in a trace; what is a sum over blocks is added up."""
        sizes, splits = _sizes_of(grid, self._sizes), self._splits
        if staged is None:
            made = self._run(self._program, sizes, arguments)
        else:
            splits = list(staged.splits.values())
            numbers = staged.number_values(dict(self._sizes))
            values = dict(zip(staged.arguments, [*arguments, *numbers], strict=True))
            for stage in staged.stages:
                outputs = self._run(stage.program, sizes, [values[v] for v in stage.inputs])
                for v, x in zip(stage.outputs, outputs, strict=True):
                    over = [split.symbol for split in splits if v in split.cuts]
                    values[v] = _added(x, grid, over)
            made = [staged.value(v, values) for v in staged.results]
        return tuple(
            _added(x, grid, [split.symbol for split in splits if split.results[k] is SUM])
            for k, x in enumerate(made)
        )

    # -- what the partitioner asks ----------------------------------------------------------------

    def _rule(self) -> Any:
        """Which dimensions are cut alike, for Shardy; all others are not cut."""
        values = dict(self._sizes)
        sizes: dict[str, int] = {}
        kept, alone = [], set()
        mappings = []
        for index, shape in enumerate(self._shapes):
            factors: list[Any] = []
            for axis, size in enumerate(shape):
                number = next(
                    (k for k, split in enumerate(self._splits) if split.states[index] == axis), None
                )
                other = f"u{index}x{axis}"
                if number is None:
                    factors.append(other)
                    kept.append(other)
                    continue
                factor, count = f"f{number}", values[self._splits[number].symbol]
                if size == count:
                    factors.append(factor)
                    alone.add(factor)
                else:
                    factors.append(_compound(factor, other))
                    kept.append(other)
                    sizes |= {factor: count, other: size // count}
            mappings.append(_mapping(*factors))
        sizes = {factor: size for factor, size in sizes.items() if factor not in alone}
        return _rule_of(
            tuple(mappings[: self._count]),
            tuple(mappings[self._count :]),
            need_replication_factors=tuple(kept),
            **sizes,
        )

    def _infer(self, mesh: Any, arguments: Sequence[Any], results: Any) -> Any:
        """Shardings of the results, where GSPMD asks in place of Shardy."""
        grid, _ = self._grid(mesh.size, [*arguments, *([None] * len(results))])
        return tuple(self._shardings(mesh, grid)[self._count :])

    def _partition(self, mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
        """What one device runs, and how arguments and results are cut."""
        grid, staged = self._grid(mesh.size, [*arguments, *results])

        def block(*parts: Any) -> tuple[Any, ...]:
            with without_mesh():  # JAX would give the adder of a sum a sharding
                return self._block(staged, grid, parts)

        shardings = self._shardings(mesh, grid)
        return mesh, block, tuple(shardings[self._count :]), tuple(shardings[: self._count])

    def _grid(self, devices: int, proposed: Sequence[Any]) -> tuple[Grid, Staged | None]:
        """The blocks that the proposed shardings ask for, as far as the program has such."""
        tiles = [
            None if x is None else tiles_of(x.sharding, len(shape))
            for x, shape in zip(proposed, self._shapes, strict=True)
        ]
        grid = self._grid_of(devices, tiles, self._splits)
        staged = self._in_stages(grid)
        if self._runs(staged, grid):
            return grid, staged
        alone = [split for split in self._splits if not split.numbers and not split.cuts]
        return self._grid_of(devices, tiles, alone), None

    def _grid_of(self, devices: int, tiles: Sequence[Any], splits: Sequence[Split]) -> Grid:
        grid = Grid(devices, {})
        for split in splits:
            for cut, axis in zip(tiles, split.states, strict=True):
                if cut is None or isinstance(axis, Kind) or cut.shape[axis] == 1:
                    continue
                new = Grid(devices, {**grid.numbers, split.symbol: numbers_along(cut, axis)})
                if self._may_have(new):
                    grid = new
                    break
        return grid

    def _may_have(self, grid: Grid) -> bool:
        values = dict(self._sizes)
        chosen = [split.states for split in self._splits if split.symbol in grid.numbers]
        for states in zip(*chosen, strict=True):
            axes = [axis for axis in states if not isinstance(axis, Kind)]
            if len(set(axes)) < len(axes):
                return False
        even = all(values[s] % grid.count(s) == 0 for s in grid.numbers)
        return even and grid.is_even and self._program.runs_at(_sizes_of(grid, self._sizes))

    def _shardings(self, mesh: jax.sharding.Mesh, grid: Grid) -> list[jax.sharding.Sharding]:
        devices = list(mesh.devices.flat)
        made = []
        for index, shape in enumerate(self._shapes):
            states = {split.symbol: split.states[index] for split in self._splits}
            axes = {s: axis for s, axis in states.items() if not isinstance(axis, Kind)}
            made.append(sharding_of_tiles(grid.tiles(len(shape), axes), devices))
        return made


def _sizes_of(grid: Grid, sizes: Sizes) -> Sizes:
    """The sizes of a block."""
    return tuple((symbol, value // grid.count(symbol)) for symbol, value in sizes)


def _added(value: Any, grid: Grid, symbols: Sequence[str]) -> Any:
    """The sum of the values of all blocks along these symbols."""
    over = [symbol for symbol in symbols if symbol in grid.numbers]
    return _psum(value, _AXIS, axis_index_groups=grid.groups(over)) if over else value
