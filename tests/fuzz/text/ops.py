"""Makers of single ops: each adds one step, or gives None, or raises NothingFits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.draws import NothingFits
from tests.fuzz.program import Shapes, Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Result, Scope, facts
from tests.fuzz.text.types import Facts

Maker = Callable[[Scope], object]

TABLE: dict[Maker, float] = {}
"""Every maker and how often it is drawn."""

SCALARS: list[Maker] = []
"""Makers that may stand in a region over scalars."""


def op(weight: float = 1.0, scalar: bool = False) -> Callable[[Maker], Maker]:
    """Adds a maker to the table."""

    def add(maker: Maker) -> Maker:
        TABLE[maker] = weight
        if scalar:
            SCALARS.append(maker)
        return maker

    return add


def elementwise(scope: Scope) -> None:
    """One random step that is element by element, or none."""
    with contextlib.suppress(NothingFits):
        scope.rng.choice(SCALARS)(scope)


def is_number(value: Value) -> bool:
    return not known.is_quantized(value.dtype)


def is_integer(value: Value) -> bool:
    return value.dtype in known.INTEGER


def is_float(value: Value) -> bool:
    return known.is_float(value.dtype)


def is_real(value: Value) -> bool:
    return is_number(value) and not known.is_complex(value.dtype)


def is_exact(value: Value) -> bool:
    return facts(value).exact


def dims(value: Value) -> tuple[bool, ...]:
    return facts(value).dynamic


def similar(scope: Scope, value: Value, wanted: Callable[[Value], bool] = is_number) -> Value:
    """A value of the same type and sizes: another one, or the value itself."""
    found = scope.find(
        lambda v: (
            v.dtype == value.dtype
            and v.shapes == value.shapes
            and v.name != value.name
            and wanted(v)
        )
    )
    return found or value


def same(value: Value, found: Facts | None, dtype: str | None = None) -> Result | None:
    """A result of the value's shape."""
    if found is None:
        return None
    return dtype or value.dtype, value.shapes, known.moved(found, dims(value))


# --- exact arithmetic --------------------------------------------------------------------------


_NO_DIFFERENCE = ("i1", "f8E8M0FNU")


@op(3, scalar=True)
def add_or_subtract(scope: Scope) -> object:
    name = scope.rng.choice(["add", "subtract"])
    # f8E8M0FNU has no zero: x - x is NaN in ml_dtypes, the smallest number in LLVM.
    x = scope.pick(lambda v: is_number(v) and (name == "add" or v.dtype not in _NO_DIFFERENCE))
    y = similar(scope, x)
    a, b = facts(x), facts(y)
    grain = None if a.grain is None or b.grain is None else max(a.grain, b.grain)
    real = Facts(
        a.magnitude + b.magnitude, a.error + b.error, grain, a.special or b.special,
        a.rough or b.rough,
    )  # fmt: skip
    return scope.one(name, [x, y], same(x, known.rounded(x.dtype, real, once=True)))


@op(2, scalar=True)
def multiply(scope: Scope) -> object:
    x = scope.pick(is_number)
    y = similar(scope, x)
    a, b = facts(x), facts(y)
    grain = None if a.grain is None or b.grain is None else a.grain + b.grain
    rough = a.rough or b.rough or known.is_complex(x.dtype)
    real = Facts(
        a.magnitude * b.magnitude,
        a.error * b.magnitude + b.error * a.magnitude if rough else 0.0,
        grain, a.special or b.special, rough,
    )  # fmt: skip
    if known.is_complex(x.dtype) and real.special:
        return None
    times = 4.0 if known.is_complex(x.dtype) else 1.0
    found = known.rounded(x.dtype, real, once=True, roundings=times)
    return scope.one("multiply", [x, y], same(x, found))


@op(1, scalar=True)
def divide(scope: Scope) -> object:
    name = scope.rng.choice(["divide", "remainder"])
    x = scope.pick(lambda v: is_real(v) and v.dtype != "i1" and is_exact(v))
    y = similar(scope, x, is_exact)
    if is_integer(x):
        one = broadcast_scalar(scope, x, 1)
        y = scope.one("or", [y, one], same(x, replace(facts(y), known=None)))
        return scope.one(name, [x, y], same(x, replace(facts(x), known=None)))
    found = Facts(known.largest(x.dtype), special=True)
    return scope.one(name, [x, y], same(x, found))


def broadcast_scalar(scope: Scope, like: Value, number: Any) -> Value:
    """A splat in the shape of a value: a constant, or a broadcast one where sizes are dynamic."""
    scalar = scope.constant(number, like.dtype)
    return broadcast_to(scope, scalar, like)


