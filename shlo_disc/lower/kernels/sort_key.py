"""The comparator of a sort as the order of one key.

    ^bb0(%a, %b):                                   key(x) = select(x == 0, 0, x)
      %0 = select(%a == 0, 0, %a)                   of operand 0, ascending in total order
      %1 = select(%b == 0, 0, %b)            ==>
      return compare LT, %0, %1, TOTALORDER

A comparator has this form if it compares the same function of an operand's element of both records.
Such a key is a number of so many bits, whose digits can be sorted by. Comparisons of floats that
are not of their total order are left out: NaN has no place in them.
"""

from __future__ import annotations

from shlo_disc.base.records import dataclass
from shlo_disc.ir.comparisons import comparison, is_total_order
from shlo_disc.ir.element_types import ElementType
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.values.elemental import Elemental, emit_value
from shlo_disc.lower.values.elements import element_of
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from shlo_disc.lower.values.typed import Register

_LEAST_FLOAT = 16
"""Bits of a float whose total order is that of its own bits (`elementwise.py`)."""


@dataclass(frozen=True)
class SortKey:
    """The order of records by one key."""

    operand: int
    """The operand whose element decides."""
    value: ir.Value
    """The key of the first record, in the comparator."""
    element: ElementType
    """Of the key."""
    is_descending: bool

    @property
    def bits(self) -> int:
        """Bits of the key."""
        return self.element.bits

    def ordered(self, e: Elemental, element: Register) -> Register:
        """The key of an element of the operand as an unsigned integer of its order.

        `element` is given as values are carried (`Elemental.as_register`).
        """
        b = e.b
        block = self.value.owner if isinstance(self.value.owner, ir.Block) else None
        if block is None:
            block = self.value.owner.operation.block
        pairs = len(block.arguments) // 2
        args = []
        for i in range(pairs):
            args += [element if i == self.operand else b.constant(0, "i8")] * 2
        key = emit_value(e, block, args, self.value)
        if self.element.kind == "b":
            key = b.cast("arith.extui", key, "i8")
        else:
            key = self._in_order(e, key)
        if not self.is_descending:
            return key
        return key ^ (1 if self.element.kind == "b" else -1)

    def _in_order(self, e: Elemental, key: Register) -> Register:
        """Floats of negative sign turned over, then all of them behind each other."""
        bits = self.element.bits
        type_ = f"i{bits}"
        highest = e.b.constant(-(1 << bits - 1), type_)
        if self.element.is_float:
            raw = key if key.type == type_ else e.b.bitcast(key, type_)
            return raw ^ (raw.sar(bits - 1) | highest)
        return key ^ highest if self.element.is_signed else key


def sort_key(block: ir.Block) -> SortKey | None:
    """The key of a comparator; None if it has another form."""
    (result,) = block.operations[len(block.operations) - 1].operation.operands
    if isinstance(result.owner, ir.Block):
        return None
    op = result.owner.operation
    if op.name != "stablehlo.compare" or op.block != block:
        return None
    direction = comparison(op)
    left, right = op.operands
    if direction not in ("LT", "GT") or ir.RankedTensorType(left.type).rank:
        return None
    element = element_of(left)
    if element.is_float and (not is_total_order(op) or element.bits < _LEAST_FLOAT):
        return None
    if element.kind in "iu" and element.bits % 8:
        return None
    for first in (0, 1):
        found: set[int] = set()
        if _is_same(block, left, right, first, found) and len(found) == 1:
            descending = (direction == "GT") != (first == 1)
            return SortKey(found.pop(), left, element, descending)
    return None


def _is_same(block: ir.Block, x: ir.Value, y: ir.Value, first: int, found: set[int]) -> bool:
    """True if `y` is computed of one record as `x` is of the other.

    `x` reads arguments of the parity `first`; the operands that are read are added to `found`.
    """
    if isinstance(x.owner, ir.Block):
        if x.owner != block:
            return bool(x == y)
        number = ir.BlockArgument(x).arg_number
        found.add(number // 2)
        is_pair = isinstance(y.owner, ir.Block) and y.owner == block
        return is_pair and number % 2 == first and ir.BlockArgument(y).arg_number == number ^ 1
    a = x.owner.operation
    if a.block != block:
        return bool(x == y)
    if isinstance(y.owner, ir.Block):
        return False
    b = y.owner.operation
    if (
        b.block != block
        or a.name != b.name
        or (a.name not in SCALAR_OPS and a.name != "stablehlo.constant")
        or x.type != y.type
        or ir.RankedTensorType(x.type).rank
        or _attributes(a) != _attributes(b)
        or len(a.operands) != len(b.operands)
    ):
        return False
    return all(
        _is_same(block, p, q, first, found) for p, q in zip(a.operands, b.operands, strict=True)
    )


def _attributes(op: ir.Operation) -> dict[str, str]:
    return {name: str(op.attributes[name]) for name in op.attributes}
