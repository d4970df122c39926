"""Equal operations of a graph: merged, and with equal sizes where these come from data.

    %a = aten.nonzero(%x)    : [u0, 1]
    %b = aten.nonzero(%x)    : [u1, 1]        ==>      u1 == u0, and %a for %b

PyTorch's own function (`fx_graph_cse`) keeps the types of users, which then have sizes of the
operation that is gone. It imports Inductor, which takes a second.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from shlo_disc.torch.random_numbers import is_random


def merge_equal_operations(graph: torch.fx.Graph) -> None:
    """Merge equal operations of `graph`, which is functional up to the first op that writes.

    Results stay apart: no operation is merged whose memory is that of a result.
    """
    _merge(graph, _equal(graph))


def merge_equal_sizes_of_data(module: torch.fx.GraphModule) -> None:
    """As :func:`merge_equal_operations`, if equal operations have sizes from data.

    Operations are run apart where such sizes become known, and are no common subexpressions of one
    program then. All others are merged in StableHLO.
    """
    first_of = _equal(module.graph)
    pairs = [
        (size, other)
        for node, first in first_of.items()
        for size, other in zip(_sizes(first), _sizes(node), strict=True)
    ]
    if any(_equate(size, other) for size, other in pairs):
        _merge(module.graph, first_of)
        module.recompile()


def _equal(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """Operations with an equal one in front -> the first of these."""
    firsts: dict[Any, torch.fx.Node] = {}
    representative: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            break
        if _is_function(node):
            first = firsts.setdefault(_key(node, representative), node)
            if first is not node:
                representative[node] = first
    return representative


def _merge(graph: torch.fx.Graph, first_of: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Put the first of equal operations in the place of the others, and equate their sizes."""
    (output,) = graph.find_nodes(op="output")
    held = {memory for node in output.all_input_nodes for memory in _memories(node)}
    for node, first in first_of.items():
        for size, other in zip(_sizes(first), _sizes(node), strict=True):
            _equate(size, other)
        if held.isdisjoint(_memories(node)):
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _memories(node: torch.fx.Node) -> set[Any]:
    """What the tensors of `node` share memory with."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return {
        StorageWeakRef(value.untyped_storage())
        for value in values
        if isinstance(value, torch.Tensor) and value.layout is torch.strided
    }


def _equate(size: Any, other: Any) -> bool:
    """Replace the symbol `other` of a size from data by `size`. True if they differ."""
    if not (free_unbacked_symbols(size) and free_unbacked_symbols(other)):
        return False
    kept, gone = size.node.expr, other.node.expr
    if kept == gone or not (kept.is_Symbol and gone.is_Symbol):
        return False
    other.node.shape_env._rename_unbacked_to(gone, kept)
    return True


def _is_function(node: torch.fx.Node) -> bool:
    """True if equal operands give equal results."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not node.target._schema.is_mutable
        and node.target.overloadpacket is not torch.ops.aten.empty
        and not is_random(node)
    ) or (node.op == "call_function" and not isinstance(node.target, torch._ops.OperatorBase))


def _key(node: torch.fx.Node, representative: dict[torch.fx.Node, torch.fx.Node]) -> Any:
    """Equal for nodes of one operation on equal operands."""
    leaves, structure = pytree.tree_flatten((node.args, node.kwargs))
    described = (
        representative.get(leaf, leaf) if isinstance(leaf, torch.fx.Node) else repr(leaf)
        for leaf in leaves
    )
    return node.target, structure, tuple(described)


def _sizes(node: torch.fx.Node) -> list[Any]:
    """The sizes of the results of `node`, and the numbers among these."""
    found: list[Any] = []
    for value in pytree.tree_leaves(node.meta.get("val")):
        found += value.shape if isinstance(value, torch.Tensor) else [value]
    return [size for size in found if not isinstance(size, torch.SymBool)]
