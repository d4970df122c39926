"""Loops that read operands across their innermost factor, through tiles in shared memory.

A task is a tile of U x V elements. U of them are along the factor u in which the operands are
contiguous, V along the innermost factor. The threads of a block load the tile along u, wait, and
compute the results along v. Both sides touch whole lines of memory.

Where both sizes are whole vectors, a thread loads vectors along u and stores vectors along v. A row
of the tile then has the vectors of one v. Their order spreads a column over the banks of shared
memory. Else a row has one u, and is longer than V for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.gpu.builder import THREADS, GroupBuilder
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.variants import assuming_divisible
from shlo_disc.lower.kernels.names import fusion_name
from shlo_disc.lower.kernels.odometer import digits_of
from shlo_disc.lower.plan import All, Condition, If, Input, Launch, Step
from shlo_disc.lower.schedule.transposed_operands import Staged, use
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.index import Ix, Space
from shlo_disc.lower.values.typed import IndexValue, Mask, MemRef, Register, vector_type
from shlo_disc.passes.match_single_op import LoopRecord
from shlo_disc.passes.records import Planned

_SIDE, _SHORT_SIDE = 64, 32
"""The sides of a square tile: 32 elements of 4 bytes are a line of memory. Longer sides are for
narrow elements, and give a thread more loads at once."""

_LARGE_TILE = 8
"""Bytes of all operands at one place up to which the sides are long: tiles of 32 KiB leave room for
six blocks."""

_BANK = 4
"""Bytes of a bank of shared memory."""

_BANKS_OF_VECTORS = 8
"""Vectors of 16 bytes that fill all banks."""

_MOST_VECTORS = 4
"""Vectors that a thread loads before it stores one."""


def tiled(
    fusion: Planned[LoopRecord],
    machine: Machine,
    factors: Sequence[Expr],
    staged: Sequence[Staged],
    lanes: int,
) -> Step:
    """The step that computes a fusion over `factors`; `staged` operands go through tiles.

    `lanes`: elements that a thread computes at once where sizes allow it.
    """
    along, inner, shapes = factors[staged[0].along], factors[-1], fusion.shapes

    def is_whole(size: Expr) -> bool:
        return shapes.constraints.divisible(size, lanes)

    def by_element() -> Launch:
        return _Tiled(fusion, machine, factors, staged).launch()

    if lanes < 2 or any(size.is_const and not is_whole(size) for size in (along, inner)):
        return by_element()
    known = shapes
    for size in (along, inner):
        known = assuming_divisible(known, size, lanes)
    in_vectors = _InVectors(replace(fusion, shapes=known), machine, factors, staged, lanes)
    by_vector = in_vectors.launch()
    asked = dict.fromkeys(size for size in (along, inner) if not is_whole(size))
    if not asked:
        return by_vector
    conditions = tuple(Condition(size % lanes, "==", Expr.const(0)) for size in asked)
    return If(All(conditions), (by_vector,), (by_element(),))


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
        fusion: Planned[LoopRecord],
        machine: Machine,
        factors: Sequence[Expr],
        staged: Sequence[Staged],
        lanes: int = 0,
    ) -> None:
        self.fusion, self.staged, self.factors, self.lanes = fusion, staged, factors, lanes
        self.along = staged[0].along
        b, shapes = GroupBuilder(machine, THREADS), fusion.shapes
        self.b, self.space = b, Space(b, shapes.constraints, factors, lanes)
        self.e = Elemental(b, self.space, shapes, fusion.block, Arguments())
        self.u, self.v = self.sides()
        self.grid = list(factors)
        self.grid[self.along] = ceil_div(factors[self.along], self.u)
        self.grid[-1] = ceil_div(factors[-1], self.v)
        self.tiles = [self.tile(element_of(item.value)) for item in staged]

    def sides(self) -> tuple[int, int]:
        """U and V."""
        return _sides(self.staged, self.factors)

    def tile(self, element: ElementType) -> tuple[MemRef, int]:
        """Shared memory for a tile of `element`, and the length of its rows."""
        row = self.v + max(1, _BANK // element.bytes)
        return self.b.shared(element.storage, self.u * row), row

    def launch(self) -> Launch:
        """The finished kernel."""
        b = self.b
        self.digits = digits_of(b, b.lo, [b.param(size) for size in self.grid])
        self.first_u = self.digits[self.along] * self.u
        self.first_v = self.digits[-1] * self.v
        sizes = b.param(self.factors[self.along]), b.param(self.factors[-1])
        self.fill_all(*sizes)
        b.barrier_of_block()
        count = self.u * self.v // THREADS // max(1, self.lanes)
        with b.loop(0, count, 1, hint="k") as loop:
            self._store(*self.place(loop.index * THREADS + b.thread), *sizes)
        name = fusion_name(self.fusion.op, "loop")
        return self.e.arguments.launch(b.finish(), name, Expr.product(self.grid))

    def place(self, n: IndexValue) -> tuple[IndexValue, IndexValue]:
        """(u, v) in the tile of what is computed as number `n`."""
        return n // self.v, n % self.v

    def loaded(self, k: int, u: IndexValue, v: IndexValue) -> Register:
        """What the tile of operand `k` has at (u, v)."""
        tile, row = self.tiles[k]
        return tile.load(u * row + v, readonly=False)

    def fill_all(self, rows: IndexValue, columns: IndexValue) -> None:
        """Load the tile."""
        b = self.b
        with b.loop(0, self.u * self.v // THREADS, 1, hint="k") as loop:
            n = loop.index * THREADS + b.thread
            self._fill(n % self.u, n // self.u, rows, columns)

    def at(self, u: Ix, v: Ix) -> None:
        """From now on, these are the current indices of the two factors."""
        self.space.tiles = [Ix(digit) for digit in self.digits]
        self.space.tiles[self.along], self.space.tiles[-1] = u, v

    def _fill(self, u: IndexValue, v: IndexValue, rows: IndexValue, columns: IndexValue) -> None:
        """Load element (u, v) of the tile; behind the operand, its last one once more."""
        b, e = self.b, self.e
        at_u, at_v = b.min(self.first_u + u, rows - 1), b.min(self.first_v + v, columns - 1)
        self.at(Ix(at_u), Ix(at_v))
        for item, (tile, row) in zip(self.staged, self.tiles, strict=True):
            slot = e.arguments.slot(Input(e.inputs[item.value]))
            source = b.memref(slot, element_of(item.value).storage)
            tile.store(source.load(self.space.linear(item.index).base), u * row + v)

    def _store(self, u: IndexValue, v: IndexValue, rows: IndexValue, columns: IndexValue) -> None:
        """Compute the results at (u, v), where there are any."""
        b = self.b

        def load(k: int, mask: Mask | None) -> Register:
            return self.loaded(k, u, v)

        at_u, at_v = self.first_u + u, self.first_v + v
        with b.if_((at_u < rows) & (at_v < columns)):
            lanes = self.lanes
            self.at(Ix(at_u), Ix(at_v, 1, multiple=lanes) if lanes else Ix(at_v))
            use(self.e, self.staged, load)
            self.e.store_all(self.fusion.record.roots, None)


class _InVectors(_Tiled):
    """Writes the kernel for sizes that are whole vectors.

    A row of a tile has the vectors 0, 1, ... of one v, where vector c is at the place c xor v / L,
    of lowest bits. A warp that reads 8 vectors along v at 4 neighbours u finds all banks.
    """

    def sides(self) -> tuple[int, int]:
        """See `_Tiled.sides`; a thread has some vectors."""
        lanes, size = self.lanes, sum(element_of(item.value).bytes for item in self.staged)
        count = _MOST_VECTORS if size <= _LARGE_TILE else _MOST_VECTORS // 2
        sizes = self.factors[self.along], self.factors[-1]
        u, v = (_whole(size, lanes) for size in sizes)
        while u * v < count * THREADS * lanes:
            # A side that holds all of a known size stays as it is, if only one does.
            full = [
                size.is_const and size.value <= side
                for size, side in zip(sizes, (u, v), strict=True)
            ]
            grows_u = u < v if full[0] == full[1] else full[1]
            u, v = (2 * u, v) if grows_u else (u, 2 * v)
        return u, v

    def tile(self, element: ElementType) -> tuple[MemRef, int]:
        """See `_Tiled.tile`."""
        return self.b.shared(element.storage, self.u * self.v), self.u

    def place(self, n: IndexValue) -> tuple[IndexValue, IndexValue]:
        """See `_Tiled.place`: neighbours take vectors of the same u, up to eight."""
        vectors = self.v // self.lanes
        few = min(vectors, _BANKS_OF_VECTORS)
        rows = self.b.machine.warp // few
        vector = n % few + n // (few * rows) % (vectors // few) * few
        u = n // few % rows + n // (rows * vectors) * rows
        return u, vector * self.lanes

    def fill_all(self, rows: IndexValue, columns: IndexValue) -> None:
        """See `_Tiled.fill_all`: all loads of a thread first."""
        b, e, lanes = self.b, self.e, self.lanes
        vectors, found = self.u // lanes, []
        for k in range(self.u * self.v // lanes // THREADS):
            n = b.thread + k * THREADS
            vector, v = n % vectors, n // vectors
            at_u = b.min(self.first_u + vector * lanes, rows - lanes)
            at_v = b.min(self.first_v + v, columns - 1)
            self.at(Ix(at_u, 1, multiple=lanes), Ix(at_v))
            for item, (tile, row) in zip(self.staged, self.tiles, strict=True):
                slot = e.arguments.slot(Input(e.inputs[item.value]))
                source = b.memref(slot, element_of(item.value).storage)
                value = e.load_from(source, self.space.linear(item.index), None, readonly=True)
                found.append((tile, value, v * row + self._swizzled(vector, v) * lanes))
        for tile, value, place in found:
            tile.vector_store(value, place, aligned=True)

    def loaded(self, k: int, u: IndexValue, v: IndexValue) -> Register:
        """See `_Tiled.loaded`: a vector along v."""
        b, lanes = self.b, self.lanes
        tile, row = self.tiles[k]
        first = v * row + self._swizzled(u // lanes, v) * lanes + u % lanes
        found = b.constant(0, vector_type(lanes, tile.element))
        for lane in range(lanes):
            one = tile.load(first + lane * row, readonly=False)
            found = b.insert(one, found, b.index(lane))
        return found

    def _swizzled(self, vector: IndexValue, v: IndexValue) -> IndexValue:
        """The place of a vector in the row of v."""
        turns = min(self.u // self.lanes, _BANKS_OF_VECTORS)
        return self.b.op("arith.xori", vector, v // self.lanes % turns)


def _whole(size: Expr, lanes: int) -> int:
    """A side for `size`: whole vectors."""
    return max(lanes, _at_most(_SIDE, size))
