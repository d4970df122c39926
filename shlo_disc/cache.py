"""Compiled code on disk: where it is, what this process made of it, and how to remove it.

Later processes load the machine code of kernels and host programs that are equal to one compiled
before. `SHLO_DISC_CACHE`, `SHLO_DISC_CACHE_DIR` and `SHLO_DISC_CACHE_BYTES` set it up
(docs/cache.md).
"""

from __future__ import annotations

from pathlib import Path

from shlo_disc.store.entries import COUNTS, current


def dir() -> Path | None:
    """The folder; None where nothing is kept, being switched off or not safe."""
    store = current()
    return None if store is None else store.root.parent


def stats() -> dict[str, int]:
    """Numbers of the folder, and of this process since it started.

    - `entries`, `bytes`: in the folder; counting looks at every file.
    - `loaded`: texts whose code was loaded.
    - `missing`: texts that had none.
    - `plans_loaded`: kernel plans of edited programs that were loaded.
    - `plans_missing`: kernel plans that were made, for there was none.
    - `functions_loaded`: functions of host programs, which plans share, that were loaded.
    - `functions_missing`: such functions that were written, for there was none.
    - `programs_loaded`: programs that were loaded whole.
    - `programs_missing`: programs that were compiled, for there was none.
    - `programs_not_kept`: programs that were compiled and that no later process can load.
    - `calls_not_kept`: first calls that later processes trace with symbols all the same.
    - `graphs_loaded`: graphs of PyTorch and TensorFlow whose module an earlier process made.
    - `graphs_missing`: such graphs that were lowered, for no process had lowered them.
    - `graphs_not_kept`: such graphs that every process lowers.
    - `calls_missing`: first calls that no earlier process had made at their sizes.
    - `confirmed_loaded`: programs that an earlier process compared with a trace at numbers.
    - `confirmed_missing`: programs that were compared, for no process had done so.
    - `damaged`: files that are not what was written, or that others may write.
    - `unreadable`: files that the system did not read.
    - `stored`: files written.
    - `not_stored`: files that the system did not take.
    - `evicted`: files removed to keep to the limit.

    What is damaged or unreadable is compiled again.
    """
    store = current()
    sizes = [] if store is None else [entry.size_bytes for entry in store.entries()]
    return {"entries": len(sizes), "bytes": sum(sizes), **COUNTS.now()}


def clear() -> int:
    """Remove all entries; returns how many. Programs that run keep their code."""
    store = current()
    return 0 if store is None else store.prune(-1)
