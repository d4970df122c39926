"""Rule `row-work`: a product and the rows that read its outcome row by row (a layer-norm). The rows
follow in the same launch.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.passes.fusion.graph import Graph, Node, squeezed
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import products, single_result
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed
from shlo_disc.passes.match_dense import DenseRecord


def _seeds(p: Partition) -> Iterator[Seed]:
    """(product, node of its one result, a node of the rows that read the result)."""
    for dot in products(p):
        mine = p.cluster_of[dot.index]
        before, total = p.record(mine), single_result(p, mine)
        if total is None or (isinstance(before, DenseRecord) and before.bands):
            continue
        clusters = {p.cluster_of[i]: i for i in sorted(total.users) if i in p.cluster_of}
        rows = [index for cluster, index in clusters.items() if cluster.kind == "row"]
        yield from ((dot.index, total.index, index) for index in rows)


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    dot, total, reader = seed
    mine, row = p.cluster_of[dot], p.cluster_of[reader]
    union = Cluster("dense", row.space, row.reduced, mine.members | row.members, given=total)
    yield Merge(union, (mine, row), seed, total, p.graph.nodes[total].users & row.members)


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why the rows are not computed behind the product."""
    if not p.graph.capabilities.rows_behind_products:
        return "rows have launches of their own on this target"
    mine, row = merge.parts
    dot, total = (p.graph.nodes[i] for i in merge.seed[:2])
    if total.index in p.kept or row.members & p.kept:
        return "it is read at other places, too"
    if Expr.product(total.shapes[0]) == 0:
        return "it has no elements"
    rows, columns = total.shapes[0][:-1], total.shapes[0][-1:]  # none of them in one sum
    wanted = [squeezed(rows), columns]
    one = any(size.is_one for size in columns)
    if one or len(row.runs) != 2 or not all(map(p.graph.same, row.runs, wanted)):
        return "the rows are others"
    if _is_long(p.graph, dot):
        return "a long sum is split"
    most = p.graph.costs.most_row_work_inputs
    if p.graph.inputs(mine.members | row.members) > most:
        return f"more than {most} inputs of a product and its rows"
    return None


def _is_long(graph: Graph, dot: Node) -> bool:
    """True if the sums may be so long that they are split."""
    shape = graph.shapes.shape(dot.operands[0])
    depth = Expr.product(shape[d] for d in dot_sides(dot.op)[0].contracting)
    return bool(depth.is_const and depth.value >= graph.costs.long_sum)


rule = FusionRule(
    name="row-work",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="after `bands`; before `prologues`: a product with rows behind it computes no operand",
)
