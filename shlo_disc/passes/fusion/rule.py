"""What a fusion rule is, and what it may propose.

A rule names places to try (`seeds`) and proposes for each what to join there (`match`), best
first. It changes nothing itself: `driver.py` does, after it has asked what forbids the proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shlo_disc.base.records import dataclass
from shlo_disc.passes.fusion.partition import Cluster, Partition

Seed = tuple[int, ...]
"""Nodes: where a rule may apply. The first is the one a reader would name."""


@dataclass(frozen=True)
class Merge:
    """`union` takes the place of `parts`."""

    union: Cluster
    parts: tuple[Cluster, ...]
    seed: Seed
    """What the rule looked at: its `why_not` reads the nodes from here."""
    source: int = -1
    """The node whose value one part reads from another, and its readers: what `explain()` tells the
    reason about. No reason is kept where there are none."""
    readers: frozenset[int] = frozenset()
    note: str = ""
    """What the cost model chose, for `explain()`."""


@dataclass(frozen=True)
class Again:
    """Every cluster of `readers` computes `chain`; the value of node `seed[0]` is not stored."""

    chain: frozenset[int]
    readers: tuple[Cluster, ...]
    seed: Seed
    sources: frozenset[int]
    """Nodes that the chain reads: they stay in memory."""
    note: str


@dataclass(frozen=True)
class Apart:
    """There is no union to ask about: `readers` are not in the kernel of `source`, for `reason`."""

    source: int
    readers: frozenset[int]
    reason: str


Proposal = Merge | Again | Apart


def never(p: Partition, merge: Merge) -> None:
    """For rules with no reason of their own: only `legality.misfit` refuses."""


@dataclass(frozen=True)
class FusionRule:
    """One row of `table.RULES`."""

    name: str
    seeds: Callable[[Partition], Iterable[Seed]]
    """Where to try, in order. A generator may look at what earlier seeds have changed."""
    match: Callable[[Partition, Seed], Iterable[Proposal]]
    """What to join at a seed, best first: the first that nothing forbids is made."""
    why_not: Callable[[Partition, Merge], str | None]
    """Why a proposed union is not to be made, as far as this rule knows; None: nothing forbids it.
    The driver then asks `legality.misfit`, so no rule repeats what holds for all kernels."""
    place: str
    """Why the rule stands where it does in the table."""
