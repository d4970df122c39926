"""What `compile` takes, as one traced function, and how calls pass its arguments."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.util import nest

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError

_DEFAULT = "serving_default"

_FILES_OF_KERAS = (".keras", ".h5", ".hdf5")

_DAMAGES = (OSError, LookupError, RuntimeError, TypeError, ValueError, tf.errors.OpError)
"""What TensorFlow raises for a SavedModel that is incomplete or damaged."""


def concrete_function(source: Any, signature: Any) -> Any:
    """`source` traced for `signature`; see :func:`shlo_disc.tensorflow.compile` for both.

    Raises TypeError for another source or signature. Raises OSError for a folder without a
    SavedModel, InvalidModuleError for a damaged one, and KeyError for a signature that it lacks.
    """
    if isinstance(source, str | os.PathLike):
        return _of_saved_model(Path(source), signature)
    if isinstance(source, ConcreteFunction):
        if signature is not None:
            raise TypeError("a ConcreteFunction has its signature; leave `signature` out")
        return source
    if isinstance(signature, str):
        raise TypeError(f"the name of a signature is for a SavedModel, not {type(source).__name__}")
    if _is_keras_model(source):
        function, signature = _of_keras(source, signature)
    elif hasattr(source, "get_concrete_function"):
        function = source
    elif callable(source):
        function = tf.function(source)
    else:
        raise TypeError(
            f"expected a folder, a Keras model or a function, got {type(source).__name__}"
        )
    if signature is None and getattr(function, "input_signature", None) is None:
        raise TypeError(
            "the function states no signature; pass one, such as [tf.TensorSpec([None, 8])]"
        )
    if signature is not None and not isinstance(signature, list | tuple):
        raise TypeError(
            "the signature of a function is a list of its arguments, such as "
            f"[tf.TensorSpec([None, 8])], not {type(signature).__name__}"
        )
    return function.get_concrete_function(*(signature or ()))


def _of_saved_model(folder: Path, signature: Any) -> Any:
    if signature is not None and not isinstance(signature, str):
        raise TypeError("the signature of a SavedModel is a name; pass a string")
    if folder.suffix in _FILES_OF_KERAS and folder.is_file():
        raise TypeError(
            f"{folder} is a file of Keras; pass keras.models.load_model({folder.name!r})"
        )
    if not folder.joinpath("saved_model.pb").is_file():
        raise FileNotFoundError(f"{folder} has no saved_model.pb")
    try:
        loaded = tf.saved_model.load(folder)
    except _DAMAGES as error:
        told = str(error).strip().partition("\n")[0]
        raise InvalidModuleError(f"TensorFlow cannot load {folder}: {told}") from error
    name = signature or _DEFAULT
    if name not in loaded.signatures:
        known = ", ".join(sorted(loaded.signatures)) or "none"
        raise KeyError(f"{folder} has no signature {name!r}; signatures: {known}")
    function = loaded.signatures[name]
    function._shlo_disc_owner = loaded  # whose variables it reads
    return function


def _is_keras_model(source: Any) -> bool:
    import keras  # noqa: PLC0415 - TensorFlow loads it when it is used first

    return isinstance(source, keras.Model)


def _of_keras(model: Any, signature: Any) -> tuple[Any, Any]:
    """A function of the inputs of `model`, and their types."""

    def predict(inputs: Any) -> Any:
        return model(inputs, training=False)

    predict.__name__ = re.sub(r"\W", "_", model.name)
    call = tf.function(predict)
    if signature is not None:
        return call, signature
    if not getattr(model, "inputs", None):
        raise TypeError(f"the model {model.name} has not been built; pass a signature")
    structure = model._inputs_struct if hasattr(model, "_inputs_struct") else model.inputs
    specs = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name), structure
    )
    if isinstance(specs, list | tuple) and len(specs) == 1:
        specs = specs[0]
    return call, [specs]


class Call:
    """A traced function: how arguments become a row of tensors, and results their structure."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = re.sub(r"^__inference_(signature_wrapper_)?|_\d+$", "", function.name.decode())
        if composite := [
            kind
            for kind in (function.structured_input_signature, function.structured_outputs)
            if any(not _is_array(leaf) for leaf in nest.flatten(kind))
        ]:
            leaf = next(leaf for leaf in nest.flatten(composite) if not _is_array(leaf))
            raise UnsupportedError(f"{self.name}: {type(leaf).__name__} is no array")
        self._parameters = _parameters(function)
        self._python = inspect.Signature(
            [parameter for parameter, _ in self._parameters], __validate_parameters__=False
        )
        found = [
            (parameter.name, path, leaf)
            for parameter, specs in self._parameters
            for path, leaf in nest.flatten_with_tuple_paths(specs)
        ]
        tensors = [row for row in found if isinstance(row[2], tf.TensorSpec)]
        self.paths = ["".join([name, *(f"[{key!r}]" for key in path)]) for name, path, _ in tensors]
        """The arguments that are tensors, as Python spells them: `x['k']`."""
        self.dtypes = [spec.dtype for _, _, spec in tensors]
        """Their element types."""
        self.symbols = _unique(
            [re.sub(r"\W", "_", "_".join([name, *map(str, path)])) for name, path, _ in tensors]
        )
        """Names of the same for symbols: `x_k`."""
        self.results = list(function.outputs)
        self._structure = function.structured_outputs
        leaves = nest.flatten(self._structure, expand_composites=True)
        self._is_one = len(leaves) == 1 and nest.is_nested(self._structure) is False
        self._flat = [spec for _, spec in self._parameters]
        self._is_flat = all(isinstance(spec, tf.TensorSpec) for spec in self._flat)

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors among the arguments of a call, in the order of the graph.

        Raises TypeError for arguments of another structure.
        """
        if self._is_flat and not kwargs and len(args) == len(self._flat):
            values: Sequence[Any] = args
        else:
            try:
                bound = self._python.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}: {error}") from None
            bound.apply_defaults()
            values = [bound.arguments[parameter.name] for parameter, _ in self._parameters]
        found = []
        for value, (parameter, spec) in zip(values, self._parameters, strict=True):
            if isinstance(spec, tf.TensorSpec):
                found.append(value)
                continue
            own, given = nest.flatten_with_tuple_paths(spec), nest.flatten_with_tuple_paths(value)
            if [path for path, _ in own] != [path for path, _ in given]:
                raise TypeError(
                    f"{self.name}: {parameter.name} has another structure than the signature: "
                    f"{_spelled(given)}, not {_spelled(own)}"
                )
            for (_, leaf), (_, one) in zip(given, own, strict=True):
                if isinstance(one, tf.TensorSpec):
                    found.append(leaf)
                elif leaf != one:
                    raise TypeError(
                        f"{self.name}: {parameter.name} must have {one!r}, as when the function "
                        f"was traced, got {leaf!r}"
                    )
        return found

    def packed(self, results: Sequence[Any]) -> Any:
        """The results in the structure that the function returns."""
        if self._is_one:
            return results[0]
        given = iter(results)
        # Gradients of embeddings are IndexedSlices, of three tensors.
        flat = nest.flatten(self._structure, expand_composites=True)
        leaves = [None if leaf is None else next(given) for leaf in flat]
        return nest.pack_sequence_as(self._structure, leaves, expand_composites=True)


def _spelled(leaves: Sequence[tuple[tuple[Any, ...], Any]]) -> str:
    """The paths of leaves, as Python spells them."""
    return ", ".join("".join(f"[{key!r}]" for key in path) or "one leaf" for path, _ in leaves)


def _is_array(leaf: Any) -> bool:
    return not isinstance(leaf, tf.TypeSpec) or isinstance(leaf, tf.TensorSpec)


def _parameters(function: Any) -> list[tuple[inspect.Parameter, Any]]:
    """The parameters of a function, each with the structure of its TensorSpecs."""
    given = function.function_type.parameters
    args, kwargs = function.structured_input_signature
    positional = iter(args)
    found = []
    for name, parameter in given.items():
        specs = kwargs[name] if name in kwargs else next(positional)
        default = (
            parameter.empty
            if any(isinstance(leaf, tf.TensorSpec) for leaf in nest.flatten(specs))
            else specs
        )
        found.append((inspect.Parameter(name, parameter.kind, default=default), specs))
    return found


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        own, number = name, 1
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found
