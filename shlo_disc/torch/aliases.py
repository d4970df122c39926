"""Results of a graph that share memory: with an argument, or with another result.

    %v = aten.slice(%x, 1, 1, %n)      ==>      return as_strided(%x, ...), and not a copy
    return %v

AOTAutograd reads the sizes, the strides and the offset of such a result to make the view that the
user gets. So they must be those that PyTorch's own operations would give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from shlo_disc.base.records import dataclass
from shlo_disc.torch.nodes import copied, output_of
from shlo_disc.torch.sizes import Sizes, expression, places_of, symbols_of


@dataclass(frozen=True)
class _View:
    """A result with memory of an argument (`is_input`) or of another result, by its number."""

    is_input: bool
    base: int
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    """Elements from the start of the base."""
    is_base: bool = False
    """The argument itself."""
    is_conjugated: bool = False
    is_negated: bool = False
    """The view stands for other elements than the base has in its memory."""


@dataclass(frozen=True)
class _Chain:
    """A result with memory of an argument, or of the result with the number `base`."""

    graph: torch.fx.GraphModule
    """Makes it of the inputs, and of that result behind them."""
    base: int | None


class Aliases:
    """Which results of a functional graph are views; how a call makes them."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self._views: dict[int, _View] = {}
        self._chains: dict[int, _Chain] = {}
        """Views whose offsets are computed, as where an index is data: PyTorch makes them."""
        self._strided: dict[int, tuple[Any, ...]] = {}
        """Results that others are views of, and that are not contiguous: their strides."""
        nodes = list(graph.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self._sizes = Sizes(places_of(placeholders))
        returned = output_of(graph.graph).args[0]
        if not isinstance(returned, tuple | list):
            return
        self._count = len(returned)
        self._every = list(returned)
        """The results, and behind them what several results are parts of."""
        owners: dict[Any, tuple[bool, int, torch.Tensor]] = {}
        for number, node in enumerate(placeholders):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                owners.setdefault(_memory(value), (True, number, value))
        results = [
            (number, item, item.meta["val"])
            for number, item in enumerate(returned)
            if isinstance(item, torch.fx.Node) and isinstance(item.meta.get("val"), torch.Tensor)
        ]
        for number, _, value in results:
            if _is_whole(value):
                owners.setdefault(_memory(value), (False, number, value))
        for node in self._shared(nodes, [value for _, _, value in results], owners):
            owners[_memory(node.meta["val"])] = (False, len(self._every), node.meta["val"])
            self._every.append(node)
        for number, item, value in results:
            is_input, base, whole = owners.get(_memory(value), (False, number, value))
            if not is_input and base == number:
                continue
            view = _view(is_input, base, value, whole, item in placeholders)
            strides = tuple(map(expression, whole.stride()))
            if self._knows(*view.sizes, *view.strides, view.offset):
                self._views[number] = view
            elif is_input or self._knows(*strides):
                start = None if is_input else self._every[base]
                self._chains[number] = _Chain(
                    _chain(graph, item, start), None if is_input else base
                )
            else:
                continue
            if not is_input and not whole.is_contiguous():
                self._strided[base] = strides

    @staticmethod
    def _shared(
        nodes: Sequence[torch.fx.Node],
        results: Sequence[torch.Tensor],
        owners: Mapping[Any, tuple[bool, int, torch.Tensor]],
    ) -> list[torch.fx.Node]:
        """The nodes that own the memory of two results or more, and that nothing returns."""
        counted = Counter(map(_memory, results))
        wanted = {memory for memory, count in counted.items() if count > 1} - owners.keys()
        found = {}
        for node in nodes:
            value = node.meta.get("val")
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                memory = _memory(value)
                if memory in wanted and memory not in found and _is_whole(value):
                    found[memory] = node
        return list(found.values())

    def _knows(self, *terms: Any) -> bool:
        """True if inputs have all the symbols of `terms`."""
        return frozenset[str]().union(*map(symbols_of, terms)) <= self._sizes.places.keys()

    def without(self, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """`graph`, or a copy of it that gives None in the place of views."""
        made = {*self._views, *self._chains}
        if not made:
            return graph
        rest = copied(graph)
        output = output_of(rest.graph)
        by_name = {node.name: node for node in rest.graph.nodes}
        output.args = (
            tuple(
                by_name[item.name] if isinstance(item, torch.fx.Node) else item
                for item in (None if k in made else e for k, e in enumerate(self._every))
            ),
        )
        rest.graph.eliminate_dead_code()
        rest.recompile()
        return rest

    def restore(self, results: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """All results of a call: the computed ones, and the views."""
        if not self._views and not self._chains:
            return results
        every = list(results)
        for number, strides in self._strided.items():
            computed = every[number]
            wanted = tuple(self._sizes.value(s, inputs) for s in strides)
            if computed.stride() != wanted:
                laid_out = torch.empty_strided(computed.shape, wanted, dtype=computed.dtype)
                every[number] = laid_out.copy_(computed)
        for number, view in self._views.items():
            base = (inputs if view.is_input else every)[view.base]
            every[number] = base if view.is_base else self._made(view, base, inputs)
        for number, chain in self._chains.items():
            more = () if chain.base is None else (every[chain.base],)
            every[number] = chain.graph(*inputs, *more)
        return every[: self._count]

    def _made(self, view: _View, base: torch.Tensor, inputs: Sequence[Any]) -> torch.Tensor:
        sizes, strides = (
            [self._sizes.value(size, inputs) for size in each]
            for each in (view.sizes, view.strides)
        )
        offset = base.storage_offset() + self._sizes.value(view.offset, inputs)
        made = torch.as_strided(base, sizes, strides, offset)
        made = made.conj() if view.is_conjugated else made
        return torch._neg_view(made) if view.is_negated else made


def _is_whole(value: torch.Tensor) -> bool:
    """True for a tensor that has all of its memory, each element once."""
    held = expression(value.untyped_storage().nbytes())
    rest = sympy.expand(held - value.itemsize * expression(value.numel()))
    is_dense = torch._prims_common.is_non_overlapping_and_dense_or_false(value)
    return bool(rest == 0 and expression(value.storage_offset()) == 0 and is_dense)


def _memory(value: torch.Tensor) -> Any:
    """Equal for fake tensors that share memory and have one type."""
    return StorageWeakRef(value.untyped_storage()), value.dtype


def _chain(
    graph: torch.fx.GraphModule, item: torch.fx.Node, start: torch.fx.Node | None
) -> torch.fx.GraphModule:
    """The operations of `graph` that make `item` of its inputs, and of `start` if there is one."""
    found = copied(graph)
    by_name = {node.name: node for node in found.graph.nodes}
    if start is not None:
        *_, last = (node for node in found.graph.nodes if node.op == "placeholder")
        with found.graph.inserting_after(last):
            by_name[start.name].replace_all_uses_with(found.graph.placeholder("start"))
    output = output_of(found.graph)
    output.args = (by_name[item.name],)
    found.graph.eliminate_dead_code()
    found.recompile()
    return found


def _view(
    is_input: bool, base: int, value: torch.Tensor, whole: torch.Tensor, is_base: bool
) -> _View:
    sizes, strides = (tuple(map(expression, each)) for each in (value.shape, value.stride()))
    offset = expression(value.storage_offset()) - expression(whole.storage_offset())
    is_conjugated = value.is_conj() != whole.is_conj()
    is_negated = value.is_neg() != whole.is_neg()
    return _View(is_input, base, sizes, strides, offset, is_base, is_conjugated, is_negated)
