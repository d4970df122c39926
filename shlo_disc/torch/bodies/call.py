"""What a body is given, and the StableHLO that bodies share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import torch

from shlo_disc.ingest.arrays import broadcast_to, constant, converted
from shlo_disc.ingest.size_arithmetic import sizes_of
from shlo_disc.ingest.size_values import extent, vector
from shlo_disc.ir.builders import create, element_of, summed
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.importer import Carried, Graph


class BodyCall:
    """One op: its operands as values, its other arguments as they are, the types it must give."""

    def __init__(
        self,
        module: ir.Module,
        carried: Carried,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
    ) -> None:
        self.module = module
        self.results = results
        self._carried = carried
        self._values = dict(zip(carried.operands, operands, strict=True))

    def __getitem__(self, name: str) -> Any:
        """An argument: a value for a tensor or a size, a list of those, else as in the graph."""
        given = self._carried.arguments[name]
        return torch.fx.map_arg(given, self._value)

    def given(self, name: str) -> Any:
        """An argument as the graph has it."""
        return self._carried.arguments[name]

    def _value(self, node: torch.fx.Node) -> Any:
        value = self._values[node]
        if isinstance(value.type, ir.RankedTensorType):
            return value
        kind = ir.RankedTensorType.get([], value.type)  # a number
        return create("tensor.from_elements", [value], kind)

    def shape(self, name: str) -> tuple[Any, ...]:
        """The symbolic sizes of a tensor argument."""
        return tuple(self._carried.arguments[name].meta["val"].shape)

    @property
    def function(self) -> str:
        """The name of the function that is written."""
        return self._carried.function

    @property
    def graphs(self) -> Sequence[Graph]:
        """The graphs that a higher-order op runs."""
        return self._carried.graphs

    @property
    def names(self) -> Collection[str]:
        """The names of the arguments."""
        return self._carried.arguments.keys()

    @property
    def node(self) -> torch.fx.Node:
        """The op in the graph."""
        return self._carried.node

    @property
    def where(self) -> str:
        """The source line of the op."""
        return str(self._carried.node.meta.get("place", "unknown location"))

    def size(self, name: str) -> ir.Value:
        """An integer argument as a rank-0 i64."""
        value = self[name]
        return constant(int(value), "i64") if isinstance(value, int) else value

    @staticmethod
    def cast(value: ir.Value, kind: ir.Type) -> ir.Value:
        """`value` with the sizes of `kind`."""
        return value if value.type == kind else create("tensor.cast", [value], kind)


Body: TypeAlias = Callable[[BodyCall], list[ir.Value]]
"""Writes an op at the insertion point and gives its results."""


def typed(like: ir.Value, element: ir.Type) -> ir.RankedTensorType:
    """The type of a tensor in the shape of `like`."""
    return ir.RankedTensorType.get(ir.RankedTensorType(like.type).shape, element)


def spread(value: ir.Value, dims: Sequence[int], like: ir.Value) -> ir.Value:
    """`value` in the shape of `like`; its dimension k goes to `dims[k]`."""
    kind = typed(like, element_of(value))
    if value.type == kind and list(dims) == list(range(kind.rank)):
        return value
    return broadcast_to(value, dims, sizes_of(like))


def aligned(call: BodyCall, *names: str, element: ir.Type | None = None) -> list[ir.Value]:
    """Tensor arguments and numbers in the shape of the one result, of its element type.

    `element` is another type for them.
    """
    result = ir.RankedTensorType(call.results[0])
    kind = ir.RankedTensorType.get(result.shape, element or result.element_type)
    shape = list(call.node.meta["val"].shape)
    given = [call[name] for name in names]
    tensors = {
        name: list(call.shape(name))
        for name, value in zip(names, given, strict=True)
        if isinstance(value, ir.Value) and ir.RankedTensorType(value.type).rank
    }
    sizes = []
    for axis, size in enumerate(shape):
        place = axis - len(shape)
        holder = next(n for n, own in tensors.items() if len(own) >= -place and own[place] == size)
        sizes.append(extent(call[holder], len(tensors[holder]) + place))
    found = []
    for value in given:
        is_number = not isinstance(value, ir.Value)
        one = constant(value, kind.element_type) if is_number else value
        one = converted(one, kind.element_type)
        rank = ir.RankedTensorType(one.type).rank
        if one.type != kind or not kind.has_static_shape:
            one = create(
                "stablehlo.dynamic_broadcast_in_dim",
                [one, vector(sizes)],
                kind,
                broadcast_dimensions=range(kind.rank - rank, kind.rank),
            )
        found.append(one)
    return found


def summed_to(value: ir.Value, axis: int) -> ir.Value:
    """The sum over all dimensions but `axis`."""
    rank = ir.RankedTensorType(value.type).rank
    return summed(value, [k for k in range(rank) if k != axis])
