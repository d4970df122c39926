"""Results of a graph: tensors of the program, and numbers that a call computes beside it.

    return %x.sum().item() + 1        ==>    return %x.sum(), and the number of that tensor + 1

A program gives row-major tensors only. A result that lies in memory in another order of its
dimensions is a view of one, with the strides of eager mode. A number is a term of sizes of
arguments, and of numbers from data. Each of the latter is the one element of a tensor, or the size
of one, that the program gives too. What the graph asserts of data is given as results are, and a
call checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.torch.nodes import made, output_of
from shlo_disc.torch.sizes import Sizes, expression, symbols_of

aten = torch.ops.aten

_ITEMS = (aten._local_scalar_dense.default, aten.item.default)

_KINDS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@dataclass(frozen=True)
class Result:
    """One result of the graph: a tensor of the program, a number, or a constant."""

    kind: str
    """`tensor`, `number` or `constant`."""
    value: Any
    """The number of the program's result; the expression; the constant."""
    type: type = int
    """What a number is."""
    order: Sequence[int] | None = None
    """The dimensions of the program's result that those of the tensor are, if they are permuted."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Symbols from data -> the number of the program's result that has the one's value."""

    def of(self, tensors: Sequence[torch.Tensor], inputs: Sequence[Any], sizes: Sizes) -> Any:
        """The result in a call with these `inputs`, in which the program gave `tensors`."""
        if self.kind == "tensor":
            tensor = tensors[self.value]
            return tensor if self.order is None else tensor.permute(self.order)
        if self.kind == "constant":
            return self.value
        if self.type is int and not self.read:
            return sizes.value(self.value, inputs)
        known = {
            name: tensors[self.read[name]].item()
            if name in self.read
            else sizes.symbol(name, inputs)
            for name in symbols_of(self.value)
        }
        return self.type(sizes.number(self.value, known))


@dataclass(frozen=True)
class Assertion:
    """What a graph asserts of data, which a call checks."""

    condition: Any
    """A node: a tensor, or a truth value."""
    check: Callable[[Any], None]
    """Raises for a value of the condition that does not hold."""
    is_flag: bool = False
    """The condition is a scalar of bool or int32; any number but 0 does not hold."""


def take_results(graph: torch.fx.Graph, sizes: Sizes, seen: int | None = None) -> list[Result]:
    """Leave tensors as the results of `graph`; tell how the given ones come about.

    The first `seen` results, or all, have the strides of eager mode; the others are row-major.
    Raises UnsupportedError for a number that comes from no argument and no tensor of the graph.
    """
    output = output_of(graph)
    returned = output.args[0] if isinstance(output.args[0], tuple | list) else output.args
    output.args = ((),)
    return _add_results(output, sizes, returned, len(returned) if seen is None else seen)


def check_data(
    graph: torch.fx.Graph, sizes: Sizes, assertions: Sequence[Assertion]
) -> list[tuple[Result, Assertion]]:
    """Add tensors to the results of `graph` that tell whether `assertions` hold.

    Returns each condition with what checks its value.
    Raises UnsupportedError as :func:`take_results`.
    """
    found = _add_results(output_of(graph), sizes, [one.condition for one in assertions], 0)
    return list(zip(found, assertions, strict=True))


def _add_results(
    output: torch.fx.Node, sizes: Sizes, items: Sequence[Any], shown: int
) -> list[Result]:
    """Append what `items` need to the tensors that `output` has; how each item comes about.

    The first `shown` items have the strides of eager mode.
    """
    graph = output.graph
    tensors: list[torch.fx.Node] = list(output.args[0])
    found: list[Result | tuple[Any, type]] = []
    for number, item in enumerate(items):
        value = item.meta.get("val") if isinstance(item, torch.fx.Node) else item
        if isinstance(item, torch.fx.Node) and isinstance(value, torch.Tensor):
            order = dense_order(value) if number < shown else None
            places = None if order is None else [order.index(k) for k in range(len(order))]
            found.append(Result("tensor", len(tensors), order=places))
            tensors.append(item if order is None else _permuted(graph, output, item, order))
        elif type(value) in _KINDS:
            found.append((expression(value), _KINDS[type(value)]))
        else:
            found.append(Result("constant", value))
    held: dict[str, int] = {}  # behind the results that are tensors
    for one in found:
        for name in () if isinstance(one, Result) else sorted(symbols_of(one[0])):
            if name not in sizes.places and name not in held:
                held[name] = len(tensors)
                tensors.append(_holder(graph, output, name))
    output.args = (tuple(tensors),)
    return [
        one
        if isinstance(one, Result)
        else Result("number", *one, read={n: held[n] for n in symbols_of(one[0]) if n in held})
        for one in found
    ]


def _permuted(
    graph: torch.fx.Graph, output: torch.fx.Node, node: torch.fx.Node, order: Sequence[int]
) -> torch.fx.Node:
    """`node` with its dimensions in this order."""
    with graph.inserting_before(output):
        found = made(graph, aten.permute.default, node, list(order))
    found.meta = {**node.meta, **found.meta}
    found.meta.pop("tensor_meta", None)
    return found


def _holder(graph: torch.fx.Graph, output: torch.fx.Node, symbol: str) -> torch.fx.Node:
    """A node whose one element is the number `symbol`, which comes from data."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and node.target in _ITEMS:
            if symbol in symbols_of(value):  # of a truth value, the term says that it is 1
                holder: torch.fx.Node = node.args[0]
                return holder
        elif isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if expression(size).is_Symbol and expression(size).name == symbol:
                    return _size_tensor(graph, output, node, axis)
    raise UnsupportedError(f"the result {symbol} comes from no tensor of the program")


def _size_tensor(
    graph: torch.fx.Graph, output: torch.fx.Node, node: torch.fx.Node, axis: int
) -> torch.fx.Node:
    """The size of dimension `axis` of `node` as a tensor."""
    with graph.inserting_before(output):
        size = made(graph, aten.sym_size.int, node, axis)
        found = graph.call_function(aten.scalar_tensor.default, (size,), {"dtype": torch.int64})
    found.meta["val"] = node.meta["val"].new_empty((), dtype=torch.int64)
    return found


# -- orders of memory ----------------------------------------------------------------------------


def memory_order(x: torch.Tensor) -> list[int]:
    """The dimensions of `x` by falling strides, as they are in the traced call."""

    def at_hint(size: Any) -> int:
        return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)

    return sorted(range(x.dim()), key=lambda k: (-at_hint(x.stride(k)), k))


def dense_order(x: torch.Tensor) -> list[int] | None:
    """The dimensions in the order in which `x` is row-major, at all sizes.

    [0, 2, 3, 1] of pictures with channels last. None if the order is that of the dimensions, or if
    memory has holes, has elements twice, or is not known.
    """
    sizes = (*x.shape, *x.stride())
    if any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in sizes):
        return None
    order = memory_order(x)
    if order == list(range(x.dim())):
        return None
    step: Any = 1
    for axis in reversed(order):
        if not statically_known_true(x.stride(axis) == step):
            return None
        step = step * x.shape[axis]
    return order
