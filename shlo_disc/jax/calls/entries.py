"""Calls of known types and shapes: what they do, and what tells them apart."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from shlo_disc.jax.arguments.leaves import (
    Leaf,
    as_array,
    concrete,
    needs_no_conversion,
    runs_natively,
)
from shlo_disc.jax.calls.call import Call
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax.calls.runs import Runs
from shlo_disc.jax_private.arrays import ArrayImpl


class Entry:
    """What a call of known types and shapes does."""

    __slots__ = (
        "_before_xla",
        "call",
        "finish",
        "leaves",
        "native",
        "shapes",
        "slow_calls",
        "version",
    )

    def __init__(self, version: Runs, executable: CompiledCall, call: Call) -> None:
        plain = all(map(needs_no_conversion, call.values, version.leaves))
        native = all(map(runs_natively, call.values))
        self.call: Callable[[list[Any]], list[Any]] = (
            executable.call_leaves
            if call.place.is_cpu
            else functools.partial(executable.call_leaves, place=call.place)
        )
        self.leaves: tuple[Leaf, ...] | None = None if plain else version.leaves
        """None when no argument needs a conversion."""
        tree: Any = version.out_tree(call.shapes)
        self.finish = version.finisher(tree)
        self.version = version
        self.shapes = call.shapes
        self.slow_calls = 0
        self._before_xla = version.calls_before_xla(call.place)
        self.native = version.dispatch_entry(tree, call.place) if native else None

    @property
    def calls(self) -> int:
        """Calls after the first."""
        return self.slow_calls + (self.native.calls if self.native is not None else 0)

    @property
    def goes_through_xla(self) -> bool:
        """True if the next call is for :meth:`JitFunction._call_through`."""
        return self._before_xla is not None and self.calls >= self._before_xla

    def run(self, leaves: list[Any]) -> Any:
        """The results in the function's structure."""
        if self.leaves is not None:
            leaves = [concrete(x, leaf) for x, leaf in zip(leaves, self.leaves, strict=True)]
        return self.finish(self.call(leaves))


def type_parts(leaf: Any) -> tuple[Any, Any, Any]:
    """(shape, dtype, kind) of a leaf that need not be a jax.Array; kinds keep conversions apart."""
    if type(leaf) is ArrayImpl:
        return leaf.shape, leaf.dtype, leaf.weak_type
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return leaf.shape, leaf.dtype, type(leaf)
    if (array := as_array(leaf)) is not None:
        shape, dtype, _ = type_parts(array)
        return shape, dtype, type(leaf)
    return None, None, type(leaf)
