"""The normal form of symbolic sizes of ours: that of `Expr`, for every size that JAX computes.

JAX compares sizes by their form: `vmap`, `scan` and `jnp.stack` take sizes for different that are
written in two ways, such as `-(-n // 4)` and `(n + 3) // 4`. `dynamic/expr.py` has the identities
and their proofs.
"""

from __future__ import annotations

from typing import Any

from shlo_disc.base import locks
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom, FormulaTooLongError
from shlo_disc.jax.sizes.symbolic import SizeScope, as_expr
from shlo_disc.jax_private.sizes import size_of_terms, use_form

_lock = locks.lock()
_installed: list[bool] = []


def install() -> None:
    """Let JAX keep sizes in normal form, once; sizes of other scopes have the form of JAX."""
    with _lock:
        if not _installed:
            use_form(_formed)
            _installed.append(True)


def _formed(size: Any) -> Any:
    scope = size.scope
    if type(scope) is not SizeScope:
        return size
    terms = size._sorted_terms
    found = scope.known.get(terms)
    if found is None:
        try:
            expr = as_expr(size)
        except (FormulaTooLongError, ValueError):
            return size  # while JAX solves for symbols, it names sizes `args[0].shape[0]`
        if any(factor.operation for term, _ in terms for factor, _ in term._factors):
            found = _in_scope(expr, scope)
        else:  # a polynomial of symbols, which JAX keeps in normal form
            found = _kept(size, expr, scope)
        scope.known[terms] = found
    return found


def _in_scope(size: Expr, scope: SizeScope) -> Any:
    """The size that JAX knows as this expression."""
    if size.is_const:
        return size.value
    found = scope.forms.get(size)
    if found is None:
        terms = [
            ([(_factor(atom, scope), power) for atom, power in monomial], coefficient)
            for monomial, coefficient in size.terms
        ]
        found = _kept(size_of_terms(terms, scope), size, scope)
    return found


def _kept(size: Any, expr: Expr, scope: SizeScope) -> Any:
    """The one object of the scope that is `expr`: `size`, if there was none."""
    found = scope.forms.setdefault(expr, size)
    scope.exprs[id(found)] = expr
    return found


def _factor(atom: Atom, scope: SizeScope) -> tuple[str, tuple[Any, ...]]:
    return atom.op or atom.key, tuple(_in_scope(operand, scope) for operand in atom.args)