def broadcast_to(scope: Scope, scalar: Value, like: Value) -> Value:
    """A scalar in the shape of a value."""
    if not like.shapes[0]:
        return scalar
    found = known.moved(facts(scalar), dims(like))
    result = (scalar.dtype, like.shapes, found)
    if not any(dims(like)):
        return scope.one("broadcast_in_dim", [scalar], result, "broadcast_dimensions = array<i64>")
    shape = scope.shape_operand([(like, axis) for axis in range(like.rank)])
    attributes = "broadcast_dimensions = array<i64>"
    return scope.one("dynamic_broadcast_in_dim", [scalar, shape], result, attributes)


_UNARY = {
    "abs": "cfi", "negate": "cfiu", "sign": "fi", "ceil": "f", "floor": "f",
    "round_nearest_even": "f", "round_nearest_afz": "f", "not": "biu", "popcnt": "iu",
    "count_leading_zeros": "iu",
}  # fmt: skip
_CONTINUOUS = {"abs", "negate"}


def letter(dtype: str) -> str:
    """The kind of a type as the op table has it."""
    if known.is_complex(dtype):
        return "c"
    if known.is_quantized(dtype):
        return "q"
    return known.ELEMENT_TYPES[dtype].kind


@op(3, scalar=True)
def unary(scope: Scope) -> object:
    name, kinds = scope.rng.choice(list(_UNARY.items()))
    x = scope.pick(lambda v: letter(v.dtype) in kinds and (is_exact(v) or name in _CONTINUOUS))
    a = replace(facts(x), known=None)
    if x.dtype in (*known.FINITE, "f8E3M4") and (
        name in ("ceil", "floor") or name.startswith("round")
    ):
        return None  # the interpreter adds a number that these types do not have
    if known.is_complex(x.dtype) and name == "abs":
        if a.special:
            return None
        found = known.rounded(
            known.real_of(x.dtype), replace(a, rough=True, grain=None), once=False, roundings=4
        )
        return scope.one(name, [x], same(x, found, known.real_of(x.dtype)))
    if name in ("not", "count_leading_zeros", "popcnt"):
        a = Facts(known.largest(x.dtype), grain=0)
    elif name == "sign":
        a = replace(a, magnitude=1.0, grain=0)
    elif name in ("ceil", "floor") or name.startswith("round"):
        a = known.rounded(x.dtype, replace(a, magnitude=a.magnitude + 1, grain=0), once=True)
    if is_integer(x) and a is not None:
        a = replace(a, magnitude=known.largest(x.dtype))
    return scope.one(name, [x], same(x, a))


@op(2, scalar=True)
def extreme(scope: Scope) -> object:
    name = scope.rng.choice(["maximum", "minimum"])
    x = scope.pick(is_real)
    y = similar(scope, x)
    return scope.one(name, [x, y], same(x, known.join(facts(x), facts(y))))


@op(2, scalar=True)
def logic(scope: Scope) -> object:
    x = scope.pick(lambda v: letter(v.dtype) in "biu")
    names = ["and", "or", "xor"]
    if x.dtype != "i1":
        names += ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
    found = Facts(known.largest(x.dtype), grain=0)
    return scope.one(scope.rng.choice(names), [x, similar(scope, x)], same(x, found))


@op(1, scalar=True)
def mulhi_or_power(scope: Scope) -> object:
    x = scope.pick(is_integer)
    found = Facts(known.largest(x.dtype), grain=0)
    if scope.chance(0.5):
        return scope.one("chlo.mulhi", [x, similar(scope, x)], same(x, found))
    return scope.one("power", [x, similar(scope, x)], same(x, found))


@op(2, scalar=True)
def compare(scope: Scope) -> object:
    x = scope.pick(lambda v: is_number(v) and is_exact(v))
    y = similar(scope, x, is_exact)
    way = scope.rng.choice(["EQ", "NE", *(["LT", "LE", "GT", "GE"] if is_real(x) else [])])
    attributes = f"comparison_direction = #stablehlo<comparison_direction {way}>"
    if scope.chance(0.3) and x.dtype in ("f32", "f64", "bf16", "f16"):
        attributes += ", compare_type = #stablehlo<comparison_type TOTALORDER>"
        x2 = facts(x).special or facts(y).special
        if x2:  # the sign of a computed NaN is open
            return None
    return scope.one("compare", [x, y], same(x, Facts(1, grain=0), "i1"), attributes)


@op(2, scalar=True)
def select(scope: Scope) -> object:
    p = scope.pick(lambda v: v.dtype == "i1")
    x = scope.pick(lambda v: is_number(v) and (v.shapes == p.shapes or (p.rank == 0)))
    y = similar(scope, x)
    return scope.one("select", [p, x, y], same(x, known.join(facts(x), facts(y))))


