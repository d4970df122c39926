"""What an `attention` fusion computes, taken apart: sizes, and the step of every dimension in every
array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import dense_strides
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.match_attention import AttentionRecord

ZERO, ONE = Expr.const(0), Expr.const(1)


@dataclass(frozen=True)
class Row:
    """A dimension of the scores other than the last, and its step in each array, in elements."""

    size: Expr
    q: Expr
    k: Expr
    v: Expr
    c: Expr
    row: Expr
    """Step of the flat row number of the scores."""


@dataclass(frozen=True)
class Attention:
    """The sizes and steps of what a record has found."""

    record: AttentionRecord
    batch: tuple[Row, ...]
    m: Row
    keys: Expr
    depth: Expr
    width: Expr
    q_depth: Expr
    """Step of Q along the contracted dimension; likewise `k_depth`."""
    k_depth: Expr
    k_key: Expr
    """Step of K along the keys; likewise `v_key`."""
    v_key: Expr
    v_width: Expr


def _lines(value: ir.Value, shapes: ShapeAnalysis) -> dict[int, int]:
    """The dimensions of scores or weights but the keys, without those that are always 1, and their
    numbers among these.
    """
    *sizes, _ = shapes.shape(value)
    kept = [axis for axis, size in enumerate(sizes) if not size.is_one]
    return {axis: number for number, axis in enumerate(kept)}


def take_apart(record: AttentionRecord, shapes: ShapeAnalysis) -> list[Attention]:
    """The steps of an attention: one choice of its rows or several, the longest rows first.

    Queries that read the same keys and values are its rows: positions, and heads that share keys.
    Where these are not one run in memory, the first choice takes the positions.
    """
    score, mix, v = record.score, record.mix, record.values
    q, k = record.queries, record.keys
    sides = dot_sides(score.op)
    mine, theirs = sides[1 - record.key_side], sides[record.key_side]

    # The scores: the step of each of their dimensions in Q and K.
    pairs = list(zip(mine.batch, theirs.batch, strict=True))
    steps: dict[int, tuple[Expr, Expr]] = {}
    repeats: dict[int, Expr] = {}
    for axis, (i, j) in enumerate(pairs):
        steps[axis] = q.strides[i], k.strides[j]
        repeats[axis] = q.repeat(i) * k.repeat(j)  # those of K: Q has none
    steps |= {axis: (q.strides[i], ZERO) for axis, i in zip(mine.results, mine.free, strict=True)}
    steps |= {a: (ZERO, k.strides[j]) for a, j in zip(theirs.results, theirs.free, strict=True)}
    (q_depth,), (k_depth,) = mine.contracting, theirs.contracting
    places = _lines(score.total, shapes)
    sizes = [shapes.shape(score.total)[place] for place in places]
    keys = shapes.shape(score.total)[-1]
    k_key = steps[score.order[-1]][1]

    # The mix: the step of each of these dimensions in V and the result.
    sides = dot_sides(mix.op)
    mine, theirs = sides[record.weight_side], sides[1 - record.weight_side]
    lines = _lines(record.weights, shapes)
    moved = {lines[p]: (v.strides[d], v.repeat(d)) for p, d in
             zip(mine.batch, theirs.batch, strict=True) if p in lines}  # fmt: skip
    strides = dense_strides(shapes.shape(mix.total))
    place_of = {axis: strides[place] for place, axis in enumerate(mix.order)}
    out: dict[int, Expr] = {}
    for axis, p in enumerate(mine.batch):
        if p in lines:
            out[lines[p]] = place_of[axis]
    for axis, p in zip(mine.results, mine.free, strict=True):
        if p in lines:
            out[lines[p]] = place_of[axis]
    widths = [d for d in theirs.free if not v.sizes[d].is_one]
    width = v.sizes[widths[0]] if widths else ONE
    v_width = v.strides[widths[0]] if widths else ONE

    rows: list[Row] = []
    for place, i in places.items():
        axis = score.order[place]
        v_step, v_repeat = moved.get(i, (ZERO, ONE))
        whole = Row(sizes[i], *steps[axis], v_step, out[i], Expr.product(sizes[i + 1 :]))
        rows += _cut(whole, repeats.get(axis, ONE), v_repeat)
    return [
        Attention(
            record, tuple(batch), m, keys, q.sizes[q_depth], width, q.strides[q_depth],
            k.strides[k_depth], k_key, v.strides[theirs.contracting[0]], v_width,
        )
        for batch, m in _choices_of_m(rows, shapes)
    ]  # fmt: skip


def _cut(row: Row, k_repeat: Expr, v_repeat: Expr) -> list[Row]:
    """`row`, or where K or V repeat their entries, what moves between those and within one."""
    repeat = v_repeat if k_repeat.is_one else k_repeat
    if repeat.is_one:
        return [row]
    k, v = (
        (step * repeat, step) if often.is_one else (step, ZERO)
        for step, often in ((row.k, k_repeat), (row.v, v_repeat))
    )
    q, c, number = row.q * repeat, row.c * repeat, row.row * repeat
    return [
        Row(row.size // repeat, q, k[0], v[0], c, number),
        Row(repeat, row.q, k[1], v[1], row.c, row.row),
    ]


def _choices_of_m(rows: Sequence[Row], shapes: ShapeAnalysis) -> list[tuple[list[Row], Row]]:
    """(what is a batch dimension, the rows): runs of dimensions in which K and V do not move."""
    equal = shapes.constraints.equal
    runs: list[list[int]] = []
    for i, x in enumerate(rows):
        if x.k != ZERO or x.v != ZERO:
            continue
        before = rows[i - 1] if i and runs and runs[-1][-1] == i - 1 else None
        joined = before is not None and all(
            equal(getattr(before, a), getattr(x, a) * x.size) for a in ("q", "c", "row")
        )
        if joined:
            runs[-1].append(i)
        else:
            runs.append([i])
    runs.sort(key=lambda run: _smallness([rows[i].size for i in run]))
    if not runs:
        return [(list(rows), Row(ONE, ZERO, ZERO, ZERO, ZERO, ZERO))]
    return [
        (
            [x for i, x in enumerate(rows) if i not in run],
            replace(rows[run[-1]], size=Expr.product(rows[i].size for i in run)),
        )
        for run in runs
    ]


def _smallness(sizes: Sequence[Expr]) -> int:
    """How small the product of sizes tends to be: symbols are lengths, numbers and quotients of
    symbols counts of heads.
    """
    if all(size.is_const for size in sizes):
        return 2
    return int(not any(any(not atom.op for atom in size.atoms()) for size in sizes))
