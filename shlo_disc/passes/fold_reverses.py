"""fold-reverses: a convolution reads its kernel backwards itself.

    %r = reverse %w, dims = [2, 3]
    %y = convolution %x, %r, [...] x [o, i, 0, 1] -> [...]
    ==>
    %y = convolution %x, %w, window = {reverse = [true, true]}

Why     Gradients of convolutions turn their kernels around, which is a pass over these. Steps
        through memory may be negative as well.
Needs   nothing.
Keeps   every result, bit for bit.
Cost    O(convolutions).
Source  `window_reversal` in the StableHLO specification.
"""

from __future__ import annotations

from shlo_disc.ir.convolutions import conv_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.rules import Facts, RulePass, defined_by


def into_convolution(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """convolution(x, reverse(w)) ==> convolution(x, w), if no features are reversed."""
    inner = defined_by(op.operands[1], "stablehlo.reverse")
    if inner is None:
        return None
    spatial = conv_numbers(op).kernel_spatial
    turned = list(ir.DenseI64ArrayAttr(inner.attributes["dimensions"]))
    if not set(turned) <= set(spatial):
        return None
    attributes = dict(op.attributes.items())
    before = [False] * len(spatial)
    if "window_reversal" in attributes:
        before = list(ir.DenseBoolArrayAttr(attributes["window_reversal"]))
    after = [bool(was) != (d in turned) for was, d in zip(before, spatial, strict=True)]
    attributes["window_reversal"] = ir.DenseBoolArrayAttr.get(after)
    result = op.results[0]
    operands = [op.operands[0], inner.operands[0], *list(op.operands)[2:]]
    return facts.build(op.name, operands, result.type, facts.shape(result), attributes)


RULES = {
    "stablehlo.convolution": (into_convolution,),
    "stablehlo.dynamic_conv": (into_convolution,),
}

register(RulePass("fold-reverses", RULES))
