"""Sizes in static fields of a result: every call gets their numbers."""

from __future__ import annotations

import dataclasses
import operator
import types
from collections.abc import Mapping
from typing import Any

import jax

from shlo_disc.jax.sizes.symbolic import evaluate
from shlo_disc.jax_private.jaxprs import Traceback
from shlo_disc.jax_private.sizes import DimExpr


def has_sizes(tree: Any) -> bool:
    """True if a static field of a pytree structure holds a symbolic size."""
    data = tree.node_data()
    if data is None:
        return False
    return _holds(data[1]) or any(has_sizes(child) for child in tree.children())


def tree_at(tree: Any, hints: Mapping[str, int]) -> Any:
    """A pytree structure with numbers for the symbolic sizes in its static fields."""
    data = tree.node_data()
    if data is None:
        return tree
    before = tree.children()
    children = [tree_at(child, hints) for child in before]
    if not _holds(data[1]) and all(map(operator.is_, children, before)):
        return tree  # JAX makes another kind of node of a named tuple with a flattening of its own
    return jax.tree_util.PyTreeDef.from_node_data_and_children(
        jax.tree_util.default_registry, (data[0], _at(data[1], hints)), children
    )


def same_trees(a: Any, b: Any) -> bool:
    """True for equal pytree structures, apart from tracebacks in their static fields.

    `checkify` keeps where a check was made: each trace makes another traceback of the same place.
    """
    if a == b:
        return True
    left, right = a.node_data(), b.node_data()
    if left is None or right is None:
        return left is right
    pairs = zip(a.children(), b.children(), strict=False)
    same = left[0] == right[0] and len(a.children()) == len(b.children())
    return same and _same_fields(left[1], right[1]) and all(same_trees(*pair) for pair in pairs)


def _same_fields(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, jax.tree_util.PyTreeDef):
        return same_trees(a, b)
    if isinstance(a, (Traceback, types.TracebackType)):
        return True
    if isinstance(a, (tuple, list, dict)):
        left, right = parts_of(a), parts_of(b)
        return len(left) == len(right) and all(map(_same_fields, left, right))
    return bool(a == b)


def parts_of(value: Any) -> list[Any]:
    """The values inside a container, a slice or a dataclass; none for another value."""
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)]
    return []


def _holds(value: Any) -> bool:
    if isinstance(value, jax.tree_util.PyTreeDef):  # `checkify.Error` has those of its exceptions
        return has_sizes(value)
    return isinstance(value, DimExpr) or any(map(_holds, parts_of(value)))


def _at(value: Any, hints: Mapping[str, int]) -> Any:
    if isinstance(value, DimExpr):
        return evaluate(value, hints)
    if not _holds(value):
        return value
    if isinstance(value, jax.tree_util.PyTreeDef):
        return tree_at(value, hints)
    if isinstance(value, slice):
        return slice(*(_at(part, hints) for part in parts_of(value)))
    if isinstance(value, dict):
        return {_at(k, hints): _at(v, hints) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_at(part, hints) for part in value))
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value)(_at(part, hints) for part in value)
    return dataclasses.replace(
        value,
        **{
            f.name: _at(getattr(value, f.name), hints)
            for f in dataclasses.fields(value)
            if f.init and _holds(getattr(value, f.name))
        },
    )
