"""Rows of element-wise ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shlo_disc.ir.ops import folding
from shlo_disc.ir.ops.row import Flops, Op, Role


def _op(name: str, **row: Any) -> Op:
    return Op(name if "." in name else f"stablehlo.{name}", Role.ELEMENTWISE, **row)


def _exact(name: str, **row: Any) -> Op:
    return _op(name, exact_bits=True, **row)


_COMPLEX = "of complex numbers: chlo-legalize-to-stablehlo"


def _math(
    name: str, function: str, cost: int, fold: Callable[..., Any] | None = None, note: str = ""
) -> Op:
    """A transcendental function; `fold` is evaluated in float64."""
    folder = None if fold is None else folding.wide(fold)
    flops = Flops.TRANSCENDENTAL
    types = "f" if name.startswith("chlo.") else "cf"
    return _op(name, math=function, cost=cost, fold=folder, flops=flops, types=types, note=note)


ROWS = (
    # arithmetic
    _exact("abs", fold=np.abs, on_host=True, types="cfi"),
    _exact("add", fold=np.add, on_host=True),
    _exact("divide", fold=np.divide, cost=8, on_host=True, types="cfiu"),
    _exact("maximum", fold=folding.maximum, on_host=True),
    _exact("minimum", fold=folding.minimum, on_host=True),
    _exact("multiply", fold=np.multiply, on_host=True),
    _exact("chlo.mulhi", cost=4, on_host=True, types="iu"),
    _exact("negate", fold=np.negative, on_host=True, types="cfiu"),
    _op("power", math="pow", cost=50, flops=Flops.TRANSCENDENTAL, on_host=True, types="cfiu"),
    _exact("remainder", cost=40, on_host=True, types="fiu"),
    _exact("sign", fold=folding.sign, on_host=True, types="cfi"),
    _exact("subtract", fold=np.subtract, on_host=True, types="cfiu"),
    # rounding
    _exact("ceil", fold=np.ceil, types="f"),
    _exact("floor", fold=np.floor, types="f"),
    _exact("reduce_precision", types="f"),
    _exact("round_nearest_afz", types="f"),
    _exact("round_nearest_even", types="f"),
    # bits and logic
    _exact("and", fold=np.bitwise_and, on_host=True, types="biu"),
    _exact("count_leading_zeros", on_host=True, types="iu"),
    _exact("not", fold=np.invert, on_host=True, types="biu"),
    _exact("or", fold=np.bitwise_or, on_host=True, types="biu"),
    _exact("popcnt", on_host=True, types="iu"),
    _exact("shift_left", on_host=True, types="iu"),
    _exact("shift_right_arithmetic", on_host=True, types="iu"),
    _exact("shift_right_logical", on_host=True, types="iu"),
    _exact("xor", fold=np.bitwise_xor, on_host=True, types="biu"),
    # comparison and choice
    _exact("clamp", on_host=True),
    _exact("compare", on_host=True),
    _exact("is_finite", fold=np.isfinite, types="f"),
    _exact("select", fold=np.where, on_host=True),
    # conversion
    _exact("bitcast_convert", makes_types=True, on_host=True),
    _exact("convert", on_host=True, picks=True, makes_types=True),
    # functions
    _math("atan2", "atan2", 40),
    _math("cbrt", "cbrt", 30, np.cbrt),
    _math("chlo.bessel_i1e", "bessel_i1e", 60),
    _math("chlo.cosh", "cosh", 25, note=_COMPLEX),
    _math("chlo.digamma", "digamma", 80),
    _math("chlo.erf", "erf", 25),
    _math("chlo.erf_inv", "erf_inv", 40),
    _math("chlo.erfc", "erfc", 40),
    _math("chlo.lgamma", "lgamma", 80),
    _math("chlo.polygamma", "polygamma", 600),
    _math("chlo.sinh", "sinh", 25, note=_COMPLEX),
    _math("chlo.tan", "tan", 40, note=_COMPLEX),
    _math("chlo.zeta", "zeta", 400),
    _math("cosine", "cos", 30, np.cos),
    _math("exponential", "exp", 15, np.exp),
    _math("exponential_minus_one", "expm1", 20, np.expm1),
    _math("log", "log", 20, np.log),
    _math("log_plus_one", "log1p", 25, np.log1p),
    _math("logistic", "logistic", 25),
    _math("rsqrt", "rsqrt", 15, lambda x: 1 / np.sqrt(x)),
    _math("sine", "sin", 30, np.sin),
    _op("sqrt", fold=np.sqrt, ulp=(0.5, 0.5), cost=10, flops=Flops.TRANSCENDENTAL, types="cf"),
    _math("tan", "tan", 40, np.tan),
    _math("tanh", "tanh", 25, np.tanh),
)
