"""Where `SHLO_DISC_DUMP` puts the module after every pass, the texts of kernels and that of the
host program: a new folder for each compilation.

A module in a dump has the attribute `disc.passes_left`: the passes of its compilation that have not
run yet. `disc-run` goes on from there.

The directory may be one that other programs and users write to, such as `/tmp/dump`. A folder is
ours because we made it. A file in it is created, never opened: no link is followed, and nothing is
overwritten.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from shlo_disc.base import flags
from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir

PASSES_LEFT = "disc.passes_left"
"""Attribute of a dumped module: the names of the passes that its compilation has not run yet."""

_MOST_LETTERS = 80
"""Of a program's name in the name of its folder."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class DumpFolder:
    """The files of one compilation."""

    path: Path
    _written: set[str] = field(default_factory=set)
    """Files of texts, which are written once."""

    @classmethod
    def new(cls, name: str) -> DumpFolder | None:
        """A new folder `NAME-PROCESS-NUMBER` for the program `name`; None when the flag is unset.

        Raises OSError, with the flag's value in its message, where it cannot be made.
        """
        directory = flags.dump_dir()
        if directory is None:
            return None
        stem = _stem(name)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            while True:
                path = directory / f"{stem}-{os.getpid()}-{next(_numbers)}"
                try:
                    path.mkdir(mode=0o700)
                except FileExistsError:
                    continue
                return cls(path)
        except OSError as error:
            raise _told(error, directory) from error

    def write(self, name: str, module: ir.Module, left: Sequence[str] | None = None) -> None:
        """Write `module`, with locations, to a new file `NAME.mlir`.

        `left` becomes the attribute `disc.passes_left` of the text. Raises OSError, with the
        flag's value in its message, where that fails.
        """
        attributes = module.operation.attributes
        if left is not None:
            names = [ir.StringAttr.get(n, module.context) for n in left]
            attributes[PASSES_LEFT] = ir.ArrayAttr.get(names, module.context)
        text = str(module.operation.get_asm(enable_debug_info=True))
        if left is not None:
            del attributes[PASSES_LEFT]
        self._create(f"{name}.mlir", text)

    def write_kernel(self, name: str, symbol: str, text: str) -> None:
        """Write the MLIR text of a kernel to a new file `kernel-NAME-SYMBOL.mlir`.

        A symbol stands for one text, which is written once. Raises OSError, with the flag's value
        in its message, where that fails.
        """
        self._create_once(f"kernel-{_stem(name)}-{symbol}.mlir", text)

    def write_host(self, text: str) -> None:
        """Write the host program to a new file, `host.mlir`; `host-2.mlir` after a split.

        Raises OSError, with the flag's value in its message, where that fails.
        """
        earlier = sum(name.startswith("host") for name in self._written)
        self._create_once(f"host-{earlier + 1}.mlir" if earlier else "host.mlir", text)

    def write_refused(self, name: str, text: str, error: Exception) -> None:
        """Write `text`, which does not compile, and above it the error to `refused-NAME.mlir`.

        The error names the file from now on; a text that was written before is not written again.
        Raises OSError, with the flag's value in its message, where that fails.
        """
        file = f"refused-{name}.mlir"
        above = "".join(f"// {line}\n" for line in str(error).splitlines())
        if self._create_once(file, above + text):
            error.add_note(f"its text is {self.path / file}")

    def _create_once(self, name: str, text: str) -> bool:
        if name in self._written:
            return False
        self._create(name, text)
        self._written.add(name)
        return True

    def _create(self, name: str, text: str) -> None:
        create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self.path / name
        try:
            with os.fdopen(os.open(path, create, 0o600), "w") as file:
                file.write(text)
        except OSError as error:
            raise _told(error, self.path.parent) from error


def _stem(name: str) -> str:
    """`name` as a part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:_MOST_LETTERS] or "main"


def _told(error: OSError, directory: Path) -> OSError:
    said = f"SHLO_DISC_DUMP is '{directory}', but writing there failed: {error.strerror}"
    return type(error)(error.errno, said, str(error.filename or directory))
