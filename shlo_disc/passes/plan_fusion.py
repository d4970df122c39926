"""plan-fusion: gather ops into the clusters that become kernels.

    %1 = stablehlo.add %0, %b                       %2 = "disc.fusion"(%0, %b) ({
    %2 = stablehlo.tanh %1                  ==>       ^bb0(%x, %y): ... add, tanh ...
                                                    }) {kind = "loop"}

Why     Memory-bound ops cost what they read and write: one kernel per cluster reads inputs once.
Needs   `resolve-shapes`.   Keeps  every result; control flow regions are planned one by one.
Cost    O(ops x local cluster size).
Source  Tile-level stitching after FusionStitching (Zheng et al., 2020) and BladeDISC's kStitch; the
        kinds are described in docs/architecture.md section 3.

A cluster has a *space*, the symbolic shape every result of it has. Kinds `row`
and `column` also split that space into dimensions that are kept and dimensions that their
reductions run over; their members are *full* (shape = space) or *row* (shape = what is kept,
perhaps with ones). Everything else a cluster contains is computed from its inputs at whatever index
its consumer asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from shlo_disc import flags
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass
from shlo_disc.passes.emit_fusions import Made, check_records, emit_fusions
from shlo_disc.passes.fusion_graph import (
    Cluster,
    Node,
)
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.op_classes import CONTROL, DENSE_KINDS, MATERIALIZED_OPERANDS, RESHAPES
from shlo_disc.passes.plan_dense import contraction_kind
from shlo_disc.passes.plan_rows import RowPlanner

__all__ = ["PlanFusion", "Planner"]


@dataclass(frozen=True)
class PlanFusion(Pass):
    """See the module."""

    name: ClassVar[str] = "plan-fusion"
    machine: MachineModel
    """Decides what pays."""

    def run(self, module: ir.Module) -> int:
        """Plan every block of `main`; returns the number of fusions made."""
        shapes = analyze(module)
        made: list[Made] = []
        with module.context:
            for func in module.body.operations:
                if func.operation.name == "func.func":
                    made += _plan_block(func.regions[0].blocks[0], shapes, self.machine)
            if flags.spec_checks():
                check_records(made, analyze(module))
        return len(made)


def _plan_block(block: ir.Block, shapes: ShapeAnalysis, machine: MachineModel) -> list[Made]:
    made: list[Made] = []
    for op in block.operations:
        if op.operation.name in CONTROL:
            for region in op.operation.regions:
                for inner in region.blocks:
                    made += _plan_block(inner, shapes, machine)
    planner = Planner(block, shapes, machine)
    if flags.fusion():
        planner.cluster()
    else:
        planner.separate()
    return made + emit_fusions(planner)


class Planner(RowPlanner):
    """Clusters one block."""

    def cluster(self) -> None:
        """Give every fusable op a cluster, in program order."""
        for node in self.nodes:
            if contraction_kind(node.op) is not None:
                self.claim(node)
        self._loops_and_rows()
        self.recompute()
        for node in self.nodes:
            if contraction_kind(node.op) is not None:
                self.dense(node)
        for node in self.nodes:
            if node.op.name == "stablehlo.dot_general":
                self.attention(node)
        self.siblings()
        self.bands()
        self.row_work()
        self.prologues()
        self.columns()
        self.update_work()
        self.side_by_side()

    def separate(self) -> None:
        """A cluster for every op."""
        for node in self.nodes:
            kind = contraction_kind(node.op)
            if kind is not None:
                self.cluster_of[node.index] = Cluster(kind, node.shapes[0], members={node.index})
            elif node.role in ("elementwise", "moving"):
                self.cluster_of[node.index] = Cluster("loop", node.shapes[0], members={node.index})
            elif node.role == "loop":
                self.cluster_of[node.index] = self.reduction(node)

    def cluster_apart(self, parts: Mapping[int, int] = MappingProxyType({})) -> None:
        """A cluster for every contraction; of the rest, what is in one part may share a cluster.

        `parts`: node to part; all are in one where it is empty.
        """
        self.parts = parts
        for node in self.nodes:
            kind = contraction_kind(node.op)
            if kind is not None:
                self.cluster_of[node.index] = Cluster(kind, node.shapes[0], members={node.index})
        self._loops_and_rows()

    def _loops_and_rows(self) -> None:
        """What is in no cluster yet, in program order."""
        for node in self.nodes:
            if node.index in self.cluster_of:
                continue
            if node.role in ("elementwise", "moving"):
                self.cluster_of[node.index] = Cluster("loop", node.shapes[0], members={node.index})
                self._join_producers(node)
            elif node.role == "loop":
                self.cluster_of[node.index] = self.reduction(node)
                if node.op.name == "stablehlo.reduce":
                    self._join_producers(node)

    def _join_producers(self, node: Node) -> None:
        materialized = MATERIALIZED_OPERANDS.get(node.op.name, ())
        for position, value in enumerate(node.operands):
            if position in materialized:
                continue
            for base, chain in self.bases(value):
                theirs = self.cluster_of.get(self.of_value.get(base, -1))
                mine = self.cluster_of[node.index]
                if theirs is None or theirs is mine or theirs.kind in DENSE_KINDS:
                    continue
                union = self._union(node, theirs, mine, chain)
                reason = union if isinstance(union, str) else self.misfit(union)
                if reason is not None:
                    self.why[self.of_value[base], node.index] = reason
                    continue
                assert isinstance(union, Cluster)
                self.replace(union, mine, theirs)

    def _union(
        self, node: Node, theirs: Cluster, mine: Cluster, chain: Sequence[ir.Operation]
    ) -> Cluster | str:
        """Both clusters as one, or why `node` may not read the other's value inside a kernel."""
        members = theirs.members | mine.members
        row = mine if mine.kind == "row" else theirs if theirs.kind == "row" else None
        if row is not None:
            other = theirs if row is mine else mine
            if other.kind == "row" and not self.is_space(other.space, other.reduced, row):
                return "the rows are others"
            union = Cluster("row", row.space, row.reduced, members)
            legal = self.in_rows(union)
            return union if legal else "a row would need elements of another row"
        direct = node.role == "elementwise" and not chain
        if direct and self.same(theirs.space, mine.space):
            return Cluster("loop", mine.space, members=members)
        # Computed at the consumer's index: only when nobody else needs it and no element is
        # computed twice.
        if not all(op.name in RESHAPES for op in chain):
            return "it is broadcast: its elements would be computed several times"
        if not self.outside_users(theirs) <= mine.members:
            return "it is read at other places, too"
        return Cluster("loop", mine.space, members=members)
