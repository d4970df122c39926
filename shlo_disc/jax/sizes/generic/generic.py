"""Functions of JAX that want a constant size, written for a symbolic one.

A few functions of JAX read a number from a size although an answer for every size exists:
`jnp.squeeze` without axes, `lax.scan(length=n)`, `lax.fori_loop`, `lax.associative_scan`,
`jnp.searchsorted`, `jax.random.permutation`, `lax.pmean` of a batch. For arrays whose sizes are
symbols of shlo_disc they are replaced by the functions of this module and of `generic_*.py`; every
other call reaches JAX's own function. `len` of an array, where functions of `jax.numpy` and the
like ask for it, gives the symbol, and `min` and `max` of symbols are symbolic sizes. The padding of
a convolution may be a symbol, too: derivatives of strided ones need it.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shlo_disc.jax.sizes.generic import (
    fft as generic_fft,
)
from shlo_disc.jax.sizes.generic import (
    indexing as generic_indexing,
)
from shlo_disc.jax.sizes.generic import (
    linalg as generic_linalg,
)
from shlo_disc.jax.sizes.generic import (
    numpy as generic_numpy,
)
from shlo_disc.jax.sizes.generic import (
    rules as generic_rules,
)
from shlo_disc.jax.sizes.generic import (
    scan as generic_scan,
)
from shlo_disc.jax.sizes.marks import has_symbols, written_twice
from shlo_disc.jax.sizes.symbolic import is_size
from shlo_disc.jax_private.functions import (
    replace_functions,
    use_builtins,
    use_derivative_of_product,
    use_derivative_of_solve,
    use_index,
    use_numpy,
)
from shlo_disc.jax_private.sizes import max_size, min_size, size_as_array

# ---- replacements: each takes JAX's function first ----------------------------------------------


def _squeeze(original: Callable[..., Any], a: Any, axis: Any = None) -> Any:
    if axis is None and has_symbols(np.shape(a)):
        axis = tuple(k for k, size in enumerate(np.shape(a)) if size == 1)
    return original(a, axis)


def _infer_scan_length(
    original: Callable[..., Any], xs_flat: list[Any], xs_avals: list[Any], length: Any
) -> Any:
    lengths = [x.shape[0] for x in xs_flat if hasattr(x, "shape")]
    if not any(map(is_size, [length, *lengths])) or len(lengths) < len(xs_flat):
        return original(xs_flat, xs_avals, length)
    if length is None:
        length = lengths[0]
    if not all(length == other for other in lengths):
        raise ValueError(f"scan got values with different leading axis sizes: {lengths}, {length}.")
    return length


def _scan(
    original: Callable[..., Any],
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    **named: Any,
) -> Any:
    """A loop of symbolic length is not unrolled."""
    lengths = [length, *(np.shape(x)[0] for x in jax.tree.leaves(xs) if np.ndim(x))]
    if any(map(is_size, lengths)):
        unroll = 1
    return original(f, init, xs, length, reverse, unroll, **named)


def _fori_loop(
    original: Callable[..., Any],
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    **named: Any,
) -> Any:
    """A loop between symbolic sizes is a `scan`, as between constants: it has a derivative."""
    bounds = (lower, upper)
    traced = any(isinstance(bound, jax.core.Tracer) for bound in bounds)
    if traced or not any(map(is_size, bounds)):
        return original(lower, upper, body_fun, init_val, **named)
    lower, upper = (bound if is_size(bound) else int(bound) for bound in bounds)

    def step(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        k, value = state
        return (k + 1, body_fun(k, value)), None

    first = size_as_array(lower) if is_size(lower) else lower
    (_, result), _ = lax.scan(step, (first, init_val), None, max_size(upper - lower, 0))
    return result


def _concrete_or_error(
    original: Callable[..., Any], force: Any, value: Any, *rest: Any, **named: Any
) -> Any:
    # `num` of logspace and geomspace; linspace takes a symbol.
    return value if is_size(value) else original(force, value, *rest, **named)


def _searchsorted_scan_impl(
    original: Callable[..., Any],
    sorted_arr: Any,
    query: Any,
    side: str,
    dtype: Any,
    unrolled: bool,
) -> Any:
    """Bisection with as many rounds as the binary digits of the size."""
    return written_twice(
        "searchsorted",
        has_symbols(np.shape(sorted_arr)),
        lambda a, v: _bisected(_with_an_element(a), a.shape[0], v, sorted_before(side), dtype),
        lambda a, v: original(a, v, side=side, dtype=dtype, unrolled=unrolled),
        sorted_arr,
        query,
    )


def _bisected(a: Any, size: Any, query: Any, less: Callable[[Any, Any], Any], dtype: Any) -> Any:
    """The places of `query` in the first `size` elements of `a`."""
    if query.ndim > 0:
        return jax.vmap(lambda q: _bisected(a, size, q, less, dtype))(query)
    count = jnp.asarray(size, np.uint32)

    def halve(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = state
        middle = low + (high - low) // 2
        left = less(query, lax.dynamic_index_in_dim(a, middle, keepdims=False))
        return jnp.where(left, low, middle), jnp.where(left, middle, high)

    rounds = (32 - lax.clz(count)).astype(np.int32)
    _, high = lax.fori_loop(0, rounds, halve, (jnp.zeros_like(count), count))
    return high.astype(dtype)


def _with_an_element(array: Any, axis: int = 0) -> Any:
    """The array, or a row of zeros along `axis` where it may be empty and is."""
    missing = max_size(array.shape[axis], 1) - array.shape[axis]
    if not is_size(missing):  # the size is known to be at least 1
        return array
    widths = [(0, 0, 0)] * array.ndim
    widths[axis] = (0, missing, 0)
    return lax.pad(array, jnp.zeros((), array.dtype), widths)


def _unique(
    original: Callable[..., Any],
    ar: Any,
    axis: int,
    *flags: Any,
    size: Any = None,
    fill_value: Any = None,
    **named: Any,
) -> Any:
    """Nothing but `fill_value` where there are no elements; other results are shorter then."""

    def by_jax(x: Any, fill: Any) -> Any:
        return original(x, axis, *flags, size=size, fill_value=fill, **named)

    def of_any_size(x: Any, fill: Any) -> Any:
        found = by_jax(_with_an_element(x, axis), fill)
        none = size_as_array(x.shape[axis]) == 0
        return jnp.where(none, jnp.asarray(fill, found.dtype), found)

    more = any(flags) or any(value for name, value in named.items() if name.startswith("return_"))
    if size is None or fill_value is None or more:
        return by_jax(ar, fill_value)
    symbolic = has_symbols((ar.shape[axis],))
    return written_twice("unique", symbolic, of_any_size, by_jax, ar, fill_value)


def _digitize(original: Callable[..., Any], x: Any, bins: Any, *rest: Any, **named: Any) -> Any:
    """The bins of values, of which there may be none: then each value is in bin 0."""

    def in_any_bins(x: Any, bins: Any) -> Any:
        at_least_one = original(x, _with_an_element(bins), *rest, **named)
        return jnp.where(size_as_array(bins.shape[0]) == 0, 0, at_least_one)

    def by_jax(x: Any, bins: Any) -> Any:
        return original(x, bins, *rest, **named)

    symbolic = np.ndim(bins) == 1 and has_symbols(np.shape(bins))
    return written_twice("digitize", symbolic, in_any_bins, by_jax, x, bins)


def sorted_before(side: str) -> Callable[[Any, Any], Any]:
    """`a <= b` for the left side, `a < b` for the right one, in the order of `sort` (NaN last)."""

    def less(a: Any, b: Any) -> Any:
        if not jnp.issubdtype(a.dtype, np.inexact):
            return a <= b if side == "left" else a < b
        a_nan, b_nan = jnp.isnan(a), jnp.isnan(b)
        if side == "left":
            return (a <= b) | b_nan
        return (a < b) | (b_nan & ~a_nan)

    return less


def _rounds(count: int) -> int:
    """How often JAX sorts by random keys to shuffle `count` elements."""
    return math.ceil(3 * math.log(max(1, count)) / math.log(2**32 - 1))


def _shuffle(original: Callable[..., Any], key: Any, x: Any, axis: int) -> Any:
    """`jax.random.permutation`: sort by random keys, as often as JAX does for such a size."""

    def sorted_often(key: Any, x: Any) -> Any:
        # The answer is a guard. One element, of which JAX sorts none, stays where it is.
        rounds = next(k for k in range(1, 8) if x.size <= _last_size(k))
        for _ in range(rounds):
            key, subkey = jax.random.split(key)
            _, x = lax.sort_key_val(jax.random.bits(subkey, x.shape, np.uint32), x, axis)
        return x

    return written_twice(
        "shuffle",
        has_symbols(np.shape(x)),
        sorted_often,
        lambda key, x: original(key, x, axis),
        key,
        x,
    )


@functools.cache
def _last_size(rounds: int) -> int:
    """The largest size that takes `rounds` rounds."""
    low, high = 1, 2**62
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _rounds(middle) <= rounds else (low, middle - 1)
    return low


def _const(original: Callable[..., Any], example: Any, value: Any) -> Any:
    """A number of the type of `example`: `lax.psum(1, axis)` makes one of a batch's size."""
    if not is_size(value):
        return original(example, value)
    if isinstance(example, int):
        return value
    if isinstance(example, float):
        return value / 1  # a weakly typed float
    generic_indexing.check_fits(value, lax.dtype(example))
    return size_as_array(value).astype(lax.dtype(example))


