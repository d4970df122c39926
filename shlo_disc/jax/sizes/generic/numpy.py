"""Functions of `jax.numpy` that want a constant size, written for a symbolic one.

Each takes JAX's function first, and computes what that function computes for every size.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import opt_einsum
from jax import lax

from shlo_disc.jax.sizes.marks import has_symbols, more_than_one, written_twice
from shlo_disc.jax.sizes.symbolic import is_size
from shlo_disc.jax_private.sizes import max_size, min_size, size_as_array
from shlo_disc.jax_private.states import is_library_file


def _array(size: Any) -> Any:
    """A size as a number that can be compared without a question."""
    return size_as_array(size) if is_size(size) else jnp.asarray(size)


# ---- borders ------------------------------------------------------------------------------------


def _bordered(array: Any, pad_width: Any, place: Callable[[Any, Any], Any]) -> Any:
    """`array` between rows of its own; `place(position, size)` is where the row at a position
    outside comes from.
    """
    for axis, (before, after) in enumerate(pad_width):
        size = array.shape[axis]
        parts = [array]
        if is_size(before) or before > 0:
            rows = place(jnp.arange(before) - _array(before), _array(size))
            parts.insert(0, jnp.take(array, rows, axis=axis, mode="clip"))
        if is_size(after) or after > 0:
            rows = place(jnp.arange(after) + _array(size), _array(size))
            parts.append(jnp.take(array, rows, axis=axis, mode="clip"))
        array = lax.concatenate(parts, axis)
    return array


def _is_bordered_by_symbol(array: Any, pad_width: Any) -> bool:
    """True if an axis of symbolic size, which is not 0, gets a border."""
    return any(
        (is_size(size) or has_symbols(width)) and not _is_nothing(width)
        for size, width in zip(array.shape, pad_width, strict=True)
    ) and all(size != 0 for size in array.shape)


def _is_nothing(width: Sequence[Any]) -> bool:
    return not has_symbols(width) and not any(width)


def _pad_wrap(original: Callable[..., Any], array: Any, pad_width: Any) -> Any:
    return written_twice(
        "pad_wrap",
        _is_bordered_by_symbol(array, pad_width),
        lambda x: _bordered(x, pad_width, jnp.remainder),
        lambda x: original(x, pad_width),
        array,
    )


def _pad_symmetric_or_reflect(
    original: Callable[..., Any], array: Any, pad_width: Any, mode: str, reflect_type: str
) -> Any:
    """Rows outside repeat those inside, forwards and backwards in turn."""
    if reflect_type != "even":
        return original(array, pad_width, mode, reflect_type)

    def place(t: Any, size: Any) -> Any:
        if mode == "reflect":  # the outermost rows are not repeated; one row alone is
            period = jnp.maximum(2 * (size - 1), 1)
            t = jnp.remainder(t, period)
            return jnp.minimum(t, period - t)
        t = jnp.remainder(t, 2 * size)
        return jnp.minimum(t, 2 * size - 1 - t)

    return written_twice(
        "pad_mirror",
        _is_bordered_by_symbol(array, pad_width),
        lambda x: _bordered(x, pad_width, place),
        lambda x: original(x, pad_width, mode, reflect_type),
        array,
    )


# ---- repeats ------------------------------------------------------------------------------------


def _repeated(array: Any, size: Any) -> Any:
    """`size` elements of a vector, over and over."""
    return jnp.take(array, jnp.arange(size) % _array(array.shape[0]), mode="clip")


def _tile_to_size(original: Callable[..., Any], arr: Any, size: Any) -> Any:
    return written_twice(
        "tile_to_size",
        has_symbols(arr.shape, (size,)) and arr.size != 0,
        lambda x: _repeated(x, size),
        lambda x: original(x, size),
        arr,
    )


def _resize(original: Callable[..., Any], a: Any, new_shape: Any) -> Any:
    sizes = tuple(new_shape) if np.iterable(new_shape) else (new_shape,)
    symbolic = has_symbols(np.shape(a), sizes) and not any(
        size == 0 for size in (*np.shape(a), *sizes)
    )
    return written_twice(
        "resize",
        symbolic,
        lambda x: _repeated(jnp.ravel(x), functools.reduce(operator.mul, sizes, 1)).reshape(sizes),
        lambda x: original(x, new_shape),
        a,
    )


def _packbits(
    original: Callable[..., Any], a: Any, axis: int | None = None, bitorder: str = "big"
) -> Any:
    """Zeros behind the last bits, none of them where the bits fill whole bytes."""

    def packed(x: Any) -> Any:
        x, place = (x, axis % x.ndim) if axis is not None else (jnp.ravel(x), 0)
        size = x.shape[place]
        widths = [(0, 0, 0)] * x.ndim
        widths[place] = (0, 8 * ((size + 7) // 8) - size, 0)
        return original(lax.pad(x, jnp.zeros((), x.dtype), widths), place, bitorder)

    return written_twice(
        "packbits", has_symbols(np.shape(a)), packed, lambda x: original(x, axis, bitorder), a
    )


# ---- vectors of two sizes -----------------------------------------------------------------------


def _conv(
    original: Callable[..., Any],
    x: Any,
    y: Any,
    mode: str,
    op: str,
    precision: Any,
    preferred_element_type: Any = None,
) -> Any:
    """The full convolution, of which the other modes are parts."""
    symbolic = np.ndim(x) == np.ndim(y) == 1 and has_symbols(np.shape(x), np.shape(y))
    if symbolic and any(jnp.iscomplexobj(v) for v in (x, y)):
        symbolic = False  # a correlation conjugates the shorter operand
    options = (mode, op, precision, preferred_element_type)
    return written_twice(
        op,
        symbolic and mode in ("full", "same", "valid") and x.shape[0] != 0 and y.shape[0] != 0,
        lambda a, b: _convolved(a, b, *options),
        lambda a, b: original(a, b, *options),
        x,
        y,
    )


def _convolved(x: Any, y: Any, mode: str, op: str, precision: Any, element_type: Any) -> Any:
    dtype = jnp.result_type(x, y)
    if element_type is None and not jnp.issubdtype(dtype, np.inexact):
        dtype = jnp.result_type(float)
    n, m = x.shape[0], y.shape[0]
    x, padding = x.astype(dtype), [(0, 0)]
    if is_size(m):
        x = lax.pad(x, jnp.zeros((), dtype), ((m - 1, m - 1, 0),))
    else:
        padding = [(m - 1, m - 1)]
    y = y.astype(dtype) if op == "correlate" else jnp.flip(y.astype(dtype))
    whole = lax.conv_general_dilated(
        x[None, None, :],
        y[None, None, :],
        (1,),
        padding,
        precision=precision,
        preferred_element_type=element_type,
    )[0, 0]
    if mode == "full":
        return whole
    longer, shorter = max_size(n, m), min_size(n, m)
    if mode == "valid":
        return lax.dynamic_slice(whole, (_array(shorter - 1),), (longer - shorter + 1,))
    start = _array(shorter - 1 - shorter // 2)
    if op == "correlate":  # JAX exchanges the operands, and turns the result around
        start = jnp.where(_array(n) < _array(m), _array(shorter // 2), start)
    return lax.dynamic_slice(whole, (start,), (longer,))


def _convolve_nd(
    original: Callable[..., Any], in1: Any, in2: Any, mode: str, *, precision: Any
) -> Any:
    """`jax.scipy.signal.convolve`; in "same" the first operand gives the sizes."""
    symbolic = np.ndim(in1) == np.ndim(in2) and has_symbols(in1.shape, in2.shape)

    def convolved(x: Any, y: Any) -> Any:
        if x.ndim == 1 and mode == "same":
            whole = _convolved(x, y, "full", "convolve", precision, None)
            return lax.dynamic_slice(whole, (_array((y.shape[0] - 1) // 2),), x.shape)
        if x.ndim == 1:
            return _convolved(x, y, mode, "convolve", precision, None)
        return _convolved_nd(x, y, mode, precision)

    return written_twice(
        "convolve_nd",
        symbolic and mode in ("full", "same", "valid") and in1.size != 0 and in2.size != 0,
        convolved,
        lambda x, y: original(x, y, mode, precision=precision),
        in1,
        in2,
    )


def _convolved_nd(x: Any, y: Any, mode: str, precision: Any) -> Any:
    second = y.shape
    if not all(a >= b for a, b in zip(x.shape, y.shape, strict=True)):
        if not all(a <= b for a, b in zip(x.shape, y.shape, strict=True)):
            raise ValueError("One input must be smaller than the other in every dimension.")
        x, y = y, x
    dtype = jnp.result_type(x, y)
    if not jnp.issubdtype(dtype, np.inexact):
        dtype = jnp.result_type(float)
    padding = {
        "valid": [(0, 0) for _ in second],
        "same": [
            (s - 1 - (o - 1) // 2, s - o + (o - 1) // 2)
            for s, o in zip(y.shape, second, strict=True)
        ],
        "full": [(s - 1, s - 1) for s in y.shape],
    }[mode]
    x = lax.pad(x.astype(dtype), jnp.zeros((), dtype), [(low, high, 0) for low, high in padding])
    y = jnp.flip(y.astype(dtype))
    return lax.conv_general_dilated(
        x[None, None], y[None, None], (1,) * x.ndim, "VALID", precision=precision
    )[0, 0]


def _polyadd(original: Callable[..., Any], a1: Any, a2: Any) -> Any:
    symbolic = np.ndim(a1) == np.ndim(a2) == 1 and has_symbols(np.shape(a1), np.shape(a2))

    def added(a: Any, b: Any) -> Any:
        dtype, size = jnp.result_type(a, b), max_size(a.shape[0], b.shape[0])
        parts = [
            lax.pad(v.astype(dtype), jnp.zeros((), dtype), ((size - v.shape[0], 0, 0),))
            for v in (a, b)
        ]
        return parts[0] + parts[1]

    return written_twice("polyadd", symbolic, added, original, a1, a2)


def _polyval(original: Callable[..., Any], p: Any, x: Any, **named: Any) -> Any:
    """Horner's rule as a loop, as JAX has it before 0.11.1; later it unrolls one."""

    def value(p: Any, x: Any) -> Any:
        dtype = jnp.result_type(p, x)
        p, x = (v if v.dtype == dtype else v.astype(dtype) for v in (p, x))
        start = jnp.broadcast_to(jnp.zeros_like(x), jnp.broadcast_shapes(p.shape[1:], x.shape))
        return lax.scan(lambda y, a: (y * x + a, None), start, p, unroll=16)[0]

    symbolic = np.ndim(p) > 0 and has_symbols(np.shape(p)[:1])
    return written_twice(
        "polyval",
        symbolic,
        lambda p, x: value(jnp.asarray(p), jnp.asarray(x)),
        lambda p, x: original(p, x, **named),
        p,
        x,
    )


