"""What a `compare` asks, and conditions of several."""

from __future__ import annotations

from shlo_disc.ir.mlir import ir, producer, stablehlo


def comparison(op: ir.Operation) -> str:
    """The direction of a `compare`: EQ, NE, LT, LE, GT or GE."""
    return str(stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value)


def less_than(condition: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """`(a, b)` for the condition `a < b`; None for another one."""
    op = producer(condition)
    if op is None or op.name != "stablehlo.compare" or comparison(op) != "LT":
        return None
    return op.operands[0], op.operands[1]


def conjuncts(condition: ir.Value) -> list[ir.Value]:
    """The conditions that must all hold."""
    op = producer(condition)
    if op is None or op.name != "stablehlo.and":
        return [condition]
    return [part for operand in op.operands for part in conjuncts(operand)]


def is_total_order(op: ir.Operation) -> bool:
    """Whether a `compare` of floats orders NaN and -0.0, too."""
    return (
        "compare_type" in op.attributes
        and stablehlo.ComparisonTypeAttr(op.attributes["compare_type"]).value == "TOTALORDER"
    )
