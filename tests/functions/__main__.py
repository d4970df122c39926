"""`python -m tests.functions -j 2`: every function of the table beside `jax.jit`."""

from __future__ import annotations

import os
import re

import click

from tests import children
from tests.gpu.as_gpu import TARGET


@click.command()
@click.option("-j", "--jobs", default=2, show_default=True, help="Processes.")
@click.option("--only", default="", help="Names that match this regular expression.")
@click.option("-v", "--verbose", is_flag=True, help="Every function as it is done.")
@click.option(
    "--target",
    default="",
    help="Run our side for a GPU, as cuda:sm_90a, by the stand-in driver (tests/gpu/as_gpu.py).",
)
@click.option("--store", is_flag=True, help="Write results.json, then run `make fix`.")
def main(jobs: int, only: str, verbose: bool, target: str, store: bool) -> None:
    """Print what became of every function; exit status 1 if one is wrong or too many recompile."""
    if store and target:
        raise click.UsageError("what is stored is of the CPU: leave --target out")
    children.prepare()
    if target:
        os.environ[TARGET] = target
    from tests.functions import results
    from tests.functions.sweep import run, summary
    from tests.functions.table import names, unlisted

    chosen = [name for name in names() if re.search(only, name)]
    found = {}
    for name, finding in run(chosen, jobs):
        found[name] = finding
        if verbose or finding.state != "one compilation":
            count = f" ({finding.compilations})" if finding.compilations else ""
            print(f"{name}: {finding.state}{count} {finding.message}"[:600], flush=True)
    if store:
        results.store(found)
    text, good = summary(found)
    missing = [] if only else unlisted()
    print("\n".join([*missing, text]))
    raise SystemExit(0 if good and not missing else 1)


if __name__ == "__main__":
    main()
