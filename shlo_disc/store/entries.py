"""Reading and writing the store; see the package."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shlo_disc.base import flags, locks
from shlo_disc.base.errors import CacheMismatchError
from shlo_disc.base.records import dataclass
from shlo_disc.store.claims import Claim, claim
from shlo_disc.store.folder import configured, is_ours, opened
from shlo_disc.store.format import KEY_BYTES, MOST_BYTES, DamagedError, packed, unpacked

_DAY_S = 24 * 60 * 60
_SCAN_S = 60
"""Least time between two scans of a store, by whatever process."""
_ABANDONED_S = 60 * 60
"""A file that is still being written after so long has lost its writer."""
_KEPT_SHARE = 0.9
"""Of the limit: a scan that removes entries makes room for a while."""


class Counts:
    """What this process asked of stores."""

    NAMES = ("loaded", "missing", "programs_loaded", "programs_missing", "calls_missing",
             "confirmed_loaded", "confirmed_missing", "choices_loaded", "choices_missing",
             "graphs_loaded", "graphs_missing", "plans_loaded", "plans_missing",
             "functions_loaded", "functions_missing",
             "programs_not_kept", "calls_not_kept", "graphs_not_kept", "damaged", "unreadable",
             "stored", "not_stored", "evicted")  # fmt: skip

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._counts = dict.fromkeys(self.NAMES, 0)
        self.reasons: Counter[tuple[str, str]] = Counter()
        """Why programs were not kept, and first calls."""

    def add(self, name: str, count: int = 1) -> None:
        """Count one more."""
        with self._lock:
            self._counts[name] += count

    def tell_not_kept(self, name: str, reason: str) -> None:
        """Count a program or call that no later process can load, and why, behind "it"."""
        self.add(name)
        with self._lock:
            self.reasons[name, reason] += 1

    def now(self) -> dict[str, int]:
        """All numbers by name."""
        with self._lock:
            return dict(self._counts)


COUNTS = Counts()


@dataclass(frozen=True)
class Entry:
    """One file of a store."""

    path: Path
    size_bytes: int
    used: float
    """Seconds since the epoch: when it was written or last used, to a day."""

    @property
    def key(self) -> bytes:
        """What it is found by."""
        return bytes.fromhex(self.path.name)

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return self.path.parent.parent.name

    def content(self) -> bytes:
        """What was stored. Raises OSError and DamagedError."""
        return unpacked(self.key, _contents(self.path))


KINDS = ("calls", "choices", "confirmed", "functions", "graphs", "kernels", "plans", "programs",
         "sizes")  # fmt: skip
"""What is stored: object code, records of programs, and what leads to these (`driver/kept.py`,
`driver/graphs.py`): first calls, their sizes, and graphs of front ends. And what was compared, and
with which symbols."""
_MISSING = {"calls": "calls_missing", "choices": "choices_missing",
            "confirmed": "confirmed_missing",
            "functions": "functions_missing", "graphs": "graphs_missing",
            "kernels": "missing", "plans": "plans_missing",
            "programs": "programs_missing", "sizes": "programs_missing"}  # fmt: skip


_code_alone: list[str] = []


def keep_code_alone(why: str) -> None:
    """From now on read and write machine code, and no records of programs: see `why`.

    The keys of records then say more of the machine than this process may use.
    """
    _code_alone.append(why)


def current(kind: str = "kernels") -> Store | None:
    """The store of this process for one of :data:`KINDS`; None where it is off or of no use."""
    folder = configured() if kind == "kernels" or not _code_alone else None
    found = None if folder is None else opened(folder)
    return None if found is None else _store(found, kind)


@functools.cache
def _store(folder: Path, kind: str) -> Store:
    return Store(folder / "v1", kind)


@dataclass(frozen=True)
class Store:
    """Bytes by key, below one folder."""

    root: Path
    kind: str = "kernels"
    """What it reads and writes, of :data:`KINDS`."""

    def read(self, key: bytes) -> bytes | None:
        """What is kept under `key`; None where there is none that can be used."""
        try:
            found = unpacked(key, _contents(self._file(key)))
        except FileNotFoundError:
            COUNTS.add(_MISSING[self.kind])
        except OSError:
            COUNTS.add("unreadable")
        except DamagedError:
            COUNTS.add("damaged")
        else:
            return found
        return None

    def write(self, key: bytes, content: bytes) -> None:
        """Keep `content` under `key`, if the file system lets us."""
        file = packed(key, content)
        if len(file) > MOST_BYTES:
            return
        path = self.path(key)
        name = f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            try:
                _replace(path, self.root / "tmp" / name, file)
            except FileNotFoundError:
                _make(self.root, self.root / "tmp", path.parent.parent, path.parent)
                _replace(path, self.root / "tmp" / name, file)
        except OSError:
            COUNTS.add("not_stored")
            return
        COUNTS.add("stored")
        with contextlib.suppress(OSError):
            self._limit()

    def claim(self, key: bytes) -> Claim | None:
        """The right to make the entry of `key`; None after a wait for a process that has it."""
        path = self.root / "claims" / f"{self.kind}-{key.hex()}"
        try:
            _make(self.root, path.parent)
        except OSError:
            return None
        return claim(path, self.path(key).exists)

    def entries(self) -> Iterator[Entry]:
        """All entries of all kinds, in no order."""
        for folder in (f for kind in KINDS for f in _listed(self.root / kind)):
            for file in _listed(folder):
                try:
                    found = file.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed meanwhile
                    continue
                if stat.S_ISREG(found.st_mode) and _is_key(file.name):
                    yield Entry(Path(file.path), found.st_size, found.st_mtime)

    def prune(self, limit_bytes: int, older_than_s: float = float("inf")) -> int:
        """Remove the entries not used for longest, to `limit_bytes`; returns how many.

        Entries not used for `older_than_s` seconds go in any case, and abandoned files and claims.
        """
        now = time.time()
        for file in (*_listed(self.root / "tmp"), *_listed(self.root / "claims")):
            with contextlib.suppress(OSError):
                if now - file.stat(follow_symlinks=False).st_mtime > _ABANDONED_S:
                    os.unlink(file.path)
        entries = sorted(self.entries(), key=lambda entry: entry.used)
        total = sum(entry.size_bytes for entry in entries)
        removed = 0
        for entry in entries:
            if total <= limit_bytes and now - entry.used <= older_than_s:
                break
            with contextlib.suppress(OSError):
                entry.path.unlink()
                removed += 1
            total -= entry.size_bytes
        COUNTS.add("evicted", removed)
        return removed

    def path(self, key: bytes) -> Path:
        """Where the entry of `key` is, if there is one."""
        return Path(self._file(key))

    def _file(self, key: bytes) -> str:
        name = key.hex()
        return f"{self.root}/{self.kind}/{name[:2]}/{name}"

    def _limit(self) -> None:
        """Keep the store within its limit, unless a process did so a moment ago, or does."""
        lock = self.root / "lock"
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - lock.lstat().st_mtime) < _SCAN_S:
                return
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where it is taken
            os.utime(descriptor)
            limit = flags.cache_bytes()
            if sum(entry.size_bytes for entry in self.entries()) > limit:
                self.prune(int(limit * _KEPT_SHARE))
        finally:
            os.close(descriptor)


def mismatch(store: Store, key: bytes, how: str) -> CacheMismatchError:
    """The error for an entry that differs from what is compiled now."""
    return CacheMismatchError(
        f"{store.path(key)} is not what is compiled now: {how}; `disc-cache clear` removes all "
        "entries, and SHLO_DISC_CACHE=1 does not compare them"
    )


def _listed(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _is_key(name: str) -> bool:
    return len(name) == 2 * KEY_BYTES and not name.strip("0123456789abcdef")


def _contents(path: str | Path) -> bytes:
    """What is in a file of ours. Raises OSError, and DamagedError for a file that others may write.

    Marks the file as used, once a day: scans remove the files not used for longest.
    """
    # Links are refused. A pipe of that name would keep us waiting.
    flags_ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags_), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise DamagedError("no file of the store")
        if not is_ours(found) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise DamagedError("others may write to the file")
        contents = file.read(found.st_size)  # as many bytes as may come are allocated first
        if time.time() - found.st_mtime > _DAY_S:
            with contextlib.suppress(OSError):  # a read-only store
                os.utime(file.fileno())
    return contents


def _make(*folders: Path) -> None:
    """Make those of `folders` that are missing, for their owner alone. Raises OSError."""
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)


def _replace(path: Path, temporary: Path, contents: bytes) -> None:
    """Write `contents` to `path` in one step. Raises OSError, and leaves no file then."""
    flags_ = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags_, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(contents)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
