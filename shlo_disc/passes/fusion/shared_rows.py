"""Rule `shared-rows`: rows of one value, though none reads from another.

    %0 = reduce max %x          one kernel that reads %x once
    %1 = reduce add %x

Where `%x` is larger than a cache, reading it is what both kernels would spend their time on.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.ir.mlir import ir
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rows import in_rows, is_space
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed


def _seeds(p: Partition) -> Iterator[Seed]:
    """(a node of the first cluster that reads a value, one of another)."""
    readers: dict[ir.Value, list[int]] = {}
    for cluster in dict.fromkeys(p.cluster_of.values()):
        if cluster.kind == "row":
            for value in _full_inputs(p, cluster):
                readers.setdefault(value, []).append(min(cluster.members))
    for first, *others in readers.values():
        yield from ((first, other) for other in others)


def _full_inputs(p: Partition, row: Cluster) -> dict[ir.Value, None]:
    """The values that a row cluster reads element by element, each at its own index."""
    return {
        read.base: None
        for index in sorted(row.members)
        for read in p.graph.reads(index)
        if read.source not in row.members and p.only_units_change(read.base, read.chain, row)
    }


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    mine, other = (p.cluster_of[index] for index in seed)
    if mine is not other:
        union = Cluster("row", mine.space, mine.reduced, mine.members | other.members)
        yield Merge(union, (mine, other), seed, note="rows of one value, which is read once")


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why one kernel cannot do both."""
    mine, other = merge.parts
    if not is_space(p, other.space, other.reduced, mine):
        return "the rows are others"
    if (mine.clones | other.clones) & merge.union.members:
        return "it is computed again in the other"
    return None if in_rows(p, merge.union) else "a row would need elements of another row"


rule = FusionRule(
    name="shared-rows",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="after `row-work`: rows behind a product save more there; before `horizontal-kernels`",
)