@op(1, scalar=True)
def clamp(scope: Scope) -> object:
    x = scope.pick(is_real)
    low, high = similar(scope, x), similar(scope, x)
    if scope.chance(0.5):
        scalars = [scope.find(lambda v: v.dtype == x.dtype and v.rank == 0) for _ in range(2)]
        if None not in scalars:
            low, high = scalars  # type: ignore[assignment]
    many = (facts(low), facts(x), facts(high))
    return scope.one("clamp", [low, x, high], same(x, known.join(*many)))


@op(1, scalar=True)
def is_finite(scope: Scope) -> object:
    x = scope.pick(lambda v: is_float(v) and is_exact(v))
    return scope.one("is_finite", [x], same(x, Facts(1, grain=0), "i1"))


@op(4, scalar=True)
def convert(scope: Scope) -> object:
    x = scope.pick(is_number)
    targets = [t for t in (*scope.dtypes, scope.rng.choice(ALL)) if convertible(x, t)]
    if not targets:
        return None
    to = scope.rng.choice(targets)
    return scope.one("convert", [x], same(x, converted(x, to), to))


ALL = [*known.FLOAT, *known.INTEGER, *known.COMPLEX, "i1"]


def convertible(x: Value, to: str) -> bool:
    """Whether the result of a conversion is defined, and does not tell of rounding."""
    a = facts(x)
    if known.is_complex(x.dtype) and not known.is_complex(to):
        return False
    if to in known.INTEGER or to == "i1":
        if not (is_float(x)):
            return True
        return a.exact and not a.special and (to == "i1" or a.magnitude < _range(to))
    return to != "f8E8M0FNU"  # what becomes of numbers up to 0 is open, see `_NO_DIFFERENCE`


def _range(dtype: str) -> float:
    """Magnitudes below fit in an integer type: 0 where negative numbers do not."""
    return known.largest(dtype) if dtype in known.SIGNED else 0.0


def converted(x: Value, to: str) -> Facts | None:
    a = replace(facts(x), known=None)
    if to == "i1":
        return Facts(1, grain=0)
    if to in known.INTEGER:
        if is_float(x):
            return replace(a, grain=0, magnitude=math.floor(a.magnitude) + 1.0)
        fits = known.largest(to) > a.magnitude and (to in known.SIGNED)
        return Facts(a.magnitude if fits else known.largest(to), grain=0)
    if x.dtype in known.INTEGER or x.dtype == "i1":
        a = replace(a, grain=0)
    return known.rounded(to, a, once=True)


@op(1, scalar=True)
def bitcast(scope: Scope) -> object:
    """To a type of the same width; from floats without NaN, whose bits are open."""
    x = scope.pick(
        lambda v: is_real(v) and v.dtype != "i1" and is_exact(v) and not facts(v).special
    )
    targets = [t for t in ALL if t not in known.COMPLEX and t != "i1"]
    targets = [t for t in targets if known.bits(t) == known.bits(x.dtype) and t != x.dtype]
    if not targets:
        return None
    to = scope.rng.choice(targets)
    special = known.is_float(to)
    found = Facts(known.largest(to), grain=None if special else 0, special=special)
    return scope.one("bitcast_convert", [x], same(x, found, to))


@op(1)
def bitcast_narrower(scope: Scope) -> object:
    """To a type of another width, with one dimension more or less."""
    x = scope.pick(
        lambda v: is_real(v) and v.dtype != "i1" and is_exact(v) and not facts(v).special
    )
    targets = [t for t in known.INTEGER if known.bits(t) < known.bits(x.dtype)]
    targets = [t for t in targets if known.bits(t) >= 8]
    if targets and scope.chance(0.7):
        to = scope.rng.choice(targets)
        times = known.bits(x.dtype) // known.bits(to)
        shapes = tuple((*s, times) for s in x.shapes)
        found = Facts(known.largest(to), grain=0, dynamic=(*dims(x), False))
        return scope.one("bitcast_convert", [x], (to, shapes, found))
    if not x.rank or dims(x)[-1] or known.bits(x.dtype) < 8:
        return None
    last = x.shapes[0][-1]
    targets = [t for t in known.INTEGER if known.bits(t) == known.bits(x.dtype) * last]
    if not targets or last < 2:
        return None
    to = scope.rng.choice(targets)
    shapes = tuple(s[:-1] for s in x.shapes)
    found = Facts(known.largest(to), grain=0, dynamic=dims(x)[:-1])
    return scope.one("bitcast_convert", [x], (to, shapes, found))


@op(0.5, scalar=True)
def reduce_precision(scope: Scope) -> object:
    x = scope.pick(lambda v: v.dtype in ("f32", "f64", "bf16", "f16") and is_exact(v))
    exponent, mantissa = scope.rng.randint(2, 8), scope.rng.randint(0, 12)
    found = replace(facts(x), grain=None, known=None, special=True)
    attributes = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
    return scope.one("reduce_precision", [x], same(x, found), attributes)


# --- functions -----------------------------------------------------------------------------------

