"""Facts that a variant of a kernel may count on, because the host program asks for them."""

from __future__ import annotations

import copy

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis


def assuming_divisible(shapes: ShapeAnalysis, size: Expr, by: int) -> ShapeAnalysis:
    """`shapes` where `size` is known to be divisible."""
    if size.is_const or shapes.constraints.divisible(size, by):
        return shapes
    view = copy.copy(shapes)
    view.constraints = shapes.constraints.copy()
    view.constraints.add_divisible(size, by)
    return view
