"""Keys that a mask hides from the queries in front of them: causal attention.

    select(row + a >= column, score, hidden)

The mask is a comparison of positions, which are affine in the indices of the scores. So keys behind
`row + a` have the score `hidden`, whatever the data are.

A kernel reads the other keys first. The rest is not read if the maximum of each row is far above
`hidden` then: it would add exactly 0 to the sums.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.attributes import integer, integers
from shlo_disc.ir.comparisons import comparison
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.schedule.attention import Attention
from shlo_disc.passes.match_softmax import Softmax
from shlo_disc.passes.op_classes import (
    BROADCASTS,
    IOTAS,
    RESHAPES,
    constant_float,
    is_splat_constant,
)

_MOST = 1 << 30
"""Constants of a mask are smaller, so that no position overflows 32 bits."""


@dataclass(frozen=True)
class VisibleKeys:
    """Query number i sees keys up to number `i + ahead` at most."""

    ahead: Expr
    comparison: ir.Value
    """True where a key is among these."""
    hidden: float
    """The score of the others."""


@dataclass(frozen=True)
class _Affine:
    """`first` plus the index along each of `steps` times its step."""

    first: Expr
    steps: dict[int, int]

    def __add__(self, other: _Affine) -> _Affine:
        steps = dict(self.steps)
        for d, step in other.steps.items():
            steps[d] = steps.get(d, 0) + step
        return _Affine(self.first + other.first, {d: s for d, s in steps.items() if s})

    def __neg__(self) -> _Affine:
        return _Affine(self.first * -1, {d: -step for d, step in self.steps.items()})

    def moved(self, place: dict[int, int | None]) -> _Affine | None:
        """The same about a value whose dimension `place[d]` is this one's dimension d.

        None: index 0 alone.
        """
        steps: dict[int, int] = {}
        for d, step in self.steps.items():
            if d not in place:
                return None
            to = place[d]
            if to is not None:
                steps[to] = step
        return _Affine(self.first, steps)


def visible_keys(softmax: Softmax, problem: Attention, shapes: ShapeAnalysis) -> VisibleKeys | None:
    """The keys that the mask of `softmax` leaves to a row of `problem`; None: no such mask."""
    return _Reader(shapes).mask(softmax.scores, problem)


class _Reader:
    def __init__(self, shapes: ShapeAnalysis) -> None:
        self.shapes = shapes

    def mask(self, scores: ir.Value, problem: Attention) -> VisibleKeys | None:
        rows, columns = self._dimensions(scores, problem)
        select, hidden = producer(scores), None
        while select is not None and select.name == "stablehlo.select":
            one = constant_float(select.operands[2])
            # A key that one of several masks hides has the same score behind the others.
            if one is None or ir.ShapedType(select.operands[0].type).rank == 0:
                return None
            if hidden is not None and one != hidden:
                return None
            hidden = one
            for kind, distance in self._comparisons(select.operands[0]):
                if rows is not None and distance.steps == {rows: 1, columns: -1}:
                    return VisibleKeys(distance.first, kind, hidden)
            select = producer(select.operands[1])
        return None

    def _dimensions(self, scores: ir.Value, problem: Attention) -> tuple[int | None, int]:
        """The dimension of `scores` that is the rows of the problem, and that of the keys."""
        sizes, equal = self.shapes.shape(scores), self.shapes.constraints.equal
        columns = len(sizes) - 1
        if not equal(sizes[columns], problem.keys):
            return None, columns
        for d, size in enumerate(sizes[:columns]):
            step = Expr.product(sizes[d + 1 : columns])
            if not size.is_one and equal(size, problem.m.size) and equal(step, problem.m.row):
                return d, columns
        return None, columns

    # ---------------------------------------------------------------- masks

    def _comparisons(self, value: ir.Value) -> list[tuple[ir.Value, _Affine]]:
        """Comparisons that hold wherever `value` is true, as what must be 0 or more.

        About the dimensions of `value`.
        """
        op = producer(value)
        if op is None:
            return []
        if op.name == "stablehlo.compare":
            distance = self._distance(op)
            return [] if distance is None else [(value, distance)]
        if op.name == "stablehlo.and":
            return [x for operand in op.operands for x in self._comparisons(operand)]
        if op.name == "stablehlo.select":
            picks = [self._flag(operand) for operand in op.operands[1:]]
            whole = ir.ShapedType(op.operands[0].type).rank == ir.ShapedType(value.type).rank
            return self._comparisons(op.operands[0]) if picks == [True, False] and whole else []
        place = self._places(op)
        if place is None:
            return []
        found = [(made, x.moved(place)) for made, x in self._comparisons(op.operands[0])]
        return [(made, x) for made, x in found if x is not None]

    def _flag(self, value: ir.Value) -> bool | None:
        """The one flag that `value` holds at every index."""
        op = producer(value)
        while op is not None and (op.name in RESHAPES or op.name in BROADCASTS):
            op = producer(op.operands[0])
        if op is None or op.name != "stablehlo.constant" or not is_splat_constant(op):
            return None
        splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        is_flag = str(ir.ShapedType(op.results[0].type).element_type) == "i1"
        return bool(splat.value) if is_flag else None

    def _distance(self, op: ir.Operation) -> _Affine | None:
        kind = element_type(ir.ShapedType(op.operands[0].type).element_type)
        left, right = (self._affine(x) for x in op.operands)
        if kind.kind != "i" or kind.bits < 32 or left is None or right is None:
            return None
        between = left + -right
        one = _Affine(Expr.const(-1), {})
        directions: dict[str, Callable[[], _Affine]] = {
            "GE": lambda: between,
            "GT": lambda: between + one,
            "LE": lambda: -between,
            "LT": lambda: -between + one,
        }
        name = comparison(op)
        return directions[name]() if name in directions else None

    # ---------------------------------------------------------------- positions

    def _affine(self, value: ir.Value) -> _Affine | None:
        """An integer tensor as an affine function of the index."""
        kind = element_type(ir.ShapedType(value.type).element_type)
        if kind.kind != "i" or kind.bits < 32:
            return None
        op = producer(value)
        if op is None or not ir.ShapedType(value.type).rank:
            known = self.shapes.contents(value)
            return _Affine(known[0], {}) if known is not None and len(known) == 1 else None
        if op.name in IOTAS:
            return _Affine(Expr.const(0), {integer(op, "iota_dimension"): 1})
        if op.name == "stablehlo.constant":
            if not is_splat_constant(op):
                return None
            number = int(ir.DenseElementsAttr(op.attributes["value"]).get_splat_value().value)
            return _Affine(Expr.const(number), {}) if abs(number) < _MOST else None
        if op.name in ("stablehlo.add", "stablehlo.subtract"):
            left, right = (self._affine(x) for x in op.operands)
            if left is None or right is None:
                return None
            return left + (right if op.name == "stablehlo.add" else -right)
        if op.name == "stablehlo.convert":
            return self._affine(op.operands[0])
        place = self._places(op)
        inner = None if place is None else self._affine(op.operands[0])
        return None if place is None or inner is None else inner.moved(place)

    def _places(self, op: ir.Operation) -> dict[int, int | None] | None:
        """Where the dimensions of the operand of `op` are in its result; None: index 0 alone."""
        if op.name not in RESHAPES and op.name not in BROADCASTS:
            return None
        equal = self.shapes.constraints.equal
        mine, theirs = (self.shapes.shape(x) for x in (op.operands[0], op.results[0]))
        ones: dict[int, int | None] = {d: None for d, size in enumerate(mine) if size.is_one}
        kept = [d for d, size in enumerate(mine) if not size.is_one]
        if op.name in BROADCASTS:
            to = integers(op, "broadcast_dimensions")
            places = [to[d] for d in kept]
        else:
            places = [d for d, size in enumerate(theirs) if not size.is_one]
        if len(places) != len(kept):
            return None
        pairs = list(zip(kept, places, strict=True))
        return ones | dict(pairs) if all(equal(mine[d], theirs[p]) for d, p in pairs) else None
