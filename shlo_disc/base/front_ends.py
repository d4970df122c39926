"""Front ends of frameworks that need not be installed: the check of versions, and late imports."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_disc.base.records import dataclass


@dataclass(frozen=True)
class Tested:
    """A framework and the version that the tests of a front end run with."""

    name: str
    version: str
    """Major and minor: `2.13`."""
    distributions: tuple[str, ...]
    """The distributions that contain the framework; the first that is installed counts."""
    needed: bool = True


def check_tested(front_end: str, frameworks: Sequence[Tested]) -> None:
    """Check that `shlo_disc.<front_end>` can run with the frameworks that are installed.

    A front end reads what no version of its framework promises to keep. So another minor version
    is an ImportError of one sentence, as is a framework that is needed and missing.
    """
    install = f"pip install 'shlo_disc[{front_end}]'"
    for one in frameworks:
        found = next(filter(None, map(_version, one.distributions)), None)
        if found is None and one.needed:
            raise ImportError(
                f"shlo_disc.{front_end} needs {one.name} {one.version}, which is not installed: "
                f"{install}"
            )
        if found is not None and found.split("+")[0].split(".")[:2] != one.version.split("."):
            raise ImportError(
                f"shlo_disc.{front_end} was tested with {one.name} {one.version} and found "
                f"{found}: {install}"
            )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def late_imports(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `package`: from a name to that attribute of the module in `places`.

    Such modules are loaded when first used, hence behind a check of versions.
    """

    def __getattr__(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
