"""`arith`: element by element, of numbers and of tensors.

The types of `arith` are signless. An op that reads its operands as unsigned numbers becomes one of
unsigned types, between conversions of the bits.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.ingest.mixed.rewriter import Rule, operation
from shlo_disc.ingest.present import converted
from shlo_disc.ingest.size_values import Sizes, binary
from shlo_disc.ir.builders import (
    broadcast_like,
    compare,
    convert,
    create,
    scalar,
    select,
    with_element,
)
from shlo_disc.ir.mlir import ir

Values = list[ir.Value]


def _filled(value: int | float, like: ir.Value) -> ir.Value:
    """A tensor of the shape of `like`, every element `value`."""
    inner = ir.RankedTensorType(like.type).element_type
    if isinstance(inner, ir.IntegerType):
        kind = ir.RankedTensorType.get([], inner)
        attribute = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(inner, int(value)))
        one = create("stablehlo.constant", [], kind, value=attribute)
    else:
        one = scalar(value, inner)
    return broadcast_like(one, [], like) if ir.RankedTensorType(like.type).rank else one


# -- constants ----------------------------------------------------------------------------------


def _constant(sizes: Sizes, op: ir.Operation) -> Values:
    kind, value = ir.RankedTensorType(converted(op.results[0].type)), op.attributes["value"]
    if isinstance(value, ir.IntegerAttr):
        number = ir.IntegerAttr.get(kind.element_type, ir.IntegerAttr(value).value)
        value = ir.DenseElementsAttr.get_splat(kind, number)
    elif isinstance(value, ir.BoolAttr | ir.FloatAttr):
        value = ir.DenseElementsAttr.get_splat(kind, value)
    elif kind != op.results[0].type:  # of `index`
        value = ir.Attribute.parse(f"{str(value).rpartition(' : ')[0]} : {kind}")
    return [create("stablehlo.constant", [], kind, value=value)]


# -- conversions --------------------------------------------------------------------------------


def _bits(value: ir.Value, *, unsigned: bool) -> ir.Value:
    """`value`, an integer, read as unsigned or as signless."""
    width = ir.IntegerType(ir.RankedTensorType(value.type).element_type).width
    if width == 1:
        return value
    make = ir.IntegerType.get_unsigned if unsigned else ir.IntegerType.get_signless
    kind = with_element(value.type, make(width))
    return value if value.type == kind else create("stablehlo.bitcast_convert", [value], kind)


def _is_truth(value: ir.Value) -> bool:
    inner = ir.RankedTensorType(value.type).element_type
    return isinstance(inner, ir.IntegerType) and inner.width == 1


def _convert(sizes: Sizes, op: ir.Operation) -> Values:
    """Of signed numbers; the one of i1 is -1."""
    (value,) = op.operands
    kind = converted(op.results[0].type)
    new = convert(value, kind)
    return [create("stablehlo.negate", [new], kind)] if _is_truth(value) else [new]


def _convert_unsigned(sizes: Sizes, op: ir.Operation) -> Values:
    return [convert(_bits(op.operands[0], unsigned=True), converted(op.results[0].type))]


def _to_unsigned(sizes: Sizes, op: ir.Operation) -> Values:
    kind = ir.RankedTensorType(converted(op.results[0].type))
    width = ir.IntegerType(kind.element_type).width
    unsigned = with_element(kind, ir.IntegerType.get_unsigned(width)) if width > 1 else kind
    return [_bits(convert(op.operands[0], unsigned), unsigned=False)]


def _truncate(sizes: Sizes, op: ir.Operation) -> Values:
    (value,) = op.operands
    kind = ir.RankedTensorType(converted(op.results[0].type))
    if ir.IntegerType(kind.element_type).width == 1:
        value = binary("and", value, _filled(1, value))
    return [convert(value, kind)]


def _bitcast(sizes: Sizes, op: ir.Operation) -> Values:
    return [create("stablehlo.bitcast_convert", [op.operands[0]], converted(op.results[0].type))]


# -- integers -----------------------------------------------------------------------------------


def _unsigned(name: str) -> Rule:
    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        a, b = (_bits(v, unsigned=True) for v in op.operands)
        of_bits = _bits(binary(name, a, b), unsigned=False)
        kind = op.results[0].type
        if "index" not in str(kind) and kind != ir.IntegerType.get_signless(64):
            return [of_bits]
        # A number of this type is mostly a size. The shape analysis follows the signed numbers.
        signed = [compare("GE", v, _filled(0, v)) for v in op.operands]
        both = binary("and", *signed)
        return [select(both, binary(name, *op.operands), of_bits)]

    return rule


def _rounded(*, up: bool) -> Rule:
    """Division rounded down or up, as `jnp.floor_divide` writes it."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        a, b = op.operands
        quotient, rest = binary("divide", a, b), binary("remainder", a, b)
        one = _filled(1, a)
        sign_a, sign_b = (create("stablehlo.sign", [v], v.type) for v in (a, b))
        apart = compare("EQ" if up else "NE", sign_a, sign_b)
        inexact = compare("NE", rest, _filled(0, a))
        next_one = binary("add" if up else "subtract", quotient, one)
        both = binary("and", apart, inexact)
        return [select(both, next_one, quotient)]

    return rule


