"""A process that loads its programs needs neither the compiler's libraries nor most of SciPy."""

from __future__ import annotations

import os

import pytest

from tests.children import python

CHILD = """
import sys
import jax, jax.numpy as jnp, numpy as np
import shlo_disc

@shlo_disc.jit
def f(a, b):
    return jnp.linalg.solve(a @ a.T + jnp.eye(a.shape[0]), jax.nn.gelu(b))

rng = np.random.default_rng(0)
a, b = rng.standard_normal((4, 4), np.float32), rng.standard_normal(4, np.float32)
print(np.asarray(f(a, b)).tobytes().hex())
print("torch_mlir.ir" in sys.modules, f.cache_info().loaded)
"""

AFTER = """
assert not any(name.startswith("scipy.linalg") for name in sys.modules)
np.testing.assert_allclose(f(a, b), jax.jit(f.__wrapped__)(a, b), rtol=1e-4)
assert not any(name.startswith("scipy.linalg") for name in sys.modules)
import scipy.linalg.cython_lapack
assert scipy.linalg.cython_lapack.__pyx_capi__
import scipy.linalg.cython_blas
assert scipy.linalg.cython_blas.__pyx_capi__
np.testing.assert_allclose(scipy.linalg.solve(a, b), np.linalg.solve(a, b), rtol=1e-4)
np.testing.assert_allclose(f(a, b), jax.jit(f.__wrapped__)(a, b), rtol=1e-4)
"""

BEFORE = """
import scipy.linalg
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with the program of CHILD, and what CHILD printed first."""
    folder = tmp_path_factory.mktemp("store")
    bits, loaded = _printed(CHILD, folder)
    assert loaded == "True 0"
    return folder, bits


@pytest.mark.parametrize("source", [CHILD + AFTER, BEFORE + CHILD], ids=["alone", "after SciPy"])
def test_neither_mlir_nor_all_of_scipy_is_loaded(store, source):
    folder, bits = store
    assert _printed(source, folder) == [bits, "False 1"]


def _printed(source: str, folder: os.PathLike[str]) -> list[str]:
    own = {"SHLO_DISC_CACHE": "1", "SHLO_DISC_CACHE_DIR": str(folder)}
    return python(source, 300, quiet=True, **own).splitlines()
