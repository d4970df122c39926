"""Assertions of a graph: on sizes, which become constraints, and on data, which a call checks.

_assert_scalar(s77 <= 100)        ==>    the constraint x_0 <= 100
_assert_async((%x > 0).all())     ==>    one more result, and RuntimeError if it is false
_linalg_check_errors(%info)       ==>    one more result, and LinAlgError if it is not 0
"""

from __future__ import annotations

import functools
from typing import Any

import sympy
import torch

from shlo_disc.torch.results import Assertion
from shlo_disc.torch.sizes import Sizes, expression, is_plain_symbol, symbols_of

aten = torch.ops.aten

_FALSE = "Assertion is failed"
"""What PyTorch says of an assertion without a message."""

_OTHERS = frozenset({
    aten._assert_tensor_metadata.default, aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
})  # fmt: skip
"""What types and bounds of sizes say already."""


def _require(message: str, value: Any) -> None:
    """Raise RuntimeError unless `value` is true."""
    if not value:
        raise RuntimeError(message)


def _of_data(node: torch.fx.Node) -> Assertion:
    """What an op of :data:`_OF_DATA` asserts."""
    if node.target is aten._linalg_check_errors.default:
        # PyTorch's own op raises, which knows the class of the error and what to say.
        rest, more = node.args[1:], dict(node.kwargs)
        return Assertion(node.args[0], lambda info: aten._linalg_check_errors(info, *rest, **more))
    message = str(node.args[1]) if len(node.args) > 1 else ""
    return Assertion(node.args[0], functools.partial(_require, message or _FALSE))


_OF_DATA = frozenset({
    aten._assert_async.default, aten._assert_async.msg, aten._linalg_check_errors.default,
})  # fmt: skip


def checks_data(op: Any) -> bool:
    """True for an op that asserts something of elements of a tensor, and does nothing else."""
    return op in _OF_DATA


def take_assertions(graph: torch.fx.Graph, sizes: Sizes) -> tuple[list[Any], list[Assertion]]:
    """Erase assertions; the conditions on sizes of arguments, and what is asserted of data."""
    of_sizes: list[Any] = []
    of_data: list[Assertion] = []
    counts = _sizes_from_data(graph)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _OF_DATA:
            of_data.append(_of_data(node))
        elif node.target is aten._assert_scalar.default:
            condition = node.args[0]
            value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
            if symbols_of(value) <= sizes.places.keys():
                of_sizes.append(value)
            elif not _always_holds(value, counts):
                of_data.append(Assertion(condition, functools.partial(_require, str(node.args[1]))))
        elif node.target not in _OTHERS:
            continue
        graph.erase_node(node)
    return of_sizes, of_data


def _sizes_from_data(graph: torch.fx.Graph) -> frozenset[str]:
    """The symbols that are sizes of tensors."""
    values = [node.meta.get("val") for node in graph.nodes]
    return frozenset(
        expression(size).name
        for value in values
        if isinstance(value, torch.Tensor)
        for size in value.shape
        if is_plain_symbol(size)
    )


def _always_holds(condition: Any, counts: frozenset[str]) -> bool:
    """True for what holds of all sizes: `counts` are symbols that are none below 0."""
    e = expression(condition)
    known = {
        symbol: sympy.Dummy(symbol.name, integer=True, nonnegative=True)
        for symbol in e.free_symbols
        if symbol.name in counts
    }
    return bool(e.xreplace(known) == sympy.true)
