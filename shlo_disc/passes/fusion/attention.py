"""Rule `attention`: two products and the rows between them (`match_attention.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.views import BROADCASTS, VIEWS, View, view_of
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.fusion.graph import Node, squeezed
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import (
    DOT,
    direct_users,
    dot_of,
    in_memory,
    nodes_of,
    products,
    sums_of_cluster,
)
from shlo_disc.passes.fusion.rule import Apart, FusionRule, Merge, Seed
from shlo_disc.passes.match_attention import (
    AttentionRecord,
    is_score,
    key_side,
    match_attention,
)
from shlo_disc.passes.op_classes import RESHAPES

why_not_online = imported_later("shlo_disc.passes.match_softmax", "why_not_online")


def _seeds(p: Partition) -> Iterator[Seed]:
    """(product, its operand that a row cluster computes)."""
    for mix in products(p):
        for number, value in enumerate(mix.operands):
            source = p.graph.of_value.get(value, -1)
            middle = p.cluster_of.get(source)
            if middle is not None and middle.kind == "row":
                yield mix.index, number, source


def _match(p: Partition, seed: Seed) -> Iterator[Merge | Apart]:
    """With what repeats keys and values for several heads; or without it."""
    node, number, source = seed
    mix, behind, middle = p.graph.nodes[node], p.cluster_of[node], p.cluster_of[source]
    if behind.kind != "dense" or middle.kind != "row":
        return
    reader = frozenset({node})
    front = _scores_of(p, middle)
    if front is None:
        reason = "it is not row work on one product alone, so this is no attention"
        yield Apart(source, reader, reason)
        return
    parts = (front, middle, behind)
    members = front.members | middle.members | behind.members
    spreads, in_place = _spreads(p, front, mix, 1 - number)
    if spreads:
        union = Cluster("attention", middle.space, members=members | spreads, in_place=in_place)
        yield Merge(union, parts, seed)
    union = Cluster("attention", middle.space, members=members)
    yield Merge(union, parts, seed, source, reader)


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why the rows, whose outcome a product reads, are not computed in its kernel."""
    front, middle, _ = merge.parts
    if front.members & p.kept:
        return "the scores are read at other places, too"
    if middle.reduced != (len(middle.space) - 1,):
        return "the rows have several dimensions"
    kernels = p.graph.capabilities.attention
    mix, number, _ = merge.seed
    values = p.graph.nodes[mix].op.operands[1 - number]
    element = element_type(ir.ShapedType(values.type).element_type).name
    if element not in kernels.types:
        return f"the target has no attention of {element}"
    clones = merge.union.clones.union(*(part.clones for part in merge.parts))
    record = match_attention(p.region(merge.union.members, clones))
    if isinstance(record, str):
        return record
    if kernels.widest is not None:
        why: str | None = why_not_online(record, kernels.widest, kernels.rounded, p.graph.shapes)
        return why
    return _several_types(record)


def _several_types(record: AttentionRecord) -> str | None:
    types = {
        ir.ShapedType(value.type).element_type
        for value in (record.score.total, record.weights, record.mix.total)
    }
    return None if len(types) == 1 else "scores, weights and result have different element types"


def _scores_of(p: Partition, row: Cluster) -> Cluster | None:
    """The dense cluster whose sums, read by nobody else, the row cluster works on."""
    graph = p.graph
    found: dict[int, Cluster] = {}
    for index in row.members:
        for read in graph.reads(index):
            cluster = p.cluster_of.get(read.source)
            if cluster is None or cluster.kind != "dense" or cluster in found.values():
                continue
            both = squeezed(graph.shapes.shape(read.base)), squeezed(row.space)
            if graph.same(*both) and p.outside_users(cluster) <= row.members:
                found[read.source] = cluster
    for cluster in found.values():
        names = [graph.nodes[i].op.name for i in cluster.members]
        if set(names) <= {DOT, *VIEWS}:
            dot = dot_of(p, cluster)
            shapes = [graph.shapes.shape(v) for v in dot.operands]
            if is_score(sums_of_cluster(p, cluster), shapes) is None:
                return cluster
    return None


def _spreads(p: Partition, front: Cluster, mix: Node, values: int) -> tuple[set[int], set[int]]:
    """The ops that repeat keys and values for several heads, and the nodes they repeat.

    Such ops come from `jnp.repeat` or a broadcast along a batch dimension. An attention reads what
    they repeat where it is.
    """
    score = dot_of(p, front)
    keys = key_side(sums_of_cluster(p, front))
    assert keys is not None
    found, in_place = set[int](), set[int]()
    repeats: list[Expr] = []
    for dot, side in ((score, keys), (mix, values)):
        batch = dot_sides(dot.op)[side].batch
        members, view = _spread(p, dot, side)
        elsewhere = [d for d in range(len(view.sizes)) if d not in batch] if view else []
        if view is None or any(view.is_broadcast(d) for d in elsewhere):
            continue
        repeats += [view.repeat(d) for d in batch if not view.repeat(d).is_one]
        found |= members
        in_place |= nodes_of(p.graph, view.base)
    equal = p.graph.shapes.constraints.equal
    alike = all(equal(r, repeats[0]) for r in repeats)
    return (found, in_place) if alike else (set(), set())


def _spread(p: Partition, dot: Node, side: int) -> tuple[set[int], View | None]:
    """The ops that make operand `side` of `dot` a view in which elements repeat, and the view.

    Only `dot` reads these ops. There are none, and no view, if nothing repeats.
    """
    graph, value = p.graph, dot.op.operands[side]
    inside, members = {dot.index}, set[int]()
    best: tuple[set[int], View | None] = members, None
    spread, op = False, producer(value)
    while op is not None and (op.name in VIEWS or op.name in BROADCASTS):
        index = graph.of_value.get(op.results[0])
        if index is None or not direct_users(graph, graph.nodes[index]) <= inside:
            break
        cluster = p.cluster_of.get(index)
        if cluster is None and graph.nodes[index].role != "free":
            break
        if cluster not in (None, p.cluster_of[dot.index]) and cluster.members != {index}:
            break
        inside.add(index)
        members = members | {index}
        spread = spread or op.name in BROADCASTS
        if view_of(value, [op.operands[0]], graph.shapes, through_broadcasts=True) is None:
            break
        view = in_memory(graph, value, op.operands[0], through_broadcasts=True)
        if spread and view is not None and op.name not in RESHAPES:
            best = members, view
        op = producer(op.operands[0])
    return best


rule = FusionRule(
    name="attention",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="before `horizontal-products` and `row-work`, which would take one of its products",
)
