"""Sizes of the call that a program is compiled for.

    main {disc.seen = {n = 128, c = 3}}

The variants of kernels that these sizes choose are compiled before the call, the others later.
Where emitters are much better at a number than at a symbol, they write kernels for the short ones,
too. No result depends on any number. That there are some tells `sum-integers` that a call that is
refused gets a program of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from shlo_disc.dynamic.expr import Expr

Pairs = tuple[tuple[str, int], ...]
"""Symbols and their values."""

SEEN = "disc.seen"
"""On `main`: symbols, and what they were. Absent without a call."""

SHORT = 8
"""The longest size whose elements have code of their own."""

LONGEST_RUN = 16
"""Elements along several such sizes at most: so many registers a machine without AVX-512 has."""


def short_sizes(values: Mapping[str, int]) -> dict[str, int]:
    """Those that are short."""
    return {symbol: value for symbol, value in values.items() if 0 < value <= SHORT}


def run_of(size: Expr, short: Mapping[str, int]) -> Pairs:
    """The symbols of `size` and their values, where it is short enough for code of its own.

    `short`: those of :func:`short_sizes`. Nothing where another symbol is in `size`.
    """
    symbols = size.symbols()
    if not symbols <= short.keys() or not 0 < size.evaluate(short) <= LONGEST_RUN:
        return ()
    return tuple((symbol, short[symbol]) for symbol in sorted(symbols))
