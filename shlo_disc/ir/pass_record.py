"""What is kept of a run of a pass."""

from __future__ import annotations

from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class PassRecord:
    """What one pass did in one run of a pipeline."""

    name: str
    changed: int
    time_ms: float
