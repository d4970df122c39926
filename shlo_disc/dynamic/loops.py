"""What a `while` does with the values it carries: which one counts, and which never change.

while (i = 0, w = %w; i < n; i = i + 1, w = w)  ==>  i counts n steps, w is unchanged
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.comparisons import conjuncts, less_than
from shlo_disc.ir.mlir import ir, producer, terminator

_STEPS = "disc.steps"
"""On a `while` whose counter a fusion computes: how many steps it has."""
_SIGNS = {"stablehlo.add": 1, "stablehlo.subtract": -1}


@dataclass(frozen=True)
class Counted:
    """A `while` whose carried values `counters` are 0, 1, 2, ... up to `steps` - 1."""

    counters: tuple[int, ...]
    steps: Expr


def counted(loop: ir.Operation, shapes: ShapeAnalysis) -> Counted | None:
    """The counters of a `while` from 0 in steps of 1; None for another loop.

    TensorFlow's loops have two: one of its own, which ends them at `maximum_iterations`, beside the
    user's.
    """
    found = [
        _counted(loop, test, shapes)
        for test in conjuncts(terminator(loop.regions[0].blocks[0]).operands[0])
    ]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    steps = known[0].steps
    if not all(shapes.constraints.equal(one.steps, steps) for one in known[1:]):
        return None
    return Counted(tuple(dict.fromkeys(k for one in known for k in one.counters)), steps)


def _counted(loop: ir.Operation, condition: ir.Value, shapes: ShapeAnalysis) -> Counted | None:
    """The loop as if it had this condition alone."""
    before, body = (region.blocks[0] for region in loop.regions)
    arguments, test = list(before.arguments), less_than(condition)
    if test is None or test[0] not in arguments:
        return None
    k, steps = arguments.index(test[0]), _number(test[1], shapes)
    if steps is None:
        return None
    step = along(terminator(body).operands[k], body.arguments[k], shapes)
    if _number(loop.operands[k], shapes) != 0 or step != (Expr.const(1), 1):
        return None
    return Counted((k,), steps)


def along(value: ir.Value, counter: ir.Value, shapes: ShapeAnalysis) -> tuple[Expr, int] | None:
    """(offset, factor) of `value`, which is offset + factor * counter; None for another form."""
    if value == counter:
        return Expr.const(0), 1
    known = _number(value, shapes)
    if known is not None:
        return known, 0
    op = producer(value)
    if op is None or op.name not in _SIGNS:
        return None
    left, right = (along(operand, counter, shapes) for operand in op.operands)
    if left is None or right is None:
        return None
    sign = _SIGNS[op.name]
    return left[0] + right[0] * sign, left[1] + right[1] * sign


def note_steps(loop: ir.Operation, shapes: ShapeAnalysis) -> None:
    """Write down for :func:`steps_of` how many steps a counted `while` has, before it is fused."""
    known = counted(loop, shapes)
    if known is not None:
        loop.attributes[_STEPS] = ir.StringAttr.get(str(known.steps))


def steps_of(loop: ir.Operation, shapes: ShapeAnalysis) -> Expr | None:
    """How many steps a `while` has; at most 0: none. None: its body decides."""
    return shapes.parsed(loop.attributes[_STEPS]) if is_counted(loop) else None


def is_counted(loop: ir.Operation) -> bool:
    """Whether :func:`steps_of` knows."""
    return _STEPS in loop.attributes


def _itself(value: ir.Value) -> ir.Value:
    return value


def unchanged(loop: ir.Operation, root: Callable[[ir.Value], ir.Value] = _itself) -> frozenset[int]:
    """The numbers of the carried values of a `while` that no step changes.

    `root` gives the value whose elements another has, such as the operand of a reshape.
    """
    body = loop.regions[1].blocks[0]
    carried = zip(body.arguments, terminator(body).operands, strict=True)
    return frozenset(k for k, (before, after) in enumerate(carried) if root(after) == before)


def _number(value: ir.Value, shapes: ShapeAnalysis) -> Expr | None:
    """An integer of one element that is known from sizes."""
    found = shapes.elements(value)
    return found[0] if found is not None and len(found) == 1 else None
