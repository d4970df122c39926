"""Ops that are written in StableHLO here: torch-mlir lacks them, or writes them badly.

A body is found by the overload of the op: :data:`BODIES`.
"""

from __future__ import annotations

from typing import Any

import torch

from shlo_disc.errors import UnsupportedError
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.attention import attention, flash_attention
from shlo_disc.torch.bodies.call import Body, BodyCall
from shlo_disc.torch.bodies.convolution import (
    convolution_backward,
    is_transposed,
    transposed_convolution,
)
from shlo_disc.torch.bodies.division import fmod, remainder
from shlo_disc.torch.bodies.ordering import sort, sort_stable, topk
from shlo_disc.torch.bodies.ranges import arange
from shlo_disc.torch.bodies.recurrent import lstm_layer
from shlo_disc.torch.bodies.totals import cumprod, cumsum
from shlo_disc.torch.importer import Carried, schema_arguments

__all__ = ["BODIES", "has_body", "write_body"]

aten = torch.ops.aten

BODIES: dict[Any, Body] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention,
    aten.arange.default: arange,
    aten.arange.start: arange,
    aten.arange.start_step: arange,
    aten.convolution.default: transposed_convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.cumprod.default: cumprod,
    aten.cumsum.default: cumsum,
    aten.fmod.Scalar: fmod,
    aten.fmod.Tensor: fmod,
    aten.mkldnn_rnn_layer.default: lstm_layer,
    aten.remainder.Scalar: remainder,
    aten.remainder.Tensor: remainder,
    aten.scaled_dot_product_attention.default: attention,
    aten.sort.default: sort,
    aten.sort.stable: sort_stable,
    aten.topk.default: topk,
}
"""Overload -> what writes its results."""


_ONLY = {aten.convolution.default: is_transposed}
"""Overload -> for which arguments its body is; torch-mlir takes the others."""


def has_body(node: torch.fx.Node) -> bool:
    """True for an op that is written here."""
    if node.op != "call_function" or node.target not in BODIES:
        return False
    only = _ONLY.get(node.target)
    return only is None or only(tuple(schema_arguments(node).values()))


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
            values = BODIES[carried.node.target](call)
        except UnsupportedError as error:
            raise UnsupportedError(f"{call.where}: {carried.node.target}: {error}") from None
        returned = [call.cast(*pair) for pair in zip(values, call.results, strict=True)]
        ir.Operation.create("func.return", operands=returned)
