"""Every private name of JAX that shlo_disc uses, and what for.

The rest of the package imports them from here, so a new JAX version is one file to check. Tried
with jax and jaxlib 0.10.2 (Python 3.11) and 0.12.0.1 (Python 3.12);
`tests/frontend/test_jax_private.py` holds each name to what is said of it here.

* `trace_context`: the part of `jax.config` a trace depends on (x64, matmul precision, ...), which
  belongs in cache keys.
* `disable_jit`: `jax.disable_jit()` asks to run the function as Python.
* `ArrayImpl`: the one concrete array class; `type(x) is ArrayImpl` costs a fraction of isinstance.
* `shaped_array`, `batched_device_put`: NumPy memory as a jax.Array, without a copy and uncommitted.
* `enable_x64`: while it is off, `batched_device_put` halves 64-bit elements; see `wide_device_put`.
* `cpu_sharding`: the sharding of one device (public `SingleDeviceSharding`, kept).
* `collect_garbage`: lets go of buffers whose arrays died in another thread.
* `key_impl`: `dtype._impl.name` of typed PRNG keys, to wrap raw results.
* `DimExpr`: the class of symbolic sizes; its `__eq__` is watched while we trace.
* `weakref_cache_key_types`: the types of parameters that JAX's caches hold weakly.
* `_canonicalize_dimension`: replaced for symbolic sizes, so that a trace leaves no reference cycle.
* `register_exclusion` (twice): our frames stay out of locations and tracebacks. `summarize`: the
  line of an equation.
* `jaxprs_in_params`: nested jaxprs, to find every reshape.
* `export_whole`: `jax.export.export` that leaves `erfc` and `erf_inv` whole, by lowering rules of
  ours: serialising expands each into a hundred operations, slower and less exact than ours.
* `auto_insert_reshard`, `standard_vma_rule`, `ManualAxisType`, `get_cur_mesh_sharding`: what
  `shard_map` needs a primitive to say of its result; without it the gradient of `shard_map(f)` is
  silently wrong.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import jax
from jax import export as _export
from jax._src import config as _config
from jax._src import core as _core
from jax._src import source_info_util as _source_info
from jax._src import traceback_util as _traceback
from jax._src import util as _util
from jax._src.array import ArrayImpl
from jax._src.export.shape_poly import _DimExpr as DimExpr
from jax._src.lax import lax as _lax
from jax._src.lax import special as _special
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import chlo as _chlo
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jaxlib import _jax

__all__ = [
    "ArrayImpl",
    "Comparison",
    "DimExpr",
    "batched_device_put",
    "collect_garbage",
    "comparisons_watched",
    "cpu_sharding",
    "disable_jit",
    "export_whole",
    "held_weakly",
    "is_library_file",
    "key_impl",
    "manual_axes",
    "reshapes_of",
    "shaped_array",
    "trace_context",
    "varying_alike",
    "wide_device_put",
]

trace_context = _config.trace_context
"""`() -> tuple`: hashable; equal when a function would be traced alike."""

disable_jit = _config.disable_jit
"""`.value` is true inside `with jax.disable_jit()`."""


shaped_array = _core.ShapedArray
"""`(shape, dtype, weak_type) -> aval`."""

batched_device_put = _jax.batched_device_put
"""`(aval, sharding, [ndarray], [device], committed) -> array`; aliases 64-byte aligned memory."""


def wide_device_put(*args: Any) -> Any:
    """`batched_device_put` that keeps 64-bit elements whatever `jax_enable_x64` says.

    The array is as one made under `jax.enable_x64(True)`: its buffer holds what its dtype says.
    """
    x64: Any = _config.enable_x64
    if x64.value:
        return batched_device_put(*args)
    with x64(True):
        return batched_device_put(*args)


collect_garbage = _jax.collect_garbage
"""`() -> None`: frees what JAX holds for arrays that are gone."""


def _whole(name: str, op: Any) -> Any:
    """A lowering rule: a custom call that our ingest turns into the op `name`, which `op` makes."""
    target = f"shlo_disc.parked.{name}"

    def rule(context: Any, x: Any, **asked: Any) -> Any:
        if any(value is not None for value in asked.values()):
            # An accuracy or a result type (JAX 0.12): JAX's own rule knows what to do.
            return _lax._nary_lower_hlo(op, context, x, **asked)
        call = _hlo.CustomCallOp([x.type], [x], call_target_name=_ir.StringAttr.get(target))
        return list(call.results)

    return rule


_WHOLE = (
    (_special.erfc_p, _whole("chlo.erfc", _chlo.erfc)),
    (_special.erf_inv_p, _whole("chlo.erf_inv", _chlo.erf_inv)),
)
_UNCHECKED = [
    _export.DisabledSafetyCheck.custom_call(f"shlo_disc.parked.{name}")
    for name in ("chlo.erfc", "chlo.erf_inv")
]


def export_whole(jitted: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The `jax.export.Exported` of a call, for the CPU and for our ingest only."""
    export = _export.export(
        jitted,
        platforms=["cpu"],
        disabled_checks=_UNCHECKED,
        _override_lowering_rules=_WHOLE,
    )
    return export(*args, **kwargs)


