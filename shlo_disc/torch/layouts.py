"""In which order the elements of a traced tensor lie in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def memory_order(x: torch.Tensor) -> list[int]:
    """The dimensions of `x` by falling strides, as they are in the traced call."""

    def at_hint(size: Any) -> int:
        return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)

    return sorted(range(x.dim()), key=lambda k: (-at_hint(x.stride(k)), k))


def dense_order(x: torch.Tensor) -> list[int] | None:
    """The dimensions in the order in which `x` is row-major, at all sizes.

    [0, 2, 3, 1] of pictures with channels last. None if the order is that of the dimensions, or if
    memory has holes, has elements twice, or is not known.
    """
    sizes = (*x.shape, *x.stride())
    if any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in sizes):
        return None
    order = memory_order(x)
    if order == list(range(x.dim())):
        return None
    step: Any = 1
    for axis in reversed(order):
        if not statically_known_true(x.stride(axis) == step):
            return None
        step = step * x.shape[axis]
    return order
