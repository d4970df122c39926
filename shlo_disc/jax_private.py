"""Every private name of JAX that shlo_disc uses, and what for.

The rest of the package imports them from here, so a new JAX version is one file to check. Tried
with jax and jaxlib 0.10.2 (Python 3.11) and 0.12.0.1 (Python 3.12);
`tests/frontend/test_jax_private.py` holds each name to what is said of it here.

* `trace_context`: the part of `jax.config` a trace depends on (x64, matmul precision, ...), which
  belongs in cache keys.
* `checking`: a context of our own in JAX's cache keys (public `jax.make_user_context`).
* `usual_states`, `is_staging`, `is_transforming`, `numbers_sought`, `chosen_device`: is JAX
  tracing, looking for NaN, or told where results go; then a call takes Python.
  `unguarded_device_put`: results under a transfer guard.
* `closed_over`: the values of outer traces that a traced function reads (`Traced._consts`).
  `retyped`: such a value has another type while a function is traced (`Tracer.aval`);
  `are_plain`: it has nothing but a shape and a dtype.
* `named_axes`: the axes of outer programs that a jaxpr needs (`NamedAxisEffect`, `shard_map_p`).
  `batched_by`: a batching rule that is told the name of its axis.
* `is_export`: is a module lowered that `jax.export` keeps.
* `disable_jit`: `jax.disable_jit()` asks to run the function as Python.
* `ArrayImpl`: the one concrete array class; `type(x) is ArrayImpl` costs a fraction of isinstance.
* `shaped_array`, `batched_device_put`: NumPy memory as a jax.Array, without a copy and uncommitted.
* `enable_x64`: while it is off, `batched_device_put` halves 64-bit elements; see `wide_device_put`.
* `cpu_sharding`: the sharding of one device (public `SingleDeviceSharding`, kept).
* `order_on_stream`, `adopt_memory`, `rewrap`: arrays of a GPU (public `jax.dlpack` waits).
* `collect_garbage`: lets go of buffers whose arrays died in another thread.
* `KeyArray`, `prngs`: typed keys with their words, taken and made without a primitive's call.
* `key_impl`: `dtype._impl.name` of typed PRNG keys, to wrap raw results.
* `weakref_cache_key_types`: the types of parameters that JAX's caches hold weakly.
* `_canonicalize_dimension`: replaced for symbolic sizes, so that a trace leaves no reference cycle.
* `DimExpr`: the class of symbolic sizes; `frontend/questions.py` answers what is asked of them.
  `SymbolicScope`: its subclass there adds constraints while a trace runs. `size_as_array`: a size
  as a traced number. `DecisionByElimination`, `Comparator`, `BEST`, `use_bounds`: the bounds of
  sizes, which `frontend/bounds.py` finds. `JAX_TYPES`: callables whose C++ code hashes and
  compares sizes.
* `register_exclusion` (twice): our frames stay out of locations and tracebacks. `summarize`: the
  line of an equation.
* `Literal`: numbers in jaxprs, to compare two traces. `Variable`, `is_jaxpr`:
  to take a jaxpr apart.
* `replace_functions`, `use_builtins`, `use_index`: functions of JAX that want constant sizes
  (`frontend/generic.py`).
* `IndexSlice`: the class of `jax.ds`. `canonicalize_slice`: start, step and size of a Python slice.
* `parsed_module`: text as JAX's MLIR module, for `compiler_ir`.
* `check_by_jaxpr`: how `checkify` looks for errors inside a primitive of ours.
* `bind_equation`: runs one equation, at its source line.
* `on_many_devices`, `device_count`, `tiles_of`, `sharding_of_tiles`: `custom_partitioning` for an
  equation of ours, in the partitioner's own terms: which device has which tile of an array.
* `ffi_handlers`, `ffi_types`: the FFI targets XLA knows (`xla_client.custom_call_targets`), LAPACK
  among them, whose functions jaxlib takes from SciPy on first use (`jaxlib.lapack`). XLA does not
  tell the handlers of stages before the last one, nor how a state is deleted, nor of targets in the
  plugin of a GPU: `register_custom_call_target` and `register_custom_type` note those, and
  `_custom_callback` has the targets that wait for their backend.
* `qr_p`, `hessenberg_p`, `fft_p`: lowering rules for symbolic sizes. `reduce_window_p`: one
  without calls in reducers.
* `jaxprs_in_params`: nested jaxprs, to find every equation.
* `lower_whole`: what `jax.export.export` does first, `Traced.lower` for an export; the rest of it
  (a copy, a wrapper that solves sizes, checks, the artifact) took three times as long. `erfc` and
  `erf_inv` are left whole, by lowering rules of ours: serialising expands each into a hundred
  operations, slower and less exact than ours. `psum`, `pmax` and `pmin` over axes of `jax.vmap` get
  rules that take symbolic sizes. Callbacks get rules that raise (JAX's say "std::bad_cast" for
  symbols). `portable_artifact`: a module as `jax.export` serialises it.
* `platform_index_p` and `_cond_lowering`: what `lax.platform_dependent` makes.
* `constraints_of`: the relations of sizes that a scope was told.
* `auto_insert_reshard`, `standard_vma_rule`, `ManualAxisType`: what
  `shard_map` needs a primitive to say of its result; without it the gradient of `shard_map(f)` is
  silently wrong.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import callback as _callback
from jax._src import checkify as _checkify
from jax._src import config as _config
from jax._src import core as _core
from jax._src import indexing as _indexing
from jax._src import sharding_impls as _sharding_impls
from jax._src import source_info_util as _source_info
from jax._src import traceback_util as _traceback
from jax._src import util as _util
from jax._src.array import ArrayImpl
from jax._src.export import _export as _export_module
from jax._src.export import shape_poly as _shape_poly
from jax._src.export import shape_poly_decision as _shape_poly_decision
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _partial_eval
from jax._src.lax import convolution as _convolution
from jax._src.lax import fft as _fft
from jax._src.lax import lax as _lax
from jax._src.lax import linalg as _linalg_module
from jax._src.lax import parallel as _parallel
from jax._src.lax import special as _special
from jax._src.lax import windowed_reductions as _windowed
from jax._src.lax.control_flow import conditionals as _conditionals
from jax._src.lib import xla_client as _xla  # type: ignore[attr-defined]
from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import chlo as _chlo
from jax._src.lib.mlir.dialects import hlo as _hlo  # type: ignore[attr-defined]
from jax._src.numpy import einsum as _numpy_einsum
from jax._src.numpy import fft as _numpy_fft
from jax._src.shard_map import shard_map_p as _shard_map_p
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxlib import _jax
from jaxlib import lapack as _lapack_module

try:
    from jax._src.random import prng as _prng
except ImportError:  # where other versions have it
    from jax._src import prng as _prng  # type: ignore[attr-defined,no-redef]

from shlo_disc.errors import ForkError
from shlo_disc.frontend.calls import CALLS, called

__all__ = [
    "BEST",
    "CACHE_TYPE",
    "JAX_TYPES",
    "LEFT_OUT",
    "ArrayImpl",
    "Comparator",
    "DecisionByElimination",
    "DimExpr",
    "InconclusiveDimensionOperation",
    "IndexSlice",
    "KeyArray",
    "Literal",
    "LoweredCallbackError",
    "Lowering",
    "SymbolicScope",
    "Variable",
    "adopt_memory",
    "are_plain",
    "batched_by",
    "batched_device_put",
    "bind_equation",
    "canonicalize_slice",
    "check_by_jaxpr",
    "checking",
    "chosen_device",
    "closed_over",
    "collect_garbage",
    "constraints_of",
    "cpu_sharding",
    "device_count",
    "disable_jit",
    "equation_line",
    "equations_of",
    "fft_of_lengths",
    "generic_text",
    "held_weakly",
    "inputs_used",
    "is_export",
    "is_jaxpr",
    "is_library_file",
    "is_staging",
    "is_transforming",
    "jaxprs_inside",
    "key_impl",
    "key_of_words",
    "lower_whole",
    "max_size",
    "min_size",
    "named_axes",
    "numbers_sought",
    "on_device",
    "on_many_devices",
    "order_on_stream",
    "parsed_module",
    "plain_text",
    "portable_artifact",
    "replace_functions",
    "reshapes_of",
    "retyped",
    "rewrap",
    "scan_operands",
    "shaped_array",
    "sharding_of_tiles",
    "sharding_on",
    "size_as_array",
    "size_named",
    "stablehlo_version",
    "tiles_of",
    "trace_context",
    "under_mesh",
    "unguarded_device_put",
    "use_bounds",
    "use_builtins",
    "use_index",
    "usual_states",
    "varying_alike",
    "wide_device_put",
    "without_mesh",
]

DimExpr = _shape_poly._DimExpr
"""The class of symbolic sizes."""

SymbolicScope = _shape_poly.SymbolicScope
"""The scope that symbolic sizes belong to."""

Literal = _core.Literal
"""A number in a jaxpr."""


IndexSlice = _indexing.Slice
"""`(start, size, stride=1)`: the slice that `jax.ds` makes."""

canonicalize_slice = _core.canonicalize_slice
"""`(slice, size) -> (start, step, size)`; the sizes may be symbols."""


Variable = _core.Var
"""`(aval) -> variable` of a jaxpr."""


def is_jaxpr(value: Any) -> bool:
    """True for a jaxpr, open or closed."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))  # one class since JAX 0.12


