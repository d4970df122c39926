"""Symbolic sizes of `jax.export`: their classes, scopes and bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax._src import core as _core
from jax._src import indexing as _indexing
from jax._src.export import shape_poly as _shape_poly
from jax._src.export import shape_poly_decision as _shape_poly_decision
from jax._src.numpy import fft as _numpy_fft

from shlo_disc.jax_private.jaxprs import by_jaxpr, equation_line, equations_of

DimExpr = _shape_poly._DimExpr
"""The class of symbolic sizes."""

size_text: Callable[[Any], str] = DimExpr.__str__
"""The text of a size; `methods.py`, which hears of who asks for texts, replaces the method."""

SymbolicScope = _shape_poly.SymbolicScope
"""The scope that symbolic sizes belong to."""

IndexSlice = _indexing.Slice
"""`(start, size, stride=1)`: the slice that `jax.ds` makes."""

canonicalize_slice = _core.canonicalize_slice
"""`(slice, size) -> (start, step, size)`; the sizes may be symbols."""

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


def use_form(form: Callable[[Any], Any]) -> None:
    """Let JAX ask `form(size)` for the form in which it keeps a size that it has computed."""
    plain = DimExpr._normalize_sorted_terms

    def formed(terms: Any, scope: Any) -> Any:
        size = plain(terms, scope)
        return form(size) if isinstance(size, DimExpr) else size

    DimExpr._normalize_sorted_terms = staticmethod(formed)  # type: ignore[method-assign]


Factor = tuple[str, tuple[Any, ...]]
"""A symbol and (), or the name of a function of sizes and its operands."""


def size_of_terms(terms: Sequence[tuple[Sequence[tuple[Factor, int]], int]], scope: Any) -> Any:
    """The sum of products of powers of factors, in just this form."""
    found = {}
    for powers, coefficient in terms:
        product = _ONE
        for (name, operands), power in powers:
            factor = (
                _shape_poly._DimFactor.from_operation(name, *operands, scope=scope)
                if operands
                else _shape_poly._DimFactor.from_var(name)
            )
            product = product.mul(_shape_poly._DimTerm.from_factor(factor, power))
        found[product] = coefficient
    return DimExpr(DimExpr._coeff_to_sorted_terms(found), scope)


_ONE = _shape_poly._DimTerm_one

size_as_array = _shape_poly._dim_as_value
"""`(size) -> array`: a symbolic size as a traced integer."""

fft_of_lengths = _numpy_fft._fft_core_nd
"""`(array, kind, lengths)`: a transform over the last dimensions, which have these lengths."""

min_size = _core.min_dim

max_size = _core.max_dim


def constraints_of(scope: Any) -> list[tuple[Any, str]]:
    """The explicit constraints of a scope: `(t - 2, ">=")` is `t - 2 >= 0`."""
    spelling = {_shape_poly.Comparator.EQ: "==", _shape_poly.Comparator.GEQ: ">="}
    return [(c.diff, spelling[c.cmp]) for c in scope._explicit_constraints]


def size_named(symbol: str, scope: Any) -> Any:
    """The size of that name: another one where the scope was told that they are equal."""
    return DimExpr._from_var(symbol, scope)


# JAX asks every symbolic size for its `__index__` and keeps the TypeError in a local variable. The
# error, its traceback and the frames of all callers then form a cycle: the user's arrays and our
# executables in these frames would live until Python's next full collection.
_canonicalize_dimension = _core._canonicalize_dimension


def _canonical_dimension(dim: Any) -> Any:
    return dim if isinstance(dim, DimExpr) else _canonicalize_dimension(dim)


_core._canonicalize_dimension = _canonical_dimension


Reshape = tuple[tuple[str, ...], tuple[str, ...], str]
"""(operand sizes, result sizes, `model.py:7`)"""


def reshapes_of(jaxpr: Any) -> tuple[Reshape, ...]:
    """Every reshape of symbolic sizes, nested too; equal sizes are told once."""
    found: tuple[Reshape, ...] = _reshapes_of(getattr(jaxpr, "jaxpr", jaxpr))
    return found


def _all_reshapes(jaxpr: Any) -> tuple[Reshape, ...]:
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
    known: dict[int, str] = {}  # by address: the jaxpr keeps its sizes

    def text(size: Any) -> str:
        if (told := known.get(id(size))) is None:
            told = known[id(size)] = size_text(size) if isinstance(size, DimExpr) else str(size)
        return told

    for equation in equations_of(jaxpr):
        if equation.primitive.name == "reshape":
            before = equation.invars[0].aval.shape
            after = equation.outvars[0].aval.shape
            if any(isinstance(size, DimExpr) for size in (*before, *after)):
                texts = tuple(map(text, before)), tuple(map(text, after))
                if texts not in found:
                    found[texts] = equation_line(equation)
    return tuple((*texts, line) for texts, line in found.items())


_reshapes_of = by_jaxpr(_all_reshapes)
