"""For tests of PyTorch: graphs that a test had compiled are gone when the next one starts."""

from __future__ import annotations

import gc
import importlib.util
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


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Exported programs are compiled as a whole or refused, unless a test asks for regions.

    Else a test could pass because PyTorch runs what it is about. Gives the default of users.
    """
    if importlib.util.find_spec("torch") is None:
        yield ""
        return
    from shlo_disc.torch.exported import compile

    defaults = compile.__kwdefaults__
    own = defaults["on_unsupported"]
    monkeypatch.setitem(defaults, "on_unsupported", "error")
    yield own
