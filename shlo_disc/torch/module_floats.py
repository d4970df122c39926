"""Floats of modules that are constants of the program, told to Dynamo before the graph is traced.

With `dynamic=True` Dynamo makes an argument of every float: the epsilon of a norm, the scale of an
attention. AOTAutograd turns those that only arithmetic of tensors reads into tensors. For the
others it has Dynamo begin again with constants, after it has traced the whole graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState
from torch.utils._sympy.symbol import SymT, symbol_is_type

from shlo_disc.torch.sizes import environment_of


def specialise_module_floats(graph: torch.fx.GraphModule) -> None:
    """Raise for Dynamo to begin again if `graph`, as it came from Dynamo, has such floats.

    Floats that a caller passes are left to AOTAutograd, and so are those in arithmetic.
    """
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    kept = {
        name
        for node in placeholders
        if (name := _float_symbol(node)) is not None
        and (not _is_of_module(node) or all(map(_is_arithmetic, _readers(node))))
    }
    constants = {
        name
        for name in _float_symbols(placeholders) - kept
        if not TensorifyState.should_specialize(name)
    }
    for name in constants:
        TensorifyState.specialize(name)
    if constants:
        raise TensorifyScalarRestartAnalysis


def _float_symbols(placeholders: Sequence[torch.fx.Node]) -> set[str]:
    """All that Dynamo has made, also those whose values were asked for and that nothing reads."""
    environment = environment_of([n.meta.get("example_value") for n in placeholders])
    if environment is None:
        return set()
    symbols = environment.backed_var_to_val
    return {str(symbol) for symbol in symbols if symbol_is_type(symbol, SymT.FLOAT)}


def _is_of_module(node: torch.fx.Node) -> bool:
    source = getattr(node.meta.get("grapharg"), "source", None)
    return source is not None and source.guard_source.is_unspecialized_nn_module()


def _float_symbol(node: torch.fx.Node) -> str | None:
    """The symbol of the float that a placeholder holds as a tensor; None: it is another value."""
    number = getattr(node.meta.get("example_value"), "item_memo", None)
    if not isinstance(number, torch.SymFloat) or {u.target for u in node.users} != {"item"}:
        return None
    # The symbol itself: the expression may be its value by now.
    return getattr(number.node._expr, "name", None)


def _readers(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [reader for item in node.users for reader in item.users]


def _is_arithmetic(node: torch.fx.Node) -> bool:
    """True for what the operators of Python write."""
    target: Any = node.target
    return node.op == "call_function" and getattr(target, "__module__", "") == "_operator"
