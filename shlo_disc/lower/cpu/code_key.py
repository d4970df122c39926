"""What machine code depends on: the key it is kept under."""

from __future__ import annotations

import functools
from pathlib import Path

from shlo_disc.base.installed import record_beside
from shlo_disc.ir.library_folder import LIBRARY_FOLDER
from shlo_disc.lower.llvm.kept_code import source_digest
from shlo_disc.store.format import VERSION, key_of
from shlo_disc.store.loader import cpu_identity


def code_key(text: str, *options: object) -> bytes:
    """The key of what `text` is compiled to with `options`, by this compiler for this CPU."""
    return key_of(str(VERSION), _compiler(), _generator(), cpu_identity(), repr(options), text)


def machine_key(*options: object) -> bytes:
    """The key of this CPU and of this build of LLVM, with `options`; it has no modules of ours."""
    return key_of(str(VERSION), _compiler(), cpu_identity(), repr(options))


@functools.cache
def _compiler() -> str:
    """Which build of MLIR and LLVM this is."""
    library = LIBRARY_FOLDER / "libTorchMLIRAggregateCAPI.so"
    record = record_beside(str(LIBRARY_FOLDER.parent), "torch-mlir")
    found = library.stat()
    # The digest of the library, as its installer wrote it down.
    name = f"/{library.name},"
    digests = [line for line in record.splitlines() if name in line]
    build = digests[0] if digests else f"{found.st_mtime_ns}"
    return f"torch-mlir {found.st_size} {build}"


@functools.cache
def _generator() -> bytes:
    """The modules of ours between a text and LLVM."""
    folder = Path(__file__).parent
    return b"".join(
        source_digest(folder / name) for name in ("codegen.py", "object_code.py", "host_parts.py")
    )
