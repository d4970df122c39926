"""What an exported program requires of arguments, where no one program takes all of them.

A program with the same arguments, and without results, checks them as any other program does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from shlo_disc.torch.arguments import Input
from shlo_disc.torch.prepare import Known, is_dense
from shlo_disc.torch.program import lower_graph
from shlo_disc.torch.tensors import TensorProgram


class ArgumentChecks:
    """Checks the arguments of `program`, flat and without weights.

    `constraints` and `likely` are as for :func:`shlo_disc.compile`, which raises for them.
    A tensor whose elements no program has is checked by a stand-in of the same sizes.
    """

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Sequence[Input],
        conditions: Sequence[Any],
        *,
        constraints: Sequence[str],
        likely: Mapping[str, int | Sequence[int]] | None,
    ) -> None:
        given = [node for node in program.graph.nodes if node.op == "placeholder"]
        graph = torch.fx.Graph()
        self.others: dict[str, tuple[int, torch.Tensor]] = {}
        """The names of such tensors -> which argument, and what it was while PyTorch traced."""
        for node, one in zip(given, inputs, strict=True):
            if one.weight is not None:
                continue
            number = len(graph.nodes)
            own = graph.placeholder(node.name)
            own.meta = dict(node.meta)
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and not _has_elements(node):
                self.others[one.name] = number, value
                own.meta = {"val": _stand_in(value)}
        graph.output(())
        lowered = lower_graph(
            torch.fx.GraphModule(torch.nn.Module(), graph),
            [one.name for one in inputs if one.weight is None],
            Known(ranges=program.range_constraints, conditions=conditions),
            checks=False,
        )
        self.symbols = lowered.symbols
        """Symbol of PyTorch -> the name of a size."""
        self.executable = lowered.compiled(constraints=constraints, likely=likely)
        self._binding = lowered.binding
        self._program = TensorProgram(self.executable)

    def __call__(self, leaves: Sequence[Any]) -> None:
        """Raise ShapeMismatchError or TypeError for what the program does not take."""
        if self.others:
            leaves = list(leaves)
            for name, (number, value) in self.others.items():
                leaf = leaves[number]
                if leaf.dtype != value.dtype or leaf.layout != value.layout:
                    raise TypeError(
                        f"{name} must be a tensor of {value.dtype} and {value.layout}, got "
                        f"{leaf.dtype} and {leaf.layout}"
                    )
                leaves[number] = _stand_in(leaf)
        self._binding.check(leaves)
        self._program(self._binding.leaves(leaves))


def _has_elements(node: torch.fx.Node) -> bool:
    """True for a tensor whose elements a program can have."""
    dtype = node.meta["val"].dtype
    return is_dense(node) and dtype not in (torch.uint16, torch.uint64, torch.complex32)


def _stand_in(x: torch.Tensor) -> torch.Tensor:
    """A dense tensor with the sizes of `x`."""
    with torch._guards.detect_fake_mode([x]) or torch.no_grad():
        return torch.empty(x.shape, dtype=torch.bool)
