"""Rules `transposed-results` and `contractions`: what products and convolutions take in first.

%0 = transpose %a          %1 = dot_general %0, %b      one kernel that reads %a where it is,
%2 = transpose %1          %3 = add %2, %c              and stores %3 alone
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import direct_users, in_memory, nodes_of, sums_of_cluster
from shlo_disc.passes.fusion.rule import Apart, FusionRule, Merge, Seed, never
from shlo_disc.passes.kinds import contraction_kind
from shlo_disc.passes.sink_views import chain_of


def _seeds(p: Partition) -> Iterator[Seed]:
    return ((node.index,) for node in p.graph.nodes if contraction_kind(node.op) is not None)


def _transposes(p: Partition, seed: Seed) -> Iterator[Merge]:
    """Transposes of its result alone are the contraction's: it writes in any order."""
    first = node = p.graph.nodes[seed[0]]
    mine = p.cluster_of[node.index]
    members = set(mine.members)
    while len(node.users) == 1:
        (follower,) = (p.graph.nodes[i] for i in node.users)
        if follower.op.name != "stablehlo.transpose":
            break
        if list(follower.operands) != [node.op.results[0]]:
            break
        members.add(follower.index)
        node = follower
    if node is not first:
        parts = dict.fromkeys(p.cluster_of[i] for i in sorted(members))
        yield Merge(Cluster(mine.kind, mine.space, members=members), tuple(parts), seed)


def _around(p: Partition, seed: Seed) -> Iterator[Merge | Apart]:
    """Views of the operands, and the element-wise cluster that alone reads what comes out; or the
    views without it.
    """
    dot, mine = p.graph.nodes[seed[0]], p.cluster_of[seed[0]]
    members, in_place = set(mine.members), set[int]()
    for value in dot.operands if mine.kind == "dense" else ():
        views, base = _views(p, value, dot)
        members |= views
        in_place |= base
    last = p.graph.nodes[p.graph.of_value[sums_of_cluster(p, mine).total]]
    epilogue = _epilogue(p, last)
    if isinstance(epilogue, str):
        yield Apart(last.index, last.users, epilogue)
    else:
        both = members | epilogue.members
        union = Cluster(mine.kind, dot.shapes[0], members=both, in_place=set(in_place))
        yield Merge(union, (mine, epilogue), seed, last.index, last.users)
    if members != mine.members or in_place:
        union = Cluster(mine.kind, dot.shapes[0], members=members, in_place=in_place)
        yield Merge(union, (mine,), seed)


def _views(p: Partition, value: ir.Value, dot: Node) -> tuple[set[int], set[int]]:
    """The ops that make `value` a view of a node in memory, and that node.

    Only `dot` reads these ops, which may be a loop of their own. There are none, and no node, if
    `value` is no such view.
    """
    graph = p.graph
    chain = chain_of(value, graph.shapes)
    view = in_memory(graph, value, chain[-1].operands[0]) if chain else None
    if view is None:
        return set(), set()
    inside = {dot.index}
    places = {graph.of_value.get(op.results[0]) for op in chain}
    for op in chain:
        index = graph.of_value.get(op.results[0])
        if index is None:
            return set(), set()
        node, cluster = graph.nodes[index], p.cluster_of.get(index)
        alone = cluster is not None and cluster.members <= places
        if not (alone or node.role == "free") or not direct_users(graph, node) <= inside:
            return set(), set()
        inside.add(index)
    return inside - {dot.index}, nodes_of(graph, view.base)


def _epilogue(p: Partition, dot: Node) -> Cluster | str:
    """The loop cluster over exactly a dense result's elements that alone reads it; or why what
    reads it is not computed in its kernel.
    """
    clusters = {id(c): c for i in dot.users if (c := p.cluster_of.get(i)) is not None}
    several = len(clusters) != 1 or any(i not in p.cluster_of for i in dot.users)
    if dot.index in p.kept or several:
        return "the product is read at several places"
    (cluster,) = clusters.values()
    if cluster.kind != "loop":
        return f"a product takes in element-wise work, not a {cluster.kind} kernel"
    if not p.graph.same(cluster.space, dot.shapes[0]):
        return "it has other elements than the product"
    return cluster


transposed_results = FusionRule(
    name="transposed-results",
    seeds=_seeds,
    match=_transposes,
    why_not=never,
    place="first: a transpose that a loop has taken is a pass over memory",
)
contractions = FusionRule(
    name="contractions",
    seeds=_seeds,
    match=_around,
    why_not=never,
    place="after `recompute`: a value stored for nobody may be what separates two kernels; before "
    "all rules that start from a product's result",
)
