"""Convolutions as `aten.convolution`, which torch-mlir or a body of ours takes.

%y = aten.conv2d(%x, %w, ...)    ==>    %y = aten.convolution(%x, %w, ..., transposed=False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _convolution_rule(node: torch.fx.Node) -> Callable[..., Any] | None:
    """torch-mlir takes `aten.conv2d` of windows of static sizes."""
    weight = node.args[1]
    assert isinstance(weight, torch.fx.Node)
    sizes = weight.meta["val"].shape[2:]
    return None if all(isinstance(n, int) for n in sizes) else node.target


PLAIN_CONVOLUTIONS = dict.fromkeys((aten.conv2d.default, aten.conv2d.padding), _convolution_rule)
"""Overload -> what says for which nodes it is rewritten."""


def fix_steps(graph: torch.fx.Graph) -> None:
    """Make numbers of strides, dilations and groups that Dynamo has taken for sizes.

    With `dynamic=True` an int of a closure is a symbol. Dynamo guards what becomes a number here,
    and compiles again for another one.
    """
    for node in graph.nodes:
        if node.target not in _STEPPED:
            continue
        for place, argument in enumerate(node.target._schema.arguments):
            if argument.name in _STEPS and place < len(node.args):
                node.update_arg(place, torch.fx.map_arg(node.args[place], _number))


def _number(node: torch.fx.Node) -> Any:
    value = node.meta["val"]
    return int(value) if isinstance(value, torch.SymInt) else node


_STEPPED = frozenset({aten.convolution.default, aten.convolution_backward.default})

_STEPS = frozenset({"stride", "dilation", "output_padding", "groups"})


def _transposed(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,), output_padding: Sequence[int] = (0,), groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    is_one = x.dim() < weight.dim()  # one picture, not a batch of them
    batch = x.unsqueeze(0) if is_one else x
    y = aten.convolution(
        batch, weight, bias, stride, padding, dilation, True, output_padding, groups
    )
    return y.squeeze(0) if is_one else y


def _with_settings(*args: Any) -> Tensor:
    """Without the settings of cuDNN behind the arguments of `aten.convolution`."""
    return aten.convolution(*args[:9])


def _of_sequences(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Of x: [T, N, I] and weight: [k, I, O]."""
    y = aten.convolution(
        x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, [1], [pad], [1], False, [0], 1
    )
    return y.permute(2, 0, 1)


def _of_sequences_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    of_x, of_weight, of_bias = aten.convolution_backward(
        grad.permute(1, 2, 0), x.permute(1, 2, 0), weight.permute(2, 1, 0), [weight.shape[2]],
        [1], [pad], [1], False, [0], 1, [True, True, True],
    )  # fmt: skip
    return of_x.permute(2, 0, 1), of_weight.permute(2, 1, 0), of_bias


CONVOLUTIONS: dict[Any, Callable[..., Any]] = {
    aten._convolution.default: _with_settings,
    aten._convolution.deprecated: _with_settings,
    aten.conv_tbc.default: _of_sequences,
    aten.conv_tbc_backward.default: _of_sequences_backward,
    aten.conv_transpose1d.default: _transposed,
    aten.conv_transpose2d.input: _transposed,
    aten.conv_transpose3d.input: _transposed,
}
"""Overload -> what it is traced from."""
