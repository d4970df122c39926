"""Equal operations whose result sizes come from data.

    %a = aten.nonzero(%x)    : [u0, 1]
    %b = aten.nonzero(%x)    : [u1, 1]        ==>      u1 == u0

PyTorch's partitioner merges such operations (common subexpressions). It keeps the types of their
users, which then have sizes of the operation that is gone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from shlo_disc.torch.random_numbers import is_random

__all__ = ["equate_sizes", "merge_equal_operations"]


def equate_sizes(graph: torch.fx.Graph) -> bool:
    """State that equal operations of the functional `graph` have results of equal sizes.

    Returns True if sizes from data were equated.
    """
    firsts: dict[Any, torch.fx.Node] = {}
    representative: dict[torch.fx.Node, torch.fx.Node] = {}
    equated = False
    for node in graph.nodes:
        if not _is_function(node):
            continue
        first = firsts.setdefault(_key(node, representative), node)
        representative[node] = first
        if first is not node:
            for size, other in zip(_sizes(first), _sizes(node), strict=True):
                equated |= _equate(size, other)
    return equated


def _equate(size: Any, other: Any) -> bool:
    """Replace the symbol `other` of a size from data by `size`. True if they differ."""
    if not (free_unbacked_symbols(size) and free_unbacked_symbols(other)):
        return False
    kept, gone = size.node.expr, other.node.expr
    if kept == gone or not (kept.is_Symbol and gone.is_Symbol):
        return False
    other.node.shape_env._rename_unbacked_to(gone, kept)
    return True


def merge_equal_operations(module: torch.fx.GraphModule) -> None:
    """Merge equal operations of a functional graph if any have sizes from data.

    Operations are run apart where such sizes become known, and are no common subexpressions of one
    program then.
    """
    if equate_sizes(module.graph):
        module.graph = fx_graph_cse(module.graph)


def _is_function(node: torch.fx.Node) -> bool:
    """True if equal operands give equal results."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not node.target._schema.is_mutable
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
