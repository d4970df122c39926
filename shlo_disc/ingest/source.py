"""Read a program from whatever form it comes in: text, bytecode, portable artifact, file, Exported.

MLIR's text parser reports what is wrong with its input. Its bytecode reader trusts its input, so
bytes from outside are tried in a child process first (`trial.py`).
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shlo_disc.base import flags
from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.jax_module import JaxModule
from shlo_disc.base.late_module import LateModule
from shlo_disc.base.later import imported_later
from shlo_disc.ingest.check import check_readable
from shlo_disc.ir.locations import Place, place
from shlo_disc.ir.mlir import ir, parse_module, stablehlo

check_aliases = imported_later("shlo_disc.ingest.aliases", "check_aliases")
try_in_child = imported_later("shlo_disc.ingest.trial", "try_in_child")
without_shardy = imported_later("shlo_disc.ingest.shardy", "without_shardy")

MAX_BYTES = 2**31
"""MLIR's own offsets into a source are 32 bits."""

MAX_NESTING = 256
"""Brackets in brackets; the parser recurses and its stack ends near 10 000. JAX stays below 20."""

_MAGIC = b"ML\xefR"
_PORTABLE = b"StableHLO_v"


def read(source: Any, context: ir.Context, *, own: bool = False) -> ir.Module:
    """The module in `source`, verified, in `context`, not yet normalised.

    `source`: a `jax.export.Exported`, a JaxModule, MLIR text, bytes (text, bytecode or portable
    artifact), or the path of a file with one of them. A `str` without a line break that names a
    file is a path.
    `own` lets operations of unknown dialects in, as our own dumps have them (`disc.fusion`).

    Raises InvalidModuleError with the line for what MLIR does not accept, OSError for a file
    that cannot be read, TypeError for anything else.
    """
    if isinstance(source, LateModule):
        source = source.module.value
    if isinstance(source, ir.Module) and source.context is context:
        check_readable(source)
        return source
    with context:
        allowed = context.allow_unregistered_dialects
        context.allow_unregistered_dialects = own
        try:
            return _read(source, context)
        finally:
            context.allow_unregistered_dialects = allowed


def _read(source: Any, context: ir.Context) -> ir.Module:
    if isinstance(source, ir.Module):  # of another context, which may not know what ours does
        module = _parsed(_bytecode(source), context)
        check_readable(module)
        return module
    if isinstance(source, JaxModule):
        data = source.data_for(source.data, stablehlo.get_current_version())
        if isinstance(data, bytes):
            return _portable(data, context)
        return _parsed(_without_shardy(data), context)
    artifact = getattr(source, "mlir_module_serialized", None)
    if isinstance(artifact, bytes):  # made by JAX in this process, hence trusted
        if b"sdy." in artifact or b"\x00sdy\x00" in artifact:  # only JAX can print that dialect
            return _text(str(source.mlir_module()), context)
        return _portable(artifact, context)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source)):
        source = _file(Path(source))
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
        if not data.startswith(_MAGIC):
            return _text(_decoded(data), context)
        _check_size(len(data))
        portable = _producer(data).startswith(_PORTABLE)
        if not flags.trust_bytecode():
            try_in_child(data, "portable" if portable else "bytecode")
        module = _portable(data, context) if portable else _parsed(data, context)
        check_readable(module)
        return module
    if isinstance(source, str):
        return _text(source, context)
    raise TypeError(
        f"cannot read a program from {type(source).__name__}; expected jax.export.Exported, MLIR "
        "text (str), bytecode or a portable artifact (bytes), or a path"
    )


def _without_shardy(text: str) -> str:
    return without_shardy(text) if "sdy." in text else text


def _bytecode(module: ir.Module) -> bytes:
    """`module` as this process's MLIR writes it."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def _is_path(text: str) -> bool:
    if "\n" in text or "\0" in text or len(text) > 4096:
        return False
    return text.endswith((".mlir", ".mlirbc", ".bc", ".stablehlo")) or Path(text).is_file()


def _file(path: Path) -> bytes:
    _check_size(path.stat().st_size)
    return path.read_bytes()


def _check_size(size_bytes: int) -> None:
    if size_bytes >= MAX_BYTES:
        raise InvalidModuleError(
            f"the module has {size_bytes} bytes; the limit is {MAX_BYTES - 1}. Pass large weights "
            "as arguments instead of constants."
        )


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidModuleError(
            f"the module is neither MLIR bytecode (which starts with {_MAGIC!r}) nor text: line "
            f"{line}: byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        ) from None


def _producer(data: bytes) -> bytes:
    """The producer string of bytecode: magic, version as a varint (one byte so far), C string."""
    end = data.find(b"\0", len(_MAGIC) + 1)
    return data[len(_MAGIC) + 1 : end if end >= 0 else None]


def _text(text: str, context: ir.Context) -> ir.Module:
    _check_size(len(text))
    if not text.strip():
        raise InvalidModuleError("the module is empty")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InvalidModuleError(f"the module is not text: line {line} has a NUL character")
    _check_strings(text)
    _check_nesting(text)
    check_aliases(text)
    _check_result_numbers(text)
    text = _without_shardy(text)
    if "all_to_all" in text and re.search(_NO_GROUP, text):
        try_in_child(text.encode(), "text")
    module = _parsed(text, context)
    check_readable(module)
    return module


_NO_GROUP = r"tensor<\s*0\s*x"
"""MLIR's verifier divides by the number of groups of an `all_to_all`, which ends the process."""


