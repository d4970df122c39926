"""What an installer wrote down of a package; `importlib.metadata` looks for it for milliseconds."""

from __future__ import annotations

import contextlib
import os


def record_beside(folder: str, distribution: str) -> str:
    """The `RECORD` of `distribution`, installed with the package in `folder`; "" if there is none.

    It has a line a file, with its digest.
    """
    place = os.path.dirname(folder)
    prefix = f"{distribution.replace('-', '_')}-"
    for name in os.listdir(place):
        if name.startswith(prefix) and name.endswith(".dist-info"):
            with (
                contextlib.suppress(FileNotFoundError),  # of a source tree
                open(os.path.join(place, name, "RECORD"), encoding="utf-8") as file,
            ):
                return file.read()
    return ""
