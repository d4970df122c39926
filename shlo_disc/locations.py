"""Where in the user's program an operation came from, for messages."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["argument_name", "op_name", "source_line"]

# The bindings build locations but have no accessors, so the printed form is the only way in.
# JAX keeps user frames only and prints the innermost one first.
_FILE_LINE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
# What no line made, literals and the return: JAX gives it the line that called the function.
_CALL = re.compile(r'loc\("jit\([^"/]*\)"\(')
_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"[()]')


def source_line(where: Any) -> str:
    """`model.py:7` for an operation, value or location; "unknown location" without debug info."""
    location = str(getattr(where, "location", where))
    found = _FILE_LINE.search(location)
    if found is None or _CALL.match(location):
        return "unknown location"
    file, line, column = found.groups()
    return f"{_unescaped(file)}:{line}" if file != "-" else f"<module>:{line}:{column}"


def op_name(where: Any) -> str | None:
    """The name JAX gave the operation (`jit(f)/dot_general`); None when there is none."""
    found = _NAME.match(str(getattr(where, "location", where)))
    return _unescaped(found[1]) if found else None


def argument_name(argument: Any) -> str | None:
    """The path of a function argument (`params['w'][0]`), which JAX keeps as its location."""
    text = str(argument.location)
    found = re.fullmatch(r'loc\("((?:[^"\\]|\\.)*)"\)', text)
    return _unescaped(found[1]) if found else None


def _unescaped(text: str) -> str:
    # MLIR escapes a byte as a backslash and two hexadecimal digits.
    raw = re.sub(
        rb"\\(?:([0-9A-Fa-f]{2})|(.))",
        lambda m: bytes([int(m[1], 16)]) if m[1] else m[2],
        text.encode(),
    )
    return raw.decode(errors="replace")
