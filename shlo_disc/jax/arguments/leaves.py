"""What a call is made of: array leaves with their types, and their names for messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from shlo_disc.base.errors import ArgumentPlaceError, NumberRangeError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.executables.devices import Place, place_of
from shlo_disc.jax_private.arrays import ArrayImpl, KeyArray

_SCALARS = (bool, int, float, complex)


@dataclass(frozen=True)
class Leaf:
    """The type of one array argument."""

    name: str
    """Its path as the user would write it: `params['w'][0]`."""
    shape: tuple[int, ...]
    dtype: Any
    """As JAX will see it (float64 is float32 unless x64 is on; `key<fry>` for typed PRNG keys)."""
    weak_type: bool
    group: int
    """Index of the top-level argument it belongs to."""

    @property
    def is_key(self) -> bool:
        """Is this an array of typed PRNG keys?"""
        return is_key_dtype(self.dtype)


def is_key_dtype(dtype: Any) -> bool:
    """Is it the dtype of typed PRNG keys?"""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))  # type: ignore[attr-defined]


def abstract(shape: Any, dtype: Any, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """The abstract array that JAX traces with."""
    spec: Any = jax.ShapeDtypeStruct
    result: jax.ShapeDtypeStruct = spec(shape, dtype, weak_type=weak_type)
    return result


def raw_spec(aval: Any) -> jax.ShapeDtypeStruct:
    """The abstract array that stands for `aval`: of words, where that is an array of typed keys."""
    raw = aval
    if is_key_dtype(aval.dtype):
        raw = jax.eval_shape(jax.random.key_data, abstract(aval.shape, aval.dtype))
    return abstract(raw.shape, raw.dtype, raw.weak_type)


def type_of(value: Any) -> tuple[tuple[int, ...], Any, bool] | None:
    """(shape, dtype, weak_type) of an argument leaf as JAX will see it; None for non-arrays."""
    if type(value) is ArrayImpl:
        return value.shape, value.dtype, value.weak_type
    if isinstance(value, (jax.Array, jax.ShapeDtypeStruct)):
        return tuple(value.shape), value.dtype, bool(getattr(value, "weak_type", False))
    if isinstance(value, (*_SCALARS, np.ndarray, np.generic)) and _is_numeric(value):
        if isinstance(value, np.ndarray) and not value.dtype.isnative:
            # `jnp.asarray` swaps the bytes; `jax.typeof` refuses such an array.
            value = np.empty(value.shape, value.dtype.newbyteorder("="))
        aval = jax.typeof(value)
        return tuple(aval.shape), aval.dtype, bool(aval.weak_type)
    if (array := as_array(value)) is not None:
        return type_of(array)
    return None


def as_array(value: Any) -> Any:
    """What `__jax_array__` of an object makes of it; None if it has no such method."""
    method = getattr(value, "__jax_array__", None)  # tracers have None there
    return None if method is None else method()


_WIDE = frozenset(np.dtype(name) for name in ("int64", "uint64", "float64", "complex128"))


def is_canonical(dtype: Any) -> bool:
    """True if operations keep the dtype: no dtype of 64 bits while x64 is off."""
    return dtype not in _WIDE or bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def refuse_wide_array(value: Any, names: Callable[[], Sequence[str]], index: int) -> None:
    """Raise TypeError for a jax.Array of 64 bits where x64 is off.

    `jax.jit` computes with such an array in 32 or in 64 bits, as each operation has it. Exported
    programs are in 32 bits, and a silent conversion would cut numbers off.
    """
    if not isinstance(value, jax.Array) or is_canonical(value.dtype):
        return
    name = names()[index]
    narrow = jax.dtypes.canonicalize_dtype(value.dtype)
    raise TypeError(
        f"argument {name} is a jax.Array of dtype {value.dtype}, made while x64 was on, and "
        f"x64 is off in this call; pass {name}.astype('{narrow}'), or call with "
        "jax.enable_x64(True)"
    )


def arrays_of(values: Sequence[Any]) -> list[Any]:
    """The jax.Array that holds each value, None for those of NumPy and of Python."""
    arrays = [value._base_array if type(value) is KeyArray else value for value in values]
    return [array if type(array) is ArrayImpl else None for array in arrays]


def refuse_place(values: Sequence[Any], names: Callable[[], Sequence[str]], place: Place) -> None:
    """Raise ArgumentPlaceError for a jax.Array that programs at `place` do not read where it is.

    They read arrays of one device: of any CPU, or of the GPU that `place` is.
    """
    for index, array in enumerate(arrays_of(values)):
        if array is None:
            continue
        devices = array.sharding.device_set
        if len(devices) > 1:
            raise ArgumentPlaceError(
                f"argument {names()[index]} is spread over {len(devices)} devices"
            )
        (device,) = devices
        here = place_of(device)
        if here != place and not (here.is_cpu and place.is_cpu):
            raise ArgumentPlaceError(f"argument {names()[index]} is on {device}")


class RefArgumentError(UnsupportedError):
    """An argument is a `jax.Ref`."""


def not_an_array(value: Any, name: str) -> Exception:
    """The error for an argument leaf that is no array."""
    if isinstance(value, jax.Ref):
        return RefArgumentError(
            f"argument {name} is a jax.Ref; pass its value as an argument and return the next"
        )
    if isinstance(value, int):  # JAX has no type for it; numbers of 64 bits at most got that far
        return NumberRangeError(f"argument {name}: the Python integer {value} is beyond 64 bits")
    described = type(value).__name__
    if isinstance(value, (np.ndarray, np.generic)):
        described += f" of dtype {value.dtype}"
    return TypeError(
        f"argument {name} is of type {described}; every leaf of an argument must be an array or a "
        "number. Values that are not arrays can be given with static_argnums or static_argnames."
    )


def _is_numeric(value: Any) -> bool:
    # Everything but objects, text and dates; extension types such as bfloat16 have kind "V".
    return np.asarray(value).dtype.kind not in "OSUMm"


def needs_no_conversion(value: Any, leaf: Leaf) -> bool:
    """Does the executable take such a value as it is?"""
    if type(value) is np.ndarray:
        return bool(value.dtype == leaf.dtype)
    return type(value) is ArrayImpl or type(value) in _SCALARS


def runs_natively(value: Any) -> bool:
    """Does the C++ dispatcher take such a value? It converts NumPy's and unwraps typed keys."""
    kind = type(value)
    if kind is KeyArray:
        return type(value._base_array) is ArrayImpl and len(value._impl.key_shape) == 1
    return kind in (ArrayImpl, np.ndarray, *_SCALARS) or isinstance(value, np.generic)


