"""Modules that mix StableHLO with `arith`, `math`, `shape` and `tensor` become StableHLO alone.

    main(%n: i64, %x: tensor<?x4xf32>)                  main(%n: tensor<i64>, %x: tensor<?x4xf32>)
      %d = tensor.dim %x, %c0                             %d = get_dimension_size %x, dim = 0
      %i = arith.index_cast %n : i64 to index      ==>
      %m = arith.muli %d, %i : index                      %m = multiply %d, %n : tensor<i64>
      %s = tensor.from_elements %m : tensor<1xindex>      %s = reshape %m : tensor<1xi64>

PyTorch and TensorFlow write sizes this way. A number is a rank-0 tensor and an `index` an i64; a
shape is an i64 vector. Conditions on shapes become assertions, which every call checks. What the
sizes are is not decided here: the shape analysis follows their arithmetic.

Each op has one rule, found by its name: :data:`RULES`.
"""

from __future__ import annotations

from shlo_disc.ingest.mixed.arith import ARITH
from shlo_disc.ingest.mixed.math import MATH
from shlo_disc.ingest.mixed.rewriter import Rule, has_mixture, rewrite_mixture
from shlo_disc.ingest.mixed.shape import SHAPE
from shlo_disc.ingest.mixed.tensor import TENSOR
from shlo_disc.ir.mlir import ir

__all__ = ["RULES", "has_mixture", "take_mixture"]

RULES: dict[str, Rule] = {**ARITH, **MATH, **SHAPE, **TENSOR}
"""Op name -> what the op becomes."""


def take_mixture(module: ir.Module) -> None:
    """Rewrite every function of `module`. Raises UnsupportedError for ops without a rule."""
    rewrite_mixture(module, RULES)
