"""Code that LLVM makes for other machines and for GPUs, kept on disk like that of this machine."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from shlo_disc.base import flags
from shlo_disc.store.entries import COUNTS, current, mismatch


def kept_or_made(key: bytes, make: Callable[[], bytes]) -> tuple[bytes, bool]:
    """What is kept under `key`, or else what `make` gives; and whether it was kept.

    Nothing is kept of an empty code. Raises what `make` does, and CacheMismatchError where kept
    code is to be verified and differs.
    """
    store = current()
    kept = None if store is None else store.read(key)
    if kept is not None and not flags.cache_verifies():
        COUNTS.add("loaded")
        return kept, True
    made = make()
    if store is not None and kept is not None and kept != made:
        raise mismatch(store, key, "it has other machine code")
    if store is not None and kept is None and made:
        store.write(key, made)
    return made, False


@functools.cache
def makers(*paths: Path) -> str:
    """Names llvmlite, and the modules of ours at `paths` and around this one."""
    own = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.blake2b(b"".join(map(source_digest, (*own, *paths))))
    try:
        version = importlib.metadata.version("llvmlite")
    except importlib.metadata.PackageNotFoundError:  # told when code is made
        version = ""
    return f"{version} {digest.hexdigest()}"


def source_digest(path: Path) -> bytes:
    """The digest of a module of ours, or the version of the package without sources."""
    try:
        return hashlib.blake2b(path.read_bytes()).digest()
    except OSError:
        return importlib.metadata.version("shlo_disc").encode()
