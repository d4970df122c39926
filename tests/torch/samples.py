"""A call of every core ATen op and of those that libraries use, at several sizes.

What docs/torch-ops.md says of an op is tried; one without a sample has a reason in `ops.py` here.
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


def written(op, *more, make=normal, **kwargs):
    """An op that writes its operand."""
    return one(lambda x: op(x.clone(), *more, **kwargs), make)


def written_by(op, first=normal, second=normal, **kwargs):
    return two(lambda x, y: op(x.clone(), y, **kwargs), first, second)


def labels(b, s):
    return numbers(b, low=0, high=3)


def complex_numbers(*shape):
    return torch.complex(torch.randn(shape), torch.randn(shape))


def matrices(b, s):
    """Of 3 times 3, well-conditioned."""
    return torch.randn(b, 3, 3) + 3 * torch.eye(3)


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
    "pow.Tensor_Scalar": one(lambda x: aten.pow(x, 3)),
    "pow.Tensor_Tensor": two(aten.pow, positive, normal),
    "clamp.default": one(aten.clamp, normal, -0.5, 0.7),
    "clamp.Tensor": two(lambda x, y: aten.clamp(x, y - 1, y + 1)),
    "resize_.default": one(lambda x: aten.resize_(torch.empty(0), x.shape).copy_(x) + 1),
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
    "select.int": one(lambda x: aten.select(x, 1, -2) * 2),
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
"""Of core ops."""

OF_LIBRARIES: dict[str, Sample] = {
    # numbers
    **{f"{n}.default": one(getattr(aten, n)) for n in ["square", "relu6", "silu", "mish", "softplus", "hardswish", "hardsigmoid", "log_sigmoid", "erfc", "frac", "isfinite", "isneginf", "isposinf", "negative", "selu", "sinc", "exp2", "sgn", "positive", "absolute", "special_erfcx", "nan_to_num", "deg2rad", "rad2deg", "detach", "lift_fresh", "contiguous", "real", "conj"]},
    **{f"{n}.default": one(getattr(aten, n), positive) for n in ["lgamma", "digamma"]},
    **{f"{n}.default": one(getattr(aten, n), small) for n in ["erfinv", "logit", "arccos", "arctanh", "special_i0e", "i0"]},
    **{f"{n}_.default": written(getattr(aten, f"{n}_")) for n in ["abs", "cos", "exp", "neg", "relu", "sigmoid", "sin", "tanh", "zero", "silu", "hardtanh", "hardswish", "hardsigmoid", "mish", "floor", "round", "ceil", "erf", "leaky_relu", "elu", "relu6", "gelu", "nan_to_num", "square"]},
    **{f"{n}_.default": written(getattr(aten, f"{n}_"), make=positive) for n in ["log", "rsqrt", "sqrt", "reciprocal", "log1p"]},
    **{f"{n}_.default": written(getattr(aten, f"{n}_"), make=small) for n in ["erfinv"]},
    **{f"{n}_.Tensor": written_by(getattr(aten, f"{n}_")) for n in ["add", "sub", "mul"]},
    "div_.Tensor": written_by(aten.div_, normal, positive),
    **{f"{n}_.Scalar": written(getattr(aten, f"{n}_"), 2.5) for n in ["add", "sub", "mul", "div", "fill", "eq", "ne", "lt", "gt"]},
    **{f"bitwise_{n}_.Tensor": written_by(getattr(aten, f"bitwise_{n}_"), truths, truths) for n in ["and", "or", "xor"]},
    **{f"__{n}__.Tensor": two(getattr(aten, f"__{n}__"), truths, truths) for n in ["and", "or", "xor"]},
    "__and__.Scalar": one(aten.__and__, numbers, 3),
    "__rshift__.Scalar": one(aten.__rshift__, numbers, 1),
    "__lshift__.Scalar": one(aten.__lshift__, numbers, 1),
    "bitwise_right_shift.Tensor": two(aten.bitwise_right_shift, numbers, lambda *s: numbers(*s, low=0)),
    **{f"logical_{n}_.default": written_by(getattr(aten, f"logical_{n}_"), truths, truths) for n in ["and", "or"]},
    "detach_.default": written(aten.detach_),
    "dropout_.default": written(aten.dropout_, 0.3, True),
    "fill_.Tensor": written(lambda x: aten.fill_(x, torch.tensor(2.0))),
    "lift_fresh_copy.default": one(aten.lift_fresh_copy),
    "new_empty_strided.default": one(lambda x: aten.new_empty_strided(x, [x.shape[1], 3], [3, 1], dtype=torch.int32) * 0),
    "clamp_.default": written(aten.clamp_, -0.5, 0.7),
    "clamp_min.default": one(aten.clamp_min, normal, 0.1),
    "clamp_max.default": one(aten.clamp_max, normal, 0.1),
    "clamp_min_.default": written(aten.clamp_min_, 0.1),
    "clamp_max_.default": written(aten.clamp_max_, 0.1),
    "clip.default": one(aten.clip, normal, -0.5, 0.7),
    "clamp_min.Tensor": two(aten.clamp_min),
    "clamp_max.Tensor": two(aten.clamp_max),
    "rsub.Scalar": one(aten.rsub, normal, 2.0),
    "rsub.Tensor": two(aten.rsub),
    "subtract.Tensor": two(aten.subtract),
    "multiply.Tensor": two(aten.multiply),
    "divide.Tensor": two(aten.divide, normal, positive),
    "true_divide.Tensor": two(aten.true_divide, normal, positive),
    "floor_divide.default": two(aten.floor_divide, numbers, lambda *s: numbers(*s, low=1)),
    "floor_divide.Scalar": one(aten.floor_divide, numbers, 3),
    "div_.Tensor_mode": two(lambda x, y: aten.div_(x.clone(), y, rounding_mode="floor"), normal, positive),
    "remainder_.Scalar": written(aten.remainder_, 0.7),
    "lerp.Scalar": two(lambda x, y: aten.lerp(x, y, 0.3)),
    "lerp.Tensor": two(lambda x, y: aten.lerp(x, y, x * y)),
    "addcmul.default": two(lambda x, y: aten.addcmul(x, x, y, value=0.5)),
    "addcdiv.default": two(lambda x, y: aten.addcdiv(x, x, y, value=0.5), normal, positive),
    "addcmul_.default": two(lambda x, y: aten.addcmul_(x.clone(), x, y, value=0.5)),
    "logaddexp.default": two(aten.logaddexp),
    "logaddexp2.default": two(aten.logaddexp2),
    "hypot.default": two(aten.hypot),
    "xlogy.Tensor": two(aten.xlogy, normal, positive),
    "copysign.Tensor": two(aten.copysign),
    "heaviside.default": two(aten.heaviside),
    "max.other": two(aten.max),
    "min.other": two(aten.min),
    "fmax.default": two(aten.fmax, with_specials),
    "fmin.default": two(aten.fmin, with_specials),
    "greater.Tensor": two(aten.greater),
    "isclose.default": two(aten.isclose),
    "pow_.Scalar": written(lambda x: aten.pow_(x, 2)),
    "float_power.Tensor_Scalar": one(aten.float_power, positive, 1.5),
    "threshold.default": one(aten.threshold, normal, 0.1, 0.0),
    "celu.default": one(aten.celu),
    "glu.default": one(lambda x: aten.glu(torch.cat([x, x * 2], -1), -1)),
    "_prelu_kernel.default": two(aten._prelu_kernel),
    "prelu.default": one(lambda x: aten.prelu(x, torch.tensor([0.2]))),
    "rrelu_with_noise.default": two(lambda x, y: aten.rrelu_with_noise(x, y.detach(), 0.1, 0.3, False)),
    "log_sigmoid_forward.default": one(lambda x: aten.log_sigmoid_forward(x)[0]),
    "polar.default": two(aten.polar, positive),
    "complex.default": two(aten.complex),
    "view_as_real.default": one(aten.view_as_real, complex_numbers),
    "view_as_complex.default": one(lambda x: aten.view_as_complex(torch.stack([x, x.sin()], -1))),
    "imag.default": one(lambda x: aten.imag(x) + 0, complex_numbers),
    "_conj.default": one(lambda x: aten._conj(x) * 1, complex_numbers),
    "_conj_physical.default": one(aten._conj_physical, complex_numbers),
    "resolve_conj.default": one(aten.resolve_conj, complex_numbers),
    "angle.default": one(aten.angle, complex_numbers),
    # gradients
    **{f"{n}_backward.default": two(getattr(aten, f"{n}_backward")) for n in ["gelu", "silu", "hardswish", "hardsigmoid", "mish", "tanh", "sigmoid"]},
    "threshold_backward.default": two(lambda g, x: aten.threshold_backward(g, x, 0)),
    "hardtanh_backward.default": two(lambda g, x: aten.hardtanh_backward(g, x, 0.0, 6.0)),
    "leaky_relu_backward.default": two(lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False)),
    "elu_backward.default": two(lambda g, x: aten.elu_backward(g, 1.0, 1, 1, False, x)),
    "softplus_backward.default": two(lambda g, x: aten.softplus_backward(g, x, 1, 20)),
    "log_sigmoid_backward.default": two(lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1])),
    "logit_backward.default": two(lambda g, x: aten.logit_backward(g, x, 0.01), normal, lambda *s: torch.rand(s)),
    "glu_backward.default": two(lambda g, x: aten.glu_backward(g, torch.cat([x, x * 2], -1), -1)),
    "_prelu_kernel_backward.default": (aten._prelu_kernel_backward, lambda b, s: (normal(b, s), normal(b, s), normal(b, s)), (BS, BS, BS)),
    "_softmax_backward_data.default": two(lambda g, x: aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32)),
    "_log_softmax_backward_data.default": two(lambda g, x: aten._log_softmax_backward_data(g, x.log_softmax(1), 1, torch.float32)),
    "mse_loss_backward.default": two(lambda x, y: aten.mse_loss_backward(torch.tensor(1.0), x, y, 1)),
    "smooth_l1_loss_backward.default": two(lambda x, y: aten.smooth_l1_loss_backward(torch.tensor(1.0), x, y, 1, 1.0)),
    "huber_loss_backward.default": two(lambda x, y: aten.huber_loss_backward(torch.tensor(1.0), x, y, 1, 0.7)),
    "binary_cross_entropy_backward.default": two(lambda x, y: aten.binary_cross_entropy_backward(torch.tensor(1.0), x.sigmoid(), y.sigmoid())),
    "select_backward.default": (lambda g, x: aten.select_backward(g, x.shape, 1, 2), lambda b, s: (normal(b), normal(b, s)), ({0: B}, BS)),
    "slice_backward.default": (lambda g, x: aten.slice_backward(g, x.shape, 1, 1, 3, 1), lambda b, s: (normal(b, 2), normal(b, s)), ({0: B}, BS)),
    "diagonal_backward.default": one(lambda x: aten.diagonal_backward(aten.diagonal(x), x.shape, 0, 0, 1)),
    "unfold_backward.default": one(lambda x: aten.unfold_backward(x.unfold(1, 2, 1), x.shape, 1, 2, 1)),
    "value_selecting_reduction_backward.default": (lambda g, x: aten.value_selecting_reduction_backward(g, 1, x.argmax(1), x.shape, False), lambda b, s: (normal(b), normal(b, s)), ({0: B}, BS)),
    "trace.default": one(aten.trace),
    # reductions
    **{f"{n}.default": one(getattr(aten, n)) for n in ["sum", "max", "min", "std", "var"]},
    "logcumsumexp.default": one(aten.logcumsumexp, normal, 1),
    "all.default": one(aten.all, truths),
    "all.dim": one(aten.all, truths, 1),
    "aminmax.default": one(lambda x: aten.aminmax(x, dim=1)),
    "logsumexp.default": one(aten.logsumexp, normal, [1]),
    "linalg_vector_norm.default": one(aten.linalg_vector_norm, normal, 2, [1]),
    "norm.Scalar": one(aten.norm),
    "std.correction": one(aten.std, normal, [1], correction=0),
    "std.dim": one(lambda x: aten.std.dim(x, [1], False)),
    "std_mean.correction": one(aten.std_mean, normal, [1], correction=0),
    "var_mean.correction": one(lambda x: aten.var_mean(x, [1], correction=0)),
    "var_mean.dim": one(lambda x: aten.var_mean.dim(x, [1], False)),
    "count_nonzero.default": one(aten.count_nonzero, numbers),
    "cumprod.default": one(aten.cumprod, small, 1),
    "cummax.default": one(aten.cummax, normal, 1),
    "median.default": one(aten.median),
    "median.dim": one(aten.median, normal, 1),
    "mode.default": one(aten.mode, numbers, 1),
    "nansum.default": one(lambda x: aten.nansum(x.sqrt())),
    "nanmean.default": one(lambda x: aten.nanmean(x.sqrt(), [1])),
    "kthvalue.default": one(aten.kthvalue, normal, 2, 1),
    "quantile.default": (lambda x: aten.quantile(x, torch.tensor([0.2, 0.7]), 1), lambda b, s: (normal(b, 7),), ({0: B},)),
    "quantile.scalar": (lambda x: aten.quantile(x, 0.3, 1), lambda b, s: (normal(b, 7),), ({0: B},)),
    "argsort.default": one(aten.argsort, normal, 1),
    "argsort.stable": one(lambda x: aten.argsort(x, stable=True, dim=1), numbers),
    "sort.stable": one(lambda x: aten.sort(x, stable=True, dim=1, descending=True), numbers),
    "diff.default": one(aten.diff),
    "softmax.int": one(aten.softmax, normal, -1),
    "log_softmax.int": one(aten.log_softmax, normal, 1),
    "_safe_softmax.default": one(aten._safe_softmax, normal, 1),
    "dot.default": (aten.dot, lambda b, s: (normal(s), normal(s)), ({0: S}, {0: S})),
    "mv.default": (aten.mv, lambda b, s: (normal(b, s), normal(s)), (BS, {0: S})),
    "addmv.default": (aten.addmv, lambda b, s: (normal(b), normal(b, s), normal(s)), ({0: B}, BS, {0: S})),
    "outer.default": (aten.outer, lambda b, s: (normal(b), normal(s)), ({0: B}, {0: S})),
    "addr.default": (lambda x, y: aten.addr(torch.zeros(()), x, y), lambda b, s: (normal(b), normal(s)), ({0: B}, {0: S})),
    "matmul.default": (aten.matmul, lambda b, s: (normal(b, 2, s), normal(s, 3)), ({0: B, 2: S}, {0: S})),
    "baddbmm.default": (lambda x, y: aten.baddbmm(torch.ones(1, 1, 4), x, y, beta=0.5, alpha=2), lambda b, s: (normal(b, s, 3), normal(b, 3, 4)), (BS, {0: B})),
    "addbmm.default": (lambda x, y: aten.addbmm(torch.ones(1, 4), x, y), lambda b, s: (normal(b, s, 3), normal(b, 3, 4)), (BS, {0: B})),
    "linear.default": one(lambda x: aten.linear(x.unsqueeze(-1), torch.ones(3, 1) * 0.5, torch.ones(3))),
    "einsum.default": two(lambda x, y: aten.einsum("bs,bt->st", [x, y])),
    "linalg_cross.default": one(lambda x: aten.linalg_cross(x[:, :3], x[:, :3].cos() + 1)),
    "cdist.default": (aten.cdist, lambda b, s: (normal(b, 5), normal(s, 5)), ({0: Dim.AUTO}, {0: Dim.AUTO})),
    "_cdist_backward.default": (lambda x, y: aten._cdist_backward(torch.ones(x.shape[0], y.shape[0]), x, y, 2.0, aten._cdist_forward(x, y, 2.0, None)), lambda b, s: (normal(b, 5), normal(s, 5)), ({0: B}, {0: S})),
    "_euclidean_dist.default": (aten._euclidean_dist, lambda b, s: (normal(b, 5), normal(s, 5)), ({0: B}, {0: S})),
    "cosine_similarity.default": two(aten.cosine_similarity),
    "pairwise_distance.default": two(aten.pairwise_distance),
    # shapes
    **{f"{n}.default": one(getattr(aten, n)) for n in ["t", "numpy_T", "ravel", "fliplr", "flipud", "rot90", "triu", "tril", "ones_like", "zeros_like"]},
    "squeeze.default": one(lambda x: aten.squeeze(x.unsqueeze(1)), lambda b, s: normal(b + 1, s)),
    "triu_.default": written(aten.triu_, 1),
    "tril_.default": written(aten.tril_),
    "transpose.int": one(aten.transpose, normal, 0, 1),
    "swapaxes.default": one(aten.swapaxes, normal, 0, 1),
    "movedim.int": one(aten.movedim, normal, 0, 1),
    "movedim.intlist": one(aten.movedim, normal, [0, 1], [1, 0]),
    "reshape.default": one(lambda x: aten.reshape(x, [-1])),
    "reshape_as.default": one(lambda x: aten.reshape_as(x, x.t())),
    "_unsafe_view.default": one(lambda x: aten._unsafe_view(x, [x.shape[1] * x.shape[0], 1])),
    "_reshape_alias.default": one(lambda x: aten._reshape_alias(x, [x.shape[0] * x.shape[1]], [1])),
    "view_as.default": one(lambda x: aten.view_as(x.flatten(), x)),
    "view.dtype": one(lambda x: aten.view.dtype(x, torch.int32)),
    "flatten.using_ints": one(aten.flatten),
    "unflatten.int": one(lambda x: aten.unflatten(x, 1, [1, -1])),
    "expand_as.default": two(lambda x, y: aten.expand_as(x[:1], y)),
    "broadcast_to.default": one(lambda x: aten.broadcast_to(x, [2, x.shape[0], x.shape[1]])),
    "stack.default": two(lambda x, y: aten.stack([x, y], 1)),
    "concat.default": two(lambda x, y: aten.concat([x, y], 1)),
    "hstack.default": two(lambda x, y: aten.hstack([x, y])),
    "vstack.default": two(lambda x, y: aten.vstack([x, y])),
    "column_stack.default": two(lambda x, y: aten.column_stack([x, y])),
    "meshgrid.indexing": (lambda x, y: aten.meshgrid([x, y], indexing="ij"), lambda b, s: (normal(b), normal(s)), ({0: B}, {0: S})),
    "broadcast_tensors.default": (lambda x, y: aten.broadcast_tensors([x[:, None], y]), lambda b, s: (normal(b), normal(s)), ({0: B}, {0: S})),
    "chunk.default": one(lambda x: aten.chunk(torch.cat([x, x], 1), 2, 1)),
    "split.Tensor": one(lambda x: aten.split(x[:, :3].repeat(1, 2), 3, 1)),
    "split.sizes": one(lambda x: aten.split.sizes(x, [1, x.shape[1] - 1], 1)),
    "tensor_split.sections": one(lambda x: aten.tensor_split(x.repeat(1, 2), 2, 1)),
    "unsafe_split.Tensor": one(lambda x: aten.unsafe_split(x[:, :3].repeat(1, 2), 3, 1)),
    "unsafe_chunk.default": one(lambda x: aten.unsafe_chunk(torch.cat([x, x], 1), 2, 1)),
    "unbind.int": pictures(lambda x: [y * 2 for y in aten.unbind(x, 1)]),
    "narrow.default": one(aten.narrow, normal, 1, 1, 2),
    "roll.default": one(aten.roll, normal, [1, 2], [0, 1]),
    "diag_embed.default": one(aten.diag_embed),
    "diag.default": one(aten.diag),
    "diagonal_scatter.default": one(lambda x: aten.diagonal_scatter(x, aten.diagonal(x) * 2)),
    "tile.default": one(aten.tile, normal, [2, 1, 2]),
    "repeat_interleave.self_int": one(aten.repeat_interleave, normal, 3, 1),
    "repeat_interleave.self_Tensor": one(lambda x: aten.repeat_interleave(x, (x[:, 0] > 0).long() + 1, 0)),
    "repeat_interleave.Tensor": one(lambda x: aten.repeat_interleave.Tensor(x[:, 0]), lambda *s: numbers(*s, low=0, high=3)),
    "pad.default": one(aten.pad, normal, [1, 2], "constant", 0.5),
    "unfold.default": one(aten.unfold, normal, 1, 2, 1),
    "im2col.default": pictures(aten.im2col, [2, 2], [1, 1], [0, 0], [1, 1]),
    "pixel_shuffle.default": pictures(aten.pixel_shuffle, 2),
    "channel_shuffle.default": pictures(aten.channel_shuffle, 2),
    "copy_.default": two(lambda x, y: aten.copy_(x.clone(), y)),
    "squeeze_.dim": one(lambda x: aten.squeeze_(x.unsqueeze(1).clone(), 1)),
    "unsqueeze_.default": written(aten.unsqueeze_, 1),
    "transpose_.default": written(aten.transpose_, 0, 1),
    "t_.default": written(aten.t_),
    "type_as.default": two(aten.type_as, numbers),
    "resolve_neg.default": one(aten.resolve_neg),
    "to.device": one(lambda x: aten.to.device(x, torch.device("cpu"), torch.float64)),
    "to.dtype": one(lambda x: aten.to.dtype(x, torch.float64)),
    "to.dtype_layout": one(lambda x: aten.to.dtype_layout(x, dtype=torch.float64, layout=torch.strided, device=torch.device("cpu"))),
    # made
    "ones.default": one(lambda x: aten.ones([x.shape[1], 2])),
    "zeros.default": one(lambda x: aten.zeros([x.shape[1], 2])),
    "eye.default": one(lambda x: aten.eye(x.shape[1])),
    "eye.m": one(lambda x: aten.eye(x.shape[1], x.shape[0])),
    "arange.default": one(lambda x: aten.arange(x.shape[1])),
    "arange.start": one(lambda x: aten.arange(1, x.shape[1])),
    "linspace.default": one(lambda x: aten.linspace(0, 1, x.shape[1])),
    "logspace.default": one(lambda x: aten.logspace(0, 1, x.shape[1])),
    "new_ones.default": one(lambda x: aten.new_ones(x, [x.shape[1]])),
    "new_zeros.default": one(lambda x: aten.new_zeros(x, [x.shape[1]])),
    "new_full.default": one(lambda x: aten.new_full(x, [x.shape[1]], 2.0)),
    "new_empty.default": one(lambda x: aten.new_empty(x, [x.shape[1]], dtype=torch.int32) * 0),
    "empty_like.default": one(lambda x: aten.empty_like(x, dtype=torch.int32) * 0),
    "tril_indices.default": one(lambda x: aten.tril_indices(x.shape[1], x.shape[1])),
    "triu_indices.default": one(lambda x: aten.triu_indices(x.shape[1], x.shape[1], 1)),
    "hann_window.default": one(lambda x: x * aten.hann_window(x.shape[1])),
    "rand_like.default": one(aten.rand_like),
    "randn_like.default": one(aten.randn_like),
    "randint.low": one(lambda x: aten.randint.low(1, 5, [x.shape[1]])),
    "randint.default": one(lambda x: aten.randint(5, [x.shape[1]])),
    "randint_like.default": one(aten.randint_like, normal, 5),
    "bernoulli.default": one(lambda x: aten.bernoulli(x.sigmoid())),
    "bernoulli.p": one(aten.bernoulli, normal, 0.3),
    "bernoulli_.float": written(aten.bernoulli_, 0.3),
    "dropout.default": one(aten.dropout, normal, 0.3, True),
    "uniform_.default": written(aten.uniform_),
    "normal_.default": written(aten.normal_),
    "exponential_.default": written(aten.exponential_),
    "randn.generator": one(lambda x: x + aten.randn.generator(x.shape, generator=torch.Generator().manual_seed(1))),
    "set_.source_Storage": one(lambda x: torch.empty(0).set_(x.untyped_storage()) + 1),
    "set_.source_Storage_storage_offset": one(lambda x: torch.empty(0).set_(x.untyped_storage(), 1, [2, x.shape[0]]) + 1),
    "multinomial.default": one(lambda x: aten.multinomial(x, 2), positive),
    # places
    "take.default": one(lambda x: aten.take(x, torch.tensor([0, 2, 1]))),
    "take_along_dim.default": (lambda x, i: aten.take_along_dim(x, i, 1), lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4)), (BS, {0: B})),
    "index_add.default": (lambda x, i, v: aten.index_add(x, 0, i, v), lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)), ({1: S}, {0: B}, BS)),
    "index_add_.default": (lambda x, i, v: aten.index_add_(x.clone(), 0, i, v), lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)), ({1: S}, {0: B}, BS)),
    "index_copy.default": (lambda x, i, v: aten.index_copy(x, 0, i, v), lambda b, s: (normal(9, s), torch.randperm(9)[:b], normal(b, s)), ({1: S}, {0: B}, BS)),
    "index_copy_.default": (lambda x, i, v: aten.index_copy_(x.clone(), 0, i, v), lambda b, s: (normal(9, s), torch.randperm(9)[:b], normal(b, s)), ({1: S}, {0: B}, BS)),
    "index_fill.int_Scalar": (lambda x, i: aten.index_fill(x, 0, i, 2.0), lambda b, s: (normal(9, s), numbers(b, low=0, high=9)), ({1: S}, {0: B})),
    "index_fill_.int_Scalar": (lambda x, i: aten.index_fill_(x.clone(), 0, i, 2.0), lambda b, s: (normal(9, s), numbers(b, low=0, high=9)), ({1: S}, {0: B})),
    "index_put_.default": (lambda x, i, v: aten.index_put_(x.clone(), [i], v, True), lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)), ({1: S}, {0: B}, BS)),
    "_unsafe_index.Tensor": (lambda x, i: aten._unsafe_index(x, [None, i]), lambda b, s: (normal(b, s), numbers(b, low=0, high=3)), (BS, {0: B})),
    "_unsafe_index_put.default": (lambda x, i, v: aten._unsafe_index_put(x, [i], v, True), lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)), ({1: S}, {0: B}, BS)),
    "index_reduce.default": (lambda x, i, v: aten.index_reduce(x, 0, i, v, "amax"), lambda b, s: (normal(9, s), numbers(b, low=0, high=9), normal(b, s)), ({1: S}, {0: B}, BS)),
    "scatter_.src": (lambda x, i, v: aten.scatter_(x.clone(), 1, i, v), lambda b, s: (normal(b, s), torch.arange(3).repeat(b, 1), normal(b, 3)), (BS, {0: B}, {0: B})),
    "scatter_.value": (lambda x, i: aten.scatter_(x.clone(), 1, i, 2.0), lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4)), (BS, {0: B})),
    "scatter_add_.default": (lambda x, i, v: aten.scatter_add_(x.clone(), 1, i, v), lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4), normal(b, 3)), (BS, {0: B}, {0: B})),
    "scatter_reduce_.two": (lambda x, i, v: aten.scatter_reduce_(x.clone(), 1, i, v, "mean", include_self=False), lambda b, s: (normal(b, s), numbers(b, 3, low=0, high=4), normal(b, 3)), (BS, {0: B}, {0: B})),
    "masked_fill.Scalar": two(lambda x, m: aten.masked_fill(x, m, 2.0), normal, truths),
    "masked_fill.Tensor": two(lambda x, m: aten.masked_fill(x, m, torch.tensor(2.0)), normal, truths),
    "masked_fill_.Scalar": two(lambda x, m: aten.masked_fill_(x.clone(), m, 2.0), normal, truths),
    "masked_fill_.Tensor": two(lambda x, m: aten.masked_fill_(x.clone(), m, torch.tensor(2.0)), normal, truths),
    "masked_scatter_.default": (lambda x, m, v: aten.masked_scatter_(x.clone(), m, v), lambda b, s: (normal(b, s), truths(b, s), normal(b, s)), (BS, BS, BS)),
    "masked_select.default": two(aten.masked_select, normal, truths),
    "nonzero_numpy.default": one(lambda x: aten.nonzero_numpy(x), truths),
    "argwhere.default": one(aten.argwhere, truths),
    "where.ScalarOther": two(lambda x, m: aten.where(m, x, 0.5), normal, truths),
    "where.ScalarSelf": two(lambda x, m: aten.where(m, 0.5, x), normal, truths),
    "where.Scalar": one(lambda m: aten.where(m, 1.0, -1.0), truths),
    "bincount.default": (lambda x: aten.bincount(x, None, 9), lambda b, s: (numbers(b * s, low=0, high=9),), ({0: Dim.AUTO},)),
    "bucketize.Tensor": one(lambda x: aten.bucketize(x, torch.tensor([-1.0, 0.0, 0.5]))),
    "searchsorted.Tensor": (lambda x, y: aten.searchsorted(x.sort()[0], y), lambda b, s: (normal(s), normal(b)), ({0: S}, {0: B})),
    "histc.default": one(aten.histc, normal, 5, -2, 2),
    "isin.Tensor_Tensor": one(lambda x: aten.isin(x, torch.tensor([1, 3])), numbers),
    "isin.Tensor_Scalar": one(aten.isin, numbers, 1),
    "one_hot.default": one(aten.one_hot, lambda *s: numbers(*s, low=0, high=5), 5),
    "_unique2.default": one(lambda x: aten._unique2(x, True, True, True), numbers),
    "unique_consecutive.default": one(lambda x: aten.unique_consecutive(x, True, True), numbers),
    "unique_dim.default": one(lambda x: aten.unique_dim(x, 0, True, True, True), lambda b, s: numbers(b, s, low=0, high=2)),
    "_embedding_bag_forward_only.default": (
        lambda w, i, o: aten._embedding_bag_forward_only(w, i, o, False, 0)[0],
        lambda b, s: (normal(9, 4), numbers(3 * s, low=0, high=9), torch.arange(b) * 2),
        ({}, {0: Dim.AUTO}, {0: B})),
    "logical_not_.default": written(aten.logical_not_, make=truths),
    "cumsum.out": one(lambda x: aten.cumsum.out(x, 1, out=torch.empty_like(x))),
    "index_select.out": (lambda x, i: aten.index_select.out(x, 1, i, out=x.new_empty(x.shape[0], 3)), lambda b, s: (normal(b, s), numbers(3, low=0, high=4)), (BS, {})),
    "searchsorted.Scalar": (lambda x: aten.searchsorted.Scalar(x.sort()[0], 0.2), lambda b, s: (normal(s),), ({0: S},)),
    "equal.default": two(aten.equal),
    "_linalg_check_errors.default": (lambda x: torch.linalg.inv(x), lambda b, s: (matrices(b, s),), ({0: B},)),
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": (
        lambda q: aten._scaled_dot_product_flash_attention_for_cpu_backward(
            q.cos(), q, q, q, *aten._scaled_dot_product_flash_attention_for_cpu(q, q, q), 0.0, False),
        lambda b, s: (normal(b, 2, s, 4),), ({0: B, 2: S},)),
    "_convert_indices_from_coo_to_csr.default": (
        lambda i: aten._convert_indices_from_coo_to_csr(i, 9),
        lambda b, s: (numbers(b * s, low=0, high=9).sort()[0],), ({0: Dim.AUTO},)),
    "_sparse_coo_tensor_with_dims_and_tensors.default": (
        lambda i, v: torch.sparse_coo_tensor(i, v, [7, 7]).to_dense(), lambda b, s: (numbers(2, s, low=0, high=7), normal(s)), ({1: S}, {0: S})),
    "sparse_compressed_tensor.comp_plain_value_size": (
        lambda c, i, v: torch.sparse_csr_tensor(c, i, v.detach(), [2, 5]).to_dense(),
        lambda b, s: (torch.tensor([0, 2, s]), torch.arange(s) % 5, normal(s)), ({}, {0: S}, {0: S})),
    "_to_sparse.default": one(lambda x: aten._to_sparse(x).to_dense()),
    "_to_sparse_csr.default": one(lambda x: aten._to_sparse_csr(x).to_dense()),
    **{f"{n}.default": (getattr(aten, n), lambda b, s: (truths(b, s).float().to_sparse(),), None) for n in ["indices", "values"]},
    **{f"{n}.default": (getattr(aten, n), lambda b, s: (truths(b, s).float().to_sparse_csr(),), None) for n in ["crow_indices", "col_indices"]},
    # losses
    "mse_loss.default": two(aten.mse_loss),
    "l1_loss.default": two(aten.l1_loss),
    "smooth_l1_loss.default": two(aten.smooth_l1_loss),
    "huber_loss.default": two(aten.huber_loss),
    "kl_div.default": two(aten.kl_div, normal, positive),
    "soft_margin_loss.default": two(lambda x, y: aten.soft_margin_loss(x, y.detach())),
    "binary_cross_entropy.default": two(lambda x, y: aten.binary_cross_entropy(x.sigmoid(), y.sigmoid())),
    "binary_cross_entropy_with_logits.default": two(lambda x, y: aten.binary_cross_entropy_with_logits(x, y.sigmoid())),
    "cross_entropy_loss.default": (aten.cross_entropy_loss, lambda b, s: (normal(b, s), labels(b, s)), (BS, {0: B})),
    "nll_loss_nd.default": (lambda x, y: aten.nll_loss_nd(x.log_softmax(1), y), lambda b, s: (normal(b, s), labels(b, s)), (BS, {0: B})),
    "nll_loss_forward.default": (lambda x, y: aten.nll_loss_forward(x, y, None, 1, -100), lambda b, s: (normal(b, s), labels(b, s)), (BS, {0: B})),
    "nll_loss_backward.default": (lambda x, y: aten.nll_loss_backward(torch.tensor(1.0), x, y, None, 1, -100, torch.tensor(2.0)), lambda b, s: (normal(b, s), labels(b, s)), (BS, {0: B})),
    "nll_loss2d_forward.default": (lambda x, y: aten.nll_loss2d_forward(x, y, None, 1, -100), lambda b, s: (normal(b, 4, s, 2), numbers(b, s, 2, low=0, high=4)), ({0: B, 2: S}, BS)),
    "nll_loss2d_backward.default": (lambda x, y: aten.nll_loss2d_backward(torch.tensor(1.0), x, y, None, 1, -100, torch.tensor(2.0)), lambda b, s: (normal(b, 4, s, 2), numbers(b, s, 2, low=0, high=4)), ({0: B, 2: S}, BS)),
    # layers
    "layer_norm.default": pictures(lambda x: aten.layer_norm(x, [9], torch.ones(9) * 2, torch.ones(9))),
    "group_norm.default": pictures(lambda x: aten.group_norm(x, 2)),
    "instance_norm.default": pictures(lambda x: aten.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False)),
    "rms_norm.default": pictures(lambda x: aten.rms_norm(x, [9])),
    "batch_norm.default": pictures(lambda x: aten.batch_norm(x, torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4), False, 0.1, 1e-5, False)),
    "native_batch_norm.default": pictures(lambda x: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0]),
    "native_batch_norm_backward.default": pictures(lambda x: aten.native_batch_norm_backward(x, x * 2, torch.ones(4), torch.zeros(4), torch.ones(4), torch.zeros(4), torch.ones(4), True, 1e-5, [True, True, True])),
    "_fused_rms_norm.default": pictures(lambda x: aten._fused_rms_norm(x, [9], None, 1e-5)[0]),
    "_weight_norm_interface.default": one(lambda x: aten._weight_norm_interface(x, torch.ones_like(x[:, :1]), 0)),
    "conv1d.default": (lambda x: aten.conv1d(x, torch.ones(5, 4, 3) / 9, None, [1], [1]), lambda b, s: (normal(b, 4, s),), ({0: B, 2: S},)),
    "conv1d.padding": (lambda x: aten.conv1d.padding(x, torch.ones(5, 4, 3) / 9, None, [1], "same"), lambda b, s: (normal(b, 4, s),), ({0: B, 2: S},)),
    "conv2d.default": pictures(lambda x: aten.conv2d(x, torch.ones(5, 4, 3, 3) / 9)),
    "conv2d.padding": pictures(lambda x: aten.conv2d.padding(x, torch.ones(5, 4, 3, 3) / 9, None, [1, 1], "same")),
    "conv3d.default": volumes(lambda x: aten.conv3d(x, torch.ones(5, 4, 2, 3, 3) / 9)),
    "conv_transpose1d.default": (lambda x: aten.conv_transpose1d(x, torch.ones(4, 5, 3) / 9, None, [2]), lambda b, s: (normal(b, 4, s),), ({0: B, 2: S},)),
    "conv_transpose2d.input": pictures(lambda x: aten.conv_transpose2d(x, torch.ones(4, 5, 2, 2) / 9, None, [2, 2])),
    "avg_pool3d_backward.default": volumes(lambda x: aten.avg_pool3d_backward(aten.avg_pool3d(x, [2, 2, 3]), x, [2, 2, 3], [2, 2, 3], [0, 0, 0], False, True, None)),
    "max_pool1d.default": (lambda x: aten.max_pool1d(x, [2], [2]), lambda b, s: (normal(b, 3, s),), ({0: B, 2: S},)),
    "max_pool2d.default": pictures(aten.max_pool2d, [3, 3], [2, 2], [1, 1]),
    "max_pool3d.default": volumes(aten.max_pool3d, [2, 2, 2]),
    "adaptive_avg_pool2d.default": pictures(aten.adaptive_avg_pool2d, [2, 3]),
    "adaptive_avg_pool3d.default": volumes(aten.adaptive_avg_pool3d, [2, 1, 3]),
    "adaptive_max_pool2d.default": pictures(aten.adaptive_max_pool2d, [1, 1]),
    "adaptive_max_pool1d.default": (lambda x: aten.adaptive_max_pool1d(x, [1]), lambda b, s: (normal(b, 3, s),), ({0: B, 2: S},)),
    "upsample_nearest1d.vec": (lambda x: aten.upsample_nearest1d.vec(x, None, [2.0]), lambda b, s: (normal(b, 3, s),), ({0: B, 2: S},)),
    "upsample_linear1d.default": (lambda x: aten.upsample_linear1d(x, [8], True), lambda b, s: (normal(b, 3, s),), ({0: B, 2: S},)),
    "upsample_linear1d.vec": (lambda x: aten.upsample_linear1d.vec(x, None, False, [2.0]), lambda b, s: (normal(b, 3, s),), ({0: B, 2: S},)),
    "upsample_nearest2d.default": pictures(lambda x: aten.upsample_nearest2d(x, [2 * x.shape[2], 18])),
    "upsample_bilinear2d.default": pictures(lambda x: aten.upsample_bilinear2d(x, [2 * x.shape[2], 18], False)),
    "_upsample_bilinear2d_aa.default": pictures(lambda x: aten._upsample_bilinear2d_aa(x, [8, 8], False)),
    "upsample_bicubic2d.default": pictures(lambda x: aten.upsample_bicubic2d(x, [2 * x.shape[2], 18], False)),
    "upsample_bicubic2d.vec": pictures(lambda x: aten.upsample_bicubic2d.vec(x, None, False, [2.0, 2.0])),
    # (their kernels for shapes take numbers only)
    "upsample_linear1d_backward.default": (lambda x: aten.upsample_linear1d_backward(x, [8], [2, 3, 4], True), lambda b, s: (normal(2, 3, 8),), ({},)),
    **{f"upsample_{kind}2d_backward.default": (
        lambda x, kind=kind, more=more: getattr(aten, f"upsample_{kind}2d_backward")(x, [12, 8], [2, 3, 6, 5], *more),
        lambda b, s: (normal(2, 3, 12, 8),), ({},)) for kind, more in {"bicubic": (True,), "bilinear": (False,), "nearest": ()}.items()},
    "upsample_trilinear3d_backward.default": (lambda x: aten.upsample_trilinear3d_backward(x, [4, 6, 8], [2, 3, 2, 3, 4], False), lambda b, s: (normal(2, 3, 4, 6, 8),), ({},)),
    "upsample_trilinear3d.vec": volumes(lambda x: aten.upsample_trilinear3d.vec(x, None, False, [2.0, 2.0, 2.0])),
    "upsample_nearest3d.vec": volumes(lambda x: aten.upsample_nearest3d.vec(x, None, [2.0, 2.0, 2.0])),
    "grid_sampler.default": (lambda x, g: aten.grid_sampler(x, g, 0, 0, False), lambda b, s: (normal(b, 3, s, 6), small(b, 4, 5, 2)), ({0: B, 2: S}, {0: B})),
    "grid_sampler_2d_backward.default": (lambda x, g: aten.grid_sampler_2d_backward(torch.ones_like(x[:, :, :1, :1]).expand(-1, -1, 4, 5), x, g, 0, 0, False, [True, True]), lambda b, s: (normal(b, 3, s, 6), small(b, 4, 5, 2)), ({0: B, 2: S}, {0: B})),
    "affine_grid_generator.default": (lambda x: aten.affine_grid_generator(x, [x.shape[0], 3, 4, 5], False), lambda b, s: (normal(b, 2, 3),), ({0: B},)),
    "reflection_pad1d_backward.default": one(lambda x: aten.reflection_pad1d_backward(aten.reflection_pad1d(x, [1, 2]), x, [1, 2])),
    "reflection_pad2d_backward.default": pictures(lambda x: aten.reflection_pad2d_backward(aten.reflection_pad2d(x, [1, 2, 1, 0]), x, [1, 2, 1, 0])),
    "replication_pad1d.default": one(lambda x: aten.replication_pad1d(x, [1, 2])),
    "replication_pad2d_backward.default": pictures(lambda x: aten.replication_pad2d_backward(aten.replication_pad2d(x, [1, 2, 1, 0]), x, [1, 2, 1, 0])),
    "scaled_dot_product_attention.default": (lambda q, k: aten.scaled_dot_product_attention(q, k, k), lambda b, s: (normal(b, 2, s, 4), normal(b, 2, 7, 4)), ({0: B, 2: S}, {0: B})),
    "_scaled_dot_product_flash_attention_for_cpu.default": (lambda q, k: aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0], lambda b, s: (normal(b, 2, s, 4), normal(b, 2, 7, 4)), ({0: B, 2: S}, {0: B})),
    "gru_cell.default": (lambda x, h: aten.gru_cell(x, h, torch.ones(12, 5) * 0.1, torch.ones(12, 4) * 0.2), lambda b, s: (normal(b, 5), normal(b, 4)), ({0: B}, {0: B})),
    "lstm_cell.default": (lambda x, h: aten.lstm_cell(x, [h, h.cos()], torch.ones(16, 5) * 0.1, torch.ones(16, 4) * 0.2), lambda b, s: (normal(b, 5), normal(b, 4)), ({0: B}, {0: B})),
    # linear algebra and signals
    "__or__.Tensor": two(aten.__or__, numbers, numbers),
    "norm.ScalarOpt_dim": one(aten.norm, normal, 2, [1], True),
    "norm_except_dim.default": one(aten.norm_except_dim, normal, 2, 0),
    "_weight_norm.default": one(lambda x: aten._weight_norm(x, x[:, :1].abs() + 1, 0)),
    "_weight_norm_interface_backward.default": one(lambda x: aten._weight_norm_interface_backward(x.cos(), x, torch.ones_like(x[:, :1]), aten._weight_norm_interface(x, torch.ones_like(x[:, :1]), 0)[1], 0)),
    **{f"{n}_.default": written(getattr(aten, f"{n}_"), make=lambda *s: 3 * normal(*s)) for n in ["hardswish", "hardtanh"]},
    "where.default": one(lambda x: aten.where(x), truths),
    "hardswish.default": one(aten.hardswish, lambda *s: 3 * normal(*s)),
    "hardswish_backward.default": two(aten.hardswish_backward, normal, lambda *s: 3 * normal(*s)),
    "hardsigmoid_backward.default": two(aten.hardsigmoid_backward, normal, lambda *s: 3 * normal(*s)),
    "as_strided_.default": one(lambda x: aten.as_strided_(x.clone(), [x.shape[0], 2], [x.shape[1], 1])),
    "linalg_inv_ex.default": (lambda x: aten.linalg_inv_ex(x)[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "linalg_det.default": (aten.linalg_det, lambda b, s: (matrices(b, s),), ({0: B},)),
    "_linalg_det.default": (lambda x: aten._linalg_det(x)[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "_linalg_solve_ex.default": (lambda x: aten._linalg_solve_ex(x, x.cos())[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "linalg_cholesky_ex.default": (lambda x: aten.linalg_cholesky_ex(x @ x.mT)[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "_linalg_svd.default": (lambda x: aten._linalg_svd(x)[1], lambda b, s: (matrices(b, s),), ({0: B},)),
    "linalg_qr.default": (aten.linalg_qr, lambda b, s: (matrices(b, s),), ({0: B},)),
    "_linalg_eigh.default": (lambda x: aten._linalg_eigh(x + x.mT)[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "linalg_solve_triangular.default": (lambda x: aten.linalg_solve_triangular(x, x.cos(), upper=True), lambda b, s: (matrices(b, s),), ({0: B},)),
    "linalg_eig.default": (lambda x: aten.linalg_eig(x + x.mT)[0].real.sort()[0], lambda b, s: (matrices(b, s),), ({0: B},)),
    "_fft_c2c.default": one(lambda x: aten._fft_c2c(x, [1], 0, True), complex_numbers),
    "fft_rfft.default": one(aten.fft_rfft),
    "fft_irfft.default": one(lambda x: aten.fft_irfft(aten.fft_rfft(x), x.shape[1])),
    "fft_fftn.default": one(aten.fft_fftn),
    "fft_fft2.default": one(aten.fft_fft2),
    "fft_fftshift.default": one(aten.fft_fftshift),
    "fft_rfftfreq.default": one(lambda x: aten.fft_rfftfreq(x.shape[1])),
    "stft.center": (lambda x: aten.stft.center(x, 8, 4, window=torch.ones(8), return_complex=True, normalized=False), lambda b, s: (normal(b, 8 + s),), ({0: B, 1: Dim("t", min=9)},)),
    "istft.default": (lambda x: aten.istft(aten.stft(x, 8, 4, window=torch.ones(8), return_complex=True), 8, 4, window=torch.ones(8), length=x.shape[1]), lambda b, s: (normal(b, 32 + s),), ({0: B, 1: Dim("t", min=9)},)),
    "igamma.default": two(aten.igamma, positive, positive),
}  # fmt: skip
"""Of further ops: those that models of libraries use, and some others."""