def _index_dtype(original: Callable[..., Any], sizes: Any, *, signed: bool) -> Any:
    """The type JAX takes for places in dimensions of these sizes, in 64-bit mode, too."""
    dims = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
    if not any(map(is_size, dims)) or not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        return original(sizes, signed=signed)
    narrow, wide = (np.int32, np.int64) if signed else (np.uint32, np.uint64)
    fits = all(size <= np.iinfo(narrow).max for size in dims)  # questions, which become guards
    return np.dtype(narrow if fits else wide)


def _debug_batching_rule(
    original: Callable[..., Any],
    args: Sequence[Any],
    dims: Sequence[Any],
    *,
    primitive: Any,
    **params: Any,
) -> Any:
    """The calls of `debug.callback` and `debug.print` for a batch: a loop, which JAX unrolls."""
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)

    def in_a_loop(*args: Any) -> tuple[()]:
        rows = [
            None if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)
        ]

        def one(row: Sequence[Any]) -> tuple[()]:
            values = [x if r is None else r for x, r in zip(args, row, strict=True)]
            primitive.bind(*values, **params)
            return ()

        lax.map(one, rows)
        return ()

    def unrolled(*args: Any) -> tuple[()]:
        original(args, dims, primitive=primitive, **params)
        return ()

    written_twice("debug_callback", is_size(size), in_a_loop, unrolled, *args)
    return [], []


