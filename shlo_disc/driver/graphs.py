"""Graphs of other frameworks on disk: which modules front ends make of them.

A front end names all that it reads of a graph. The entry under that key tells the digest of the
module, by which the program is found (`kept.py`), and what else the front end made. So a later
process lowers the graph only where the program is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from shlo_disc.base import flags
from shlo_disc.base.late_module import LateModule
from shlo_disc.base.later import Later
from shlo_disc.driver.kept_keys import are_kept, compiler_id, read_record
from shlo_disc.executables.codec import RecordError, from_bytes, to_bytes
from shlo_disc.executables.lines import without_lines
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.background import do_later
from shlo_disc.store.entries import COUNTS, current, mismatch
from shlo_disc.store.format import key_of


def graph_key(*parts: str | bytes) -> bytes:
    """What a graph is kept under of which a front end reads `parts`."""
    return key_of(compiler_id(), metadata.version("torch-mlir"), *parts)


def find_graph(
    key: bytes, lines: Sequence[str], make: Callable[[], Any]
) -> tuple[LateModule, Any] | None:
    """The module of the graph under `key`, and what else was made of it; None without an entry.

    `lines`: source lines of the graph's nodes, today. `make` lowers the graph.
    """
    found = None if flags.cache_verifies() else read_record("graphs", key, graph_from_bytes)
    if found is None:
        return None
    digest, made = found
    COUNTS.add("graphs_loaded")
    return LateModule(Later.of(digest), lines, Later(make)), made


def graph_from_bytes(data: bytes) -> tuple[bytes, Any]:
    """The digest of a module, and what else a front end made. Raises RecordError otherwise."""
    found = from_bytes(data)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], bytes):
        raise RecordError("no module of a graph")
    return found


def made_graph(
    key: bytes | None, lines: Sequence[str], module: ir.Module, made: object, not_kept: str
) -> LateModule:
    """`module`, which is kept under `key` with `made`, plain data, unless it is `not_kept`.

    Raises CacheMismatchError if another process made something else of the graph.
    """
    late = LateModule(Later(partial(_digest, module, lines)), lines, Later.of(module), not_kept)
    if not_kept and are_kept():
        COUNTS.tell_not_kept("graphs_not_kept", not_kept)
    store = current("graphs")
    if store is not None and key is not None and not not_kept:
        data = to_bytes((late.digest.value, made))
        if flags.cache_verifies() and store.read(key) not in (None, data):
            raise mismatch(store, key, "the graph becomes another module")
        do_later(partial(store.write, key, data))
    return late


def _digest(module: ir.Module, lines: Sequence[str]) -> bytes:
    """Of `module` with numbers of `lines` in the place of its own; others stay as they are."""
    text, own = without_lines(str(module.operation.get_asm(enable_debug_info=True)))
    numbers = {line: number for number, line in reversed([*enumerate(lines)]) if line}
    return key_of(text, repr([numbers.get(line, line) for line in own]))