def _check_strings(text: str) -> None:
    """Refuse strings that are not UTF-8: the bindings cannot read them, and may end the process."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InvalidModuleError(
            f"the module is not text: line {line} has the lone surrogate {text[error.start]!a}"
        ) from None
    if re.search(_BYTE, text) is None:
        return
    for literal in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        try:
            unescaped(literal[1]).decode()
        except UnicodeDecodeError:
            line = text.count("\n", 0, literal.start()) + 1
            raise InvalidModuleError(
                f"line {line}: the string {literal[0][:80]} is not UTF-8"
            ) from None


_BYTE = r"\\[89A-Fa-f][0-9A-Fa-f]"


def unescaped(literal: str) -> bytes:
    """The bytes of a string literal of MLIR, without its quotes."""
    plain = {b"n": b"\n", b"t": b"\t"}

    def byte(match: re.Match[bytes]) -> bytes:
        return bytes.fromhex(match[1].decode()) if match[1] else plain.get(match[2], match[2])

    return re.sub(rb"\\(?:([0-9A-Fa-f]{2})|(.))", byte, literal.encode(), flags=re.DOTALL)


MAX_RESULTS = 10**6
"""Of one operation, in text. The parser makes room for as many results as a number asks for."""


def _check_result_numbers(text: str) -> None:
    for match in re.finditer(r"%[\w.$-]+#(\d{7,})", text):
        if int(match[1]) >= MAX_RESULTS:
            line = text.count("\n", 0, match.start()) + 1
            raise InvalidModuleError(
                f"line {line}: {match[0]} is beyond the limit of {MAX_RESULTS} results"
            )


_PIECE = 1 << 22
"""Characters looked at together."""


def _check_nesting(text: str) -> None:
    step = np.zeros(256, np.int8)
    step[[ord(c) for c in "([{<"]] = 1
    step[[ord(c) for c in ")]}>"]] = -1
    depth = deepest = 0
    for start in range(0, len(text), _PIECE):  # of large constants several arrays would be GB
        piece = text[max(start - 1, 0) : start + _PIECE].encode()
        codes = np.frombuffer(piece, np.uint8)
        change = step[codes]
        change[1:][(codes[1:] == ord(">")) & (codes[:-1] == ord("-"))] = 0  # the arrow
        if start:
            change[0] = 0  # counted by the piece before
        depths = depth + np.cumsum(change, dtype=np.int32)
        deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    if deepest <= MAX_NESTING:
        return
    # Brackets in strings and comments were counted too; only now pay for an exact look.
    depth = 0
    for token in re.finditer(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[([{<]|[)\]}>]', text):
        first = token[0][0]
        if first in "([{<":
            depth += 1
        elif first in ")]}>":
            depth -= 1
        if depth > MAX_NESTING:
            line = text.count("\n", 0, token.start()) + 1
            raise InvalidModuleError(
                f"line {line}: brackets are nested more than {MAX_NESTING} deep"
            )


def _parsed(source: str | bytes, context: ir.Context) -> ir.Module:
    with context, _reported() as messages:
        try:
            return parse_module(source)
        except ir.MLIRError as error:
            text = source if isinstance(source, str) else ""
            raise InvalidModuleError(_diagnosis(messages, error, text)) from None


def _portable(data: bytes, context: ir.Context) -> ir.Module:
    with context, _reported() as messages:
        try:
            module = stablehlo.deserialize_portable_artifact(context, data)
        except ValueError as error:
            raise InvalidModuleError(_diagnosis(messages, error)) from None
        if not module.operation.verify():
            raise InvalidModuleError(_diagnosis(messages, "the module does not verify"))
        return module


@contextmanager
def _reported() -> Iterator[list[tuple[Place | None, str]]]:
    """Collect (place, message) of the errors MLIR reports, in place of printing them."""
    messages: list[tuple[Place | None, str]] = []

    def handler(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            messages.append((place(diagnostic.location), diagnostic.message))
        return True

    attached = ir.Context.current.attach_diagnostic_handler(handler)
    try:
        yield messages
    finally:
        attached.detach()


def _diagnosis(messages: list[tuple[Place | None, str]], error: object, text: str = "") -> str:
    """One line a found error: `line 3, column 5: what MLIR said`, which has read `text`."""
    if isinstance(error, ir.MLIRError):
        messages = [(place(d.location), d.message) for d in error.error_diagnostics] or messages
    lines = []
    for found, message in messages:
        where = ""
        if found and found[1]:
            file = "" if found[0] == "-" else f"{found[0]}: "
            where = f"{file}line {found[1]}, column {found[2]}: "
        said = message.split(". If this is intended", 1)[0]  # advice on options of mlir-opt
        if found and (name := _unknown_op(said, text, found[1])):
            said = (
                f"{said}: {name} is no operation of StableHLO; lower what is left of another "
                "framework's operations before giving the module to shlo_disc"
            )
        lines.append(f"{where}{said.strip()}")
    return "the module is malformed: " + ("\n".join(dict.fromkeys(lines)) or str(error))


def _unknown_op(message: str, text: str, line: int) -> str | None:
    """The op in line `line` of `text` that MLIR does not name in its message."""
    if "unregistered dialect" not in message or not 0 < line <= text.count("\n") + 1:
        return None
    found = re.search(r'"([A-Za-z_]\w*\.[\w.]+)"\s*\(', text.split("\n")[line - 1])
    return found[1] if found else None
