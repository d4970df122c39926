"""What is part of the text of a dense kernel: its operands, their modes, what goes in and out."""

from __future__ import annotations

from dataclasses import dataclass

from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.dense.tiles import Tile
from shlo_disc.lower.cpu.dense.words import WORD, Words
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.products.finish import Fill, Finish, FinishBands

__all__ = ["Gemm", "Operand"]


@dataclass(frozen=True)
class Operand:
    """How A or B lies in memory; its rows run along M (N for B)."""

    array: str
    """a or b: the sizes of this operand are named `ar0` (stride of the first row step), ..."""
    element: ElementType
    row_steps: int
    k_steps: int
    row_unit: bool
    """Neighbours along the innermost row step are neighbours in memory; likewise `k_unit`."""
    k_unit: bool
    batch: tuple[bool, ...]
    """Which batch axes move it."""
    first: bool = False
    """Its first element is not where its memory begins."""
    k_apart: int = 1
    """Elements from one along K to the next, where A is read in place."""
    pairs: bool = False
    """Rows come in pairs of neighbours, and the pairs of K follow each other: complex numbers."""

    @property
    def row_run(self) -> bool:
        """Rows follow each other in memory, all of them; likewise `k_run`."""
        return self.row_unit and self.row_steps == 1

    @property
    def k_run(self) -> bool:
        """See `row_run`."""
        return self.k_unit and self.k_steps == 1


@dataclass(frozen=True)
class Gemm:
    """What is part of the text; sizes and strides are parameters."""

    a: Operand
    b: Operand
    c: ElementType
    compute: ElementType
    tile: Tile
    a_mode: str
    """direct or scratch."""
    b_mode: str
    """direct, scratch or packed."""
    c_unit: bool
    machine: Machine
    finish: Finish | None = None
    """Computes the result from the sums (None: it is the sum, converted)."""
    bands: int = 1
    """Bands of columns; more than one want `finish_bands`, which stores the results."""
    finish_bands: FinishBands | None = None
    then_rows: bool = False
    """True if row work follows in the same launch."""
    fill: Fill | None = None
    """Computes B (mode scratch) instead of reading it."""
    short: bool = False
    """Products are rounded before they are added (`Problem.is_short`)."""
    words: Words | None = None
    """A and B are copied as words, and lengths along K are numbers of words (`words.py`)."""

    @property
    def is_record(self) -> bool:
        """True if its fields say all of the text: nothing is computed by what they call."""
        return self.finish is None and self.finish_bands is None and self.fill is None

    @property
    def copied(self) -> str:
        """The type of what A and B are copied as."""
        return self.compute.register if self.words is None else WORD

    @property
    def rows_first(self) -> bool:
        """True if tasks are counted along rows first. They are counted along columns if rows are
        copied, and if rows that are done early are worked on early (3 % of BERT at 8 x 128).
        """
        if self.b_mode == "packed" and self.then_rows:
            return False
        return not (self.a_mode == "scratch" and self.b_mode != "scratch")

    @property
    def c_holds_sums(self) -> bool:
        """The result itself can hold unfinished sums between blocks of K."""
        plain = self.finish is None and self.bands == 1
        return plain and self.c_unit and self.c.register == self.compute.register
