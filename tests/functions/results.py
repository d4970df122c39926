"""`results.json`: the functions of the sweep that do not need just one compilation, and why.

`docs/differs.md` is made from it; `python -m tests.functions --store` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.functions.check import Finding

PATH = Path(__file__).parent / "results.json"

Entries = dict[str, dict[str, Any]]
"""Name -> {"compilations": 4, "because": [...]} or {"unsupported": "..."}."""

_AROUND = re.compile(r"^(unknown location|\S+): | \(.*|; .*")
"""Names, places and operations in front of what is wrong; details and advice behind it."""


def entries(found: Mapping[str, Finding]) -> Entries:
    """What is kept of the findings, by name."""
    kept: Entries = {}
    for name, finding in sorted(found.items()):
        if finding.state == "more compilations":
            kept[name] = {
                "compilations": finding.compilations,
                "because": list(finding.because),
            }
        elif finding.state == "unsupported":
            kept[name] = {"unsupported": _first_words(finding.message)}
    return kept


def _first_words(message: str) -> str:
    while (shorter := _AROUND.sub("", message)) != message:
        message = shorter
    return message


def read() -> Entries:
    """The stored entries."""
    return json.loads(PATH.read_text())


def store(found: Mapping[str, Finding]) -> None:
    """Write the entries of these functions; the others stay as they are."""
    rest = {name: entry for name, entry in read().items() if name not in found}
    both = dict(sorted({**rest, **entries(found)}.items()))
    PATH.write_text(json.dumps(both, indent=1) + "\n")
