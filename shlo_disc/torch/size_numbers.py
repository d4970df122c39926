"""Numbers that a call computes from sizes, as Python does: floats, and what is rounded from them.

    %f = pow(sym_float(%n), 0.5)            ==>    argument %f, `float(n) ** 0.5` in a call
    %y = aten.mul.Tensor(%x, %f)                   %y = aten.mul.Tensor(%x, %f)

So they have the bits of eager mode. For the compiler such an integer is a size of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shlo_disc.base.records import dataclass
from shlo_disc.torch.size_nodes import SizeNodes
from shlo_disc.torch.sizes import Sizes, expression, symbols_of

aten = torch.ops.aten

_NUMBERS = (torch.SymInt, torch.SymFloat)


@dataclass(frozen=True)
class _Value:
    """The value of a step, or with number 0 the inputs of the call."""

    number: int


class SizeNumbers:
    """The numbers of a program; a call with its inputs computes them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Of the arguments that take the numbers."""
        self._steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._results: list[tuple[int, type]] = []

    def __call__(self, inputs: Sequence[Any]) -> list[int | float]:
        """The numbers of a call with these inputs of the graph."""
        values: list[Any] = [inputs]

        def at(argument: Any) -> Any:
            if isinstance(argument, list | tuple):
                return [at(each) for each in argument]
            return values[argument.number] if isinstance(argument, _Value) else argument

        for function, args in self._steps:
            values.append(function(*map(at, args)))
        return [kind(values[number]) for number, kind in self._results]

    def add_step(self, function: Callable[..., Any], *args: Any) -> _Value:
        """Have a call compute `function` of earlier values and of constants."""
        self._steps.append((function, args))
        return _Value(len(self._steps))

    def add_result(self, name: str, value: _Value, kind: type) -> None:
        """Pass a value to the argument `name`."""
        self.names.append(name)
        self._results.append((value.number, kind))


def take_numbers(
    graph: torch.fx.Graph, placeholders: Sequence[torch.fx.Node], sizes: Sizes, nodes: SizeNodes
) -> tuple[list[torch.fx.Node], SizeNumbers]:
    """Make arguments of the numbers that a call computes.

    The new placeholders, in the order of the numbers. Integers stay of which `nodes` knows a term.
    """
    numbers = SizeNumbers()
    values: dict[torch.fx.Node, _Value | None] = {}

    def step_of(node: torch.fx.Node) -> _Value | None:
        """A number of the graph as a step; None for one that comes from data."""
        if node not in values:
            values[node] = made(node)
        return values[node]

    def made(node: torch.fx.Node) -> _Value | None:
        value = node.meta.get("val")
        if not isinstance(value, _NUMBERS) or not symbols_of(value) <= sizes.places.keys():
            return None
        if node.op == "placeholder":
            return numbers.add_step(operator.getitem, _Value(0), placeholders.index(node))
        if isinstance(node.target, torch._ops.OpOverload):
            is_size = isinstance(value, torch.SymInt)
            e = expression(value)
            return numbers.add_step(sizes.value, e, _Value(0)) if is_size else None
        if node.kwargs or not all(map(step_of, node.all_input_nodes)):
            return None
        return numbers.add_step(node.target, *torch.fx.map_arg(node.args, step_of))

    found: dict[Any, torch.fx.Node] = {}
    first = next((n for n in graph.nodes if n.op != "placeholder"), None)
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        value = node.meta.get("val")
        is_term = isinstance(value, torch.SymInt) and nodes.of(value) is not None
        if is_term or not isinstance(value, _NUMBERS) or all(map(step_of, node.users)):
            continue
        if (step := step_of(node)) is None:
            continue
        is_size = isinstance(value, torch.SymInt)
        key = expression(value) if is_size else step
        if key not in found:
            with graph.inserting_before(first):
                found[key] = graph.placeholder(f"number_{len(found)}")
            found[key].meta = dict(node.meta)
            values[found[key]] = step
            numbers.add_result(found[key].name, step, int if is_size else float)
        node.replace_all_uses_with(found[key])
    return list(found.values()), numbers
