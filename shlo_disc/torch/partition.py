"""A graph cut in regions: what is covered is compiled, PyTorch runs the rest.

    %a = aten.mul(%x, %x)                    %a, %d = region_0(%x)     compiled
    %b = aten.bernoulli(%a)            ==>   %b = aten.bernoulli(%a)
    %c = aten.tanh(%b)                       %c = region_1(%b)         compiled

Three ways, each for what the one before leaves in one region that does not compile. `KNOWN`: around
ops that are known not to be covered. `TRIED`: around ops that do not compile alone, on the types
and sizes that they have in the graph. `HALVES`: of ops that compile alone, and not together.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.effects import has_effects
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase, create_op_support

from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms
from shlo_disc.torch.assertions import checks_data
from shlo_disc.torch.nodes import copied, state_constants
from shlo_disc.torch.places import place_of
from shlo_disc.torch.prepare import Known, is_dense
from shlo_disc.torch.program import lower_graph
from shlo_disc.torch.random_numbers import is_random

aten = torch.ops.aten

examine = imported_later("shlo_disc.driver.stages", "examine")


class Way(enum.IntEnum):
    """How a graph is cut; see the module."""

    KNOWN = 0
    TRIED = 1
    HALVES = 2


def reason_of(error: Exception) -> str:
    """Why something is not compiled: what PyTorch runs instead, by any error of a compilation."""
    is_told = isinstance(error, NotImplementedError)
    return str(error) if is_told else f"{type(error).__name__}: {error}"


def operations(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The ops that give tensors."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and isinstance(node.meta.get("val"), torch.Tensor | tuple | list)
    ]


_COVERED = frozenset({"aten", "prims", "shlo_disc"})
"""Namespaces of ops that are compiled."""


def _known_reason(node: torch.fx.Node) -> str | None:
    """Why a node is not compiled, as far as its op and the types of its values tell."""
    if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in _COVERED:
        return "is an op of another library"
    if is_random(node):
        return "regions draw none, so that the order of draws is that of the graph"
    if _has_effect(node):
        return "has an effect outside the program"
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return "runs graphs of its own, not all of it is covered"
    if not all(map(is_dense, (node, *node.all_input_nodes))):
        return "of tensors that are sparse, nested or quantized"
    if _UNSIZED in node.meta:
        return "PyTorch traces no number of elements for a sparse tensor"
    return None


_UNSIZED = "shlo_disc_unsized"
"""In `meta` of a node that may have other sizes than those that it was traced with."""

_PARTS_OF_SPARSE = frozenset({
    aten.values.default, aten._values.default, aten.indices.default, aten._indices.default,
    aten.col_indices.default, aten.row_indices.default,
})  # fmt: skip


def _mark_unsized(graph: torch.fx.Graph) -> None:
    """Mark what is computed from parts of sparse tensors: PyTorch takes these to be empty."""
    for node in graph.nodes:
        is_part = node.target in _PARTS_OF_SPARSE
        if is_part or any(_UNSIZED in used.meta for used in node.all_input_nodes):
            node.meta[_UNSIZED] = True


def _has_effect(node: torch.fx.Node) -> bool:
    """True for a node that does more than give results."""
    if node.target is torch.ops.higher_order.with_effects:
        return True
    return has_effects(node.target) and not checks_data(node.target)


def _after(_: Any, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `op` gives, called after something else."""
    return op(*args, **kwargs)


def _state_order(graph: torch.fx.Graph) -> None:
    """Have ops that draw random numbers or have effects depend on the ones before them.

    Else regions that they take their arguments from would decide the order.
    """
    before = None
    for node in graph.nodes:
        if node.op != "call_function" or not (is_random(node) or _has_effect(node)):
            continue
        if before is not None:
            node.target, node.args = _after, (before, node.target, *node.args)
        before = node


def _forget_order(graph: torch.fx.Graph) -> None:
    """Undo :func:`_state_order`, in a graph whose nodes are in that order."""
    for node in graph.nodes:
        if node.target is _after:
            node.target, node.args = node.args[1], node.args[2:]


class _Covered(OperatorSupportBase):  # type: ignore[misc]
    """Which nodes are compiled; equal ones are tried once."""

    def __init__(self, known: Known, way: Way) -> None:
        self._known = known
        self._way = way
        self._answers: dict[Any, str | None] = {}

    def is_node_supported(
        self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        """True for a node that is compiled, and for what takes such a node apart."""
        if node.op != "call_function" or node.target is _after:
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return False  # sizes are computed by PyTorch, and are arguments
        return self.reason(node) is None

    def reason(self, node: torch.fx.Node) -> str | None:
        """Why a node is not compiled; None for one that is."""
        known = _known_reason(node)
        if known is not None or self._way is Way.KNOWN:
            return known
        key = _key(node)
        if key not in self._answers:
            self._answers[key] = self._try(node)
        return self._answers[key]

    def _try(self, node: torch.fx.Node) -> str | None:
        try:
            alone, names = _alone(node)
            settings = {"checks": False, "guarded": True, "is_kept": False}
            examine(lower_graph(alone, names, self._known, **settings).module)
        except NeedsSeveralPrograms:
            return None  # which a region is compiled as
        except Exception as error:  # whatever it is, PyTorch runs the op
            return reason_of(error)
        return None


def _among(nodes: Sequence[torch.fx.Node]) -> OperatorSupportBase:
    """Some nodes, each with what takes its results apart.

    A size that is computed from one and used by another, by PyTorch, sets these apart.
    """
    held = frozenset(nodes)

    def is_held(_: Any, node: torch.fx.Node) -> bool:
        while node.op == "call_function" and node.target is operator.getitem:
            node = node.args[0]
        return node in held

    return create_op_support(is_held)


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
    graph: torch.fx.GraphModule, known: Known, way: Way
) -> tuple[torch.fx.GraphModule, list[str], list[tuple[str, str]]]:
    """`graph` with regions as submodules; their names; the ops left, each with the reason.

    `graph` itself is not changed.
    """
    own = copied(graph)
    state_constants(own)
    left: list[tuple[str, str]] = []
    supports: list[OperatorSupportBase]
    if way is Way.HALVES:
        ops = operations(own.graph)
        half = len(ops) // 2
        supports = [_among(ops[:half]), _among(ops[half:])]
    else:
        _mark_unsized(own.graph)
        covered = _Covered(known, way)
        effects = [n for n in own.graph.nodes if n.op == "call_function" and _has_effect(n)]
        left = [
            (place_of(node), reason)
            for node in dict.fromkeys([*operations(own.graph), *effects])
            if (reason := covered.reason(node)) is not None
        ]
        supports = [covered]
        _state_order(own.graph)
    partitions = []
    for support in supports:
        partitioner = CapabilityBasedPartitioner(own, support, allows_single_node_partition=True)
        partitions += partitioner.propose_partitions()
    whole = partitioner.fuse_partitions(partitions, prefix="region_")
    _forget_order(whole.graph)
    regions = [str(node.target) for node in whole.graph.nodes if node.op == "call_module"]
    return whole, regions, left
