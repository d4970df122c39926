"""Which donated arguments a call takes over."""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.sizes.symbolic import as_expr
from shlo_disc.jax_private.jaxprs import inputs_used


def taken_over(
    donated: Sequence[int], jaxpr: Any, current: Callable[[Expr], Expr]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those of the `donated` arguments of a jaxpr that a call deletes, and those without a use.

    As with `jax.jit`, an argument is taken over for a result of the same type and sizes, each for
    one, in order (`_set_up_aliases` of its lowering to MLIR). The others stay: those
    without such a result, which come second, and those that the program does not use. `current`
    maps sizes of the trace to those of the version, in which equal sizes have one name.
    """
    if not donated:
        return (), ()
    used = inputs_used(jaxpr)

    def kind(aval: Any) -> tuple[Any, ...]:
        return aval.dtype, *(current(as_expr(size)) for size in aval.shape)

    waiting: defaultdict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for index in donated:
        if used[index]:
            waiting[kind(jaxpr.in_avals[index])].append(index)
    queues = (waiting[kind(aval)] for aval in jaxpr.out_avals)
    taken = sorted(queue.popleft() for queue in queues if queue)
    return tuple(taken), tuple(sorted(index for queue in waiting.values() for index in queue))


def warn_of_kept(name: str, arguments: Sequence[str]) -> None:
    """Tell which arguments are donated and no call takes over."""
    if arguments:
        warnings.warn(
            f"{name}: no result can use the memory of donated arguments {', '.join(arguments)}; "
            "these arrays are kept, as by jax.jit",
            stacklevel=2,
        )
