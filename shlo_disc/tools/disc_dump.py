"""disc-dump: what is in an artifact, which is checked first.

`disc-dump model.disc`
`disc-dump model.disc --kernels`
`disc-dump model.disc --header > model.hpp`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from shlo_disc.artifacts.header import cpp_header
from shlo_disc.artifacts.manifest import Argument, Manifest, Result
from shlo_disc.artifacts.read import Artifact, read
from shlo_disc.base.errors import ShloDiscError


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--kernels",
    "with_kernels",
    is_flag=True,
    help="Kernels of the first machine, with their lines.",
)
@click.option(
    "--header",
    "as_header",
    is_flag=True,
    help="A header for C++17 in place of all else: arguments and results by name and type.",
)
def main(path: Path, with_kernels: bool, as_header: bool) -> None:
    """See the module."""
    try:
        artifact = read(path)
    except (ShloDiscError, OSError) as error:
        click.echo(f"disc-dump: {type(error).__name__}: {error}", err=True)
        sys.exit(1)
    manifest = artifact.manifest
    if as_header:
        click.echo(cpp_header(manifest), nl=False)
        return
    click.echo(f"{_signature(manifest)}, made by {manifest.compiler}")
    for number in range(len(manifest.targets)):
        for line in _about(artifact, number):
            click.echo(line)
    if with_kernels:
        for line in _kernels(artifact):
            click.echo(line)
    click.echo("members:")
    for member in manifest.members:
        click.echo(f"  {member.size:>12,} bytes  {member.name}  {member.digest.hex()[:16]}")
    if manifest.weights_file:
        click.echo(f"tensors of {manifest.weights_file}:")
        for one in manifest.tensors:
            sizes = ", ".join(map(str, one.sizes))
            click.echo(f"  {one.size:>12,} bytes  {one.name}  {one.dtype}[{sizes}]")


def _signature(manifest: Manifest) -> str:
    takes = ", ".join(f"{one.name}: {_typed(one)}" for one in manifest.arguments)
    gives = ", ".join(map(_typed, manifest.results))
    return f"{manifest.name}({takes}) -> ({gives})"


def _typed(one: Argument | Result) -> str:
    return f"{one.dtype}[{', '.join(one.texts)}]"


def _about(artifact: Artifact, number: int) -> Iterator[str]:
    """Row `number` of the targets."""
    manifest = artifact.manifest
    target, place = manifest.targets[number], number % manifest.programs
    code = sum(span.size for span in target.objects)
    constants = sum(span.size for span in target.constants)
    cores = f"{target.cores} core{'s' if target.cores > 1 else ''}"
    if place == 0:
        yield f"{target.name}, made for {cores}: needs {' '.join(target.features)}"
    if manifest.parts:
        yield f"  program {place + 1} of {manifest.programs}, {manifest.parts[place].name}:"
    device = manifest.device_of(number)
    kernels = device.kernels if device else target.kernels
    yield f"  {len(kernels)} kernels, {code:,} bytes of object files"
    if device:
        images, made = (
            sum(span.size for span in spans) for spans in (device.images, device.machine_code)
        )
        yield f"  for {device.architecture}: {images:,} bytes of images, {made:,} of machine code"
    yield f"  {len(target.constants)} constants, {constants:,} bytes"
    packs = [pack for pack in manifest.packs if pack.target == number]
    if packs:
        size = sum(pack.data.size for pack in packs)
        copies = "copy" if len(packs) == 1 else "copies"
        yield f"  {len(packs)} packed {copies} of constants, {size:,} bytes"
    arguments = manifest.parts[place].arguments if manifest.parts else manifest.arguments
    names = [one.name for one in arguments]
    for what, numbers in (
        ("keeps packed copies of", target.packable),
        ("may write over", target.donated),
        ("does not read", target.unread),
    ):
        if numbers:
            yield f"  {what} {', '.join(names[number] for number in numbers)}"
    calls = [call for call in manifest.foreign if call.target == number]
    for name in dict.fromkeys(call.name for call in calls):
        lines = ", ".join(call.where for call in calls if call.name == name)
        yield f"  calls the FFI target @{name} ({lines})"
    for guard in target.guards[:-1]:
        yield f"  guard: {guard}"


def _kernels(artifact: Artifact) -> Iterator[str]:
    """Those of the first target."""
    told = json.loads(bytes(artifact.members["explain.json"]))
    for program in told if isinstance(told, list) else [told]:
        for kernel in program["kernels"]:
            where = ", ".join(kernel["where"])
            yield f"  {kernel['number']:>4}  {kernel['kind']:<10}  {kernel['name']}  {where}"


if __name__ == "__main__":
    main()