_BOUNDED = {  # bounded by 1, and no steeper than 1
    "tanh": 1.0, "logistic": 1.0, "sine": 1.0, "cosine": 1.0, "chlo.erf": 1.2, "chlo.erfc": 2.0,
    "chlo.atan": 1.6, "chlo.bessel_i1e": 1.0,
}  # fmt: skip
_FREE = {  # (largest operand): what the result's magnitude is
    "exponential": lambda m: math.exp(min(m, 600)),
    "exponential_minus_one": lambda m: math.exp(min(m, 600)),
    "chlo.square": lambda m: m * m,
    "chlo.sinh": lambda m: math.exp(min(m, 600)),
    "chlo.cosh": lambda m: math.exp(min(m, 600)),
    "chlo.asinh": float,
    "cbrt": lambda m: m + 1,
    "sqrt": lambda m: m + 1,
    "log": lambda m: math.inf,
    "log_plus_one": lambda m: math.inf,
    "rsqrt": lambda m: math.inf,
    "tan": lambda m: math.inf,
    "chlo.tan": lambda m: math.inf,
    "chlo.acos": lambda m: 3.2,
    "chlo.asin": lambda m: 1.6,
    "chlo.acosh": lambda m: m + 1,
    "chlo.atanh": lambda m: math.inf,
    "chlo.erf_inv": lambda m: math.inf,
    "chlo.lgamma": lambda m: math.inf,
    "chlo.digamma": lambda m: math.inf,
}
_REAL_ONLY = {"chlo.erf", "chlo.erfc", "chlo.erf_inv", "chlo.lgamma", "chlo.digamma",
              "chlo.bessel_i1e"}  # fmt: skip


@op(4, scalar=True)
def function(scope: Scope) -> object:
    if scope.chance(0.5):
        name = scope.rng.choice(list(_BOUNDED))
        x = scope.pick(lambda v: is_float(v) and facts(v).magnitude < 1e4)
    else:
        name = scope.rng.choice(list(_FREE))
        x = scope.pick(
            lambda v: letter(v.dtype) in ("f" if name in _REAL_ONLY else "fc") and is_exact(v)
        )
    if x.dtype == "f8E8M0FNU":
        return None
    a = facts(x)
    if known.is_complex(x.dtype) and (a.special or a.magnitude > 10):
        return None
    limit = _BOUNDED.get(name) or _FREE[name](a.magnitude)
    if limit > known.largest(x.dtype) / 8:
        limit = math.inf
    # XLA loses digits beside the zeros of the last two.
    scale = limit if math.isfinite(limit) else float(name in ("chlo.lgamma", "chlo.digamma"))
    error = a.error + 16 * known.epsilon(x.dtype) * scale
    found = Facts(limit, error, None, a.special or not math.isfinite(limit), True)
    return scope.one(name, [x], same(x, found))


@op(0.7, scalar=True)
def function_of_two(scope: Scope) -> object:
    name = scope.rng.choice(["atan2", "power", "chlo.next_after", "chlo.zeta", "chlo.polygamma"])
    x = scope.pick(lambda v: v.dtype in ("f32", "f64", "bf16", "f16") and is_exact(v))
    y = similar(scope, x, is_exact)
    special = facts(x).special or facts(y).special
    found = Facts(math.inf, 0, None, True, True)
    if name == "atan2":
        found = Facts(3.2, 16 * known.epsilon(x.dtype), None, special, True)
    if name == "chlo.next_after":
        found = Facts(known.largest(x.dtype), special=True)
        return scope.one(name, [x, y], same(x, found))
    return scope.one(name, [x, y], same(x, found))


@op(2, scalar=True)
def parts(scope: Scope) -> object:
    x = scope.find(lambda v: known.is_complex(v.dtype))
    if x is not None and scope.chance(0.6):
        name = scope.rng.choice(["real", "imag", "chlo.conj"])
        to = x.dtype if name == "chlo.conj" else known.real_of(x.dtype)
        return scope.one(name, [x], same(x, replace(facts(x), known=None), to))
    x = scope.pick(lambda v: v.dtype in ("f32", "f64"))
    y = similar(scope, x)
    found = known.join(facts(x), facts(y))
    found = replace(found, magnitude=found.magnitude * 2**0.5)
    return scope.one("complex", [x, y], same(x, found, f"complex<{x.dtype}>"))


@op(0.5, scalar=True)
def classify(scope: Scope) -> object:
    name = scope.rng.choice(["chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf"])
    x = scope.pick(lambda v: is_float(v) and is_exact(v))
    return scope.one(name, [x], same(x, Facts(1, grain=0), "i1"))


def static(shapes_of: Shapes) -> bool:
    return len(set(shapes_of)) == 1


def every(shape: tuple[int, ...]) -> Shapes:
    """The same shape at every call."""
    return (shape,) * CALLS
