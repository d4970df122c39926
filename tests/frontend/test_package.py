"""The names of the package, and what importing it costs."""

import pytest

import shlo_disc
from tests.children import python

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
    assert python(SCRIPT) == "fine"


FIRST_CALL = """
import sys, warnings, jax.numpy as jnp, shlo_disc
warnings.simplefilter("error")
x = jnp.ones((3, 4))
assert (shlo_disc.jit(lambda x, w, b: x @ w + b)(x, jnp.ones((4, 5)), jnp.ones(5)) == 5).all()
others = ("few_elements", "dense.batches", "dense.small", "dense.horizontal", "probes")
assert not [name for name in others if f"shlo_disc.lower.cpu.{name}" in sys.modules]
print("fine")
"""


def test_a_first_call_imports_no_emitters_that_it_does_not_need():
    """And the rule of the broadcast, which no other module brings."""
    assert python(FIRST_CALL, quiet=True, SHLO_DISC_CACHE="0") == "fine"


def test_a_first_call_imports_no_pallas(tmp_path):
    script = FIRST_CALL.replace('print("fine")', 'print("jax._src.pallas.core" in sys.modules)')
    for cache in ("0", "1"):  # to look for a program, its primitives must have names
        kept = {"SHLO_DISC_CACHE": cache, "SHLO_DISC_CACHE_DIR": str(tmp_path)}
        assert python(script, quiet=True, **kept) == "False"


def test_every_public_name_is_there():
    for name in shlo_disc.__all__:
        assert getattr(shlo_disc, name) is not None
    with pytest.raises(AttributeError, match=r"^module 'shlo_disc' has no attribute 'nothing'$"):
        _ = shlo_disc.nothing
