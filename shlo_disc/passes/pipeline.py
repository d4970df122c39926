"""The clean-up passes, in order, and why each is where it is."""

from __future__ import annotations

from shlo_disc.passes.base import Pass
from shlo_disc.passes.cleanup import CSE
from shlo_disc.passes.resolve_shapes import ResolveShapes
from shlo_disc.passes.simplify import Simplify

__all__ = ["CLEANUP"]

CLEANUP: tuple[Pass, ...] = (
    CSE,  # first: JAX repeats constants and shape arithmetic, two thirds of all ops
    ResolveShapes(),  # before every rule: they ask for sizes
    Simplify(),
    CSE,  # last: rules build equal values apart
)
"""From the normal form of `ingest` to what `plan-fusion` reads."""
