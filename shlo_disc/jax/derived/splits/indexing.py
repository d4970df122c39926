"""Rules of gathers, scatters and slices at computed places (`rules.py` has the others).

Places that every block has in common move whole windows: the axis must lie in the window, in full.
Places that are split move one window each: the axis is that of the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from shlo_disc.jax.derived.splits.states import (
    SUM,
    WHOLE,
    ZERO,
    CannotSplitError,
    Kind,
    State,
    joined,
    plain,
)
from shlo_disc.jax.sizes.symbolic import as_expr


def _refuse(equation: Any) -> NoReturn:
    raise CannotSplitError(equation, "reads or writes at places of the dimension")


def _is_full(size: Any, equation: Any, axis: int) -> bool:
    return as_expr(size) == as_expr(equation.invars[0].aval.shape[axis])


def _dynamic_slice(equation: Any, given: Sequence[State]) -> list[State]:
    array, *places = given
    if not plain(places):
        _refuse(equation)
    sizes = equation.params["slice_sizes"]
    if not isinstance(array, Kind) and not _is_full(sizes[array], equation, array):
        _refuse(equation)
    return [array]


def _dynamic_update_slice(equation: Any, given: Sequence[State]) -> list[State]:
    array, update, *places = given
    if not plain(places):
        _refuse(equation)
    state = joined(equation, [array, update])
    if not isinstance(state, Kind) and not (
        array == update and _is_full(equation.invars[1].aval.shape[state], equation, state)
    ):
        _refuse(equation)
    return [state]


def _rest(rank: int, *taken: Sequence[int]) -> list[int]:
    """The dimensions that are in none of `taken`, in order."""
    gone = {d for dims in taken for d in dims}
    return [d for d in range(rank) if d not in gone]


def _gather(equation: Any, given: Sequence[State]) -> list[State]:
    array, places = given
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    rank, out_rank = (len(v.aval.shape) for v in (equation.invars[0], equation.outvars[0]))
    batch = _rest(out_rank, numbers.offset_dims)
    if plain(given):
        return [WHOLE]
    if isinstance(places, Kind):
        window = _rest(rank, numbers.collapsed_slice_dims, numbers.operand_batching_dims)
        moves = array in numbers.start_index_map
        if places is SUM or isinstance(array, Kind) or array not in window or moves:
            _refuse(equation)
        if not _is_full(sizes[array], equation, array):
            _refuse(equation)
        return [numbers.offset_dims[window.index(array)]]
    if places >= len(batch) or array is SUM:
        _refuse(equation)
    partner = _partner(places, numbers.start_indices_batching_dims, numbers.operand_batching_dims)
    if array != partner and not (partner is None and plain([array])):
        _refuse(equation)
    return [batch[places]]


def _partner(axis: int, dims: Sequence[int], others: Sequence[int]) -> int | None:
    """The dimension among `others` that goes with `axis`, which is perhaps one of `dims`."""
    return others[list(dims).index(axis)] if axis in dims else None


def _scatter(equation: Any, given: Sequence[State]) -> list[State]:
    array, places, updates = given
    numbers = equation.params["dimension_numbers"]
    rank, update_rank = (len(equation.invars[k].aval.shape) for k in (0, 2))
    batch = _rest(update_rank, numbers.update_window_dims)
    if plain(given):
        return [WHOLE]
    if isinstance(places, Kind):
        window = _rest(rank, numbers.inserted_window_dims, numbers.operand_batching_dims)
        if not plain([places]) or isinstance(array, Kind) or array not in window:
            _refuse(equation)
        moves = array in numbers.scatter_dims_to_operand_dims
        place = numbers.update_window_dims[window.index(array)]
        size = equation.invars[2].aval.shape[place]
        if moves or updates != place or not _is_full(size, equation, array):
            _refuse(equation)
        return [array]
    partner = _partner(places, numbers.scatter_indices_batching_dims, numbers.operand_batching_dims)
    if partner is None or array != partner or updates != batch[places]:
        _refuse(equation)
    return [array]


def _scatter_add(equation: Any, given: Sequence[State]) -> list[State]:
    """Blocks may add to arrays of their own, to be added up."""
    array, places, updates = given
    numbers = equation.params["dimension_numbers"]
    if array is SUM or array is ZERO:
        if plain([places]) and (updates is SUM or updates is ZERO):
            return [joined(equation, [array, updates])]
        if not isinstance(places, Kind) and places not in numbers.scatter_indices_batching_dims:
            batch = _rest(len(equation.invars[2].aval.shape), numbers.update_window_dims)
            if places < len(batch) and updates == batch[places]:
                return [SUM]
    return _scatter(equation, given)


INDEXING = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    "scatter-min": _scatter,
    "scatter-max": _scatter,
    "scatter-mul": _scatter,
    "scatter-add": _scatter_add,
    "scatter-sub": _scatter_add,
}
"""By the name of the primitive."""
