"""Where in the user's program an operation came from, for messages.

Locations are never printed: those of a program may share parts, and their text is then exponential.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shlo_disc.ir.call_names import is_call
from shlo_disc.ir.mlir import ir

Place = tuple[str, int, int]
"""File, line and column, from 1; line 0 is none."""

MAX_LOCATIONS = 1000
"""Parts of one location that are looked at. JAX prints a call stack, of at most some hundreds."""


def source_line(where: Any) -> str:
    """`model.py:7` for an operation, value or location; "unknown location" without debug info."""
    location = getattr(where, "location", where)
    if isinstance(location, ir.NameLoc) and is_call(location.name_str):
        return "unknown location"
    found = place(location)
    if found is None:
        return "unknown location"
    file, line, column = found
    if line == 0:
        return file
    return f"{file}:{line}" if file != "-" else f"<module>:{line}:{column}"


def place(location: ir.Location) -> Place | None:
    """File, line and column of the first part of `location` that has them; None without one.

    JAX keeps user frames only and puts the innermost one first.
    """
    for part in _parts(location):
        if isinstance(part, ir.FileLineColLoc):
            return str(part.filename), int(part.start_line), int(part.start_col)
    return None


def argument_name(argument: Any) -> str | None:
    """The path of a function argument (`params['w'][0]`), which JAX keeps as its location."""
    location = argument.location
    is_name = isinstance(location, ir.NameLoc) and isinstance(location.child_loc, ir.UnknownLoc)
    return str(location.name_str) if is_name else None


def _parts(location: ir.Location) -> Iterator[ir.Location]:
    """`location` and its parts in the order MLIR prints them, at most MAX_LOCATIONS."""
    if type(location) is ir.Location:  # those of diagnostics come as the base class
        location = ir.Location.from_attr(location.attr, location.context)
    waiting = [location]
    for _ in range(MAX_LOCATIONS):
        if not waiting:
            return
        part = waiting.pop()
        yield part
        if isinstance(part, ir.NameLoc):
            waiting.append(part.child_loc)
        elif isinstance(part, ir.CallSiteLoc):
            waiting += [part.caller, part.callee]
        elif isinstance(part, ir.FusedLoc):
            waiting += reversed(part.locations)
