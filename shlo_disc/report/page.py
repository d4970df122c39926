"""One self-contained HTML page: the graph of kernels, their details, memory and times."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any


def page(programs: Sequence[dict[str, Any]]) -> str:
    """The page of `describe`d programs; those with an entry "profile" show times.

    It loads nothing from anywhere and works from a file.
    """
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    title = html.escape(", ".join(dict.fromkeys(program["name"] for program in programs)))
    # "</script>" in a name must not end the data.
    data = json.dumps(list(programs)).replace("<", "\\u003c")
    return template.replace("__TITLE__", title).replace("__DATA__", data)
