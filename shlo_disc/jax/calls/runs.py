"""What runs a call of known sizes: an executable, and how its results become the function's."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc import ral
from shlo_disc.executables.devices import Place
from shlo_disc.jax.arguments.leaves import Leaf, native_dtypes
from shlo_disc.jax.calls.compiled_call import CompiledCall
from shlo_disc.jax_private.arrays import key_of_words

CALLS_BEFORE_XLA = 2
"""Calls that wait for the device, before XLA compiles a call for their sizes: 20 ms on an H200."""

MANY_RESULTS = 16
"""Results of a call on a CPU from which XLA makes their arrays for less, its own call included."""

RESULTS_BEFORE_XLA = 2_000
"""Arrays that are made so before XLA compiles a call. By then they took 5 ms more than XLA's would;
the compilation takes 20, and calls that came so often come again."""


def calls_before_xla(place: Place, results: int) -> int | None:
    """Calls of the same sizes after which XLA runs a program without effects.

    XLA compiles the call for each size, in milliseconds. On GPUs it does not wait for the device;
    on CPUs it makes arrays of many results for less.
    """
    if not place.is_cpu:
        return CALLS_BEFORE_XLA
    return RESULTS_BEFORE_XLA // results if results >= MANY_RESULTS else None


class Runs(ABC):
    """A compiled program as a function calls it."""

    leaves: tuple[Leaf, ...]
    """Of the arguments."""
    keys: tuple[tuple[int, str], ...]
    """(index, PRNG implementation) of results that are typed keys; they run as integers."""

    @property
    @abstractmethod
    def executable(self) -> CompiledCall:
        """The compiled program; raises UnsupportedError."""

    @abstractmethod
    def out_tree(self, shapes: Any) -> Any:
        """The structure of the results of a call with arguments of these shapes."""

    @abstractmethod
    def calls_before_xla(self, place: Place) -> int | None:
        """Calls of the same sizes after which XLA runs the program as a call of its own."""

    def finisher(self, tree: Any) -> Callable[[list[Any]], Any]:
        """Makes the function's result, in the structure `tree`, of what the executable gives."""
        unflatten: Callable[[list[Any]], Any] = tree.unflatten
        return functools.partial(_with_keys, unflatten, self.keys) if self.keys else unflatten

    def dispatch_entry(self, tree: Any, place: Place) -> ral.DispatchEntry | None:
        """For the C++ dispatcher: a call at `place` with results in the structure `tree`.

        None for an executable that only Python runs.
        """
        executable = self.executable
        if not hasattr(executable, "dispatch_entry"):
            return None
        # JAX calls an empty container a leaf too (`treedef_is_leaf`): it has no result.
        alone = not self.keys and tree.num_nodes == tree.num_leaves == 1
        finish = None if alone else self.finisher(tree)
        entry: ral.DispatchEntry = executable.dispatch_entry(
            finish,
            native_dtypes(self.leaves),
            place=None if place.is_cpu else place,
            through_after=self.calls_before_xla(place),
        )
        return entry


def _with_keys(
    unflatten: Callable[[list[Any]], Any], keys: Sequence[tuple[int, str]], results: list[Any]
) -> Any:
    """The results in the function's structure, typed keys made of integers."""
    for index, implementation in keys:
        results[index] = key_of_words(implementation, results[index])
    return unflatten(results)