def jaxprs_inside(equation: Any) -> Iterator[Any]:
    """The open jaxprs in the parameters of an equation."""
    yield from _core.jaxprs_in_params(equation.params)


def equation_line(equation: Any) -> str:
    """`model.py:7`: the line of the program an equation comes from."""
    return _source_info.summarize(equation.source_info).split(" (")[0]


def without_mesh() -> Any:
    """A context in which types of arrays name no mesh."""
    mesh: Any = jax.sharding.AbstractMesh
    context: Any = jax.sharding.use_abstract_mesh
    return context(mesh((), ()))


def bind_equation(
    equation: Any, arguments: Sequence[Any], params: Mapping[str, Any] | None = None
) -> list[Any]:
    """The results of an equation for these arguments, under the transformations in force.

    The mesh under which it was traced is left. `params`: other parameters than its own.
    """
    info = equation.source_info
    name_stack = _source_info.current_name_stack() + info.name_stack
    user = _source_info.user_context(info.traceback, name_stack=name_stack)
    with user, equation.ctx.manager, without_mesh():
        primitive = equation.primitive
        given = primitive.get_bind_params(equation.params if params is None else params)
        results = primitive.bind(*arguments, **given)
    return list(results) if primitive.multiple_results else [results]


def scan_operands(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a `scan` equation are constants of its body, and how many its state."""
    if "ft_in" in params:  # since JAX 0.11
        fixed, state, _ = params["ft_in"].unpack()
        return len(list(fixed)), len(list(state))
    return params["num_consts"], params["num_carry"]


_FUNCTIONS_OF_SIZES = {
    "NDIndexer.normalize_indices": "jax._src.numpy.indexing",
    "NDIndexer.to_dynamic_slice": "jax._src.numpy.indexing",
    "_normalize_index": "jax._src.numpy.indexing",
    "_parse_indices": "jax._src.numpy.indexing",
    "custom_vjp.__call__": "jax._src.custom_derivatives",
    "_conv": "jax._src.numpy.lax_numpy",
    "_convolve_nd": "jax._src.scipy.signal",
    "_det": "jax._src.numpy.linalg",
    "_det_2x2": "jax._src.numpy.linalg",
    "_det_3x3": "jax._src.numpy.linalg",
    "_slogdet_lu": "jax._src.numpy.linalg",
    "_slogdet_small": "jax._src.numpy.linalg",
    "matrix_rank": "jax._src.numpy.linalg",
    "_dct_deinterleave": "jax._src.scipy.fft",
    "_fft_core": "jax._src.numpy.fft",
    "_irfft_transpose": "jax._src.lax.fft",
    "_rfft_transpose": "jax._src.lax.fft",
    "_einsum": "jax._src.numpy.einsum",
    "_einsum_contract_path": "jax._src.export.shape_poly",
    "_linspace": "jax._src.numpy.array_creation",
    "_pad_symmetric_or_reflect": "jax._src.numpy.lax_numpy",
    "_pad_wrap": "jax._src.numpy.lax_numpy",
    "_repeat": "jax._src.numpy.lax_numpy",
    "_squeeze": "jax._src.numpy.lax_numpy",
    "_tile_to_size": "jax._src.numpy.lax_numpy",
    "int_dtype_for_dim": "jax._src.lax.utils",
    "int_dtype_for_shape": "jax._src.lax.utils",
    "bartlett": "jax._src.numpy.window_functions",
    "blackman": "jax._src.numpy.window_functions",
    "_get_window_mask": "jax._src.nn.functions",
    "canonicalize_axis": "jax._src.util",
    "delete": "jax._src.numpy.lax_numpy",
    "diag_indices_from": "jax._src.numpy.lax_numpy",
    "diagonal": "jax._src.numpy.lax_numpy",
    "hamming": "jax._src.numpy.window_functions",
    "hanning": "jax._src.numpy.window_functions",
    "kaiser": "jax._src.numpy.window_functions",
    "lexsort": "jax._src.numpy.sorting",
    "packbits": "jax._src.numpy.lax_numpy",
    "polyadd": "jax._src.numpy.polynomial",
    "polyval": "jax._src.numpy.polynomial",
    "resize": "jax._src.numpy.lax_numpy",
    "stack": "jax._src.lax.lax",
    "fori_loop": "jax._src.lax.control_flow.loops",
    "scan": "jax._src.lax.control_flow.loops",
    "_searchsorted_scan_impl": "jax._src.numpy.hijax",
    "_shuffle": "jax._src.random.core",
    "_infer_scan_length": "jax._src.lax.control_flow.loops",
    "associative_scan": "jax._src.lax.control_flow.loops",
    "concrete_or_error": "jax._src.core",
    "_const": "jax._src.lax.lax",
}
_MODULES_THAT_COUNT = ("jax._src.numpy.", "jax._src.scipy.", "jax._src.random.", "jax._src.nn.")


def replace_functions(replacements: Mapping[str, Callable[..., Any]]) -> None:
    """Replace functions and methods of JAX wherever they are found, if this JAX has them.

    Names: those in `_FUNCTIONS_OF_SIZES`. A function is replaced in every module that has it, those
    of libraries and of the program, too, and there under any name (`from jax.lax import
    associative_scan as prefixes`). A replacement takes JAX's function first.
    """
    if not replacements:  # every module has a hundred names: no search on every trace
        return
    wrappers: dict[int, tuple[str, Any, Any]] = {}
    for name, replacement in replacements.items():
        try:  # now, since a module imported while a program is traced comes too late
            home: Any = importlib.import_module(_FUNCTIONS_OF_SIZES[name])
        except ImportError:
            continue
        owner, _, attribute = name.rpartition(".")
        home = getattr(home, owner, None) if owner else home
        original = getattr(home, attribute, None)
        if original is None:
            continue
        wrapper = _calling(replacement, original)
        if owner:
            setattr(home, attribute, wrapper)
        else:
            wrappers[id(original)] = name, original, wrapper
    for place, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {})
        is_of_jax = place == "jax" or place.startswith("jax.")
        for key, value in list(held.items()):
            name, original, wrapper = wrappers.get(id(value), ("", None, None))
            if original is value and wrapper is not None and (key == name or not is_of_jax):
                held[key] = wrapper
    for key, handler in _einsum_handlers.items():
        _, _, wrapper = wrappers.get(id(handler), ("", None, handler))
        _einsum_handlers[key] = wrapper


def _calling(replacement: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """`replacement` with `original` as its first argument, and the looks of that."""

    @functools.wraps(original)
    def wrapper(*args: Any, **named: Any) -> Any:
        return replacement(original, *args, **named)

    return wrapper


_einsum_handlers: dict[Any, Any] = getattr(_numpy_einsum, "_poly_einsum_handlers", {})
"""What `jnp.einsum` plans products of symbolic sizes with, by the type of the sizes."""

_counted: set[str] = set()


def use_builtins(builtins: Mapping[str, Callable[..., Any]]) -> None:
    """Let modules of JAX that count elements use these functions for Python's of the same name.

    Modules loaded later are found by another call.
    """
    for name in [n for n in sys.modules if n.startswith(_MODULES_THAT_COUNT)]:
        if name not in _counted:
            _counted.add(name)
            for key, function in builtins.items():
                vars(sys.modules[name]).setdefault(key, function)


class _Operator:
    """The module `operator` with another `index`."""

    def __init__(self, index: Callable[[Any], Any]) -> None:
        self.index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(operator, name)


def use_index(index: Callable[[Any], Any]) -> None:
    """Let JAX's module of convolutions use `index` instead of `operator.index`."""
    if getattr(_convolution, "operator", None) is operator:
        vars(_convolution)["operator"] = _Operator(index)


Comparator = _shape_poly.Comparator
"""`GEQ` and `EQ`: how an expression of sizes is compared with zero."""

DecisionByElimination = _shape_poly_decision._DecisionByElimination
"""JAX's decision procedure for bounds of symbolic sizes."""

InconclusiveDimensionOperation = _shape_poly.InconclusiveDimensionOperation

BEST = _shape_poly.BoundsPrecision.BEST
"""The precision of a decision that looks for the best bounds."""


def use_bounds(bounds: Callable[[Callable[..., Any], Any, Any], tuple[float, float]]) -> None:
    """Let JAX ask `bounds(original, size, precision)` for the bounds of sizes."""
    _shape_poly._bounds_decision = functools.partial(bounds, _shape_poly._bounds_decision)


size_as_array = _shape_poly._dim_as_value
"""`(size) -> array`: a symbolic size as a traced integer."""

fft_of_lengths = _numpy_fft._fft_core_nd
"""`(array, kind, lengths)`: a transform over the last dimensions, which have these lengths."""

min_size = _core.min_dim
max_size = _core.max_dim

KeyArray: Any = _prng.PRNGKeyArray
"""The class of concrete arrays of typed keys: `_base_array` has the words, `_impl` the PRNG."""

CACHE_TYPE: type = type(_util.weakref_lru_cache(lambda key: key))
"""The type of JAX's caches that are written in C++."""

JAX_TYPES: tuple[type, ...] = (_jax.PjitFunction,)
"""Types of callables whose C++ code hashes and compares static arguments."""

trace_context = _config.trace_context
"""`() -> tuple`: hashable; equal when a function would be traced alike."""

checking: Any = jax.make_user_context(None)  # type: ignore[no-untyped-call]
"""`with checking(True)`: JAX does not take the trace of another `jax.jit` of the function."""

usual_states: list[tuple[Any, Any]] = [
    (_core.trace_state_strong_ref, _core.eval_trace),
    (_config.debug_nans, False),
    (_config.debug_infs, False),
    (_config.default_device, None),
]
"""Pairs of an object and its `.value` where JAX neither traces nor looks for NaN and infinity, and
puts results where it does by default."""


def is_export(context: Any) -> bool:
    """True in a lowering rule whose module `jax.export` keeps."""
    return bool(context.module_context.lowering_parameters.for_export)


def is_staging() -> bool:
    """True while this thread traces a program, which operations on concrete arrays belong to."""
    trace: Any = _core.trace_state_strong_ref.value
    while trace is not None and trace is not _core.eval_trace:
        if isinstance(trace, _partial_eval.DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def is_transforming() -> bool:
    """True in this thread inside any transformation of JAX: operations do not simply run."""
    return _core.trace_state_strong_ref.value is not _core.eval_trace


def closed_over(traced: Any) -> list[Any]:
    """The values that became the first arguments of `traced.jaxpr`: those of outer traces.

    Constant arrays are among them where one is a tracer; without tracers the list is empty.
    """
    return list(traced._consts)


def are_plain(tracers: Sequence[Any]) -> bool:
    """True if shape, dtype and weak type are all that the tracers are: no mesh, no axes."""
    return all(tracer.aval == _plain(tracer) for tracer in tracers)


def _plain(spec: Any) -> Any:
    return shaped_array(spec.shape, spec.dtype, weak_type=spec.weak_type)


@contextmanager
def retyped(tracers: Sequence[Any], specs: Sequence[Any]) -> Iterator[None]:
    """Inside, each tracer has the shape, dtype and weak type of its spec, and no other property.

    For functions that are traced inside and read the tracers; no equation of the trace that a
    tracer belongs to may be made meanwhile.
    """
    before = [tracer.aval for tracer in tracers]
    try:
        for tracer, spec in zip(tracers, specs, strict=True):
            tracer.aval = _plain(spec)
        yield
    finally:
        for tracer, aval in zip(tracers, before, strict=True):
            tracer.aval = aval


def named_axes(jaxpr: Any) -> frozenset[Any]:
    """The names of axes of outer programs (`vmap`, `shard_map`) that a jaxpr speaks of.

    Effects tell most; some collectives have none in JAX (`ppermute`).
    """
    names = {effect.name for effect in jaxpr.effects if isinstance(effect, _core.NamedAxisEffect)}
    todo = [getattr(jaxpr, "jaxpr", jaxpr)]
    while todo:
        for equation in todo.pop().eqns:
            if equation.primitive is _shard_map_p:  # names axes of its own inside
                continue
            given = equation.params.get("axis_name", ())
            given = given if isinstance(given, (tuple, list, frozenset)) else (given,)
            names.update(name for name in given if not isinstance(name, int))
            todo += list(jaxprs_inside(equation))
    return frozenset(names)


def batched_by(primitive: Any, rule: Callable[..., tuple[list[Any], list[int | None]]]) -> None:
    """Let `rule(axis_name, size, arguments, axes, **parameters)` batch `primitive`.

    `axis_name` is None for an axis without a name; at least one argument is batched.
    """

    def batch(data: Any, arguments: Any, axes: Any, **parameters: Any) -> Any:
        if all(axis is None for axis in axes):
            results = primitive.bind(*arguments, **parameters)
            return results, [None] * len(results)
        name = None if data.name is _core.no_axis_name else data.name
        return rule(name, data.size, arguments, axes, **parameters)

    _batching.fancy_primitive_batchers[primitive] = batch


def numbers_sought() -> tuple[bool, bool]:
    """(NaN, infinity): what `jax.debug_nans` and `jax.debug_infs` look for in results."""
    return bool(_config.debug_nans.value), bool(_config.debug_infs.value)


def chosen_device() -> Any:
    """What `jax.default_device` says now: a device, the name of a platform, or None."""
    return _config.default_device.value


def on_device(array: Any, device: jax.Device) -> Any:
    """`array`, uncommitted, as an uncommitted array of another device; CPUs share the memory."""
    sharding = sharding_on(device)
    return unguarded_device_put(array.aval, sharding, [np.asarray(array)], [device], False)


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


def unguarded_device_put(*args: Any) -> Any:
    """`wide_device_put` under any transfer guard: our results already are where they belong."""
    with jax.transfer_guard_host_to_device("allow"):
        return wide_device_put(*args)


def order_on_stream(array: Any, stream: int) -> None:
    """Let work that a GPU's stream gets from now on see `array`; the host waits for nothing.

    The export goes at once: while one is outstanding, the array cannot be donated.
    """
    _jax.buffer_to_dlpack_managed_tensor(array, stream=stream)


def adopt_memory(capsule: Any, device: jax.Device) -> Any:
    """A committed array over the memory of a DLPack capsule, without a copy.

    It is ready when what XLA's stream has been given by now is done.
    """
    return _jax.dlpack_managed_tensor_to_buffer(capsule, device, None)


_HANDLERS_CHECK = "_skip_checks" in (_jax.array_result_handler.__doc__ or "")
"""Before JAX 0.11 handlers of results check them unless told not to."""


def rewrap(aval: Any, sharding: Any, committed: bool) -> Any:
    """`((array,) -> array)`: arrays of one device as arrays of type `aval`, with its weak type."""
    options = {"_skip_checks": True} if _HANDLERS_CHECK else {}
    return _jax.array_result_handler(aval, sharding, committed=committed, **options)


@functools.cache
def sharding_on(device: jax.Device) -> jax.sharding.Sharding:
    """The sharding of `device` alone."""
    return jax.sharding.SingleDeviceSharding(device)


collect_garbage = _jax.collect_garbage
"""`() -> None`: frees what JAX holds for arrays that are gone."""


def _whole(name: str, op: Any) -> Any:
    """A lowering rule: a custom call that our ingest turns into the op `name`, which `op` makes."""
    target = name

    def rule(context: Any, x: Any, **asked: Any) -> Any:
        if any(value is not None for value in asked.values()):
            # An accuracy or a result type (JAX 0.12): JAX's own rule knows what to do.
            return _lax._nary_lower_hlo(op, context, x, **asked)
        call = _hlo.CustomCallOp([x.type], [x], call_target_name=_ir.StringAttr.get(target))
        return list(call.results)

    return rule


def _reduction(reducer: Any, prim: Any, function: Any) -> Any:
    """A lowering rule of a collective: over axes of the array alone it is a plain reduction.

    `jax.vmap` with an `axis_name` makes such collectives. JAX's own rule reads their shape as
    numbers.
    """

    def rule(context: Any, x: Any, *, axes: Any, axis_index_groups: Any) -> Any:
        if all(isinstance(axis, int) for axis in axes):
            lowered = _mlir.lower_fun(lambda x: function(x, axes), multiple_results=False)
            return lowered(context, x)
        original: Any = _parallel._allreduce_lowering
        return original(
            reducer, function, context, x, axes=axes, axis_index_groups=axis_index_groups
        )

    return prim, rule


_REDUCTIONS = (
    _reduction(_lax.add_p, _parallel.psum_p, _lax.reduce_sum),
    _reduction(_lax.max_p, _parallel.pmax_p, _lax.reduce_max),
    _reduction(_lax.min_p, _parallel.pmin_p, _lax.reduce_min),
)


def _inlined(context: Any, *args: Any, **params: Any) -> Any:
    """The lowering rule of `lax.composite`: what it computes; JAX's own has no symbolic sizes."""
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]  # since JAX 0.11
    rule = _mlir.lower_fun(_core.jaxpr_as_fun(jaxpr), multiple_results=True)
    return rule(context, *args)


def _window(context: Any, *args: Any, jaxpr: Any, consts: Any, **params: Any) -> Any:
    """JAX's lowering rule of `reduce_window`, of a reducer without calls: for a window of symbolic
    size the reducer is a function, and JAX corrupts memory where that one calls another.
    """
    kinds = [shaped_array(v.aval.shape, v.aval.dtype) for v in jaxpr.invars]
    flat = jax.make_jaxpr(lambda *values: _run_inlined(jaxpr, consts, values))(*kinds)
    rule: Any = _windowed._generic_reduce_window_lower
    return rule(context, *args, jaxpr=flat.jaxpr, consts=flat.consts, **params)


def _run_inlined(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, whose calls are not equations of the trace."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if equation.primitive.name in CALLS:
            body = called(equation)
            results = _run_inlined(body.jaxpr, body.consts, inputs)
        else:
            results = bind_equation(equation, inputs)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


_linalg: Any = _linalg_module  # untyped
_lapack: Any = _lapack_module


def _qr(a: Any, *, pivoting: bool, full_matrices: bool, use_magma: bool | None) -> Any:
    """What JAX's `_qr_lowering` computes, without asking which of the sizes is the larger one."""
    *batch, m, n = a.shape
    if all(map(_core.is_constant_dim, (m, n))):
        return _linalg._qr_lowering(
            a, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma
        )
    order: tuple[Any, ...] = ()
    if pivoting:
        free = jax.lax.full((*batch, n), 0, np.dtype(np.int32))
        r, pivots, taus = _linalg.geqp3(a, free, use_magma=use_magma)
        order = (jax.lax.max(pivots - 1, np.int32(0)),)  # LAPACK is not called for no rows
    else:
        r, taus = _linalg.geqrf(a)
    k = min_size(m, n)
    q = r[..., :k]
    if full_matrices:
        pads = [(0, 0, 0)] * (len(batch) + 1) + [(0, m - k, 0)]
        q = jax.lax.pad(q, np.zeros((), r.dtype), pads)
    else:
        r = r[..., :k, :]
    return _linalg.householder_product(q, taus), _linalg._triu(r), *order


def _hessenberg(context: Any, a: Any) -> Any:
    """JAX's `_hessenberg_cpu_lowering`, for symbolic sizes, too: LAPACK takes the size as an
    attribute, which `shlo_disc.size_attributes` gives as (operand, dimension).
    """
    (given,) = context.avals_in
    *batch, n, _ = given.shape
    if _core.is_constant_dim(n):
        return _linalg._hessenberg_cpu_lowering(context, a)
    info = _core.ShapedArray(tuple(batch), np.dtype(np.int32))
    rule = _linalg._linalg_ffi_lowering(
        _lapack.prepare_lapack_call("gehrd_ffi", given.dtype),
        avals_out=[*context.avals_out, info],
        operand_output_aliases={0: 0},
    )
    results = rule(context, a, low=np.int32(1), high=np.int32(0))
    place = _mlir.dense_int_elements([0, len(batch)])
    results[0].owner.attributes["shlo_disc.size_attributes"] = _ir.DictAttr.get({"high": place})
    zero = _mlir.full_like_aval(context, 0, info)
    ok = _mlir.compare_hlo(results[2], zero, "EQ", "SIGNED")
    return [
        _linalg._replace_not_ok_with_nan(context, tuple(batch), ok, x, aval)
        for x, aval in zip(results[:2], context.avals_out, strict=True)
    ]


def _dynamic_fft(context: Any, x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    """JAX's lowering rule of `fft`; a custom call of ours where a length is a symbol."""
    if all(map(_core.is_constant_dim, fft_lengths)):
        return _fft._fft_lowering(context, x, fft_type=fft_type, fft_lengths=fft_lengths)  # type: ignore[no-untyped-call]
    (result,) = context.avals_out
    lengths = _mlir.eval_dynamic_shape_as_vals(context, fft_lengths)
    call = _mlir.custom_call(
        "stablehlo.dynamic_fft",
        result_types=[_mlir.aval_to_ir_type(context.module_context, result)],
        operands=[x, *lengths],
        backend_config=fft_type.name,
    )
    return call.results


def _branch_on(platform: str, platforms: Sequence[Any]) -> int:
    """Which branch of `lax.platform_dependent` a platform takes: its own, else the default."""
    for index, named in enumerate(platforms):
        if named is None or platform in named:
            return index
    known = ", ".join(sorted(name for named in platforms for name in named))
    raise NotImplementedError(
        f"lax.platform_dependent has no branch for {platform}, and no default; it has {known}"
    )


@functools.cache  # JAX keeps what it lowered by these rules
def _platform_rules(platform: str) -> tuple[tuple[Any, Any], ...]:
    """Lowering rules by which `lax.platform_dependent` is the branch for `platform`.

    JAX's own take the branch of the platform for which all else is lowered, here the CPU.
    """

    def index(_context: Any, *, platforms: Any) -> Any:
        return [_mlir.ir_constant(np.int32(_branch_on(platform, platforms)))]

    def branch(context: Any, which: Any, *args: Any, branches: Any, **params: Any) -> Any:
        if (platforms := params.get("branches_platforms")) is None:
            original: Any = _conditionals._cond_lowering
            return original(context, which, *args, branches=branches, **params)
        chosen = _core.jaxpr_as_fun(branches[_branch_on(platform, platforms)])
        rule = _mlir.lower_fun(lambda _, *values: chosen(*values), multiple_results=True)
        return rule(context, which, *args)

    return (_conditionals.platform_index_p, index), (_conditionals.cond_p, branch)


_WHOLE = (
    (_fft.fft_p, _dynamic_fft),
    (_linalg.qr_p, _mlir.lower_fun(_qr)),
    (_linalg.hessenberg_p, _hessenberg),
    (_lax.composite_p, _inlined),
    (_windowed.reduce_window_p, _window),
    (_special.erfc_p, _whole("chlo.erfc", _chlo.erfc)),
    (_special.erf_inv_p, _whole("chlo.erf_inv", _chlo.erf_inv)),
)


class LoweredCallbackError(Exception):
    """A program that is lowered for us calls back into Python; the text names the primitive."""


def _no_callback(primitive: Any) -> tuple[Any, Any]:
    # JAX's own rules fail for symbolic sizes, in words of their own.
    def rule(*_: Any, **__: Any) -> Any:
        raise LoweredCallbackError(primitive.name)

    return primitive, rule


_CALLBACKS = tuple(map(_no_callback, (_callback.pure_callback_p, _callback.io_callback_p)))

_lowers_in: list[int] = []
"""The process in which JAX first lowered for us: its threads for MLIR exist only there."""


class Lowering(NamedTuple):
    """A function that JAX has lowered for the CPU."""

    module: Any
    """Of JAX's MLIR bindings; JAX keeps it, too. `main` takes the symbols, by name, then arrays."""
    in_avals: tuple[Any, ...]
    """The arguments of the function, in order."""
    out_avals: tuple[Any, ...]
    out_tree: Any
    kept: tuple[int, ...]
    """The arguments that `main` takes."""
    calls_back: bool
    """Does it call Python?"""


def lower_whole(
    jitted: Any, args: Sequence[Any], kwargs: dict[str, Any], platform: str = "cpu"
) -> Lowering:
    """A call traced and lowered for a CPU, for our ingest only.

    `platform` ("cpu", "cuda", "rocm") chooses the branch of `lax.platform_dependent`.

    Raises LoweredCallbackError for a program that calls back into Python, and ForkError in a child
    forked since the first one: JAX would wait for threads of its parent for ever.
    """
    if not _lowers_in:
        _lowers_in.append(os.getpid())
    if _lowers_in[0] != os.getpid():
        name = getattr(jitted, "__name__", "the function")
        raise ForkError(
            f"{name} needs a compilation in a forked process, where JAX's threads do not exist. "
            "Call it with such arguments before the fork (or JitFunction.warmup), or "
            "start the process by multiprocessing's 'spawn' or 'forkserver'"
        )
    rules: Any = (*_WHOLE, *_REDUCTIONS, *_CALLBACKS, *_platform_rules(platform))
    parameters = _mlir.LoweringParameters(
        override_lowering_rules=rules,
        for_export=True,
        hoist_constants_as_args=False,
        export_ignore_forward_compatibility=_config.export_ignore_forward_compatibility.value,
    )
    lowered = jitted.trace(*args, **kwargs).lower(
        lowering_platforms=("cpu",), _private_parameters=parameters
    )
    found = lowered._lowering.compile_args
    in_avals = tuple(jax.tree.leaves(lowered.in_avals))
    return Lowering(
        lowered._lowering.stablehlo(),
        in_avals,
        tuple(found["global_out_avals"]),
        lowered.out_tree,
        tuple(sorted(found["kept_var_idx"])),
        bool(found["host_callbacks"] or found["keepalive"]),
    )


def inputs_used(jaxpr: Any) -> list[bool]:
    """Which arguments of a closed jaxpr something needs; `jax.jit` drops the others."""
    closed = getattr(jaxpr, "jaxpr", jaxpr)
    used: list[bool] = _partial_eval.dce_jaxpr(closed, [True] * len(closed.outvars))[1]
    return used


def constraints_of(scope: Any) -> list[tuple[Any, str]]:
    """The explicit constraints of a scope: `(t - 2, ">=")` is `t - 2 >= 0`."""
    spelling = {_shape_poly.Comparator.EQ: "==", _shape_poly.Comparator.GEQ: ">="}
    return [(c.diff, spelling[c.cmp]) for c in scope._explicit_constraints]


def size_named(symbol: str, scope: Any) -> Any:
    """The size of that name: another one where the scope was told that they are equal."""
    return DimExpr._from_var(symbol, scope)


def generic_text(module: Any, large: int) -> str:
    """The text of a module in generic form with locations; constants of more than `large` elements
    are LEFT_OUT.
    """
    text: bytes = module.operation.get_asm(
        binary=True,  # takes three fourths of the time of a str
        enable_debug_info=True,
        print_generic_op_form=True,
        large_elements_limit=large,
    )
    return text.decode()


def plain_text(module: Any) -> str:
    """The text of a module as people write it, with locations and every constant."""
    text: str = module.operation.get_asm(enable_debug_info=True)
    return text


LEFT_OUT = "dense_resource<__elided__>"
"""How a constant is printed that is left out."""


def portable_artifact(module: Any) -> bytes:
    """The module as bytes that other versions of StableHLO can read."""
    data: bytes = _export_module._module_to_bytecode(module)
    return data


def stablehlo_version() -> str:
    """Of JAX's MLIR, such as "1.17.0"."""
    version: str = _hlo.get_current_version()
    return version


_CHECKS_HAVE_CONTEXT = "ctx" in inspect.signature(_checkify.checkify_jaxpr).parameters


def parsed_module(data: str | bytes) -> Any:
    """A module of StableHLO text or a portable artifact, as an object of JAX's MLIR bindings."""
    with _mlir.make_ir_context():
        if isinstance(data, bytes):
            return _jax.mlir.deserialize_portable_artifact(data)
        return _ir.Module.parse(data)


def check_by_jaxpr(primitive: Any, jaxpr_of: Callable[..., Any]) -> None:
    """Let `checkify` look for errors of arithmetic and places in `jaxpr_of(**parameters)`.

    The jaxpr computes what `primitive` does with these parameters. Without such errors to look for
    the primitive runs as it is: it has no checks of the user's inside.
    """

    def rule(*arguments: Any, **parameters: Any) -> Any:
        count = 3 if _CHECKS_HAVE_CONTEXT else 2  # since JAX 0.12
        *context, error, errors = arguments[:count]
        values = arguments[count:]
        if errors <= _checkify.user_checks:
            return error, primitive.bind(*values, **parameters)
        return _checkify.checkify_jaxpr(*context, jaxpr_of(**parameters), errors, error, *values)

    _checkify.error_checks[primitive] = rule


@functools.cache
def cpu_sharding(device: jax.Device) -> jax.sharding.Sharding | None:
    """The sharding of `device` alone; None when its memory is not the host's."""
    return jax.sharding.SingleDeviceSharding(device) if device.platform == "cpu" else None


def varying_alike(arguments: Any) -> list[Any]:
    """Arguments that all vary over the same manual axes; nothing changes outside `shard_map`."""
    core: Any = _core
    return list(core.auto_insert_reshard(*arguments))


def under_mesh(
    primitive: str, arguments: Any, results: list[Any], specs: Sequence[Any]
) -> list[Any]:
    """The avals `results` as they are under the mesh of the arguments, or else the one in force.

    `specs`: how each result is sharded over explicit axes.
    """
    core: Any = _core
    varying = core.standard_vma_rule(primitive, *arguments)
    manual = core.ManualAxisType(varying=varying)
    meshes = (aval.sharding.mesh for aval in arguments if not aval.sharding.mesh.empty)
    mesh = next(meshes, None) or jax.sharding.get_abstract_mesh()
    return [
        aval.update(sharding=jax.sharding.NamedSharding(mesh, spec), manual_axis_type=manual)
        for aval, spec in zip(results, specs, strict=True)
    ]


def device_count(context: Any) -> int:
    """How many devices XLA's partitioner has for an equation that is lowered; 1 without it."""
    axes = context.module_context.axis_context
    return int(axes.num_devices) if isinstance(axes, _sharding_impls.ShardingContext) else 1


def on_many_devices(context: Any, mesh: jax.sharding.Mesh) -> Any:
    """`context` for the lowering of `custom_partitioning`, which then gets `mesh`.

    JAX would have it know the program's devices and their only mesh. Our shardings speak of
    places in the program's list of devices, whichever they are.
    """
    axes = _sharding_impls.ShardingContext(mesh.size, tuple(mesh.devices.flat), mesh.abstract_mesh)
    return context.replace(module_context=context.module_context.replace(axis_context=axes))


def tiles_of(sharding: Any, rank: int) -> np.ndarray[Any, Any] | None:
    """The places in the list of devices, by tile: an array of `rank` dimensions and replicas.

    None where the array is not cut in tiles, or in others than an array of devices.
    """
    if sharding is None:
        return None
    tiles = sharding._to_xla_hlo_sharding(rank)
    if not tiles.is_tiled() or any(
        kind != _xla.OpSharding.Type.REPLICATED for kind in tiles.subgroup_types()
    ):
        return None
    shape = (*tiles.tile_assignment_dimensions()[:rank], -1)
    return np.array(tiles.tile_assignment_devices()).reshape(shape)


def sharding_of_tiles(
    tiles: np.ndarray[Any, Any], devices: Sequence[jax.Device]
) -> jax.sharding.Sharding:
    """The sharding of an array with such :func:`tiles_of`."""
    made = _xla.OpSharding()
    if tiles.size == tiles.shape[-1]:
        made.type = _xla.OpSharding.Type.REPLICATED
    else:
        made.type = _xla.OpSharding.Type.OTHER
        shape = tiles.shape if tiles.shape[-1] > 1 else tiles.shape[:-1]
        made.tile_assignment_dimensions = list(shape)
        made.tile_assignment_devices = [int(place) for place in tiles.flat]
        made.replicate_on_last_tile_dim = tiles.shape[-1] > 1
    sharding: jax.sharding.Sharding = _sharding_impls.GSPMDSharding(devices, made)
    return sharding


_Ffi = tuple[str, str]
"""The name of an FFI target, and XLA's name of its platform."""

_ffi_noted: dict[_Ffi, Any] = {}
"""What was registered since this module exists, or waits for its platform: capsules by stage; one
capsule for a target of the API before FFI. XLA tells of the last stage alone, and of no target that
the plugin of a GPU has."""

_ffi_types: list[tuple[str, Any, Any]] = []
"""Of the states of handlers, registered since this module exists: XLA's name of the platform,
capsules of the type's id and info."""


def _ffi_platform(platform: str) -> str:
    """XLA's name of a platform, which users may write otherwise."""
    name = _xla.xla_platform_names.get(platform, platform)
    return next(
        (known for known in ("Host", "CUDA", "ROCM") if known.lower() == name.lower()), name
    )


def _note_target(name: Any, fn: Any, platform: str, api_version: int) -> None:
    if api_version == 1 and not isinstance(fn, dict):
        fn = {"execute": fn}
    text = name if isinstance(name, str) else name.decode()
    _ffi_noted[text, _ffi_platform(platform)] = dict(fn) if isinstance(fn, dict) else fn


def _record_ffi() -> None:
    """Note what is registered from here on, besides registering it."""
    register_target, register_type = _xla.register_custom_call_target, _xla.register_custom_type

    @functools.wraps(register_target)
    def target(
        name: Any, fn: Any, platform: str = "cpu", api_version: int = 0, *rest: Any, **named: Any
    ) -> Any:
        done = register_target(name, fn, platform, api_version, *rest, **named)
        _note_target(name, fn, platform, api_version)
        return done

    @functools.wraps(register_type)
    def type_(type_name: str, type_id: Any, platform: str = "cpu") -> Any:
        done = register_type(type_name, type_id, platform)
        if isinstance(type_id, dict) and type_id.get("type_info") is not None:
            platform = _ffi_platform(platform)
            _ffi_types.append((platform, type_id["type_id"], type_id["type_info"]))
        return done

    for platform, waiting in list(_xla._custom_callback.items()):
        for name, fn, api_version, *_ in waiting:
            _note_target(name, fn, platform, api_version)
    _xla.register_custom_call_target = target
    _xla.register_custom_type = type_


_record_ffi()


def ffi_handlers(name: str, platform: str) -> Any:
    """What is registered with XLA for a platform, by XLA's name, as FFI target `name`: capsules by
    stage; one capsule for a target of the API before FFI; None.

    Stages other than `execute`, and targets of GPUs, are known if they were registered since this
    module was imported, or before JAX had a backend.
    """
    if platform == "Host":
        jax.devices("cpu")  # until there is a backend, registrations wait in Python
        if name.startswith("lapack_"):
            _lapack.prepare_lapack_call("potrf", np.dtype(np.float32))  # all functions, from SciPy
    noted = _ffi_noted.get((name, platform))
    return _xla.custom_call_targets(platform).get(name) if noted is None else noted


def ffi_types(platform: str) -> list[tuple[Any, Any]]:
    """Capsules (type id, type info) of the states of handlers for a platform, by XLA's name."""
    return [(type_id, info) for of, type_id, info in _ffi_types if of == platform]


def key_of_words(implementation: str, words: jax.Array) -> Any:
    """`jax.random.wrap_key_data` of a concrete array, without a primitive's call."""
    return KeyArray(_prng.prngs[implementation], words)


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


# ---- symbolic sizes ------------------------------------------------------------------------------

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


def equations_of(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those nested in it."""
    todo = [getattr(jaxpr, "jaxpr", jaxpr)]
    while todo:
        inner = todo.pop()
        yield from inner.eqns
        for equation in inner.eqns:
            todo += list(jaxprs_inside(equation))


def reshapes_of(jaxpr: Any) -> Iterator[tuple[list[str], list[str], str]]:
    """(operand sizes, result sizes, `model.py:7`) of every reshape of symbolic sizes, nested
    too; equal sizes are told once.
    """
    seen: set[tuple[str, str]] = set()
    for equation in equations_of(jaxpr):
        if equation.primitive.name == "reshape":
            before = equation.invars[0].aval.shape
            after = equation.outvars[0].aval.shape
            if any(isinstance(size, DimExpr) for size in (*before, *after)):
                texts = [*map(str, before)], [*map(str, after)]
                key = ", ".join(texts[0]), ", ".join(texts[1])
                if key not in seen:
                    seen.add(key)
                    yield *texts, equation_line(equation)
