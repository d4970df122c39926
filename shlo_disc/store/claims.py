"""Claims: of processes that would compile the same at the same time, one does.

A process claims a key before it compiles. Others that want the entry of this key wait until it is
made, for 30 seconds at most. They compile too where that process ends without it, and where the
file system has no locks. A claim saves work, and decides nothing.

A process that holds a claim waits for none, so that no two processes wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from shlo_disc.base import locks

_log = logging.getLogger("shlo_disc")

LONGEST_WAIT_S = 30.0
_POLL_S = 0.005
_MODE = 0o600

_held: set[Claim] = set()
_lock = locks.lock()


class Claim:
    """A lock on a file, which the end of the process releases, too."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor, self._process = path, descriptor, os.getpid()
        with _lock:
            _held.add(self)

    @property
    def is_awaited(self) -> bool:
        """Whether another process waits: it has written into the file."""
        return os.fstat(self._descriptor).st_size > 0

    def release(self) -> None:
        """Let others go on; to be called once, by the process that made the claim."""
        with _lock:
            _held.discard(self)
        if self._process == os.getpid():
            with contextlib.suppress(OSError):  # a scan may have removed it
                self._path.unlink()
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a forked child has the file open, too
        os.close(self._descriptor)


def claim(path: Path, is_made: Callable[[], bool]) -> Claim | None:
    """A claim on what the file `path` stands for, or None.

    Returns None after a wait for another process, also if that made nothing, and where nothing can
    be claimed. `is_made` tells whether the entry is there; the caller has found none of use.
    """
    end = time.monotonic() + LONGEST_WAIT_S
    try:
        while time.monotonic() < end:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(path, flags, _MODE)
            if _is_locked(descriptor, fcntl.LOCK_EX):
                return Claim(path, descriptor)
            try:
                if _others_held():
                    return None
                _log.info("waits for a process that compiles the same program")
                os.write(descriptor, b"w")
                while not _is_locked(descriptor, fcntl.LOCK_SH) and time.monotonic() < end:
                    time.sleep(_POLL_S)
            finally:
                os.close(descriptor)
            if is_made():
                return None
    except OSError:  # a folder that is read-only or full, or without locks
        return None
    _log.warning(
        "compiles, after %.0f s, what another process has begun to compile and not stored",
        LONGEST_WAIT_S,
    )
    return None


def _is_locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _others_held() -> bool:
    pid = os.getpid()
    with _lock:
        return any(held._process == pid for held in _held)
