"""Sizes as nodes of a graph, computed from the sizes of its arguments.

    %y = aten.view(%x, [s77, -1])    ==>    %n = aten.sym_size(%x, 0)
                                            %y = aten.view(%x, [%n, 16])

PyTorch knows every size as a term of symbols. What a graph computes in other ways, such as
`16*n // n`, would have no value where `n` is 0.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shlo_disc.torch.nodes import made
from shlo_disc.torch.sizes import Numbers, Place, exact_floor, expression, symbols_of

aten = torch.ops.aten

_RESHAPES = frozenset({
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.view_copy.default,
})  # fmt: skip


_FUNCTIONS = {
    "CleanDiv": operator.floordiv,
    "FloorDiv": operator.floordiv,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
}
"""Functions of terms by the name of their class."""


class SizeNodes:
    """Makes nodes for sizes in front of the first node of a graph that is no placeholder."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        placeholders: Sequence[torch.fx.Node],
        places: Mapping[str, Place],
        numbers: Numbers,
    ) -> None:
        self._graph = graph
        self._numbers = numbers
        self._placeholders = placeholders
        self._places = places
        self._known: dict[Any, torch.fx.Node | int] = {}
        self._anchor = next((n for n in graph.nodes if n.op != "placeholder"), None)
        self._terms, self._whole = _terms(placeholders, places)

    def of(self, size: Any) -> torch.fx.Node | int | None:
        """The number or node of `size`, an int, a SymInt or an expression.

        None where no argument has one of its symbols, or a function of it has no node.
        """
        e = self._numbers.of(size)
        if e not in self._known:
            found = self._made(e)
            if found is None and e in self._whole:
                found = self._size_of(*self._whole[e])
            if found is None:
                return None
            self._known[e] = found
        return self._known[e]

    def _made(self, e: Any) -> torch.fx.Node | int | None:
        if e.is_Integer:
            return int(e)
        if e in self._terms:
            return self._size_of(*self._terms[e])
        if e.is_Symbol:
            return self._read(e.name)
        kind = type(e).__name__
        if e.is_Add or (e.is_Mul and all(not a.is_Rational or a.is_Integer for a in e.args)):
            return self._chain(operator.add if e.is_Add else operator.mul, e.args)
        if (e.is_Pow and e.exp.is_Integer and int(e.exp) > 0) or kind == "PowByNatural":
            return self._chain(operator.mul, [e.args[0]] * int(e.args[1]))
        if kind in _FUNCTIONS:
            return self._chain(_FUNCTIONS[kind], e.args)
        if (quotient := exact_floor(e)) is not None:
            return self._chain(operator.floordiv, quotient)
        if kind in ("Mod", "PythonMod"):
            return self._remainder(*e.args)
        return None

    def _remainder(self, e: Any, divisor: Any) -> torch.fx.Node | int | None:
        """`e % divisor` with the sign of the divisor: torch-mlir's is that of C."""
        whole = self._chain(operator.floordiv, (e, divisor))
        parts = self.of(e), self.of(divisor)
        if whole is None or None in parts:
            return None
        return self._call(operator.sub, parts[0], self._call(operator.mul, whole, parts[1]))

    def _chain(self, function: Any, terms: Sequence[Any]) -> torch.fx.Node | int | None:
        parts = [self.of(term) for term in terms]
        total: Any = parts[0]
        for part in parts[1:]:
            if total is None or part is None:
                return None
            total = self._call(function, total, part)
        return total

    def _call(self, function: Any, *args: Any) -> torch.fx.Node:
        with self._graph.inserting_before(self._anchor):
            return made(self._graph, function, *args)

    def _read(self, name: str) -> torch.fx.Node | None:
        if name not in self._places:
            return None
        number, axis, factor, offset = self._places[name]
        holder = self._placeholders[number]
        if axis is None:
            return holder
        size = self._size_of(holder, axis)
        size = size if offset == 0 else self._call(operator.sub, size, offset)
        return size if factor == 1 else self._call(operator.floordiv, size, factor)

    def _size_of(self, holder: torch.fx.Node, axis: int) -> torch.fx.Node:
        return self._call(aten.sym_size.int, holder, axis)


_Sizes = dict[Any, tuple[torch.fx.Node, int]]
"""Terms, each with a dimension of an argument that has it as its size."""


def _terms(
    placeholders: Sequence[torch.fx.Node], places: Mapping[str, Place]
) -> tuple[_Sizes, _Sizes]:
    """Sizes of arguments whose symbols are known as numbers only, and those of all arguments."""
    found: _Sizes = {}
    every: _Sizes = {}
    for node in placeholders:
        value = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            every.setdefault(expression(size), (node, axis))
            names = symbols_of(size)
            if len(names) > 1 and any(n not in places or places[n].axis is None for n in names):
                found.setdefault(expression(size), (node, axis))
    return found, every


def state_reshapes(graph: torch.fx.Graph, sizes: SizeNodes) -> None:
    """Write out the sizes of every reshape, in terms of arguments where that is possible."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _RESHAPES:
            continue
        stated = [sizes.of(size) for size in node.meta["val"].shape]
        given = list(node.args[1])
        if -1 in given and stated[given.index(-1)] is not None:
            given[given.index(-1)] = stated[given.index(-1)]
            node.args = (node.args[0], given)
