"""A functional graph, compiled: the whole of what `torch.compile` gives, or a region of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.torch.options import Options
from shlo_disc.torch.prepare import Known
from shlo_disc.torch.program import Lowered, lower_graph
from shlo_disc.torch.tensors import TensorProgram


def _first_sizes(graph: torch.fx.GraphModule, lowered: Lowered) -> dict[str, int]:
    """What PyTorch has seen the symbols to be."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    found = {}
    for row, number in zip(lowered.shapes, lowered.binding.inputs, strict=False):
        sizes = getattr(placeholders[number].meta.get("val"), "shape", ())
        for name, size in zip(row, sizes, strict=False):
            if isinstance(size, torch.SymInt) and name.isidentifier() and size.node.has_hint():
                found[name] = int(size.node.hint)
    return found


class Part:
    """A compiled graph. Any number of threads may call it.

    `weights` are the placeholders of which packed copies are kept; if they are frozen by the
    `options` they never change. These may have likely values of names that this graph does not
    have. The first `seen` results, or all, have the strides of eager mode.

    Raises what lowering and :func:`shlo_disc.compile` raise.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, name: str, names: Sequence[str], known: Known,
        options: Options, weights: Collection[int], seen: int | None = None,
    ) -> None:  # fmt: skip
        # Dynamo guards what is known, or a program of the same arguments checks it.
        lowered = lower_graph(graph, names, known, seen=seen, checks=options.checks, guarded=True)
        symbols = set(lowered.symbols.values())
        self.executable: Executable | DataSizedExecutable = lowered.compiled(
            name=name,
            likely={symbol: own for symbol, own in options.likely.items() if symbol in symbols},
            first_sizes=_first_sizes(graph, lowered),
        )
        self._binding = lowered.binding
        self.draws = lowered.binding.draws
        """The random numbers that a call draws before the program runs."""
        own = [k for k, place in enumerate(lowered.binding.inputs) if place in weights]
        held = lowered.binding.held
        self._program = TensorProgram(
            self.executable,
            weights=own,
            frozen=[*(own if options.freeze else ()), *held],
            flag=lowered.binding.flag,
        )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The results of the graph on all its inputs: tensors and sizes, None as in the graph."""
        self._binding.check(inputs)
        results = self._program([*self._binding.leaves(inputs), *self._binding.own(inputs)])
        return self._binding.finish(results, inputs)
