"""Where the store is, and whether others could write there."""

from __future__ import annotations

import functools
import logging
import os
import stat
import sys
from pathlib import Path

import platformdirs

from shlo_disc.base import flags
from shlo_disc.base.locks import once

_log = logging.getLogger("shlo_disc")

_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# Machine code that shlo_disc has compiled. This folder may be removed at any time.
"""
"""Source: https://bford.info/cachedir/ ; backup programs leave such folders out."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def configured() -> Path | None:
    """The folder that environment and JAX's configuration name; None where the store is off."""
    if not flags.cache() or not _jax("jax_enable_compilation_cache"):
        return None
    if stated := flags.cache_dir():
        return _path(stated)
    of_jax = _jax("jax_compilation_cache_dir")
    if of_jax and "://" not in of_jax:  # buckets are no folders
        return _path(f"{of_jax}/shlo_disc")
    return _path(platformdirs.user_cache_dir("shlo_disc"))


_path = functools.cache(Path)
"""A folder is asked for in every look-up, and takes longer to write down than to read."""


def _jax(name: str) -> str:
    """A setting of JAX's that is a switch or a text; "" where it is off or unset.

    Where JAX is not imported, the environment says what it would be.
    """
    config = getattr(sys.modules.get("jax"), "config", None)
    if hasattr(config, name):
        return str(getattr(config, name) or "")
    default = "true" if name == "jax_enable_compilation_cache" else ""
    text = os.environ.get(name.upper(), default)
    return "" if text.lower() in ("0", "false", "f", "no", "n", "off") else text


@once
def opened(folder: Path) -> Path | None:
    """`folder` without links, made if there is none; None where it cannot be used.

    A folder that others may write to would have this process run what they put there: the log says
    once that it is not used. One that cannot be made or read is as good as empty.
    """
    try:
        found = folder.expanduser().resolve()
        if not found.exists():
            found.mkdir(mode=0o700, parents=True, exist_ok=True)
            (found / "CACHEDIR.TAG").write_text(_TAG)
        reason = _unsafe(found)
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links, or no home
        _log.info("no compiled code is kept in %s: %s", folder, error)
        return None
    if not reason:
        return found
    _log.warning("no compiled code is kept in %s: %s", folder, reason)
    return None


def _unsafe(folder: Path) -> str:
    """Why others could change what is in `folder`; "" where they could not."""
    for path in (folder, *folder.parents):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return f"{path} is no folder"
        if not is_ours(found):
            return f"{path} belongs to user {found.st_uid}"
        # Nobody can rename another's folder in a sticky one, such as /tmp.
        is_sticky = found.st_mode & stat.S_ISVTX and path != folder
        if found.st_mode & _OTHERS_WRITE and not is_sticky:
            return f"others may write to {path}"
    return ""


def is_ours(found: os.stat_result) -> bool:
    """True if a file is of this process's user, or of root, who can do anything anyway."""
    return found.st_uid in (os.geteuid(), 0)
