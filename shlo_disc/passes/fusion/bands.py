"""Rule `bands`: a product and the loop that reads its outcome in parts side by side.

The gates of a recurrent layer are such parts (`jnp.split`).
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.views import band_of
from shlo_disc.passes.fusion.graph import Node
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import products, single_result
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    mine = p.cluster_of[seed[0]]
    total = single_result(p, mine)
    if total is None or total.index in p.kept:
        return
    for cluster in _loops_on(p, total):
        union = Cluster("dense", mine.space, members=mine.members | cluster.members)
        yield Merge(union, (mine, cluster), seed, total.index, total.users & cluster.members)


def _loops_on(p: Partition, total: Node) -> list[Cluster]:
    """The loop clusters that read slices of `total`."""
    found: dict[Cluster, None] = {}
    for index in sorted(total.users):
        cluster = p.cluster_of.get(index)
        if cluster is not None and cluster.kind == "loop" and _is_band(p, index, total):
            found[cluster] = None
    return list(found)


def _is_band(p: Partition, index: int, total: Node) -> bool:
    results = list(p.graph.nodes[index].op.results)
    if not results:
        return False
    return band_of(results[0], total.op.results[0], p.graph.shapes) is not None


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why a cluster that reads slices of sums is not to be computed in their kernel."""
    _, cluster = merge.parts
    if cluster.members & p.kept:
        return "it is read at other places, too"
    narrow = not cluster.space or cluster.space[-1].is_one
    return "it is cut into parts of one column" if narrow else None


rule = FusionRule(
    name="bands",
    seeds=lambda p: ((dot.index,) for dot in products(p)),
    match=_match,
    why_not=_why_not,
    place="before `row-work`: rows behind a product need its whole result",
)
