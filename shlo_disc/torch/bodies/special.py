"""Functions of single numbers that StableHLO or CHLO has, and torch-mlir has no lowering for.

%y = aten.digamma(%x)    ==>    %y = chlo.digamma %x
"""

from __future__ import annotations

from typing import Any

import torch

from shlo_disc.ingest.arrays import Array
from shlo_disc.ir.builders import create
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall, aligned

aten = torch.ops.aten


def _of_float(name: str, *operands: str) -> Body:
    """An op of floats of one type; those of 16 bits are taken as f32."""

    def body(call: BodyCall) -> list[Array]:
        is_short = ir.FloatType(call.element).width < 32
        x, *others = aligned(call, *operands, element=ir.F32Type.get() if is_short else None)
        return [x.apply(name, *others).to(call.element)]

    return body


def _polygamma(call: BodyCall) -> list[Array]:
    """`aten.polygamma(n, self)`."""
    (x,) = aligned(call, "self")
    return [x.full(call["n"]).apply("chlo.polygamma", x)]


def _signbit(call: BodyCall) -> list[Array]:
    """True for numbers below 0, -0.0, and NaN with that sign."""
    x = call["self"]
    if x.is_float:  # the words of memory, as signed numbers
        word = ir.IntegerType.get_signless(ir.FloatType(x.element).width)
        x = x.apply("bitcast_convert", element=word)
    kind = ir.IntegerType(x.element)
    if kind.is_unsigned or kind.width == 1:
        return [x.differs(x)]
    return [x < 0]


def _view_dtype(call: BodyCall) -> list[Array]:
    """The same bytes as elements of another type; the last dimension is that of its width.

    Neither type is one of complex numbers.
    """
    x, element = call["self"], call.element
    have, want = _width(x.element), _width(element)
    if have == want:
        return [x.apply("bitcast_convert", element=element)]
    *lead, last = x.sizes
    parts = max(have, want) // min(have, want)
    if have > want:
        kind = ir.RankedTensorType.get([*x.shape, parts], element)
        x = Array(create("stablehlo.bitcast_convert", [x], kind))
        return [x.reshape([*lead, last * parts])]
    x = x.reshape([*lead, last // parts, parts])
    kind = ir.RankedTensorType.get(x.shape[:-1], element)
    return [Array(create("stablehlo.bitcast_convert", [x], kind))]


def _digamma(call: BodyCall) -> list[Array]:
    """`aten.digamma(self)`: an infinity at 0, of the other sign than that, where CHLO has NaN."""
    (x,) = aligned(call, "self")
    (found,) = _of_float("chlo.digamma", "self")(call)
    return [x.equals(0).where(-1 / x, found)]


def _width(element: ir.Type) -> int:
    is_float = isinstance(element, ir.FloatType)
    return int((ir.FloatType if is_float else ir.IntegerType)(element).width)


def _bincount(call: BodyCall) -> list[Array]:
    """`aten.bincount(self, weights, minlength)`: the number of results comes from data."""
    places, weights = call["self"].to("i64"), call["weights"]
    count = places.reduce("maximum", [0], call.size("minlength") - 1) + 1
    one = Array.constant(1, call.element)
    updates = one.spread([], places) if weights is None else weights.to(call.element)
    start = Array.constant(0, call.element).expand([count])
    return [start.scatter(places, updates, "add")]


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
