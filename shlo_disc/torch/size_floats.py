"""Floats computed from data by functions that torch-mlir has of tensors only.

    %f = pow(sym_float(%n), 0.5)        %t = aten.scalar_tensor(%n, dtype=f64)
    %y = aten.mul.Tensor(%x, %f)  ==>   %f = aten.pow.Tensor_Tensor(%t, aten.scalar_tensor(0.5))
                                        %y = aten.mul.Tensor(%x, aten.to(%f, f32))

What is computed from such a float is computed as a tensor too, in f64 as Python does. Floats of
sizes alone are arguments (:mod:`shlo_disc.torch.size_numbers`).
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from shlo_disc.torch.nodes import made

aten = torch.ops.aten

_ONLY_OF_TENSORS: dict[Any, Any] = {
    builtins.pow: aten.pow.Tensor_Tensor,
    math.pow: aten.pow.Tensor_Tensor,
    math.sqrt: aten.sqrt.default,
    operator.pow: aten.pow.Tensor_Tensor,
    torch._sym_sqrt: aten.sqrt.default,
}

_FUNCTIONS: dict[Any, Any] = {
    **_ONLY_OF_TENSORS,
    operator.add: aten.add.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.neg: aten.neg.default,
    operator.sub: aten.sub.Tensor,
    operator.truediv: aten.div.Tensor,
    torch.sym_float: aten.alias.default,
}
"""Function of numbers -> the same of tensors."""

_ROUNDED: dict[Any, Any] = {
    builtins.round: aten.round.default,
    math.ceil: aten.ceil.default,
    math.floor: aten.floor.default,
    math.trunc: aten.trunc.default,
    torch.sym_int: aten.trunc.default,
}
"""Function that makes an integer of a float -> the same of tensors, in floats."""

_OF_TENSORS = {"Scalar": "Tensor", "Tensor_Scalar": "Tensor_Tensor"}
"""Overload with a number -> the one with a tensor in its place."""


def state_floats(graph: torch.fx.Graph, fake: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Make tensors of rank 0 of the floats that need it. `fake` makes a value of a node."""
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in list(graph.nodes):
        value = node.meta.get("val")
        is_float = isinstance(value, torch.SymFloat)
        is_rounded = isinstance(value, torch.SymInt) and node.target in _ROUNDED and node.users
        if node.op != "call_function" or not (is_float or known or is_rounded):
            continue
        uses = any(given in known for given in node.all_input_nodes)
        if is_rounded:
            _rounded(node, known, fake)
        elif is_float and node.target in _FUNCTIONS and (uses or node.target in _ONLY_OF_TENSORS):
            known[node] = _computed(node, known, fake)
        elif uses and isinstance(node.target, torch._ops.OpOverload):
            _take_tensors(node, known)


def _rounded(node: torch.fx.Node, known: Any, fake: Any) -> None:
    """Replace an integer that is rounded from a float by the number of a tensor."""
    graph = node.graph
    whole = _computed(node, known, fake)
    with graph.inserting_before(node):
        tensor = made(graph, aten.to.dtype, whole, torch.int64)
        number = graph.call_function(aten.Int.Tensor, (tensor,))
    number.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(number)


def _computed(node: torch.fx.Node, known: Any, fake: Any) -> torch.fx.Node:
    """A float as a tensor."""
    graph, f64 = node.graph, torch.float64
    function = _FUNCTIONS.get(node.target) or _ROUNDED[node.target]
    operands = node.args if node.target in _FUNCTIONS else node.args[:1]
    given = []
    for operand in operands:
        if operand in known:
            given.append(known[operand])
        elif isinstance(operand, torch.fx.Node) and operand.target in _FUNCTIONS:
            given.append(_computed(operand, known, fake))
        else:
            with graph.inserting_before(node):
                new = graph.call_function(aten.scalar_tensor.default, (operand,), {"dtype": f64})
            new.meta["val"] = fake(torch.zeros((), dtype=f64))
            given.append(new)
    with graph.inserting_before(node):
        return made(graph, function, *given)


def _take_tensors(node: torch.fx.Node, known: Any) -> None:
    """Tensors for the floats among the arguments of an op, whose overload takes them."""
    graph, dtype = node.graph, torch.get_default_dtype()
    of_numbers = False
    for place, given in enumerate(node.args):
        if given not in known:
            continue
        with graph.inserting_before(node):
            new = made(graph, aten.to.dtype, known[given], dtype)
        of_numbers |= str(node.target._schema.arguments[place].type) != "Tensor"
        node.update_arg(place, new)
    overload = _OF_TENSORS.get(node.target._overloadname, "")
    if of_numbers and overload in node.target.overloadpacket.overloads():
        node.target = getattr(node.target.overloadpacket, overload)
