"""Rule `horizontal-kernels`: small kernels over one static shape share a launch.

None of them reads from another. Columns that sum up equally many rows to small static results share
a launch, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.dynamic.expr import Expr
from shlo_disc.passes.fusion.graph import Shape
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed


def _seeds(p: Partition) -> Iterator[Seed]:
    """(a node of the first cluster of a group, one of another)."""
    groups: dict[tuple[str, Shape, tuple[Shape, ...]], list[int]] = {}
    for cluster in dict.fromkeys(p.cluster_of.values()):
        sizes = _small_results(cluster, p.graph.costs.small_elements)
        if sizes:
            key = (cluster.kind, sizes, tuple(cluster.runs[1::2]))
            groups.setdefault(key, []).append(min(cluster.members))
    for first, *others in groups.values():
        yield from ((first, other) for other in others)


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    mine, other = (p.cluster_of[index] for index in seed)
    sizes = _small_results(mine, p.graph.costs.small_elements)
    text = " x ".join(map(str, sizes or ()))
    note = f"small kernels over {text} elements fused horizontally: launches saved"
    union = Cluster(mine.kind, mine.space, mine.reduced, mine.members | other.members)
    yield Merge(union, (mine, other), seed, note=note)


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why one kernel cannot do both."""
    clones = set[int]().union(*(part.clones for part in merge.parts))
    return "it is computed again in the other" if clones & merge.union.members else None


def _small_results(cluster: Cluster, most: int) -> Shape | None:
    """The sizes of what a loop or column cluster computes, where they are static and small."""
    if cluster.kind not in ("column", "loop"):
        return None
    sizes = tuple(size for run in cluster.runs[::2] for size in run)
    if not sizes or not all(size.is_const for size in sizes):
        return None
    return sizes if Expr.product(sizes).value <= most else None


rule = FusionRule(
    name="horizontal-kernels",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="last: it saves a launch where no rule saves bytes",
)
