"""What JAX is doing: tracing, transforming, looking for NaN; its caches and tracebacks."""

from __future__ import annotations

import os
from typing import Any

import jax
from jax._src import config as _config
from jax._src import core as _core
from jax._src import source_info_util as _source_info
from jax._src import traceback_util as _traceback
from jax._src import util as _util
from jax._src.interpreters import partial_eval as _partial_eval
from jaxlib import _jax

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


def numbers_sought() -> tuple[bool, bool]:
    """(NaN, infinity): what `jax.debug_nans` and `jax.debug_infs` look for in results."""
    return bool(_config.debug_nans.value), bool(_config.debug_infs.value)


def chosen_device() -> Any:
    """What `jax.default_device` says now: a device, the name of a platform, or None."""
    return _config.default_device.value


disable_jit = _config.disable_jit
"""`.value` is true inside `with jax.disable_jit()`."""


def held_weakly(kind: type) -> None:
    """JAX's caches of abstract evaluation hold parameters of type `kind` weakly from now on."""
    _util.weakref_cache_key_types.add(kind)


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

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
