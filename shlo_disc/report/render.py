"""`describe`d programs in the formats of `explain()`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shlo_disc.report.page import page
from shlo_disc.report.text import as_text


def render(programs: Sequence[dict[str, Any]], format: str) -> str:
    """As "text", "json" (an object, or a list of several) or "html"; else raises ValueError."""
    if format == "text":
        return "\n\n".join(as_text(program) for program in programs)
    if format == "json":
        return json.dumps(programs[0] if len(programs) == 1 else list(programs), indent=1)
    if format == "html":
        return page(programs)
    raise ValueError(f"no format {format!r}; formats: text, json, html")
