"""A graph cut in regions: what is covered is compiled, PyTorch runs the rest.

    %a = aten.mul(%x, %x)                    %a, %d = region_0(%x)     compiled
    %b = aten.native_dropout(%a, 0.1)  ==>   %b = aten.native_dropout(%a, 0.1)
    %c = aten.tanh(%b[0])                    %c = region_1(%b[0])      compiled

An op is covered if it compiles alone, on the types and sizes that it has in the graph.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from shlo_disc.compile import examine
from shlo_disc.errors import ShloDiscError
from shlo_disc.torch.constants import state_constants
from shlo_disc.torch.part import Known, lower_part
from shlo_disc.torch.places import place_of
from shlo_disc.torch.random_numbers import is_random

__all__ = ["cut"]


class _Covered(OperatorSupportBase):  # type: ignore[misc]
    """Which nodes are compiled; equal ones are tried once."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._answers: dict[Any, str | None] = {}

    def is_node_supported(
        self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        """True for a node that compiles alone, and for what takes such a node apart."""
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return False  # sizes are computed by PyTorch, and are arguments
        return self.reason(node) is None

    def reason(self, node: torch.fx.Node) -> str | None:
        """Why a node is not compiled; None for one that is."""
        key = _key(node)
        if key not in self._answers:
            self._answers[key] = self._try(node)
        return self._answers[key]

    def _try(self, node: torch.fx.Node) -> str | None:
        if is_random(node):
            return "regions draw none, so that the order of draws is that of the graph"
        if node.target is torch.ops.higher_order.with_effects:
            return "has an effect outside the program"
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return "runs graphs of its own"
        alone, names = _alone(node)
        try:
            examine(lower_part(alone, names, self._known).module)
        except ShloDiscError as error:
            return str(error)
        return None


def _key(node: torch.fx.Node) -> Any:
    """Equal for nodes of one op on values of equal types and sizes."""

    def described(value: Any) -> Any:
        known = value.meta.get("val")
        if isinstance(known, torch.Tensor):
            return f"{known.dtype}{list(map(str, known.shape))}"
        return f"{type(known).__name__} {known}"

    arguments = torch.fx.map_arg((node.args, node.kwargs), described)
    return node.target, repr(arguments)


def _alone(node: torch.fx.Node) -> tuple[torch.fx.GraphModule, list[str]]:
    """A graph of this node alone."""
    graph = torch.fx.Graph()
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    for used in node.all_input_nodes:
        known[used] = graph.placeholder(used.name)
        known[used].meta = dict(used.meta)
    own = graph.node_copy(node, known.__getitem__)
    value = node.meta["val"]
    results = [own]
    if isinstance(value, tuple | list):
        results = []
        for index, one in enumerate(value):
            if isinstance(one, torch.Tensor):
                part = graph.call_function(operator.getitem, (own, index))
                part.meta["val"] = one
                results.append(part)
    graph.output(tuple(results))
    owner = node.graph.owning_module
    return torch.fx.GraphModule(owner, graph), [used.name for used in known]


def cut(
    graph: torch.fx.GraphModule, known: Known
) -> tuple[torch.fx.GraphModule, list[str], dict[str, str]]:
    """`graph` with its covered regions as submodules; their names; the ops left, with the reasons.

    `graph` itself is not changed.
    """
    covered = _Covered(known)
    own = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    state_constants(own)
    outer = CapabilityBasedPartitioner(own, covered, allows_single_node_partition=True)
    whole = outer.partition_and_fuse(prefix="region_")
    regions = [str(node.target) for node in whole.graph.nodes if node.op == "call_module"]
    left = {}
    for node in whole.graph.nodes:
        if node.op == "call_function" and isinstance(
            node.meta.get("val"), torch.Tensor | tuple | list
        ):
            if node.target is operator.getitem:
                continue
            left[place_of(node)] = covered.reason(node) or ""
    return whole, regions, left
