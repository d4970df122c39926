"""Loops that read operands across their innermost factor, through tiles in shared memory.

A task is a tile of U x V elements. U of them are along the factor u in which the operands are
contiguous, V along the innermost factor. The threads of a block load the tile along u, wait, and
compute the results along v. Both sides touch whole lines of memory. A row of the tile is longer
than V by what spreads a column over the banks of shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.plan import Input, Kernel, Launch, Output
from shlo_disc.lower.schedule.transposed_operands import Staged, use
from shlo_disc.lower.tasks.odometer import digits_of
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.mlir import ir

__all__ = ["tiled_launch"]

_SIDE, _SHORT_SIDE = 64, 32
"""The sides of a square tile: 32 elements of 4 bytes are a line of memory. Longer sides are for
narrow elements, and give a thread more loads at once."""

_LARGE_TILE = 8
"""Bytes of all operands at one place up to which the sides are long: tiles of 32 KiB leave room for
six blocks."""

_BANK = 4
"""Bytes of a bank of shared memory."""


def tiled_launch(
    name: str,
    machine: Machine,
    block: ir.Block,
    roots: Sequence[ir.Value],
    shapes: ShapeAnalysis,
    factors: Sequence[Expr],
    staged: Sequence[Staged],
) -> Launch:
    """The launch that computes `roots` over `factors`; `staged` operands go through tiles."""
    return _Tiled(machine, block, roots, shapes, factors, staged).launch(name)


def _sides(staged: Sequence[Staged], factors: Sequence[Expr]) -> tuple[int, int]:
    """(U, V), powers of two. A short side makes the other one longer."""
    size = sum(element_of(item.value).bytes for item in staged)
    side = _SIDE if size <= _LARGE_TILE else _SHORT_SIDE
    u, v = _at_most(side, factors[staged[0].along]), _at_most(side, factors[-1])
    return (side * side // v if v < side else u), (side * side // u if u < side else v)


def _at_most(side: int, size: Expr) -> int:
    """The least power of two that `size` fits in, up to `side`."""
    if not size.is_const or size.value >= side:
        return side
    return 1 << max(0, size.value - 1).bit_length()


class _Tiled:
    """Writes the kernel."""

    def __init__(
        self,
        machine: Machine,
        block: ir.Block,
        roots: Sequence[ir.Value],
        shapes: ShapeAnalysis,
        factors: Sequence[Expr],
        staged: Sequence[Staged],
    ) -> None:
        self.roots, self.staged, self.factors = roots, staged, factors
        self.along = staged[0].along
        self.b, self.arguments = GroupBuilder(machine, THREADS), Arguments()
        self.space = Space(self.b, shapes.constraints, factors, 0)
        self.e = Elemental(self.b, self.space, shapes, block, self.arguments)
        self.u, self.v = _sides(staged, factors)
        self.grid = list(factors)
        self.grid[self.along] = ceil_div(factors[self.along], self.u)
        self.grid[-1] = ceil_div(factors[-1], self.v)
        self.tiles = []
        for item in staged:
            element = element_of(item.value)
            row = self.v + max(1, _BANK // element.bytes)
            self.tiles.append((self.b.shared(element.storage, self.u * row), row))

    def launch(self, name: str) -> Launch:
        """The finished kernel."""
        b = self.b
        self.digits = digits_of(b, b.lo, [b.param(size) for size in self.grid])
        self.first_u = self.digits[self.along] * self.u
        self.first_v = self.digits[-1] * self.v
        sizes = b.param(self.factors[self.along]), b.param(self.factors[-1])
        count = self.u * self.v // THREADS
        with b.loop(0, count, 1, hint="k") as loop:
            n = loop.index * THREADS + b.thread
            self._fill(n % self.u, n // self.u, *sizes)
        b.barrier_of_block()
        with b.loop(0, count, 1, hint="k") as loop:
            n = loop.index * THREADS + b.thread
            self._store(n // self.v, n % self.v, *sizes)
        text, params = b.finish()
        buffers, tasks = tuple(self.arguments.buffers), Expr.product(self.grid)
        return Launch(Kernel(name, text), buffers, params, tasks, Expr.const(1))

    def _at(self, u: IndexValue, v: IndexValue) -> None:
        """From now on, these are the current indices of the two factors."""
        self.space.tiles = [Ix(digit) for digit in self.digits]
        self.space.tiles[self.along], self.space.tiles[-1] = Ix(u), Ix(v)

    def _fill(self, u: IndexValue, v: IndexValue, rows: IndexValue, columns: IndexValue) -> None:
        """Load element (u, v) of the tile; behind the operand, its last one once more."""
        b, e = self.b, self.e
        self._at(b.min(self.first_u + u, rows - 1), b.min(self.first_v + v, columns - 1))
        for item, (tile, row) in zip(self.staged, self.tiles, strict=True):
            slot = e.arguments.slot(Input(e.inputs[item.value]))
            source = b.memref(slot, element_of(item.value).storage)
            tile.store(source.load(self.space.linear(item.index).base), u * row + v)

    def _store(self, u: IndexValue, v: IndexValue, rows: IndexValue, columns: IndexValue) -> None:
        """Compute the results at (u, v), where there are any."""
        b, e, end = self.b, self.e, len(self.factors)

        def load(k: int, mask: Mask | None) -> Register:
            tile, row = self.tiles[k]
            return tile.load(u * row + v, readonly=False)

        at_u, at_v = self.first_u + u, self.first_v + v
        with b.if_((at_u < rows) & (at_v < columns)):
            self._at(at_u, at_v)
            use(e, self.staged, load)
            values = [
                e.value_at(root, self.space.root(e.shape(root), 0, end)) for root in self.roots
            ]
            place = self.space.force(self.space.flat_lazy(0, end))
            for k, (root, value) in enumerate(zip(self.roots, values, strict=True)):
                e.store(Output(k), element_of(root), value, place, None)
