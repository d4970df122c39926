"""fold-transposes: no transpose that a reader can do without.

    transpose (transpose %x, [1, 0]), [1, 0]                    ==>  %x
    transpose %x, dims = [0, 2, 1] : [b, 1, t] -> [b, t, 1]     ==>  dynamic_reshape %x
    dot_general %x, (transpose %w), contracting [1] x [0]       ==>  dot_general %x, %w, [1] x [1]

Why     A transpose of memory costs as much as reading and writing it; a dense kernel packs its
        operands anyway and reads every layout.
Needs   `resolve-shapes`.   Keeps  every result, bit for bit.
Cost    O(transposes and dots x chain length).
Source  StableHLO spec, transpose_c3 and dot_general (the order of its result's dimensions).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from shlo_disc.contractions import dot_numbers, dot_sides
from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.rules import Facts, apply_rules, defined_by, permutation

__all__ = ["RULES", "FoldTransposes"]


def of_nothing(op: ir.Operation, _: Facts) -> ir.Value | None:
    """transpose(x) that leaves every dimension where it is ==> x."""
    dims = permutation(op)
    return op.operands[0] if dims == sorted(dims) else None


def of_transpose(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """transpose(transpose(x)) ==> transpose(x)."""
    inner = defined_by(op.operands[0], "stablehlo.transpose")
    if inner is None:
        return None
    inner_dims = permutation(inner)
    dims = [inner_dims[d] for d in permutation(op)]
    result = op.results[0]
    return facts.build(
        op.name,
        [inner.operands[0]],
        result.type,
        facts.shape(result),
        {"permutation": ir.DenseI64ArrayAttr.get(dims)},
    )


def of_unit_dimensions(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """transpose(x) that moves only dimensions of size 1 ==> reshape(x)."""
    sizes = facts.shape(op.operands[0])
    moved = [d for d in permutation(op) if not sizes[d].is_one]
    if moved != sorted(moved):
        return None
    result = op.results[0]
    return facts.reshape(op.operands[0], result.type, facts.shape(result))


def into_dot(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """dot_general(transpose(x), y) ==> dot_general(x, y), if x's free dimensions stay in order."""
    sides = list(dot_sides(op))
    operands = list(op.operands)
    changed = False
    for side in (0, 1):
        inner = defined_by(operands[side], "stablehlo.transpose")
        if inner is None:
            continue
        dims = permutation(inner)
        moved = replace(
            sides[side],
            **{
                name: tuple(dims[d] for d in getattr(sides[side], name))
                for name in ("batch", "contracting", "free")
            },
        )
        if list(moved.free) != sorted(moved.free):
            continue
        sides[side], operands[side] = moved, inner.operands[0]
        changed = True
    if not changed:
        return None
    attributes = dict(op.attributes.items())
    left, right = sides
    attributes["dot_dimension_numbers"] = dot_numbers(
        (left.batch, right.batch), (left.contracting, right.contracting)
    )
    result = op.results[0]
    return facts.build(op.name, operands, result.type, facts.shape(result), attributes)


RULES = {
    "stablehlo.dot_general": (into_dot,),
    "stablehlo.transpose": (of_nothing, of_transpose, of_unit_dimensions),
}


@dataclass(frozen=True)
class FoldTransposes(Pass):
    """See the module."""

    name: ClassVar[str] = "fold-transposes"

    def run(self, module: ir.Module) -> int:
        """Rewrite `module`; the number of transposes changed or taken into a dot."""
        return apply_rules(module, RULES)


register(FoldTransposes())
