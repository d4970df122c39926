"""JAX's own questions about sizes: which of its functions are right with an unknown answer.

JAX answers an unknown `==` of symbolic sizes with False and an unknown order with an error. The
tables of this module name the functions of JAX that are prepared for that; the shape rules that are
not get the answer of the call. They were found with the functions of JAX in `tests/frontend` and
`tests/functions`; a function that no table names gets the answer of the call, which is right and
makes a guard.
"""

from __future__ import annotations

import functools
import os
import reprlib
from types import FrameType
from typing import Any

import numpy as np

from shlo_disc.jax.sizes import marks
from shlo_disc.jax.sizes.askers import (
    asking_function,
    asks_for_itself,
    compares_keys,
    is_caught_by_program,
    is_of_jax,
)
from shlo_disc.jax.sizes.symbolic import as_expr, is_size

_IDENTITY_FILES = frozenset(
    (
        "util.py", "linear_util.py", "pjit.py", "partial_eval.py", "mlir.py", "tree_util.py",
        "api_util.py", "dispatch.py", "config.py", "stages.py", "compiler.py", "core.py",
        "custom_derivatives.py", "custom_batching.py", "custom_transpose.py",
        "source_info_util.py", "profiler.py", "shape_poly_decision.py",
    )
)  # fmt: skip
"""Files of JAX that compare sizes as keys of caches, or to save an operation."""

_UNKNOWN_IS_FINE = frozenset(
    (
        "_broadcast_in_dim_fwd_rule", "_gather_batching_rule", "broadcast_in_dim", "_resize",
        "_resize_nearest", "_scale_and_translate", "filter_singleton_dims", "_compute_newshape",
        "cancel_divide_tracers", "reshape", "diagonal",
    )
)  # fmt: skip
"""Functions of JAX that are right for every size when an unknown `==` is False: most look for a
short cut (nothing to slice, nothing to broadcast)."""

_MORE_IS_NEEDED = {
    "_index_to_gather": "zero",  # raises for a place in a dimension that is known to be empty
    "_map_shaped_array": "hint",  # it asserts that an array has the length of a loop
    "cmp_shape_shd_mat_memsp": "hint",  # its caller raises unless sizes are known to be equal
    "divide_shape_sizes": "zero",  # raises unless a remainder is known to be 0
}
"""Functions in those files that are not content with an unknown answer."""

_UNITS_ARE_FINE = frozenset(
    (
        "_try_broadcast_shapes", "broadcast_to", "_broadcast_in_dim_shape_rule",
        "_broadcast_shapes_uncached", "_broadcast_arrays", "broadcast_shapes", "take_along_axis",
        "_einsum", "matmul", "_matmul", "dot_general", "_dot_general_shape_rule", "_unbroadcast",
        "_broadcast_in_dim_transpose_rule", "broadcast_batcher", "_maybe_broadcast",
        "vectorize.py:wrapped", "_generic_lu_pivots_to_permutation", "_solve",
    )
)  # fmt: skip
"""Functions of JAX that treat a size of 1 apart: an unknown size takes the general way, which asks
for equality with its partner."""

_SMALL_IS_FINE = frozenset(("det", "slogdet"))
"""Functions of JAX with formulas of their own for small sizes: `generic/linalg.py` chooses those
when the program runs."""

_RUNS_AT_ZERO = frozenset(
    ["_scan_impl", "_batch_and_remainder", "_in1d", "cumred_reduce_window_impl"]
)
"""Functions of JAX that leave out work on no elements, such as a loop of no rounds or totals of an
empty row. Their general way is right for those, too."""

_ROUND = "_scan_impl.<locals>.body_fun"
_IF_THERE_ARE_ANY = {
    "_check_shapelike": "cumred_reduce_window_impl",  # running totals: a window of all rows
    "_dynamic_slice_shape_rule": _ROUND,  # a round of a `scan` takes a row, and puts one
    "_dynamic_update_slice_shape_rule": _ROUND,
}
"""Functions of JAX that ask whether there is a row, and callers that need none where none is."""

_IS_EVEN = frozenset(["rfftfreq"])
"""Functions of JAX with a case for odd and one for even sizes, where that for even ones is right
for all."""

_RAISE = frozenset(
    (
        "_try_broadcast_shapes", "_broadcast_shapes_uncached", "_dot_general_shape_rule",
        "_broadcast_in_dim_shape_rule", "broadcast_shapes", "broadcast_to",
    )
)  # fmt: skip
"""Those of them that raise where sizes differ; a caller may catch the error (`array_equiv`)."""

