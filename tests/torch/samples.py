"""A call of every core ATen op, at several sizes: what docs/torch-ops.md says of it is tried.

An op without a sample has a reason in `shlo_disc.torch.ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import Dim

aten = torch.ops.aten

Sample = tuple[Callable[..., Any], Callable[[int, int], tuple[Any, ...]], tuple[Any, ...]]
"""A function of tensors; its arguments for sizes `b` and `s`; their dynamic dimensions."""

B, S = Dim("b"), Dim("s", min=3)
BS = {0: B, 1: S}
SIZES = ((4, 6), (1, 5), (3, 7), (2, 16))


def normal(*shape):
    return torch.randn(shape)


def positive(*shape):
    return torch.rand(shape) + 0.1


def small(*shape):
    return torch.rand(shape) * 1.8 - 0.9


def numbers(*shape, low=-5, high=6):
    return torch.randint(low, high, shape)


def truths(*shape):
    return torch.rand(shape) < 0.5


def with_specials(*shape):
    x = torch.randn(shape)
    flat = x.view(-1)
    flat[0], flat[-1] = float("nan"), float("inf")
    return x


def one(op, make=normal, *more, **kwargs):
    return (lambda x: op(x, *more, **kwargs), lambda b, s: (make(b, s),), (BS,))


def two(op, first=normal, second=normal, **kwargs):
    return (
        lambda x, y: op(x, y, **kwargs),
        lambda b, s: (first(b, s), second(b, s)),
        (BS, BS),
    )


def pictures(op, *more, channels=4, **kwargs):
    """Of [b, channels, s + 6, 9]."""
    return (
        lambda x: op(x, *more, **kwargs),
        lambda b, s: (normal(b, channels, s + 6, 9),),
        ({0: B, 2: Dim("h", min=7)},),
    )


def volumes(op, *more, **kwargs):
    """Of [b, 4, s + 2, 5, 6]."""
    return (
        lambda x: op(x, *more, **kwargs),
        lambda b, s: (normal(b, 4, s + 2, 5, 6),),
        ({0: B, 2: Dim("d", min=5)},),
    )


SAMPLES: dict[str, Sample] = {
    **{f"{n}.default": one(getattr(aten, n)) for n in ["abs", "alias", "asinh", "atan", "ceil", "clone", "cos", "cosh", "elu", "erf", "exp", "expm1", "floor", "gelu", "hardtanh", "leaky_relu", "neg", "relu", "sigmoid", "sign", "sin", "sinh", "tan", "tanh", "trunc", "round", "logical_not", "reciprocal"]},
    **{f"{n}.default": one(getattr(aten, n), positive) for n in ["log", "log10", "log1p", "log2", "rsqrt", "sqrt"]},
    **{f"{n}.default": one(getattr(aten, n), small) for n in ["acos", "asin", "atanh"]},
    "acosh.default": one(aten.acosh, lambda *shape: positive(*shape) + 1),
    **{f"{n}.default": one(getattr(aten, n), with_specials) for n in ["isinf", "isnan"]},
    "bitwise_not.default": one(aten.bitwise_not, numbers),
    **{f"{n}.Tensor": two(getattr(aten, n), numbers, numbers) for n in ["bitwise_and", "bitwise_or", "bitwise_xor"]},
    **{f"{n}.Scalar": one(getattr(aten, n), numbers, 6) for n in ["bitwise_and", "bitwise_or", "bitwise_xor"]},
    **{f"{n}.Tensor": two(getattr(aten, n)) for n in ["add", "sub", "mul"]},
    **{f"{n}.Scalar": one(getattr(aten, n), normal, 2.5) for n in ["add", "sub", "mul", "div"]},
    "div.Tensor": two(aten.div, normal, positive),
    "div.Tensor_mode": two(aten.div, numbers, lambda *s: numbers(*s, low=1), rounding_mode="floor"),
    "div.Scalar_mode": one(aten.div, normal, 0.7, rounding_mode="trunc"),
    **{f"{n}.Tensor": two(getattr(aten, n), numbers, numbers) for n in ["eq", "ge", "gt", "le", "lt", "ne"]},
    **{f"{n}.Scalar": one(getattr(aten, n), numbers, 1) for n in ["eq", "ge", "gt", "le", "lt", "ne"]},
    **{f"{n}.default": two(getattr(aten, n)) for n in ["atan2", "maximum", "minimum"]},
    **{f"{n}.default": two(getattr(aten, n), truths, truths) for n in ["logical_and", "logical_or", "logical_xor"]},
    **{f"{n}.Tensor": two(getattr(aten, n), normal, positive) for n in ["fmod", "remainder"]},
    **{f"{n}.Scalar": one(getattr(aten, n), normal, 0.7) for n in ["fmod", "remainder"]},
    "pow.Scalar": one(lambda x: aten.pow(1.5, x)),
    "pow.Tensor_Scalar": one(aten.pow, normal, 3),
    "pow.Tensor_Tensor": two(aten.pow, positive, normal),
    "clamp.default": one(aten.clamp, normal, -0.5, 0.7),
    "clamp.Tensor": two(lambda x, y: aten.clamp(x, y - 1, y + 1)),
    "where.self": (lambda c, x, y: aten.where(c, x, y),
                   lambda b, s: (truths(b, s), normal(b, s), normal(b, s)), (BS, BS, BS)),
    "_softmax.default": one(aten._softmax, normal, 1, False),
    "_log_softmax.default": one(aten._log_softmax, normal, 0, False),
    "amax.default": one(aten.amax, normal, [1]),
    "amin.default": one(aten.amin, normal, [0], True),
    "any.default": one(aten.any, truths),
    "any.dim": one(aten.any, truths, 1),
    "any.dims": one(aten.any, truths, [0, 1], True),
    "argmax.default": one(aten.argmax, normal, 1),
    "argmin.default": one(aten.argmin, normal),
    "max.dim": one(aten.max, normal, 1),
    "min.dim": one(aten.min, normal, 0, True),
    "mean.default": one(aten.mean),
    "mean.dim": one(aten.mean, normal, [1]),
    "prod.default": one(aten.prod, small),
    "prod.dim_int": one(aten.prod, small, 1),
    "sum.dim_IntList": one(aten.sum, normal, [0], True),
    "var.correction": one(aten.var, lambda b, s: normal(b + 1, s), [0], correction=1),
    "var.dim": one(lambda x: aten.var.dim(x, [1], False)),
    "cumsum.default": one(aten.cumsum, normal, 1),
    "sort.default": one(aten.sort, normal, 1, True),
    "topk.default": one(aten.topk, normal, 3, 1),
    "arange.start_step": one(lambda x: aten.arange(1, 2 * x.shape[1], 2)),
    "full.default": one(lambda x: aten.full([x.shape[1], x.shape[0]], 2.5)),
    "full_like.default": one(aten.full_like, normal, 3),
    "fill.Scalar": one(aten.fill, normal, 3),
    "scalar_tensor.default": one(lambda x: aten.scalar_tensor(x.shape[0])),
    "_to_copy.default": one(lambda x: aten._to_copy(x, dtype=torch.int32)),
    "copy.default": two(aten.copy),
    "cat.default": two(lambda x, y: aten.cat([x, y, x], 1)),
    "constant_pad_nd.default": one(aten.constant_pad_nd, normal, [1, 2, 0, 3], 0.5),
    "diagonal.default": one(aten.diagonal, normal, 1),
    "expand.default": one(lambda x: aten.expand(x.unsqueeze(1), [-1, 3, -1])),
    "flip.default": one(aten.flip, normal, [1]),
    "permute.default": one(aten.permute, normal, [1, 0]),
    "repeat.default": one(aten.repeat, normal, [2, 1, 3]),
    "select.int": one(aten.select, normal, 1, -2),
    "select_scatter.default": (lambda x, y: aten.select_scatter(x, y, 1, 2),
                               lambda b, s: (normal(b, s), normal(b)), (BS, {0: B})),
    "slice.Tensor": (lambda x: aten.slice(x, 1, 1, -1, 2), lambda b, s: (normal(b, s + 4),),
                     ({0: B, 1: Dim("t", min=5)},)),
    "slice_scatter.default": (lambda x, y: aten.slice_scatter(x, y, 1, 1, 3),
                              lambda b, s: (normal(b, s), normal(b, 2)), (BS, {0: B})),
    "split_with_sizes.default": (lambda x: aten.split_with_sizes(x, [2, x.shape[1] - 2], 1),
                                 lambda b, s: (normal(b, s + 4),), ({0: B, 1: Dim("t", min=5)},)),
    "squeeze.dim": one(lambda x: aten.squeeze(x.unsqueeze(1), 1)),
    "squeeze.dims": one(lambda x: aten.squeeze(x.unsqueeze(1).unsqueeze(0), [0, 2])),
    "unsqueeze.default": one(aten.unsqueeze, normal, 1),
    "view.default": one(lambda x: aten.view(x, [x.shape[0] * x.shape[1]])),
    "as_strided.default": one(
        lambda x: aten.as_strided(x.t() * 2, [x.shape[0], x.shape[1] - 1], [x.shape[1], 1], 1)),
    "rand.default": one(lambda x: x + aten.rand([x.shape[1]])),
    "randn.default": one(lambda x: x + aten.randn([x.shape[1]])),
    "randperm.default": one(lambda x: x.sum() + aten.randperm(x.shape[1])),
    "native_dropout.default": one(lambda x: aten.native_dropout(x, 0.5, True)[0]),
    "sym_is_contiguous.default": one(lambda x: x * aten.sym_is_contiguous(x)),
    "_fft_r2c.default": one(lambda x: aten._fft_r2c(x, [0, 1], 2, True).abs()),
    "_fft_c2r.default": one(
        lambda x: aten._fft_c2r(torch.complex(x, x.cos()), [0, 1], 1, 2 * x.shape[1] - 1)),
    "sym_size.int": one(lambda x: x * x.shape[1]),
    "sym_numel.default": one(lambda x: x * x.numel()),
    "sym_stride.int": one(lambda x: x * x.stride(0)),
    "sym_storage_offset.default": one(lambda x: x * (x.storage_offset() + 1)),
    "mm.default": (aten.mm, lambda b, s: (normal(b, s), normal(s, 5)), (BS, {0: S})),
    "bmm.default": (aten.bmm, lambda b, s: (normal(b, s, 4), normal(b, 4, s)), (BS, {0: B, 2: S})),
    "addmm.default": (aten.addmm, lambda b, s: (normal(5), normal(b, s), normal(s, 5)),
                      ({}, BS, {0: S})),
    "_cdist_forward.default": (lambda x, y: aten._cdist_forward(x, y, 2.0, None),
                               lambda b, s: (normal(b, 5), normal(s, 5)), ({0: B}, {0: S})),
    "_pdist_forward.default": (aten._pdist_forward, lambda b, s: (normal(4, s),), ({1: S},)),
    "embedding.default": (aten.embedding, lambda b, s: (normal(9, 4), numbers(b, s, low=0, high=9)),
                          ({}, BS)),
    "embedding_dense_backward.default": (
        lambda g, i: aten.embedding_dense_backward(g, i, 9, -1, False),
        lambda b, s: (normal(b, s, 4), numbers(b, s, low=0, high=9)), (BS, BS)),
    "gather.default": (lambda x, i: aten.gather(x, 1, i),
                       lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4)), (BS, {0: B})),
    "index.Tensor": (lambda x, i: aten.index(x, [i, None]),
                     lambda b, s: (normal(9, s), numbers(b, low=0, high=9)), ({1: S}, {0: B})),
    "index_select.default": (lambda x, i: aten.index_select(x, 1, i),
                             lambda b, s: (normal(b, s), numbers(3, low=0, high=4)), (BS, {})),
    "index_put.default": (lambda x, i, v: aten.index_put(x, [i], v, True),
                          lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)),
                          ({1: S}, {0: B}, BS)),
    "scatter.src": (lambda x, i, v: aten.scatter(x, 1, i, v),
                    lambda b, s: (normal(b, s), torch.arange(3).repeat(b, 1), normal(b, 3)),
                    (BS, {0: B}, {0: B})),
    "scatter.value": (lambda x, i: aten.scatter(x, 1, i, 2.0),
                      lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4)), (BS, {0: B})),
    "scatter_add.default": (lambda x, i, v: aten.scatter_add(x, 1, i, v),
                            lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4), normal(b, 3)),
                            (BS, {0: B}, {0: B})),
    "scatter_reduce.two": (lambda x, i, v: aten.scatter_reduce(x, 1, i, v, "amax"),
                           lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4), normal(b, 3)),
                           (BS, {0: B}, {0: B})),
    "masked_scatter.default": (aten.masked_scatter,
                               lambda b, s: (normal(b, s), truths(b, s), normal(b, s)),
                               (BS, BS, BS)),
    "convolution.default": pictures(
        lambda x, w: aten.convolution(x, w, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1),
        torch.ones(5, 4, 3, 3) / 9),
    "convolution_backward.default": pictures(
        lambda x, w: aten.convolution_backward(
            aten.convolution(x, w, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1), x, w, [5],
            [2, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]),
        torch.ones(5, 4, 3, 3) / 9),
    "adaptive_avg_pool1d.default": one(lambda x: aten.adaptive_avg_pool1d(x.unsqueeze(1), [1])),
    "avg_pool1d.default": (lambda x: aten.avg_pool1d(x, [2]), lambda b, s: (normal(b, 3, 8),), ({0: B},)),
    "avg_pool2d.default": pictures(aten.avg_pool2d, [2, 2]),
    "avg_pool2d_backward.default": pictures(
        lambda x: aten.avg_pool2d_backward(
            aten.avg_pool2d(x, [2, 2]), x, [2, 2], [], [0, 0], False, True, None)),
    "max_pool2d_with_indices.default": pictures(aten.max_pool2d_with_indices, [2, 2], [2, 2]),
    "max_pool2d_with_indices_backward.default": pictures(
        lambda x: aten.max_pool2d_with_indices_backward(
            aten.max_pool2d(x, [2, 2], [2, 2]), x, [2, 2], [2, 2], [0, 0], [1, 1], False,
            aten.max_pool2d_with_indices(x, [2, 2], [2, 2])[1])),
    "_adaptive_avg_pool2d.default": pictures(aten._adaptive_avg_pool2d, [1, 1]),
    "_adaptive_avg_pool2d_backward.default": pictures(
        lambda x: aten._adaptive_avg_pool2d_backward(aten._adaptive_avg_pool2d(x, [1, 1]), x)),
    "_native_batch_norm_legit.default": pictures(
        lambda x: aten._native_batch_norm_legit(
            x, None, None, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5)),
    "_native_batch_norm_legit.no_stats": pictures(
        lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)),
    "_native_batch_norm_legit_no_training.default": pictures(
        lambda x: aten._native_batch_norm_legit_no_training(
            x, None, None, torch.zeros(4), torch.ones(4) * 2, 0.1, 1e-5)[0]),
    "native_group_norm.default": pictures(
        lambda x: aten.native_group_norm(x, None, None, x.shape[0], 4, x.shape[2] * 9, 2, 1e-5)),
    "native_layer_norm.default": pictures(lambda x: aten.native_layer_norm(x, [9], None, None, 1e-5)),
    "native_layer_norm_backward.default": pictures(
        lambda x: aten.native_layer_norm_backward(
            x, x, [9], *aten.native_layer_norm(x, [9], None, None, 1e-5)[1:], None, None,
            [True, False, False])[0]),
    "native_group_norm_backward.default": pictures(
        lambda x: aten.native_group_norm_backward(
            x, x, *aten.native_group_norm(x, None, None, x.shape[0], 4, x.shape[2] * 9, 2, 1e-5)[1:],
            None, x.shape[0], 4, x.shape[2] * 9, 2, [True, False, False])[0]),
    "reflection_pad1d.default": pictures(aten.reflection_pad2d, [1, 2, 0, 0]),
    "reflection_pad2d.default": pictures(aten.reflection_pad2d, [1, 2, 3, 0]),
    "replication_pad2d.default": pictures(aten.replication_pad2d, [1, 2, 3, 0]),
    "upsample_nearest2d.vec": pictures(
        lambda x: aten.upsample_nearest2d.vec(x, None, [2.0, 2.0])),
    "upsample_bilinear2d.vec": pictures(
        lambda x: aten.upsample_bilinear2d.vec(x, None, False, [2.0, 2.0])),
    "grid_sampler_2d.default": (
        lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False),
        lambda b, s: (normal(b, 3, s, 6), small(b, 4, 5, 2)), ({0: B, 2: S}, {0: B})),
    "col2im.default": (lambda x: aten.col2im(x, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
                       lambda b, s: (normal(b, 8, 12),), ({0: B},)),
    "nonzero.default": one(aten.nonzero, truths),
    "_local_scalar_dense.default": one(lambda x: x * x.sum().item()),
    "avg_pool3d.default": volumes(aten.avg_pool3d, [2, 2, 3], [1, 2, 2], [1, 0, 1]),
    "max_pool3d_with_indices.default": volumes(
        aten.max_pool3d_with_indices, [2, 2, 3], [1, 2, 2], [1, 0, 1]),
    "_adaptive_avg_pool3d.default": volumes(aten._adaptive_avg_pool3d, [1, 1, 1]),
    "reflection_pad3d.default": volumes(aten.reflection_pad3d, [1, 2, 3, 0, 1, 1]),
    "replication_pad3d.default": volumes(aten.replication_pad3d, [1, 2, 3, 0, 1, 1]),
    "empty.memory_format": one(
        lambda x: aten.empty([x.shape[1], 3], dtype=torch.int32) * 0 + x.sum()),
    "empty_strided.default": one(
        lambda x: aten.empty_strided([x.shape[1], 3], [1, 99], dtype=torch.int32) * 0 + x.sum()),
    "_embedding_bag.default": (
        lambda w, i, o: aten._embedding_bag(w, i, o, False, 1)[0],
        lambda b, s: (normal(9, 4), numbers(3 * s, low=0, high=9), torch.arange(b) * 2),
        ({}, {0: Dim.AUTO}, {0: B})),
}  # fmt: skip
