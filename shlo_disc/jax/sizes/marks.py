"""Functions written in two ways: one for constant sizes, one for symbolic ones.

A new version is compared with a trace at constant sizes (`compare.py`); inner programs that are
written in two ways have a mark there, and count as alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from shlo_disc.jax.sizes.symbolic import is_size

MARK = "shlo_disc_generic_"
"""Names of inner programs that are written in two ways begin with this."""

CLOSED = f"{MARK}closed_"
"""Such names where no function of the user's program runs inside: nothing is compared there."""


class _State(threading.local):
    marking = False
    more_than_one = ""


_state = _State()


@contextmanager
def marking() -> Iterator[None]:
    """Traces inside mark the functions that may be written in another way for symbols.

    Traces with symbols do so, too: there a size may be a constant.
    """
    before, _state.marking = _state.marking, True
    try:
        yield
    finally:
        _state.marking = before


@contextmanager
def more_than_one(function: str) -> Iterator[None]:
    """A function of JAX that asks whether its size is more than 1 hears inside that it is.

    The caller mends the result for one element.
    """
    before, _state.more_than_one = _state.more_than_one, function
    try:
        yield
    finally:
        _state.more_than_one = before


def is_more_than_one(function: str) -> bool:
    """True if a function that asks is in :func:`more_than_one`."""
    return _state.more_than_one == function


def has_symbols(*shapes: Sequence[Any]) -> bool:
    """True if a size of the shapes is a symbol."""
    return any(is_size(size) for shape in shapes for size in shape)


def is_marking() -> bool:
    """True inside :func:`marking`."""
    return _state.marking


def marked(name: str, function: Callable[..., Any], *arrays: Any) -> Any:
    """`function(*arrays)` as an inner program with the mark."""
    function.__name__ = function.__qualname__ = f"{MARK}{name}"
    return jax.jit(function)(*arrays)


def written_twice(
    name: str,
    symbolic: bool,
    generic: Callable[..., Any],
    original: Callable[..., Any],
    *arrays: Any,
) -> Any:
    """`generic(*arrays)` where sizes are symbols, `original(*arrays)` elsewhere.

    Neither runs a function of the user's program.
    """
    if not symbolic and not _state.marking:
        return original(*arrays)
    chosen = generic if symbolic else original

    def inner(*values: Any) -> Any:
        return chosen(*values)

    return marked(f"{CLOSED.removeprefix(MARK)}{name}", inner, *arrays)
