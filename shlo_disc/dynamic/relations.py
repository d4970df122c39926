"""`lhs op rhs` on symbolic sizes: its text, and its truth for given values of the symbols."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.notation import shortened

RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What the relations of guards, checks and variants mean."""


def holds(lhs: Expr, relation: str, rhs: Expr, sizes: Mapping[str, int]) -> bool:
    """True if the relation holds for these sizes. Raises KeyError for a symbol without a size."""
    return RELATIONS[relation](lhs.evaluate(sizes), rhs.evaluate(sizes))


@dataclass(frozen=True)
class Relation:
    """What is true of the sizes of a call, why, and which line of the program says so."""

    left: Expr
    relation: str
    """`==`, `!=` or `>=`."""
    right: Expr
    reason: str
    where: str = ""
    """`model.py:7`."""

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """True if it holds for these values of all its symbols."""
        return holds(self.left, self.relation, self.right, sizes)

    def allows(self, sizes: Mapping[str, int]) -> bool:
        """True if it holds, or has a symbol without a value in `sizes`."""
        return not self.symbols() <= sizes.keys() or self.holds(sizes)

    def symbols(self) -> frozenset[str]:
        """The symbols of both sides."""
        return self.left.symbols() | self.right.symbols()


_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def spelled(lhs: Expr, relation: str, rhs: Expr) -> str:
    """The relation as text. Where `rhs` is a constant, all constants are on the right: not
    `-n + 16 >= 0`, but `n <= 16`.
    """
    if rhs.is_const and not lhs.is_const:
        rest, number = lhs - lhs.constant_term, rhs - lhs.constant_term
        if rest.terms[0][1] < 0:
            rest, relation, number = -rest, _TURNED[relation], -number
        return f"{rest} {relation} {number}"
    return f"{lhs} {relation} {rhs}"


def parse_constraint(text: str) -> tuple[Expr, str, Expr]:
    """(lhs, op, rhs) of a constraint in `jax.export` notation such as "mod(t, 4) == 0" or "b >= 4".

    Raises ValueError with the text when it is not one.
    """
    parts = re.split(r"(==|!=|<=|>=|<|>)", text)
    if len(parts) != 3:
        raise ValueError(
            f"{shortened(text)!r} is not a constraint such as 'b >= 4' or 'mod(t, 4) == 0'"
        )
    return Expr.parse(parts[0]), parts[1], Expr.parse(parts[2])


def lower_bound(lhs: Expr, relation: str, rhs: Expr) -> tuple[str, int] | None:
    """(symbol, number) of a relation that says `symbol >= number` and no more; else None."""
    if relation in ("<", "<="):
        lhs, relation, rhs = rhs, {"<": ">", "<=": ">="}[relation], lhs
    if relation not in (">", ">="):
        return None
    difference = lhs - rhs
    constant = difference.constant_term
    atom = (difference - constant).lone_atom
    if atom is None or atom.op:
        return None
    return atom.key, -constant + (relation == ">")