REPLACED: dict[str, Callable[..., Any]] = {
    "digitize": _digitize,
    "debug_batching_rule": _debug_batching_rule,
    "int_dtype_for_dim": _index_dtype,
    "int_dtype_for_shape": _index_dtype,
    "_squeeze": _squeeze,
    "_searchsorted_scan_impl": _searchsorted_scan_impl,
    "_shuffle": _shuffle,
    "_unique": _unique,
    "_infer_scan_length": _infer_scan_length,
    "fori_loop": _fori_loop,
    "concrete_or_error": _concrete_or_error,
    "_const": _const,
    "scan": _scan,
    **generic_fft.REPLACED,
    **generic_indexing.REPLACED,
    **generic_linalg.REPLACED,
    **generic_numpy.REPLACED,
    **generic_rules.REPLACED,
    **generic_scan.REPLACED,
}
"""The replacement of every function, by the function's name in JAX."""


def _length(value: Any) -> Any:
    """`len`, which for an array of symbolic size cannot give the symbol."""
    shape = getattr(value, "shape", None)
    return shape[0] if shape and is_size(shape[0]) else len(value)


def _index(value: Any) -> Any:
    """`operator.index`, which cannot give the symbol."""
    return value if is_size(value) else operator.index(value)


def _extreme(builtin: Callable[..., Any], of_two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`min` or `max`; of symbolic sizes a symbolic size, and not the answer for this call."""

    def extreme(*values: Any, **named: Any) -> Any:
        if len(values) == 1 and not named:
            values = tuple(values[0])
        if not named and any(map(is_size, values)):
            return functools.reduce(of_two, values)
        return builtin(*values, **named) if len(values) > 1 else builtin(values, **named)

    return extreme


def _array(values: Any, dtype: Any = None) -> Any:
    """`np.array`, which of sizes makes an array of objects."""
    if isinstance(values, (list, tuple)) and any(map(is_size, values)):
        return jnp.array(values, None if dtype is None else jax.dtypes.canonicalize_dtype(dtype))
    return np.array(values, dtype)


def _cumsum(values: Sequence[Any], **named: Any) -> Any:
    """`np.cumsum`, which needs numbers for sizes."""
    symbolic = any(map(is_size, values))
    return [*itertools.accumulate(values)] if symbolic else np.cumsum(values, **named)


def _minimum(a: Any, b: Any) -> Any:
    """`np.minimum`, also of what :func:`_array` makes."""
    return jnp.minimum(a, b) if isinstance(a, jax.Array) else np.minimum(a, b)


_BUILTINS = {"len": _length, "min": _extreme(min, min_size), "max": _extreme(max, max_size)}

_installed: set[str] = set()


def install() -> None:
    """Put the replacements in place; called again when more of JAX may have been imported."""
    use_builtins(_BUILTINS)
    use_index(_index)
    use_numpy({"array": _array, "cumsum": _cumsum, "minimum": _minimum})
    if not _installed:
        use_derivative_of_solve(generic_linalg.solve_by_matrix)
        use_derivative_of_product(generic_numpy.product_derivative)
    replace_functions({name: REPLACED[name] for name in REPLACED.keys() - _installed})
    _installed.update(REPLACED)
