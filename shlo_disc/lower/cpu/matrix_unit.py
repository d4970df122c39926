"""The matrix unit of x86-64 (AMX): whether this process may use it.

Tiles are 8 KiB of registers, which Linux saves for processes that asked for them. Without the
permission the first instruction is SIGILL. It holds for all threads, those that run and later ones.
A fork inherits it, exec loses it, and nothing takes it back.

It is asked for when the first kernel with tiles is planned or loaded, and no sooner. From then on
the system refuses a `sigaltstack` of less than `AT_MINSIGSTKSZ`, 12 KiB or so. A thread that has a
smaller one already makes the system refuse the permission (ENOSPC). The process then does without,
and keeps no programs on disk: their keys name the processor.

Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable

from shlo_disc.base.locks import once
from shlo_disc.store.entries import keep_code_alone

_log = logging.getLogger(__name__)

HARDWARE = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
"""Features of /proc/cpuinfo that products use."""
SOFT = "soft_amx"
"""The feature of machines whose tiles are in memory, for tests (`dense/matrix_tiles.py`)."""

_ARCH_PRCTL = 158
_REQUEST_PERMISSION, _TILE_DATA = 0x1023, 18

_answers: list[str] = []
"""What the system said; empty: nobody has asked."""


def answer() -> str:
    """What became of the question: "granted", "refused: WHY", or "" before it is asked."""
    return _answers[0] if _answers else ""


@once
def is_granted() -> bool:
    """Whether this process may use tiles; the first call asks the system. Needs an x86-64."""
    error = _ask()
    _answers.append(f"refused: {error}" if error else "granted")
    if error:
        keep_code_alone(error)
        _log.warning(
            "products do without AMX: the system gives no permission to use tiles (%s); a thread "
            "may have a small sigaltstack", error,
        )  # fmt: skip
    return not error


def _ask(call: Callable[..., int] | None = None) -> str:
    """Ask for the permission; returns why it is not given, or ""."""
    call = call or ctypes.CDLL(None, use_errno=True).syscall
    if call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0:
        return ""
    return os.strerror(ctypes.get_errno())
