"""What a user tells the backend in `torch.compile(..., options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from shlo_disc.base.records import dataclass
from shlo_disc.driver.options import stated_likely


@dataclass(frozen=True)
class Options:
    """Checked options."""

    likely: Mapping[str, Sequence[int]]
    freeze: bool
    on_unsupported: str
    checks: bool

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None) -> Self:
        """Raises TypeError or ValueError for an option that is unknown or of another type."""
        if mode not in (None, "default"):
            raise ValueError(f"mode={mode!r} is one of Inductor's; shlo_disc has 'default' only")
        given = dict(options or {})
        likely, freeze = given.pop("likely", None), given.pop("freeze", False)
        on_unsupported = given.pop("on_unsupported", "eager")
        checks = given.pop("checks", True)
        if given:
            raise ValueError(
                f"unknown options {', '.join(sorted(map(str, given)))}; known: checks, freeze, "
                "likely, on_unsupported"
            )
        for name, value in (("freeze", freeze), ("checks", checks)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, got {value!r}")
        return cls(stated_likely(likely), freeze, stated_on_unsupported(on_unsupported), checks)


def stated_on_unsupported(given: Any) -> str:
    """What is done about what is not covered. Raises ValueError for anything unknown."""
    if given not in ("error", "eager"):
        raise ValueError(f"on_unsupported must be 'eager' or 'error', got {given!r}")
    return str(given)
