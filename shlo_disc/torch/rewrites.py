"""Our own decompositions of ATen ops: into what torch-mlir lowers well at dynamic sizes.

Each one is the function that the op is traced from. It has the op's arguments and results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.torch.bag_rewrites import BAGS
from shlo_disc.torch.convolution_rewrites import CONVOLUTIONS
from shlo_disc.torch.encoder_rewrites import ENCODERS
from shlo_disc.torch.gradient_rewrites import GRADIENTS
from shlo_disc.torch.grid_rewrites import GRIDS
from shlo_disc.torch.indexed_rewrites import INDEXED
from shlo_disc.torch.linalg_rewrites import LINALG
from shlo_disc.torch.number_rewrites import NUMBERS
from shlo_disc.torch.order_rewrites import ORDERED
from shlo_disc.torch.pool_rewrites import POOLS
from shlo_disc.torch.running_statistics import instance_norm
from shlo_disc.torch.scalar_rewrites import SCALARS
from shlo_disc.torch.type_rewrites import widened
from shlo_disc.torch.view_rewrites import VIEWS
from shlo_disc.torch.window_rewrites import WINDOWS

aten = torch.ops.aten


def _dims(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The reduced dimensions; none given means all."""
    if dim is None:
        return list(range(x.dim()))
    given = [dim] if isinstance(dim, int) else list(dim)
    return [d % max(x.dim(), 1) for d in given] or list(range(x.dim()))


def _var_mean(
    x: Tensor, dim: int | Sequence[int] | None = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """In the type of the data: torch-mlir converts every element to f64."""
    dims = _dims(x, dim)
    wide = widened(x)
    mean = wide.mean(dims, keepdim=True)
    off = wide - mean
    count: Any = math.prod(x.shape[d] for d in dims)
    lengths = off.abs() if off.is_complex() else off
    squares = (lengths * lengths).sum(dims, keepdim=keepdim)
    less: Any = 1 if correction is None else correction
    if isinstance(less, float) and less.is_integer():
        less = int(less)
    rest = count - less
    if isinstance(rest, int | float):
        variance = squares / max(rest, 0)
    else:
        variance = squares / torch.scalar_tensor(rest, dtype=squares.dtype).clamp(min=0)
    if not keepdim:
        mean = mean.squeeze(dims)
    return variance.to(x.real.dtype if x.is_complex() else x.dtype), mean.to(x.dtype)


def _batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One product and one sum an element, as PyTorch's kernel for CPUs has them.

    Source: `batch_norm_cpu_collect_linear_and_constant_terms` in ATen/native/cpu.
    """
    scale = 1 / torch.sqrt(widened(variance) + eps)
    if weight is not None:
        scale = scale * widened(weight)
    offset = -widened(mean) * scale
    if bias is not None:
        offset = widened(bias) + offset
    channels = [1, x.shape[1]] + [1] * (x.dim() - 2)
    result = widened(x) * scale.reshape(channels) + offset.reshape(channels)
    saved = variance.new_empty((0,))
    return result.to(x.dtype), saved, saved


def _rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    wide = widened(x)
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    out = wide * torch.rsqrt((wide * wide).mean(dims, keepdim=True) + small)
    if weight is not None:
        out = out * weight
    return out.to(x.dtype)


def _one_over_root(size: int | torch.SymInt, dtype: torch.dtype) -> float | Tensor:
    """`size ** -0.5`; of rank 0 for a size that is not known."""
    if isinstance(size, int):
        return float(max(size, 1) ** -0.5)
    return torch.scalar_tensor(size, dtype=dtype).clamp(min=1).rsqrt()


def _flash_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The weights again from scores and `logsumexp`, then the products of the chain rule."""
    if dropout_p:
        raise UnsupportedError("dropout is random; set it to 0")
    factor = _one_over_root(query.shape[-1], widened(query).dtype) if scale is None else scale
    is_grouped = not statically_known_true(query.shape[1] == key.shape[1])
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, 1) if is_grouped else x for x in (key, value))
    scores = widened(query @ keys.transpose(-2, -1)) * factor
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        rows = torch.arange(scores.shape[-2]).unsqueeze(-1)
        scores = scores.masked_fill(rows < torch.arange(scores.shape[-1]), float("-inf"))
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    of_weights = widened(grad @ values.transpose(-2, -1))
    off = of_weights - (widened(grad) * widened(out)).sum(-1, keepdim=True)
    of_scores = (weights * off * factor).to(query.dtype)
    of_query = of_scores @ keys
    of_key = of_scores.transpose(-2, -1) @ query
    of_value = weights.to(grad.dtype).transpose(-2, -1) @ grad
    if is_grouped:
        of_key, of_value = (
            x.reshape(x.shape[0], key.shape[1], groups, *x.shape[2:]).sum(2)
            for x in (of_key, of_value)
        )
    return of_query, of_key, of_value