def _ceil_unsigned(sizes: Sizes, op: ir.Operation) -> Values:
    a, b = (_bits(v, unsigned=True) for v in op.operands)
    inexact = compare("NE", binary("remainder", a, b), _filled(0, a))
    return [_bits(binary("add", binary("divide", a, b), convert(inexact, a.type)), unsigned=False)]


_INTEGER_ORDER = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _compare_integers(sizes: Sizes, op: ir.Operation) -> Values:
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    a, b = op.operands
    if predicate >= len(_INTEGER_ORDER):
        a, b = _bits(a, unsigned=True), _bits(b, unsigned=True)
        predicate -= len(_INTEGER_ORDER) - 2
    elif _is_truth(a) and predicate > 1:  # true is -1
        a, b = b, a
    return [compare(_INTEGER_ORDER[predicate], a, b)]


# -- floats -------------------------------------------------------------------------------------

_FLOAT_ORDER = ("", "EQ", "GT", "GE", "LT", "LE")
_OPPOSITE = {"GT": "LE", "GE": "LT", "LT": "GE", "LE": "GT"}


def _compare_floats(sizes: Sizes, op: ir.Operation) -> Values:
    """Predicates as `arith` numbers them: always false, ordered ones, unordered ones, true."""
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    a, b = op.operands

    def told(direction: str) -> ir.Value:
        return compare(direction, a, b)

    def inverse(value: ir.Value) -> ir.Value:
        return create("stablehlo.not", [value], value.type)

    def numbers() -> ir.Value:
        return binary("and", *(compare("EQ", v, v) for v in (a, b)))

    def different() -> ir.Value:
        return binary("or", told("LT"), told("GT"))

    special: dict[int, Callable[[], ir.Value]] = {
        0: lambda: _filled(0, told("EQ")),
        6: different,
        7: numbers,
        8: lambda: inverse(different()),
        13: lambda: told("NE"),
        14: lambda: inverse(numbers()),
        15: lambda: _filled(1, told("EQ")),
    }
    if predicate in special:
        return [special[predicate]()]
    if predicate < 6:
        return [told(_FLOAT_ORDER[predicate])]
    return [inverse(told(_OPPOSITE[_FLOAT_ORDER[predicate - 7]]))]


def _of_numbers(name: str) -> Rule:
    """The larger or smaller of two, a number if one of them is."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        a, b = op.operands
        is_nan = [compare("NE", v, v) for v in (a, b)]
        either = select(is_nan[1], a, binary(name, a, b))
        return [select(is_nan[0], b, either)]

    return rule


_SAME = {
    "addf": "add",
    "addi": "add",
    "andi": "and",
    "divf": "divide",
    "divsi": "divide",
    "maximumf": "maximum",
    "minimumf": "minimum",
    "mulf": "multiply",
    "muli": "multiply",
    "negf": "negate",
    "ori": "or",
    "remf": "remainder",
    "remsi": "remainder",
    "select": "select",
    "shli": "shift_left",
    "shrsi": "shift_right_arithmetic",
    "shrui": "shift_right_logical",
    "subf": "subtract",
    "subi": "subtract",
    "xori": "xor",
}


def _of_i1(name: str, of_truths: str) -> Rule:
    """An op of integers, or another one of i1, whose arithmetic has one bit."""

    def rule(sizes: Sizes, op: ir.Operation) -> Values:
        return [binary(of_truths if _is_truth(op.operands[0]) else name, *op.operands)]

    return rule


ARITH: dict[str, Rule] = {
    **{f"arith.{name}": operation(f"stablehlo.{new}") for name, new in _SAME.items()},
    "arith.addi": _of_i1("add", "xor"),
    "arith.bitcast": _bitcast,
    "arith.ceildivsi": _rounded(up=True),
    "arith.ceildivui": _ceil_unsigned,
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_integers,
    "arith.constant": _constant,
    "arith.divui": _unsigned("divide"),
    "arith.extf": _convert,
    "arith.extsi": _convert,
    "arith.extui": _convert_unsigned,
    "arith.floordivsi": _rounded(up=False),
    "arith.fptosi": _convert,
    "arith.fptoui": _to_unsigned,
    "arith.index_cast": _convert,
    "arith.index_castui": _convert_unsigned,
    "arith.maxnumf": _of_numbers("maximum"),
    "arith.maxsi": _of_i1("maximum", "and"),
    "arith.maxui": _unsigned("maximum"),
    "arith.minnumf": _of_numbers("minimum"),
    "arith.minsi": _of_i1("minimum", "or"),
    "arith.minui": _unsigned("minimum"),
    "arith.muli": _of_i1("multiply", "and"),
    "arith.remui": _unsigned("remainder"),
    "arith.sitofp": _convert,
    "arith.subi": _of_i1("subtract", "xor"),
    "arith.truncf": _convert,
    "arith.trunci": _truncate,
    "arith.uitofp": _convert_unsigned,
}
