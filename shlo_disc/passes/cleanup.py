"""canonicalize, cse and dce: MLIR's own, by their short names.

Why     Equal values must be one value, and unused ones none, before the planner counts uses.
Keeps   every result. StableHLO has no folders behind `canonicalize` (a test holds float identities
        against it), so nothing is rewritten that IEEE 754 forbids.
Source  MLIR's passes of these names.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import Upstream, register


@dataclass(frozen=True)
class Tidying(Upstream):
    """An upstream pass that must see through `disc.shape` and `disc.dim`, which MLIR does not."""

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Run the pipeline, then merge and drop `disc` ops; the number of ops less."""
        # Equal shapes first, else the ops that read them look different.
        return dialect.tidy(module) + super().run(module, shapes) + dialect.tidy(module)


CANONICALIZE = register(Upstream("canonicalize", "canonicalize"))
CSE = register(Tidying("cse", "cse", only_erases=True))
DCE = register(Tidying("dce", "trivial-dce", only_erases=True))
