"""From a traced function to a graph without variables, whose weights are arguments.

    y = matmul(x, read(w))      ==>      y = matmul(x, w), and the elements of w apart

TensorFlow makes constants of variables. Those with many elements become arguments of the graph. The
converter then reads and prints none of them, and calls keep packed copies of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import convert_to_constants

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.tensorflow.places import Layers, Place, place_of_node, places, told
from shlo_disc.tensorflow.variable_shapes import read_shapes_of_constants

WEIGHT_BYTES = 1024
"""From here on a constant of floats is a weight; smaller ones may be folded into the program."""


@dataclass(frozen=True)
class Frozen:
    """A graph without variables."""

    graph: bytes
    """A serialized GraphDef."""
    names: list[str]
    """The nodes that are arguments: those of a call in order, then the weights."""
    types: list[str]
    """Their element types, as TensorFlow spells them: `DT_FLOAT`."""
    shapes: list[tuple[int | None, ...]]
    results: list[str]
    weights: list[npt.NDArray[Any]]
    """The elements of the arguments that no call passes. They never change."""
    places: dict[str, Place]
    """Node -> the layer, file and line that made it, where they are known."""


def freeze(function: Any, layers: Layers) -> Frozen:
    """The graph of a ConcreteFunction, with the values that its variables have now.

    `layers`: what was noted while the function was traced.

    Raises UnsupportedError for arguments and results that are no arrays, and for what TensorFlow
    cannot freeze.
    """
    for role, tensors in (("argument", function.inputs), ("result", function.outputs)):
        _check(tensors[: _given(function)] if role == "argument" else tensors, role)
    known = places(function, layers)
    _check_assigned(function, known)
    try:
        frozen = _without_variables(function)
    except (ValueError, TypeError, KeyError, NotImplementedError, tf.errors.OpError) as error:
        raise UnsupportedError(f"TensorFlow cannot freeze the variables: {error}") from error
    graph = frozen.graph.as_graph_def()
    _check_random(graph, known)
    names = [tensor.name.partition(":")[0] for tensor in frozen.inputs]
    types = [_type_name(tensor.dtype) for tensor in frozen.inputs]
    shapes = [tuple(tensor.shape) for tensor in frozen.inputs]
    weights = []
    for node in graph.node:
        if node.op != "Const" or (array := _weight(node)) is None:
            continue
        kind = node.attr["dtype"].type
        del node.attr["value"]
        node.op = "Placeholder"
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
        names.append(node.name)
        types.append(types_pb2.DataType.Name(kind))
        shapes.append(array.shape)
        weights.append(array)
    return Frozen(
        graph.SerializeToString(deterministic=True),
        names,
        types,
        shapes,
        [tensor.name for tensor in frozen.outputs],
        weights,
        known,
    )


_CASES_ARE_KEPT = threading.Lock()


def _without_variables(function: Any) -> Any:
    """`function` with constants in the place of variables, calls inlined, branches kept.

    TensorFlow keeps `If` and `While` only; `Case` becomes switches, which no dialect here has.
    """
    with _CASES_ARE_KEPT:
        before = convert_to_constants._CONTROL_FLOW_OPS
        convert_to_constants._CONTROL_FLOW_OPS = {*before, "Case", "StatelessCase"}
        try:
            data = convert_to_constants._FunctionConverterDataInEager(
                func=function, lower_control_flow=False, aggressive_inlining=False
            )
            graph, inputs = convert_to_constants._replace_variables_by_constants(data)
            read_shapes_of_constants(graph)
            return convert_to_constants._construct_concrete_function(function, graph, inputs)
        finally:
            convert_to_constants._CONTROL_FLOW_OPS = before


def _given(function: Any) -> int:
    """The number of arguments that a call passes; captured tensors are behind them."""
    return len(function.inputs) - len(function.captured_inputs)


def _check(tensors: Sequence[Any], role: str) -> None:
    for number, tensor in enumerate(tensors):
        if tensor.dtype in (tf.string, tf.resource, tf.variant) or tensor.dtype.is_quantized:
            raise UnsupportedError(
                f"the {role} {number} has elements of type {tensor.dtype.name}, which no program "
                "computes with"
            )
        if role == "argument" and tensor.shape.rank is None:  # that of a result is found later
            raise UnsupportedError(
                f"the argument {number} ({tensor.name}) has no rank; give it a TensorSpec with as "
                "many sizes, None for those that vary"
            )


def _check_assigned(function: Any, known: dict[str, Place]) -> None:
    """Raise UnsupportedError for a function that changes variables."""
    inner = function.graph._functions.items()
    ops = [("", op) for op in function.graph.get_operations()]
    ops += [
        (f"@{name}", op) for name, one in inner if one.graph for op in one.graph.get_operations()
    ]
    for name, op in ops:
        if op.type.startswith("Assign") and op.type.endswith("VariableOp"):
            place = told(place_of_node(op.name + name, known))
            raise UnsupportedError(
                f"{place}: {op.type} changes {_variable(function, op)}; return the new value, and "
                "assign it outside of the function"
            )


def _variable(function: Any, op: Any) -> str:
    """The variable that `op` assigns, by its name where `function` has it."""
    inner = {id(own): outer for outer, own in function.graph.captures}
    handle = inner.get(id(op.inputs[0]))
    name = next((v.name for v in function.graph.variables if v.handle is handle), "")
    return f"the variable {name.removesuffix(':0')}" if name else "a variable"


_RANDOM = re.compile("(Stateless)?(Parameterized)?(Random|TruncatedNormal|Multinomial|Shuffle|Rng)")


def _check_random(graph: Any, known: dict[str, Place]) -> None:
    """Raise UnsupportedError for an op whose numbers come from TensorFlow's generators.

    The stateless functions are among them: the converter's StableHLO gives other numbers than
    TensorFlow on a CPU. Philox at a known shape was tried.
    """
    inner = [(f.signature.name, node) for f in graph.library.function for node in f.node_def]
    for name, node in [*(("", node) for node in graph.node), *inner]:
        if _RANDOM.match(node.op):
            place = place_of_node(f"{node.name}@{name}" if name else node.name, known)
            why = (
                "TensorFlow's converter gives it other numbers than TensorFlow itself"
                if node.op.startswith("Stateless")
                else "each call takes its numbers from TensorFlow's generator"
            )
            raise UnsupportedError(
                f"{told(place)}: {node.op} is random: {why}, so pass them as an argument"
            )


def _type_name(dtype: Any) -> str:
    return str(types_pb2.DataType.Name(dtype.as_datatype_enum))


def _weight(node: Any) -> npt.NDArray[Any] | None:
    """The elements of a constant if it is a weight, read-only."""
    tensor = node.attr["value"].tensor
    dtype = tf.as_dtype(tensor.dtype)
    count = 1
    for size in tensor.tensor_shape.dim:
        count *= size.size
    if not dtype.is_floating or count * dtype.size < WEIGHT_BYTES:
        return None
    array = np.ascontiguousarray(tf.make_ndarray(tensor))
    array.flags.writeable = False
    return array
