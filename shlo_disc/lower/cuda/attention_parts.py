"""Attention of few rows (a step of decoding): blocks share the keys of a row, in parts.

A part has `PART` keys, however many blocks there are. Each stores its results without the factor of
the row, with the maximum of the scores and the sum of the exponentials of every row. A second
launch combines them, first part first. So sizes alone decide a rounding.

Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_tiles import FEW_ROWS, tile_of_few_rows
from shlo_disc.lower.cuda.attention_warps import WarpWriter
from shlo_disc.lower.cuda.attention_writer import LANES, softmax_of
from shlo_disc.lower.cuda.fragments import store_sums
from shlo_disc.lower.cuda.online_softmax import RowState
from shlo_disc.lower.gpu.products import ProductWriter
from shlo_disc.lower.plan import Launch, Step, Workspace
from shlo_disc.lower.values.typed import IndexValue, Mask, Register

MOST_ROWS = FEW_ROWS
"""Rows of a batch entry at most."""

PART = 512
"""Keys of a part, whole tiles: enough to hide how a block begins and ends."""

_THREADS = 128
"""Of a block of the second launch."""


def by_parts(plan: AttentionPlan, sums: Workspace, states: Workspace) -> tuple[Step, ...]:
    """Both launches."""
    return (_PartWriter(plan, sums, states).launch(), _TotalWriter(plan, sums, states).launch())


def bytes_of_parts(plan: AttentionPlan) -> tuple[Expr, Expr]:
    """The sizes of both workspaces; 0 where there are more rows."""
    p = plan.p
    is_few = Expr.min(Expr.max(MOST_ROWS + 1 - p.rows, 0), 1)
    rows = p.batches * p.rows * _parts(plan) * is_few
    return rows * (4 * plan.heads.width), rows * 8


def _parts(plan: AttentionPlan) -> Expr:
    return ceil_div(plan.p.depth, PART)


def _place_of(
    w: ProductWriter, place: Sequence[IndexValue], part: IndexValue, row: IndexValue
) -> IndexValue:
    """The number of a row of a part."""
    matrix = w.b.index(0)
    for i, index in enumerate(place):
        matrix = matrix * w.b.size(f"batch{i}") + index
    return (matrix * w.depth.ceil_div(PART) + part) * w.m + row


class _PartWriter(WarpWriter):
    """Writes the first launch: neighbouring blocks have the parts of a batch entry."""

    units: ClassVar[str] = "parts"

    def __init__(self, plan: AttentionPlan, sums: Workspace, states: Workspace) -> None:
        super().__init__(plan, tile_of_few_rows(plan.heads), by_chunks=True)
        b, tile = self.b, self.tile_
        self.sums = self.memory(sums, plan.p.compute)
        self.states = self.memory(states, plan.p.compute)
        self.part = b.index(0)
        # Maxima and totals of the rows of each warp.
        self.of_warps = b.shared("f32", 2 * tile.deep * tile.rows)

    def launch(self) -> Launch:
        """See `ProductWriter.launch`."""
        launch = super().launch()
        return replace(launch, extent=launch.extent * _parts(self.plan))

    def task(self, number: IndexValue) -> None:
        """See `ProductWriter.task`."""
        parts = self.depth.ceil_div(PART)
        self.part = number % parts
        super().task(number // parts)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, tiles = self.b, PART // self.tile_keys
        self.begin(place, row)
        first = self.part * tiles
        last = b.min(first + tiles, self.depth.ceil_div(self.tile_keys))
        found = self.through(place, row, first, last, self.start())
        state, scales = self._across_warps(self.whole_state(found[:4]))
        sums = [x * scales[k // 2 % 2] for k, x in enumerate(found[4:])]
        for half in range(2):
            own = self.lane // 4 + 8 * half
            with b.if_((b.thread < 32) & (self.lane % 4).equals(0) & (row + own < self.m)):
                at = _place_of(self, place, self.part, row + own) * 2
                self.states.store(state.maximum[half], at)
                self.states.store(state.total[half], at + 1)
        corner, deep = (self.first_row, 0), self.tile_.deep
        store_sums(self, place, row, column, sums, corner, self.columns, deep, self.deep)

    def _across_warps(self, state: RowState) -> tuple[RowState, list[Register]]:
        """The state of the rows from those of all warps, and what the results of this warp are
        scaled by.
        """
        b, s, tile = self.b, self.softmax, self.tile_
        size = tile.deep * tile.rows
        own = self.deep * tile.rows + self.lane // 4
        with b.if_((self.lane % 4).equals(0)):
            for half in range(2):
                self.of_warps.store(state.maximum[half], own + 8 * half)
                self.of_warps.store(state.total[half], own + (8 * half + size))
        b.barrier_of_block()
        maxima, totals, scales = [], [], []
        for half in range(2):
            places = [self.lane // 4 + (8 * half + warp * tile.rows) for warp in range(tile.deep)]
            each = [self.of_warps.load(at, readonly=False) for at in places]
            most = each[0]
            for one in each[1:]:
                most = b.op("arith.maximumf", most, one)
            base = s.safe(most)
            total = b.constant(0.0, "f32")
            for one, at in zip(each, places, strict=True):
                part = self.of_warps.load(at + size, readonly=False)
                total = total + part * s.exponential(one - base)
            maxima.append(most)
            totals.append(total)
            scales.append(s.exponential(state.maximum[half] - base))
        return RowState.of([*maxima, *totals]), scales

    def store(
        self,
        place: list[IndexValue],
        row: IndexValue,
        column: IndexValue,
        sums: Sequence[Register],
        mask: Mask,
    ) -> None:
        """Store results as they are; every row begins at a multiple of 16."""
        at = _place_of(self, place, self.part, row) * self.columns + column
        self.sums.vector_store(sums[0], at, aligned=True)


class _TotalWriter(ProductWriter):
    """Writes the second launch: a block finishes a row.

    Each thread has a vector of columns of every `groups`-th part. One thread adds what those of
    its columns have, first to last.
    """

    plan: AttentionPlan
    units: ClassVar[str] = "total"

    def __init__(self, plan: AttentionPlan, sums: Workspace, states: Workspace) -> None:
        self.vectors = plan.heads.width // LANES
        self.groups = _THREADS // self.vectors
        super().__init__(plan, rows=1, columns=plan.heads.width, threads=_THREADS, lanes=LANES)
        b = self.b
        self.sums = self.memory(sums, plan.p.compute)
        self.states = self.memory(states, plan.p.compute)
        self.softmax = softmax_of(self)
        self.own_sums = b.shared("f32", self.groups * plan.heads.width)
        self.own_totals = b.shared("f32", self.groups)
        self.own_maxima = b.shared("f32", self.groups)

    def tile(self, place: list[IndexValue], row: IndexValue, column: IndexValue) -> None:
        """See `ProductWriter.tile`."""
        b, s = self.b, self.softmax
        group, right = b.thread // self.vectors, b.thread % self.vectors * LANES
        has_part = group < self.groups
        end = b.select(has_part, self.depth.ceil_div(PART), b.index(0))
        low, zero = b.constant(-math.inf, "f32"), b.constant(0.0, "f32")
        with b.loop(group, end, self.groups, [low], hint="part") as loop:
            at = _place_of(self, place, loop.index, row) * 2
            loop.yield_(b.op("arith.maximumf", loop.args[0], self.states.load(at)))
        is_first = has_part & right.equals(0)
        with b.if_(is_first):
            self.own_maxima.store(loop.results[0], group)
        b.barrier_of_block()
        most = self.own_maxima.load(0, readonly=False)
        for k in range(1, self.groups):
            most = b.op("arith.maximumf", most, self.own_maxima.load(k, readonly=False))
        base = s.safe(most)
        start = [zero, b.broadcast(zero, LANES)]
        with b.loop(group, end, self.groups, start, hint="part") as loop:
            at = _place_of(self, place, loop.index, row)
            scale = s.exponential(self.states.load(at * 2) - base)
            total = loop.args[0] + self.states.load(at * 2 + 1) * scale
            part = self.sums.vector_load(at * self.columns + right, LANES, aligned=True)
            loop.yield_(total, loop.args[1] + part * b.broadcast(scale, LANES))
        with b.if_(has_part):
            at = group * self.columns + right
            self.own_sums.vector_store(loop.results[1], at, aligned=True)
        with b.if_(is_first):
            self.own_totals.store(loop.results[0], group)
        b.barrier_of_block()
        with b.if_(group.equals(0) & (right < self.n)):
            total, found = start
            for k in range(self.groups):
                total = total + self.own_totals.load(k, readonly=False)
                at = right + k * self.columns
                found = found + self.own_sums.vector_load(at, LANES, False, aligned=True)
            factor = s.factor(most, total, place, row, self.depth)
            value = found * b.broadcast(factor, LANES)
            self.store(place, row, right, [value], b.mask(self.n - right, LANES))
