"""Aliases in MLIR text (`#loc2 = loc(callsite(#loc1 at #loc1))`) must be short when written out.

MLIR keeps what aliases share once, but writes it out in its error messages. 30 lines, each of which
names the one before twice, are a text of 10^9 characters.
"""

from __future__ import annotations

import re

from shlo_disc.base.errors import InvalidModuleError

MAX_CHARACTERS = 1_000_000
"""Of one alias, with those it names written out. Call stacks of JAX programs have below 10^4."""

_NAME = r"[#!][A-Za-z_][\w$.]*"
_DEFINITION = re.compile(rf"({_NAME})\s*=(?!=)")
_TOKEN = re.compile(rf'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|{_NAME}|[([{{<]|[)\]}}>]|\n|\S')
_CONTINUES = re.compile(r"\s*[(\[{<:]")


def check_aliases(text: str) -> None:
    """Raise InvalidModuleError for an alias of over MAX_CHARACTERS; linear in `text`."""
    sizes: dict[str, int] = {}
    position = 0
    while (definition := _DEFINITION.search(text, position)) is not None:
        end, named = _body(text, definition.end())
        size = end - definition.end() + sum(sizes.get(name, 0) for name in named)
        if size > MAX_CHARACTERS and named:
            line = text.count("\n", 0, definition.start()) + 1
            raise InvalidModuleError(
                f"line {line}: {definition[1]} has {size} characters with the aliases it names "
                f"written out; the limit is {MAX_CHARACTERS}"
            )
        sizes[definition[1]] = size
        position = end


def _body(text: str, start: int) -> tuple[int, list[str]]:
    """Where the value that begins at `start` ends, and the aliases it names."""
    named: list[str] = []
    depth, end = 0, start
    for token in _TOKEN.finditer(text, start):
        what = token[0]
        if what == "\n":
            if depth <= 0 and end > start and not _CONTINUES.match(text, token.end()):
                break
            continue
        end = token.end()
        if what in "([{<":
            depth += 1
        elif what in ")]}>":
            depth -= 1
        elif what[0] in "#!" and len(what) > 1:
            named.append(what)
    return end, named
