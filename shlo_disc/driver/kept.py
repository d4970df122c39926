"""Compiled programs on disk: one entry a program, found before any of the compiler is loaded.

The key of an entry names all that a program depends on: its source, the options, the compiler's own
sources, and the machine. So an entry is never stale. An entry is the bytes of a
record (`codec.py`); machine code has entries of its own, which programs share.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from shlo_disc.base import flags
from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.jax_module import JaxModule
from shlo_disc.base.later import Later
from shlo_disc.driver.request import Request
from shlo_disc.dynamic.seen import SHORT
from shlo_disc.executables.codec import RecordError, from_bytes, to_bytes
from shlo_disc.executables.data_sized import DataSizedExecutable, made_of, record_of
from shlo_disc.executables.executable import Executable, warn_of_donated
from shlo_disc.executables.lines import without_lines
from shlo_disc.executables.record import PartsRecord, ProgramRecord, Record, programs_of
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.background import do_later
from shlo_disc.lower.target import kept_code, parse
from shlo_disc.store.entries import COUNTS, current
from shlo_disc.store.format import KEY_BYTES, key_of

__all__ = [
    "Place",
    "call_key",
    "is_call_kept",
    "keep",
    "keep_call",
    "load",
    "place_of",
    "program_of_call",
]

_log = logging.getLogger("shlo_disc")

_LARGEST = 64 << 20
"""Bytes of a source that is looked up; reading more takes as long as compiling it."""


class Place(NamedTuple):
    """Where a program is kept."""

    key: bytes
    lines: Sequence[str]
    """Source lines of today, of which the entry has numbers."""
    seen: Mapping[str, int] | None = None
    """Sizes of the first call; the key of a program has those that matter (`_with_short`)."""


def place_of(request: Request) -> Place | None:
    """Where the program of `request` is kept; None where it is not."""
    if not _are_kept():
        return None
    options, stated = request.options, request.stated
    family, _, architecture = options.target.partition(":")
    code = kept_code(family)
    source = _source(stated.source)
    if code is None or source is None:
        return None
    facts = (
        *(stated.shapes, stated.names, stated.constraints),
        *(tuple(options.weak_results), sorted(options.likely.items())),
        *(tuple(options.donated), request.name, request.may_be_several, stated.seen is None),
    )
    named = _facts(options.target, *facts)
    key = key_of(_compiler(), code.identity(architecture), named, *source.parts)
    return Place(key, source.lines, stated.seen)


def _with_short(place: Place, symbols: Sequence[str]) -> Place:
    """The place of a program that has kernels for short values of `symbols` in the first call.

    Kernels for other sizes of that call are as good.
    """
    seen = [(place.seen or {}).get(symbol, 0) for symbol in symbols]
    short = [n if n <= SHORT else 0 for n in seen]
    return Place(key_of(place.key, repr((symbols, short)).encode()), place.lines)


def _are_kept() -> bool:
    if not flags.cache_programs() or flags.dump_dir() is not None or flags.debug_level() > 1:
        return False  # to show what compiling does, it must be done
    return current() is not None


def _facts(target: str, *facts: object) -> str:
    return repr((target, flags.fusion(), flags.spec_checks(), flags.split(), *facts))


def load(place: Place, request: Request | None) -> Executable | DataSizedExecutable | None:
    """The program kept at `place`, which is that of `request`; None where there is none."""
    store = current("programs")
    start = time.perf_counter()
    if place.seen is not None:
        kept = current("symbols")
        symbols = None if kept is None else kept.read(place.key)
        if symbols is None:
            return None
        place = _with_short(place, symbols.decode(errors="replace").split())
    data = None if store is None else store.read(place.key)
    if data is None:
        return None
    try:
        record = from_bytes(data, place.lines)
    except RecordError:
        record = None
    if not isinstance(record, ProgramRecord | PartsRecord):  # written by a mistake of ours
        COUNTS.add("damaged")
        return None
    made = made_of(record, partial(_executable, request))
    made.kept_at = place.key
    assert isinstance(made, Executable | DataSizedExecutable)
    COUNTS.add("programs_loaded")
    _log.info("loaded %s in %.0f ms", made.name, (time.perf_counter() - start) * 1e3)
    return made


def call_key(digest: bytes, target: str) -> bytes | None:
    """What the call that `digest` names is kept under; None where it is not kept."""
    if not _are_kept():
        return None
    family, _, architecture = target.partition(":")
    code = kept_code(family)
    if code is None:
        return None
    return key_of(_compiler(), code.identity(architecture), _facts(target), digest)


def program_of_call(key: bytes) -> Executable | None:
    """The program that runs the call kept under `key`; None where there is none.

    It is known to be right at the sizes of this call alone. It has no source lines.
    """
    store = current("calls")
    program = None if store is None else store.read(key)
    if program is None or len(program) != KEY_BYTES:
        return None
    made = load(Place(program, _NoLines()), None)
    return made if isinstance(made, Executable) else None


def is_call_kept(hint: bytes) -> bool:
    """True if a call was kept that `hint` tells of."""
    store = current("calls")
    return store is not None and store.read(hint) is not None


def keep_call(key: bytes, hint: bytes, made: Executable) -> None:
    """Keep under `key` that `made`, which is kept, runs a call that `hint` tells of."""
    store = current("calls")
    if store is not None and made.kept_at is not None and not made.record.has_apart:
        do_later(partial(store.write, key, made.kept_at))
        do_later(partial(store.write, hint, key))


class _NoLines(Sequence[str]):
    """Of a program whose module nobody has lowered."""

    def __getitem__(self, index: Any) -> Any:
        return "a source line"

    def __len__(self) -> int:
        return 0


def _executable(request: Request | None, record: ProgramRecord) -> Executable:
    family, _, architecture = record.target.partition(":")
    code, host = kept_code(family), record.host
    assert code is not None
    assert record.code is not None
    kernels, entry_points = code.functions(
        architecture,
        record.code.value,
        lambda: (host.text, [kernel.text for kernel in host.kernels]),
    )
    for number in host.unasked_kernels:
        kernels[number].compiled()
    made = Executable(
        record,
        target=Later(partial(parse, record.target)),
        kernels=kernels,
        entry_points=entry_points,
        apart=partial(_apart, request, record.name) if record.has_apart and request else None,
    )
    made.was_loaded = True
    warn_of_donated(made)
    return made


def _apart(request: Request, name: str) -> Executable | DataSizedExecutable:
    from shlo_disc.driver.stages import compile_apart  # noqa: PLC0415 - few programs need it

    return compile_apart(request, name)


def keep(place: Place, made: Executable | DataSizedExecutable) -> None:
    """Keep a program that was compiled, if a later process can use it as it is."""
    record = record_of(made)
    programs = [*programs_of(record)]
    # What is compiled apart of one of several programs is no request of its own.
    needs_parts = isinstance(record, PartsRecord) and any(r.has_apart for r in programs)
    if all(map(_can_be_kept, programs)) and not needs_parts:
        symbols = sorted({name for program in programs for name in program.host.short_symbols})
        own = place if place.seen is None else _with_short(place, symbols)
        made.kept_at = own.key
        do_later(partial(_write, own, record))
        if own is not place:
            do_later(partial(_write_symbols, place.key, symbols))


def _can_be_kept(record: ProgramRecord) -> bool:
    """Callbacks are of one process; of a fusion without a kernel every compilation tells."""
    calls_python = any(is_callback(call.target) for call, _ in record.host.foreign)
    return record.code is not None and not record.unfused and not calls_python


def _write(place: Place, record: Record) -> None:
    store = current("programs")
    if store is not None:
        store.write(place.key, to_bytes(record, place.lines))


def _write_symbols(key: bytes, symbols: Sequence[str]) -> None:
    store = current("symbols")
    if store is not None:
        store.write(key, " ".join(symbols).encode())


class _Source(NamedTuple):
    parts: tuple[bytes, ...]
    """All that ingest reads."""
    lines: Sequence[str] = ()
    """What `parts` have no part of."""


def _source(source: Any) -> _Source | None:
    """None for a kind that is not looked up."""
    lines: Sequence[str] = ()
    if isinstance(source, JaxModule):
        known = source.own, source.shapes, sorted(source.sizes.items()), source.constraints
        data = source.data
        if isinstance(data, str) and len(data) <= _LARGEST:
            data, lines = without_lines(data)
        if sum(array.nbytes for array in source.weights) > _LARGEST:
            return None
        weights = (array.tobytes() for array in source.weights)
        parts: tuple[Any, ...] = ("JaxModule", data, repr(known), *weights)
    elif isinstance(source, str) and "\n" in source:
        parts = ("text", source)
    elif isinstance(source, bytes | bytearray | memoryview):
        parts = ("bytes", bytes(source))
    elif isinstance(operation := getattr(source, "operation", None), ir.Operation):
        written = io.BytesIO()
        operation.write_bytecode(written)  # its lines, too: these of PyTorch are of the model alone
        parts = ("module", written.getvalue())
    elif isinstance(artifact := getattr(source, "mlir_module_serialized", None), bytes):
        kept = source.module_kept_var_idx
        types = kept, [str(aval) for aval in source.in_avals], source.platforms
        parts = ("Exported", artifact, repr(types))
    else:
        return None
    if sum(map(len, parts)) > _LARGEST:
        return None
    return _Source(tuple(p if isinstance(p, bytes) else p.encode() for p in parts), lines)


@functools.cache
def _compiler() -> bytes:
    """Which build of this package, its runtime and its dependencies it is."""
    digest = hashlib.blake2b()
    try:
        record = importlib.metadata.distribution("shlo_disc").read_text("RECORD") or ""
    except importlib.metadata.PackageNotFoundError:
        record = ""
    if "shlo_disc/driver/compile.py," in record:  # the installer wrote down the digest of each file
        digest.update(record.encode())
        return digest.digest()
    for folder in sys.modules["shlo_disc"].__path__:
        for path, found in sorted(_files(folder)):
            # Reading them all takes longer than loading a program.
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.digest()


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The sources and libraries below `folder`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith((".py", ".so")):
                yield entry.path, entry.stat()
