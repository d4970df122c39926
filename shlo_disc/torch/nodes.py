"""Nodes of a graph: copied, made with their values, and where they come from."""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable
from typing import Any

import torch

_ORIGIN = ("stack_trace", "nn_module_stack")


def origin(node: torch.fx.Node) -> dict[str, Any]:
    """What of `node.meta` tells where it comes from."""
    return {key: node.meta[key] for key in _ORIGIN if key in node.meta}


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A module of the same parts with a graph of its own."""
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


def output_of(graph: torch.fx.Graph) -> torch.fx.Node:
    """The node of the results."""
    (found,) = graph.find_nodes(op="output")
    return found


def faked(graph: torch.fx.Graph, make: Callable[[], Any]) -> Any:
    """What `make` gives in the fake mode of `graph`."""
    values = [node.meta.get("val") for node in graph.nodes]
    with torch._guards.detect_fake_mode([v for v in values if isinstance(v, torch.Tensor)]):
        return make()


def made(graph: torch.fx.Graph, function: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A call of an op, or of a function of numbers, at the place of insertion, with its value."""
    node = graph.call_function(function, args, kwargs)
    given, named = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    tensors = [v for v in (*given, *named.values()) if isinstance(v, torch.Tensor)]
    if tensors or not isinstance(function, torch._ops.OpOverload):
        mode = torch._guards.detect_fake_mode(tensors) if tensors else None
        with mode or contextlib.nullcontext():
            node.meta["val"] = function(*given, **named)
    else:
        node.meta["val"] = faked(graph, lambda: function(*given, **named))
    return node


def state_constants(module: torch.fx.GraphModule) -> None:
    """Give the node of every tensor that the graph of `module` holds its type and sizes."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and "val" not in node.meta:
            value = operator.attrgetter(str(node.target))(module)
            if isinstance(value, torch.Tensor):  # else a graph of a higher-order op
                node.meta["val"] = fake_of(module.graph, value)


def fake_of(graph: torch.fx.Graph, value: torch.Tensor) -> torch.Tensor:
    """`value` in the fake mode of `graph`, as torch-mlir wants it."""
    known = [n.meta["val"] for n in graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    mode = torch._guards.detect_fake_mode(known)
    return mode.from_tensor(value, static_shapes=True)
