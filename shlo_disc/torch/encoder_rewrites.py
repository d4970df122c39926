"""Layers that PyTorch runs as one operation in inference: attention of `nn.MultiheadAttention`, and
`nn.TransformerEncoderLayer`.

    %y = aten._transformer_encoder_layer_fwd(%x, ...)    ==>    products, attention, norms

Source: ATen/native/transformers/attention.cpp and transformer.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten

_OF_SCORES, _OF_KEYS = 0, 1
"""What a mask is of: [queries, keys], or [batch, keys]. Others have the shape of the scores."""


def _masked(mask: Tensor, kind: int | None) -> Tensor:
    """True for scores that do not count, of rank 4; an additive mask is taken as PyTorch does."""
    mask = mask.to(torch.bool)
    if kind == _OF_SCORES:
        return mask[None, None]
    return mask[:, None, None] if kind == _OF_KEYS else mask


def _weights(q: Tensor, k: Tensor, masked: Tensor | None) -> Tensor:
    scores = (q * float(q.shape[-1]) ** -0.5) @ k.transpose(-2, -1)
    if masked is not None:
        scores = scores.masked_fill(masked, -torch.inf)
    return scores.softmax(-1)


def _attended(q: Tensor, k: Tensor, v: Tensor, masked: Tensor | None) -> Tensor:
    """NaN for a query all of whose keys are masked, as in PyTorch's operation."""
    if masked is None:
        return F.scaled_dot_product_attention(q, k, v)
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=~masked)
    return torch.where(masked.all(-1, keepdim=True), torch.nan, found)


def _heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def _joined(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The projection of all heads."""
    return F.linear(x.transpose(1, 2).flatten(2), weight, bias)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`aten._native_multi_head_attention`, of [batch, length, features]."""
    q, k, v = (
        _heads(F.linear(x, weight, bias), num_head)
        for x, weight, bias in zip(
            (query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True
        )
    )
    masked = None if mask is None else _masked(mask, mask_type)
    if not need_weights:
        return _joined(_attended(q, k, v, masked), proj_weight, proj_bias), None
    weights = _weights(q, k, masked)
    result = _joined(weights @ v, proj_weight, proj_bias)
    return result, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """`aten._transformer_encoder_layer_fwd`, of [batch, length, features]."""

    def attended(x: Tensor) -> Tensor:
        parts = F.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        q, k, v = (_heads(part, num_heads) for part in parts)
        masked = None if mask is None else _masked(mask, mask_type)
        return _joined(_attended(q, k, v, masked), proj_weight, proj_bias)

    def transformed(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    norms = ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    x = src
    for layer, own in zip((attended, transformed), norms, strict=True):
        if norm_first:
            x = x + layer(F.layer_norm(x, (embed_dim,), *own, eps))
        else:
            x = F.layer_norm(x + layer(x), (embed_dim,), *own, eps)
    return x


ENCODERS: dict[Any, Callable[..., Any]] = {
    aten._native_multi_head_attention.default: _attention,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}
"""Overload -> what it is traced from."""

OF_FEATURES = frozenset({_attention, _encoder_layer})
"""Functions whose last sizes weights determine: a call with others is refused, as by PyTorch."""
