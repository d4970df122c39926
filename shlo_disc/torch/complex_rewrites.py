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
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from shlo_disc.torch.bodies.complex_numbers import is_complex

__all__ = ["complex_rule"]

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
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
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
    if isinstance(value, torch.Tensor) and value.is_complex():
        return (prims.real, prims.imag)[place](value)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and place:
        return torch.zeros_like(value)
    if isinstance(value, torch.dtype) and value.is_complex:
        return value.to_real()
    if isinstance(value, complex) or (name in _ADDED and isinstance(value, int | float)):
        return (complex(value).real, complex(value).imag)[place]
    return value


def _addmm(
    x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    product = a @ b
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.clone()
    return (x if beta == 1 else x * beta) + product


_OTHERS: dict[Any, Callable[..., Any]] = {aten.addmm.default: _addmm}
"""Overload -> what it is traced from where it is of complex numbers."""