_WHOLE_IS_LIKELY = frozenset(("_dynamic_update_slice_shape_rule", "_dynamic_slice_shape_rule"))
"""Functions of JAX that ask for an order. Equal sizes there mean that a dimension is taken whole,
which is unlikely to change, and code for it is better."""

_ORDERS_WORK = frozenset(["_triangular_solve_jvp_rule_a"])
"""Functions of JAX that ask which of two orders of operations costs less; both are right."""

_CATCHES = frozenset(
    (
        "_top_k_abstract_eval", "definitely_equal", "_svd_gpu_lowering", "_select_gpu_svd_impl",
    )
)  # fmt: skip
"""Functions of JAX that catch an inconclusive comparison and go a general way."""

_PROBES = frozenset(("is_constant_dim", "_convertible_to_int"))
"""Functions of JAX that tell constants from symbols by trying `operator.index`."""

_OVERFLOW_CHECKS = frozenset(("hijax.py:__init__",))
"""Functions of JAX that make an index type of a size, only to see whether the type overflows."""


_DESCRIBE = frozenset(("fun_sourceinfo", "_flatten_fwd", "_run_python_pjit"))
"""Functions of JAX that ask a callable for its text, to name the callable in messages."""

_TEXTS = frozenset(("__repr__", "__str__", "__format__"))

_WRITE_FIRST = frozenset(
    (
        "assert_axis_dimension", "assert_axis_dimension_gt", "assert_axis_dimension_gteq",
        "assert_axis_dimension_lt", "assert_axis_dimension_lteq", "assert_is_broadcastable",
    )
)  # fmt: skip
"""Functions of chex that write the message of an error before they compare sizes."""

_ONE_OR_ERROR = frozenset(
    (
        ("flax/core/lift.py", "inner"),
        ("optax/microbatching/_microbatching.py", "_reshape_all_args"),
        ("jax/_src/core.py", "dedup_referents"),  # of `vmap`
        ("jax/_src/custom_batching.py", "custom_vmap_batching"),
        ("jax/_src/ffi.py", "ffi_batching_rule"),
        ("_src/lax/lax.py", "_stack_shape_rule"),
        ("_src/numpy/lax_numpy.py", "diag_indices_from"),
        ("_src/numpy/sorting.py", "lexsort"),
    )
)
"""Functions of JAX and of libraries that make a set of sizes, and raise unless it has one member.

Sizes of one value have one hash, so Python compares them with `==`, and the answers are guards. A
set of two members, of which no question tells, ends in the error. Programs that catch an error of
JAX here are told by other questions: `vmap` looks for the odd size, and `generic/numpy.py` asks.
"""


def _batched_alike(frame: FrameType) -> bool:
    """True if all arrays at a `broadcast_batcher` are batched, in the same place.

    Only then does the function use that their shapes are equal, as the primitive needs.
    """
    arrays, places = frame.f_locals.get("args", ()), frame.f_locals.get("dims", ())
    return len({d for x, d in zip(arrays, places, strict=False) if np.ndim(x)}) <= 1


def is_for_messages(frame: FrameType | None) -> bool:
    """True if JAX asks for a text to describe a function; the text decides nothing.

    The functions that do so may also run the program's functions, whose texts decide.
    """
    called = None
    while frame is not None and not is_of_jax(frame):
        called, frame = frame, frame.f_back
    if frame is None or called is None or frame.f_code.co_name not in _DESCRIBE:
        return False
    code = called.f_code  # of a dataclass: a function of reprlib that calls `__repr__`
    return code.co_name in _TEXTS or code.co_filename == reprlib.__file__


def is_of_error(frame: FrameType | None) -> bool:
    """True if a library asks for a text that only the error of the trace under way can have."""
    if frame is None or frame.f_code.co_name not in _WRITE_FIRST:
        return False
    return frame.f_code.co_filename.replace(os.sep, "/").endswith("chex/_src/asserts.py")


def raises_unless_equal(frame: FrameType | None) -> bool:
    """True if a function of JAX or of a library makes a set of sizes that have to be equal."""
    function = asking_function(frame)
    if function is None:
        return False
    return _makes_set(function.f_code.co_filename, function.f_code.co_name)


@functools.lru_cache(4096)
def _makes_set(file: str, name: str) -> bool:
    return ("/".join(file.replace(os.sep, "/").split("/")[-3:]), name) in _ONE_OR_ERROR


