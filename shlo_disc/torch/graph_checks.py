"""Checks in branches and loops: one more result tells what has failed in the graphs of an op.

    %y = cond(%p, %then, %else, (%x, %i))    ==>    %y, %code = cond(%p, %then', %else', (%x, %i))

A `while_loop` carries the largest code so far, and a `scan` has one for each step. Condition graphs
of `while_loop` can give no code, and are not checked.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import torch

from shlo_disc.torch.nodes import copied, faked, made, output_of

aten = torch.ops.aten

Code = tuple[torch.fx.Node, list[Exception]]
"""0, or the number of errors from the one on that is to be raised; and these."""

Check = Callable[[torch.fx.Graph], Code | None]
"""Adds the code of a graph to it; None for a graph that cannot fail."""

_HIGHER_ORDER = torch.ops.higher_order
_RUN = {_HIGHER_ORDER.cond: (0, 1), _HIGHER_ORDER.while_loop: (1,), _HIGHER_ORDER.scan: (0,)}
"""Op -> which of its graphs are checked."""


def code_of_graphs(node: torch.fx.Node, check: Check) -> Code | None:
    """Have the graphs of a higher-order op checked; None if there is nothing to check.

    The graphs themselves are not changed: the op gets new ones.
    """
    if node.target not in _RUN:
        return None
    owner = node.graph.owning_module
    places = [
        place for place, argument in enumerate(node.args)
        if isinstance(argument, torch.fx.Node) and argument.op == "get_attr"
    ]  # fmt: skip
    graphs = [copied(operator.attrgetter(str(node.args[place].target))(owner)) for place in places]
    codes = {number: check(graphs[number].graph) for number in _RUN[node.target]}
    if not any(codes.values()):
        return None
    if node.target is _HIGHER_ORDER.while_loop:
        _carry_code(node, graphs)
    errors: list[Exception] = []
    for number, found in reversed(codes.items()):  # earlier errors have larger codes
        code, own = found or (None, [])
        _return_code(node, graphs[number], code, len(errors))
        errors = [*own, *errors]
    arguments = list(node.args)
    for place, graph in zip(places, graphs, strict=True):
        graph.recompile()
        name = f"{node.args[place].target}_checked".replace(".", "_")
        while hasattr(owner, name):
            name += "_"
        setattr(owner, name, graph)
        with node.graph.inserting_before(node):
            arguments[place] = node.graph.get_attr(name)
    node.args = tuple(arguments)
    return _result(node), errors


def shifted(make: Callable[..., torch.fx.Node], code: torch.fx.Node, by: int) -> torch.fx.Node:
    """A code as an i32, larger by `by` unless it is 0; `make` makes a node of an op."""
    if code.meta["val"].dtype is not torch.int32:
        code = make(aten._to_copy.default, code, dtype=torch.int32)
    if by == 0:
        return code
    fails = make(aten._to_copy.default, make(aten.gt.Scalar, code, 0), dtype=torch.int32)
    return make(aten.add.Tensor, code, make(aten.mul.Scalar, fails, by))


def _none(graph: torch.fx.Graph) -> torch.fx.Node:
    return made(graph, aten.full.default, [], 0, dtype=torch.int32)


def _return_code(
    node: torch.fx.Node, graph: torch.fx.GraphModule, code: torch.fx.Node | None, by: int
) -> None:
    """Have a graph of `node` give its code, too."""
    output, make = output_of(graph.graph), functools.partial(made, graph.graph)
    with graph.graph.inserting_before(output):
        own = _none(graph.graph) if code is None else shifted(make, code, by)
        if node.target is _HIGHER_ORDER.while_loop:
            before = _carried(graph, len(node.args[2]) - 1)
            own = made(graph.graph, aten.maximum.default, before, own)
    output.args = ((*output.args[0], own),)


def _carried(graph: torch.fx.GraphModule, place: int) -> torch.fx.Node:
    return [node for node in graph.graph.nodes if node.op == "placeholder"][place]


def _carry_code(node: torch.fx.Node, graphs: Sequence[torch.fx.GraphModule]) -> None:
    """Have a loop carry a code, behind what it carries."""
    condition, body, carried, *more = node.args
    with node.graph.inserting_before(node):
        start = _none(node.graph)
    for graph in graphs:
        with graph.graph.inserting_after(_carried(graph, len(carried) - 1)):
            own = graph.graph.placeholder("code_of_checks")
        own.meta["val"] = faked(graph.graph, lambda: torch.zeros([], dtype=torch.int32))
    node.args = (condition, body, (*carried, start), *more)


def _result(node: torch.fx.Node) -> torch.fx.Node:
    """The code that is the last result of `node`."""
    graph, results = node.graph, node.meta["val"]
    sizes = []
    if node.target is _HIGHER_ORDER.scan:
        sizes = [node.args[2][0].meta["val"].shape[0]]
    code = faked(graph, lambda: torch.zeros(sizes, dtype=torch.int32))
    node.meta["val"] = (*results, code)
    with graph.inserting_before(node.next):
        found = [graph.call_function(operator.getitem, (node, len(results)))]
        found[0].meta["val"] = code
        if sizes:
            found.append(made(graph, aten.amax.default, found[-1]))
            found.append(made(graph, aten.clamp.default, found[-1], 0))  # of no steps
    for one in found:
        one.meta["check_of"] = node
    return found[-1]
