"""What a user reads who has no TensorFlow, or another one: one sentence that says what to do."""

import importlib
import importlib.metadata
import re
import sys

import pytest

from tests.children import python

WITHOUT = """
import importlib.metadata
real = importlib.metadata.version
def version(name):
    if name.startswith("tensorflow"):
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)
importlib.metadata.version = version
import sys
sys.modules["tensorflow"] = None
import shlo_disc
try:
    import shlo_disc.tensorflow
except ImportError as error:
    print(error)
"""


def test_without_tensorflow_the_import_says_what_to_install():
    assert python(WITHOUT, quiet=True) == (
        "shlo_disc.tensorflow needs TensorFlow 2.21, which is not installed: "
        "pip install 'shlo_disc[tensorflow]'"
    )


def imported(monkeypatch, tensorflow, keras="3.15.1"):
    """`shlo_disc.tensorflow`, imported where these versions are."""
    found = {"tensorflow-cpu": tensorflow, "keras": keras}

    def version(name):
        if found.get(name) is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delitem(sys.modules, "shlo_disc.tensorflow", raising=False)
    return importlib.import_module("shlo_disc.tensorflow")


@pytest.mark.parametrize("found", ["2.20.0", "2.22.0rc1", "3.21.0"])
def test_an_untested_tensorflow_is_named(found, monkeypatch):
    text = f"tested with TensorFlow 2.21 and found {found}"
    with pytest.raises(ImportError, match=re.escape(text)):
        imported(monkeypatch, found)


def test_an_untested_keras_is_named(monkeypatch):
    with pytest.raises(ImportError, match=re.escape("tested with Keras 3.15 and found 3.14.0")):
        imported(monkeypatch, "2.21.0", "3.14.0")


@pytest.mark.parametrize("keras", ["3.15.1", None])
def test_the_tested_versions(keras, monkeypatch):
    assert "compile" in imported(monkeypatch, "2.21.1", keras).__all__
