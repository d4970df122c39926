"""Options of the form `NAME=NUMBER`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


def assignments(_: Any, __: Any, texts: Sequence[str]) -> dict[str, int]:
    """The values by name. Raises BadParameter for a text of another form."""
    found = {}
    for text in texts:
        name, equals, number = text.partition("=")
        if not equals or not number.strip().isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=NUMBER, such as b=3")
        found[name.strip()] = int(number)
    return found