def _diagonal(
    original: Callable[..., Any], a: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1
) -> Any:
    """For constant sizes JAX has another branch for squares, which other platforms take."""

    def by_jax(x: Any) -> Any:
        return original(x, offset, axis1, axis2)

    return written_twice("diagonal", has_symbols(np.shape(a)), by_jax, by_jax, a)


def _piecewise(
    original: Callable[..., Any],
    x: Any,
    conditions: Any,
    constants: Any,
    functions: Any,
    *args: Any,
    **named: Any,
) -> Any:
    """For one element JAX has branches; for symbols, as for more elements, it selects values."""

    def by_jax(x: Any, conditions: Any) -> Any:
        return original(x, conditions, constants, functions, *args, **named)

    if not all(_is_of_jax(function) for _, function in functions):
        return by_jax(x, conditions)
    return written_twice("piecewise", has_symbols(np.shape(x)), by_jax, by_jax, x, conditions)


def _is_of_jax(function: Any) -> bool:
    """True for a function of JAX, with or without some arguments."""
    function = getattr(function, "func", function)  # of a partial
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and is_library_file(code.co_filename)


# ---- derivatives ---------------------------------------------------------------------------------


def product_derivative(
    original: Callable[..., Any], primals: Any, tangents: Any, *, axes: Sequence[int], **named: Any
) -> Any:
    """The derivative of `reduce_prod`: each tangent times the product of all other factors.

    That is the product of the factors before it times that of those behind it; no division, so
    zeros are like other factors. JAX multiplies halves until one is left, in Python.
    """

    def of_any_size(x: Any, tangent: Any) -> Any:
        others = [axis for axis in range(x.ndim) if axis not in axes]
        rest = tuple(x.shape[axis] for axis in others)
        count = math.prod(x.shape[axis] for axis in axes)
        rows, tangents = (
            lax.reshape(lax.transpose(v, (*axes, *others)), (count, *rest)) for v in (x, tangent)
        )
        one, along = jnp.ones((), x.dtype), [(0, 0, 0)] * len(rest)
        before = lax.pad(lax.cumprod(rows), one, [(1, -1, 0), *along])
        behind = lax.pad(lax.cumprod(rows, reverse=True), one, [(-1, 1, 0), *along])
        return lax.reduce_prod(x, axes), jnp.sum(tangents * before * behind, 0, dtype=x.dtype)

    return written_twice(
        "reduce_prod_jvp",
        has_symbols(np.shape(primals[0])),
        of_any_size,
        lambda x, tangent: original((x,), (tangent,), axes=axes, **named),
        *primals,
        *tangents,
    )


