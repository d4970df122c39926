"""What names a traced program in full: its primitives, and what parameters say nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax._src import core as _core
from jax._src.lax import lax as _lax
from jax._src.lax import linalg as _linalg
from jax._src.lax import slicing as _slicing
from jax._src.sharding_impls import UNSPECIFIED as _UNSPECIFIED  # type: ignore[attr-defined]
from jax.sharding import AbstractMesh, Mesh
from jaxlib.version import __version__ as _jaxlib_version

from shlo_disc.jax_private.extend import Primitive, primitives

try:
    from jax._src.random import prng as _prng
except ImportError:  # where other versions have it
    from jax._src import prng as _prng  # type: ignore[attr-defined,no-redef]

JAX_VERSIONS = (jax.__version__, _jaxlib_version)
"""Of `jax` and `jaxlib`."""

_LITERALS = "jax._src.literals"

LEFT_TO_DERIVATIVES: Mapping[str, Sequence[str]] = {
    "custom_jvp_call": ("jvp_jaxpr_fun",),
    "custom_vjp_call": ("bwd", "fwd_jaxpr_thunk", "out_trees"),
    "reduce": ("computation",),
    "remat2": ("policy",),
}
"""Parameters of primitives that say nothing of their values: functions that derivatives call, and
`computation`, which is the jaxpr beside it."""


_OTHERS = frozenset({
    "cholesky_update", "geqp3", "geqrf", "lu_pivots_to_permutation", "mulhi",
    "optimization_barrier", "ormqr", "ragged_dot_general", "scatter-sub", "split", "stack",
    "symmetric_product", "tile", "unstack",
})  # fmt: skip
"""Names of primitives of `lax` that `jax.extend` does not have."""


def is_known(primitive: Any) -> bool:
    """True for one of JAX that has one meaning: of `jax.extend`, of PRNG keys, or of _OTHERS."""
    if getattr(primitives(), f"{primitive.name}_p", None) is primitive:
        return True  # as most are called
    return primitive in _usual() or (primitive.name in _OTHERS and primitive in _others())


@functools.cache
def _usual() -> frozenset[Any]:
    return _primitives_of(primitives(), _prng)


@functools.cache
def _others() -> frozenset[Any]:
    return _primitives_of(_lax, _slicing, _linalg)


def _primitives_of(*modules: ModuleType) -> frozenset[Any]:
    values = (value for module in modules for value in vars(module).values())
    return frozenset(value for value in values if isinstance(value, Primitive))


def is_typed_number(value: Any) -> bool:
    """True for a Python number with a dtype: what JAX makes of literals."""
    return isinstance(value, int | float | complex) and type(value).__module__ == _LITERALS


def is_array(value: Any) -> bool:
    """True for an array of JAX's or NumPy's, and for what JAX makes of NumPy's."""
    is_literal = type(value).__module__ == _LITERALS
    return is_literal or isinstance(value, np.ndarray | np.generic | jax.Array)


def prng_name(value: Any) -> str:
    """The name of an implementation of PRNG keys that JAX has; "" for anything else."""
    if not isinstance(value, _prng.PRNGImpl):
        return ""
    name: str = value.name
    return name if _prng.prngs.get(name) is value else ""


def says_nothing(value: Any) -> bool:
    """True for a sharding that is not specified, a mesh without devices, and no names of axes."""
    if isinstance(value, AbstractMesh | Mesh):
        return bool(value.empty)
    if isinstance(value, _core.AxisEnv):
        return not value.axis_sizes and not value.spmd_axis_names
    return type(value) is type(_UNSPECIFIED)


def trivially_placed(aval: Any) -> bool:
    """True for the type of an array that is on no mesh, and in no memory of its own."""
    sharding = getattr(aval, "sharding", None)
    space = getattr(aval, "memory_space", _core.MemorySpace.Device)
    return (sharding is None or sharding.mesh.empty) and space is _core.MemorySpace.Device
