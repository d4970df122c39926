"""What a `compare` asks."""

from __future__ import annotations

from shlo_disc.mlir import ir, stablehlo

__all__ = ["comparison", "is_total_order"]


def comparison(op: ir.Operation) -> str:
    """The direction of a `compare`: EQ, NE, LT, LE, GT or GE."""
    return str(stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value)


def is_total_order(op: ir.Operation) -> bool:
    """Whether a `compare` of floats orders NaN and -0.0, too."""
    return (
        "compare_type" in op.attributes
        and stablehlo.ComparisonTypeAttr(op.attributes["compare_type"]).value == "TOTALORDER"
    )
