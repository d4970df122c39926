"""Where in the user's model a node comes from.

model.py:12                               in a function
layer dense (MatMul): model.py:12         in a layer that the user's code calls
layer dense (MatMul): dense.py:222        in a layer that Keras calls
node functional_1/dense_1/MatMul          in a SavedModel, which keeps names alone
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

import shlo_disc

Place = tuple[str, int]
"""What a message says before the colon, and the line, from 1; 0 is none."""

_SITE = Path(tf.__file__).parents[1]
_OURS = f"{Path(shlo_disc.__file__).parent}/"
_KERAS = f"{_SITE / 'keras'}/"
_FOREIGN = (f"{Path(tf.__file__).parent}/", f"{_SITE / 'optree'}/", _KERAS, _OURS)

_KERAS_LAYERS = (f"{_KERAS}src/layers/", f"{_KERAS}src/models/")
_CALLS = ("layer.py", "operation.py", "functional.py", "sequential.py")
"""Files of Keras whose frames call layers."""

_CALL_TYPES = ("PartitionedCall", "StatefulPartitionedCall")


class Layers:
    """The layer of Keras that each node is made in, noted while this thread traces functions.

    Node names have scopes of layers too, but scopes that exist get another number: `dense_2` may be
    the layer `dense`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model  # every layer is in it, so it is not named
        self._known: dict[tuple[Any, str], str] = {}

    def __enter__(self) -> Layers:
        # Not `op_callbacks.add_op_callback`, which replaces TensorFlow's function for all threads.
        context.context().add_op_callback(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        context.context().remove_op_callback(self._note)

    def of(self, op: Any) -> str | None:
        """The path of the layer, such as `attention/query`; None outside of layers."""
        return self._known.get((op.graph, op.name))

    def _note(
        self,
        kind: str,
        inputs: Any,
        attributes: Any,
        outputs: Any,
        op_name: str | None = None,
        graph: Any = None,
    ) -> None:
        if graph is None or op_name is None:
            return
        names = [
            str(scope.name)
            for k, scope in enumerate(_scopes())
            if k or scope.caller is not self._model
        ]
        if names:
            self._known[graph, op_name] = "/".join(names)


def _scopes() -> list[Any]:
    """The open scopes of Keras that layers opened, the outermost first."""
    if "keras" not in sys.modules:
        return []
    from keras.src.backend.common import global_state  # noqa: PLC0415 - the user has loaded it

    scopes = global_state.get_global_attribute("name_scope_stack") or ()
    return [scope for scope in scopes if scope.caller is not None]


def places(function: Any, layers: Layers) -> dict[str, Place]:
    """Node -> its place, for a ConcreteFunction whose calls are going to be inlined.

    Nodes of other functions, such as bodies of loops, are `NODE@FUNCTION`. Freezing gives functions
    other numbers, so these are left out, and nodes of several places with them.
    """
    found: dict[str, Place] = {}
    several = set()
    inner = function.graph._functions
    for name, op in _inlined(function.graph, inner, ""):
        if place := _place(op, layers):
            found[name] = place
    for title, one in inner.items():
        for op in one.graph.get_operations() if one.graph is not None else ():
            if place := _place(op, layers):
                name = _unnumbered(f"{op.name}@{title}")
                if found.setdefault(name, place) != place:
                    several.add(name)
    return {name: place for name, place in found.items() if name not in several}


def place_of_node(node: str, known: dict[str, Place]) -> Place:
    """The place of a node: its own, or that of a call which it is in, or its name alone."""
    if (own := known.get(_unnumbered(node))) is not None:
        return own
    name = node.partition("@")[0]
    outer = name
    while outer:
        if outer in known:
            return known[outer]
        outer = outer.rpartition("/")[0]
    for kind in _CALL_TYPES:
        name = name.removeprefix(f"{kind}/")
    return f"node {name}", 0


def _unnumbered(node: str) -> str:
    """`a@body_7` and `a@body_frozen_9` as `a@body`; nodes without a function as they are."""
    return re.sub(r"(?<=@)(.*?)(_frozen)?_\d+$", r"\1", node)


def told(place: Place) -> str:
    """`model.py:12`."""
    where, line = place
    return f"{where}:{line}" if line else where


def _inlined(graph: Any, inner: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The nodes of `graph` and of what it calls, by their names when calls are inlined."""
    for op in graph.get_operations():
        yield prefix + op.name, op
        if op.type in _CALL_TYPES:
            called = inner.get(op.get_attr("f").name)
            if called is not None and called.graph is not None:
                yield from _inlined(called.graph, inner, f"{prefix}{op.name}/")


def _place(op: Any, layers: Layers) -> Place | None:
    """The innermost frame of the model; without one, that of the layer of Keras."""
    frames = [(str(frame.filename), int(frame.lineno)) for frame in op.traceback or ()]
    traced = [k for k, (file, _) in enumerate(frames) if file.startswith(_OURS)]
    inside = frames[traced[-1] + 1 :] if traced else frames  # ours trace the function
    layer = layers.of(op)
    where = None if layer is None else f"layer {layer} ({op.type})"
    if own := [frame for frame in inside if not frame[0].startswith(_FOREIGN)]:
        file, line = own[-1]
        return (file if where is None else f"{where}: {file}"), line
    if where is None:
        return None
    of_keras = [
        (Path(file).name, line)
        for file, line in inside
        if file.startswith(_KERAS_LAYERS) and not file.endswith(_CALLS)
    ]
    if of_keras:
        file, line = of_keras[-1]
        return f"{where}: {file}", line
    return where, 0
