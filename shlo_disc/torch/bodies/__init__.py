"""Ops that are written in StableHLO here: torch-mlir lacks them, or writes them badly.

A body is found by the overload of the op: :data:`BODIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.attention import attention, flash_attention
from shlo_disc.torch.bodies.call import Body, BodyCall
from shlo_disc.torch.bodies.complex_numbers import COMPLEX, is_complex
from shlo_disc.torch.bodies.control_flow import CONTROL
from shlo_disc.torch.bodies.convolution import (
    convolution,
    convolution_backward,
    is_special_convolution,
)
from shlo_disc.torch.bodies.division import (
    fmod,
    gcd,
    lcm,
    remainder,
    shift_left,
    shift_right,
)
from shlo_disc.torch.bodies.extremes import argmax, argmin, max_dim, min_dim
from shlo_disc.torch.bodies.finding import nonzero, repeat_interleave
from shlo_disc.torch.bodies.fourier import fft_c2c, fft_c2r, fft_r2c
from shlo_disc.torch.bodies.indexing import has_numbers, index, index_put
from shlo_disc.torch.bodies.lapack import LAPACK
from shlo_disc.torch.bodies.ordering import order_of_rows, sort, topk
from shlo_disc.torch.bodies.padding import constant_pad, pads_by_sizes
from shlo_disc.torch.bodies.pooling import (
    avg_pool,
    is_special_pool,
    max_pool,
    max_pool_with_indices,
)
from shlo_disc.torch.bodies.ranges import arange
from shlo_disc.torch.bodies.recurrent import (
    gru,
    lstm,
    lstm_gradient,
    lstm_layer,
    recurrence_gradient,
    rnn,
)
from shlo_disc.torch.bodies.scattering import scatter_reduce
from shlo_disc.torch.bodies.slicing import ends_at_a_size, slice_
from shlo_disc.torch.bodies.special import SPECIAL
from shlo_disc.torch.bodies.totals import cummax, cummin, cumprod, cumsum
from shlo_disc.torch.importer import Carried, schema_arguments
from shlo_disc.torch.order_rewrites import ORDER_OF_ROWS
from shlo_disc.torch.recurrent import ops as own
from shlo_disc.torch.type_rewrites import NARROW

aten = torch.ops.aten

BODIES: dict[Any, Body] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention,
    aten.__lshift__.Scalar: shift_left,
    aten.__lshift__.Tensor: shift_left,
    aten.__rshift__.Scalar: shift_right,
    aten.__rshift__.Tensor: shift_right,
    aten.arange.default: arange,
    aten.arange.start: arange,
    aten.arange.start_step: arange,
    aten.argmax.default: argmax,
    aten.argmin.default: argmin,
    aten.bitwise_left_shift.Scalar_Tensor: shift_left,
    aten.bitwise_left_shift.Tensor: shift_left,
    aten.bitwise_left_shift.Tensor_Scalar: shift_left,
    aten.bitwise_right_shift.Scalar_Tensor: shift_right,
    aten.bitwise_right_shift.Tensor: shift_right,
    aten.bitwise_right_shift.Tensor_Scalar: shift_right,
    aten.constant_pad_nd.default: constant_pad,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.cumprod.default: cumprod,
    aten.cumsum.default: cumsum,
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod,
    aten.gcd.default: gcd,
    aten.lcm.default: lcm,
    aten.max.dim: max_dim,
    aten.max_pool3d.default: max_pool,
    aten.max_pool3d_with_indices.default: max_pool_with_indices,
    aten.min.dim: min_dim,
    aten.nonzero.default: nonzero,
    aten.mkldnn_rnn_layer.default: lstm_layer,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder,
    aten.remainder.Tensor: remainder,
    aten.repeat_interleave.Tensor: repeat_interleave,
    aten.scaled_dot_product_attention.default: attention,
    aten.scatter_reduce.two: scatter_reduce,
    aten.sort.default: sort,
    aten.sort.stable: sort,
    aten.topk.default: topk,
    own.gru.default: gru,
    own.lstm.default: lstm,
    own.lstm_gradient.default: lstm_gradient,
    ORDER_OF_ROWS: order_of_rows,
    own.recurrence_gradient.default: recurrence_gradient,
    own.rnn.default: rnn,
}
"""Overload -> what writes its results."""


_POOLS: dict[Any, Body] = {
    aten.avg_pool1d.default: avg_pool,
    aten.avg_pool2d.default: avg_pool,
    aten.avg_pool3d.default: avg_pool,
    aten.max_pool1d.default: max_pool,
    aten.max_pool2d.default: max_pool,
    aten.max_pool2d_with_indices.default: max_pool_with_indices,
}

_TRANSFORMS: dict[Any, Body] = {
    aten._fft_c2c.default: fft_c2c,
    aten._fft_c2r.default: fft_c2r,
    aten._fft_r2c.default: fft_r2c,
}

_INDEXED: dict[Any, Body] = {
    aten._unsafe_index.Tensor: index,
    aten._unsafe_index_put.default: index_put,
    aten.index.Tensor: index,
    aten.index_put.default: index_put,
}

BODIES.update({
    **CONTROL, **LAPACK, **SPECIAL, **_INDEXED, **_POOLS, **_TRANSFORMS, aten.slice.Tensor: slice_,
})  # fmt: skip

_WIDENED = (
    aten.argmax.default, aten.argmin.default, aten.cummax.default, aten.cummin.default,
    aten.max.dim, aten.min.dim,
)  # fmt: skip
"""Ops that have wider operands first where these are unsigned (`type_rewrites`)."""


def _is_signed(arguments: Mapping[str, Any]) -> bool:
    return arguments["self"].meta["val"].dtype not in NARROW


_ONLY: dict[Any, Callable[[Mapping[str, Any]], bool]] = {
    aten.constant_pad_nd.default: pads_by_sizes,
    aten.convolution.default: is_special_convolution,
    aten.slice.Tensor: ends_at_a_size,
    **dict.fromkeys(_INDEXED, has_numbers),
    **dict.fromkeys(_POOLS, is_special_pool),
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
    function = next(
        view.operation
        for view in module.body.operations
        if view.operation.name == "func.func"
        and ir.StringAttr(view.operation.attributes["sym_name"]).value == carried.function
    )
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
