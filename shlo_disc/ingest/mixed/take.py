"""All rules, and what applies them (see the package)."""

from __future__ import annotations

from shlo_disc.ingest.mixed.arith import ARITH
from shlo_disc.ingest.mixed.math import MATH
from shlo_disc.ingest.mixed.rewriter import Rule, rewrite_mixture
from shlo_disc.ingest.mixed.shape import SHAPE
from shlo_disc.ingest.mixed.tensor import TENSOR
from shlo_disc.ir.mlir import ir

RULES: dict[str, Rule] = {**ARITH, **MATH, **SHAPE, **TENSOR}
"""Op name -> what the op becomes."""


def take_mixture(module: ir.Module) -> None:
    """Rewrite every function of `module`. Raises UnsupportedError for ops without a rule."""
    rewrite_mixture(module, RULES)
