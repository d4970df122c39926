"""Names of kernels, for people."""

from __future__ import annotations

from shlo_disc.ir.mlir import ir


def fusion_name(fusion: ir.Operation, kind: str) -> str:
    """A readable name: the kind and the planner's description."""
    if "name" in fusion.attributes:
        return f"{kind}_{ir.StringAttr(fusion.attributes['name']).value}"
    return kind
