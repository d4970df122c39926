"""What suites of PyTorch need beside this package."""

from __future__ import annotations

import importlib.util

from rich.console import Console


def has_modules(console: Console, suite: str, *names: str) -> bool:
    """True if all modules are installed; else tells how to get them."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        console.print(f"{suite} needs {', '.join(missing)}: run `make bench-torch`")
    return not missing
