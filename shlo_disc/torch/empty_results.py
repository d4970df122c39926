"""Tensors without an element at any size, as in Dynamo's graphs for a batch of 0, become zeros.

    %y = aten.embedding(%w, %i)    # [0, s, 8]    ==>    %z = aten.scalar_tensor(0)
                                                         %y = aten.expand(%z, [0, %s, 8])

torch-mlir lowers some ops without an element to constants that are not valid. Some of these end
the process.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch

from shlo_disc.torch.nodes import made, origin
from shlo_disc.torch.size_nodes import SizeNodes
from shlo_disc.torch.sizes import Numbers, Place

aten = torch.ops.aten

_KEPT = frozenset({aten.scalar_tensor.default, aten.expand.default})
"""Ops that stand for such tensors."""


def state_empty_results(
    graph: torch.fx.Graph, placeholders: Sequence[torch.fx.Node], places: Mapping[str, Place]
) -> None:
    """Replace each op of `graph` that gives a tensor of no element, for every size, by zeros.

    `places` says where a call has each symbol. An op whose other sizes come from data stays.
    """
    empty = [node for node in graph.nodes if _is_empty(node)]
    if not empty:
        return
    nodes = SizeNodes(graph, placeholders, places, Numbers(()))
    # All sizes first: nodes for them stand in front of the first op, which may be replaced.
    sizes = [[nodes.of(size) for size in node.meta["val"].shape] for node in empty]
    for node, own in zip(empty, sizes, strict=True):
        if None not in own:
            _replace(node, own)
    graph.eliminate_dead_code()


def _is_empty(node: torch.fx.Node) -> bool:
    """True for an op, or a result of one, that has the number 0 as a size."""
    if node.op != "call_function" or node.target in _KEPT:
        return False
    value = node.meta.get("val")
    is_op = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    is_known = is_op and isinstance(value, torch.Tensor)
    return is_known and any(isinstance(size, int) and size == 0 for size in value.shape)


def _replace(node: torch.fx.Node, sizes: Sequence[torch.fx.Node | int]) -> None:
    graph = node.graph
    with graph.inserting_before(node):
        zero = made(graph, aten.scalar_tensor.default, 0, dtype=node.meta["val"].dtype)
        zeros = made(graph, aten.expand.default, zero, list(sizes))
    for one in (zero, zeros):
        one.meta |= origin(node)
    node.replace_all_uses_with(zeros)
    graph.erase_node(node)
