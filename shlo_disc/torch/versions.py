"""The PyTorch that this front end was tested with.

It reads FX graphs and guards, whose form no version of PyTorch promises to keep.
"""

from __future__ import annotations

import importlib.metadata

__all__ = ["TORCH", "check_versions"]

TORCH = "2.13"
"""The minor version that the tests run with."""

_INSTALL = "pip install 'shlo_disc[torch]'"


def check_versions() -> None:
    """Raise ImportError, in one sentence, unless the tested PyTorch is installed."""
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"shlo_disc.torch needs PyTorch {TORCH}, which is not installed: {_INSTALL}"
        ) from None
    if found.split("+")[0].split(".")[:2] != TORCH.split("."):
        raise ImportError(
            f"shlo_disc.torch was tested with PyTorch {TORCH} and found {found}: {_INSTALL}"
        )
