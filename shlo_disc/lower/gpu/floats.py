"""How GPUs compute with floats, where it differs from what a CPU does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.text import V
from shlo_disc.lower.values.typed import Mask, Register, Value, vector_type

if TYPE_CHECKING:
    from shlo_disc.lower.gpu.machine import Machine


class FloatBuilder(KernelBuilder):
    """A `KernelBuilder` with the arithmetic of a GPU."""

    rounds_to_bf16: ClassVar[bool] = True

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._broadcast: dict[str, Value] = {}
        """The scalar of a vector, by the name of the vector."""
        super().__init__()

    @property
    def halves(self) -> tuple[str, ...]:
        """See `TextBuilder.halves`."""
        return self.machine.halves

    def copysign(self, size: Register, sign: Register) -> Register:
        """By bits: LLVM would round both to narrower floats first, and split them."""
        top = 1 << (size.element_bits - 1)
        found = (size.bits() & (top - 1)) | (sign.bits() & -top)
        return self.bitcast(found, size.type)

    def signed(self, size: Register, sign: Register) -> Register:
        """See `TextBuilder.signed`: one operation on bits."""
        found = size.bits() | (sign.bits() & -(1 << (size.element_bits - 1)))
        return self.bitcast(found, size.type)

    def bf16_to_f32(self, value: Register) -> Register:
        """See `TextBuilder.bf16_to_f32`; two neighbours are in a register of 32 bits."""
        if (same := self._broadcast.get(value.name)) is not None:
            return self.broadcast(super().bf16_to_f32(Register.of(same)), value.lanes)
        if value.lanes % 2 or not value.lanes:
            return super().bf16_to_f32(value)
        words = self.bitcast(value, vector_type(value.lanes // 2, "i32"))
        order = [lane for k in range(words.lanes) for lane in (k, words.lanes + k)]
        bits = self.shuffle(words << 16, words & -(1 << 16), order)
        return self.bitcast(bits, bits.like("f32"))

    def ordinary_quotient(self, a: Register, b: Register) -> Register:
        """See `TextBuilder.ordinary_quotient`.

        Of NVIDIA's by what `div.rn.f32` does where no operand is special: a correction of the
        approximate reciprocal, and one of the quotient. Operands without branches overlap.
        """
        name = self.machine.reciprocal
        if not name or a.element != "f32":
            return super().ordinary_quotient(a, b)
        reciprocal = self._reciprocal(b)
        quotient = a * reciprocal
        rest = self.op("math.fma", -b, quotient, a)
        return self.op("math.fma", rest, reciprocal, quotient)

    def bf16_quotient(self, a: Register, b: Register) -> Register:
        """See `TextBuilder.bf16_quotient`: a product with the reciprocal is as good as that.

        A quotient of bf16 is 2^-17 (relative) or more away from what is halfway between two bf16,
        or is such a number and a denormal. The error of the product is below 2^-22: it is on the
        same side. Where both are denormal, the reciprocal's error, below 2^-24, moves the product
        by less than half of the smallest f32. Then the product is halfway, too.
        """
        if not self.machine.reciprocal:
            return super().bf16_quotient(a, b)
        size = b.abs()
        is_ordinary = ((size >= 2.0**-126) & (size <= 2.0**126)).all()
        reciprocal = self._reciprocal(b)
        return self.either(is_ordinary, lambda: [a * reciprocal], lambda: [a / b])[0]

    def _reciprocal(self, b: Register) -> Register:
        """1 / `b` with an error of little more than half an ulp, of f32 in the range of both."""

        def near(lane: Register) -> Register:
            return self.intrinsic(self.machine.reciprocal, lane, type_="f32")

        first = self.each_lane(b, near)
        error = self.op("math.fma", -b, first, first.constant(1.0))
        return self.op("math.fma", first, error, first)

    def broadcast(self, scalar: V, lanes: int) -> V:
        """See `TextBuilder.broadcast`; the scalar is remembered."""
        found = super().broadcast(scalar, lanes)
        if found is not scalar:
            self._broadcast[found.name] = scalar
        return found

    def reduce_mask(self, how: str, mask: Mask) -> Mask:
        """See `TextBuilder.reduce_mask`: lanes are predicates, which LLVM would gather as bits."""
        if not mask.lanes:
            return mask
        lanes = [self.extract(mask, lane) for lane in range(mask.lanes)]
        return functools.reduce(lambda a, b: a | b if how == "or" else a & b, lanes)

    def each_lane(self, value: Register, of: Callable[[Register], Register]) -> Register:
        """`of` each lane of a vector, or of a scalar."""
        if not value.lanes:
            return of(value)
        if (same := self._broadcast.get(value.name)) is not None:
            return self.broadcast(of(Register.of(same)), value.lanes)
        found = value
        for lane in range(value.lanes):
            found = self.insert(of(self.extract(value, lane)), found, self.index(lane))
        return found
