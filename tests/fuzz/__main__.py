"""`python -m tests.fuzz --count 3000 --seed 0 -j 2`: random programs beside `jax.jit`."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz import batches
from tests.fuzz.cut import SHARE
from tests.gpu.as_gpu import TARGET

if TYPE_CHECKING:  # JAX is loaded when its flags are set
    from tests.fuzz.program import Program

console = Console()


@click.command()
@click.option("--count", default=3000, show_default=True, help="Programs to check.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("-j", "--jobs", default=2, show_default=True, help="Processes.")
@click.option("--out", default="fuzz-found", show_default=True, help="Where failures are written.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Make failures small.")
@click.option("--minutes", default=0.0, help="Stop after this time (0: when all are checked).")
@click.option("--show", is_flag=True, help="Print the program of --seed and end.")
@click.option(
    "--cut",
    "share",
    default=0.0,
    help="Run programs in parts: XLA runs this share of their equations, chosen at random.",
)
@click.option(
    "--target",
    default="",
    help="Run our side for a GPU, as cuda:sm_90a, by the stand-in driver (tests/gpu/as_gpu.py).",
)
@click.option(
    "--alarms",
    is_flag=True,
    help="Only trace, and count false alarms (tests/alarms.py): these programs, and those of the "
    "other tools.",
)
@click.option(
    "--stablehlo",
    "kind",
    flag_value="stablehlo",
    help="StableHLO modules over the whole op table, beside the StableHLO interpreter and XLA.",
)
@click.option(
    "--sizes",
    "kind",
    flag_value="sizes",
    help="Programs that write one size in two ways (tests/fuzz/sizes.py).",
)
def main(
    count: int,
    seed: int,
    jobs: int,
    out: str,
    shrink: bool,
    minutes: float,
    show: bool,
    share: float,
    target: str,
    alarms: bool,
    kind: str | None,
) -> None:
    """Check random typed programs; every kind of failure is made small and written to a file."""
    if share:
        os.environ[SHARE] = str(share)
    os.environ.setdefault("SHLO_DISC_CACHE", "0")  # nothing random comes again
    batches.prepare()
    if target:
        os.environ[TARGET] = target
    kind = kind or "jax"
    text = kind == "stablehlo"
    generate = batches.GENERATORS[kind]
    if show:
        print(generate(seed).script())
        return
    if alarms:
        raise SystemExit(_count_alarms(range(seed, seed + count), jobs))
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    failures: dict[str, list[tuple[int, object]]] = collections.defaultdict(list)
    compilations: collections.Counter[int] = collections.Counter()
    alarming: dict[int, tuple[str, ...]] = {}
    unjudged: dict[int, str] = {}
    illegal = done = optimised = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("programs", total=count)
        seeds = range(seed, seed + count)
        for number, outcome in batches.check_seeds(
            seeds, jobs, lambda: time.monotonic() > end, kind=kind
        ):
            done += 1
            progress.advance(task)
            if not console.is_terminal and done % 50 == 0:
                progress.print(f"{done} of {count}")
            if not outcome.legal:
                illegal += 1
                if text:  # ours is the mistake: the generator's
                    assert outcome.failure is not None
                    message = outcome.failure.message.splitlines()[0]
                    progress.print(f"seed {number}: {message}", markup=False, soft_wrap=True)
            elif outcome.failure is None:
                compilations[outcome.compilations] += 1
                if kind == "sizes" and outcome.compilations > 1:
                    progress.print(f"seed {number}: {outcome.compilations} compilations")
                optimised += outcome.optimised
                if outcome.unjudged:
                    unjudged[number] = outcome.unjudged
                if outcome.alarms:
                    alarming[number] = outcome.alarms
            else:
                found = outcome.failure
                failures[f"{found.kind}: {found.signature}"].append((number, found))
                progress.print(
                    f"seed {number}: {found.kind}: {found.signature}", markup=False, soft_wrap=True
                )
    known = " ".join(f"{k}:{v}" for k, v in sorted(compilations.items()))
    refused = "invalid" if text else "refused by JAX"
    console.print(f"{done} programs, {illegal} {refused}, compilations {known}")
    if optimised:
        console.print(f"{optimised} differ from jax.jit, but not from JAX without it")
    if text:
        console.print(f"{len(unjudged)} that no oracle runs")
        for number, reasons in unjudged.items():
            console.print(f"seed {number}: {reasons}", markup=False, soft_wrap=True)
    console.print(f"{len(alarming)} have a size that only the comparison made a constant")
    for number, notes in sorted(alarming.items()):
        console.print(f"seed {number}: {'; '.join(notes)}", markup=False, soft_wrap=True)
    for signature, many in sorted(failures.items(), key=lambda f: -len(f[1])):
        seeds_text = " ".join(str(n) for n, _ in many[:12])
        console.print(f"{len(many)} x {signature} (seeds {seeds_text})", markup=False)
    if shrink:
        for signature, many in failures.items():
            _write(Path(out), signature, [n for n, _ in many], generate)
    raise SystemExit(1 if failures else 0)


def _count_alarms(seeds: range, jobs: int) -> int:
    """Trace all programs and print the false alarms; the exit status."""
    from tests.alarms import KINDS, summary, trace
    from tests.alarms import jobs as all_jobs
    from tests.children import Ended, outcomes

    found: dict[str, dict[str, tuple[str, ...] | None]] = {kind: {} for kind in KINDS}
    listed = all_jobs(seeds)
    with Progress(TextColumn("traced"), BarColumn(), MofNCompleteColumn(), console=console) as bar:
        task = bar.add_task("traced", total=len(listed))
        for (kind, which), programs in outcomes(trace, listed, jobs, limit_s=600):
            bar.advance(task)
            if isinstance(programs, Ended):
                programs = {f"{which}: {programs.message}": None}
            found[kind] |= programs
    text, good = summary(found)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0 if good else 1


def _write(
    folder: Path, signature: str, seeds: list[int], generate: Callable[[int], Program]
) -> None:
    """The smallest program of a kind of failure, as a file that runs."""
    from tests.fuzz.shrink import shrunk

    program = min((generate(s) for s in seeds[:8]), key=lambda p: len(p.block.steps))
    with batches.Checker(
        compare=not signature.startswith(("error", "crash", "unsupported"))
    ) as checker:

        def fails(candidate: Program) -> bool:
            failure = checker.check(candidate).failure
            return failure is not None and _alike(f"{failure.kind}: {failure.signature}", signature)

        small = shrunk(program, fails)
    folder.mkdir(exist_ok=True)
    path = folder / f"{program.seed}.py"
    path.write_text(f"# {signature}\n{_how_on_gpu(path, small)}{small.script()}")
    console.rule(f"{path}: {signature}")
    console.print(small.source(), markup=False, highlight=False)


def _how_on_gpu(path: Path, program: Program) -> str:
    """How to run the file of a program for the GPU that was asked for; empty without one."""
    target = os.environ.get(TARGET)
    more = "" if program.all_digits else " --default-precision"
    return f"# python -m tests.gpu.as_gpu {target} {path}{more}\n" if target else ""


def _alike(a: str, b: str) -> bool:
    """Errors of one place; of differences and crashes it is enough that there is one."""
    return a == b or (
        a.split(maxsplit=1)[0] == b.split(maxsplit=1)[0]
        and not a.startswith(("error", "unsupported"))
    )


if __name__ == "__main__":
    main()
