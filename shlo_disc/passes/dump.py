"""Where `SHLO_DISC_DUMP` puts the module after every pass, and texts that LLVM refuses: a new
folder for each compilation.

The directory may be one that other programs and users write to, such as `/tmp/dump`: a folder is
ours because we made it, and a file in it is created, never opened, so no link is followed and
nothing is overwritten.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from shlo_disc import flags
from shlo_disc.mlir import ir

__all__ = ["DumpFolder"]

_MOST_LETTERS = 80
"""Of a program's name in the name of its folder."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class DumpFolder:
    """The files of one compilation."""

    path: Path

    @classmethod
    def new(cls, name: str) -> DumpFolder | None:
        """A new folder `NAME-PROCESS-NUMBER` for the program `name`; None when the flag is unset.

        Raises OSError, with the flag's value in its message, where it cannot be made.
        """
        directory = flags.dump_dir()
        if directory is None:
            return None
        stem = re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:_MOST_LETTERS] or "main"
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

    def write(self, number: int, name: str, module: ir.Module) -> None:
        """Write `module`, with locations, to a new file `NN-NAME.mlir`.

        Raises OSError, with the flag's value in its message, where that fails.
        """
        text = str(module.operation.get_asm(enable_debug_info=True))
        self._create(f"{number:02}-{name}.mlir", text)

    def write_refused(self, name: str, text: str, error: Exception) -> None:
        """Write `text`, which does not compile, and above it the error to `refused-NAME.mlir`.

        The error names the file from now on; a text that was written before is not written again.
        Raises OSError, with the flag's value in its message, where that fails.
        """
        file = f"refused-{name}.mlir"
        if not (self.path / file).exists():
            above = "".join(f"// {line}\n" for line in str(error).splitlines())
            self._create(file, above + text)
            error.add_note(f"its text is {self.path / file}")

    def _create(self, name: str, text: str) -> None:
        create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = self.path / name
        try:
            with os.fdopen(os.open(path, create, 0o600), "w") as file:
                file.write(text)
        except OSError as error:
            raise _told(error, self.path.parent) from error


def _told(error: OSError, directory: Path) -> OSError:
    said = f"SHLO_DISC_DUMP is '{directory}', but writing there failed: {error.strerror}"
    return type(error)(error.errno, said, str(error.filename or directory))
