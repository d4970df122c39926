"""Write what the compiler makes of dumped programs, so that two versions of it can be compared.

    SHLO_DISC_DUMP=/tmp/dumps python -m pytest tests/models        # a corpus: any programs
    python tools/replay.py /tmp/dumps /tmp/before                  # at one commit
    python tools/replay.py /tmp/dumps /tmp/after                   # at another
    diff -r /tmp/before /tmp/after                                 # "no change" is a fact

Each program gives one file a machine: the planned module, the text of every kernel and of the host
program. No machine code is made, so the machines need not be this one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import click
from rich.progress import track

from shlo_disc.base.errors import ShloDiscError
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.host.program import emit_host
from shlo_disc.lower.refused import Refused
from shlo_disc.lower.target import Target, parse
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP
from shlo_disc.passes.table import planning

AVX2 = frozenset({"avx", "avx2", "bmi2", "f16c", "fma"})


def _of_cpu(vector_bytes: int, features: frozenset[str]) -> Target:
    return replace(parse("cpu"), machine=Machine(vector_bytes=vector_bytes, features=features))


TARGETS = {
    "avx2": _of_cpu(32, AVX2),
    "avx512": _of_cpu(64, AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "sm_90": parse("cuda:sm_90"),
    "gfx942": parse("rocm:gfx942"),
}


def replay(text: str, target: Target) -> str:
    """The planned module and all texts of the program `text` for `target`, or the error."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        try:
            Pipeline([*CLEANUP, *planning(target.model)]).run(module)
            main = main_function(module)
            shapes = analyze(module)
            host = emit_host(main, shapes, shape_program(main, shapes), target)
        except (ShloDiscError, Refused) as error:
            return f"{type(error).__name__}: {error}\n"
        planned = str(module.operation.get_asm(large_elements_limit=16))
    kernels = [f"// {kernel.name}\n{kernel.text}" for kernel in host.kernels]
    return "\n".join([planned, *kernels, host.text])


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def main(corpus: Path, out: Path) -> None:
    """See the module."""
    programs = {}
    for path in sorted(corpus.rglob("00-input.mlir")):
        text = path.read_text(encoding="utf-8")
        programs[hashlib.sha256(text.encode()).hexdigest()[:16]] = text
    for name, target in TARGETS.items():
        folder = out / name
        folder.mkdir(parents=True)
        for digest, text in track(sorted(programs.items()), name):
            (folder / f"{digest}.txt").write_text(replay(text, target), encoding="utf-8")
    click.echo(f"{len(programs)} programs, {len(TARGETS)} machines")


if __name__ == "__main__":
    main()