def native_dtypes(leaves: Sequence[Leaf]) -> tuple[np.dtype[Any] | None, ...]:
    """What the C++ dispatcher converts arrays and scalars of NumPy to."""
    return tuple(None if leaf.is_key else np.dtype(leaf.dtype) for leaf in leaves)


def spec_of(aval: Any) -> jax.ShapeDtypeStruct:
    """What an abstract value of JAX says of an array."""
    return abstract(aval.shape, aval.dtype, aval.weak_type)


def concrete(value: Any, leaf: Leaf) -> Any:
    """`value` as the executable takes it: a jax.Array, or a NumPy array of the canonical dtype."""
    if type(value) is ArrayImpl:
        return value
    if leaf.is_key:
        return jax.random.key_data(value)
    if isinstance(value, jax.Array):
        return value
    if (array := as_array(value)) is not None:
        return array
    return np.asarray(value, leaf.dtype, order="C")


def top_level_of(args: Sequence[Any], kwargs: dict[str, Any]) -> list[int]:
    """For each leaf of `(args, kwargs)`, the index of the top-level argument that holds it."""
    groups: list[int] = []
    for index, value in enumerate([*args, *(kwargs[key] for key in sorted(kwargs))]):
        groups += [index] * len(jax.tree.leaves(value))
    return groups


def leaf_names(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Sequence[int] | None = None,
) -> list[str]:
    """The path of each leaf of `(args, kwargs)`: `params['w']`; `positions`: where args stood."""
    positional = positional_names(function, range(len(args)) if positions is None else positions)
    names: list[str] = []
    for name, value in zip(positional, args, strict=True):
        names += [
            name + jax.tree_util.keystr(path)
            for path, _ in jax.tree_util.tree_leaves_with_path(value)
        ]
    for key in sorted(kwargs):
        names += [
            key + jax.tree_util.keystr(path)
            for path, _ in jax.tree_util.tree_leaves_with_path(kwargs[key])
        ]
    return names


def positional_names(function: Callable[..., Any], positions: Sequence[int]) -> list[str]:
    """The names of the parameters that take the positional arguments at `positions`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins and some callables have no signature
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [p.name for p in parameters if p.kind in kinds]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return [known[k] if k < len(known) else f"{rest}[{k - len(known)}]" for k in positions]
