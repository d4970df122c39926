"""disc-compile: compile a program to an artifact, which runs without JAX and without a compiler.

`disc-compile model.mlir -o model.disc`
`disc-compile model.mlir -o model.disc --target x86-64-v3 --target aarch64 --cores 8`
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from shlo_disc.base.errors import ShloDiscError
from shlo_disc.lower.target import ARTIFACT_TARGETS
from shlo_disc.tools.assignments import assignments
from shlo_disc.tools.failures import failure

_PYTHONS = (MemoryError, OSError, TypeError, ValueError)
"""Errors of Python that say what is wrong with a file or an option."""


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The artifact, which replaces an old one.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="A machine that runs it, or a GPU. Repeatable; by default "
    f"{' and '.join(ARTIFACT_TARGETS)}.",
)
@click.option(
    "--cores", type=int, help="Of the machine that runs it; by default those of this one."
)
@click.option(
    "--weights",
    type=click.Choice(["inside", "separate"]),
    default="inside",
    help="Where constants are: in the artifact, or in a safetensors file beside it.",
)
@click.option(
    "--packed-for",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="NPZ",
    help="Arguments of a call, as disc-run takes them: the copies of weights that it packs are in "
    "the artifact.",
)
@click.option(
    "--format",
    type=click.Choice(["disc", "so"]),
    default="disc",
    help="An artifact, or a shared library that has it.",
)
@click.option(
    "--ffi",
    type=click.Choice(["extern"]),
    help="What becomes of calls of FFI handlers: who loads the artifact gives the handlers.",
)
@click.option("--name", help="Of the program, for messages; by default that of the module.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="TEXT",
    help="A relation of sizes that every call satisfies, such as 't >= 2'. Repeatable.",
)
@click.option(
    "--likely",
    "likely",
    multiple=True,
    callback=assignments,
    metavar="NAME=N",
    help="A size to have specialised kernels for, as in shlo_disc.jit. Repeatable.",
)
def main(
    path: Path,
    output: Path,
    targets: tuple[str, ...],
    cores: int | None,
    weights: str,
    packed_for: Path | None,
    format: str,
    ffi: str | None,
    name: str | None,
    constraints: tuple[str, ...],
    likely: dict[str, int],
) -> None:
    """See the module."""
    from shlo_disc.debug import arrays  # noqa: PLC0415 - after --help, which needs none of it
    from shlo_disc.driver.request import Options, Request, Stated  # noqa: PLC0415
    from shlo_disc.driver.save import save  # noqa: PLC0415

    try:
        stated = Stated.of(path, None, None, constraints, None)
        request = Request(stated, Options.of("cpu", (), likely, ()), name, may_be_several=True)
        given = None if packed_for is None else partial(arrays.read, packed_for)
        save(
            request, output, targets or ARTIFACT_TARGETS, {},
            cores=cores, weights=weights, packed_for=given, format=format, ffi=ffi,
        )  # fmt: skip
    except (ShloDiscError, *_PYTHONS) as error:
        click.echo(f"disc-compile: {path}: {failure(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
