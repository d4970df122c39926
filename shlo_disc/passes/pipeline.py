"""The clean-up passes, in order, and why each is where it is."""

from __future__ import annotations

from shlo_disc.passes.base import Pass
from shlo_disc.passes.cleanup import CSE
from shlo_disc.passes.fold_broadcasts import FoldBroadcasts
from shlo_disc.passes.fold_constants import FoldConstants
from shlo_disc.passes.fold_converts import FoldConverts
from shlo_disc.passes.fold_reshapes import FoldReshapes
from shlo_disc.passes.fold_transposes import FoldTransposes
from shlo_disc.passes.resolve_shapes import ResolveShapes
from shlo_disc.passes.simplify_algebra import SimplifyAlgebra

__all__ = ["CLEANUP"]

CLEANUP: tuple[Pass, ...] = (
    CSE,  # first: JAX repeats constants and shape arithmetic, two thirds of all ops
    ResolveShapes(),  # before every other pass: they ask for sizes
    FoldConverts(),  # before constants: fewer types to fold through
    FoldConstants(),  # before algebra: identities look for constants
    SimplifyAlgebra(),
    FoldReshapes(),  # before broadcasts: one reshape is easier to see through than two
    FoldBroadcasts(),
    FoldTransposes(),
    CSE,  # last: rules build equal values apart
)
"""From the normal form of `ingest` to what `plan-fusion` reads."""
