"""What each primitive of JAX makes of values that are split along a symbol (`states.py`).

A rule takes an equation and the states of its operands, and returns those of its results. A
primitive without a rule cannot be split; neither can a state that no rule of a primitive names.
`splits.py` checks every answer against the shapes.

A linear operation of `SUM` is a `SUM`. Operations on elements want all operands along one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.derived.splits.indexing import INDEXING
from shlo_disc.jax.derived.splits.states import (
    SUM,
    WHOLE,
    ZERO,
    CannotSplitError,
    Kind,
    State,
    axes_of,
    is_inexact,
    plain,
)
from shlo_disc.jax.sizes.symbolic import as_expr

Rule: TypeAlias = Callable[[Any, Sequence[State]], Sequence[State]]


# ---- elements ---------------------------------------------------------------------------------


def _elementwise(equation: Any, given: Sequence[State]) -> list[State]:
    axes = axes_of(given)
    if SUM in given or len(axes) > 1:
        raise CannotSplitError(equation, "is not linear")
    return [next(iter(axes), WHOLE)] * len(equation.outvars)


def _sums(equation: Any, given: Sequence[State]) -> list[State]:
    """`a + b` of sums is a sum; so is a choice of sums."""
    if SUM in given and all(state is SUM or state is ZERO for state in given):
        return [SUM]
    if all(state is ZERO for state in given):
        return [ZERO]
    return _elementwise(equation, given)


def _select(equation: Any, given: Sequence[State]) -> list[State]:
    return _sums(equation, given[1:]) if plain(given[:1]) else _elementwise(equation, given)


def _mul(equation: Any, given: Sequence[State]) -> list[State]:
    one_is_plain = plain(given[:1]) or plain(given[1:])
    if SUM in given and one_is_plain and not axes_of(given):
        return [SUM]
    return _elementwise(equation, given)


def _div(equation: Any, given: Sequence[State]) -> list[State]:
    if given[0] is SUM and plain(given[1:]) and is_inexact(equation.outvars[0]):
        return [SUM]
    return _elementwise(equation, given)


def _convert(equation: Any, given: Sequence[State]) -> list[State]:
    if given[0] is SUM and not is_inexact(equation.invars[0], equation.outvars[0]):
        raise CannotSplitError(equation, "rounds")
    return list(given)


def _each(equation: Any, given: Sequence[State]) -> list[State]:
    return list(given)


# ---- one operand, other dimensions ------------------------------------------------------------


def _moved(to: Callable[[Any, int], int | None]) -> Rule:
    """The rule of a linear operation on one array: `to` gives the new place of an axis."""

    def rule(equation: Any, given: Sequence[State]) -> list[State]:
        (state,) = given
        if isinstance(state, Kind):
            return [state] * len(equation.outvars)
        axis = to(equation, state)
        if axis is None:
            raise CannotSplitError(equation, f"needs all of dimension {state}")
        return [axis] * len(equation.outvars)

    return rule


def _not_linear(rule: Rule) -> Rule:
    def stricter(equation: Any, given: Sequence[State]) -> Sequence[State]:
        if SUM in given:
            raise CannotSplitError(equation, "is not linear")
        return rule(equation, [WHOLE if state is ZERO else state for state in given])

    return stricter


def _squeezed(equation: Any, axis: int) -> int:
    return axis - sum(1 for d in equation.params["dimensions"] if d < axis)


def _reshaped(equation: Any, axis: int) -> int | None:
    """Blocks stay blocks if as many elements stand in front of the axis."""
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if equation.params.get("dimensions") is not None:
        return None
    symbols = as_expr(before[axis]).symbols()
    in_front = Expr.product(as_expr(size) for size in before[:axis])
    for place, size in enumerate(after):
        if as_expr(size).symbols() & symbols and in_front == Expr.product(
            map(as_expr, after[:place])
        ):
            return place
    return None


def _reversed(equation: Any, axis: int) -> int | None:
    return None if axis in equation.params["dimensions"] else axis


def _sliced(equation: Any, axis: int) -> int | None:
    params, shape = equation.params, equation.invars[0].aval.shape
    whole = as_expr(params["start_indices"][axis]) == 0 and as_expr(
        params["limit_indices"][axis]
    ) == as_expr(shape[axis])
    steps = params["strides"]
    return axis if whole and (steps is None or as_expr(steps[axis]) == 1) else None


def _kept(parameter: str) -> Callable[[Any, int], int | None]:
    """The axis, if the operation does not run along it."""
    return lambda equation, axis: None if axis == equation.params[parameter] else axis


def _reduced(equation: Any, axis: int) -> int | None:
    axes = equation.params["axes"]
    return None if axis in axes else axis - sum(1 for d in axes if d < axis)


def _windowed(equation: Any, axis: int) -> int | None:
    params = equation.params
    alone = all(
        as_expr(params[name][axis]) == 1
        for name in ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    )
    return axis if alone and all(as_expr(p) == 0 for p in params["padding"][axis]) else None


def _reduce_sum(equation: Any, given: Sequence[State]) -> Sequence[State]:
    state = given[0]
    if not isinstance(state, Kind) and state in equation.params["axes"]:
        return [SUM]
    return _moved(_reduced)(equation, given)


def _broadcast(equation: Any, given: Sequence[State]) -> list[State]:
    state, *_ = given
    if not isinstance(state, Kind):
        return [int(equation.params["broadcast_dimensions"][state])]
    return [state]  # a dimension it adds may be an axis: see `repeated`


def _top_k(equation: Any, axis: int) -> int | None:
    along = equation.params.get("axis", -1) % len(equation.invars[0].aval.shape)
    return None if axis == along else axis


# ---- several operands -------------------------------------------------------------------------


def _concatenate(equation: Any, given: Sequence[State]) -> list[State]:
    if equation.params["dimension"] in axes_of(given):
        raise CannotSplitError(equation, "runs along the dimension")
    return _sums(equation, given)


def _pad(equation: Any, given: Sequence[State]) -> list[State]:
    state, value = given
    if not isinstance(state, Kind):
        if any(as_expr(p) != 0 for p in equation.params["padding_config"][state]):
            raise CannotSplitError(equation, "runs along the dimension")
        return _elementwise(equation, [state, value]) if plain([value]) else _refused(equation)
    return _sums(equation, given)


def _split(equation: Any, given: Sequence[State]) -> Sequence[State]:
    return _moved(_kept("axis"))(equation, given)


def _sort(equation: Any, given: Sequence[State]) -> list[State]:
    if equation.params["dimension"] in axes_of(given):
        raise CannotSplitError(equation, "runs along the dimension")
    return _elementwise(equation, given)


def _refused(equation: Any) -> list[State]:
    raise CannotSplitError(equation, "mixes blocks")


def _dot_general(equation: Any, given: Sequence[State]) -> list[State]:
    (contracting, batch) = equation.params["dimension_numbers"]
    if SUM in given:
        if axes_of(given) or not (plain(given[:1]) or plain(given[1:])):
            return _refused(equation)
        return [SUM]
    places = []
    for state, summed, batched in zip(given, contracting, batch, strict=True):
        if isinstance(state, Kind):
            places.append(("plain", 0))
        elif state in summed:
            places.append(("summed", list(summed).index(state)))
        elif state in batched:
            places.append(("batch", list(batched).index(state)))
        else:
            taken = {*summed, *batched}
            places.append(("free", sum(1 for d in range(state) if d not in taken)))
    (left, i), (right, j) = places
    if left == right == "plain":
        return [WHOLE]
    if left == right and i == j and left != "free":
        return [SUM if left == "summed" else i]
    if (left, right) == ("free", "plain"):
        return [len(batch[0]) + i]
    if (left, right) == ("plain", "free"):
        rows = len(equation.invars[0].aval.shape) - len(contracting[0]) - len(batch[0])
        return [len(batch[0]) + rows + j]
    return _refused(equation)


def _convolution(equation: Any, given: Sequence[State]) -> list[State]:
    params = equation.params
    left, right, out = params["dimension_numbers"]
    if SUM in given:
        if axes_of(given) or not (plain(given[:1]) or plain(given[1:])):
            return _refused(equation)
        return [SUM]
    image, kernel = given
    if plain(given):
        return [WHOLE]
    groups = params["feature_group_count"], params["batch_group_count"]
    if plain([kernel]) and image == left[0] and groups[1] == 1:
        return [out[0]]
    if plain([image]) and kernel == right[0] and groups == (1, 1):
        return [out[1]]
    if image == left[1] and kernel == right[1] and groups == (1, 1):
        return [SUM]
    return _refused(equation)


# ---- the table --------------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    return text.split()


_ELEMENTWISE = _names(
    "abs acos acosh and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz "
    "complex conj cos cosh digamma eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma "
    "igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to "
    "max min ne nextafter not one_minus_square or polygamma population_count pow random_gamma_grad "
    "real reduce_precision regularized_incomplete_beta rem round rsqrt shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square tan tanh threefry2x32 "
    "xor zeta"
)
_LINEAR = _names("copy copy_p neg optimization_barrier stop_gradient name")
_REDUCTIONS = _names(
    "reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin"
)
_SCANS = _names("cumlogsumexp cummax cummin cumprod")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_LINEAR, _each),
    **dict.fromkeys(_REDUCTIONS, _not_linear(_moved(_reduced))),
    **dict.fromkeys(_SCANS, _not_linear(_moved(_kept("axis")))),
    "add": _sums,
    "add_any": _sums,
    "sub": _sums,
    "select_n": _select,
    "mul": _mul,
    "div": _div,
    "convert_element_type": _convert,
    "broadcast_in_dim": _broadcast,
    "transpose": _moved(lambda equation, axis: list(equation.params["permutation"]).index(axis)),
    "squeeze": _moved(_squeezed),
    "reshape": _moved(_reshaped),
    "rev": _moved(_reversed),
    "slice": _moved(_sliced),
    "cumsum": _moved(_kept("axis")),
    "reduce_sum": _reduce_sum,
    "reduce_window_sum": _moved(_windowed),
    "reduce_window_max": _not_linear(_moved(_windowed)),
    "reduce_window_min": _not_linear(_moved(_windowed)),
    "top_k": _not_linear(_moved(_top_k)),
    "concatenate": _concatenate,
    "pad": _pad,
    "split": _split,
    "sort": _sort,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    **INDEXING,
}
"""By the name of the primitive."""
