"""Tokens of AOTAutograd, which keep ops with an effect in order.

    %t, _ = with_effects(%token, aten._linalg_check_errors, %info, "linalg.inv")
    return %t, %y
==>
    aten._linalg_check_errors(%info, "linalg.inv")
    return None, %y

AOTAutograd passes None for a token, and drops those that a graph gives back. What checks data is
an assertion (:mod:`shlo_disc.torch.assertions`), which needs no token. Other ops with an effect,
such as `aten._print`, keep theirs: PyTorch runs them.
"""

from __future__ import annotations

import operator

import torch

from shlo_disc.torch.assertions import checks_data
from shlo_disc.torch.nodes import copied, output_of

_TOKENS = ("ForwardTokenAOTInput", "BackwardTokenAOTInput")

_with_effects = torch.ops.higher_order.with_effects


def without_tokens(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`module`, or a copy of it without the tokens of ops that check data.

    A token that is an argument has no value there, and is None among the results.
    """
    if not any(_is_token(node) for node in module.graph.nodes):
        return module
    own = copied(module)
    graph = own.graph
    for node in list(graph.nodes):
        if _is_token(node):
            node.meta["val"] = None
        elif node.target is _with_effects and checks_data(node.args[1]):
            _unwrap(node)
    output = output_of(graph)
    output.args = (
        tuple(None if isinstance(x, torch.fx.Node) and _is_token(x) else x for x in output.args[0]),
    )
    own.recompile()
    return own


def _is_token(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and type(node.meta.get("desc")).__name__ in _TOKENS


def _unwrap(node: torch.fx.Node) -> None:
    """Call the op of `node` itself; the token that it was given is the one after it, too."""
    token, op, *args = node.args
    with node.graph.inserting_before(node):
        bare = node.graph.call_function(op, tuple(args), dict(node.kwargs))
    bare.meta = {**node.meta, "val": None}
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(token)
        node.graph.erase_node(user)
    node.graph.erase_node(node)