# ---- one element is another formula -------------------------------------------------------------


def _plain(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function without its `jax.jit`, which would keep this trace for other callers."""
    plain: Callable[..., Any] = getattr(original, "__wrapped__", original)
    return plain


def _window(original: Callable[..., Any], M: Any, *beta: Any) -> Any:
    if not is_size(M):
        return original(M, *beta)
    with more_than_one(original.__name__):
        window = _plain(original)(M, *beta)
    return jnp.where(_array(M) == 1, jnp.ones_like(window), window)


def _linspace(
    original: Callable[..., Any],
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    **named: Any,
) -> Any:
    def for_any_number(a: Any, b: Any) -> Any:
        with more_than_one("_linspace"):
            found, step = _plain(original)(a, b, num, endpoint, True, dtype, axis, **named)
        if endpoint:  # which the only element is not
            is_one = _array(num) == 1
            found = jnp.where(is_one, original(a, b, 1, True, False, dtype, axis, **named), found)
            step = jnp.where(is_one, jnp.nan, step)
        return (found, step) if retstep else found

    def by_jax(a: Any, b: Any) -> Any:
        return original(a, b, num, endpoint, retstep, dtype, axis, **named)

    # JAX's only step is a scalar, whatever the bounds are.
    plain = not retstep or np.ndim(start) == np.ndim(stop) == 0
    symbolic = is_size(num) and plain and num != 0
    return written_twice("linspace", symbolic, for_any_number, by_jax, start, stop)


def _repeat(
    original: Callable[..., Any],
    repeats: Any,
    arr: Any,
    *,
    axis: int,
    total_repeat_length: Any = None,
) -> Any:
    """JAX refuses a symbolic count where the length of the result is given, too."""
    if is_size(repeats) and total_repeat_length is not None:
        repeats = size_as_array(repeats)
    return original(repeats, arr, axis=axis, total_repeat_length=total_repeat_length)


# ---- places -------------------------------------------------------------------------------------


def _canonicalize_axis(original: Callable[..., Any], axis: Any, num_dims: Any) -> Any:
    """A place counted from the start: `kth` of `jnp.partition` may be a size."""
    if not is_size(axis):
        return original(axis, num_dims)
    if not -num_dims <= axis < num_dims:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {num_dims}")
    return axis if axis >= 0 else axis + num_dims


def _delete(
    original: Callable[..., Any], arr: Any, obj: Any, axis: Any = None, **named: Any
) -> Any:
    """`jnp.delete` of the element at a size; JAX takes a size for an array of places."""
    if not is_size(obj):
        return original(arr, obj, axis, **named)
    array = jnp.asarray(arr)
    if axis is None:
        array, axis = array.ravel(), 0
    axis = range(array.ndim)[axis]
    size = array.shape[axis]
    place = _canonicalize_axis(operator.index, obj, size)
    before = lax.slice_in_dim(array, 0, place, axis=axis)
    return lax.concatenate([before, lax.slice_in_dim(array, place + 1, size, axis=axis)], axis)


def _window_mask(
    original: Callable[..., Any], rows: Any, columns: Any, local_window_size: tuple[int, int]
) -> Any:
    """The mask of `jax.nn.dot_product_attention`: JAX counts with Python's `range`."""
    if not is_size(rows) and not is_size(columns):
        return original(rows, columns, local_window_size)
    left, right = local_window_size
    distance = jnp.arange(columns)[None, :] - jnp.arange(rows)[:, None]
    return jnp.logical_and(distance <= right, -distance <= left)[None, None]


def _arange(
    original: Callable[..., Any],
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *rest: Any,
    **named: Any,
) -> Any:
    """`jnp.arange(1.0, n + 1)`: whole floats are integers, and elements have the type of floats."""
    numbers = [number for number in (start, stop, step) if number is not None]
    floats = [number for number in numbers if isinstance(number, float)]
    if floats and any(map(is_size, numbers)) and all(map(float.is_integer, floats)):
        dtype = dtype or jnp.result_type(*(0 if is_size(number) else number for number in numbers))
        start, stop, step = (int(v) if isinstance(v, float) else v for v in (start, stop, step))
    return original(start, stop, step, dtype, *rest, **named)


# ---- shapes that have to be equal ---------------------------------------------------------------


def _ask_equal(shapes: Sequence[Sequence[Any]]) -> bool:
    """Ask whether all shapes are equal; the answer becomes guards.

    JAX's functions below put sizes into a set, which asks nothing, and raise unless it has one
    member. The program may catch the error.
    """
    return all(
        len(shapes[0]) == len(other) and all(map(operator.eq, shapes[0], other))
        for other in shapes[1:]
    )


def _of_equal_arrays(original: Callable[..., Any], arrays: Any, *rest: Any, **named: Any) -> Any:
    """`lax.stack`, `jnp.lexsort`."""
    if isinstance(arrays, (list, tuple)):
        _ask_equal([x.shape for x in arrays if hasattr(x, "shape")])
    return original(arrays, *rest, **named)


def _diag_indices_from(original: Callable[..., Any], arr: Any) -> Any:
    _ask_equal([(size,) for size in np.shape(arr)])
    return original(arr)


# ---- products -----------------------------------------------------------------------------------


def _einsum_contract_path(original: Callable[..., Any], *operands: Any, **named: Any) -> Any:
    """Ask of every label whether its sizes agree, as opt_einsum does where they are numbers.

    JAX looks for mistakes later, and raises another error.
    """
    inputs, _, arrays = opt_einsum.parser.parse_einsum_input(operands)
    sizes: dict[str, Any] = {}
    for place, (labels, array) in enumerate(zip(inputs.split(","), arrays, strict=True)):
        for label, size in zip(labels, np.shape(array), strict=False):
            known = sizes.get(label, 1)
            if _is_one(known):
                sizes[label] = size
            elif not _is_one(size) and known not in (size, 1) and size != 1:
                raise ValueError(
                    f"Size of label '{label}' for operand {place} ({known}) does not match "
                    f"previous terms ({size})."
                )
    return original(*operands, **named)


def _is_one(size: Any) -> bool:
    return not is_size(size) and size == 1


def _einsum(
    original: Callable[..., Any],
    operands: Sequence[Any],
    contractions: Sequence[Any],
    precision: Any,
    preferred_element_type: Any,
    dot_general: Any = lax.dot_general,
    out_sharding: Any = None,
) -> Any:
    """Several products are in the order that is best for the sizes, which JAX guesses for symbols.

    Any order is right.
    """

    def product(*arrays: Any) -> Any:
        return original(
            list(arrays), contractions, precision, preferred_element_type, dot_general, out_sharding
        )

    if len(contractions) < 2 or dot_general is not lax.dot_general:
        return product(*operands)
    symbolic = has_symbols(*(np.shape(x) for x in operands))
    return written_twice("einsum", symbolic, product, product, *operands)


REPLACED: dict[str, Callable[..., Any]] = {
    "_arange": _arange,
    "_conv": _conv,
    "_convolve_nd": _convolve_nd,
    "_einsum": _einsum,
    "_get_window_mask": _window_mask,
    "canonicalize_axis": _canonicalize_axis,
    "delete": _delete,
    "_einsum_contract_path": _einsum_contract_path,
    "_linspace": _linspace,
    "_pad_symmetric_or_reflect": _pad_symmetric_or_reflect,
    "_pad_wrap": _pad_wrap,
    "_piecewise": _piecewise,
    "_repeat": _repeat,
    "_tile_to_size": _tile_to_size,
    "bartlett": _window,
    "diag_indices_from": _diag_indices_from,
    "diagonal": _diagonal,
    "blackman": _window,
    "hamming": _window,
    "hanning": _window,
    "kaiser": _window,
    "lexsort": _of_equal_arrays,
    "packbits": _packbits,
    "polyadd": _polyadd,
    "polyval": _polyval,
    "resize": _resize,
    "stack": _of_equal_arrays,
}
"""The replacement of every function, by the function's name in JAX."""
