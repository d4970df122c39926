"""The TensorFlow and the Keras that this front end was tested with.

It calls TensorFlow's converter to StableHLO, which is no public interface of TensorFlow.
"""

from __future__ import annotations

import importlib.metadata

__all__ = ["KERAS", "TENSORFLOW", "check_versions"]

TENSORFLOW = "2.21"
"""The minor version that the tests run with."""

KERAS = "3.15"
"""The minor version that the tests run with; TensorFlow alone needs none."""

_INSTALL = "pip install 'shlo_disc[tensorflow]'"

_BUILDS = ("tensorflow-cpu", "tensorflow")
"""The distributions that have the module `tensorflow`."""


def check_versions() -> None:
    """Raise ImportError, in one sentence, unless the tested versions are installed."""
    found = next(filter(None, map(_version, _BUILDS)), None)
    if found is None:
        raise ImportError(
            f"shlo_disc.tensorflow needs TensorFlow {TENSORFLOW}, which is not installed: "
            f"{_INSTALL}"
        )
    keras = _version("keras")
    for name, tested, version in (("TensorFlow", TENSORFLOW, found), ("Keras", KERAS, keras)):
        if version is not None and version.split("+")[0].split(".")[:2] != tested.split("."):
            raise ImportError(
                f"shlo_disc.tensorflow was tested with {name} {tested} and found {version}: "
                f"{_INSTALL}"
            )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
