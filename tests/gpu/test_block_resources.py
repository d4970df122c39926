"""Sorts, scatters, scans and top-k by blocks: assembled, and nothing spilled."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

import shlo_disc
from tests.gpu.families import Family
from tests.gpu.resources import WHY_NOT, used_by
from tests.gpu.test_resources import REGISTERS, SHARED_BYTES

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.slow  # `make test-machine-code`

PROGRAMS = {
    "argsort": Family(jnp.argsort, (("n", "float32"),), ()),
    "keys": Family(
        lambda x, y, z: lax.sort((x, y, z), num_keys=2, dimension=0),
        (("n, m", "float64"), ("n, m", "int64"), ("n, m", "bfloat16")),
        (),
    ),
    "by_digits": Family(
        lambda x, y, z: lax.sort((x, y, z), num_keys=1, dimension=0),
        (("n, m", "float64"), ("n, m", "int64"), ("n, m", "bfloat16")),
        (),
    ),
    "rows_by_digits": Family(jnp.sort, (("n, m", "float32"),), ()),
    "embedding": Family(
        lambda x, i, u: x.at[i].add(u),
        (("n, 768", "bfloat16"), ("k", "int32"), ("k, 768", "bfloat16")),
        (),
    ),
    "scalars": Family(
        lambda x, i, u: x.at[i].multiply(u),
        (("n", "float64"), ("k", "int32"), ("k", "float64")),
        (),
    ),
    "histogram": Family(lambda x, i: x.at[i].add(1), (("n", "int32"), ("k", "int32")), ()),
    "columns": Family(lambda x: jnp.cumsum(x, 0), (("n, m", "float64"),), ()),
    "rows": Family(lambda x: lax.cummax(x, 1, reverse=True), (("n, m", "bfloat16"),), ()),
    "top_16": Family(lambda x: lax.top_k(x, 16), (("n, m", "float32"),), (), 0, ("m >= 16",)),
    "top_100": Family(lambda x: lax.top_k(x, 100), (("n, m", "int8"),), (), 0, ("m >= 100",)),
}


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "rocm:gfx942", "rocm:gfx1100"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_spills(name: str, target: str) -> None:
    try:
        kernels = used_by(PROGRAMS[name], target)
    except FileNotFoundError:
        pytest.skip(WHY_NOT)
    for kernel in kernels:
        assert max(kernel.spilled, kernel.private_bytes) == 0, kernel
        assert 0 < kernel.registers * kernel.threads <= REGISTERS, kernel
        assert kernel.shared_bytes <= SHARED_BYTES[target], kernel


@pytest.mark.parametrize(
    "name", ["argsort", "keys", "by_digits", "embedding", "scalars", "top_100"]
)
def test_threads_come_back_to_a_barrier_by_one_way(name: str) -> None:
    """Else threads of a warp that have nothing to do may wait there once more than the others."""
    text = shlo_disc.compile(PROGRAMS[name].exported, target="cuda:sm_90").as_text("ptx")
    for kernel in text.split(".visible .entry")[1:]:
        lines = [line.strip() for line in kernel.splitlines() if line.strip()]
        for at, line in enumerate(lines):
            if not line.startswith("bar.sync"):
                continue
            first = at
            while lines[first - 1].startswith("$L"):
                first -= 1
            labels = [label.rstrip(":") for label in lines[first:at]]
            back = [x for x in lines[at:] if x.rstrip(";").split()[-1] in labels]
            assert len(back) <= 1, back