@functools.cache
def cpu_sharding(device: jax.Device) -> jax.sharding.Sharding | None:
    """The sharding of `device` alone; None when its memory is not the host's."""
    return jax.sharding.SingleDeviceSharding(device) if device.platform == "cpu" else None


def varying_alike(arguments: Any) -> list[Any]:
    """Arguments that all vary over the same manual axes; nothing changes outside `shard_map`."""
    core: Any = _core
    return list(core.auto_insert_reshard(*arguments))


def manual_axes(primitive: str, arguments: Any, results: list[Any]) -> list[Any]:
    """The avals `results` as they are under the mesh in force, given the arguments' avals."""
    core: Any = _core
    varying = core.standard_vma_rule(primitive, *arguments)
    sharding = core.get_cur_mesh_sharding()
    manual = core.ManualAxisType(varying=varying)
    return [aval.update(sharding=sharding, manual_axis_type=manual) for aval in results]


def key_impl(dtype: Any) -> str:
    """The name of the PRNG of a typed key dtype, as `jax.random.wrap_key_data(impl=)` takes it."""
    name: str = dtype._impl.name
    return name


def held_weakly(kind: type) -> None:
    """JAX's caches of abstract evaluation hold parameters of type `kind` weakly from now on."""
    _util.weakref_cache_key_types.add(kind)


# JAX asks every symbolic size for its `__index__` and keeps the TypeError in a local variable. The
# error, its traceback and the frames of all callers then form a cycle: the user's arrays and our
# executables in these frames would live until Python's next full collection.
_canonicalize_dimension = _core._canonicalize_dimension


def _canonical_dimension(dim: Any) -> Any:
    return dim if isinstance(dim, DimExpr) else _canonicalize_dimension(dim)


_core._canonicalize_dimension = _canonical_dimension


# ---- watching `==` on symbolic sizes ----------------------------------------------------------
#
# JAX answers False when it cannot tell whether two sizes are equal (jax#14290), because `==` is
# also used by its caches. A function that asks (`if x.shape == y.shape`) would silently take the
# wrong branch, so we note who asked: an answer given to a file outside JAX becomes a guard.

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_JAX_DIRS = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep
    for file in (jax.__file__, _jax.__file__)
    if file
)
_library_files: dict[str, bool] = {}


def is_library_file(file: str) -> bool:
    """Whether code in `file` belongs to JAX or to us, and not to the user."""
    known = _library_files.get(file)
    if known is None:
        path = os.path.abspath(file)
        known = _library_files[file] = path.startswith((*_JAX_DIRS, _HERE))
    return known


# Locations in modules, and tracebacks, then show the user's lines without ours around them.
_source_info.register_exclusion(_HERE)
_traceback.register_exclusion(_HERE)


class Comparison:
    """One `left == right` that JAX answered with False because it did not know."""

    __slots__ = ("left", "right", "user", "where")

    def __init__(self, left: Any, right: Any, frame: FrameType) -> None:
        self.left = str(left)
        self.right = str(right)
        self.user = not is_library_file(frame.f_code.co_filename)
        self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def __repr__(self) -> str:
        return f"{self.left} == {self.right} at {self.where}"


class _Watch(threading.local):
    log: list[Comparison] | None = None


_watch = _Watch()
_watchers = 0
_install = threading.Lock()
_original_eq = DimExpr.__eq__
_NE_CODE = DimExpr.__ne__.__code__


def _watched_eq(self: Any, other: Any) -> bool:
    answer = bool(_original_eq(self, other))
    log = _watch.log
    if answer or log is None:
        return answer
    if not isinstance(other, (DimExpr, int)) or isinstance(other, bool):
        return answer
    if isinstance(other, DimExpr) and other.scope is not self.scope:
        return answer
    frame = sys._getframe(1)
    if frame.f_code is _NE_CODE and frame.f_back is not None:
        frame = frame.f_back
    log.append(Comparison(self, other, frame))
    return answer


@contextmanager
def comparisons_watched() -> Iterator[list[Comparison]]:
    """The comparisons of symbolic sizes this thread makes inside the block, in order."""
    global _watchers  # noqa: PLW0603 - the class to patch is JAX's, so the count is the process's
    with _install:
        if _watchers == 0:
            DimExpr.__eq__ = _watched_eq  # type: ignore[method-assign]
        _watchers += 1
    outer, _watch.log = _watch.log, []
    try:
        yield _watch.log
    finally:
        _watch.log = outer
        with _install:
            _watchers -= 1
            if _watchers == 0:
                DimExpr.__eq__ = _original_eq  # type: ignore[method-assign]


def reshapes_of(jaxpr: Any) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], str]]:
    """(operand shape, result shape, `model.py:7`) of every reshape of symbolic sizes, nested
    too.
    """
    todo = [getattr(jaxpr, "jaxpr", jaxpr)]
    while todo:
        inner = todo.pop()
        for equation in inner.eqns:
            if equation.primitive.name == "reshape":
                before = equation.invars[0].aval.shape
                after = equation.outvars[0].aval.shape
                if any(isinstance(size, DimExpr) for size in (*before, *after)):
                    where = _source_info.summarize(equation.source_info)
                    yield before, after, where.split(" (")[0]
            todo += list(_core.jaxprs_in_params(equation.params))
