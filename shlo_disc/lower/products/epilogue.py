"""Element-wise work on the sums while they are in cache: bias, activation, residual.

The finished sums of a register tile are read back from L1, one vector at a time. The element-wise
emitter computes everything up to the result of the fusion there. A loop, not the unrolled tile: an
activation is 50 instructions, and they are in the kernel once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.plan import Output
from shlo_disc.lower.products.asking import Asking
from shlo_disc.lower.products.places import tile_space
from shlo_disc.lower.schedule.contraction import Axis, Dense
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.elemental import Arguments, Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import convert
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import IndexValue, Mask, Register
from shlo_disc.passes.match_dense import Bands

E = TypeVar("E", bound=Elemental)


class ResultPlace(NamedTuple):
    """Where a vector of sums is."""

    batch: list[IndexValue]
    """The index along every batch axis."""
    row: IndexValue
    column: IndexValue
    """That of the first lane; of bands, in each."""


class Epilogue:
    """Computes elements of `dense.root` from finished sums, which are `dense.total`.

    Lanes off in `mask` may hold anything.
    """

    def __init__(
        self, dense: Dense, block: ir.Block, shapes: ShapeAnalysis, arguments: Arguments, lanes: int
    ) -> None:
        self.dense, self.block, self.shapes = dense, block, shapes
        self.arguments, self.lanes = arguments, lanes

    @property
    def reads_rows(self) -> bool:
        """True if it reads other memory than a vector of columns."""
        p = self.dense.problem
        factors = list(self.dense.sums.op.operands)
        sizes = [self.shapes.shape(x) for i, x in enumerate(self.block.arguments)
                 if i not in (p.a_input, p.b_input) and x not in factors]  # fmt: skip
        return any(Expr.product(x) not in (p.columns, Expr.const(1)) for x in sizes)

    def __call__(self, b: KernelBuilder, sums: Register, at: ResultPlace, mask: Mask) -> Register:
        """The results of `sums`, a vector of the compute type."""
        return self.at(b, sums, self._axes(at), mask)

    def at(
        self, b: KernelBuilder, sums: Register, axes: Sequence[tuple[Axis, Ix]], mask: Mask | None
    ) -> Register:
        """Like a call, at an index along any axes of the result, one of them in lanes."""
        dense, p = self.dense, self.dense.problem
        emitter, here = self._emitter(Elemental, b, axes, mask)
        total = convert(b, sums, p.compute, p.c)

        def known(index: Index, _: Mask | None) -> Register:
            if index != here:
                raise InternalError(f"an epilogue reads its dot at another place: {dense.root}")
            return total

        emitter.overrides[dense.total] = known
        return b.broadcast(emitter.value_at(dense.root, here, mask), self.lanes)

    def ask(self, b: KernelBuilder, at: ResultPlace, mask: Mask) -> None:
        """Prefetch what a call for this place will read."""
        self._ask(b, self._axes(at), mask)

    def _ask(self, b: KernelBuilder, axes: Sequence[tuple[Axis, Ix]], mask: Mask) -> None:
        emitter, here = self._emitter(Asking, b, axes, mask)
        emitter.overrides[self.dense.total] = lambda *_: emitter.nothing(self.dense.total)
        emitter.value_at(self.dense.root, here, mask)

    def _axes(self, place: ResultPlace) -> list[tuple[Axis, Ix]]:
        p = self.dense.problem
        axes = [(axis, Ix(at)) for axis, at in zip(p.batch, place.batch, strict=True)]
        axes.append((Axis(p.rows, c=p.m[-1].c), Ix(place.row)))
        axes.append((Axis(p.columns, c=p.n[-1].c), Ix(place.column, 1, multiple=self.lanes)))
        return axes

    def _emitter(
        self,
        kind: type[E],
        b: KernelBuilder,
        axes: Sequence[tuple[Axis, Ix]],
        mask: Mask | None,
        root: ir.Value | None = None,
    ) -> tuple[E, Index]:
        """An emitter, and the index of `root` (`dense.root`), at one place of the result."""
        tiles = [(axis.size, axis.c, at) for axis, at in axes]
        space, count = tile_space(b, self.shapes, tiles, self.lanes)
        emitter = kind(b, space, self.shapes, self.block, self.arguments)
        emitter.tail = mask
        shape = emitter.shape(self.dense.root if root is None else root)
        return emitter, space.root(shape, 0, count) if shape else ()


class BandEpilogue(Epilogue):
    """Computes the results of `dense.bands` from the finished sums of all bands."""

    def write(
        self, b: KernelBuilder, sums: Sequence[Register], at: ResultPlace, mask: Mask
    ) -> None:
        """Store the results of a vector of every band."""
        bands = self._checked()
        values: list[Register] = []
        for band, total in enumerate(sums):
            axes = self._whole_axes(b, at, band)
            values.append(self.at(b, total, axes, mask))
            if bands.whole is not None:
                self._store(b, bands.whole, self.dense.root, values[-1], axes, mask)
        axes = self._axes(at)
        emitter, here = self._emitter(Elemental, b, axes, mask, bands.results[0][0])
        for part, band in bands.parts:
            emitter.overrides[part] = lambda *_, band=band: values[band]
        for root, number in bands.results:
            value = b.broadcast(emitter.value_at(root, here, mask), self.lanes)
            self._store(b, number, root, value, axes, mask)

    def ask(self, b: KernelBuilder, at: ResultPlace, mask: Mask) -> None:
        """Prefetch what a call for this place will read, of every band."""
        bands = self._checked()
        for band in range(self.dense.problem.bands):
            self._ask(b, self._whole_axes(b, at, band), mask)
        emitter, here = self._emitter(Asking, b, self._axes(at), mask, bands.results[0][0])
        for part, _ in bands.parts:
            emitter.overrides[part] = lambda *_, part=part: emitter.nothing(part)
        for root, _ in bands.results:
            emitter.value_at(root, here, mask)

    def _checked(self) -> Bands:
        if self.dense.bands is None:
            raise InternalError(f"no bands of {self.dense.root}")
        return self.dense.bands

    def _whole_axes(self, b: KernelBuilder, place: ResultPlace, band: int) -> list[tuple[Axis, Ix]]:
        """The axes of `dense.root`, at a column of a band."""
        *others, (axis, at) = self._axes(place)
        width = self.dense.problem.columns
        moved = place.column + b.param(width, opaque=True) * band
        multiple = self.lanes if self.shapes.constraints.divisible(width, self.lanes) else 1
        whole = replace(axis, size=axis.size * self.dense.problem.bands)
        return [*others, (whole, replace(at, start=moved, multiple=multiple))]

    def _store(
        self,
        b: KernelBuilder,
        number: int,
        root: ir.Value,
        value: Register,
        axes: Sequence[tuple[Axis, Ix]],
        mask: Mask,
    ) -> None:
        emitter, _ = self._emitter(Elemental, b, axes, mask, root)
        flat = emitter.space.flat(0, len(emitter.space.tiles))
        if flat.is_uniform:  # one column
            value = b.extract(value, 0)
        emitter.store(Output(number), element_of(root), value, flat, mask)
