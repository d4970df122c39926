"""`compile`: a SavedModel or a function, compiled once for every size its signature allows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import DeviceError
from shlo_disc.base.late_module import LateModule
from shlo_disc.driver.graphs import find_graph, graph_key, made_graph
from shlo_disc.driver.kept_keys import are_kept
from shlo_disc.executables.behind_tensors import BehindTensors
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.convert import convert
from shlo_disc.tensorflow.freeze import Frozen, freeze
from shlo_disc.tensorflow.functions import Call, concrete_function
from shlo_disc.tensorflow.lowering import lower
from shlo_disc.tensorflow.ops import JOINED, LEFT, OPS, PREFIX, REFUSED, STACKS
from shlo_disc.tensorflow.places import Layers


def compile(
    source: Any,
    signature: str | Sequence[Any] | None = None,
    *,
    constraints: str | Sequence[str] = (),
    likely: Mapping[str, int | Sequence[int]] | None = None,
    target: str = "cpu",
) -> TensorFlowExecutable:
    """The executable of a function, for every size that its signature leaves open.

    `source`: the folder of a SavedModel, a Keras model, a `tf.function`, a ConcreteFunction or any
    function of tensors. `signature`: the name of a signature of the SavedModel, by default
    "serving_default"; or the `tf.TensorSpec`s of the arguments of a function that states none. The
    sizes that are None in it vary from call to call.

    Variables have the values of this moment. `likely` gives values of sizes to have specialised
    kernels for. `constraints` are relations of sizes, such as "x_0 >= 4", that every call must
    satisfy. `x_0` is the size of dimension 0 of the argument `x`. `target`: see
    :func:`shlo_disc.compile`.

    Raises UnsupportedError for an operation that is not covered, with its node. Raises TypeError
    for another source, OSError for a folder without a SavedModel, InvalidModuleError for a damaged
    one. Raises KeyError for a signature that it lacks, and ValueError for options as
    `shlo_disc.compile`.
    """
    with Layers(source) as layers:
        call = Call(concrete_function(source, signature))
    frozen = freeze(call.function, layers)
    given = len(call.paths)
    weights = [re.sub(r"(/ReadVariableOp)?/resource$", "", n) for n in frozen.names[given:]]
    symbols = _symbols(call.symbols, frozen.shapes)
    stated = [constraints] if isinstance(constraints, str) else list(constraints)
    sizes = [size for shape in symbols for size in shape if not size.isdecimal()]
    executable = shlo_disc.compile(
        _module(frozen),
        name=call.name,
        shapes=symbols,
        names=[*call.paths, *weights],
        constraints=[*(f"{size} >= 0" for size in sizes), *stated],
        likely=likely,
        target=target,
    )
    return TensorFlowExecutable(call, frozen.weights, executable)


def _module(frozen: Frozen) -> LateModule:
    """StableHLO of a graph, converted unless an earlier process did so.

    Weights are arguments, of which the graph has types and sizes. Places are in the key, since the
    module has them.
    """
    key = _key(frozen) if are_kept() else None
    found = None if key is None else find_graph(key, (), lambda: _lowered(frozen))
    return made_graph(key, (), _lowered(frozen), None, "") if found is None else found[0]


def _key(frozen: Frozen) -> bytes:
    facts = frozen.names, frozen.types, frozen.shapes, frozen.results, sorted(frozen.places.items())
    version = f"tensorflow {tf.version.VERSION} {tf.version.GIT_VERSION}"
    return graph_key(version, frozen.graph, repr(facts))


def _lowered(frozen: Frozen) -> ir.Module:
    return lower(convert(frozen, {*OPS, *REFUSED, *STACKS}, {*LEFT, *JOINED}, PREFIX))


def _symbols(names: Sequence[str], shapes: Sequence[Sequence[int | None]]) -> list[tuple[str, ...]]:
    """The sizes of all arguments: `x_0` for one that varies, a number for others."""
    names = [*names, *("" for _ in shapes[len(names) :])]
    return [
        tuple(f"{name}_{axis}" if size is None else str(size) for axis, size in enumerate(shape))
        for name, shape in zip(names, shapes, strict=True)
    ]


class TensorFlowExecutable(BehindTensors):
    """A function of TensorFlow compiled for every size; called as the function is.

    Takes tensors and NumPy arrays and gives tensors, no element of which is copied where they are
    dense. In a `tf.function`, and so in `predict` of Keras, a call becomes one node of the graph.
    Results have no gradients. Any number of threads may call one object.
    """

    def __init__(
        self,
        call: Call,
        weights: Sequence[Any],
        executable: Executable | DataSizedExecutable,
    ) -> None:
        self.executable = executable
        """The program behind it; its arguments are tensors, flat, and then the weights."""
        self.name = executable.name
        self._call = call
        self._weights = list(weights)
        self._kept = ral.Weights(lambda array: array.view())
        frozen = [k for k in executable.packable if k >= len(call.paths)]
        self._program = executable.tensor_call(None, frozen=frozen, weights=self._kept)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the arguments that the function takes; results in its structure.

        Raises ShapeMismatchError for sizes that break a constraint, and TypeError for another
        structure or type of arguments. Raises DeviceError for a tensor in another memory.
        """
        leaves = self._call.leaves(args, kwargs)
        if any(map(tf.is_symbolic_tensor, leaves)):
            results = self._traced(leaves)
        else:
            results = self._run(leaves)
        return self._call.packed(results)

    def _run(self, leaves: Sequence[Any]) -> list[Any]:
        call = self._call
        arguments = [
            self._readable(leaf, path, dtype)
            for leaf, path, dtype in zip(leaves, call.paths, call.dtypes, strict=True)
        ]
        capsules = self._program([*arguments, *self._weights])
        return list(map(tf.experimental.dlpack.from_dlpack, capsules))

    def _readable(self, leaf: Any, path: str, dtype: Any) -> Any:
        """`leaf` as the runtime reads it. TensorFlow's DLPack aborts for tensors of strings."""
        if isinstance(leaf, tf.Variable):
            leaf = leaf.read_value()
        if isinstance(leaf, tf.Tensor):
            if "CPU" not in leaf.device:
                raise DeviceError(f"{self.name}: {path} is on {leaf.device}; pass it to the CPU")
            if leaf.dtype != dtype:
                raise TypeError(
                    f"{self.name}: {path} has elements of type {leaf.dtype.name}, not {dtype.name}"
                )
            return leaf
        if isinstance(leaf, np.ndarray | np.generic | bool | int | float | complex):
            return leaf
        raise TypeError(f"{self.name}: {path} must be a tensor, got {type(leaf).__name__}")

    def _traced(self, leaves: Sequence[Any]) -> list[Any]:
        """A node of the graph that is traced."""
        specs = self._call.results
        results = tf.py_function(
            lambda *tensors: self._run(tensors), leaves, [spec.dtype for spec in specs]
        )
        for result, spec in zip(results, specs, strict=True):
            result.set_shape(spec.shape)
        return list(results)

    def _weight_arrays(self) -> dict[int, npt.NDArray[Any]]:
        first = len(self._call.paths)
        return {first + k: np.asarray(weight) for k, weight in enumerate(self._weights)}

    def __repr__(self) -> str:
        return f"<shlo_disc.tensorflow.TensorFlowExecutable {self.name}{self.signature}>"
