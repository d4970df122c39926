"""From a functional FX graph to a module that `shlo_disc.compile` takes, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from shlo_disc.errors import UnsupportedError
from shlo_disc.mlir import ir, new_context
from shlo_disc.torch.bodies import has_body
from shlo_disc.torch.importer import import_graph
from shlo_disc.torch.lowering import lower
from shlo_disc.torch.prepare import Prepared, prepare

__all__ = ["Lowered", "lower_graph"]


@dataclass(frozen=True)
class Lowered:
    """StableHLO with what `shlo_disc.compile` is told beside it."""

    module: ir.Module
    shapes: list[tuple[str, ...]]
    names: list[str]
    constraints: list[str]
    prepared: Prepared

    @property
    def inputs(self) -> list[int]:
        """The placeholders of the given graph that are arguments, in order."""
        return self.prepared.inputs

    @property
    def symbols(self) -> list[str]:
        """The names of its sizes."""
        return self.prepared.symbols

    @property
    def constants(self) -> list[torch.Tensor]:
        """Further arguments, behind these."""
        return self.prepared.constants

    def finish(self, tensors: Sequence[torch.Tensor], inputs: Sequence[Any]) -> list[Any]:
        """All results of the graph, from those of the program and the inputs of the call."""
        values = {"tensor": tensors.__getitem__, "constant": lambda constant: constant}
        values["size"] = lambda size: self.prepared.sizes.value(size, inputs)
        return [values[result.kind](result.value) for result in self.prepared.results]


def lower_graph(
    graph: torch.fx.GraphModule,
    *,
    names: Sequence[str],
    symbols: Mapping[str, str] = MappingProxyType({}),
    ranges: Mapping[Any, Any],
    conditions: Sequence[Any],
) -> Lowered:
    """Lower `graph`, which must be functional. `names` are those of its placeholders.

    `symbols`, `ranges` and `conditions` are what PyTorch knows of symbols (see :func:`prepare`).

    Raises UnsupportedError for an operation that has no lowering, with its source line.
    """
    prepared = prepare(
        graph,
        names=names,
        symbols=symbols,
        ranges=ranges,
        conditions=conditions,
        carried=has_body,
    )
    try:
        module, carried = import_graph(prepared.module.graph, new_context(), has_body)
    except (NotImplementedError, TypeError, AssertionError) as error:
        raise UnsupportedError(f"torch-mlir cannot import the program: {error}") from error
    lower(module, carried)
    own = [names[k] for k in prepared.inputs]
    own += [f"constant_{k}" for k in range(len(prepared.constants))]
    return Lowered(module, prepared.shapes, own, prepared.constraints, prepared)
