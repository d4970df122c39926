"""plan-fusion: gather ops into the clusters that become kernels.

    %1 = stablehlo.add %0, %b                       %2 = "disc.fusion"(%0, %b) ({
    %2 = stablehlo.tanh %1                  ==>       ^bb0(%x, %y): ... add, tanh ...
                                                    }) {kind = "loop"}

Why     Memory-bound ops cost what they read and write: one kernel per cluster reads inputs once.
Needs   `resolve-shapes`.   Keeps  every result; control flow regions are planned one by one.
Cost    O(ops x local cluster size).
Source  Tile-level stitching after FusionStitching (Zheng et al., 2020) and BladeDISC's kStitch; the
        kinds are described in docs/architecture.md section 3.

A cluster has a *space*, the symbolic shape every result of it has. Kind `row` also splits that
space into row dimensions and the trailing dimensions that its reductions run over; its members are
*full* (shape = space) or *row* (shape = row dimensions, perhaps with trailing ones). Everything
else a cluster contains is computed from its inputs at whatever index its consumer asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shlo_disc import flags
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.mlir import ir
from shlo_disc.passes.base import Pass
from shlo_disc.passes.emit_fusions import emit_fusions
from shlo_disc.passes.fusion_graph import (
    Cluster,
    Node,
    Shape,
    broadcast_dims,
    dimensions,
    squeezed,
)
from shlo_disc.passes.op_classes import CONTROL, DENSE_KINDS, FREE, HARD_OPERANDS, RESHAPES
from shlo_disc.passes.plan_dense import DensePlanner, contraction_kind

__all__ = ["PlanFusion"]


@dataclass(frozen=True)
class PlanFusion(Pass):
    """See the module."""

    name: ClassVar[str] = "plan-fusion"

    def run(self, module: ir.Module) -> int:
        """Plan every block of `main`; returns the number of fusions made."""
        shapes = analyze(module)
        with module.context:
            return sum(
                _plan_block(func.regions[0].blocks[0], shapes)
                for func in module.body.operations
                if func.operation.name == "func.func"
            )


def _plan_block(block: ir.Block, shapes: ShapeAnalysis) -> int:
    made = 0
    for op in block.operations:
        if op.operation.name in CONTROL:
            made += sum(_plan_block(b, shapes) for r in op.operation.regions for b in r.blocks)
    planner = _Planner(block, shapes)
    if flags.fusion():
        planner.cluster()
    else:
        planner.separate()
    return made + emit_fusions(planner)


class _Planner(DensePlanner):
    """Clusters one block."""

    def cluster(self) -> None:
        """Give every fusable op a cluster, in program order."""
        for node in self.nodes:
            if contraction_kind(node.op) is not None:
                self.claim(node)
        for node in self.nodes:
            if node.index in self.cluster_of:
                continue
            if node.role in ("elementwise", "moving"):
                self.cluster_of[node.index] = Cluster("loop", node.shapes[0], members={node.index})
                self._join_producers(node)
            elif node.role == "loop":
                self.cluster_of[node.index] = self._reduction(node)
                if node.op.name == "stablehlo.reduce":
                    self._join_producers(node)
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
                self.cluster_of[node.index] = self._reduction(node)

    def _reduction(self, node: Node) -> Cluster:
        """A reduction of trailing dimensions starts a `row` cluster, any other a `loop`."""
        if node.op.name == "stablehlo.reduce":
            dims = dimensions(node.op)
            shape = self.shapes.shape(node.operands[0])
            kept = len(shape) - len(dims)
            if dims and dims == list(range(kept, len(shape))):
                return Cluster("row", shape, kept, {node.index})
        return Cluster("loop", node.shapes[0], members={node.index})

    def _join_producers(self, node: Node) -> None:
        hard = HARD_OPERANDS.get(node.op.name, ())
        for position, value in enumerate(node.operands):
            if position in hard:
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
            if other.kind == "row" and not self._is_space(other.space, other.rows, row):
                return "the rows are others"
            union = Cluster("row", row.space, row.rows, members)
            legal = self._row_legal(union)
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

    def _row_legal(self, row: Cluster) -> bool:
        """Every member is full or row, and reads members only at its own index."""
        for index in row.members:
            node = self.nodes[index]
            if node.role == "loop":
                if node.op.name != "stablehlo.reduce":
                    return False
                shape = self.shapes.shape(node.operands[0])
                kept = len(shape) - len(dimensions(node.op))
                if dimensions(node.op) != list(range(kept, len(shape))):
                    return False
                if not self._is_space(shape, kept, row):
                    return False
            elif self.level(node.shapes[0], row) is None:
                return False
            for value in node.operands:
                for base, chain in self.bases(value):
                    if self.of_value.get(base) not in row.members:
                        continue
                    if node.role == "moving":
                        return False
                    if self.only_units_change(base, chain, row):
                        continue
                    if node.role == "loop" or not self._spreads_rows(base, chain, row):
                        return False
        return True

    def _is_space(self, shape: Shape, rows: int, row: Cluster) -> bool:
        """Is `shape`, cut behind `rows` dimensions, the cluster's space but for unit dimensions?"""
        return all(
            self.same(squeezed(mine), squeezed(its))
            for mine, its in (
                (shape[:rows], row.space[: row.rows]),
                (shape[rows:], row.space[row.rows :]),
            )
        )

    def _spreads_rows(self, base: ir.Value, chain: Sequence[ir.Operation], row: Cluster) -> bool:
        """`base` is a row value and `chain` only adds unit or trailing dimensions to it."""
        if self.level(self.shapes.shape(base), row) != "row":
            return False
        return all(
            self.level(self.shapes.shape(op.results[0]), row) is not None
            and (op.name in RESHAPES or self._keeps_order(op))
            for op in chain
        )

    def _keeps_order(self, broadcast: ir.Operation) -> bool:
        """Are the operand's dimensions the leading ones of the result (units not counted)?"""
        if broadcast.name not in FREE:
            return False
        shape = self.shapes.shape(broadcast.operands[0])
        result = self.shapes.shape(broadcast.results[0])
        kept = [d for i, d in enumerate(broadcast_dims(broadcast)) if not shape[i].is_one]
        return kept == [d for d, size in enumerate(result) if not size.is_one][: len(kept)]
