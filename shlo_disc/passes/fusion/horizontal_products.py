"""Rule `horizontal-products`: products of one left operand, otherwise alike (q, k and v)."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.graph import Graph
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import products
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed, never
from shlo_disc.passes.sink_views import chain_of


def _seeds(p: Partition) -> Iterator[Seed]:
    """(first product of a group, another one of it)."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for node in products(p):
        names = tuple(p.graph.nodes[i].op.name for i in sorted(p.cluster_of[node.index].members))
        types = tuple(v.type for v in node.operands)
        rhs = p.graph.shapes.shape(node.operands[1])
        key = (*_seen(p.graph, node.operands[0]), dot_sides(node.op), types, rhs, names)
        groups.setdefault(key, []).append(node.index)
    for first, *others in groups.values():
        yield from ((first, other) for other in others)


def _seen(graph: Graph, value: ir.Value) -> tuple[object, ...]:
    """What `value` is a view of, and how: equal for copies of one view."""
    chain = chain_of(value, graph.shapes)
    if not chain:
        return (value,)
    how: list[object] = []
    for op in chain:
        how += [op.name, *list(op.operands)[1:]]
        how += op.attributes.items()
    return chain[-1].operands[0], *how


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    mine, other = (p.cluster_of[index] for index in seed)
    union = Cluster("dense", mine.space, members=mine.members | other.members)
    yield Merge(union, (mine, other), seed)


rule = FusionRule(
    name="horizontal-products",
    seeds=_seeds,
    match=_match,
    why_not=never,
    place="before `bands`, `row-work` and `prologues`, which make alike products different",
)
