"""The fusion rules in the order in which they run. A rule is a row here and a file of its own."""

from __future__ import annotations

from shlo_disc.passes.fusion import (
    attention,
    bands,
    columns,
    contractions,
    horizontal_kernels,
    horizontal_products,
    producers,
    prologues,
    recompute,
    row_flags,
    row_work,
    shared_rows,
    updates,
)
from shlo_disc.passes.fusion.rule import FusionRule

RULES: tuple[FusionRule, ...] = (
    contractions.transposed_results,
    producers.rule,
    recompute.rule,
    contractions.contractions,
    attention.rule,
    horizontal_products.rule,
    bands.rule,
    row_work.rule,
    prologues.rule,
    columns.columns,
    columns.tall_columns,
    updates.rule,
    row_flags.rule,
    shared_rows.rule,
    horizontal_kernels.rule,
)
"""Each row says the reason for its place (`FusionRule.place`)."""
