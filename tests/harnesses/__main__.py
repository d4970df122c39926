"""`python -m tests.harnesses --count 200 --transform grad -j 2`: JAX's harnesses beside
`jax.jit`."""

from __future__ import annotations

import os
import re

import click

from tests import children

WAYS = ("jit", "grad", "vmap", "jvp")


@click.command()
@click.option("--count", default=300, show_default=True, help="Harnesses; 0: all of them.")
@click.option("--skip", default=0, show_default=True, help="Begin behind so many of the sample.")
@click.option(
    "--transform",
    type=click.Choice(WAYS),
    multiple=True,
    help="How they are called; may be repeated. [default: all four ways]",
)
@click.option("-j", "--jobs", "processes", default=2, show_default=True, help="Processes.")
@click.option("--only", default="", help="Full names that match this regular expression.")
@click.option(
    "--target",
    default="",
    help="Run our side for a GPU, as cuda:sm_90a, by the stand-in driver (tests/gpu/as_gpu.py).",
)
@click.option("-v", "--verbose", is_flag=True, help="Every call as it is done.")
def main(
    count: int,
    skip: int,
    transform: tuple[str, ...],
    processes: int,
    only: str,
    target: str,
    verbose: bool,
) -> None:
    """Print what became of a sample that has every group at least twice, and a table.

    The exit status is 1 if a value is wrong, or more than one call in a hundred fails.
    """
    children.prepare()
    from tests.gpu.as_gpu import TARGET
    from tests.harnesses.cases import harnesses, sample
    from tests.harnesses.check import BAD
    from tests.harnesses.sweep import jobs, run, summary

    if target:
        os.environ[TARGET] = target
    names = sample((skip + count) if count else len(harnesses()))[skip:]
    listed = jobs([name for name in names if re.search(only, name)], transform or WAYS)
    found = {}
    for job, finding in run(listed, processes):
        found[job] = finding
        if verbose or finding.state in BAD:
            name, way = job
            print(f"{way} {name}: {finding.state}: {finding.message}", flush=True)
    text, good = summary(found)
    print(text)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
