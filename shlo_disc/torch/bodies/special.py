"""Functions of single numbers that StableHLO or CHLO has, and torch-mlir has no lowering for.

%y = aten.digamma(%x)    ==>    %y = chlo.digamma %x
"""

from __future__ import annotations

from typing import Any

import torch

from shlo_disc.ingest.arrays import broadcast_to, constant, converted
from shlo_disc.ingest.size_arithmetic import quotient, reshaped, sizes_of, static, times
from shlo_disc.ingest.size_values import binary
from shlo_disc.ir.builders import compare, create, element_of, reduced, scattered, select
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, aligned, spread, typed

aten = torch.ops.aten


def _of_float(name: str, *operands: str) -> Body:
    """An op of floats of one type; those of 16 bits are taken as f32."""

    def body(call: BodyCall) -> list[ir.Value]:
        result = ir.RankedTensorType(call.results[0]).element_type
        is_short = ir.FloatType(result).width < 32
        element = ir.F32Type.get() if is_short else result
        values = aligned(call, *operands, element=element)
        return [converted(create(name, values, values[0].type), result)]

    return body


def _polygamma(call: BodyCall) -> list[ir.Value]:
    """`aten.polygamma(n, self)`."""
    (x,) = aligned(call, "self")
    order = spread(constant(call["n"], element_of(x)), [], x)
    return [create("chlo.polygamma", [order, x], x.type)]


def _bits(x: ir.Value) -> ir.Value:
    """The words of memory of floats, as signed numbers."""
    word = ir.IntegerType.get_signless(ir.FloatType(element_of(x)).width)
    return create("stablehlo.bitcast_convert", [x], typed(x, word))


def _signbit(call: BodyCall) -> list[ir.Value]:
    """True for numbers below 0, -0.0, and NaN with that sign."""
    x = call["self"]
    element = element_of(x)
    word = _bits(x) if isinstance(element, ir.FloatType) else x
    kind = ir.IntegerType(element_of(word))
    truth = typed(x, ir.IntegerType.get_signless(1))
    if kind.is_unsigned or kind.width == 1:
        return [spread(constant(0, truth.element_type), [], x)]
    zero = spread(constant(0, kind), [], word)
    return [compare("LT", word, zero)]


def _view_dtype(call: BodyCall) -> list[ir.Value]:
    """The same bytes as elements of another type; the last dimension is that of its width."""
    x, element = call["self"], ir.RankedTensorType(call.results[0]).element_type
    return [viewed(x, element)]


def viewed(x: ir.Value, element: ir.Type) -> ir.Value:
    """The bytes of `x` as elements of another type, neither of complex numbers."""
    have, want = _width(element_of(x)), _width(element)
    if have == want:
        return create("stablehlo.bitcast_convert", [x], typed(x, element))
    *lead, last = sizes_of(x)
    parts = max(have, want) // min(have, want)
    if have > want:
        kind = ir.RankedTensorType.get([*static(lead), *static([last]), parts], element)
        x = create("stablehlo.bitcast_convert", [x], kind)
        return reshaped(x, [*lead, times(last, parts)])
    sizes = [*lead, quotient(last, parts)]
    kind = ir.RankedTensorType.get(static(sizes), element)
    return create("stablehlo.bitcast_convert", [reshaped(x, [*sizes, parts])], kind)


def _digamma(call: BodyCall) -> list[ir.Value]:
    """`aten.digamma(self)`: an infinity at 0, of the other sign than that, where CHLO has NaN."""
    (x,) = aligned(call, "self")
    (found,) = _of_float("chlo.digamma", "self")(call)
    zero = spread(constant(0, element_of(x)), [], x)
    is_zero = compare("EQ", x, zero)
    one = spread(constant(-1, element_of(x)), [], x)
    return [select(is_zero, binary("divide", one, x), found)]


def _width(element: ir.Type) -> int:
    is_float = isinstance(element, ir.FloatType)
    return int((ir.FloatType if is_float else ir.IntegerType)(element).width)


def _bincount(call: BodyCall) -> list[ir.Value]:
    """`aten.bincount(self, weights, minlength)`: the number of results comes from data."""
    i64 = ir.IntegerType.get_signless(64)
    places = converted(call["self"], i64)
    kind = ir.RankedTensorType(call.results[0])
    one = constant(1, i64)
    least = binary("subtract", call.size("minlength"), one)
    count = binary("add", reduced(places, [0], "maximum", least), one)
    start = broadcast_to(constant(0, kind.element_type), [], [count])
    if call["weights"] is None:
        updates = spread(constant(1, kind.element_type), [], places)
    else:
        updates = converted(call["weights"], kind.element_type)
    return [scattered(start, places, updates, "add")]


SPECIAL: dict[Any, Body] = {
    aten.bincount.default: _bincount,
    aten.digamma.default: _digamma,
    aten.erfc.default: _of_float("chlo.erfc", "self"),
    aten.erfinv.default: _of_float("chlo.erf_inv", "self"),
    aten.lgamma.default: _of_float("chlo.lgamma", "self"),
    aten.nextafter.default: _of_float("chlo.next_after", "self", "other"),
    aten.polygamma.default: _polygamma,
    aten.signbit.default: _signbit,
    aten.special_i1e.default: _of_float("chlo.bessel_i1e", "self"),
    aten.special_zeta.default: _of_float("chlo.zeta", "self", "other"),
    aten.special_zeta.other_scalar: _of_float("chlo.zeta", "self", "other"),
    aten.special_zeta.self_scalar: _of_float("chlo.zeta", "self", "other"),
    aten.view.dtype: _view_dtype,
}
"""Overload -> what writes its results."""
