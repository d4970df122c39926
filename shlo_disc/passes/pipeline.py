"""The clean-up passes, in order, and why each is where it is."""

from __future__ import annotations

from shlo_disc.passes.base import Pass
from shlo_disc.passes.cleanup import CSE
from shlo_disc.passes.expand_windows import ExpandWindows
from shlo_disc.passes.fold_transposes import FoldTransposes
from shlo_disc.passes.forward_carried import ForwardCarried
from shlo_disc.passes.hoist_invariants import HoistInvariants
from shlo_disc.passes.hoist_projections import HoistProjections
from shlo_disc.passes.lay_out_images import LayOutImages
from shlo_disc.passes.lift_transposes import LiftTransposes
from shlo_disc.passes.resolve_shapes import ResolveShapes
from shlo_disc.passes.simplify import Simplify
from shlo_disc.passes.sink_into_branches import SinkIntoBranches

__all__ = ["CLEANUP"]

CLEANUP: tuple[Pass, ...] = (
    CSE,  # first: JAX repeats constants and shape arithmetic, two thirds of all ops
    ForwardCarried(),  # before shapes: a carried size is a symbol nobody knows
    ExpandWindows(),  # before shapes: it writes arithmetic of sizes
    ResolveShapes(),  # before every rule: they ask for sizes
    Simplify(),
    LayOutImages(),  # after the rules: broadcasts and slices are plain
    FoldTransposes(),  # those at the ends of images, with what is there
    LiftTransposes(),  # after the rules: they join transposes
    HoistInvariants(),  # after the rules: what they fold need not leave
    HoistProjections(),  # after their weights have left
    CSE,  # after the rules: they build equal values apart
    SinkIntoBranches(),  # last: a value that two branches compute is one value before them
)
"""From the normal form of `ingest` to what `plan-fusion` reads."""
