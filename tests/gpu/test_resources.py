"""Each family of kernels for each kind of GPU: assembled, and nothing spilled."""

from __future__ import annotations

import pytest

from tests.gpu.families import families_of
from tests.gpu.resources import TARGETS, WHY_NOT, used_by

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.slow  # `make test-machine-code`

REGISTERS = 1 << 16
"""Of a multiprocessor."""


SHARED_BYTES = {
    "cuda:sm_80": 163 << 10,
    "cuda:sm_90": 227 << 10,
    "cuda:sm_90a": 227 << 10,
    "rocm:gfx942": 64 << 10,
    "rocm:gfx1100": 64 << 10,
}
"""Of a block at most."""


SPILLED = {
    ("product_f32", "cuda:sm_90"): 32,
    ("product_f32", "cuda:sm_90a"): 32,
}
"""Bytes that ptxas stores and loads all the same; it takes 40 and 64 registers there."""


@pytest.mark.parametrize(
    ("target", "family"),
    [(target, family) for target in TARGETS for family in families_of(target.partition(":")[0])],
)
def test_no_kernel_spills(target: str, family: str) -> None:
    try:
        kernels = used_by(family, target)
    except FileNotFoundError:
        pytest.skip(WHY_NOT)
    for kernel in kernels:
        allowed = SPILLED.get((family, target), 0)
        assert kernel.spilled <= allowed, kernel
        assert kernel.private_bytes <= allowed // 2, kernel
        assert 0 < kernel.registers * kernel.threads <= REGISTERS, kernel
        assert kernel.shared_bytes <= SHARED_BYTES[target], kernel
