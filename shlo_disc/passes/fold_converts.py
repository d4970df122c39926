"""fold-converts: no conversion there and back.

    convert (convert %x : bf16 -> f32) : f32 -> bf16   ==>  %x
    convert (convert %x : i8 -> i32) : i32 -> f32      ==>  convert %x : i8 -> f32
    convert (convert %x : i8 -> f32) : f32 -> ui8      ==>  itself: floats saturate, integers wrap

Why     Mixed-precision code and weak types leave chains; each link is a pass over the data when it
        cannot be fused.
Needs   nothing.   Keeps  every result, bit for bit (the payload of a NaN aside).
Cost    O(converts x chain length).
Source  StableHLO spec, convert: exact when the value is representable.
"""

from __future__ import annotations

from shlo_disc.ir.element_types import FloatFormat, Special, known_element_type
from shlo_disc.ir.mlir import ir
from shlo_disc.passes.base import register
from shlo_disc.passes.rules import Facts, RulePass, defined_by


def represents(wide: ir.Type, narrow: ir.Type) -> bool:
    """True if every value of `narrow` is a value of `wide`."""
    if wide == narrow:
        return True
    to, origin = _format(wide), _format(narrow)
    if to and origin:
        # Denormals of `narrow` reach down to 2**(smallest - precision + 1).
        deep = to.smallest - to.precision <= origin.smallest - origin.precision
        # Others lack infinities, NaN or -0.0.
        same = to.special in (Special.IEEE, origin.special)
        return same and deep and to.precision >= origin.precision and to.largest >= origin.largest
    if not isinstance(narrow, ir.IntegerType):
        return False
    unsigned = bool(narrow.is_unsigned) or narrow.width == 1
    bits = int(narrow.width) if unsigned else int(narrow.width) - 1
    if to:
        return bits <= to.precision and bits <= to.largest
    if not isinstance(wide, ir.IntegerType) or wide.width == 1:
        return False
    if wide.is_unsigned:
        return unsigned and int(wide.width) >= bits
    return int(wide.width) - 1 >= bits


def _format(element: ir.Type) -> FloatFormat | None:
    row = known_element_type(element)
    return row.format if row is not None and row.kind == "f" else None


def to_same_type(op: ir.Operation, _: Facts) -> ir.Value | None:
    """convert(x) to x's own type ==> x."""
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def of_exact_convert(op: ir.Operation, facts: Facts) -> ir.Value | None:
    """convert(convert(x)) ==> convert(x), where the first one loses nothing.

    From integer by float to integer the outer one saturates; alone it would wrap.
    """
    inner = defined_by(op.operands[0], "stablehlo.convert")
    if inner is None:
        return None
    source, middle = inner.operands[0], inner.results[0]
    if not represents(middle.type.element_type, source.type.element_type):
        return None
    result = op.results[0]
    if source.type == result.type:
        return source
    if _saturates(*(value.type.element_type for value in (source, middle, result))):
        return None
    return facts.build(op.name, [source], result.type, facts.shape(result))


def _saturates(source: ir.Type, middle: ir.Type, result: ir.Type) -> bool:
    """True if a conversion by the float `middle` saturates where a direct one wraps."""
    integers = [isinstance(kind, ir.IntegerType) for kind in (source, middle, result)]
    return integers == [True, False, True] and result.width > 1 and not represents(result, source)


RULES = {"stablehlo.convert": (to_same_type, of_exact_convert)}

register(RulePass("fold-converts", RULES))
