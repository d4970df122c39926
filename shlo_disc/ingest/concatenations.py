"""Concatenations of few operands each, in place of those of many.

    %y = concatenate %x0, ..., %x99        ==>    %a = concatenate %x0, ..., %x31
                                                  ...
                                                  %y = concatenate %a, %b, %c, %d

Why     A kernel reads a bounded number of arrays. It compares an index with the end of every
        operand in turn, so code is as deep as there are operands. JAX splits its own
        concatenations.
Needs   calls inlined.   Keeps  every result.   Cost  O(operands).
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.ir.mlir import at, ir, ops_of, replace

MOST_OPERANDS = 32
"""Fewer than the arrays a kernel may read, so that work in front of them may join."""


def split_concatenations(module: ir.Module) -> int:
    """Every concatenation of more than `MOST_OPERANDS` becomes a tree; how many did."""
    long = [
        op for op in ops_of(module, "stablehlo.concatenate") if len(op.operands) > MOST_OPERANDS
    ]
    for op in long:
        axis = int(ir.IntegerAttr(op.attributes["dimension"]).value)
        kind = ir.RankedTensorType(op.results[0].type)
        values: list[ir.Value] = list(op.operands)
        with at(op):
            while len(values) > MOST_OPERANDS:
                values = [
                    _joined(values[k : k + MOST_OPERANDS], axis, kind, op)
                    for k in range(0, len(values), MOST_OPERANDS)
                ]
            replace(op, _concatenation(values, kind, op))
    return len(long)


def _joined(
    values: Sequence[ir.Value], axis: int, kind: ir.RankedTensorType, op: ir.Operation
) -> ir.Value:
    """`values` one behind the other; `kind` is the type of all there are."""
    if len(values) == 1:
        return values[0]
    types = [ir.RankedTensorType(v.type) for v in values]
    unknown = ir.ShapedType.get_dynamic_size()
    sizes = list(kind.shape)
    dynamic = any(t.is_dynamic_dim(axis) for t in types)
    sizes[axis] = unknown if dynamic else sum(t.get_dim_size(axis) for t in types)
    return _concatenation(values, ir.RankedTensorType.get(sizes, kind.element_type), op)


def _concatenation(
    values: Sequence[ir.Value], kind: ir.RankedTensorType, op: ir.Operation
) -> ir.Value:
    return ir.Operation.create(
        "stablehlo.concatenate",
        results=[kind],
        operands=list(values),
        attributes={"dimension": op.attributes["dimension"]},
    ).results[0]
