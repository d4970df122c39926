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
    fold_reverses,
    fold_scatters,
    fold_selects,
    fold_slices,
    fold_transposes,
    forward_carried,
    hoist_invariants,
    hoist_projections,
    lay_out_images,
    lift_transposes,
    resolve_shapes,
    simplify,
    simplify_algebra,
)
from shlo_disc.passes.base import Pass, named, registry
from shlo_disc.passes.broadcast_splats import BroadcastSplats
from shlo_disc.passes.drop_barriers import DropBarriers
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.pipeline import CLEANUP
from shlo_disc.passes.place_scalars import PlaceScalars
from shlo_disc.passes.plan_buffers import PlanBuffers
from shlo_disc.passes.plan_fusion import PlanFusion
from shlo_disc.passes.share_kernels import ShareKernels
from shlo_disc.passes.sink_constants import SinkConstants
from shlo_disc.passes.sink_views import SinkViews
from shlo_disc.passes.stack_results import StackResults

__all__ = ["NEEDED", "passes", "pipeline_of", "placing", "planning"]

_BEFORE: tuple[Pass, ...] = (
    DropBarriers(),  # after the last cse, which would undo it
    SinkConstants(),  # likewise; before bodies move into kernels
    SinkViews(),  # likewise
    StackResults(),  # after all that rebuilds loops
    BroadcastSplats(),  # after fold-constants, which would undo it
)

NEEDED = frozenset(
    {
        "forward-carried",
        "expand-windows",
        "resolve-shapes",
        "drop-barriers",
        "sink-constants",
        "plan-fusion",
        "plan-buffers",
    }
)
"""The passes without which some programs cannot be lowered; the others only make better code."""


def planning(machine: MachineModel) -> tuple[Pass, ...]:
    """The passes that follow CLEANUP, for a machine."""
    return (
        *_BEFORE,
        PlanFusion(machine),
        ShareKernels(),  # before numbers of operands have places
        *placing(machine),
    )


def placing(machine: MachineModel) -> tuple[Pass, ...]:
    """The passes that say where the values of planned fusions are."""
    return (
        PlaceScalars(machine),  # before places: it says whose memory they are in
        PlanBuffers(),
    )


def passes(machine: MachineModel) -> dict[str, Pass]:
    """Every pass by name, sorted."""
    every = registry() | {a_pass.name: a_pass for a_pass in planning(machine)}
    return dict(sorted(every.items()))


def pipeline_of(text: str, machine: MachineModel) -> list[Pass]:
    """The passes in `cse,resolve-shapes`; `cleanup` and `planning` stand for those groups.

    Raises ValueError for a name that no pass has.
    """
    groups = {"cleanup": CLEANUP, "planning": planning(machine)}
    known = passes(machine)
    found: list[Pass] = []
    for name in (name.strip() for name in text.split(",")):
        if name in groups:
            found.extend(groups[name])
        elif name:
            found.append(known[name] if name in known else named(name))
    return found
