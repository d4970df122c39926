"""The check of many harnesses in child processes, and the table of what became of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.children import Ended, outcomes
from tests.harnesses.cases import group_of
from tests.harnesses.check import BAD, STATES, Finding, Job, check

SHARE = 0.99
"""The share of comparable calls that are as under `jax.jit`."""


def jobs(names: Iterable[str], ways: Sequence[str]) -> list[Job]:
    """Every harness in all of these ways."""
    return [(name, way) for name in names for way in ways]


def run(listed: Sequence[Job], processes: int) -> Iterator[tuple[Job, Finding]]:
    """What becomes of every job, as they are done."""
    for job, found in outcomes(check, listed, processes):
        yield job, Finding(found.kind, found.message) if isinstance(found, Ended) else found


def summary(found: Mapping[Job, Finding]) -> tuple[str, bool]:
    """A table of counts for each group, and whether the harnesses are as they should be.

    No value may be wrong and no kernel at fault; at most one call in a hundred may fail otherwise.
    """
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for (name, _), finding in found.items():
        table[group_of(name)][finding.state] += 1
        table["all"][finding.state] += 1
    lines = [f"{'group':28}" + "".join(f"{state:>9}" for state in STATES)]
    for group in [*sorted(group for group in table if group != "all"), "all"]:
        counts = table[group]
        lines.append(f"{group:28}" + "".join(f"{counts[state] or '':>9}" for state in STATES))
    total = table["all"]
    compared = total["equal"] + total["by XLA"] + sum(total[state] for state in BAD)
    share = (total["equal"] + total["by XLA"]) / compared if compared else 1.0
    lines.append(f"{share:.2%} of {compared} calls are as under jax.jit")
    return "\n".join(lines), share >= SHARE and not (total["differs"] or total["fault"])
