"""Norms that write their running statistics, of which their schemas tell nothing.

    %y = aten.instance_norm(%x, ..., %mean, %var, True, ...)
==>
    %y, %m, %v = a norm of the channels of each picture
    aten.copy_(%mean, the mean of %m over pictures), aten.copy_(%var, ...)

PyTorch retraces such a program (:func:`shlo_disc.torch.prepare.needs_retracing`), which makes
results of what is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_NORMS = frozenset({
    aten.batch_norm.default, aten.instance_norm.default, aten.native_batch_norm.default,
})  # fmt: skip


def writes_statistics(node: torch.fx.Node) -> bool:
    """True for a norm that writes its running statistics."""
    if node.target not in _NORMS:
        return False
    running, is_training = node.args[3:5], bool(node.args[5])
    return is_training and any(one is not None for one in running)


def _native_norm_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """A norm by given statistics.

    Its second and third results have no elements then, which torch-mlir's lowering does not know.
    """
    if node.args[5]:
        return None
    op = aten._native_batch_norm_legit_no_training.default
    return lambda *args: op(*args[:5], *args[6:])


NATIVE_NORMS = {aten.native_batch_norm.default: _native_norm_rule}
"""Overload -> what says for which nodes it is rewritten."""


def instance_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`aten.instance_norm`; source: `instance_norm` in ATen/native/Normalization.cpp."""
    pictures, channels = x.shape[:2]

    def repeated(one: Tensor | None) -> Any:
        if one is None:
            return None
        return one.expand([pictures, channels]).reshape([pictures * channels])

    mean, variance = repeated(running_mean), repeated(running_var)
    flat = x.reshape([1, pictures * channels, *x.shape[2:]])
    if use_input_stats:
        y, of_pictures, inverse = aten.native_batch_norm(
            flat, repeated(weight), repeated(bias), None, None, True, momentum, eps
        )
        counted: Any = math.prod(x.shape[2:])
        if running_mean is not None:
            new = of_pictures.reshape([pictures, channels]).mean(0)
            running_mean.copy_(running_mean * (1 - momentum) + new * momentum)
        if running_var is not None:
            new = (inverse**-2 - eps) * (counted / (counted - 1))
            new = new.reshape([pictures, channels]).mean(0)
            running_var.copy_(running_var * (1 - momentum) + new * momentum)
    else:
        y = aten.native_batch_norm(
            flat, repeated(weight), repeated(bias), mean, variance, False, momentum, eps
        )[0]
    return y.reshape(x.shape)
