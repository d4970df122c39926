"""canonicalize, cse and dce: MLIR's own, by their short names.

Why     Equal values must be one value, and unused ones none, before the planner counts uses.
Keeps   every result. StableHLO has no folders behind `canonicalize` (a test holds float identities
        against it), so nothing is rewritten that IEEE 754 forbids.
Source  MLIR's passes of these names.
"""

from __future__ import annotations

from shlo_disc.passes.base import Upstream, register

__all__ = ["CANONICALIZE", "CSE", "DCE"]

CANONICALIZE = register(Upstream("canonicalize", "canonicalize"))
CSE = register(Upstream("cse", "cse"))
DCE = register(Upstream("dce", "trivial-dce"))
