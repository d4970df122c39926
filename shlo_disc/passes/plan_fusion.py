"""plan-fusion: gather ops into the clusters that become kernels.

    %1 = stablehlo.add %0, %b                       %2 = "disc.fusion"(%0, %b) ({
    %2 = stablehlo.tanh %1                  ==>       ^bb0(%x, %y): ... add, tanh ...
                                                    }) {kind = "loop"}

Why     Memory-bound ops cost what they read and write: one kernel per cluster reads inputs once.
Needs   `resolve-shapes`.   Keeps  every result; control flow regions are planned one by one.
Cost    O(ops x local cluster size).
Source  Tile-level stitching after FusionStitching (Zheng et al., 2020) and BladeDISC's kStitch; the
        kinds are described in docs/architecture.md section 3.

A cluster has a *space*, the symbolic shape every result of it has. Kinds `row` and `column` also
split that space into dimensions that are kept and dimensions that are reduced. Their members are
*full* (shape = space) or *row* (shape = what is kept, perhaps with ones). Everything else a cluster
contains is computed from its inputs at whatever index its consumer asks for.

Which ops share a kernel is decided by the rules of `fusion/table.py`, run by `fusion/driver.py`.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base import flags
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.loops import note_steps
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import Pass
from shlo_disc.passes.emit_fusions import Made, check_records, emit_fusions
from shlo_disc.passes.fusion.driver import run, start
from shlo_disc.passes.fusion.graph import Graph
from shlo_disc.passes.fusion.partition import Partition
from shlo_disc.passes.fusion.table import RULES
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.op_classes import CONTROL


@dataclass(frozen=True)
class PlanFusion(Pass):
    """See the module."""

    name: ClassVar[str] = "plan-fusion"
    keeps_known: ClassVar[bool] = True
    machine: MachineModel
    """Decides what pays."""

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Plan every block of `main`; returns the number of fusions made."""
        known = shapes.now()
        made: list[Made] = []
        with module.context:
            for func in module.body.operations:
                if func.operation.name == "func.func":
                    made += _plan_block(func.regions[0].blocks[0], known, self.machine)
            if flags.spec_checks():
                check_records(made, shapes.now())
        return len(made)


def _plan_block(block: ir.Block, shapes: ShapeAnalysis, machine: MachineModel) -> list[Made]:
    made: list[Made] = []
    for op in block.operations:
        if op.operation.name == "stablehlo.while":
            note_steps(op.operation, shapes)
        if op.operation.name in CONTROL:
            for region in op.operation.regions:
                for inner in region.blocks:
                    made += _plan_block(inner, shapes, machine)
    partition = Partition(Graph(block, shapes, machine))
    start(partition)
    if flags.fusion():
        run(partition, RULES)
    return made + emit_fusions(partition)
