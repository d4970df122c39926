"""Say which texts the compiler makes otherwise than before: of kernels, and of host programs.

    python tools/replay.py                                         # the programs of tests/replay
    python tools/replay.py --update                                # these changes are meant

    SHLO_DISC_DUMP=/tmp/dumps python -m pytest tests/models        # a corpus: any programs
    python tools/replay.py /tmp/dumps /tmp/before                  # at one commit
    python tools/replay.py /tmp/dumps /tmp/after                   # at another
    diff -r /tmp/before /tmp/after                                 # "no change" is a fact

Each program gives one text a machine: the planned module, every kernel and the host program. No
machine code is made, so the machines need not be this one. A file of tests/replay is an
`00-input.mlir` of a dump, without locations. `hashes.txt` has what was compiled of each, hashed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import click

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
from shlo_disc.passes.pipeline import CLEANUP, planning

PROGRAMS = Path(__file__).parents[1] / "tests/replay"
HASHES = PROGRAMS / "hashes.txt"

AVX2 = frozenset({"avx", "avx2", "bmi2", "f16c", "fma"})
CPUS = {
    "avx2": Machine(vector_bytes=32, features=AVX2),
    "avx512": Machine(
        vector_bytes=64, features=AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    ),
}
MACHINES = (*CPUS, "cuda:sm_90", "cuda:sm_90a", "rocm:gfx942")
"""Between sm_90 and sm_90a is `wgmma`."""


@cache
def target_of(machine: str) -> Target:
    """The target of one of `MACHINES`."""
    return replace(parse("cpu"), machine=CPUS[machine]) if machine in CPUS else parse(machine)


def compiled(text: str, machine: str) -> tuple[str, str]:
    """The planned module of the program `text`, and all texts that are compiled.

    Raises ShloDiscError or Refused for one that has no kernels.
    """
    target = target_of(machine)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline([*CLEANUP, *planning(target.model)]).run(module)
        main = main_function(module)
        shapes = analyze(module)
        host = emit_host(main, shapes, shape_program(main, shapes), target)
        planned = str(module.operation.get_asm(large_elements_limit=16))
    kernels = [f"// {kernel.name}\n{kernel.text}" for kernel in host.kernels]
    return planned, "\n".join([*kernels, host.whole()])


def replay(text: str, machine: str) -> str:
    """All that `compiled` gives, or the error."""
    try:
        return "\n".join(compiled(text, machine))
    except (ShloDiscError, Refused) as error:
        return f"{type(error).__name__}: {error}\n"


def digest_of(text: str, machine: str) -> str:
    """The hash of the texts that are compiled."""
    return _digest(compiled(text, machine)[1])


def of_all(
    make: Callable[[str, str], str], programs: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """What `make` gives of every program on every machine, by their names."""
    keys = [(name, machine) for name in programs for machine in MACHINES]
    workers = min(len(os.sched_getaffinity(0)), 8)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        made = pool.map(make, (programs[name] for name, _ in keys), (m for _, m in keys))
        return dict(zip(keys, made, strict=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check(update: bool) -> None:
    programs = {p.stem: p.read_text(encoding="utf-8") for p in sorted(PROGRAMS.glob("*.mlir"))}
    made = of_all(digest_of, programs)
    now = "".join(f"{name} {machine} {digest}\n" for (name, machine), digest in made.items())
    if update:
        HASHES.write_text(now, encoding="utf-8")
        return
    before = HASHES.read_text(encoding="utf-8")
    changed = {*before.splitlines()} ^ {*now.splitlines()}
    if changed:
        rows = sorted({" for ".join(line.split()[:2]) for line in changed})
        raise click.ClickException(
            "the texts of these programs changed; if you meant it, run `tools/replay.py --update`:"
            + "".join(f"\n  {row}" for row in rows)
        )
    click.echo(f"{len(made)} texts are what they were")


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "corpus", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False
)
@click.argument("out", type=click.Path(path_type=Path), required=False)
@click.option("--update", is_flag=True, help="Write the hashes of tests/replay.")
def main(corpus: Path | None, out: Path | None, update: bool) -> None:
    """See the module."""
    if corpus is None:
        _check(update)
        return
    if out is None or update:
        raise click.UsageError("a corpus needs a folder for its texts, and has no hashes")
    found = (path.read_text(encoding="utf-8") for path in corpus.rglob("00-input.mlir"))
    programs = {_digest(text): text for text in found}
    for (name, machine), text in of_all(replay, programs).items():
        folder = out / machine
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    click.echo(f"{len(programs)} programs, {len(MACHINES)} machines")


if __name__ == "__main__":
    main()
