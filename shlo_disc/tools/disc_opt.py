"""disc-opt: run passes of shlo_disc over a file and print what is left.

`disc-opt model.mlir --until disc`
`disc-opt model.mlir --pass-pipeline=ingest,cleanup --print-ir-after=simplify`
`disc-opt dump/04-cse.mlir --pass-pipeline=plan-fusion`
`disc-opt --op stablehlo.reduce_window`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click

from shlo_disc.base import flags
from shlo_disc.base.errors import ShloDiscError
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.passes.base import Pipeline

STAGES = ("ingest", "cleanup", "disc", "host", "kernels", "llvm", "asm")
"""Where `--until` can stop: the result of this stage is printed."""

_SEPARATOR = "// -----"


def split_file(text: str) -> list[str]:
    """The modules of a test file, separated by lines `// -----`."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if line.strip() == _SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(line)
    return ["".join(part) for part in parts]


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--pass-pipeline",
    "pipeline",
    default="",
    help="Comma-separated names, run in this order; `ingest` may be the first, `cleanup` and "
    "`planning` are groups. Without it the file is only read, verified and printed.",
)
@click.option("--until", type=click.Choice(STAGES), help="Compile as far as this stage.")
@click.option(
    "--print-ir-after",
    "print_after",
    multiple=True,
    metavar="NAME",
    help="Print the module after this pass, to stderr; `all` for every pass. Repeatable.",
)
@click.option("--print-debug-info", is_flag=True, help="Print source locations.")
@click.option("--timing", is_flag=True, help="Print what each pass changed and took, to stderr.")
@click.option("--split-input-file", "split", is_flag=True, help=f"Modules end at `{_SEPARATOR}`.")
@click.option("--list-passes", is_flag=True, help="Print the names of all passes and stop.")
@click.option("--op", "op_name", metavar="NAME", help="Print the op's row and rules and stop.")
@click.option("-o", "--output", type=click.File("w"), default="-", help="Where the result goes.")
def main(
    file: str,
    pipeline: str,
    until: str | None,
    print_after: tuple[str, ...],
    print_debug_info: bool,
    timing: bool,
    split: bool,
    list_passes: bool,
    op_name: str | None,
    output: IO[str],
) -> None:
    """See the module."""
    if op_name is not None:
        from shlo_disc.tools import op_row  # noqa: PLC0415

        try:
            text = op_row.describe(op_row.find(op_name))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        click.echo(text, file=output)
        return
    if list_passes:
        # After --help, which needs none of it.
        from shlo_disc.lower.target import parse  # noqa: PLC0415
        from shlo_disc.passes import table  # noqa: PLC0415

        click.echo("\n".join(table.passes(parse("cpu").model)), file=output)
        return
    if until and pipeline:
        raise click.UsageError("--until and --pass-pipeline exclude each other")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    sources: list[bytes] = [data]
    if split:
        sources = [part.encode() for part in split_file(data.decode())]
    texts = []
    try:
        for source in sources:
            if until in _COMPILED:
                texts.append(_compiled(source, until))
            else:
                wanted = _UNTIL[until] if until else pipeline
                texts.append(_run(source, wanted, frozenset(print_after), timing, print_debug_info))
    except (ShloDiscError, ValueError) as error:
        from shlo_disc.tools.failures import failure  # noqa: PLC0415 - after --help

        click.echo(f"disc-opt: {file}: {failure(error)}", err=True)
        sys.exit(1)
    click.echo(f"\n{_SEPARATOR}\n".join(texts), file=output)


_UNTIL = {
    "ingest": "ingest",
    "cleanup": "ingest,cleanup",
    "disc": "ingest,cleanup,planning",
}
_COMPILED = frozenset(STAGES) - frozenset(_UNTIL)


def _run(
    source: bytes, pipeline: str, print_after: frozenset[str], timing: bool, debug_info: bool
) -> str:
    """The module after the passes named in `pipeline`, as text."""
    from shlo_disc.ingest import ingest  # noqa: PLC0415
    from shlo_disc.ingest.normalize import PASSES  # noqa: PLC0415
    from shlo_disc.ingest.source import read  # noqa: PLC0415
    from shlo_disc.lower.target import parse  # noqa: PLC0415
    from shlo_disc.passes import table  # noqa: PLC0415

    first, _, rest = pipeline.partition(",")
    is_ingested = first.strip() == "ingest"
    passes = table.pipeline_of(rest if is_ingested else pipeline, parse("cpu").model)
    names = [p.name for p in PASSES] if is_ingested else []
    names += [p.name for p in passes]
    unknown = print_after - {*names, "all"}
    if unknown:
        raise ValueError(
            f"--print-ir-after={', '.join(sorted(unknown))}: not in the pipeline "
            f"({', '.join(names)})"
        )
    context, log = new_context(), PassLog(print_after=print_after)
    with context, ir.Location.unknown(), flags.overridden(spec=1):
        if is_ingested:
            module = ingest(source, context, log=log)
        else:
            module = read(source, context, own=True)
        Pipeline(passes).run(module, log=log)
        if timing:
            for record in log.records:
                click.echo(
                    f"{record.name:24} {record.changed:6} changed {record.time_ms:9.2f} ms",
                    err=True,
                )
        return str(module.operation.get_asm(enable_debug_info=debug_info)).rstrip("\n")


def _compiled(source: bytes, until: str | None) -> str:
    """The text of a stage behind the passes."""
    from shlo_disc.driver.compile import compile as compile_program  # noqa: PLC0415

    return compile_program(source).as_text(until or "asm")


if __name__ == "__main__":
    main()
