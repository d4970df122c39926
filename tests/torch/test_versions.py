"""What a user reads who has no PyTorch, or another one: one sentence that says what to install."""

import importlib
import importlib.metadata
import re
import sys

import pytest

from tests.children import python

WITHOUT_TORCH = """
import importlib.abc, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

import importlib.metadata
real = importlib.metadata.version
def version(name):
    if name == "torch":
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
sys.meta_path.insert(0, Nothing())
import shlo_disc
try:
    import shlo_disc.torch
except ImportError as error:
    print(error)
"""


def test_without_pytorch_the_import_says_what_to_install():
    assert python(WITHOUT_TORCH, quiet=True) == (
        "shlo_disc.torch needs PyTorch 2.13, which is not installed: pip install 'shlo_disc[torch]'"
    )


def imported(found, monkeypatch):
    """`shlo_disc.torch`, imported where PyTorch has this version."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    monkeypatch.delitem(sys.modules, "shlo_disc.torch", raising=False)
    return importlib.import_module("shlo_disc.torch")


@pytest.mark.parametrize("found", ["2.12.1", "2.14.0+cpu", "3.13.0"])
def test_an_untested_pytorch_is_named(found, monkeypatch):
    with pytest.raises(ImportError, match=re.escape(f"tested with PyTorch 2.13 and found {found}")):
        imported(found, monkeypatch)


@pytest.mark.parametrize("found", ["2.13.0", "2.13.0+cpu", "2.13.1"])
def test_the_tested_pytorch_may_be_any_build(found, monkeypatch):
    assert "compile" in imported(found, monkeypatch).__all__
