"""fold-gathers: a gather of one window at a known place is a slice.

    gather(%w [k, 3*n], start 2*n, window [k, n])  ==>  real_dynamic_slice %w, [0, 2*n], [k, 3*n]

Why     JAX writes `w[:, 2 * n:]` of a symbolic size as a gather. A slice has no index to clamp, and
        kernels that walk by strides read it in place.
Needs   `resolve-shapes`.
Keeps   every result: only where start >= 0 and start + window <= size are proved, so that the
        gather would have clamped nothing.
Cost    O(gathers).
Source  StableHLO spec, gather (start indices are clamped) and real_dynamic_slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.mlir import ir, stablehlo
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.rules import Facts, apply_rules, takes_one_window

__all__ = ["RULES", "FoldGathers"]

ZERO, ONE = Expr.const(0), Expr.const(1)


def of_one_window(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Gather of a single window that starts at sizes ==> slice, reshaped."""
    operand, starts = op.operands[0], op.operands[1]
    result = op.results[0]
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    if not takes_one_window(op):
        return None
    at = facts.analysis.contents(starts)
    if at is None:
        return None
    sizes, shape = facts.shape(operand), facts.shape(result)
    kept = [d for d in range(len(sizes)) if d not in numbers.collapsed_slice_dims]
    windows, declared = [ONE] * len(sizes), [1] * len(sizes)
    for place, d in zip(numbers.offset_dims, kept, strict=True):
        windows[d], declared[d] = shape[place], result.type.shape[place]
    first = [ZERO] * len(sizes)
    for start, d in zip(at, numbers.start_index_map, strict=True):
        first[d] = start
    at_least = facts.analysis.constraints.at_least
    last = [start + window for start, window in zip(first, windows, strict=True)]
    if not all(at_least(start, 0) for start in first) or not all(map(at_least, sizes, last)):
        return None
    kind = ir.RankedTensorType.get(declared, result.type.element_type)
    sliced = _slice(operand, first, last, kind, tuple(windows), facts)
    return facts.reshape(sliced, result.type, shape) if kind != result.type else sliced


def _slice(
    operand: ir.Value,
    first: Sequence[Expr],
    last: Sequence[Expr],
    kind: ir.Type,
    shape: tuple[Expr, ...],
    facts: Facts,
) -> ir.Value:
    ones = [ONE] * len(first)
    if operand.type.has_static_shape and kind.has_static_shape:
        attributes = {
            "start_indices": _numbers(first),
            "limit_indices": _numbers(last),
            "strides": _numbers(ones),
        }
        return facts.build("stablehlo.slice", [operand], kind, shape, attributes)
    bounds = [facts.shape_operand(tuple(x)) for x in (first, last, ones)]
    return facts.build("stablehlo.real_dynamic_slice", [operand, *bounds], kind, shape)


def _numbers(sizes: Sequence[Expr]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([size.value for size in sizes])


RULES = dict.fromkeys(("stablehlo.dynamic_gather", "stablehlo.gather"), (of_one_window,))


@dataclass(frozen=True)
class FoldGathers(Pass):
    """See the module."""

    name: ClassVar[str] = "fold-gathers"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of gathers replaced."""
        return apply_rules(module, RULES)


register(FoldGathers())
