"""Our own decompositions of ATen ops: into what torch-mlir lowers well at dynamic sizes.

Each one is the function that the op is traced from. It has the op's arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["REWRITES"]

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)


def _wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in the type that PyTorch adds up in."""
    return x.to(torch.float32) if x.dtype in _HALF else x


def _dims(x: torch.Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The reduced dimensions; none given means all."""
    if dim is None:
        return list(range(x.dim()))
    given = [dim] if isinstance(dim, int) else list(dim)
    return [d % max(x.dim(), 1) for d in given] or list(range(x.dim()))


def _var_mean(
    x: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """In the type of the data: torch-mlir converts every element to f64."""
    dims = _dims(x, dim)
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    off = wide - mean
    count: Any = 1
    for d in dims:
        count = count * x.shape[d]
    squares = (off * off).sum(dims, keepdim=keepdim)
    less = 1.0 if correction is None else correction
    rest = count - (int(less) if float(less).is_integer() else less)
    if isinstance(rest, int | float):
        variance = squares / max(rest, 0)
    else:
        variance = squares / torch.scalar_tensor(rest, dtype=wide.dtype).clamp(min=0)
    if not keepdim:
        mean = mean.squeeze(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


def _var(
    x: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    return _var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def _rms_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    wide = _wide(x)
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    out = wide * torch.rsqrt((wide * wide).mean(dims, keepdim=True) + small)
    if weight is not None:
        out = out * weight
    return out.to(x.dtype)


def _flatten(x: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> torch.Tensor:
    """With sizes of the operand: torch-mlir divides the number of elements by the kept sizes."""
    if x.dim() == 0:
        return x.reshape(1)
    first, last = start_dim % x.dim(), end_dim % x.dim()
    joined: Any = 1
    for size in x.shape[first : last + 1]:
        joined = joined * size
    return x.reshape([*x.shape[:first], joined, *x.shape[last + 1 :]])


REWRITES: dict[Any, Callable[..., Any]] = {
    aten.flatten.using_ints: _flatten,
    aten.rms_norm.default: _rms_norm,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
}
"""Overload -> what it is traced from."""
