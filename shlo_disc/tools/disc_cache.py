"""disc-cache: look at, check and remove compiled code on disk.

The folder is that of `shlo_disc` (docs/cache.md), or `--dir`.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from shlo_disc.base import flags
from shlo_disc.driver.graphs import graph_from_bytes
from shlo_disc.executables.codec import NoLines, RecordError, from_bytes, sizes_from_bytes
from shlo_disc.store.entries import Entry, Store, current
from shlo_disc.store.folder import opened
from shlo_disc.store.format import KEY_BYTES, DamagedError
from shlo_disc.store.loader import ObjectCodeError, check_object_code

_ANY_WEIGHTS: defaultdict[str, npt.NDArray[np.uint8]] = defaultdict(lambda: np.empty(0, np.uint8))
"""Stand for constants, which no entry has."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_PERIODS = {"s": 1, "m": 60, "h": 60 * 60, "d": 24 * 60 * 60}


def _bytes(_: Any, __: Any, text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+) *([kmg]?)(i?b)?", text.lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is no number of bytes, such as 500M")
    return int(found[1]) * _UNITS[found[2]]


def _seconds(_: Any, __: Any, text: str | None) -> float:
    if text is None:
        return float("inf")
    found = re.fullmatch(r"([0-9]+) *([smhd])", text.lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is no time, such as 30d, 12h, 5m or 10s")
    return int(found[1]) * _PERIODS[found[2]]


@click.group(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Another folder.")
@click.pass_context
def main(context: click.Context, folder: Path | None) -> None:
    """See the module."""
    if folder is None:
        store = current()
    else:
        safe = opened(folder) if folder.is_dir() else None
        store = None if safe is None else Store(safe / "v1")
    if store is None:
        print("no compiled code is kept", file=sys.stderr)
        context.exit(1)
    context.obj = store


@main.command()
@click.pass_obj
def ls(store: Store) -> None:
    """List the entries, those used last in front: when, bytes, kind, key."""
    for entry in sorted(store.entries(), key=lambda entry: -entry.used):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"{used} {entry.size_bytes:9} {entry.kind} {entry.path.name}")


@main.command()
@click.pass_obj
def stats(store: Store) -> None:
    """Tell the folder, the number of entries, their bytes and the limit."""
    sizes = [entry.size_bytes for entry in store.entries()]
    print(f"folder {store.root.parent}")
    print(f"entries {len(sizes)}")
    print(f"bytes {sum(sizes)}")
    print(f"limit {flags.cache_bytes()}")


@main.command()
@click.option("--to", "limit", callback=_bytes, help="Bytes that may stay, such as 500M.")
@click.option("--older-than", "age", callback=_seconds, help="Time not used, such as 30d.")
@click.pass_obj
def prune(store: Store, limit: int | None, age: float) -> None:
    """Remove entries not used for long; without options, down to the limit."""
    if limit is None:
        limit = flags.cache_bytes()
    print(f"removed {store.prune(limit, age)} entries")


@main.command()
@click.pass_obj
def clear(store: Store) -> None:
    """Remove all entries."""
    print(f"removed {store.prune(-1)} entries")


@main.command()
@click.option("--remove", is_flag=True, help="Remove the damaged ones.")
@click.pass_obj
def verify(store: Store, remove: bool) -> None:
    """Check that every file is what was written; the exit status is 1 if one is not."""
    entries = list(store.entries())
    damaged = [(entry, reason) for entry in entries if (reason := _damage(entry))]
    for entry, reason in damaged:
        print(f"{entry.path}: {reason}")
        if remove:
            entry.path.unlink(missing_ok=True)
    print(f"{len(entries)} entries, {len(damaged)} damaged")
    if damaged:
        raise SystemExit(1)


def _damage(entry: Entry) -> str:
    """What is wrong with an entry; "" if nothing is, or if it is gone."""
    try:
        content = entry.content()
        if entry.kind in ("functions", "plans", "programs"):
            from_bytes(content, NoLines(), _ANY_WEIGHTS)
        elif entry.kind == "calls":
            if len(content) != KEY_BYTES:
                return "no key of a program"
        elif entry.kind == "confirmed":
            if content:
                return "more than a name"
        elif entry.kind == "graphs":
            graph_from_bytes(content)
        elif entry.kind == "sizes":
            sizes_from_bytes(content)
        else:
            check_object_code(content)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError, DamagedError, ObjectCodeError, RecordError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