@functools.lru_cache(4096)
def hashes_keys(file: str, name: str) -> bool:
    """True for a function of JAX that hashes sizes only to look something up."""
    return asks_for_itself(file, name) and not _makes_set(file, name)


def of_equality(frame: FrameType | None) -> str:
    """How an unknown `==` of JAX, asked at `frame`, is answered.

    `unknown`: with False, as JAX does. `units`: the same for comparisons with -1, 0 and 1.
    `small`: the same for comparisons with numbers. `zero`: the same for all but comparisons with 0.
    `hint`: with the sizes of the call. `equal`: with True, which is right for all.
    """
    function = asking_function(frame)
    if function is None or not is_of_jax(function):
        return "unknown"
    if raises_unless_equal(function):
        return "hint"
    name = function.f_code.co_name
    file = os.path.basename(function.f_code.co_filename)
    if name in _MORE_IS_NEEDED:
        return "hint" if is_caught_by_program(frame) else _MORE_IS_NEEDED[name]
    if name in _UNKNOWN_IS_FINE or file in _IDENTITY_FILES or name in ("__eq__", "__ne__"):
        return "unknown"  # classes of JAX are compared as keys of caches
    if name == "_tile_abstract_eval" and function.f_locals.get("sh") is None:
        return "unknown"  # it raises for repeats of a sharded dimension
    if name == "broadcast_batcher" and not _batched_alike(function):
        return "unknown"  # it moves the batch to the front, whatever the sizes are
    if compares_keys(function):
        return "unknown"
    if name in _IS_EVEN:
        return "equal"
    if name in _SMALL_IS_FINE:
        return "small"
    return "units" if {name, f"{file}:{name}"} & _UNITS_ARE_FINE else "hint"


def name_of_function(frame: FrameType | None) -> str:
    """The name of the function of JAX that asks."""
    function = asking_function(frame)
    return function.f_code.co_name if function is not None else ""


def may_raise(frame: FrameType | None) -> bool:
    """True if an error that JAX raises where sizes are not equal may be caught."""
    return name_of_function(frame) in _RAISE or is_caught_by_program(frame)


def is_likely_whole(frame: FrameType | None) -> bool:
    """True for a function that asks whether a part may be the whole dimension."""
    return name_of_function(frame) in _WHOLE_IS_LIKELY


def is_more_than_one(frame: FrameType | None, bound: Any) -> bool:
    """True if a function that asks whether a size is more than 1 shall hear that it is."""
    name = name_of_function(frame)
    unit = isinstance(bound, int) and bound in (0, 1)
    return unit and (name in _ORDERS_WORK or marks.is_more_than_one(name))


def runs_at_zero(frame: FrameType | None) -> bool:
    """True for a function that is right for a count of 0 when it hears that there is one more."""
    return name_of_function(frame) in _RUNS_AT_ZERO


def takes_a_row(frame: FrameType | None) -> bool:
    """True for a function that asks if there is an element where none is needed without one.

    The dimension is that of the rounds of a loop, or the indices of a gather have one of its size.
    """
    function = asking_function(frame)
    if function is None or not is_of_jax(function):
        return False
    name = function.f_code.co_name
    if name == "_gather_shape_rule":
        size = function.f_locals.get("corresponding_input_size")
        shape = function.f_locals["indices"].shape
        return is_size(size) and any(is_size(n) and as_expr(n) == as_expr(size) for n in shape)
    if name not in _IF_THERE_ARE_ANY:
        return False
    caller: FrameType | None = function
    while caller is not None and caller.f_code.co_qualname != _IF_THERE_ARE_ANY[name]:
        caller = caller.f_back
    return caller is not None


def is_caught(frame: FrameType | None, depth: int = 6) -> bool:
    """True if a caller in JAX is prepared for an inconclusive comparison."""
    while frame is not None and depth:
        if frame.f_code.co_name in _CATCHES and is_of_jax(frame):
            return True
        frame, depth = frame.f_back, depth - 1
    return False


def is_probe(frame: FrameType | None) -> bool:
    """True for a function that expects an error from a size that is no constant."""
    return frame is not None and frame.f_code.co_name in _PROBES


def checks_overflow(frame: FrameType | None) -> bool:
    """True for a function that needs a number only to see whether an index type holds it."""
    if frame is None:
        return False
    file = os.path.basename(frame.f_code.co_filename)
    return f"{file}:{frame.f_code.co_name}" in _OVERFLOW_CHECKS
