"""The passes of a compilation, in order, and why each is where it is."""

from __future__ import annotations

from shlo_disc.passes.base import Late, Pass
from shlo_disc.passes.broadcast_splats import BroadcastSplats
from shlo_disc.passes.cleanup import CSE
from shlo_disc.passes.drop_barriers import DropBarriers
from shlo_disc.passes.fold_transposes import FOLD_TRANSPOSES
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.place_scalars import PlaceScalars
from shlo_disc.passes.plan_buffers import PlanBuffers
from shlo_disc.passes.plan_fusion import PlanFusion
from shlo_disc.passes.resolve_shapes import ResolveShapes
from shlo_disc.passes.share_kernels import ShareKernels
from shlo_disc.passes.simplify import SIMPLIFY
from shlo_disc.passes.sink_constants import SinkConstants
from shlo_disc.passes.sink_views import SinkViews
from shlo_disc.passes.sum_integers import SUM_INTEGERS

_LOOPS = ("stablehlo.while",)

CLEANUP: tuple[Pass, ...] = (
    CSE,  # first: JAX repeats constants and shape arithmetic, two thirds of all ops
    Late("forward-carried", _LOOPS),  # before shapes: a carried size is a symbol nobody knows
    # Before shapes: it writes arithmetic of sizes.
    Late("expand-windows", ("disc.reduce_window", "stablehlo.reduce_window")),
    ResolveShapes(),  # before every rule: they ask for sizes
    SIMPLIFY,
    SUM_INTEGERS,  # after the rules: scales are broadcasts, and products have no transposes before
    # After the rules: broadcasts and slices are plain.
    Late("lay-out-images", ("stablehlo.convolution", "stablehlo.dynamic_conv")),
    FOLD_TRANSPOSES,  # those at the ends of images, with what is there
    # After the rules: they join transposes.
    Late("lift-transposes", ("stablehlo.transpose",)),
    Late("hoist-invariants", _LOOPS),  # after the rules: what they fold need not leave
    Late("hoist-projections", _LOOPS),  # after their weights have left
    CSE,  # after the rules: they build equal values apart
    # Last: a value that two branches compute is one value before them.
    Late("sink-into-branches", ("stablehlo.case", "stablehlo.if")),
)
"""From the normal form of `ingest` to what `plan-fusion` reads."""

_BEFORE: tuple[Pass, ...] = (
    DropBarriers(),  # after the last cse, which would undo it
    SinkConstants(),  # likewise; before bodies move into kernels
    SinkViews(),  # likewise
    Late("stack-results", _LOOPS),  # after all that rebuilds loops
    BroadcastSplats(),  # after fold-constants, which would undo it
)


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
