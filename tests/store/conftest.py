"""No code of other tests is in memory: what a test compiles is made, or loaded from its store."""

import weakref

import pytest

from shlo_disc.lower.cpu import codegen


@pytest.fixture(autouse=True)
def no_code_in_memory(monkeypatch):
    """Programs of other tests may live, and others share their functions."""
    before = codegen.RECENT.resize(0)
    monkeypatch.setattr(codegen, "_functions", weakref.WeakValueDictionary())
    yield
    codegen.RECENT.resize(before)
