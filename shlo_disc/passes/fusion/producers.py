"""Rule `producers`: element-wise work and row reductions join what computes their operands."""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.ir.contractions import dot_sides
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.products import DOT
from shlo_disc.passes.fusion.rows import in_rows, is_space
from shlo_disc.passes.fusion.rule import FusionRule, Merge, Seed
from shlo_disc.passes.kinds import KINDS
from shlo_disc.passes.op_classes import RESHAPES


def _seeds(p: Partition) -> Iterator[Seed]:
    """(reader, source, number of the read) for every value read."""
    for node in p.graph.nodes:
        mine = p.cluster_of.get(node.index)
        if mine is None or KINDS[mine.kind].is_contraction:
            continue
        if node.role == "loop" and node.index not in p.graph.row_reductions:
            continue
        for number, read in enumerate(p.graph.reads(node.index)):
            if read.position not in node.in_memory and read.source in p.cluster_of:
                yield node.index, read.source, number


def _match(p: Partition, seed: Seed) -> Iterator[Merge]:
    reader, source, *_ = seed
    mine, theirs = p.cluster_of[reader], p.cluster_of[source]
    if theirs is mine or KINDS[theirs.kind].is_contraction:
        return
    members = theirs.members | mine.members
    row = mine if mine.kind == "row" else theirs if theirs.kind == "row" else None
    union = (
        Cluster("loop", mine.space, members=members)
        if row is None
        else Cluster("row", row.space, row.reduced, members)
    )
    yield Merge(union, (mine, theirs), seed, source, frozenset({reader}))


def _why_not(p: Partition, merge: Merge) -> str | None:
    """Why the reader may not read the other's value inside a kernel."""
    mine, theirs = merge.parts
    if _is_bias_of_several_scores(p, merge):
        return "it is added to several scores: with a second result their rows are no attention"
    if mine.kind == theirs.kind == "row" and not is_space(p, theirs.space, theirs.reduced, mine):
        return "the rows are others"
    if merge.union.kind == "row":
        legal = in_rows(p, merge.union)
        return None if legal else "a row would need elements of another row"
    reader, _, number = merge.seed
    chain = p.graph.reads(reader)[number].chain
    direct = p.graph.nodes[reader].role == "elementwise" and not chain
    if direct and p.graph.same(theirs.space, mine.space):
        return None
    # Computed at the consumer's index: only when nobody else needs it and no element is
    # computed twice.
    if not all(op.name in RESHAPES for op in chain):
        return "it is broadcast: its elements would be computed several times"
    if not p.outside_users(theirs) <= mine.members:
        return "it is read at other places, too"
    return None


def _is_bias_of_several_scores(p: Partition, merge: Merge) -> bool:
    """True if the reader adds the source to the result of a batched product, and others read it.

    A bias of positions that several layers share is stored in any case, so a kernel of its own
    costs one more read of it. The rows of an attention have one result only.
    """
    mine, theirs = merge.parts
    reader, source, *_ = merge.seed
    node = p.graph.nodes[reader]
    if node.op.name != "stablehlo.add" or p.outside_users(theirs) <= mine.members:
        return False
    sources = {read.source for read in p.graph.reads(reader)}
    return any(
        other in p.cluster_of
        and p.graph.nodes[other].op.name == DOT
        and bool(dot_sides(p.graph.nodes[other].op)[0].batch)
        for other in sources - {source}
    )


rule = FusionRule(
    name="producers",
    seeds=_seeds,
    match=_match,
    why_not=_why_not,
    place="first of what is not a contraction: all later rules join whole loops and rows",
)
