"""What products by fragments ask of an instruction of matrix units.

    D[i, j] = C[i, j] + sum over k of A[i, k] * B[j, k]

`side` rows of A for each of `blocks`, and `side` rows of B. A lane gives row `own` of all of them.
It gives `each` neighbours along K, of which the lanes of an own row have a group each. Of D it has
row `own` of each block, and `count` columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.lower.gpu.builder import GpuBuilder
from shlo_disc.lower.values.typed import IndexValue, Register, element_type, lanes_of, vector_type


@dataclass(frozen=True, kw_only=True)
class MatrixInstruction(ABC):
    """One instruction; see the module."""

    operand: str
    """MLIR's type of what a lane gives."""
    each: int
    """Elements in it."""
    depth: int
    """Products that are added to a sum."""
    wave: int
    """Lanes."""
    side: int
    blocks: int = 1
    sums: str = "f32"
    """MLIR's type of a sum."""
    is_strided: bool = False
    """Sum r of group g is of column `groups * r + g`, not `count * g + r`."""
    spread: int = 0
    """Bytes of a line of shared memory modulo 128: lanes read from other banks then.

    0: lines have room for 16 bytes behind their elements.
    """

    @property
    def groups(self) -> int:
        """Lanes of an own row."""
        return self.wave // self.side

    @property
    def count(self) -> int:
        """Sums of a lane in a block."""
        return self.side // self.groups

    @property
    def is_doubled(self) -> bool:
        """True if each group gives all elements."""
        return self.each == self.depth

    @property
    def sums_type(self) -> str:
        """MLIR's type of the sums of a lane in a block."""
        return vector_type(self.count, self.sums)

    @abstractmethod
    def place(self, lane: IndexValue) -> tuple[IndexValue, IndexValue]:
        """The own row of a lane, and its group."""

    def given(self, b: GpuBuilder, elements: Register) -> list[Register]:
        """`elements` of a lane as operands of instructions, one after the other."""
        lanes, element = lanes_of(self.operand), element_type(self.operand)
        if elements.element != element:
            words = elements.lanes * max(lanes, 1) // self.each
            elements = b.bitcast(elements, vector_type(words, element))
        if not lanes:
            return [b.extract(elements, k) for k in range(elements.lanes)]
        if elements.lanes == lanes:
            return [elements]
        return [
            b.shuffle(elements, elements, range(first, first + lanes))
            for first in range(0, elements.lanes, lanes)
        ]

    @abstractmethod
    def multiply(
        self, b: GpuBuilder, a: Sequence[Register], other: Register, sums: Sequence[Register]
    ) -> list[Register]:
        """`sums` of each block, and the products of `a`, of each block, and `other`."""
