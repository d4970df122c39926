"""What machine code of Hopper does with registers that `wgmma` (HGMMA) still reads."""

from __future__ import annotations

import re

_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;")
_LABEL = re.compile(r"(\.L_x_\d+):")
_BRANCH = re.compile(r"BRA\b.*`\((\.L_x_\d+)\)")
_HELD = re.compile(r"HGMMA\S* R\d+, R(\d+), gdesc")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d+)")
_RESULT = re.compile(r"(?!ST|RED|HGMMA|BRA)([A-Z][\w.]*)\s+(?:P\w+, )?R(\d+)\b")


def early_writes(text: str) -> tuple[int, list[str]]:
    """How many HGMMA have their left operand in registers, and what is written there too early.

    `text`: SASS of kernels. Code is followed in the order of the text; at its end a loop is gone
    through once more, until a wait for the group of the instruction.
    """
    code, labels = [], {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := _INSTRUCTION.match(line):
            code.append(found[1])
    held = [(k, int(m[1])) for k, line in enumerate(code) if (m := _HELD.match(line))]
    return len(held), [
        line for k, first in held for line in _until_the_wait(code, labels, k, first)
    ]


def _until_the_wait(code: list[str], labels: dict[str, int], start: int, first: int) -> list[str]:
    registers = set(range(first, first + 4))
    found, groups, at, taken = [], 0, start, set()
    while at < len(code):
        line = code[at]
        groups += "gsb0" in line and line.startswith("HGMMA")
        wait = _WAIT.match(line)
        if wait and groups and int(wait[1]) < groups:
            return found
        if at != start and _written(line) & registers:
            found.append(line)
        target = _BRANCH.match(line)
        if target and labels[target[1]] <= at and at not in taken:
            taken.add(at)
            at = labels[target[1]]
        elif line.startswith("EXIT"):
            return found
        else:
            at += 1
    return found


def _written(line: str) -> set[int]:
    result = _RESULT.match(line)
    if result is None:
        return set()
    width = (
        4 if ".128" in result[1] else 2 if re.search(r"\.64|WIDE|DADD|DMUL|DFMA", result[1]) else 1
    )
    return set(range(int(result[2]), int(result[2]) + width))
