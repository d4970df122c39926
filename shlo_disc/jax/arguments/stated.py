"""What the user states of the sizes: `shapes=("b, t, _", None)` and `constraints=("t % 4 ==
0",)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from shlo_disc.base.errors import ShapeMismatchError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.arguments.leaves import Leaf
from shlo_disc.jax.arguments.plan import Guard, Pattern

_RELATION = re.compile(r"(.+?)(>=|<=|==|>|<)(.+)")
_SYMBOL = re.compile(r"\b(?!(?:floordiv|mod|min|max)\b)[A-Za-z_]\w*")


def parse_constraint(text: str) -> Guard:
    """The guard written in `text`, in `jax.export`'s notation (`%` and `//` work too).

    Raises ValueError for anything but two sizes with `>=`, `<=`, `>`, `<` or `==` between.
    """
    found = _RELATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"constraint {text!r}: expected two sizes with >=, <=, >, < or == between them"
        )
    try:
        left, right = Expr.parse(found[1]), Expr.parse(found[3])
    except ValueError as error:
        raise ValueError(f"constraint {text!r}: {error}") from None
    if not left.symbols() | right.symbols():
        raise ValueError(f"constraint {text!r} names no symbol")
    relation = found[2]
    if relation in ("<=", "<"):
        left, right = right, left
    if relation in (">", "<"):
        right = right + 1
    relation = "==" if relation == "==" else ">="
    return Guard(left, relation, right, "stated in constraints", stated=text.strip())


def parse_likely(
    likely: Mapping[str, int | Iterable[int]] | None,
    shapes: Sequence[Any] | Mapping[str, Any] | None,
) -> dict[str, tuple[int, ...]]:
    """`{"b": [1, 8], "t": 128}` as values by symbol.

    Raises ValueError for a symbol that `shapes` does not name and for what is no size.
    """
    texts = " ".join(filter(_is_text, jax.tree.leaves(shapes)))
    stated = set(_SYMBOL.findall(texts)) - {"_"}  # `_` is the size of the call
    found = {}
    for name, given in (likely or {}).items():
        if name not in stated:
            known = ", ".join(sorted(stated)) or "it names none"
            raise ValueError(f"likely names the size {name!r}, but shapes does not ({known})")
        values = (given,) if isinstance(given, int) else tuple(given)
        if not all(isinstance(value, int) and value >= 0 for value in values):
            raise ValueError(f"likely sizes of {name!r} must be whole numbers, got {given!r}")
        found[name] = tuple(dict.fromkeys(values))
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def stated_shapes(
    shapes: Sequence[Any] | Mapping[str, Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    leaves: Sequence[Leaf],
) -> list[tuple[Expr | None, ...] | None]:
    """For each leaf the sizes stated for it: an expression, or None where nothing is stated.

    `names`: of the positional arguments. `_` and `...` are left None here, as in `jax.export` they
    stand for the sizes of the argument at hand.
    """
    if shapes is None:
        return [None] * len(leaves)
    texts: list[str | None] = []
    if isinstance(shapes, Mapping):
        unknown = shapes.keys() - {*names, *kwargs}
        if unknown:
            raise ValueError(
                f"shapes names arguments the call does not have: {', '.join(sorted(unknown))}"
            )
        given = [shapes.get(name) for name in names]
        by_name = dict(shapes)
    else:
        if isinstance(shapes, str):
            shapes = (shapes,)
        if len(shapes) > len(args):
            raise ValueError(
                f"shapes has {len(shapes)} entries, but the call has {len(args)} positional "
                "arguments"
            )
        given = [*shapes, *[None] * (len(args) - len(shapes))]
        by_name = {}
    for name, spec, value in zip(names, given, args, strict=True):
        texts += _spread(name, spec, value)
    for name in sorted(kwargs):
        texts += _spread(name, by_name.get(name), kwargs[name])
    return [
        None if text is None else _sizes(text, leaf)
        for text, leaf in zip(texts, leaves, strict=True)
    ]


def _is_spec(value: Any) -> bool:
    return value is None or isinstance(value, str) or value is ...


def _spread(name: str, spec: Any, value: Any) -> list[str | None]:
    """One text for each leaf of `value`; `spec` is a prefix of its structure."""
    try:
        full = jax.tree.broadcast(spec, value, is_leaf=_is_spec)
    except ValueError as error:
        raise ValueError(
            f"shapes for argument {name} do not match its structure: {error}"
        ) from None
    texts = jax.tree.leaves(full, is_leaf=_is_spec)
    for text in texts:
        if not _is_spec(text):
            raise ValueError(
                f"shapes for argument {name}: {text!r} is not a string like 'b, t, _' or None"
            )
    return ["..." if text is ... else text for text in texts]


def _sizes(text: str, leaf: Leaf) -> tuple[Expr | None, ...]:
    parts = [part.strip() for part in _split(text.strip())]
    rank = len(leaf.shape)
    if "..." in parts:
        at = parts.index("...")
        parts[at : at + 1] = ["_"] * (rank - len(parts) + 1)
    if len(parts) != rank:
        raise ShapeMismatchError(
            f"argument {leaf.name} has shape {leaf.shape}, but shapes states {len(parts)} sizes: "
            f"{text!r}"
        )
    try:
        return tuple(None if part == "_" else Expr.parse(part) for part in parts)
    except ValueError as error:
        raise ValueError(f"shapes for argument {leaf.name}: {error}") from None


def _split(text: str) -> list[str]:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    parts, depth, start = [], 0, 0
    for k, char in enumerate(text):
        if char == "," and depth == 0:
            parts.append(text[start:k])
            start = k + 1
        depth += (char == "(") - (char == ")")
    parts.append(text[start:])
    if not parts[-1].strip():
        parts.pop()
    return parts


def stated_pattern(
    stated: Sequence[Sequence[Expr | None] | None],
    constraints: Sequence[Guard],
    leaves: Sequence[Leaf],
) -> Pattern:
    """Everything that was stated, as a pattern that any call must fit."""
    dims = tuple(
        tuple(said) if said is not None else (None,) * len(leaf.shape)
        for said, leaf in zip(stated, leaves, strict=True)
    )
    pattern = Pattern(tuple(leaf.name for leaf in leaves), dims, tuple(constraints))
    known = set(pattern.symbols)
    for guard in constraints:
        if missing := guard.symbols() - known:
            raise ValueError(
                f"constraint {guard.stated!r} names {', '.join(sorted(missing))}, which no entry "
                "of shapes has"
            )
    return pattern
