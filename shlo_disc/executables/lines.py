"""Source lines apart from a program: moved code is the same program, with other lines in messages.

MLIR prints a location behind each operation, at the end of a line. Operations are numbered in the
order of the text, so the same program has the same numbers, wherever its lines are today.
"""

from __future__ import annotations

import functools
import re

from shlo_disc.ir.call_names import is_call

# Each begins with a line break, for which `re` looks quickly.
_DEFINED = re.compile(r"\n#loc(\d*) = loc\((.*)\)")
_LAST = re.compile(r" loc\((?:#loc(\d*)|unknown)\)$", re.MULTILINE)
"""The location of an operation. No attribute has a line break, so it ends with the line."""
_ARGUMENTS = re.compile(r"\n *\^bb.*")
"""Of a block; each has a location, whose name is the argument's own."""
_REFERENCE = re.compile(r"#loc\d*")
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"(?::(\d+):\d+)?|#loc(\d*)')
"""A file with a line, a name, or a reference."""
_ESCAPED = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")


def without_lines(text: str) -> tuple[str, list[str]]:
    """`text` of a module without locations, and the line of each operation in it.

    A line is `model.py:7`, as `locations.source_line` spells it; "" where there is none.
    """
    text = f"\n{text}"
    defined = dict(_DEFINED.findall(text))
    known: dict[str, str] = {}

    def line(reference: str) -> str:
        if reference not in known:
            known[reference] = ""  # a location that names itself has no line
            known[reference] = found(defined.get(reference, ""))
        return known[reference]

    def found(location: str) -> str:
        for name, number, reference in _PART.findall(location):
            if number:
                return f"{_plain(name)}:{number}"
            if name:
                continue
            if there := line(reference):
                return there
        return ""

    @functools.cache
    def of_operation(reference: str) -> str:
        name = _PART.match(defined.get(reference, ""))
        if name is not None and name[1] and not name[2] and is_call(_plain(name[1])):
            return ""
        return line(reference)

    body = _DEFINED.sub("", text)
    # Behind each part is the reference of a location, None for an unknown one.
    parts = _LAST.split(body)
    lines = [of_operation(reference or "") for reference in parts[1::2]]
    plain = "".join(parts[::2])
    return _ARGUMENTS.sub(lambda match: _REFERENCE.sub("#loc", match[0]), plain)[1:], lines


def _plain(text: str) -> str:
    """A string of MLIR as it is meant."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
