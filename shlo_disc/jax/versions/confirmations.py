"""Programs with symbols that earlier processes compared with a trace at numbers.

A new version is compared with a trace at the sizes of its first call, once in a process: its later
sizes are not. The store remembers the comparison, so a machine makes it once. It holds for the same
program with symbols: guards, structure of results and options count. And it holds for the same
function and files (`python_code.py`). What a function does for numbers alone is in no program with
symbols.

The sizes of a call fit the guards of its trace. So they are to the sizes that were compared what a
second shape is in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from shlo_disc.base import flags
from shlo_disc.driver.kept import is_confirmed, keep_confirmed
from shlo_disc.driver.kept_keys import are_kept, call_key
from shlo_disc.executables.lines import without_lines
from shlo_disc.jax.arguments.plan import Pattern
from shlo_disc.jax.calls.call import Call, Options
from shlo_disc.jax.equations.digest import digest_of_facts
from shlo_disc.jax.versions.python_code import code_of
from shlo_disc.jax.versions.symbols.search import Found
from shlo_disc.jax.versions.tracing import InParts, Traced


class Confirmation:
    """Whether the program of a call was confirmed; to be made before the function is traced."""

    def __init__(self, options: Options, call: Call) -> None:
        self._options, self._target = options, call.place.target
        self._values = options.function, call.blueprint()
        self._leaves = call.leaves
        may_be = not (options.checked or call.captured) and are_kept()
        self._code = code_of(*self._values) if may_be else None

    @cached_property
    def left_no_sizes(self) -> bool:
        """True if the trace with symbols left none in what the function remembers."""
        return self._code is not None and code_of(*self._values) is not None

    def key(self, found: Found[Traced]) -> bytes | None:
        """What the confirmation of a program is kept under; None where there is none."""
        lowered, jaxpr = found.program
        if isinstance(lowered, InParts) or lowered.callbacks or jaxpr.effects:
            return None
        if not isinstance(lowered.data, str) or not self.left_no_sizes:
            return None
        digest = digest_of_facts(
            self._code,
            (self._options.name, self._options.dynamic),
            without_lines(lowered.data)[0],
            [(array.shape, str(array.dtype)) for array in lowered.weights],
            str(lowered.out_tree),
            [bool(getattr(aval, "weak_type", False)) for aval in lowered.out_avals],
            *map(_told, (found.traced.pattern, found.choice.pattern)),
        )
        return call_key(digest, self._target)

    def choice_key(self, said: Sequence[Any]) -> bytes | None:
        """What the choice of symbols is kept under; None where it is not kept.

        `said`: what the user said of the sizes of each leaf. The choice is that of an unchanged
        function, and serves calls whose sizes fit it: as the version does in one process.
        """
        if self._code is None or flags.cache_verifies():
            return None
        options = self._options
        digest = digest_of_facts(
            "choice",
            self._code,
            (options.name, options.dynamic),
            [(x.name, len(x.shape), str(x.dtype), x.weak_type) for x in self._leaves],
            [None if sizes is None else [*map(str, sizes)] for sizes in said],
            [constraint.stated for constraint in options.constraints],
        )
        return call_key(digest, self._target)

    def is_known(self, key: bytes | None) -> bool:
        """True if an earlier process confirmed the program with this key."""
        return key is not None and not flags.cache_verifies() and is_confirmed(key)

    def keep(self, key: bytes | None) -> None:
        """Keep that the program with this key was confirmed."""
        if key is not None:
            keep_confirmed(key)


def _told(pattern: Pattern) -> tuple[object, ...]:
    return (
        pattern.names,
        [[str(size) for size in shape] for shape in pattern.dims],
        [str(guard) for guard in pattern.guards],
    )
