"""What entries on disk are named by, whatever they hold, and how one is read.

A key names the compiler's own sources, the machine and the flags, so an entry is never stale.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from shlo_disc.base import flags
from shlo_disc.base.installed import record_beside
from shlo_disc.executables.codec import RecordError
from shlo_disc.lower.target import kept_code
from shlo_disc.ral import FileStamps
from shlo_disc.store.entries import COUNTS, current
from shlo_disc.store.folder import configured
from shlo_disc.store.format import key_of

T = TypeVar("T")


def are_kept() -> bool:
    """Whether this process keeps programs on disk."""
    if not flags.cache_programs() or flags.dump_dir() is not None or flags.debug_level() > 1:
        return False  # to show what compiling does, it must be done
    return current() is not None


def has_programs() -> bool:
    """Whether earlier processes kept programs, as far as their folder tells; makes no folder."""
    folder = configured() if flags.cache_programs() else None
    return folder is not None and (folder / "v1/programs").expanduser().is_dir()


@functools.cache
def compiler_id() -> bytes:
    """Which build of this package, its runtime and its dependencies it is."""
    digest = hashlib.blake2b()
    for part in _own_files():
        digest.update(part.encode() if isinstance(part, str) else part.get())
    return digest.digest()


@functools.cache
def _own_files() -> list[str] | list[FileStamps]:
    """The digest of each file of this package, or else its time: to read them all takes long."""
    folders = sys.modules["shlo_disc"].__path__
    record = record_beside(folders[0], "shlo_disc")
    # Of a source tree, installers write down what they built of it.
    return [record] if "shlo_disc/driver/compile.py," in record else [*map(FileStamps, folders)]


def look_at_own_files() -> None:
    """Begin to name this build, while modules are imported: the first call needs its name.

    So it is the build that is imported, whatever is edited later.
    """
    if flags.cache_programs():
        _own_files()


def facts_of(target: str, *facts: object) -> str:
    """What a program depends on, beside its source and the machine: target, flags and `facts`."""
    return repr((target, flags.fusion(), flags.spec_checks(), flags.split(), *facts))


def machine_key(target: str) -> bytes | None:
    """Names the compiler, the machine and the flags; None where nothing is kept for `target`."""
    if not are_kept():
        return None
    family, _, architecture = target.partition(":")
    code = kept_code(family)
    if code is None:
        return None
    return key_of(compiler_id(), code.identity(architecture), facts_of(target))


def call_key(digest: bytes, target: str) -> bytes | None:
    """What the call that `digest` names is kept under; None where it is not kept."""
    key = machine_key(target)
    return None if key is None else key_of(key, digest)


def check_runs(target: str, symbols: Iterable[str]) -> None:
    """Raise RecordError for functions that the system does not let this process run."""
    code = kept_code(target.partition(":")[0])
    if code is not None and not code.runs(symbols):
        raise RecordError("for a process that may use more of the processor")


def read_record(kind: str, key: bytes, read: Callable[[bytes], T]) -> T | None:
    """What `read` makes of the entry of `kind` under `key`; None without one that it accepts."""
    store = current(kind)
    data = None if store is None else store.read(key)
    if data is None:
        return None
    try:
        return read(data)
    except RecordError:  # written by a mistake of ours
        COUNTS.add("damaged")
        return None
