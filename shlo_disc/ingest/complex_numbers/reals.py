"""Arithmetic on real tensors, written as Python expressions.

frame = Frame(x)                 # the shape and element type of every value of an expression
frame.of(x) * 2 + frame.of(y)    # ==> multiply, add; the constant 2 broadcast to the shape
"""

from __future__ import annotations

import math

from shlo_disc.base.records import dataclass
from shlo_disc.ir.builders import broadcast, create, select, shape_of
from shlo_disc.ir.element_types import FloatFormat, element_type
from shlo_disc.ir.mlir import ir


class Frame:
    """One shape and floating-point type; constants of both, made once each."""

    def __init__(self, like: ir.Value, element: ir.Type | None = None) -> None:
        """`like` has the shape; `element` is its element type unless given."""
        self._like = like
        shape = ir.RankedTensorType(like.type).shape
        self.element = element or ir.RankedTensorType(like.type).element_type
        self.type = ir.RankedTensorType.get(shape, self.element)
        self._constants: dict[tuple[ir.Attribute, ir.Type], ir.Value] = {}
        self._shape: ir.Value | None = None

    @property
    def is_single(self) -> bool:
        """True for f32."""
        return isinstance(self.element, ir.F32Type)

    @property
    def format(self) -> FloatFormat:
        """Of the element type."""
        return element_type(self.element).format

    @property
    def bits(self) -> int:
        """Of an element."""
        return element_type(self.element).bits

    @property
    def largest_exponent(self) -> float:
        """An integer for which `exp` does not overflow; the next one does."""
        return math.floor((self.format.largest + 1) * math.log(2))

    @property
    def integers(self) -> ir.Type:
        """The integer type with the bits of the element type."""
        return ir.IntegerType.get_signless(self.bits)

    def of(self, value: ir.Value) -> Real:
        """`value`, of this shape, in this element type."""
        if value.type != self.type:
            value = create("stablehlo.convert", [value], self.type)
        return Real(self, value)

    def constant(self, number: float) -> Real:
        """`number` everywhere."""
        return Real(self, self._splat(ir.FloatAttr.get(self.element, number), self.element))

    def integer(self, number: int) -> ir.Value:
        """`number` everywhere, of the type `integers`."""
        return self._splat(ir.IntegerAttr.get(self.integers, number), self.integers)

    def shaped(self, element: ir.Type) -> ir.RankedTensorType:
        """The type of this shape with another element type."""
        return ir.RankedTensorType.get(self.type.shape, element)

    def broadcast(self, value: ir.Value) -> Real:
        """`value`, a scalar or of this shape."""
        if self.type.rank and not ir.RankedTensorType(value.type).rank:
            value = broadcast(value, [], self.type, self._sizes)
        return self.of(value)

    def bits_of(self, x: Real) -> ir.Value:
        """The bits of `x` as integers."""
        return create("stablehlo.bitcast_convert", [x.value], self.shaped(self.integers))

    def from_bits(self, bits: ir.Value) -> Real:
        """The numbers with these bits."""
        return Real(self, create("stablehlo.bitcast_convert", [bits], self.type))

    def _splat(self, attribute: ir.Attribute, element: ir.Type) -> ir.Value:
        key = (attribute, element)
        if key not in self._constants:
            scalar = ir.RankedTensorType.get([], element)
            value = create(
                "stablehlo.constant",
                [],
                scalar,
                value=ir.DenseElementsAttr.get_splat(scalar, attribute),
            )
            if self.type.rank:
                value = broadcast(value, [], self.shaped(element), self._sizes)
            self._constants[key] = value
        return self._constants[key]

    def _sizes(self) -> ir.Value:
        if self._shape is None:
            self._shape = shape_of(self._like)
        return self._shape


@dataclass(frozen=True)
class Truth:
    """A tensor of truth values."""

    frame: Frame
    value: ir.Value

    def __and__(self, other: Truth) -> Truth:
        return Truth(
            self.frame, create("stablehlo.and", [self.value, other.value], self.value.type)
        )

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.frame, create("stablehlo.or", [self.value, other.value], self.value.type))

    def __invert__(self) -> Truth:
        return Truth(self.frame, create("stablehlo.not", [self.value], self.value.type))

    def choose(self, yes: Real | float, no: Real | float) -> Real:
        """Elements of `yes` where true, of `no` elsewhere."""
        a, b = (_real(self.frame, x) for x in (yes, no))
        return Real(self.frame, select(self.value, a.value, b.value))


