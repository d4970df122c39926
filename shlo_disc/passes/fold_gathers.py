"""fold-gathers: a gather of one window at a known place is a slice, and so is one of even steps.

    gather(%w [k, 3*n], start 2*n, window [k, n])  ==>  real_dynamic_slice %w, [0, 2*n], [k, 3*n]
    gather(%w [n, k], starts 1 + 2 * iota, window [1, k])  ==>  slice %w [1:n:2, :]

Why     JAX writes `w[:, 2 * n:]` and `w[1::2]` of a symbolic size as gathers. A slice has no index
        to compute and clamp, and kernels that walk by strides read it in place.
Needs   `resolve-shapes`.
Keeps   every result: only where start >= 0 and start + window <= size are proved, so that the
        gather would have clamped nothing.
Cost    O(gathers).
Source  StableHLO spec, gather (start indices are clamped) and real_dynamic_slice.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.even_steps import even_steps
from shlo_disc.passes.rules import Facts, RulePass, takes_one_window

ZERO, ONE = Expr.const(0), Expr.const(1)


def of_one_window(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Gather of a single window that starts at sizes ==> slice, reshaped."""
    operand, starts = op.operands[0], op.operands[1]
    result = op.results[0]
    numbers = gather_numbers(op)
    if not takes_one_window(op):
        return None
    at = facts.contents(starts)
    if at is None:
        return None
    sizes, shape = facts.shape(operand), facts.shape(result)
    kept = numbers.kept_dims(len(sizes))
    windows, declared = [ONE] * len(sizes), [1] * len(sizes)
    for place, d in zip(numbers.window_dims, kept, strict=True):
        windows[d], declared[d] = shape[place], result.type.shape[place]
    first = [ZERO] * len(sizes)
    for start, d in zip(at, numbers.indexed_dims, strict=True):
        first[d] = start
    at_least = facts.analysis.constraints.at_least
    last = [start + window for start, window in zip(first, windows, strict=True)]
    if not all(at_least(start, 0) for start in first) or not all(map(at_least, sizes, last)):
        return None
    kind = ir.RankedTensorType.get(declared, result.type.element_type)
    ones = [ONE] * len(first)
    sliced = slice_of(operand, first, last, ones, kind, tuple(windows), facts)
    return facts.reshape(sliced, result.type, shape) if kind != result.type else sliced


def ofeven_steps(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """Gather of whole windows along one dimension, in even steps ==> slice."""
    operand, starts = op.operands[0], op.operands[1]
    result = op.results[0]
    numbers = gather_numbers(op)
    sizes, shape, indices = facts.shape(operand), facts.shape(result), facts.shape(starts)
    several = numbers.place_dims(len(indices))
    if len(several) != 1 or numbers.batching_dims or len(shape) != len(sizes):
        return None
    if numbers.indexed_dims != numbers.collapsed_dims or len(numbers.indexed_dims) != 1:
        return None
    (along,) = numbers.indexed_dims
    others = tuple(d for d in range(len(sizes)) if d != along)
    equal, at_least = facts.analysis.constraints.equal, facts.analysis.constraints.at_least
    whole = all(equal(sizes[d], shape[d]) for d in others)
    if numbers.window_dims != others or not whole:
        return None
    steps = even_steps(starts, facts)
    if steps is None or steps.step < 1:
        return None
    count = shape[along]
    last = steps.first + (count - 1) * steps.step + 1
    if not (at_least(steps.first, 0) and at_least(sizes[along], last)):
        return None
    if not at_least(count, 1):
        if not at_least(sizes[along], steps.first):
            return None
        last = Expr.max(steps.first, last)
    firsts, lasts, strides = [ZERO] * len(sizes), list(sizes), [ONE] * len(sizes)
    firsts[along], lasts[along], strides[along] = steps.first, last, Expr.const(steps.step)
    return slice_of(operand, firsts, lasts, strides, result.type, shape, facts)


def slice_of(
    operand: ir.Value,
    first: Sequence[Expr],
    last: Sequence[Expr],
    steps: Sequence[Expr],
    kind: ir.Type,
    shape: tuple[Expr, ...],
    facts: Facts,
) -> ir.Value:
    """The slice of `operand` from `first` to `last`, of type `kind` and sizes `shape`."""
    if operand.type.has_static_shape and kind.has_static_shape:
        attributes = {
            "start_indices": _numbers(first),
            "limit_indices": _numbers(last),
            "strides": _numbers(steps),
        }
        return facts.build("stablehlo.slice", [operand], kind, shape, attributes)
    bounds = [facts.shape_operand(tuple(x)) for x in (first, last, steps)]
    return facts.build("stablehlo.real_dynamic_slice", [operand, *bounds], kind, shape)


def _numbers(sizes: Sequence[Expr]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([size.value for size in sizes])


RULES = dict.fromkeys(
    ("stablehlo.dynamic_gather", "stablehlo.gather"), (of_one_window, ofeven_steps)
)

register(RulePass("fold-gathers", RULES))
