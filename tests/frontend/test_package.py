"""The names of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shlo_disc

SCRIPT = """
import sys, shlo_disc
assert "jax" not in sys.modules and "torch_mlir" not in sys.modules
import shlo_disc.base.errors
assert callable(shlo_disc.compile)
from shlo_disc.driver.stages import compile_module
assert callable(shlo_disc.compile) and shlo_disc.compile.__name__ == "compile"
assert "jax" not in sys.modules
print("fine")
"""


def test_import_is_light_and_compile_is_the_function():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.stdout == "fine\n", done.stderr


def test_every_public_name_is_there():
    for name in shlo_disc.__all__:
        assert getattr(shlo_disc, name) is not None
    with pytest.raises(AttributeError, match=r"^module 'shlo_disc' has no attribute 'nothing'$"):
        _ = shlo_disc.nothing
