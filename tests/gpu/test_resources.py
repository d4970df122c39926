"""Each family of kernels for each kind of GPU: assembled, and nothing spilled."""

from __future__ import annotations

import functools

import pytest

from tests.gpu.families import FAMILIES
from tests.gpu.resources import TARGETS, WHY_NOT, Used, used_by

pytest.importorskip("llvmlite")

REGISTERS = 1 << 16
"""Of a multiprocessor."""
SHARED_BYTES = {"cuda:sm_90a": 227 << 10}
"""What a block may have, where that is more than on an A100."""


@functools.cache
def used(family: str, target: str) -> list[Used]:
    try:
        return used_by(family, target)
    except FileNotFoundError:
        pytest.skip(WHY_NOT)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_spills(family: str, target: str) -> None:
    for kernel in used(family, target):
        assert kernel.spilled == 0, kernel
        assert kernel.private_bytes == 0, kernel
        assert 0 < kernel.registers * kernel.threads <= REGISTERS, kernel
        assert kernel.shared_bytes <= SHARED_BYTES.get(target, 163 << 10), kernel
