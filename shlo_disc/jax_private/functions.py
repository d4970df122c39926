"""Functions of JAX that want constant sizes, replaced by ours."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax._src.interpreters import ad as _ad
from jax._src.lax import lax as _lax
from jax._src.lax import linalg as _linalg
from jax._src.numpy import einsum as _numpy_einsum

_FUNCTIONS_OF_SIZES = {
    "NDIndexer.normalize_indices": "jax._src.numpy.indexing",
    "NDIndexer.to_dynamic_slice": "jax._src.numpy.indexing",
    "NDIndexer.to_static_slice": "jax._src.numpy.indexing",
    "_dynamic_slice_indices": "jax._src.lax.slicing",
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
    "_piecewise": "jax._src.numpy.lax_numpy",
    "_arange": "jax._src.numpy.lax_numpy",
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
    "digitize": "jax._src.numpy.lax_numpy",
    "_unique": "jax._src.numpy.setops",
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
    "map": "jax._src.lax.control_flow.loops",
    "scan": "jax._src.lax.control_flow.loops",
    "_searchsorted_scan_impl": "jax._src.numpy.hijax",
    "_shuffle": "jax._src.random.core",
    "_infer_scan_length": "jax._src.lax.control_flow.loops",
    "associative_scan": "jax._src.lax.control_flow.loops",
    "concrete_or_error": "jax._src.core",
    "debug_batching_rule": "jax._src.debugging",
    "_const": "jax._src.lax.lax",
}

_INDEXED = ("jax._src.lax.convolution", "jax.experimental.sparse.bcoo")
"""Modules that make integers of sizes only to calculate shapes with them."""

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
        # Of 40 000 names 200 are found: the others cost a look at their address.
        for key in [key for key, value in held.copy().items() if id(value) in wrappers]:
            name, original, wrapper = wrappers[id(held[key])]
            if original is held[key] and (key == name or not is_of_jax):
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


def use_derivative_of_solve(rule: Callable[..., Any]) -> None:
    """Let JAX differentiate a `triangular_solve` by its matrix with `rule(original, *args)`.

    `args` are the tangent of the matrix, the solution, the matrix and the right side.
    """
    rules: Any = _ad  # untyped
    solve = _linalg.triangular_solve_p
    of_matrix, of_right_side = rules.primitive_jvps[solve].args[0]
    rules.defjvp2(solve, functools.partial(rule, of_matrix), of_right_side)


def use_derivative_of_product(rule: Callable[..., Any]) -> None:
    """Let JAX differentiate a `reduce_prod` with `rule(original, primals, tangents, axes=...)`."""
    rules: Any = _ad.primitive_jvps
    rules[_lax.reduce_prod_p] = functools.partial(rule, rules[_lax.reduce_prod_p])


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


class _Other:
    """A module with other functions of some names."""

    def __init__(self, module: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def use_index(index: Callable[[Any], Any]) -> None:
    """Let JAX's modules of `_INDEXED` use `index` instead of `operator.index`."""
    for module in map(sys.modules.get, _INDEXED):
        if getattr(module, "operator", None) is operator:
            vars(module)["operator"] = _Other(operator, {"index": index})


_CALCULATE = {
    "jax._src.checkify": ("array", "minimum"),
    "jax.experimental.sparse.bcoo": ("cumsum",),
}
"""Modules of JAX that calculate with sizes, and by which functions of NumPy."""


def use_numpy(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Let JAX's modules of `_CALCULATE` use these functions instead of NumPy's."""
    for name, wanted in _CALCULATE.items():
        module = sys.modules.get(name)
        if getattr(module, "np", None) is np:
            vars(module)["np"] = _Other(np, {key: functions[key] for key in wanted})
