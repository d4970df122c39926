"""Where values are: the attributes that `plan-buffers` writes and the host program reads.

Their texts are made and taken apart here only; `plan_buffers.py` says what each means.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Self

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.place import At, Place


class Mode(enum.StrEnum):
    """How a loop carries a value from step to step."""

    SAME = "same"
    """It never changes."""
    SWAP = "swap"
    """It alternates between two slots."""
    COPIED = "inplace"
    """Steps change one buffer, which begins as a copy of the initial value."""
    INITIAL = "inplace:init"
    """Steps change the buffer of the initial value."""
    STORED = "stored"
    """It is where the step before stored it."""


@dataclass(frozen=True)
class Carry:
    """How and where a loop carries a value. Its text is an element of `disc.carries`."""

    mode: Mode
    slots: tuple[Place, Place] | None = None
    """Of a SWAP: both are of the arena, or of the host's scalars."""
    buffer: Place | None = None
    """Of a COPIED."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The carry that `text` names; raises ValueError."""
        if text in (Mode.SAME, Mode.INITIAL, Mode.STORED):
            return cls(Mode(text))
        mode, _, rest = text.partition(":")
        if mode == Mode.SWAP:
            name, _, numbers = rest.rpartition(":")
            at = At(name or At.SLOT)
            first, second = (Place(at, int(number)) for number in numbers.split(","))
            return cls(Mode.SWAP, slots=(first, second))
        if mode == Mode.COPIED:
            return cls(Mode.COPIED, buffer=Place.parse(rest))
        raise ValueError(f"{text!r} does not say how a loop carries a value")

    def __str__(self) -> str:
        if self.slots is not None:
            first, second = self.slots
            at = "" if first.at == At.SLOT else f"{first.at}:"
            return f"{self.mode}:{at}{first.number},{second.number}"
        return self.mode if self.buffer is None else f"{self.mode}:{self.buffer}"


def places_of(op: ir.Operation) -> list[Place]:
    """Where every result of `op` is; empty if `plan-buffers` gave it no memory."""
    return [Place.parse(text) for text in _texts(op, "disc.buffers")]


def set_places(op: ir.Operation, places: Iterable[Place]) -> None:
    """Results of `op` are at `places`."""
    op.attributes["disc.buffers"] = _strings(places)


def stored_of(fusion: ir.Operation) -> int | None:
    """The number of an update whose value is computed at its place; None for another fusion."""
    if "disc.stored" not in fusion.attributes:
        return None
    return int(ir.IntegerAttr(fusion.attributes["disc.stored"]).value)


def set_stored(fusion: ir.Operation, number: int) -> None:
    """The update in `fusion` has nothing left to do; its value is at `Place(At.UPDATE, number)`."""
    i64 = ir.IntegerType.get_signless(64)
    fusion.attributes["disc.stored"] = ir.IntegerAttr.get(i64, number)


def carries_of(loop: ir.Operation) -> list[Carry]:
    """How a `while` carries each value."""
    return [Carry.parse(text) for text in _texts(loop, "disc.carries")]


def set_carries(loop: ir.Operation, carries: Iterable[Carry]) -> None:
    """A `while` carries its values as `carries` say."""
    loop.attributes["disc.carries"] = _strings(carries)


def reuses_of(func: ir.Operation) -> list[tuple[int, int]]:
    """Pairs of a donated argument of `main` and the result that may be in its memory."""
    pairs = (text.split(":") for text in _texts(func, "disc.reuses"))
    return [(int(argument), int(result)) for argument, result in pairs]


def set_reuses(func: ir.Operation, pairs: Iterable[tuple[int, int]]) -> None:
    """Results of `main` may be in the memory of donated arguments, as `reuses_of` gives them."""
    func.attributes["disc.reuses"] = _strings(f"{argument}:{result}" for argument, result in pairs)


def scalars_of(func: ir.Operation) -> int:
    """How many scalars the host program of `main` has room for."""
    if "disc.scalars" not in func.attributes:
        return 0
    return int(ir.IntegerAttr(func.attributes["disc.scalars"]).value)


def set_scalars(func: ir.Operation, count: int) -> None:
    """The host program of `main` has room for so many scalars."""
    i64 = ir.IntegerType.get_signless(64)
    func.attributes["disc.scalars"] = ir.IntegerAttr.get(i64, count)


def _texts(op: ir.Operation, name: str) -> list[str]:
    if name not in op.attributes:
        return []
    return [str(ir.StringAttr(text).value) for text in ir.ArrayAttr(op.attributes[name])]


def _strings(texts: Iterable[object]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(str(text)) for text in texts])
