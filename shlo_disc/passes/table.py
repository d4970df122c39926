"""Every pass there is, by name: importing this module registers them all."""

from __future__ import annotations

from shlo_disc.passes import (  # noqa: F401 - imported for their registration
    cleanup,
    expand_windows,
    fold_broadcasts,
    fold_constants,
    fold_converts,
    fold_gathers,
    fold_reductions,
    fold_reshapes,
    fold_transposes,
    forward_carried,
    hoist_invariants,
    hoist_projections,
    lift_transposes,
    resolve_shapes,
    simplify,
    simplify_algebra,
)
from shlo_disc.passes.base import Pass, named, register, registry
from shlo_disc.passes.drop_barriers import DropBarriers
from shlo_disc.passes.pipeline import CLEANUP
from shlo_disc.passes.plan_buffers import PlanBuffers
from shlo_disc.passes.plan_fusion import PlanFusion
from shlo_disc.passes.sink_constants import SinkConstants
from shlo_disc.passes.sink_views import SinkViews
from shlo_disc.passes.stack_results import StackResults

__all__ = ["PLANNING", "pipeline_of", "registry"]

PLANNING: tuple[Pass, ...] = (
    DropBarriers(),  # after the last cse, which would undo it; the planner need not know them
    SinkConstants(),  # after the last cse, which would undo it; before bodies move into kernels
    SinkViews(),  # likewise
    StackResults(),  # after all that rebuilds loops
    PlanFusion(),
    PlanBuffers(),
)
"""What follows CLEANUP."""

for _pass in PLANNING:
    if _pass.name not in registry():
        register(_pass)

_GROUPS: dict[str, tuple[Pass, ...]] = {"cleanup": CLEANUP, "planning": PLANNING}


def pipeline_of(text: str) -> list[Pass]:
    """The passes in `cse,resolve-shapes`; `cleanup` and `planning` stand for those groups.

    Raises ValueError for a name that no pass has.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    passes: list[Pass] = []
    for name in names:
        passes.extend(_GROUPS[name] if name in _GROUPS else [named(name)])
    return passes
