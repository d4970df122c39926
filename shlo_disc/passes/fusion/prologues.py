"""Rule `prologues`: a product computes cheap element-wise work on its right operand while it copies
blocks (dequantisation).
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import DOT, products
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed
from shlo_disc.passes.op_classes import RESHAPES


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    dot, mine = p.graph.nodes[seed[0]], p.cluster_of[seed[0]]
    base, chain = next(iter(p.graph.bases(dot.operands[1])), (None, ()))
    if base is None or any(op.name not in RESHAPES for op in chain):
        return
    source = p.graph.of_value.get(base, -1)
    work = p.cluster_of.get(source)
    if work is None or work is mine or work.kind != "loop":
        return
    views = {p.graph.of_value[op.results[0]] for op in chain}
    members = mine.members | work.members | views
    union = Cluster("dense", mine.space, members=members, given=mine.given)
    yield Merge(union, (mine, work), seed, source, frozenset(seed))


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why the right operand of a product is not computed in its kernel."""
    graph, (mine, work) = p.graph, merge.parts
    dot = graph.nodes[merge.seed[0]]
    nodes = [graph.nodes[i] for i in work.members]
    if sum(graph.nodes[i].op.name == DOT for i in mine.members) > 1:
        return "several products share a kernel"
    if p.outside_users(work) != {dot.index} or work.members & p.kept:
        return "it is read at other places, too"
    if any(n.role != "elementwise" and not _joins_rows(n) for n in nodes):
        return "a product computes element-wise work only"
    if any(graph.costs.is_expensive(n.op) for n in nodes):
        return "computed in every block of the product it would cost more than stored"
    if len(nodes) > graph.costs.cheap_ops:
        most = graph.costs.cheap_ops
        return f"more than {most} ops would be computed in every block of the product"
    shape, made = graph.shapes.shape(dot.operands[1]), graph.nodes[merge.source].shapes[0]
    side, same = dot_sides(dot.op)[1], graph.shapes.constraints.product_equal
    if all(shape[d].is_one for d in side.free):
        return "it has one column"
    along_k = max(side.contracting) > max(side.free)
    if along_k and not graph.capabilities.computes_along_sums:
        return "its neighbours in memory run along the sums"
    # Along K a row may lie in groups.
    runs = range(1, 1 + along_k * len(made)) or (1,)
    if not any(same(shape[-1:], made[-n:]) for n in runs if n <= len(made)):
        return "neighbours in memory are no neighbours in it"
    return None


def _joins_rows(node: Node) -> bool:
    """True for a concatenation of whole rows: two weights of 4 bits in each byte."""
    if node.op.name != "stablehlo.concatenate":
        return False
    return bool(ir.IntegerAttr(node.op.attributes["dimension"]).value < len(node.shapes[0]) - 1)


rule = FusionRule(
    name="prologues",
    seeds=lambda p: ((dot.index,) for dot in products(p)),
    match=_match,
    why_not=_why_not,
    place="last of the products: whatever stands behind a product saves more than its operand",
)
