"""Ops that are written in StableHLO here: torch-mlir lacks them, or writes them badly.

A body is found by the overload of the op: :data:`BODIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies import (
    attention,
    convolution,
    division,
    extremes,
    finding,
    fourier,
    indexing,
    ordering,
    padding,
    pooling,
    ranges,
    recurrent,
    scattering,
    slicing,
    totals,
)
from shlo_disc.torch.bodies.call import BodyCall, by_op
from shlo_disc.torch.bodies.complex_numbers import COMPLEX, is_complex
from shlo_disc.torch.bodies.control_flow import CONTROL
from shlo_disc.torch.bodies.lapack import LAPACK
from shlo_disc.torch.bodies.special import SPECIAL
from shlo_disc.torch.importer import Carried, schema_arguments
from shlo_disc.torch.order_rewrites import ORDER_OF_ROWS
from shlo_disc.torch.recurrent import ops as own
from shlo_disc.torch.type_rewrites import NARROW

aten = torch.ops.aten

_POOLS = by_op(
    (pooling.avg_pool, (
        aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)),
    (pooling.max_pool, (aten.max_pool1d.default, aten.max_pool2d.default)),
    (pooling.max_pool_with_indices, (aten.max_pool2d_with_indices.default,)),
)  # fmt: skip

_TRANSFORMS = by_op(
    (fourier.fft_c2c, (aten._fft_c2c.default,)),
    (fourier.fft_c2r, (aten._fft_c2r.default,)),
    (fourier.fft_r2c, (aten._fft_r2c.default,)),
)

_INDEXED = by_op(
    (indexing.index, (aten._unsafe_index.Tensor, aten.index.Tensor)),
    (indexing.index_put, (aten._unsafe_index_put.default, aten.index_put.default)),
)

BODIES = {**CONTROL, **LAPACK, **SPECIAL, **_INDEXED, **_POOLS, **_TRANSFORMS, **by_op(
    (attention.attention, (aten.scaled_dot_product_attention.default,)),
    (attention.flash_attention, (aten._scaled_dot_product_flash_attention_for_cpu.default,)),
    (convolution.convolution, (aten.convolution.default,)),
    (convolution.convolution_backward, (aten.convolution_backward.default,)),
    (division.fmod, (aten.fmod.Scalar, aten.fmod.Tensor)),
    (division.gcd, (aten.gcd.default,)),
    (division.lcm, (aten.lcm.default,)),
    (division.remainder, (
        aten.remainder.Scalar, aten.remainder.Scalar_Tensor, aten.remainder.Tensor)),
    (division.shift_left, (
        aten.__lshift__.Scalar, aten.__lshift__.Tensor, aten.bitwise_left_shift.Scalar_Tensor,
        aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar)),
    (division.shift_right, (
        aten.__rshift__.Scalar, aten.__rshift__.Tensor, aten.bitwise_right_shift.Scalar_Tensor,
        aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar)),
    (extremes.argmax, (aten.argmax.default,)),
    (extremes.argmin, (aten.argmin.default,)),
    (extremes.max_dim, (aten.max.dim,)),
    (extremes.min_dim, (aten.min.dim,)),
    (finding.nonzero, (aten.nonzero.default,)),
    (finding.repeat_interleave, (aten.repeat_interleave.Tensor,)),
    (ordering.order_of_rows, (ORDER_OF_ROWS,)),
    (ordering.sort, (aten.sort.default, aten.sort.stable)),
    (ordering.topk, (aten.topk.default,)),
    (padding.constant_pad, (aten.constant_pad_nd.default,)),
    (pooling.max_pool, (aten.max_pool3d.default,)),
    (pooling.max_pool_with_indices, (aten.max_pool3d_with_indices.default,)),
    (ranges.arange, (aten.arange.default, aten.arange.start, aten.arange.start_step)),
    (recurrent.gru, (own.gru.default,)),
    (recurrent.lstm, (own.lstm.default,)),
    (recurrent.lstm_gradient, (own.lstm_gradient.default,)),
    (recurrent.lstm_layer, (aten.mkldnn_rnn_layer.default,)),
    (recurrent.recurrence_gradient, (own.recurrence_gradient.default,)),
    (recurrent.rnn, (own.rnn.default,)),
    (scattering.scatter_reduce, (aten.scatter_reduce.two,)),
    (slicing.slice_, (aten.slice.Tensor,)),
    (totals.cummax, (aten.cummax.default,)),
    (totals.cummin, (aten.cummin.default,)),
    (totals.cumprod, (aten.cumprod.default,)),
    (totals.cumsum, (aten.cumsum.default,)),
)}  # fmt: skip
"""Overload -> what writes its results."""

_WIDENED = (
    aten.argmax.default, aten.argmin.default, aten.cummax.default, aten.cummin.default,
    aten.max.dim, aten.min.dim,
)  # fmt: skip
"""Ops that have wider operands first where these are unsigned (`type_rewrites`)."""


def _is_signed(arguments: Mapping[str, Any]) -> bool:
    return arguments["self"].meta["val"].dtype not in NARROW


_ONLY: dict[Any, Callable[[Mapping[str, Any]], bool]] = {
    aten.constant_pad_nd.default: padding.pads_by_sizes,
    aten.convolution.default: convolution.is_special_convolution,
    aten.slice.Tensor: slicing.ends_at_a_size,
    **dict.fromkeys(_INDEXED, indexing.has_numbers),
    **dict.fromkeys(_POOLS, pooling.is_special_pool),
    **dict.fromkeys(_WIDENED, _is_signed),
}
"""Overload -> for which arguments its body is; torch-mlir takes the others."""


def has_body(node: torch.fx.Node) -> bool:
    """True for an op that is written here."""
    if node.op != "call_function":
        return False
    if node.target in CONTROL:
        return True
    if any(map(is_complex, (node, *node.all_input_nodes))):
        return any(node.target in own for own in (COMPLEX, LAPACK, _TRANSFORMS))
    if node.target not in BODIES:
        return False
    only = _ONLY.get(node.target)
    return only is None or only(schema_arguments(node))


def _of_complex_numbers(node: torch.fx.Node) -> bool:
    """True for an op with a body for complex numbers that has such an operand or result."""
    return node.target in COMPLEX and any(map(is_complex, (node, *node.all_input_nodes)))


def write_body(module: ir.Module, carried: Carried) -> None:
    """Give the function that `carried` calls its body. Raises UnsupportedError."""
    function = ir.SymbolTable(module.operation)[carried.function].operation
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    locations = [carried.location] * len(kind.inputs)
    block = function.regions[0].blocks.append(*kind.inputs, arg_locs=locations)
    with ir.InsertionPoint(block), carried.location:
        call = BodyCall(module, carried, list(block.arguments), list(kind.results))
        try:
            bodies = COMPLEX if _of_complex_numbers(carried.node) else BODIES
            values = bodies[carried.node.target](call)
        except UnsupportedError as error:
            raise UnsupportedError(f"{call.where}: {carried.node.target}: {error}") from None
        returned = [call.cast(*pair) for pair in zip(values, call.results, strict=True)]
        ir.Operation.create("func.return", operands=returned)
