"""Files made of artifacts, and C programs that run them."""

from __future__ import annotations

import importlib.util
import io
import os
import shlex
import struct
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shlo_disc import ral
from shlo_disc.artifacts import container, manifest
from shlo_disc_runtime.program import _names

HERE = Path(__file__).parent


def built(source: Path, folder: Path, *flags: str) -> Path:
    """A program of C99 that is linked with the library; `flags` may name more files."""
    program, library = folder / source.stem, Path(ral.library())
    compiler = shlex.split(os.environ.get("CC", "cc"))
    common = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1")
    places = [f"-I{ral.include_dir()}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    files = [str(source), "-o", str(program), *flags, "-ldisc_ral", "-pthread"]
    subprocess.run([*compiler, *common, *places, *files], check=True)
    return program


def calls_in(calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> bytes:
    """The file of `calls.c`: arguments and results of each call."""
    numbers = {name: number for number, name in _names().items()}
    out = [len(calls).to_bytes(8, "little")]
    for arrays in (arrays for call in calls for arrays in call):
        out.append(len(arrays).to_bytes(8, "little"))
        for array in map(np.asarray, arrays):
            row = (numbers[array.dtype.name], array.ndim, *array.shape, array.nbytes)
            out += [struct.pack(f"<{len(row)}q", *row), array.tobytes()]
    return b"".join(out)


def bundled(name: str) -> Path:
    """The OpenBLAS in the wheel of SciPy or NumPy."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    return next(Path(f"{folder}.libs").glob("libscipy_openblas*"))


def parts_of(file: bytes) -> dict[str, bytes]:
    """What the members hold, by name, in order."""
    with zipfile.ZipFile(io.BytesIO(file)) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def manifest_of(file: bytes) -> manifest.Manifest:
    return manifest.unpacked(parts_of(file)[container.MANIFEST])


def put_together(parts: dict[str, bytes]) -> bytes:
    """A file of these members; only the digest of the manifest is made anew."""
    digest = container.digest_of(parts[container.MANIFEST])
    return b"".join(container._zip([(name, [data]) for name, data in parts.items()], digest))


def with_code(parts: dict[str, bytes], index: int, data: bytes) -> dict[str, bytes]:
    """The members with another one at `index` of the manifest, whose digest is right."""
    known = manifest.unpacked(parts[container.MANIFEST])
    rows = list(known.members)
    rows[index] = replace(rows[index], size=len(data), digest=container.digest_of(data))
    packed = manifest.packed(replace(known, members=tuple(rows)))
    return parts | {container.MANIFEST: packed, rows[index].name: data}


def place_of(file: bytes, name: str) -> int:
    """Where the data of a member begins."""
    with zipfile.ZipFile(io.BytesIO(file)) as zipped:
        at = zipped.getinfo(name).header_offset
    return at + 30 + sum(struct.unpack_from("<HH", file, at + 26))