@dataclass(frozen=True)
class Real:
    """A tensor of floats; operators give the StableHLO op of their name."""

    frame: Frame
    value: ir.Value

    @property
    def type(self) -> ir.RankedTensorType:
        """Of the tensor."""
        return ir.RankedTensorType(self.value.type)

    def _binary(self, name: str, other: Real | float, *, turned: bool = False) -> Real:
        operands = [self.value, _real(self.frame, other).value]
        if turned:
            operands.reverse()
        return Real(self.frame, create(f"stablehlo.{name}", operands, self.type))

    def _unary(self, name: str) -> Real:
        return Real(self.frame, create(f"stablehlo.{name}", [self.value], self.type))

    def _compare(self, direction: str, other: Real | float) -> Truth:
        attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
        i1 = self.frame.shaped(ir.IntegerType.get_signless(1))
        operands = [self.value, _real(self.frame, other).value]
        value = create("stablehlo.compare", operands, i1, comparison_direction=attribute)
        return Truth(self.frame, value)

    def __add__(self, other: Real | float) -> Real:
        return self._binary("add", other)

    def __radd__(self, other: float) -> Real:
        return self._binary("add", other, turned=True)

    def __sub__(self, other: Real | float) -> Real:
        return self._binary("subtract", other)

    def __rsub__(self, other: float) -> Real:
        return self._binary("subtract", other, turned=True)

    def __mul__(self, other: Real | float) -> Real:
        return self._binary("multiply", other)

    def __rmul__(self, other: float) -> Real:
        return self._binary("multiply", other, turned=True)

    def __truediv__(self, other: Real | float) -> Real:
        return self._binary("divide", other)

    def __rtruediv__(self, other: float) -> Real:
        return self._binary("divide", other, turned=True)

    def __neg__(self) -> Real:
        return self._unary("negate")

    def __abs__(self) -> Real:
        return self._unary("abs")

    def __lt__(self, other: Real | float) -> Truth:
        return self._compare("LT", other)

    def __le__(self, other: Real | float) -> Truth:
        return self._compare("LE", other)

    def __gt__(self, other: Real | float) -> Truth:
        return self._compare("GT", other)

    def __ge__(self, other: Real | float) -> Truth:
        return self._compare("GE", other)

    def equals(self, other: Real | float) -> Truth:
        """True where both are the same number; NaN never is."""
        return self._compare("EQ", other)

    def differs(self, other: Real | float) -> Truth:
        """True where `equals` is not."""
        return self._compare("NE", other)

    @property
    def is_nan(self) -> Truth:
        """True at NaN."""
        return self.differs(self)

    @property
    def is_finite(self) -> Truth:
        """True at finite numbers."""
        i1 = self.frame.shaped(ir.IntegerType.get_signless(1))
        return Truth(self.frame, create("stablehlo.is_finite", [self.value], i1))

    @property
    def is_infinite(self) -> Truth:
        """True at both infinities."""
        return abs(self).equals(math.inf)

    def maximum(self, other: Real) -> Real:
        """The larger one; NaN where one is."""
        return self._binary("maximum", other)

    def minimum(self, other: Real) -> Real:
        """The smaller one; NaN where one is."""
        return self._binary("minimum", other)

    def atan2(self, x: Real) -> Real:
        """The angle of the point (x, self)."""
        return self._binary("atan2", x)

    def sqrt(self) -> Real:
        """The square root."""
        return self._unary("sqrt")

    def cbrt(self) -> Real:
        """The cube root."""
        return self._unary("cbrt")

    def exp(self) -> Real:
        """E to the power of this."""
        return self._unary("exponential")

    def expm1(self) -> Real:
        """E to the power of this, minus 1."""
        return self._unary("exponential_minus_one")

    def log(self) -> Real:
        """The natural logarithm."""
        return self._unary("log")

    def log1p(self) -> Real:
        """The natural logarithm of 1 + this."""
        return self._unary("log_plus_one")

    def sin(self) -> Real:
        """The sine."""
        return self._unary("sine")

    def cos(self) -> Real:
        """The cosine."""
        return self._unary("cosine")

    def with_sign_of(self, other: Real) -> Real:
        """The magnitude of this with the sign bit of `other`, of -0.0 and NaN, too."""
        f = self.frame
        top = f.integer(-(1 << (f.bits - 1)))
        rest = create("stablehlo.not", [top], top.type)
        sign = create("stablehlo.and", [f.bits_of(other), top], top.type)
        magnitude = create("stablehlo.and", [f.bits_of(self), rest], top.type)
        return f.from_bits(create("stablehlo.or", [magnitude, sign], top.type))

    def converted(self, frame: Frame) -> Real:
        """The same numbers in the element type of `frame`."""
        return frame.of(self.value)


Part = tuple[Real, Real]
"""The real and the imaginary part of one value."""


def _real(frame: Frame, x: Real | float) -> Real:
    return x if isinstance(x, Real) else frame.constant(x)
