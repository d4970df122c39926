"""Short sizes of the call that a program is compiled for.

    main {disc.seen = {c = 3}}

Where emitters are much better at a number than at a symbol, they write kernels for these numbers,
too. No result depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["LONGEST_RUN", "SEEN", "SHORT", "short_sizes"]

SEEN = "disc.seen"
"""On `main`: the symbols that were at most SHORT, and what they were. Absent without a call."""

SHORT = 8
"""The longest size whose elements have code of their own."""

LONGEST_RUN = 16
"""Elements along several such sizes at most: so many registers a machine without AVX-512 has."""


def short_sizes(values: Mapping[str, int], symbols: Iterable[str]) -> dict[str, int]:
    """Those of `symbols` whose value is short."""
    return {s: values[s] for s in sorted(symbols) if 0 < values.get(s, 0) <= SHORT}
