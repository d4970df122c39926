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
    sink_into_branches,
)
from shlo_disc.passes.base import Pass, named, registry
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.pipeline import CLEANUP, planning

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
