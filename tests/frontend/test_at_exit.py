"""Functions of `atexit` compile and call programs, as they do with `jax.jit`."""

import pytest

from tests.children import python

CHILD = """
import atexit, threading
import numpy as np

def compile_and_call(name):
    @shlo_disc.jit(background=name == "in the background")
    def f(x, w):
        return jax.lax.scan(lambda h, row: (jax.nn.gelu(h + row @ w) * len(name), h), x[0], x)

    x, w = np.ones((3, 5), np.float32), np.eye(5, dtype=np.float32)
    for _ in range(2):
        for result, expected in zip(jax.tree.leaves(f(x, w)), jax.tree.leaves(jax.jit(f)(x, w))):
            np.testing.assert_allclose(result, expected, rtol=1e-6)
    print(name, f.cache_info().misses, f.cache_info().loaded, flush=True)

atexit.register(compile_and_call, "last of all")
import jax, shlo_disc
atexit.register(compile_and_call, "in the background")
atexit.register(compile_and_call, "first")
"""

NO_THREADS = """
def refused(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

atexit.register(setattr, threading.Thread, "start", refused)
"""
"""As from Python 3.12 on."""


@pytest.mark.parametrize("source", [CHILD, CHILD + NO_THREADS], ids=["threads", "no threads"])
def test_programs_are_compiled_and_kept_while_python_ends(source, tmp_path):
    own = {"SHLO_DISC_CACHE": "1", "SHLO_DISC_CACHE_DIR": str(tmp_path)}
    lines = [python(source, 300, quiet=True, **own).splitlines() for _ in range(2)]
    assert lines[0] == ["first 1 0", "in the background 1 0", "last of all 1 0"]
    assert lines[1] == ["first 1 1", "in the background 1 1", "last of all 1 1"]
