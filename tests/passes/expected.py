"""Whole expected outputs inside a `.mlir` test, behind each of its modules:

    // RUN: disc-opt %s --pass-pipeline=dce | expect
    func.func @main(...) ...
    // EXPECT:
    //   module {
    //   ...
    //   }

`SHLO_DISC_BLESS=1 pytest tests/passes` writes what `disc-opt` prints today; review reads the diff.
"""

from __future__ import annotations

import difflib
import os

from shlo_disc.tools.disc_opt import split_file

_MARK = "// EXPECT:"
_SEPARATOR = "// -----\n"


def is_blessing() -> bool:
    """True if expected outputs are to be written."""
    return os.environ.get("SHLO_DISC_BLESS", "") not in ("", "0")


def problem(text: str, output: str) -> str | None:
    """How `output` of `disc-opt` differs from what the test `text` expects; None if not at all."""
    parts, printed = split_file(text), split_file(output)
    if len(parts) != len(printed):
        return f"{len(parts)} modules gave {len(printed)}: is --split-input-file missing?"
    for number, (part, got) in enumerate(zip(parts, printed, strict=True)):
        want = _expected(part)
        if want is None:
            return f"module {number} has no {_MARK}; SHLO_DISC_BLESS=1 writes it"
        lines = [line.rstrip() for line in got.strip("\n").splitlines()]
        diff = difflib.unified_diff(want, lines, "expected", "printed", lineterm="")
        if found := list(diff):
            return f"module {number}:\n" + "\n".join(found)
    return None


def blessed(text: str, output: str) -> str:
    """The test `text` with `output` as what it expects."""
    made = []
    for part, got in zip(split_file(text), split_file(output), strict=True):
        source = part.partition(_MARK)[0].rstrip("\n")
        lines = "".join(f"//   {line}".rstrip() + "\n" for line in got.strip("\n").splitlines())
        made.append(f"{source}\n{_MARK}\n{lines}")
    return f"\n{_SEPARATOR}".join(made)


def _expected(part: str) -> list[str] | None:
    _, mark, behind = part.partition(f"{_MARK}\n")
    if not mark:
        return None
    lines = behind.rstrip("\n").splitlines()
    return [line.removeprefix("//").removeprefix("   ") for line in lines]
