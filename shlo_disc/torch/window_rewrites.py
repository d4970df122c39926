"""Windows and frequencies of signals, of numbers and of sizes, as terms of `arange`.

    %y = aten.hamming_window(%n)    ==>    %y = 0.54 - 0.46 * cos(2 pi / %n * arange(%n))

Source: PyTorch's documentation of `torch.hamming_window`, `torch.kaiser_window` and their like.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten


def _window(shape: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`shape(x, ...)`, where x goes from 0 to 1, or where it is periodic to its last step."""

    def rewritten(
        length: int, periodic: bool = True, *rest: float, dtype: torch.dtype | None = None, **_: Any
    ) -> Tensor:
        dtype = dtype or torch.get_default_dtype()
        if statically_known_true(length == 1):
            return torch.ones([length], dtype=dtype)
        wide = torch.promote_types(dtype, torch.float32)
        steps: Any = length if periodic else length - 1
        count = torch.scalar_tensor(steps, dtype=wide)
        found = shape(torch.arange(length, dtype=wide) / count.clamp(min=1), *rest)
        return torch.where(count == 0, 1.0, found).to(dtype)  # one element, not periodic

    return rewritten


def _cosines(x: Tensor, *factors: float) -> Tensor:
    """The sum of `factors[k] * cos(2 pi k x)`, with alternating signs."""
    found: Any = factors[0]
    for k, factor in enumerate(factors[1:], 1):
        found = found + (-1) ** k * factor * torch.cos(2 * math.pi * k * x)
    return found


def _hamming(x: Tensor, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return _cosines(x, alpha, beta)


def _blackman(x: Tensor) -> Tensor:
    return _cosines(x, 0.42, 0.5, 0.08)


def _bartlett(x: Tensor) -> Tensor:
    return 1 - (2 * x - 1).abs()


def _kaiser(x: Tensor, beta: float = 12.0) -> Tensor:
    inner = (1 - (2 * x - 1) ** 2).clamp(min=0).sqrt()
    return torch.i0(beta * inner) / torch.i0(torch.full([1], beta, dtype=x.dtype))


def _fftfreq(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    k = torch.arange(n)
    k = torch.where(k < (n + 1) // 2, k, k - n)
    return _frequencies(k, n, d, dtype)


def _rfftfreq(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return _frequencies(torch.arange(n // 2 + 1), n, d, dtype)


def _frequencies(k: Tensor, n: int, d: float, dtype: torch.dtype | None) -> Tensor:
    dtype = dtype or torch.get_default_dtype()
    # As PyTorch: one product with a number that was rounded once.
    step = 1 / (torch.scalar_tensor(n, dtype=torch.float64) * d)
    return k.to(dtype) * step.to(dtype)


_SHAPES = {
    aten.bartlett_window: _bartlett, aten.blackman_window: _blackman,
    aten.hamming_window: _hamming, aten.kaiser_window: _kaiser,
}  # fmt: skip

WINDOWS: dict[Any, Callable[..., Any]] = {
    **{
        getattr(packet, overload): _window(shape)
        for packet, shape in _SHAPES.items()
        for overload in packet.overloads()
        if not overload.endswith("out")
    },
    aten.fft_fftfreq.default: _fftfreq,
    aten.fft_rfftfreq.default: _rfftfreq,
}
"""Overload -> what it is traced from."""
