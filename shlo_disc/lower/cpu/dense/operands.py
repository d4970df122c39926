"""What is part of the text of a dense kernel: its operands, their modes, what goes in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.element_types import ElementType
from shlo_disc.lower.cpu.dense.tiles import WHOLE_MASKS, Tile
from shlo_disc.lower.cpu.dense.words import WORD, Words
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.products.epilogue import BandEpilogue, Epilogue
from shlo_disc.lower.products.prologue import Prologue


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
class Called:
    """Kernels that a product calls: `epilogue`, and perhaps `ask`, in front of its arguments.

    So products are the same text whatever becomes of their sums.
    """

    asks: bool
    """There is `ask`, which prefetches the rows that `epilogue` reads."""
    params_at: int
    """Where the params of both begin: behind those of the product."""

    @property
    def count(self) -> int:
        """How many kernels there are."""
        return 1 + self.asks


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
    """direct, scratch, packed, or computed: by `fill`, in registers."""
    c_unit: bool
    machine: Machine
    finish: Epilogue | None = None
    """Computes the result from the sums (None: it is the sum, converted)."""
    bands: int = 1
    """Bands of columns; more than one want `finish_bands`, which stores the results."""
    finish_bands: BandEpilogue | None = None
    called: Called | None = None
    """The kernels that `finish` or `finish_bands` became; these are None then."""
    part: str = ""
    """A function of the same text that `finish` became, see `SizedBuilder.part_text`."""
    then_rows: bool = False
    """True if row work follows in the same launch."""
    fill: Prologue | None = None
    """Computes B (modes scratch and computed) instead of reading it."""
    short: bool = False
    """Products are rounded before they are added (`Problem.is_short`)."""
    words: Words | None = None
    """A and B are copied as words, and lengths along K are numbers of words (`words.py`)."""

    @property
    def is_data(self) -> bool:
        """True if its fields say all of the text, and no copy of B is made by a table of places."""
        calls = self.finish is not None or self.finish_bands is not None or self.fill is not None
        return not calls and self.b.row_steps == 1

    @property
    def as_read(self) -> Gemm:
        """The same without what is no part of the text.

        That is how B lies of which panels were made, and row work that does not decide the order of
        tasks.
        """
        if self.b_mode != "packed":
            return replace(self, then_rows=False)
        panels = Operand("b", self.compute, 1, 1, row_unit=True, k_unit=True, batch=self.b.batch)
        return replace(self, b=panels)

    def sizes_read(self, sizes: Mapping[str, Expr]) -> dict[str, Expr]:
        """Those of `sizes` that a kernel may read; a few of these it may leave alone."""
        return {name: size for name, size in sizes.items() if self._reads(name)}

    def _reads(self, name: str) -> bool:
        if name in ("K_elements", "K_panel"):
            return self.words is not None
        if name in ("c_m", "c_n"):
            return self.called is None and (name == "c_m" or not self.c_unit)
        if name == "c_band":
            return self.bands > 1
        if name == "b_band":
            return self.bands > 1 or self.b_mode == "scratch"
        if name == "a_run":
            return self.a_mode == "direct" and self.a.k_steps > 1
        operand = self.a if name.startswith("a") else self.b
        is_packed = operand is self.b and self.b_mode == "packed"
        way = name[1:].rstrip("0123456789")
        number = name[1 + len(way) :]
        if name in ("a_first", "b_first"):
            return operand.first and not is_packed
        if name[0] not in "ab" or not number:
            return True
        if not way:  # a stride along a batch axis
            return operand.batch[int(number)]
        if is_packed or name[2:] == "s0":
            return False
        in_place = self.b_mode == "direct" and name in ("ar0", "br0", "bk0")
        return way.endswith("s") or in_place or not {"r": operand.row_run, "k": operand.k_run}[way]

    @property
    def gathers(self) -> bool:
        """True if a block of A or B may be gathered by places of a table.

        LLVM's passes save a tenth of a gather that is loads one by one.
        """
        by_k = self.a_mode == "scratch" and self.a.k_steps > 1
        return by_k or (self.b_mode == "scratch" and self.b.row_steps > 1)

    @property
    def has_tiles(self) -> bool:
        """True if register tiles are those of AMX (`matrix_tiles.py`)."""
        return self.words is not None and bool(self.words.tiles)

    @property
    def copied(self) -> str:
        """The type of what A and B are copied as."""
        return self.compute.register if self.words is None else WORD

    @property
    def splits_columns(self) -> bool:
        """True if panels whose columns all exist have a text of their own.

        Masked loads of narrow types are loads one by one without AVX-512.
        """
        is_narrow = self.b_mode == "direct" and self.b.element.storage != self.compute.register
        return self.machine.vector_bytes < WHOLE_MASKS and (is_narrow or self.b_mode == "computed")

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
        plain = self.finish is None and self.called is None and self.bands == 1
        plain = plain and not self.has_tiles  # which are whole
        return plain and self.c_unit and self.c.register == self.compute.register
