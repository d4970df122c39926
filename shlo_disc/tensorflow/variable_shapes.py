"""Shapes of variables in a frozen graph.

    VariableShape(w) : resource      ==>      Shape(w) : float

TensorFlow makes a constant of `w` and leaves the operation that takes a variable. Gradients of
loops that read variables have it, such as those of recurrent layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def read_shapes_of_constants(graph: Any) -> None:
    """Rewrite `graph`, a GraphDef, in place. Shapes of what is a variable still are left."""
    _rewrite(graph.node, {})
    for function in graph.library.function:
        arguments = {arg.name: arg.type for arg in function.signature.input_arg}
        _rewrite(function.node_def, arguments)


def _rewrite(nodes: Iterable[Any], arguments: dict[str, int]) -> None:
    by_name = {node.name: node for node in nodes}

    def type_of(name: str) -> int | None:
        node, _, index = name.lstrip("^").partition(":")
        if node in arguments:
            return arguments[node]
        # In a graph "node:1", in a function "node:output:1".
        number = int(index.rpartition(":")[2] or 0)
        return _type_of_output(by_name[node], number) if node in by_name else None

    for node in by_name.values():
        if node.op == "VariableShape" and (dtype := type_of(node.input[0])) not in (
            None,
            _RESOURCE,
        ):
            node.op = "Shape"
            node.attr["T"].type = dtype


_RESOURCE = 20
"""`DT_RESOURCE`."""

_LISTS = {"While": "T", "StatelessWhile": "T"} | dict.fromkeys(
    ("Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf"),
    "Tout",
)
"""Operation -> the attribute with the types of its results."""


def _type_of_output(node: Any, number: int) -> int | None:
    if node.op in _LISTS:
        return int(node.attr[_LISTS[node.op]].list.type[number])
    for name in ("T", "dtype"):
        if name in node.attr:
            return int(node.attr[name].type)
    return None
