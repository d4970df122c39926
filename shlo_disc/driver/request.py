"""What a user asks the compiler for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_disc.base.records import dataclass
from shlo_disc.driver.options import (
    stated_constraints,
    stated_donated,
    stated_first_sizes,
    stated_likely,
    stated_names,
    stated_shapes,
    stated_text,
)
from shlo_disc.executables.devices import full_target


@dataclass(frozen=True)
class Stated:
    """A program and what its user says of its arguments."""

    source: Any
    shapes: Sequence[Sequence[str] | None] | None
    names: Sequence[str | None] | None
    constraints: Sequence[str]
    seen: Mapping[str, int] | None

    @classmethod
    def of(cls, source: Any, shapes: Any, names: Any, constraints: Any, seen: Any) -> Stated:
        """Raises TypeError for what has another type."""
        return cls(
            source,
            stated_shapes(shapes),
            stated_names(names),
            stated_constraints(constraints),
            stated_first_sizes(seen),
        )


@dataclass(frozen=True)
class Options:
    """How a program is compiled."""

    target: str
    weak_results: Sequence[bool]
    likely: Mapping[str, Sequence[int]]
    donated: Sequence[int]

    @classmethod
    def of(cls, target: Any, weak_results: Any, likely: Any, donated: Any) -> Options:
        """Raises TypeError for what has another type, ValueError for what is no size."""
        text = stated_text("target", target)
        if text is None:
            raise TypeError("target must be a string, got None")
        return cls(full_target(text), weak_results, stated_likely(likely), stated_donated(donated))


@dataclass(frozen=True)
class Request:
    """One call of the compiler."""

    stated: Stated
    options: Options
    name: str | None
    may_be_several: bool
    """Whether programs in turn will do, where sizes come from data."""
