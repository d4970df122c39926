"""Which arguments of a function are static, or donated: positions and names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["static_arguments"]


def static_arguments(
    function: Callable[..., Any],
    nums: int | Iterable[int] | None,
    names: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Static positions and names; as in `jax.jit`, each implies the other where it can."""
    positions = [nums] if isinstance(nums, int) else list(nums or ())
    keywords = [names] if isinstance(names, str) else list(names or ())
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins have no signature
        return tuple(positions), tuple(keywords)
    both = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    place = {p.name: k for k, p in enumerate(parameters)}
    if nums is not None and names is None:
        count = len(parameters)
        for k in positions:
            if -count <= k < count and parameters[k].name in both:
                keywords.append(parameters[k].name)
    elif names is not None and nums is None:
        positions += [place[name] for name in keywords if name in both]
    known = {p.name for p in parameters}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not takes_any and (unknown := [name for name in keywords if name not in known]):
        raise ValueError(f"static_argnames {unknown} are not arguments of {function}")
    return tuple(positions), tuple(keywords)
