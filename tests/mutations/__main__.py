"""`python -m tests.mutations --count 5000 -j 2`: no edit of a program crashes the compiler."""

from __future__ import annotations

import collections

import click

from tests.mutations.check import GOOD, check
from tests.mutations.edits import case


@click.command()
@click.option("--count", default=5000, show_default=True, help="Programs to try.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("-j", "--jobs", default=2, show_default=True, help="Processes.")
@click.option("--show", is_flag=True, help="Print the program of --seed and end.")
def main(count: int, seed: int, jobs: int, show: bool) -> None:
    """Compile randomly edited programs; report crashes, hangs and errors that are not ours."""
    if show:
        print(case(seed))
        return
    counts: collections.Counter[str] = collections.Counter()
    for number, result in check(range(seed, seed + count), jobs):
        counts[result.partition(":")[0]] += 1
        if result not in GOOD:
            print(f"seed {number}: {result[:400]}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    raise SystemExit(any(what not in GOOD for what in counts))


if __name__ == "__main__":
    main()
