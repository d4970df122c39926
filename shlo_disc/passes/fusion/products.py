"""Questions about products that several rules ask: seeds, sums, views of operands."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.views import View, view_of
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.fusion.graph import Graph, Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.kinds import contraction_kind
from shlo_disc.passes.match_dense import Sums, sums_of
from shlo_disc.passes.op_classes import FREE, RESHAPES, is_splat_constant

DOT = "stablehlo.dot_general"


def products(p: Partition) -> Iterator[Node]:
    """Every `dot_general` that is in a cluster of kind `dense` when it is reached."""
    for node in p.graph.nodes:
        if node.op.name == DOT:
            cluster = p.cluster_of.get(node.index)
            if cluster is not None and cluster.kind == "dense":
                yield node


def single_result(p: Partition, cluster: Cluster) -> Node | None:
    """The one node of a cluster that others read; None where there are several, or none."""
    nodes = p.graph.nodes
    outer = [i for i in cluster.members if nodes[i].users - cluster.members]
    return nodes[outer[0]] if len(outer) == 1 else None


def dot_of(p: Partition, cluster: Cluster) -> Node:
    """The `dot_general` of a cluster that has one."""
    nodes = (p.graph.nodes[i] for i in cluster.members)
    return next(n for n in nodes if n.op.name == DOT)


def sums_of_cluster(p: Partition, cluster: Cluster) -> Sums:
    """The sums of the first contraction of a cluster, which has one."""
    nodes = (p.graph.nodes[i] for i in sorted(cluster.members))
    op = next(n.op for n in nodes if contraction_kind(n.op) is not None)
    return sums_of(op, p.region(cluster.members, cluster.clones))


def in_memory(
    graph: Graph, value: ir.Value, base: ir.Value, through_broadcasts: bool = False
) -> View | None:
    """`value` as a view of what `base` is in memory, which may have another shape.

    None if kernels compute `base` themselves: an iota, a broadcast, a mask of positions.
    """
    while (op := producer(base)) is not None and op.name in RESHAPES:
        base = op.operands[0]
    if base in graph.recomputed or (op is not None and (op.name in FREE or is_splat_constant(op))):
        return None
    return view_of(value, [base], graph.shapes, through_broadcasts)


def nodes_of(graph: Graph, value: ir.Value) -> set[int]:
    """The node of this block that computes `value`, if one does."""
    index = graph.of_value.get(value)
    return set() if index is None else {index}


def direct_users(graph: Graph, node: Node) -> set[int | None]:
    """The nodes that read a result, free ones too."""
    users = [use.owner.operation for result in node.op.results for use in result.uses]
    return {graph.of_value.get(op.results[0]) if len(op.results) else None for op in users}
