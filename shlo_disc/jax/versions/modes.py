"""How the calls of a family run: its mode, and the events that change the mode.

A family is the calls of one structure, types and configuration (`Call.family`). Everything that a
family learns beyond its versions is its mode. A mode only ever goes down the list of :class:`Mode`,
so no call waits for a mode that another thread undoes.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


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


class Transition(NamedTuple):
    """A row of the table: the mode after an event."""

    mode: Mode
    event: Event
    next: Mode
    by_xla: bool
    """Only where XLA may run what we cannot compile."""


TRANSITIONS = (
    Transition(Mode.WHOLE, Event.NEEDS_NUMBERS, Mode.NUMBERS, by_xla=False),
    Transition(Mode.WHOLE, Event.REFUSED, Mode.PARTS, by_xla=True),
    Transition(Mode.NUMBERS, Event.REFUSED, Mode.PARTS, by_xla=True),
    Transition(Mode.WHOLE, Event.CALL_REFUSED, Mode.BY_JAX, by_xla=True),
    Transition(Mode.NUMBERS, Event.CALL_REFUSED, Mode.BY_JAX, by_xla=True),
    Transition(Mode.PARTS, Event.CALL_REFUSED, Mode.BY_JAX, by_xla=True),
    # A call that began in another mode.
    Transition(Mode.BY_JAX, Event.CALL_REFUSED, Mode.BY_JAX, by_xla=True),
)
"""Every change of a mode; after any other event the error is the caller's."""

_NEXT = {(row.mode, row.event): row for row in TRANSITIONS}


def next_mode(mode: Mode, event: Event, *, may_use_xla: bool) -> Mode | None:
    """The mode after an event; None where the mode stays, and the error is the caller's."""
    row = _NEXT.get((mode, event))
    return None if row is None or (row.by_xla and not may_use_xla) else row.next
