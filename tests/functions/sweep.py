"""The check of many functions in child processes, and what is asked of all of them."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence

from tests.children import Ended, outcomes
from tests.functions.check import GOOD, Finding, check

SHARE = 0.97
"""The share of supported functions that one compilation serves at all sizes."""


def run(names: Sequence[str], jobs: int) -> Iterator[tuple[str, Finding]]:
    """What becomes of every function, as they are done."""
    for name, found in outcomes(check, names, jobs):
        yield name, Finding(found.kind, found.message) if isinstance(found, Ended) else found


def summary(found: Mapping[str, Finding]) -> tuple[str, bool]:
    """A table of counts, and whether the functions are as they should be.

    Those that need several compilations have their reason in the table.
    """
    counts = collections.Counter(finding.state for finding in found.values())
    supported = counts["one compilation"] + counts["more compilations"]
    share = counts["one compilation"] / supported if supported else 1.0
    bad = [
        f"{name}: {finding.state}: {finding.message}"[:500]
        for name, finding in found.items()
        if finding.state not in GOOD or (finding.compilations > 1 and finding.message[:1] != "[")
    ]
    lines = [f"{state:20}{count:5}" for state, count in counts.most_common()]
    alarming = {name: finding.alarms for name, finding in found.items() if finding.alarms}
    lines.append(f"{len(alarming)} have a size that only the comparison made a constant")
    lines += [f"{name}: {'; '.join(alarms)}" for name, alarms in alarming.items()]
    lines.append(f"{share:.1%} of {supported} supported functions need one compilation")
    return "\n".join([*bad, *lines]), not bad and share >= SHARE
