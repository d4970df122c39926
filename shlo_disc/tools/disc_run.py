"""disc-run: run an artifact, or a module of any stage, or find where its results go wrong.

`disc-run model.disc --inputs x.npz --outputs y.npz`
`disc-run model.mlir --size b=3 --outputs y.npz`
`disc-run dump/04-resolve-shapes.mlir --inputs x.npz --until simplify`
`disc-run --check dump/16-plan-buffers.mlir --inputs x.npz`
`disc-run --bisect dump --inputs x.npz`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shlo_disc.base.errors import ShloDiscError
from shlo_disc.tools.assignments import assignments

if TYPE_CHECKING:
    import numpy.typing as npt

    from shlo_disc.debug.bisect import Outcome
    from shlo_disc.debug.check import Checked, Report
    from shlo_disc.executables.data_sized import DataSizedExecutable
    from shlo_disc.executables.executable import Executable

_PYTHONS = (MemoryError, OSError, TypeError, ValueError)
"""Errors of Python that say what is wrong with a file, a name, sizes or arrays."""

_WRONG = 3
"""Exit status where `--check` or `--bisect` found a difference."""


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz file: arrays with the names of the arguments, or arr_0, arr_1, ...",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=assignments,
    metavar="NAME=N",
    help="The value of a symbol, for random inputs. Repeatable.",
)
@click.option("--seed", default=0, show_default=True, help="Of random inputs.")
@click.option(
    "--outputs",
    type=click.Path(dir_okay=False, path_type=Path),
    help="An .npz file for the results: arr_0, arr_1, ...",
)
@click.option(
    "--until", metavar="PASS", help="Run the passes up to this one, then the module as it is."
)
@click.option(
    "--engine",
    type=click.Choice(("compiled", "as-is", "reference")),
    help="compiled: after all passes that are left (the default). as-is: after those "
    "alone that lowering needs (the default of --until and --bisect). reference: by the "
    "StableHLO interpreter.",
)
@click.option(
    "--likely",
    "likely",
    multiple=True,
    callback=assignments,
    metavar="NAME=N",
    help="A size to have specialised kernels for, as in shlo_disc.jit. Repeatable.",
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Run every fusion beside the StableHLO interpreter, at the inputs it gets here.",
)
@click.option(
    "--iterations",
    default=2,
    show_default=True,
    help="With --check: how many of each loop are compared.",
)
@click.option(
    "--bisect",
    "bisects",
    is_flag=True,
    help="PATH is a folder of SHLO_DISC_DUMP: compare the results of all files.",
)
@click.option("--rtol", type=float, help="The relative error allowed; by default that of the type.")
def main(
    path: Path,
    inputs: Path | None,
    sizes: dict[str, int],
    seed: int,
    outputs: Path | None,
    until: str | None,
    engine: str | None,
    likely: dict[str, int],
    checks: bool,
    iterations: int,
    bisects: bool,
    rtol: float | None,
) -> None:
    """See the module."""
    from shlo_disc.debug import arrays  # noqa: PLC0415 - after --help, which needs none of it
    from shlo_disc.debug.interpreter import NoReferenceError  # noqa: PLC0415

    modes = [name for name, on in (("--check", checks), ("--bisect", bisects)) if on]
    if until is not None:
        modes.append("--until")
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)} exclude each other")
    if checks and engine is not None:
        raise click.UsageError("--check runs the compiled program; leave --engine away")
    if path.is_dir() and not bisects:
        raise click.UsageError(f"{path} is a folder: use --bisect")
    if bisects and not path.is_dir():
        raise click.UsageError(f"--bisect takes a folder of SHLO_DISC_DUMP; {path} is a file")
    is_artifact = path.suffix in (".disc", ".so")
    if is_artifact and (modes or engine is not None or likely):
        raise click.UsageError(f"{path} is compiled: it takes inputs, sizes and outputs alone")

    def arguments(executable: Executable, count: int | None = None) -> Sequence[Any]:
        if inputs is not None:
            return arrays.read(inputs, executable.signature.arguments[:count])
        return arrays.random_arguments(executable, sizes, seed, count)

    out = Console(soft_wrap=True, highlight=False)
    try:
        if checks:
            wrong = _check(out, path, arguments, iterations, rtol)
        elif bisects:
            wrong = _bisect(out, path, arguments, engine or "as-is", rtol)
        else:
            if is_artifact:
                results = _run_artifact(path, arguments)
            else:
                results = _run(path, arguments, until, engine, likely)
            _print(out, results, outputs)
            wrong = False
    except (ShloDiscError, NoReferenceError, *_PYTHONS) as error:
        from shlo_disc.tools.failures import failure  # noqa: PLC0415 - after --help

        click.echo(f"disc-run: {path}: {failure(error)}", err=True)
        sys.exit(1)
    if wrong:
        sys.exit(_WRONG)


Arguments = Callable[..., "Sequence[Any]"]
"""Of an executable: its arguments, or those of them that callers pass, which are the first."""


def _run_artifact(path: Path, arguments: Arguments) -> list[npt.NDArray[Any]]:
    from shlo_disc.driver.load import load  # noqa: PLC0415

    return _run_whole(load(path), arguments)


def _run(
    path: Path,
    arguments: Arguments,
    until: str | None,
    engine: str | None,
    likely: dict[str, int],
) -> list[npt.NDArray[Any]]:
    from shlo_disc.debug.bisect import results_of  # noqa: PLC0415
    from shlo_disc.debug.interpreter import Interpreter  # noqa: PLC0415
    from shlo_disc.debug.stage import load  # noqa: PLC0415
    from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms  # noqa: PLC0415

    wanted = {name: [number] for name, number in likely.items()} or None
    try:
        given = arguments(load(path).compiled())
    except NeedsSeveralPrograms:
        if until is not None or engine not in (None, "compiled"):
            raise
        return _run_chain(path, arguments, wanted)
    stage = load(path)
    if until is not None:
        stage = stage.advance(until)
    engine = engine or ("compiled" if until is None else "as-is")
    with Interpreter() as interpreter:
        return list(results_of(stage, given, engine, interpreter, wanted))


def _print(out: Console, results: Sequence[npt.NDArray[Any]], outputs: Path | None) -> None:
    """Results to `outputs`, or as text."""
    from shlo_disc.debug import arrays  # noqa: PLC0415

    for number, array in enumerate(results):
        out.print(f"result[{number}]: {array.dtype.name}{list(array.shape)}", markup=False)
        if outputs is None:
            out.print(str(array), markup=False)
    if outputs is not None:
        arrays.write(outputs, results)
        out.print(f"written to {outputs}", markup=False)


def _run_chain(
    path: Path, arguments: Arguments, likely: Mapping[str, Sequence[int]] | None
) -> list[npt.NDArray[Any]]:
    """The results of a program whose sizes come from data: several programs in turn."""
    from shlo_disc.driver.compile import compile as compile_program  # noqa: PLC0415

    return _run_whole(compile_program(path, likely=likely), arguments)


def _run_whole(
    executable: Executable | DataSizedExecutable, arguments: Arguments
) -> list[npt.NDArray[Any]]:
    last = executable.programs[-1] if hasattr(executable, "programs") else executable
    return executable.run_numpy(arguments(last, len(executable.signature.arguments)))


def _check(
    out: Console, path: Path, arguments: Arguments, iterations: int, rtol: float | None
) -> bool:
    from shlo_disc.debug.check import check  # noqa: PLC0415
    from shlo_disc.debug.stage import load  # noqa: PLC0415

    report = check(load(path), arguments, iterations=iterations, rtol=rtol)
    table = Table("fusion", "kind", "line", "iteration", "max error", "ULP", "")
    for run in report.checked:
        worst = max((d.max_error for d in run.differences), default=0.0)
        ulp = max((d.max_ulp for d in run.differences), default=0)
        said = "equal" if run.is_equal else "[bold red]differs[/]"
        table.add_row(
            escape(run.name),
            run.kind,
            escape(", ".join(run.where)),
            ", ".join(map(str, run.iterations)),
            *(("", "", "no reference") if run.no_reference else (f"{worst:.3g}", str(ulp), said)),
        )
    out.print(table)
    for line in _verdict(report):
        out.print(line, markup=False)
    return not report.is_equal


def _verdict(report: Report) -> list[str]:
    lines = [
        f"no reference for {run.name}: {run.no_reference}"
        for run in {run.number: run for run in report.checked if run.no_reference}.values()
    ]
    first = report.first_wrong
    if first is not None:
        lines += _told(first)
        return lines
    without = sum(bool(run.no_reference) for run in report.checked)
    lines.append(
        f"{len(report.checked) - without} of {report.runs} runs of fusions agree with the "
        "StableHLO interpreter."
    )
    for number, difference in enumerate(report.whole):
        if not difference.is_equal:
            lines.append(
                f"result[{number}] of the program differs from that of its fusions run one by one: "
                f"{difference}. The mistake is in plan-buffers or in the host program."
            )
    return lines


def _told(run: Checked) -> list[str]:
    """What is known of the first run that differs."""
    where = f" in {', '.join(run.where)}" if run.where else ""
    loops = f", iteration {', '.join(map(str, run.iterations))}" if run.iterations else ""
    lines = [
        f"The first that differs is fusion {run.number}, {run.name} ({run.kind}){where}{loops}:"
    ]
    for number, difference in enumerate(run.differences):
        if not difference.is_equal:
            lines.append(f"  result {number}: {difference} (relative error allowed: {run.rtol:g})")
    return lines


def _bisect(
    out: Console, path: Path, arguments: Arguments, engine: str, rtol: float | None
) -> bool:
    from shlo_disc.debug.bisect import bisect, first_change  # noqa: PLC0415
    from shlo_disc.debug.stage import stage_files  # noqa: PLC0415

    outcomes = bisect(stage_files(path), arguments, engine=engine, rtol=rtol)
    table = Table("file", "max error", "ULP", "")
    for outcome in outcomes:
        if outcome.not_run:
            table.add_row(outcome.path.name, "", "", f"not run: {escape(outcome.not_run)}")
            continue
        worst = max((d.max_error for d in outcome.differences), default=0.0)
        ulp = max((d.max_ulp for d in outcome.differences), default=0)
        said = "equal" if outcome.is_equal else "[bold red]differs[/]"
        table.add_row(outcome.path.name, f"{worst:.3g}", str(ulp), said)
    out.print(table)
    found = first_change(outcomes)
    if found is not None:
        out.print(_changed(found, outcomes), markup=False)
        return True
    others = "as-is" if engine == "reference" else "reference"
    ran = sum(not outcome.not_run for outcome in outcomes)
    out.print(
        f"{ran} of {len(outcomes)} files ran, and no pass changes the results (--engine {engine}). "
        f"Try --engine {others}, or --check {outcomes[-1].path}",
        markup=False,
    )
    return False


def _changed(found: Outcome, outcomes: Sequence[Outcome]) -> str:
    name = found.path.stem.partition("-")[2]
    lines = [f"{name} is the first pass after which results differ ({found.path.name}):"]
    for number, difference in enumerate(found.differences):
        if not difference.is_equal:
            lines.append(f"  result[{number}]: {difference}")
    before = outcomes[outcomes.index(found) - 1]
    if before.not_run:
        lines.append(f"  {before.path.name} could not be run: it may be an earlier pass")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
