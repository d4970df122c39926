"""Callbacks into Python, lowered for us: custom calls of ours, for symbolic sizes too."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.interpreters.mlir as _public
import numpy as np
from jax._src import callback as _callback
from jax._src import core as _core
from jax._src import debugging as _debugging
from jax._src import dtypes as _dtypes
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir

from shlo_disc.base.callbacks import PythonCallback
from shlo_disc.jax_private.functions_with_sizes import HeldSizes

_EFFECTS = (
    _callback.IOEffect,
    _callback.OrderedIOEffect,
    _debugging.DebugEffect,
    _debugging.OrderedDebugEffect,
)


def is_callback_effect(effect: Any) -> bool:
    """True for an effect of `io_callback`, `debug.callback` or `debug.print`."""
    return isinstance(effect, _EFFECTS)


FOR_US = (_core.Primitive("shlo_disc_lowering"), None)
"""Among the rules of a lowering: its callbacks become custom calls of ours."""

_by_xla: Any = _callback.emit_python_callback


def _dtype(aval: Any) -> np.dtype[Any]:
    """Of the memory of a value: keys are words, tangents of integers are booleans."""
    dtype = _core.physical_aval(aval).dtype
    return np.dtype(bool) if dtype == _dtypes.float0 else np.dtype(dtype)


@functools.wraps(_by_xla)
def _emit(
    context: Any,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    **others: Any,
) -> tuple[Sequence[Any], Any, Any]:
    """JAX's `emit_python_callback`, by which rules for callbacks call a function of arrays.

    Lowered for us, calls neither take nor give tokens: ingest orders all of them.
    """
    module = context.module_context
    if FOR_US not in (module.lowering_parameters.override_lowering_rules or ()):
        found: tuple[Sequence[Any], Any, Any] = _by_xla(
            context,
            callback,
            token,
            operands,
            operand_avals,
            result_avals,
            has_side_effect=has_side_effect,
            **others,
        )
        return found
    results = [_core.physical_aval(aval) for aval in result_avals]
    dtypes, taken = list(map(_dtype, results)), list(map(_dtype, operand_avals))
    held = HeldSizes(callback)
    for size in held.fixed:
        if getattr(size.scope, "is_open", False):  # not of an earlier trace
            operator.index(size)  # raises an error that says which size has to be a number
    if held.sizes:
        operands = [*operands, _mlir.eval_dynamic_shape_as_tensor(context, tuple(held.sizes))]
        taken.append(np.dtype(np.int32))
        callback = _at_sizes(held)
    called = PythonCallback(
        _checked(callback, dtypes),
        taken,
        dtypes,
        is_pure=not has_side_effect,
    )
    module.add_keepalive(called)
    shapes = None
    if not all(_core.is_constant_shape(aval.shape) for aval in results):
        shapes = [_mlir.eval_dynamic_shape_as_tensor(context, aval.shape) for aval in results]
    call = _mlir.custom_call(
        called.target,
        result_types=[_mlir.aval_to_ir_type(module, aval) for aval in results],
        operands=operands,
        backend_config={},
        has_side_effect=has_side_effect,
        result_shapes=shapes,
    )
    return list(call.results), token, None


for _module in (_callback, _public):
    setattr(_module, _by_xla.__name__, _emit)


def _at_sizes(held: HeldSizes) -> Callable[..., Any]:
    """The function that holds sizes, which takes their numbers as its last argument."""

    @functools.lru_cache(8)
    def function_at(numbers: tuple[int, ...]) -> Any:
        return held.replaced([*numbers])

    return lambda *arrays: function_at(tuple(arrays[-1].tolist()))(*arrays[:-1])


def _batched(primitive: Any, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    # By its name, as `jax/sizes/generic/generic.py` replaces it.
    rule: Any = _debugging.debug_batching_rule
    return rule(args, dims, primitive=primitive, **params)


for _primitive in (_debugging.debug_callback_p, _debugging.debug_print_p):
    _batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive)


def _checked(
    function: Callable[..., Any], dtypes: Sequence[np.dtype[Any]]
) -> Callable[[list[np.ndarray], list[tuple[int, ...]]], list[np.ndarray]]:
    """The results of `function`, tested as JAX tests them, in its words."""

    def results_of(arrays: list[np.ndarray], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        found = function(*arrays)
        if len(found) != len(shapes):
            raise RuntimeError(
                "Mismatched number of outputs from callback. "
                f"Expected: {len(shapes)}, Actual: {len(found)}"
            )
        results = [_dtypes.canonicalize_value(np.asarray(x)) for x in found]
        for k, (x, shape, dtype) in enumerate(zip(results, shapes, dtypes, strict=True)):
            if x.shape != shape:
                raise RuntimeError(
                    f"Incorrect output shape for return value #{k}: Expected: {shape}, "
                    f"Actual: {x.shape}"
                )
            if x.dtype != dtype:
                raise RuntimeError(
                    f"Incorrect output dtype for return value #{k}: Expected: {dtype}, "
                    f"Actual: {x.dtype}"
                )
        return results

    return results_of
