"""Which arguments of a function are static, or donated: positions and names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.jax.arguments.leaves import positional_names


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


@dataclass(frozen=True)
class Statics:
    """The arguments of `function` that are static."""

    function: Callable[..., Any]
    nums: tuple[int, ...]
    names: tuple[str, ...]

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[int], dict[str, Any], tuple[Hashable, ...]]:
        """Positions of the dynamic positional arguments, dynamic keyword arguments, static key.

        Raises ValueError for a static argument that has no hash.
        """
        if not (self.nums or self.names):
            return range(len(args)), kwargs, ()
        nums = {k if k >= 0 else k + len(args) for k in self.nums}
        positions = [k for k in range(len(args)) if k not in nums]
        named = {k: v for k, v in kwargs.items() if k not in self.names}
        static: list[tuple[Any, type, Any]] = [
            (k, type(args[k]), args[k]) for k in sorted(nums) if k < len(args)
        ]
        static += [(k, type(v), v) for k, v in sorted(kwargs.items()) if k in self.names]
        for place, kind, value in static:
            try:
                hash(value)
            except TypeError:
                where = place
                if not isinstance(place, str):
                    where = positional_names(self.function, [place])[0]
                raise ValueError(
                    f"static argument {where} is a {kind.__name__}, which cannot be hashed"
                ) from None
        return positions, named, tuple(static)
