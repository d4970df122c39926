"""What an `attention` fusion computes, taken apart: sizes, and the step of every dimension in every
array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.views import View, dense_strides, view_of
from shlo_disc.lower.cpu.dense.problem import after_transposes, operand_view
from shlo_disc.mlir import ir
from shlo_disc.passes.match_attention import dot_sides

__all__ = ["Attention", "Row", "take_apart"]

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
    """A fusion taken apart."""

    batch: tuple[Row, ...]
    m: Row
    keys: Expr
    depth: Expr
    width: Expr
    q: View
    k: View
    v: View
    q_depth: Expr
    """Step of Q along the contracted dimension; likewise `k_depth`."""
    k_depth: Expr
    k_key: Expr
    """Step of K along the keys; likewise `v_key`."""
    v_key: Expr
    v_width: Expr
    scores: ir.Value
    weights: ir.Value
    mix: ir.Operation
    total: ir.Value
    root: ir.Value


def _dims(value: ir.Value, shapes: ShapeAnalysis) -> tuple[list[Expr], dict[int, int]]:
    """The sizes of `value` without those that are always 1, and where its dimensions went."""
    sizes: list[Expr] = []
    places: dict[int, int] = {}
    for axis, size in enumerate(shapes.shape(value)):
        if not size.is_one:
            places[axis] = len(sizes)
            sizes.append(size)
    return sizes, places


def take_apart(fusion: ir.Operation, shapes: ShapeAnalysis) -> Attention:
    """The attention behind a fusion planned by `plan-fusion`."""
    block = fusion.regions[0].blocks[0]
    inputs = list(block.arguments)
    ops = [view.operation for view in block.operations]
    score, mix = (op for op in ops if op.name == "stablehlo.dot_general")
    (root,) = ops[-1].operands

    # The scores: which operand each of their dimensions comes from.
    left, right = (operand_view(v, inputs, shapes, spread=True) for v in score.operands)
    lhs, rhs = dot_sides(score)
    pairs = list(zip(lhs.batch, rhs.batch, strict=True))
    steps = [(left.strides[i], right.strides[j]) for i, j in pairs]
    steps += [(left.strides[i], ZERO) for i in lhs.free]
    steps += [(ZERO, right.strides[j]) for j in rhs.free]
    scores, order = after_transposes(score.results[0])
    sizes, places = _dims(scores, shapes)
    steps = [steps[axis] for place, axis in enumerate(order) if place in places]
    repeats = [left.repeat(i) * right.repeat(j) for i, j in pairs]  # those of K: Q has none
    repeats += [ONE] * (len(order) - len(pairs))
    k_repeats = [repeats[axis] for place, axis in enumerate(order) if place in places]
    depths = [(left.strides[i], right.strides[j]) for i, j in
              zip(lhs.contracting, rhs.contracting, strict=True)]  # fmt: skip
    ((left_depth, right_depth),) = depths
    depth = left.sizes[lhs.contracting[0]]
    if steps[-1][1] == ZERO:  # the keys are the left operand's
        steps = [(b, a) for a, b in steps]
        left, right, left_depth, right_depth = right, left, right_depth, left_depth

    # The mix: the weights are the operand that is no view of an input.
    values = list(mix.operands)
    number = 0 if view_of(values[0], inputs, shapes, spread=True) is None else 1
    weights = values[number]
    v = operand_view(values[1 - number], inputs, shapes, spread=True)
    sides = dot_sides(mix)
    mine, theirs = sides[number], sides[1 - number]
    _, weight_places = _dims(weights, shapes)
    moved = {weight_places[p]: (v.strides[d], v.repeat(d)) for p, d in
             zip(mine.batch, theirs.batch, strict=True) if p in weight_places}  # fmt: skip
    total, order = after_transposes(mix.results[0])
    strides = dense_strides(shapes.shape(total))
    place_of = {axis: strides[place] for place, axis in enumerate(order)}
    out: dict[int, Expr] = {}
    for axis, p in enumerate(mine.batch):
        if p in weight_places:
            out[weight_places[p]] = place_of[axis]
    for axis, p in zip(mine.results, mine.free, strict=True):
        if p in weight_places:
            out[weight_places[p]] = place_of[axis]
    widths = [d for d in theirs.free if not v.sizes[d].is_one]
    width = v.sizes[widths[0]] if widths else ONE
    v_width = v.strides[widths[0]] if widths else ONE

    rows: list[Row] = []
    for i, size in enumerate(sizes[:-1]):
        v_step, v_repeat = moved.get(i, (ZERO, ONE))
        whole = Row(size, *steps[i], v_step, out[i], Expr.product(sizes[i + 1 : -1]))
        rows += _cut(whole, k_repeats[i], v_repeat)
    batch, m = _choose_m(rows, shapes)
    return Attention(
        tuple(batch), m, sizes[-1], depth, width, left, right, v,
        left_depth, right_depth, steps[-1][1], v.strides[theirs.contracting[0]], v_width,
        scores, weights, mix, total, root,
    )  # fmt: skip


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


def _choose_m(rows: Sequence[Row], shapes: ShapeAnalysis) -> tuple[list[Row], Row]:
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
    if not runs:
        return list(rows), Row(ONE, ZERO, ZERO, ZERO, ZERO, ZERO)
    # Symbolic sizes tend to be the larger ones.
    best = min(runs, key=lambda run: all(rows[i].size.is_const for i in run))
    size = Expr.product(rows[i].size for i in best)
    batch = [x for i, x in enumerate(rows) if i not in best]
    return batch, replace(rows[best[-1]], size=size)