def _flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """With sizes of the operand: torch-mlir divides the number of elements by the kept sizes."""
    if x.dim() == 0:
        return x.reshape(1)
    first, last = start_dim % x.dim(), end_dim % x.dim()
    joined = math.prod(x.shape[first : last + 1])
    return x.reshape([*x.shape[:first], joined, *x.shape[last + 1 :]])


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Of all elements of `x`: it gives sizes and type."""
    return source.to(x.dtype).expand(x.shape).clone()


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`x` with the elements of `source` at places of the flattened `x`."""
    flat = aten.index_put(x.flatten(), [index.flatten()], source.flatten(), accumulate)
    return flat.reshape(x.shape)


def _angle(x: Tensor) -> Tensor:
    """Of real numbers: pi where they are negative."""
    wide = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    return torch.where(wide < 0, torch.pi, torch.where(wide.isnan(), wide, 0.0))


def _with_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """An op of a tensor and a number as one of two tensors."""

    def rewritten(x: Tensor, number: Any) -> Any:
        kind = torch.result_type(x, number)
        return function(x.to(kind), torch.scalar_tensor(number, dtype=kind))

    return rewritten


def _starts_of_rows(rows: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """How many of the sorted `rows` lie before each row."""
    return torch.searchsorted(rows, torch.arange(size + 1, dtype=rows.dtype), out_int32=out_int32)


def _any(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """One dimension after the other: torch-mlir knows no way to name all of them."""
    found = x.to(torch.bool)
    for axis in sorted(_dims(x, dim), reverse=True) if x.dim() else ():
        found = aten.any.dim(found, axis, keepdim)
    return found.to(torch.uint8) if x.dtype is torch.uint8 else found  # as PyTorch has it


def _dropout(x: Tensor, p: float, train: bool | None) -> Tensor:
    """Of what is not drawn before: see :mod:`shlo_disc.torch.random_numbers`."""
    if train and p == 1:
        return x * 0.0  # so that infinity becomes NaN, as it does in PyTorch
    if train and p:
        raise UnsupportedError(
            "is random, at sizes or a probability that are data; call the model in eval mode, or "
            "pass the numbers as an argument"
        )
    return x.clone()


def _native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    kept = torch.zeros_like if train and p == 1 else torch.ones_like
    return _dropout(x, p, train), kept(x, dtype=torch.bool)


def _slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """Pieces of both; torch-mlir takes an open end for a size, and asks for as much memory."""
    axis = dim % x.dim()
    size, count = x.shape[axis], src.shape[axis]
    first = 0 if start is None else start
    first = first + size if statically_known_true(first < 0) else first
    if step == 1:
        last = first + count
        parts = [src]
        if not statically_known_true(first == 0):
            parts.insert(0, x.narrow(axis, 0, first))
        if not statically_known_true(last == size):
            parts.append(x.narrow(axis, last, size - last))
        return torch.cat(parts, axis)
    places = torch.arange(size) - first
    numbers = torch.div(places, step, rounding_mode="floor")
    is_written = (places % step == 0) & (numbers >= 0) & (numbers < count)
    shape = [-1 if k == axis else 1 for k in range(x.dim())]
    spread = src.index_select(axis, numbers.clamp(0, count - 1))
    return torch.where(is_written.reshape(shape), spread, x)


def _slice_backward(
    grad: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    """Zeros around `grad`, or between its elements."""
    axis, size = dim % grad.dim(), input_sizes[dim]
    if step == 1 and statically_known_true(grad.shape[axis] == size):
        return grad
    if step != 1:
        zeros = torch.zeros(input_sizes, dtype=grad.dtype)
        return _slice_scatter(zeros, grad, axis, start, end, step)
    first = start + size if statically_known_true(start < 0) else start
    pads = [0, 0] * (grad.dim() - 1 - axis)
    return aten.constant_pad_nd(grad, [*pads, first, size - first - grad.shape[axis]], 0)


def _split(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    parts, start = [], 0
    for size in split_sizes:
        parts.append(x.narrow(dim, start, size))
        start = start + size
    return parts


def _repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """A broadcast whose sizes are stated: torch-mlir divides numbers of elements.

    By ops that ask no question about sizes, as `reshape` and `expand` to a size do.
    """
    for _ in range(len(repeats) - x.dim()):
        x = x.unsqueeze(0)
    spread, sizes = [], []
    for k, times in enumerate(repeats):
        sizes.append(times * x.shape[2 * k])
        spread += [times, -1]
        x = x.unsqueeze(2 * k)
    return x.expand(spread).clone(memory_format=torch.contiguous_format).view(sizes)


def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **memory: Any) -> Tensor:
    """Zeros: any elements will do, and `memory` has no meaning in a functional program."""
    zero = torch.scalar_tensor(0, dtype=dtype or torch.get_default_dtype())
    return zero.expand(size).clone()  # which ops may write


def _clamp(x: Tensor, low: Tensor | None = None, high: Any = None) -> Tensor:
    """Of bounds of other ranks: torch-mlir's op of these ends the process."""
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


REWRITES: dict[Any, Callable[..., Any]] = {
    **BAGS,
    **CONVOLUTIONS,
    **ENCODERS,
    **GRADIENTS,
    **GRIDS,
    **INDEXED,
    **LINALG,
    **NUMBERS,
    **ORDERED,
    **POOLS,
    **SCALARS,
    **VIEWS,
    **WINDOWS,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _flash_attention_backward,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_inference,
    aten._convert_indices_from_coo_to_csr.default: _starts_of_rows,
    aten._efficientzerotensor.default: _empty,
    aten._neg_view.default: torch.neg,
    aten.angle.default: _angle,
    aten.any.dims: _any,
    aten.bitwise_or.Scalar: _with_number(torch.bitwise_or),
    aten.bitwise_xor.Scalar: _with_number(torch.bitwise_xor),
    aten.clamp.Tensor: _clamp,
    aten.clamp_max.Tensor: lambda x, high: _clamp(x, None, high),
    aten.clamp_min.Tensor: _clamp,
    aten.copy.default: _copy,
    aten.dropout.default: _dropout,
    aten.empty.memory_format: _empty,
    aten.empty_strided.default: lambda size, stride, **kwargs: _empty(size, **kwargs),
    aten.new_empty_strided.default: lambda x, size, stride, **kwargs: _empty(
        size, **{"dtype": x.dtype, **kwargs}
    ),
    aten.flatten.using_ints: _flatten,
    aten.instance_norm.default: instance_norm,
    aten.put.default: _put,
    aten.repeat.default: _repeat,
    aten.slice_scatter.default: _slice_scatter,
    aten.slice_backward.default: _slice_backward,
    aten.split_with_sizes.default: _split,
    aten.native_dropout.default: _native_dropout,
    aten.rms_norm.default: _rms_norm,
    aten.var.correction: lambda *args, **kwargs: _var_mean(*args, **kwargs)[0],
    aten.var_mean.correction: _var_mean,
}
"""Overload -> what it is traced from."""
