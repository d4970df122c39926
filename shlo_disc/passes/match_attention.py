"""Kind `attention`: a product, row work on it, and a product with the outcome.

What the kernel needs is checked here on dimension numbers. Both products are batched, contract one
dimension, and have one dimension of keys and one of values. The keys are the innermost dimension of
the scores, the values that of the result. Nobody else reads the scores or the weights, so neither
has to exist in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import View, view_of
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.match_dense import Sums, no_epilogue, sums_of
from shlo_disc.passes.match_rows import Layout, RowRecord, match_rows
from shlo_disc.passes.region import Region


@dataclass(frozen=True)
class AttentionRecord:
    """Kind `attention`. `score.total` are the scores."""

    score: Sums
    key_side: int
    """Which operand of the first product the keys are."""
    queries: View
    """How an input of the region is read as the other; likewise `keys` and `values`."""
    keys: View
    rows: RowRecord
    """What computes the weights from the scores."""
    mix: Sums
    weight_side: int
    """Which operand of the second product the weights are."""
    values: View
    root: ir.Value
    """`mix.total`, or what is computed from it."""

    @property
    def weights(self) -> ir.Value:
        """What the second product reads of the row work."""
        weights: ir.Value = self.mix.op.operands[self.weight_side]
        return weights


def match_attention(region: Region) -> AttentionRecord | str:
    """The attention of a region; or why it is none."""
    dots = region.named("stablehlo.dot_general")
    if len(dots) != 2:
        return f"an attention has two products, not {len(dots)}"
    score, mix = dots
    if len(region.results) != 1:
        return "scores, weights or sums are read at other places, too"
    needs = [score in region.needed_for([value]) for value in mix.operands]
    if all(needs):
        return "the values are the weights, too"
    if not any(needs):
        return "it is not row work on one product alone, so this is no attention"
    weight_side = needs.index(True)
    weights, (root,) = mix.operands[weight_side], region.results
    first, second = sums_of(score, region), sums_of(mix, region)
    reason = (
        is_score(first, _sizes(score, region))
        or _is_mix(second, weight_side, _sizes(mix, region))
        or no_epilogue(second, root, region)
    )
    if reason is not None:
        return reason
    rows = match_rows(region, [weights], first.total)
    if isinstance(rows, str):
        return rows
    if not _one_space(first.total, weights, rows, region):
        return "the weights are read in other dimensions"
    keys = key_side(first)
    assert keys is not None
    views = [
        view_of(value, region.inputs, region.shapes, through_broadcasts=True)
        for value in (
            score.operands[1 - keys],
            score.operands[keys],
            mix.operands[1 - weight_side],
        )
    ]
    q, k, v = views
    if q is None or k is None or v is None:
        return "an operand of a product is not in memory"
    return AttentionRecord(first, keys, q, k, rows, second, weight_side, v, root)


def key_side(score: Sums) -> int | None:
    """Which operand the innermost dimension of the scores is of."""
    sides = dot_sides(score.op)
    return next((k for k, side in enumerate(sides) if score.order[-1] in side.results), None)


def is_score(score: Sums, shapes: Sequence[Sequence[Expr]]) -> str | None:
    """Why `score` cannot give the scores of an attention; None: it can.

    `shapes` are those of the operands.
    """
    sides = dot_sides(score.op)
    if not sides[0].batch:
        return "the scores have no batch dimension"
    if len(sides[0].contracting) != 1:
        return "the scores contract several dimensions"
    keys = key_side(score)
    if keys is None or len(_large(sides[keys].free, shapes[keys])) > 1:
        return "the innermost dimension of the scores is not the only one of the keys"
    return None


def _is_mix(mix: Sums, weights: int, shapes: Sequence[Sequence[Expr]]) -> str | None:
    """Why `mix` cannot mix values by its operand number `weights`; None: it can.

    `shapes` are those of the operands.
    """
    sides = dot_sides(mix.op)
    mine, theirs = sides[weights], sides[1 - weights]
    if not mine.batch:
        return "the second product has no batch dimension"
    if mine.contracting != (len(shapes[weights]) - 1,):
        return "the second product contracts another dimension than the row work reduces"
    large = _large(theirs.free, shapes[1 - weights])
    if len(large) > 1:
        return "the values have several dimensions of their own"
    if large and theirs.results[theirs.free.index(large[0])] != mix.order[-1]:
        return "the innermost dimension of the result is not the values'"
    if not large and mix.order[-1] not in theirs.results:
        return "the innermost dimension of the result is not the values'"
    return None


def _one_space(scores: ir.Value, weights: ir.Value, rows: RowRecord, region: Region) -> bool:
    """True if rows are the innermost dimension of the scores, and weights have their sizes."""
    shapes, equal = region.shapes, region.shapes.constraints.equal
    *lines, keys = shapes.shape(scores)
    same = shapes.constraints.product_equal
    if rows.layout is not Layout.WHOLE or not (
        same(rows.rows, lines) and same([rows.cols], [keys])
    ):
        return False
    a, b = ([d for d in shapes.shape(v) if not d.is_one] for v in (scores, weights))
    return len(a) == len(b) and all(map(equal, a, b))


def _sizes(dot: ir.Operation, region: Region) -> list[tuple[Expr, ...]]:
    return [region.shapes.shape(value) for value in dot.operands]


def _large(dimensions: Sequence[int], shape: Sequence[Expr]) -> list[int]:
    return [d for d in dimensions if not (shape[d].is_const and shape[d].value == 1)]
