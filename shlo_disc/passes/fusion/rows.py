"""What a kernel of kind `row` or `column` may hold: members and how they read each other."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.reductions import reduction_runs
from shlo_disc.ir.attributes import broadcast_dims, reduced_dims
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import Graph, Node, Read, Shape
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.op_classes import FREE, GATHERS, RESHAPES, is_row_reduction

_LEVELS = {"elementwise": ("full", "flat", "row"), "data_movement": ("full", "row")}
"""What the members of a cluster may be, by their role."""


def reduction(graph: Graph, node: Node) -> Cluster:
    """The cluster of one op that loops: `row` for a reduction of trailing dimensions, and perhaps
    of some further in front; `loop` for any other.
    """
    if is_row_reduction(node.op):
        shape, dims = graph.shapes.shape(node.operands[0]), tuple(reduced_dims(node.op))
        runs = reduction_runs(shape, dims)
        if dims and (len(runs) < 3 or (len(runs) == 4 and _is_row(graph, runs[-1]))):
            return Cluster("row", shape, dims, {node.index})
    return Cluster("loop", node.shapes[0], members={node.index})


def _is_row(graph: Graph, sizes: Shape) -> bool:
    """True if these are enough columns to lie in the lanes."""
    columns = Expr.product(sizes)
    return not columns.is_const or bool(columns.value >= graph.costs.least_columns)


def is_space(p: Partition, shape: Shape, dims: Sequence[int], row: Cluster) -> bool:
    """True if `shape` with `dims` reduced is the cluster's space but for unit dimensions."""
    mine, its = reduction_runs(shape, dims), row.runs
    return len(mine) == len(its) and all(map(p.graph.same, mine, its))


def in_rows(p: Partition, row: Cluster) -> bool:
    """Every member is full, flat or row, and reads members only at its own index."""
    graph, members, known = p.graph, row.members, p.known_in_space(row)
    for index in members:
        node, key = graph.nodes[index], (index, -1)
        if key not in known:
            known[key] = _lies_in_space(p, node, row)
        if not known[key]:
            return False
        for number, read in enumerate(graph.reads(index)):
            if read.source not in members:
                continue
            if node.role == "data_movement":
                if _is_start(node, read.position) and _is_computed(graph, read.source, row):
                    continue
                return False
            key = index, number
            if key not in known:
                known[key] = _reads_own_index(p, node, read, row)
            if not known[key]:
                return False
    return True


def _lies_in_space(p: Partition, node: Node, row: Cluster) -> bool:
    """True if a node is full, flat or row."""
    if node.role != "loop":
        return p.level(node.shapes[0], row) in _LEVELS[node.role]
    shape = p.graph.shapes.shape(node.operands[0])
    reduces = node.index in p.graph.row_reductions
    return reduces and is_space(p, shape, reduced_dims(node.op), row)


def _reads_own_index(p: Partition, node: Node, read: Read, row: Cluster) -> bool:
    """True if a node that moves no data reads `read` at its own index."""
    if p.only_units_change(read.base, read.chain, row):
        return True
    return node.role != "loop" and _spreads_rows(p, read.base, read.chain, row)


def _is_computed(graph: Graph, index: int, row: Cluster) -> bool:
    """True if a node can be computed wherever it is read, without a reduction of this cluster."""
    seen: set[int] = set()
    pending = [index]
    while pending:
        index = pending.pop()
        if index not in row.members or index in seen:
            continue
        seen.add(index)
        if graph.nodes[index].role == "loop":
            return False
        pending += (read.source for read in graph.reads(index))
    return True


def _spreads_rows(
    p: Partition, base: ir.Value, chain: Sequence[ir.Operation], row: Cluster
) -> bool:
    """`base` is a row value and `chain` only repeats it along the row, units not counted."""
    if p.level(p.graph.shapes.shape(base), row) != "row":
        return False
    return all(
        p.level(p.graph.shapes.shape(op.results[0]), row) in ("full", "row")
        and (op.name in RESHAPES or _keeps_order(p, op, row))
        for op in chain
    )


def _keeps_order(p: Partition, broadcast: ir.Operation, row: Cluster) -> bool:
    """True if the operand's dimensions are those of the result that are not reduced, in order."""
    if broadcast.name not in FREE:
        return False
    shape = p.graph.shapes.shape(broadcast.operands[0])
    result = p.graph.shapes.shape(broadcast.results[0])
    kept = [d for i, d in enumerate(broadcast_dims(broadcast)) if not shape[i].is_one]
    others = [d for d, size in enumerate(result) if not size.is_one]
    if p.level(shape, row) != p.level(result, row):
        full = [d for d, size in enumerate(row.space) if not size.is_one]
        others = [d for d, its in zip(others, full, strict=True) if its not in row.reduced]
    return kept == others


def _is_start(node: Node, position: int) -> bool:
    """True if this operand says where a gather reads."""
    return position == 1 and node.op.name in GATHERS
