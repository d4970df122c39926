"""Ops of complex numbers as ops of their parts: of those that are linear over real numbers.

    %y = aten.index_put(%z, %i, %w)
==>
    %a = aten.index_put(real %z, %i, real %w), %b = aten.index_put(imag %z, %i, imag %w)
    %y = aten.complex(%a, %b)

Ops that move or add elements are of this kind. Products and functions have bodies:
`bodies/complex_numbers.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from shlo_disc.torch.bodies.complex_numbers import is_complex

aten, prims = torch.ops.aten, torch.ops.prims

_LINEAR = frozenset({
    aten._unsafe_index, aten._unsafe_index_put, aten._unsafe_masked_index,
    aten._unsafe_masked_index_put_accumulate, aten.constant_pad_nd, aten.cumsum,
    aten.embedding, aten.fill, aten.full, aten.full_like, aten.gather, aten.index, aten.index_add,
    aten.index_copy, aten.index_fill, aten.index_put, aten.masked_scatter,
    aten.scatter, aten.scatter_add, aten.sum, aten.mean, aten.take, aten.tril, aten.triu,
    aten.unfold, aten.unfold_backward,
})  # fmt: skip
"""Packets whose results are linear in their complex operands, with real factors alone."""

_ADDED = frozenset({"fill_value", "value"})
"""Names of arguments that may be numbers, and of which each part has its own."""


def complex_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """What a linear op of complex numbers is traced from; None for another node."""
    if not any(map(is_complex, (node, *node.all_input_nodes))):
        return None
    if node.target.overloadpacket in _LINEAR:
        return functools.partial(_of_parts, node.target)
    return _OTHERS.get(node.target)


def _of_parts(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    names = [argument.name for argument in op._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    re, im = (
        op(**{name: pytree.tree_map(functools.partial(_part, place, name), value)
              for name, value in given.items()})
        for place in (0, 1)
    )  # fmt: skip
    return pytree.tree_map(torch.complex, re, im)


def _part(place: int, name: str, value: Any) -> Any:
    """Of an argument the real part, for `place` 0, or the imaginary part."""
    if isinstance(value, Tensor) and value.is_complex():
        return (prims.real, prims.imag)[place](value)
    if isinstance(value, Tensor) and value.is_floating_point() and place:
        return torch.zeros_like(value)
    if isinstance(value, torch.dtype) and value.is_complex:
        return value.to_real()
    if isinstance(value, complex) or (name in _ADDED and isinstance(value, int | float)):
        return (complex(value).real, complex(value).imag)[place]
    return value


def _addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = a @ b
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.clone()
    return (x if beta == 1 else x * beta) + product


def _masked_fill(z: Tensor, mask: Tensor, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        value = torch.scalar_tensor(value, dtype=z.dtype)
    z, mask = torch.broadcast_tensors(z, mask)
    return torch.where(mask, value.to(z.dtype).expand(z.shape), z)


def _isnan(z: Tensor) -> Tensor:
    return z.real.isnan() | z.imag.isnan()


def _view(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Complex numbers are pairs of their parts."""
    if z.is_complex():
        z = torch.view_as_real(z).flatten(-2) if z.dim() else torch.view_as_real(z)
    if not dtype.is_complex:
        return z if z.dtype is dtype else z.view(dtype)
    part = dtype.to_real()
    z = z if z.dtype is part else z.view(part)
    return torch.view_as_complex(z.reshape([*z.shape[:-1], z.shape[-1] // 2, 2]))


def _log(base: float) -> Callable[..., Tensor]:
    return lambda z: z.log() * (1 / math.log(base))


def _of_truth(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An op that asks of every operand whether it is 0."""
    return lambda *operands: function(*(z != 0 for z in operands))


_OTHERS: dict[Any, Callable[..., Any]] = {
    aten.addmm.default: _addmm,
    aten.exp2.default: lambda z: (z * math.log(2)).exp(),
    aten.isnan.default: _isnan,
    aten.log10.default: _log(10),
    aten.log2.default: _log(2),
    aten.logical_and.default: _of_truth(torch.logical_and),
    aten.logical_not.default: _of_truth(torch.logical_not),
    aten.logical_or.default: _of_truth(torch.logical_or),
    aten.logical_xor.default: _of_truth(torch.logical_xor),
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.silu.default: lambda z: z * z.sigmoid(),
    aten.view.dtype: _view,
}
"""Overload -> what it is traced from where it is of complex numbers."""
