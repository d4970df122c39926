"""Sizes that a program reads from its data: how many elements of a mask are true.

`read_size(count)` gives an array of `count` elements, whose size is a *fresh* symbol while a
function of ours is traced. The program runs in parts (`partition.py`): the part before computes the
count, the size is read, and what follows runs with the size as an ordinary symbol.

A fresh symbol is at least 1, as JAX's symbols are. A trace answers questions about the size with a
value that is assumed, and notes them; a call that finds another value traces anew.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import ad, batching

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.sizes.symbolic import open_scope
from shlo_disc.jax_private.extend import Primitive
from shlo_disc.jax_private.jaxprs import equation_line, equations_of, shaped_array

_ASSUMED = 7
"""What the first trace takes a fresh size for, or the next number that no size of the call is: two
sizes that differ in general shall differ in the trace."""


class FreshSizes:
    """The fresh sizes of one trace: their symbols and values, in the order of their reads."""

    def __init__(self, known: Mapping[int, int] | None = None, *, constant: bool = False) -> None:
        self.assumed = dict(known or {})
        """The values that are known, or were taken for granted, by the index of the read."""
        self.constant = constant
        """True if no fresh size shall be a symbol."""
        self.symbols: list[str | None] = []
        """The symbol of every size read in the last trace; None for one that is a number."""

    @property
    def hints(self) -> dict[str, int]:
        """The values of the symbols in the trace."""
        return {s: self.assumed[k] for k, s in enumerate(self.symbols) if s is not None}

    def next(self) -> tuple[int, Any]:
        """The next read: its index, and the size as a symbol of the scope whose trace is under way
        or as a number.
        """
        index, scope = len(self.symbols), open_scope()
        hints = scope.session.hints if scope is not None else {}
        if index not in self.assumed:
            taken = {*hints.values(), *self.assumed.values()}
            self.assumed[index] = next(n for n in range(_ASSUMED, 1 << 30) if n not in taken)
        value = self.assumed[index]
        if scope is None or value == 0 or self.constant:
            self.symbols.append(None)
            return index, value
        name = next(n for k in range(len(hints) + 1) if (n := f"u{index + k}") not in hints)
        self.symbols.append(name)
        scope.session.hints[name] = value
        scope.session.fresh.add(name)
        return index, export.symbolic_shape(name, scope=scope)[0]


class _State(threading.local):
    sizes: FreshSizes | None = None
    learns: FreshSizes | None = None


_state = _State()


@contextmanager
def assuming(sizes: FreshSizes) -> Iterator[None]:
    """A trace inside takes `sizes` for the sizes it reads from data, from the first one on."""
    before, _state.sizes = _state.sizes, sizes
    sizes.symbols = []
    try:
        yield
    finally:
        _state.sizes = before


def learned(run: Callable[[], Any]) -> FreshSizes:
    """The sizes that `run`, which computes with concrete arrays, reads from its data."""
    sizes = FreshSizes()
    before, _state.learns = _state.learns, sizes
    try:
        run()
    finally:
        _state.learns = before
    return sizes


def read_size(count: Any) -> jax.Array:
    """`0, 1, ..., count - 1` as int32 for a scalar integer `count` that is computed from data.

    Outside of traces it is `jnp.arange(count)`. Raises UnsupportedError under `jax.jit`, `vmap` or
    in the body of a loop, where the size has no number.
    """
    if not isinstance(count, jax.core.Tracer):
        value = operator.index(np.asarray(count).item())
        if (learns := _state.learns) is not None:
            learns.assumed[len(learns.assumed)] = value
        return jnp.arange(value, dtype=jnp.int32)
    if _state.sizes is None:
        raise UnsupportedError(
            "a size that depends on data is read inside jax.jit, vmap or a loop of JAX; call "
            "the function inside shlo_disc.jit, or give a bound: size="
        )
    index, size = _state.sizes.next()
    found: jax.Array = read_size_p.bind(count, size=size, index=index)
    return found


read_size_p: Any = Primitive("shlo_disc_read_size")


def _abstract(count: Any, *, size: Any, index: int) -> Any:
    return shaped_array((size,), np.dtype(np.int32))


def _no_batch(*_: Any, **__: Any) -> Any:
    raise UnsupportedError(
        "jax.vmap over a size that depends on data: every element would have a size of its own. "
        "Give a bound (size=), or loop in Python"
    )


read_size_p.def_abstract_eval(_abstract)
ad.primitive_jvps[read_size_p] = lambda primals, _, *, size, index: (
    read_size_p.bind(*primals, size=size, index=index),
    ad.Zero(shaped_array((size,), jax.dtypes.float0)),
)
batching.primitive_batchers[read_size_p] = _no_batch


def reads_of(jaxpr: Any) -> dict[int, Any]:
    """The sizes a jaxpr reads from data, by the index of the read.

    Raises UnsupportedError for a read inside a function that runs twice: its size would be one
    symbol for two sizes.
    """
    found: dict[int, Any] = {}
    for equation in equations_of(jaxpr):
        if equation.primitive is read_size_p:
            index = equation.params["index"]
            if index in found:
                raise UnsupportedError(
                    f"{equation_line(equation)}: a size is read from data inside a function under "
                    "jax.jit that is called twice; remove that jax.jit"
                )
            found[index] = equation.params["size"]
    return found
