"""Where a value is, as data; `places.py` has the attributes that tell so."""

from __future__ import annotations

import enum
from typing import Self

from shlo_disc.base.records import dataclass


class At(enum.StrEnum):
    """Whose memory a place is in."""

    SLOT = "slot"
    """Slot `number` of the arena."""
    HOST = "host"
    """Slot `number` of the host program's own scalars."""
    RESULT = "result"
    """The caller's memory for result `number`."""
    NEXT = "next"
    """The memory for the next value of loop carry `number`."""
    INPLACE = "inplace"
    """The buffer of operand `number`."""
    UPDATE = "update"
    """The array that the `dynamic_update_slice` stored as `number` changes (see `stored_of`)."""


@dataclass(frozen=True)
class Place:
    """Where a result is. Its text is an element of `disc.buffers`."""

    at: At
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The place that `text` names; raises ValueError."""
        at, colon, number = text.partition(":")
        return cls(At(at), int(number) if colon else 0)

    def __str__(self) -> str:
        plain = self.at == At.INPLACE and not self.number
        return self.at if plain else f"{self.at}:{self.number}"
