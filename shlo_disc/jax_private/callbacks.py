"""Lowering rules of JAX's callbacks: custom calls of ours, for symbolic sizes too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax._src import callback as _callback
from jax._src import core as _core
from jax._src import debugging as _debugging
from jax._src import dtypes as _dtypes
from jax._src.interpreters import mlir as _mlir

from shlo_disc.callbacks import PythonCallback

__all__ = ["CALLBACK_RULES", "is_callback_effect"]

_EFFECTS = (
    _callback.IOEffect,
    _callback.OrderedIOEffect,
    _debugging.DebugEffect,
    _debugging.OrderedDebugEffect,
)


def is_callback_effect(effect: Any) -> bool:
    """True for an effect of `io_callback`, `debug.callback` or `debug.print`."""
    return isinstance(effect, _EFFECTS)


def _checked(
    function: Callable[..., Any], dtypes: Sequence[np.dtype[Any]]
) -> Callable[[list[np.ndarray], list[tuple[int, ...]]], list[np.ndarray]]:
    """The results of JAX's implementation, tested as `emit_python_callback` tests them."""

    def results_of(arrays: list[np.ndarray], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        found = tuple(function(*arrays))
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


def _dtype(aval: Any) -> np.dtype[Any]:
    """Of the memory of a value: keys are words, tangents of integers are booleans."""
    dtype = _core.physical_aval(aval).dtype
    return np.dtype(bool) if dtype == _dtypes.float0 else np.dtype(dtype)


def _rule(primitive: Any, implementation: Any) -> tuple[Any, Any]:
    is_pure = primitive is _callback.pure_callback_p

    def lower(context: Any, *operands: Any, **params: Any) -> Any:
        results = [_core.physical_aval(aval) for aval in context.avals_out]
        dtypes = list(map(_dtype, results))
        if "result_avals" in params:  # unused, and they hold the sizes of the trace
            params["result_avals"] = None
        callback = PythonCallback(
            _checked(functools.partial(implementation, **params), dtypes),
            list(map(_dtype, context.avals_in)),
            dtypes,
            is_pure=is_pure,
        )
        context.module_context.add_keepalive(callback)
        shapes = None
        if not all(_core.is_constant_shape(aval.shape) for aval in results):
            shapes = [_mlir.eval_dynamic_shape_as_tensor(context, a.shape) for a in results]
        call = _mlir.custom_call(
            callback.target,
            result_types=[_mlir.aval_to_ir_type(context.module_context, a) for a in results],
            operands=operands,
            backend_config={},
            has_side_effect=not is_pure,
            result_shapes=shapes,
        )
        if params.get("ordered", params.get("effect") is _debugging.ordered_debug_effect):
            context.set_tokens_out(context.tokens_in)  # ingest orders all effects
        return call.results

    return primitive, lower


CALLBACK_RULES = (
    _rule(_callback.pure_callback_p, _callback.pure_callback_impl),
    _rule(_callback.io_callback_p, _callback.io_callback_impl),
    _rule(_debugging.debug_callback_p, _debugging.debug_callback_impl),
    _rule(_debugging.debug_print_p, _debugging.debug_print_impl),
)
"""(primitive, rule) of every primitive that calls back."""
