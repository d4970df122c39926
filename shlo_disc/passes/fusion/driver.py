"""Runs the rules of a table over a partition; the one place where clusters are joined.

    Graph       nodes, roles, shapes, users                      never changes
    Partition   the cluster of every node, reasons               changed here alone
    RULES       FusionRule(name, seeds, match, why_not, place)   rows (`table.py`)

`start` gives every op that may share a kernel a cluster of its own. `run` then goes through the
rules in order. Each seed gives proposals, best first. A proposal is refused by the rule's
`why_not`, or by `legality.misfit`, which holds for every kernel. The first one that nobody refuses
is made; a refused one leaves its reason, which `explain()` prints.

Rules never call each other and share no state but the partition. What a rule needs to know of a
fusion's contents it gets as a record (`records.py`), matched on the region the fusion would have.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.passes.fusion.legality import misfit
from shlo_disc.passes.fusion.partition import Cluster, Partition
from shlo_disc.passes.fusion.rows import reduction
from shlo_disc.passes.fusion.rule import Again, Apart, FusionRule, Merge, Proposal, Seed
from shlo_disc.passes.kinds import contraction_kind


def start(p: Partition) -> None:
    """A cluster for every op that may share a kernel, contractions first."""
    for node in p.graph.nodes:
        kind = contraction_kind(node.op)
        if kind is not None:
            p.begin(Cluster(kind, node.shapes[0], members={node.index}))
    for node in p.graph.nodes:
        if node.index in p.cluster_of:
            continue
        if node.role in ("elementwise", "data_movement"):
            p.begin(Cluster("loop", node.shapes[0], members={node.index}))
        elif node.role == "loop":
            p.begin(reduction(p.graph, node))


def run(p: Partition, rules: Sequence[FusionRule]) -> None:
    """Apply `rules` in order, each at all of its seeds."""
    for rule in rules:
        for seed in rule.seeds(p):
            _try(p, rule, seed)


def _try(p: Partition, rule: FusionRule, seed: Seed) -> None:
    for proposal in rule.match(p, seed):
        if _made(p, rule, proposal):
            return


def _made(p: Partition, rule: FusionRule, proposal: Proposal) -> bool:
    """Whether the proposal was legal, and is made now."""
    match proposal:
        case Apart(source, readers, reason):
            p.apart(source, readers, reason)
            return False
        case Again(chain, readers, seed, sources, note):
            p.again(chain, readers, note)
            p.dropped.add(seed[0])
            p.kept |= sources
            return True
        case Merge(union, parts):
            refused = rule.why_not(p, proposal) or misfit(p, union, *parts)
            if refused is not None:
                p.apart(proposal.source, proposal.readers, refused)
                return False
            union.inherit(*parts)
            if proposal.note and proposal.note not in union.because:
                union.because.append(proposal.note)
            p.replace(union, *parts)
            return True
