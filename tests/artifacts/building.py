"""Artifacts of what this process compiled, files made of them, and C programs that run them."""

from __future__ import annotations

import io
import os
import shlex
import struct
import subprocess
import weakref
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import shlo_disc
from shlo_disc import ral
from shlo_disc.artifacts import container, manifest
from shlo_disc.lower.cpu import codegen
from shlo_disc.lower.recent import Recent

HERE = Path(__file__).parent
HOST = ("avx2", "fma")


class Recorded:
    """The last program that was compiled, and the object files of its functions."""

    def __init__(self, monkeypatch):
        self.code = {}
        load, new = codegen.load, ral.Executable

        def loaded(object_code, names):
            found = load(object_code, names)
            self.code |= {
                one.address: (object_code, name) for one, name in zip(found, names, strict=True)
            }
            return found

        def made(**options):
            self.options = options
            return new(**options)

        # Programs of other tests may live, whose functions this one would share.
        monkeypatch.setattr(codegen, "_functions", weakref.WeakValueDictionary())
        monkeypatch.setattr(codegen, "RECENT", Recent(1 << 20, codegen._kept_bytes))
        monkeypatch.setattr(codegen, "load", loaded)
        monkeypatch.setattr(ral, "Executable", made)

    def write(
        self,
        path,
        texts,
        *,
        targets=(("host", "x86-64", HOST),),
        name="program",
        apart=False,
        packed=False,
    ):
        """Write the program for `targets`, all with the code of this processor.

        `apart`: its constants are in a file beside it. `packed`: it has a packed copy for each
        target, of which no call can read anything good.
        """
        given, contents = self.options, container.Contents()

        def constant(array):
            if not apart:
                return contents.add_constant(array)
            return contents.add_tensor(array, "ui8", array.shape)

        for index, cell in enumerate(given["kernels"]):
            if not cell.address:
                given["make_kernel"](index, False)
        shlo_disc.finish_compiling()
        made = []
        for target in targets:
            objects = {}

            def function(cell, objects=objects, target=target):
                code, symbol = self.code[cell.address]
                if code not in objects:
                    objects[code] = (len(objects), contents.add_object(target[0], code))
                return manifest.Function(objects[code][0], symbol)

            prepare, run = function(given["prepare"]), function(given["run"])
            kernels = tuple(map(function, given["kernels"]))
            made.append(
                manifest.Target(
                    *target,
                    cores=ral.num_threads(),
                    objects=tuple(span for _, span in objects.values()),
                    prepare=prepare,
                    run=run,
                    kernels=kernels,
                    symbols=given["symbols"],
                    guards=tuple(given["guards"]),
                    pack_layouts=tuple(given["pack_layouts"]),
                    constants=tuple(map(constant, given["constants"])),
                    size_arguments=tuple(given["size_arguments"]),
                    packable=tuple(given["packable"]),
                    donated=tuple(given["donated"]),
                    unread=tuple(given["unread"]),
                    reuses=tuple(given["reuses"]),
                )
            )
        packs = ()
        if packed:
            copy = contents.add_constant(np.zeros(5000, np.uint8), "packs")
            packs = tuple(manifest.Pack(k, 0, 0, copy) for k in range(len(targets)))
        arguments, results = texts
        described = manifest.Manifest(
            compiler="shlo_disc 0.1.0",
            members=contents.members(),
            name=name,
            arguments=tuple(
                manifest.Argument(path, dtype.name, tuple(sizes), tuple(text))
                for (dtype, sizes, path), text in zip(given["arguments"], arguments, strict=True)
            ),
            results=tuple(
                manifest.Result(f"result[{i}]", dtype.name, tuple(text))
                for i, ((dtype, _, _), text) in enumerate(
                    zip(given["results"], results, strict=True)
                )
            ),
            targets=tuple(made),
            weights_file=f"{path.name}.safetensors" if apart else "",
            tensors=contents.tensors(),
            packs=packs,
        )
        contents.write(path, described)
        return described


def built(source: Path, folder: Path, *flags: str) -> Path:
    """A program of C99 that is linked with the library."""
    program, library = folder / source.stem, Path(ral.library())
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", *flags)
    places = [f"-I{ral.include_dir()}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(
        [*compiler, *flags, *places, str(source), "-o", str(program), "-ldisc_ral", "-pthread"],
        check=True,
    )
    return program


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
