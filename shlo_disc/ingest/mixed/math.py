"""`math`: functions of numbers, element by element."""

from __future__ import annotations

from shlo_disc.ingest.mixed.rewriter import Rule, operation
from shlo_disc.ingest.size_values import Sizes, binary
from shlo_disc.ir.builders import compare, create, select
from shlo_disc.ir.mlir import ir


def _fma(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
    a, b, c = op.operands
    return [binary("add", binary("multiply", a, b), c)]


def _truncate(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
    """Rounded towards 0: down where the number is not below 0, up where it is; keeps -0.0."""
    (x,) = op.operands
    down, up = (create(f"stablehlo.{name}", [x], x.type) for name in ("floor", "ceil"))
    sign = create("stablehlo.sign", [x], x.type)
    below = compare("GE", sign, binary("subtract", sign, sign))
    return [select(below, down, up)]


_SAME = {
    "absf": "stablehlo.abs",
    "absi": "stablehlo.abs",
    "acos": "chlo.acos",
    "acosh": "chlo.acosh",
    "asin": "chlo.asin",
    "asinh": "chlo.asinh",
    "atan": "chlo.atan",
    "atan2": "stablehlo.atan2",
    "atanh": "chlo.atanh",
    "cbrt": "stablehlo.cbrt",
    "ceil": "stablehlo.ceil",
    "cos": "stablehlo.cosine",
    "cosh": "chlo.cosh",
    "ctpop": "stablehlo.popcnt",
    "erf": "chlo.erf",
    "erfc": "chlo.erfc",
    "exp": "stablehlo.exponential",
    "expm1": "stablehlo.exponential_minus_one",
    "floor": "stablehlo.floor",
    "ipowi": "stablehlo.power",
    "isfinite": "stablehlo.is_finite",
    "isinf": "chlo.is_inf",
    "log": "stablehlo.log",
    "log1p": "stablehlo.log_plus_one",
    "powf": "stablehlo.power",
    "round": "stablehlo.round_nearest_afz",
    "roundeven": "stablehlo.round_nearest_even",
    "rsqrt": "stablehlo.rsqrt",
    "sin": "stablehlo.sine",
    "sinh": "chlo.sinh",
    "sqrt": "stablehlo.sqrt",
    "tan": "stablehlo.tan",
    "tanh": "stablehlo.tanh",
}

MATH: dict[str, Rule] = {
    **{f"math.{name}": operation(new) for name, new in _SAME.items()},
    "math.fma": _fma,
    "math.trunc": _truncate,
}
