"""Sizes between the two halves of a rule of `jax.custom_vjp`.

JAX hands what `fwd` keeps to `bwd` as it is: a number stays a Python number. A symbolic size would
become a traced number there, and `jnp.zeros(shape)` in `bwd` would need a constant. It travels as
a part of the structure instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from shlo_disc.jax.sizes.symbolic import is_size, open_scope


class _KeptSize:
    """A symbolic size as a container without leaves."""

    def __init__(self, size: Any) -> None:
        self.size = size


jax.tree_util.register_pytree_node(
    _KeptSize, lambda kept: ((), kept.size), lambda size, _: _KeptSize(size)
)


def _is_kept(value: Any) -> bool:
    return isinstance(value, _KeptSize)


def _keeps_sizes(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def rule(*args: Any, **named: Any) -> Any:
        found = forward(*args, **named)
        if not isinstance(found, (list, tuple)) or len(found) != 2:
            return found  # JAX says what is wrong
        result, kept = found
        return result, jax.tree.map(lambda x: _KeptSize(x) if is_size(x) else x, kept)

    return rule


def _reads_sizes(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def rule(*args: Any) -> Any:
        *static, kept, cotangents = args
        kept = jax.tree.map(lambda x: x.size if _is_kept(x) else x, kept, is_leaf=_is_kept)
        return backward(*static, kept, cotangents)

    return rule


def _custom_vjp(original: Callable[..., Any], rule: Any, *args: Any, **named: Any) -> Any:
    """A call of a function with rules of its own, in a trace of ours."""
    if open_scope() is None or rule.fwd is None or rule.bwd is None:
        return original(rule, *args, **named)
    copied = object.__new__(type(rule))
    vars(copied).update(vars(rule))
    copied.fwd, copied.bwd = _keeps_sizes(rule.fwd), _reads_sizes(rule.bwd)
    return original(copied, *args, **named)


REPLACED: dict[str, Callable[..., Any]] = {"custom_vjp.__call__": _custom_vjp}
"""The replacement of every function and method, by its name in JAX."""
