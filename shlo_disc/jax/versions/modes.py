"""How the calls of a family run: its mode, and the events that change the mode.

A family is the calls of one structure, types and configuration (`Call.family`). Everything that a
family learns beyond its versions is its mode. A mode only ever goes down the list of :class:`Mode`,
so no call waits for a mode that another thread undoes.
"""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """What a new version of a family is, in the order in which they are tried."""

    WHOLE = "one program with symbols, for every size that fits its guards"
    NUMBERS = "one program for the sizes of each call"
    PARTS = "compiled parts, with symbols; XLA runs the operations between them"
    BY_JAX = "none: `jax.jit` runs the calls, and XLA compiles for each shape"


class Event(Enum):
    """What happens to a new version, or to a call."""

    NEEDS_NUMBERS = "the compiler refuses the program with symbols, and takes it with numbers"
    REFUSED = "the compiler or the trace refuses the program, with numbers as well"
    CALL_REFUSED = "a call of a version raises `UnsupportedError`"


TRANSITIONS = {
    (Mode.WHOLE, Event.NEEDS_NUMBERS): Mode.NUMBERS,
    (Mode.WHOLE, Event.REFUSED): Mode.PARTS,
    (Mode.NUMBERS, Event.REFUSED): Mode.PARTS,
    # BY_JAX too: such a call began in another mode, in another thread.
    **{(mode, Event.CALL_REFUSED): Mode.BY_JAX for mode in Mode},
}
"""Every change of a mode; after any other event the error is the caller's."""

USE_XLA = frozenset((Mode.PARTS, Mode.BY_JAX))
"""Modes of functions that XLA may run (`on_unsupported="xla"`)."""


def next_mode(mode: Mode, event: Event, *, may_use_xla: bool) -> Mode | None:
    """The mode after an event; None where the mode stays, and the error is the caller's."""
    after = TRANSITIONS.get((mode, event))
    return after if may_use_xla or after not in USE_XLA else None
