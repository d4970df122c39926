"""Tensors that a graph holds, as `torch.tensor([1, 2])` in a model."""

from __future__ import annotations

import operator

import torch


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
