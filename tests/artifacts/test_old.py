"""Artifacts of earlier versions: later ones run them, and tell of a format that they do not know.

`old/` has `format-N-DATE-NAME.disc`, made on DATE, and beside each `.npz` with calls of it. Files
are added, none is changed. A change of `manifest.VERSION` adds those that
`python -m tests.artifacts.test_old DATE` writes, which needs llvmlite.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import shlo_disc
import shlo_disc_runtime
from shlo_disc.artifacts import container, manifest
from shlo_disc.base.errors import ArtifactError
from tests.artifacts.building import HERE, built, calls_in, manifest_of, parts_of, put_together
from tests.artifacts.programs import Program, arguments, export
from tests.artifacts.test_save import RUN_HERE, same_bits
from tests.emulator import needs_emulator
from tests.test_data_sized import POSITIVE, VECTORS
from tools import emulated

OLD = HERE / "old"
FILES = sorted(OLD.glob("*.disc"))
TARGET = "x86-64-v3"
BIAS = np.random.default_rng(7).standard_normal((24, 16)).astype("f4")

PLAIN = Program(
    lambda x, w: (jax.nn.softmax(x @ w), x.sum(0)),
    ["n, 8", "8, 4"],
    [{"n": n} for n in (1, 5, 33)],
)
WEIGHTS = Program(
    lambda i, x: jax.numpy.asarray(BIAS)[i] * x,
    ["n", "n, 16"],
    [{"n": n} for n in (1, 24)],
    ["int32", "float32"],
)


class Made(NamedTuple):
    source: Any
    calls: list[list[Any]]
    options: dict[str, Any]


def programs() -> dict[str, Made]:
    """What is saved, by name."""
    plain, weights = ([arguments(one, sizes) for sizes in one.sizes] for one in (PLAIN, WEIGHTS))
    both = {"targets": [TARGET, "aarch64"]}
    return {
        "plain": Made(export(PLAIN), plain, both),
        "parts": Made(POSITIVE, [[x] for x in VECTORS[:4]], {"targets": [TARGET]}),
        "weights": Made(
            export(WEIGHTS),
            [[np.abs(i) % 24, x] for i, x in weights],
            {"targets": [TARGET], "weights": "separate"},
        ),
    }


def make(date: str) -> None:
    """Write the artifacts of today's format, and calls of them, into `old/`."""
    OLD.mkdir(exist_ok=True)
    for name, made in programs().items():
        path = OLD / f"format-{manifest.VERSION}-{date}-{name}.disc"
        compiled = shlo_disc.compile(made.source, name=name, target="cpu:avx2")
        compiled.save(path, cores=1, **made.options)
        loaded = shlo_disc_runtime.load(path, target=TARGET)
        arrays = {}
        for number, given in enumerate(made.calls):
            results = loaded(*given)
            for one, wanted in zip(results, compiled.run_numpy(given), strict=True):
                np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-6)
            arrays |= {f"{number}.argument.{k}": np.asarray(a) for k, a in enumerate(given)}
            arrays |= {f"{number}.result.{k}": a for k, a in enumerate(results)}
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        print(path, path.stat().st_size)


def calls_of(path: Path) -> list[tuple[list[Any], list[Any]]]:
    """Arguments and results of each call of an old artifact."""
    found: dict[int, tuple[list[Any], list[Any]]] = {}
    with np.load(path.with_suffix(".npz")) as stored:
        for key in stored:
            number, kind, _ = key.split(".")
            found.setdefault(int(number), ([], []))[kind == "result"].append(stored[key])
    return [*found.values()]


def test_there_are_artifacts_of_this_format():
    """If this fails: `python -m tests.artifacts.test_old DATE`, and commit what it writes."""
    now = [path for path in FILES if path.name.startswith(f"format-{manifest.VERSION}-")]
    assert {path.stem.split("-")[-1] for path in now} >= {"plain", "parts", "weights"}
    assert sum(path.stat().st_size for path in now) <= 256 * 1024


here = pytest.mark.skipif(TARGET not in RUN_HERE, reason="this processor has no AVX2")
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@here
@each
def test_the_runtime(path):
    loaded = shlo_disc_runtime.load(path, target=TARGET)
    for given, wanted in calls_of(path):
        same_bits(loaded(*given), wanted)


@here
@each
def test_the_compiler(path):
    """It reads a record of its own classes, too, and says so where these were others."""
    told = ""
    try:
        loaded = shlo_disc.load(path, TARGET)
    except ArtifactError as error:
        told = str(error)
    if told:
        made_by = (
            r"was made by shlo_disc \d\S*, another version: .*; shlo_disc_runtime and C run it"
        )
        assert re.search(made_by, told)
        return
    for given, wanted in calls_of(path):
        same_bits(loaded.run_numpy(given), wanted)


@here
@each
def test_c(path, tmp_path):
    (tmp_path / "given").write_bytes(calls_in(calls_of(path)))
    program = built(HERE / "calls.c", tmp_path)
    command = [program, path, tmp_path / "given"]
    assert subprocess.check_output(command, text=True) == "right\n"


@needs_emulator
@pytest.mark.unsanitized
@each
def test_aarch64(path, arm_runner, tmp_path):
    if emulated.TARGET not in {row.name for row in manifest_of(path.read_bytes()).targets}:
        pytest.skip("it has no code for AArch64")
    for given, wanted in calls_of(path):
        lines = [str(tmp_path / "results")]
        for k, array in enumerate(given):
            (tmp_path / str(k)).write_bytes(array.tobytes())
            lines.append(
                f"{tmp_path / str(k)} {array.dtype.name} {' '.join(map(str, array.shape))}"
            )
        (tmp_path / "call").write_text("\n".join(lines))
        emulated.told(arm_runner, "run", str(path), str(tmp_path / "call"))
        got = np.frombuffer((tmp_path / "results").read_bytes(), wanted[0].dtype)
        whole = np.concatenate([np.ravel(one) for one in wanted])
        np.testing.assert_allclose(got, whole, rtol=1e-5, atol=1e-5)


@each
@pytest.mark.parametrize("load", [shlo_disc.load, shlo_disc_runtime.load])
def test_a_later_format_says_which_version_it_needs(load, path, tmp_path):
    parts = parts_of(path.read_bytes())
    later = bytearray(parts[container.MANIFEST])
    later[len(manifest.MAGIC)] = 99
    (tmp_path / path.name).write_bytes(put_together(parts | {container.MANIFEST: bytes(later)}))
    told = rf"format 99, (made by|of) shlo_disc \d\S*.* format {manifest.VERSION}"
    with pytest.raises((ArtifactError, shlo_disc_runtime.ArtifactError), match=told):
        load(tmp_path / path.name)


if __name__ == "__main__":
    make(sys.argv[1])
