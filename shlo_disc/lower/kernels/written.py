"""What an element-wise kernel gives when it is written, before it is known to be the last try."""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.schedule.transposed_operands import Staged, find
from shlo_disc.lower.values.elemental import Arguments, Elemental, Made
from shlo_disc.lower.values.index import Space


@dataclass(frozen=True)
class Written:
    """A kernel text and what it asks for."""

    made: Made
    arguments: Arguments
    space: Space
    crossed: list[Staged]
    """Operands read across the lanes (see `schedule/transposed_operands.py`)."""
    strided: tuple[ir.Value, ...]
    """Operands read with a step between lanes."""


def written(e: Elemental) -> Written:
    """The kernel of `e`, finished."""
    made, strided = e.b.finish(), tuple(dict.fromkeys(read.value for read in e.reads))
    return Written(made, e.arguments, e.space, find(e), strided)
