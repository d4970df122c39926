"""Compiled programs on disk: one entry a program, found before any of the compiler is loaded.

The key of an entry names all that a program depends on: its source, the options, the compiler's own
sources, and the machine. So an entry is never stale. An entry is the bytes of a
record (`codec.py`); machine code has entries of its own, which programs share.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shlo_disc.base.callbacks import is_callback, without_numbers
from shlo_disc.base.errors import CacheMismatchError
from shlo_disc.base.jax_module import JaxModule
from shlo_disc.base.late_module import LateModule
from shlo_disc.base.later import Later
from shlo_disc.driver.kept_keys import (
    are_kept,
    check_runs,
    compiler_id,
    facts_of,
    read_record,
)
from shlo_disc.driver.request import Request
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.seen import run_of, short_sizes
from shlo_disc.executables.codec import (
    NO_WEIGHTS,
    NoLines,
    RecordError,
    Weights,
    from_bytes,
    sizes_from_bytes,
    to_bytes,
)
from shlo_disc.executables.data_sized import DataSizedExecutable, made_of, record_of
from shlo_disc.executables.executable import Executable, warn_of_donated
from shlo_disc.executables.lines import without_lines
from shlo_disc.executables.record import PartsRecord, ProgramRecord, Record, programs_of
from shlo_disc.lower.background import do_later
from shlo_disc.lower.host.record import texts_of
from shlo_disc.lower.target import kept_code, parse
from shlo_disc.store.claims import Claim
from shlo_disc.store.entries import COUNTS, current, mismatch
from shlo_disc.store.format import (
    KEY_BYTES,
    MOST_CONSTANT_BYTES,
    TOO_MANY_CONSTANTS,
    key_of,
    name_of,
)

_log = logging.getLogger("shlo_disc")

T = TypeVar("T")

_LARGEST = 64 << 20
"""Bytes of a source that is looked up; reading more takes as long as compiling it."""


class Place(NamedTuple):
    """Where a program is kept."""

    key: bytes
    lines: Sequence[str]
    """Source lines of today, of which the entry has numbers, and then names of callbacks."""
    seen: Mapping[str, int] | None = None
    """Sizes of the first call; the key of a program has those that matter (`_with_short`)."""
    weights: Weights = NO_WEIGHTS
    """Large constants by name: the entry has none of them."""


class NotKept(NamedTuple):
    """A program that no later process can load."""

    reason: str
    """Why, behind "it"; "" where nothing is kept."""


def place_of(request: Request) -> Place | NotKept:
    """Where the program of `request` is kept."""
    if not are_kept():
        return NotKept("")
    options, stated = request.options, request.stated
    family, _, architecture = options.target.partition(":")
    code = kept_code(family)
    source = _source(stated.source)
    if code is None:
        return NotKept(f"is for {family}, of which machine code is not kept")
    if isinstance(source, NotKept):
        return source
    facts = (
        *(stated.shapes, stated.names, stated.constraints),
        *(tuple(options.weak_results), sorted(options.likely.items())),
        *(tuple(options.donated), request.name, request.may_be_several, stated.seen is None),
    )
    named = facts_of(options.target, *facts)
    key = key_of(compiler_id(), code.identity(architecture), named, *source.parts)
    return Place(key, source.lines, stated.seen, source.weights)


def _with_short(place: Place, sizes: Sequence[Expr]) -> Place:
    """The place of a program that has kernels for short values of `sizes` in the first call.

    Kernels for other sizes of that call are as good.
    """
    seen = short_sizes(place.seen or {})
    key = key_of(place.key, repr([(str(size), run_of(size, seen)) for size in sizes]).encode())
    return place._replace(key=key, seen=None)


class Found(NamedTuple):
    """A program that an earlier process compiled."""

    place: Place
    """Where it is kept."""
    record: ProgramRecord | PartsRecord
    stands_in: bool = False
    """True if it has kernels for short sizes of another first call."""


def find(place: Place, *, may_stand_in: bool = False) -> Found | None:
    """The program kept at `place`; None where there is none.

    `may_stand_in`: or else one that was compiled for a first call of other short sizes.
    """
    if place.seen is None:
        return _found(place)
    kept = read_record("sizes", place.key, sizes_from_bytes)
    if kept is None:
        return None
    last, sizes = kept
    found = _found(_with_short(place, sizes))
    if found is None and may_stand_in:
        other = _found(place._replace(key=last, seen=None))
        return None if other is None else other._replace(stands_in=True)
    return found


def claim_program(place: Place) -> Claim | None:
    """The right to compile the program of `place`; None after a wait for a process that has it."""
    store = current("programs" if place.seen is None else "sizes")
    return None if store is None else store.claim(place.key)


def _found(place: Place) -> Found | None:
    def program(data: bytes) -> ProgramRecord | PartsRecord:
        record = from_bytes(data, place.lines, place.weights)
        if not isinstance(record, ProgramRecord | PartsRecord):
            raise RecordError("no program")
        for one in programs_of(record):
            check_runs(one.target, [] if one.code is None else one.code.value.symbols)
        return record

    record = read_record("programs", place.key, program)
    return None if record is None else Found(place, record)


def load(found: Found, request: Request | None) -> Executable | DataSizedExecutable:
    """The program `found`, which is that of `request`, if anybody may ask for more of it."""
    start = time.perf_counter()
    made = made_of(found.record, partial(_executable, request))
    assert isinstance(made, Executable | DataSizedExecutable)
    _tell_place(made, found.place)
    if isinstance(made, Executable):
        made.stands_in = found.stands_in
    COUNTS.add("programs_loaded")
    _log.info("loaded %s in %.0f ms", made.name, (time.perf_counter() - start) * 1e3)
    return made


def check(place: Place, found: Found, made: Executable | DataSizedExecutable) -> None:
    """Raise CacheMismatchError if `found`, which is kept for `place`, is not what is `made` now."""
    record, key = record_of(made), found.place.key
    sizes, programs = current("sizes"), current("programs")
    assert sizes is not None
    assert programs is not None
    if place.seen is not None and _with_short(place, _short_sizes(record)).key != key:
        raise mismatch(sizes, place.key, "other sizes of a first call matter")
    for part, values in _compared(found.record, place.lines).items():
        if values != _compared(record, place.lines).get(part):
            raise mismatch(programs, key, f"its record differs in {part}")
    _tell_place(made, found.place)


def _tell_place(made: Executable | DataSizedExecutable, place: Place) -> None:
    """Have `made` know where it is kept."""
    made.kept_at, made.weights = place.key, frozenset(place.weights)


_TOLD = ("passes", "stage_ms", "texts")
"""Fields of a record that tell how the program was compiled, in another first call perhaps."""


def _compared(record: Record, lines: Sequence[str]) -> dict[str, bytes]:
    """What of a record must be the same in every compilation, by words for it."""
    programs = [*programs_of(record)]
    names = [field.name for field in fields(ProgramRecord) if field.name not in _TOLD]
    compared = {
        name: to_bytes(tuple(getattr(program, name) for program in programs), lines)
        for name in names
    }
    # The programs again, by their names alone: which of them run when.
    return {"its steps": to_bytes(_steps(record), lines), **compared}


def _steps(record: Any) -> object:
    if isinstance(record, ProgramRecord):
        return record.name
    if isinstance(record, tuple):
        return tuple(map(_steps, record))
    if is_dataclass(record):
        return tuple(_steps(getattr(record, field.name)) for field in fields(record))
    return record


def program_of_call(key: bytes, weights: Weights) -> Executable | None:
    """The program that runs the call kept under `key`; None where there is none.

    `weights`: large constants of the call by name. It is known to be right at the sizes of this
    call alone, and has no source lines.
    """
    store = current("calls")
    program = None if store is None else store.read(key)
    if program is None or len(program) != KEY_BYTES:
        return None
    found = find(Place(program, NoLines(), None, weights))
    made = None if found is None else load(found, None)
    return made if isinstance(made, Executable) else None


def is_confirmed(key: bytes) -> bool:
    """True if an earlier process compared the program that `key` names with a trace at numbers."""
    found = _is_kept("confirmed", key)
    COUNTS.add("confirmed_loaded", found)
    return found


def keep_confirmed(key: bytes) -> None:
    """Keep that the program that `key` names was compared."""
    _keep_later("confirmed", key, b"")


def kept_choice(key: bytes) -> Any:
    """The plain data of :func:`keep_choice`; None where there is none."""
    found = read_record("choices", key, from_bytes)
    COUNTS.add("choices_loaded", found is not None)
    return found


def keep_choice(key: bytes, plain: object) -> None:
    """Keep which symbols a search ended with."""
    _keep_later("choices", key, to_bytes(plain))


def _is_kept(kind: str, key: bytes) -> bool:
    store = current(kind)
    return store is not None and store.read(key) is not None


def _keep_later(kind: str, key: bytes, data: bytes) -> None:
    store = current(kind)
    if store is not None:
        do_later(partial(store.write, key, data))


def wrong_call(key: bytes, how: str) -> CacheMismatchError:
    """The error for a call that is kept under `key` with a program of other results."""
    store = current("calls")
    assert store is not None
    return mismatch(store, key, how)


def is_call_kept(hint: bytes) -> bool:
    """True if a call was kept that `hint` tells of."""
    return _is_kept("calls", hint)


def keep_hint(hint: bytes) -> None:
    """Keep that a call was made that `hint` tells of, which has no entry of its own yet."""
    _keep_later("calls", hint, hint)


def claim_call(hint: bytes) -> Claim | None:
    """The right to make the first call that `hint` tells of, as :func:`claim_program`."""
    store = current("calls")
    return None if store is None else store.claim(hint)


def keep_call(key: bytes, hint: bytes, made: Executable) -> None:
    """Keep under `key` that `made`, which is kept, runs a call that `hint` tells of."""
    if made.kept_at is not None and not made.record.has_apart:
        _keep_later("calls", key, made.kept_at)
        _keep_later("calls", hint, key)


def _executable(request: Request | None, record: ProgramRecord) -> Executable:
    family, _, architecture = record.target.partition(":")
    code, host = kept_code(family), record.host
    assert code is not None
    assert record.code is not None
    kernels, plans, entry_points = code.functions(
        architecture, record.code.value, partial(texts_of, host)
    )
    for number in host.unasked_kernels:
        kernels[number].compiled()
    made = Executable(
        record,
        target=Later(partial(parse, record.target)),
        kernels=kernels,
        plans=plans,
        entry_points=entry_points,
        apart=partial(_apart, request, record.name) if record.has_apart and request else None,
    )
    made.was_loaded = True
    warn_of_donated(made)
    return made


def _apart(request: Request, name: str) -> Executable | DataSizedExecutable:
    from shlo_disc.driver.parts import compile_apart  # noqa: PLC0415 - few programs need it

    return compile_apart(request, name)


def keep(place: Place, made: Executable | DataSizedExecutable) -> None:
    """Keep a program that was compiled, if a later process can use it as it is."""
    record = record_of(made)
    programs = [*programs_of(record)]
    reasons = (_why_not_kept(program, place.lines) for program in programs)
    reason = next(filter(None, reasons), "")
    if reason:
        not_kept(made, NotKept(reason))
    else:
        sizes = _short_sizes(record)
        own = place if place.seen is None else _with_short(place, sizes)
        _tell_place(made, own)
        do_later(partial(_write, own, record))
        if own is not place:
            do_later(partial(_write_sizes, place.key, own.key, sizes))


def _short_sizes(record: Record) -> tuple[Expr, ...]:
    return tuple(
        sorted({size for p in programs_of(record) for size in p.host.short_sizes}, key=str)
    )


def not_kept(made: Executable | DataSizedExecutable, why: NotKept) -> None:
    """Have `made` tell why no later process can load it."""
    if why.reason:
        made.not_kept = why.reason
        COUNTS.tell_not_kept("programs_not_kept", why.reason)


def _why_not_kept(record: ProgramRecord, lines: Sequence[str]) -> str:
    """What follows "it"; "" if it is kept."""
    targets = {call.target for call, _ in record.host.foreign}
    if any(is_callback(target) and target not in lines for target in targets):
        return "calls back into the Python of this process, and comes as bytecode"
    if record.unfused:  # of which every compilation tells
        return "has a fusion without a kernel, by a mistake of ours"
    return "" if record.code is not None else "is for a target whose code is not kept"


def _write(place: Place, record: Record) -> None:
    store = current("programs")
    if store is not None:
        store.write(place.key, to_bytes(record, place.lines, place.weights))


def _write_sizes(key: bytes, program: bytes, sizes: tuple[Expr, ...]) -> None:
    store = current("sizes")
    if store is not None:
        store.write(key, to_bytes((program, sizes)))


_TOO_LARGE = NotKept(f"is a module of more than {_LARGEST >> 20} MiB")


class _Source(NamedTuple):
    """All that ingest reads, and what stands for large constants."""

    parts: tuple[bytes, ...]
    """All that ingest reads."""
    lines: Sequence[str] = ()
    """What `parts` have no part of."""
    weights: Weights = NO_WEIGHTS
    """Large constants; `parts` have their names."""


def _source(source: Any) -> _Source | NotKept:
    lines: Sequence[str] = ()
    weights = NO_WEIGHTS
    if isinstance(source, JaxModule):
        known = source.own, source.shapes, sorted(source.sizes.items()), source.constraints
        data = source.data
        if isinstance(data, str) and len(data) <= _LARGEST:
            data, lines = without_lines(data)
            data, callbacks = without_numbers(data)
            lines = [*lines, *callbacks]
        if sum(array.nbytes for array in source.weights) > MOST_CONSTANT_BYTES:
            return NotKept(TOO_MANY_CONSTANTS)
        elements = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in source.weights]
        named = [name_of(array.data) for array in elements]
        weights = dict(zip(named, elements, strict=True))
        parts: tuple[Any, ...] = ("JaxModule", data, repr(known), *named)
    elif isinstance(source, LateModule):
        parts, lines = ("graph", source.digest.value), source.lines
    elif isinstance(source, str) and "\n" in source:
        parts = ("text", source)
    elif isinstance(source, bytes | bytearray | memoryview):
        parts = ("bytes", bytes(source))
    elif (write := getattr(getattr(source, "operation", None), "write_bytecode", None)) is not None:
        written = io.BytesIO()
        write(written)  # its lines, too: these of PyTorch are of the model alone
        parts = ("module", written.getvalue())
    elif isinstance(artifact := getattr(source, "mlir_module_serialized", None), bytes):
        kept = source.module_kept_var_idx
        types = kept, [str(aval) for aval in source.in_avals], source.platforms
        parts = ("Exported", artifact, repr(types))
    else:
        return NotKept("comes as a file, or in a form that is not looked up")
    if sum(map(len, parts)) > _LARGEST:
        return _TOO_LARGE
    encoded = tuple(p if isinstance(p, bytes) else p.encode() for p in parts)
    return _Source(encoded, lines, weights)
