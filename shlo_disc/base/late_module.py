"""A module that a front end makes when somebody needs it: programs on disk are found without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shlo_disc.base.later import Later
from shlo_disc.base.records import dataclass


@dataclass(frozen=True, eq=False)
class LateModule:
    """A module of StableHLO, made by a front end of this process, hence trusted."""

    digest: Later[bytes]
    """Equal for equal modules, with source lines as numbers of `lines`."""
    lines: Sequence[str]
    """Source lines of today."""
    module: Later[Any]
    """The module itself."""
    not_kept: str = ""
    """Why every process makes it, behind "it"; "" if later ones find it."""
