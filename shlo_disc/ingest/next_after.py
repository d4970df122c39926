"""`chlo.next_after` of floats of less than 16 bits, in f32, which has all their numbers.

    %r = chlo.next_after %x, %y  ==>  |x| + s, or |x| - s, with the sign of x     (f8, f6, f4)

s is the distance of neighbours at |x|, towards y. Upstream's expansion counts the bits of a number
up or down: 6 bits have no integer type, and f8E8M0FNU has no sign. Every step here is exact.
"""

from __future__ import annotations

import math

from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import (
    broadcast_like,
    compare,
    convert,
    create,
    scalar,
    select,
    with_element,
)
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
    bits = with_element(kind, ir.IntegerType.get_signless(32))
    x, y = (convert(v, wide) for v in op.operands)

    def number(value: float) -> ir.Value:
        return broadcast_like(scalar(value, ir.F32Type.get()), [], x)

    form = row.format
    least, nothing = number(2.0**form.smallest), number(0.0)
    size = create("stablehlo.abs", [x], wide)
    mask = create("stablehlo.bitcast_convert", [number(math.inf)], bits)  # the exponent's bits
    power = binary("and", create("stablehlo.bitcast_convert", [size], bits), mask)
    power = binary("maximum", create("stablehlo.bitcast_convert", [power], wide), least)
    above = binary("multiply", power, number(2.0 ** (1 - form.precision)))
    is_edge = binary("and", compare("EQ", size, power), compare("GT", power, least))
    below = select(is_edge, binary("multiply", above, number(0.5)), above)
    is_zero = compare("EQ", x, nothing)
    outwards = binary("or", binary("and", compare("GT", x, nothing), compare("GT", y, x)),
                   binary("and", compare("LT", x, nothing), compare("LT", y, x)))  # fmt: skip
    largest = (2.0 - 2.0 ** (1 - form.precision)) * 2.0**form.largest
    inner = select(
        compare("EQ", size, number(math.inf)), number(largest), binary("subtract", size, below)
    )
    result = select(binary("or", outwards, is_zero), binary("add", size, above), inner)
    is_negative = compare("LT", select(is_zero, y, x), nothing)
    result = select(is_negative, create("stablehlo.negate", [result], wide), result)
    result = select(compare("EQ", x, y), y, result)
    is_nan = binary("or", compare("NE", x, x), compare("NE", y, y))
    return convert(select(is_nan, binary("add", x, y), result), kind)
