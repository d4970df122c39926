"""Memory asked for in advance, where a product computes with other values than A and B."""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.lower.plan import Buffer
from shlo_disc.lower.values.elemental import Elemental
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.index import Index, Ix
from shlo_disc.lower.values.typed import Mask, Register, vector_type


class Asking(Elemental):
    """Asks for the memory that values are loaded from, and computes only where it is."""

    kinds: ClassVar[str] = "f"
    """Of elements that say nothing of where others are."""

    def value_at(self, value: ir.Value, index: Index, mask: Mask | None = None) -> Register:
        """See `Elemental.value_at`; of no use where it is not computed."""
        if element_of(value).kind not in self.kinds:
            return super().value_at(value, index, mask)
        op = None if value in self.overrides or value in self.inputs else producer(value)
        if op is None or op.name not in SCALAR_OPS:
            return super().value_at(value, index, mask)
        for operand in op.operands:
            self.value_at(operand, self._at(op, operand, index), mask)
        return self.nothing(value)

    def load(self, buffer: Buffer, element: ElementType, at: Ix, mask: Mask | None) -> Register:
        """See `Elemental.load`: neighbours are prefetched, and zeros stand for them."""
        if element.kind not in self.kinds or at.is_uniform:
            return super().load(buffer, element, at, mask)
        if at.vector is None:
            memory = self.b.memref(self.arguments.slot(buffer), element.storage)
            memory.prefetch(at.base)
        return self.b.constant(0, vector_type(self.lanes, element.register))

    def nothing(self, value: ir.Value) -> Register:
        """A register in place of a value that is not needed."""
        return self.b.constant(0, vector_type(self.lanes, element_of(value).register))


class AskingAll(Asking):
    """The same of integers, too: quantised weights."""

    kinds: ClassVar[str] = "fiu"
