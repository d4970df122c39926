"""Which dimensions a reduction keeps and which it reduces, as runs of neighbours."""

from __future__ import annotations

from collections.abc import Container, Sequence

from shlo_disc.dynamic.expr import Expr


def reduction_runs(sizes: Sequence[Expr], reduced: Container[int]) -> list[tuple[Expr, ...]]:
    """The sizes kept in front, then reduced, kept, ... in turn; sizes that are always 1 left out.

    >>> n, c, h = map(Expr.parse, "nch")
    >>> [" ".join(map(str, run)) for run in reduction_runs([n, c, Expr.const(1), h], {0, 3})]
    ['', 'n', 'c', 'h']
    """
    runs: list[tuple[Expr, ...]] = [()]
    for dimension, size in enumerate(sizes):
        if size.is_one:
            continue
        if (dimension in reduced) != (len(runs) % 2 == 0):
            runs.append(())
        runs[-1] += (size,)
    return runs
