"""`chlo.next_after` of floats of less than 16 bits, in f32, which has all their numbers.

    %r = chlo.next_after %x, %y  ==>  |x| + s, or |x| - s, with the sign of x     (f8, f6, f4)

s is the distance of neighbours at |x|, towards y. Upstream's expansion counts the bits of a number
up or down: 6 bits have no integer type, and f8E8M0FNU has no sign. Every step here is exact.
"""

from __future__ import annotations

import math

from shlo_disc.ir.builders import broadcast_like, compare, convert, create, scalar, with_element
from shlo_disc.ir.element_types import ElementType, known_element_type
from shlo_disc.ir.mlir import at, ir, ops_of, replace


def expand_next_after(module: ir.Module) -> int:
    """No `chlo.next_after` of narrow floats is left; how many there were."""
    found = []
    for op in ops_of(module, "chlo.next_after"):
        row = known_element_type(ir.RankedTensorType(op.results[0].type).element_type)
        if row is not None and row.bits < 16:
            found.append((op, row))
    for op, row in found:
        with at(op):
            replace(op, _next(op, row))
    return len(found)


def _next(op: ir.Operation, row: ElementType) -> ir.Value:
    kind = op.results[0].type
    wide = with_element(kind, ir.F32Type.get())
    flags, bits = (with_element(kind, ir.IntegerType.get_signless(n)) for n in (1, 32))
    x, y = (convert(v, wide) for v in op.operands)

    def number(value: float) -> ir.Value:
        return broadcast_like(scalar(value, ir.F32Type.get()), [], x)

    def two(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return create(f"stablehlo.{name}", [a, b], a.type)

    def is_(way: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return compare(way, a, b, flags)

    def choose(flag: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("stablehlo.select", [flag, a, b], a.type)

    form = row.format
    least, nothing = number(2.0**form.smallest), number(0.0)
    size = create("stablehlo.abs", [x], wide)
    mask = create("stablehlo.bitcast_convert", [number(math.inf)], bits)  # the exponent's bits
    power = two("and", create("stablehlo.bitcast_convert", [size], bits), mask)
    power = two("maximum", create("stablehlo.bitcast_convert", [power], wide), least)
    above = two("multiply", power, number(2.0 ** (1 - form.precision)))
    is_edge = two("and", is_("EQ", size, power), is_("GT", power, least))
    below = choose(is_edge, two("multiply", above, number(0.5)), above)
    is_zero = is_("EQ", x, nothing)
    outwards = two("or", two("and", is_("GT", x, nothing), is_("GT", y, x)),
                   two("and", is_("LT", x, nothing), is_("LT", y, x)))  # fmt: skip
    largest = (2.0 - 2.0 ** (1 - form.precision)) * 2.0**form.largest
    inner = choose(is_("EQ", size, number(math.inf)), number(largest), two("subtract", size, below))
    result = choose(two("or", outwards, is_zero), two("add", size, above), inner)
    is_negative = is_("LT", choose(is_zero, y, x), nothing)
    result = choose(is_negative, create("stablehlo.negate", [result], wide), result)
    result = choose(is_("EQ", x, y), y, result)
    is_nan = two("or", is_("NE", x, x), is_("NE", y, y))
    return convert(choose(is_nan, two("add", x, y), result), kind)
