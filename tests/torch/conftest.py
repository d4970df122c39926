"""For tests of PyTorch: graphs that a test had compiled are gone when the next one starts."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


def forget() -> None:
    """Drop the graphs that Dynamo keeps."""
    ours = sys.modules.get("shlo_disc.torch.dynamo")  # not where PyTorch is not installed
    if ours is not None and ours.compilations():
        sys.modules["torch"]._dynamo.reset()
        gc.collect()


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """Several tests count the graphs of the process; the last test of a module leaves none."""
    forget()
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    yield
    forget()
