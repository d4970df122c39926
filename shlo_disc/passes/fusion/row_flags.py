"""Rule `row-flags`: a kernel that reads integers tells whether any of them is out of range.

    %0 = gather %w, %i                             one kernel that reads %i once
    %1 = reduce or (%i < 0 | %i >= 1000)

Checks of indices would read them once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.passes.fusion.graph import opaque_kind
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed, never


def _seeds(p: Partition) -> Iterator[Seed]:
    """(a flag,) outside of loops, whose kernels hold few elements."""
    if not p.graph.capabilities.raises_flags or p.graph.is_inner:
        return
    for index in sorted(p.graph.flags):
        if index in p.cluster_of:
            yield (index,)


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    """With each kernel that reads what the flag reads, the first that does first."""
    work = p.cluster_of[seed[0]]
    if any(p.graph.nodes[index].role not in ("elementwise", "loop") for index in work.members):
        return
    bases = {
        read.base
        for index in work.members
        for read in p.graph.reads(index)
        if read.source not in work.members
    }
    readers = {index for base in bases for index in p.graph.readers.get(base, ())}
    readers |= p.outside_users(work)  # which compute it again
    tried: list[Cluster] = []
    for index in sorted(readers - work.members):
        node = p.graph.nodes[index]
        mine = p.cluster_of.get(index)
        if mine is None and node.op.name == "stablehlo.scatter":
            mine = Cluster(opaque_kind(node.op), node.shapes[0], members={index})
        if mine is None or mine in tried or mine.kind not in ("loop", "scatter"):
            continue
        tried.append(mine)
        union = Cluster(mine.kind, mine.space, members=mine.members | work.members)
        if not isinstance(p.record(union.inherit(mine, work)), str):
            yield Merge(union, (mine, work), seed, note="it tells whether indices are in range")


rule = FusionRule(
    name="row-flags",
    seeds=_seeds,
    match=_match,
    why_not=never,
    place="behind all that makes loops and scatters larger",
)
