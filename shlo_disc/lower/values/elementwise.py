"""Element-wise operations on registers: one row per StableHLO op, scalar or any number of lanes.

A rule takes `(b, op, args, ins, out)`: builder, operation, operand registers, their element types
and the result's. The registers are all scalar or all of one number of lanes. Results are rounded to
the result type after every operation, integers never trap.

Source: StableHLO specification, one section per op; conversions saturate as XLA's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from shlo_disc.ir.comparisons import comparison, is_total_order
from shlo_disc.ir.element_types import ELEMENT_TYPES, FLOATS, ElementType, Special
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import OPS, names
from shlo_disc.lower.values.elements import (
    Op,
    element_of,
    from_compute,
    half_op,
    round_odd,
    to_compute,
    unsupported,
    wrap,
)
from shlo_disc.lower.values.math import constant_power, emit_math
from shlo_disc.lower.values.text import TextBuilder
from shlo_disc.lower.values.typed import Mask, Register, like
from shlo_disc.passes.op_classes import constant_float

Types = list[ElementType]
"""Of the operands of an op."""

Args = list[Register]
Rule = Callable[[TextBuilder, Op, Args, Types, ElementType], Register]


def emit_scalar(b: TextBuilder, op: ir.Operation, args: Sequence[Register]) -> Register:
    """The register of `op`'s result from its operands' (scalars are broadcast where lanes meet)."""
    ins = [element_of(v) for v in op.operands]
    out = element_of(op.results[0])
    lanes = max((a.lanes for a in args), default=0)
    args = [wrap(b, b.broadcast(a, lanes), e) for a, e in zip(args, ins, strict=True)]
    return SCALAR_OPS[op.name](b, op, args, ins, out)


def _math(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    if not out.is_float:
        unsupported(op, f"no {out.name} form", "convert the operand to a float")
    wide = [to_compute(b, a, e) for a, e in zip(args, ins, strict=True)]
    return from_compute(b, emit_math(OPS[op.name].math, wide), out)


def _arith(
    float_op: str | None,
    int_op: str | None,
    bool_op: str | None = None,
    unsigned: str | None = None,
) -> Rule:
    """A binary operation that is one `arith` op per kind of element."""

    def rule(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
        name = {"f": float_op, "i": int_op, "u": unsigned or int_op, "b": bool_op}[out.kind]
        if name is None:
            unsupported(op, f"no {out.name} form", "convert the operands first")
        if (half := half_op(b, name, args, out)) is not None:
            return half
        wide = [to_compute(b, a, out) for a in args]
        return from_compute(b, b.op(name, *wide), out)

    return rule


_maximum = _arith("arith.maximumf", "arith.maxsi", "arith.ori", "arith.maxui")
_minimum = _arith("arith.minimumf", "arith.minsi", "arith.andi", "arith.minui")
"""Floats propagate NaN and order -0 below +0."""


def _clamp(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    low, x, high = args
    return _minimum(b, op, [_maximum(b, op, [x, low], ins, out), high], ins, out)


def _divisor(b: TextBuilder, y: Register, e: ElementType) -> tuple[Register, Mask]:
    """(a divisor that cannot trap, whether y is 0): x / -1, x / 0 become x / 1, repaired later."""
    zero = y.equals(0)
    unsafe = zero
    if e.is_signed:
        minus_one = y.equals(-1)
        unsafe = zero | minus_one
    return b.select(unsafe, y.constant(1), y), zero


def _quotient(b: TextBuilder, x: Register, y: Register, e: ElementType) -> Register:
    """Integer x / y truncated, y neither 0 nor -1.

    Up to 32 bits go through f64 when the divisor is no constant: the quotient of two integers below
    2^32 is at least 2^-32 (relative) away from the next integer, far more than half an ulp of f64,
    and vectors have no integer division.
    """
    if e.bits > 32 or not x.lanes or y.is_constant:
        return b.op("arith.divsi" if e.is_signed else "arith.divui", x, y)
    to, back = ("arith.sitofp", "arith.fptosi") if e.is_signed else ("arith.uitofp", "arith.fptoui")
    quotient = b.cast(to, x, "f64") / b.cast(to, y, "f64")
    return b.cast(back, quotient, e.register)


def _divide(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    x, y = args
    if out.name == "bf16":
        return from_compute(b, b.bf16_quotient(*(to_compute(b, a, out) for a in args)), out)
    if out.is_float:
        return _arith("arith.divf", None)(b, op, args, ins, out)
    if out.kind == "b":
        unsupported(op, "no i1 form", "use `and`")
    safe, zero = _divisor(b, y, out)
    quotient = _quotient(b, x, safe, out)
    if out.is_signed:
        negated = 0 - x
        quotient = b.select(y.equals(-1), negated, quotient)
    return b.select(zero, y.constant(-1), quotient)


def _remainder(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    x, y = args
    if out.is_float:
        wide = [to_compute(b, a, out) for a in args]
        divisor = constant_float(op.operands[1])
        if divisor is not None and abs(math.frexp(divisor)[0]) == 0.5:
            return from_compute(b, _rest_of_power(wide[0], abs(divisor)), out)
        return from_compute(b, _fmod(b, *wide), out)
    if out.kind == "b":
        unsupported(op, "no i1 form", "convert the operands to an integer type")
    safe, zero = _divisor(b, y, out)
    quotient = _quotient(b, x, safe, out)
    rest = x - quotient * safe
    return b.select(zero, x, rest)


def _rest_of_power(x: Register, y: float) -> Register:
    """C's fmod of x and a power of two, exact: so is every quotient that has a fraction."""
    digits = FLOATS[x.element].fraction
    quotient = x if y == 1 else x * (1 / y)
    whole = x.b.op("math.trunc", quotient)
    rest = x.b.op("math.fma", -whole, x.constant(y), x)
    if y < 1:  # The quotient may overflow. 0 times infinity is NaN.
        rest = x.b.select(x.abs() < y * 2.0**digits, rest, x * 0.0)
    return rest.copysign(x)


def _fmod(b: TextBuilder, x: Register, y: Register) -> Register:
    """C's fmod, exact: shift-and-subtract with 20 quotient bits a step, of which most need one.

    r and d = y * 2^k (k >= 0 so that r < 2^21 d) are floats; q = trunc(r / d) < 2^21 may be one too
    large, and r - q*d is a multiple of the smaller ulp and below d in magnitude, so the fma is
    exact.
    """
    type_ = x.type
    element = "f64" if x.is_double else "f32"
    bits, mantissa, bias = (
        ELEMENT_TYPES[element].bits,
        FLOATS[element].fraction,
        FLOATS[element].bias,
    )
    itype = like(type_, f"i{bits}")
    a, d = x.abs(), y.abs()
    infinity = b.constant(float("inf"), type_)
    zero = b.constant(0.0, type_)
    finite = (a < infinity) & (d > zero)
    regular = finite & (d < infinity)
    start = b.select(regular, a, zero)
    by = b.select(regular, d, b.constant(1.0, type_))

    def exponent(v: Register) -> Register:
        raw = b.bitcast(v, itype) >> b.constant(mantissa, itype)
        return b.op("arith.maxsi", raw, b.constant(1, itype))

    def power(k: Register) -> Register:
        biased = k + b.constant(bias, itype)
        return b.bitcast(biased << b.constant(mantissa, itype), type_)

    def step(carried: list[Register]) -> list[Register]:
        (r,) = carried
        gap = exponent(r) - exponent(by)
        k = gap - b.constant(20, itype)
        k = b.op("arith.maxsi", k, b.constant(0, itype))
        # 2^k may overflow a float: two factors.
        half = k >> b.constant(1, itype)
        rest = k - half
        scaled = by * power(half) * power(rest)
        q = b.op("math.trunc", r / scaled)
        left = b.op("math.fma", -q, scaled, r)
        low = left < zero
        left = b.select(low, left + scaled, left)
        return [b.select(r >= by, left, r)]

    with b.if_((start < by * b.constant(2.0**20, type_)).all()) as branch:
        left = b.op("math.fma", -b.op("math.trunc", start / by), by, start)
        branch.yield_(b.select(left < zero, left + by, left))
        with branch.otherwise():
            branch.yield_(*b.while_([start], lambda c: (c[0] >= by).any(), step))
    (r,) = branch.results
    signed = b.op("math.copysign", r, x)
    # x mod inf is x; inf mod y, x mod 0 and NaN are NaN.
    endless = (a < infinity) & d.equals(infinity)
    other = b.select(endless, x, b.constant(float("nan"), type_))
    return b.select(regular, signed, other)


def _high_product(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    """The upper half of the product's bits; products are exact in twice the width."""
    x, y = args
    if out.bits < 64:
        extend = "arith.extsi" if out.is_signed else "arith.extui"
        wide, other = (b.cast(extend, v, f"i{2 * out.width}") for v in (x, y))
        return b.cast("arith.trunci", wide * other >> out.bits, out.register)
    # Halves of 32 bits: no sum of the following wraps (Hacker's Delight, section 8-2).
    low, half = x.constant((1 << 32) - 1), 32
    (x0, x1), (y0, y1) = (((v & low), v >> half) for v in (x, y))
    middle = x1 * y0 + (x0 * y0 >> half)
    high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
    if not out.is_signed:
        return high
    return high - (x.sar(63) & y) - (y.sar(63) & x)


def _power(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    if out.is_float:
        x, y = (to_compute(b, a, out) for a in args)
        exponent = constant_float(op.operands[1])
        found = emit_math("pow", [x, y]) if exponent is None else constant_power(x, exponent)
        return from_compute(b, found, out)
    if out.kind == "b":
        unsupported(op, "no i1 form", "convert the operands to an integer type")
    x, y = args
    zero, one, minus = (x.constant(v) for v in (0, 1, -1))
    count = y
    if out.is_signed:
        negative = y < zero
        count = b.select(negative, zero, y)

    def step(carried: list[Register]) -> list[Register]:
        result, base, left = carried
        odd = (left & one).differs(zero)
        times = b.select(odd, result * base, result)
        return [times, base * base, left >> one]

    init = [one, x, count]
    result = b.while_(init, lambda c: c[2].differs(zero).any(), step)[0]
    if not out.is_signed:
        return result
    odd = (y & one).differs(zero)
    of_minus = b.select(x.equals(minus), b.select(odd, minus, one), zero)
    return b.select(negative, b.select(x.equals(one), one, of_minus), result)


_SIGNED = (Special.IEEE, Special.FN, Special.FINITE)
"""Formats in which the sign is a bit of its own, for every number and NaN."""


def _abs(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    (x,) = args
    if out.is_narrow and out.format.special in _SIGNED:
        return x & x.constant((1 << out.bits - 1) - 1)
    if out.is_narrow:
        return from_compute(b, to_compute(b, x, out).abs(), out)
    if out.is_float:
        return x.abs()
    return b.op("arith.maxsi", x, 0 - x) if out.is_signed else x


def _negate(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    (x,) = args
    if out.is_narrow and out.format.special in _SIGNED:
        return x ^ 1 << out.bits - 1
    if out.is_narrow:
        return from_compute(b, -to_compute(b, x, out), out)
    if out.is_float:
        return -x
    return 0 - x


def _sign(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    x = to_compute(b, args[0], out)
    one = x.constant(1)
    if out.is_float:
        nonzero = b.cmpf("one", x, x.constant(0))
        return from_compute(b, b.select(nonzero, b.op("math.copysign", one, x), x), out)
    positive = b.op("arith.minui" if not out.is_signed else "arith.minsi", x, one)
    return b.op("arith.maxsi", positive, x.constant(-1)) if out.is_signed else positive


def _float_unary(name: str) -> Rule:
    def rule(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
        if not out.is_float:
            unsupported(op, f"no {out.name} form", "convert the operand to a float")
        return from_compute(b, b.op(name, to_compute(b, args[0], out)), out)

    return rule


# ------------------------------------------------------------------ bits


def _not(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    ones = args[0].constant(True if out.kind == "b" else -1)
    return args[0] ^ ones


def _bits(name: str) -> Rule:
    def rule(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
        return b.op(name, *args)

    return rule


def own_bits(b: TextBuilder, x: Register, e: ElementType) -> Register:
    """An integer with zeros in the bits of the register that are not bits of its type."""
    if e.bits == e.width:
        return x
    return x & x.constant((1 << e.bits) - 1)


def _leading_zeros(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    count = b.op("math.ctlz", own_bits(b, args[0], out))
    unused = out.width - out.bits
    return count - unused if unused else count


def _population(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    return b.op("math.ctpop", own_bits(b, args[0], out))


def _shift(name: str) -> Rule:
    """Shifts by the width or more give 0, or the sign for the arithmetic shift."""

    def rule(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
        x, by = args
        last = by.constant(out.bits - 1)
        if name == "arith.shrsi":
            if out.bits < out.width and not out.is_signed:  # its highest bit is the sign here
                x = wrap(b, x, replace(out, kind="i"))
            return b.op(name, x, b.op("arith.minui", by, last))
        inside = b.cmpi("ule", by, last)
        if name == "arith.shrui":
            x = own_bits(b, x, out)
        return b.select(inside, b.op(name, x, b.op("arith.minui", by, last)), x.constant(0))

    return rule


# ------------------------------------------------------------------ comparison and choice

_FLOAT_PREDICATE = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}
_INT_PREDICATE = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


def _total_order(b: TextBuilder, x: Register, bits: int) -> Register:
    """Integers in the order of IEEE-754 totalOrder: negative floats with other bits flipped."""
    type_ = x.like(f"i{bits}")
    raw = b.bitcast(x, type_)
    sign = raw.sar(b.constant(bits - 1, type_))
    flip = sign >> b.constant(1, type_)
    return raw ^ flip


def _compare(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    direction, total = comparison(op), is_total_order(op)
    element = ins[0]
    if element.is_float and total:
        bits = element.bits
        if bits < 16:  # as f32, which orders them alike
            args, bits = [to_compute(b, a, element) for a in args], 32
        x, y = (_total_order(b, a, bits) for a in args)
        return b.cmpi(_signed(direction), x, y)
    if element.is_float:
        x, y = (to_compute(b, a, element) for a in args)
        return b.cmpf(_FLOAT_PREDICATE[direction], x, y)
    predicate = _INT_PREDICATE[direction]
    if direction not in ("EQ", "NE"):
        predicate = ("s" if element.is_signed else "u") + predicate
    return b.cmpi(predicate, *args)


def _signed(direction: str) -> str:
    word = _INT_PREDICATE[direction]
    return word if direction in ("EQ", "NE") else "s" + word


def _select(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    condition, yes, no = args
    return b.select(Mask.of(condition), yes, no)


def _is_finite(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    x = to_compute(b, args[0], ins[0])
    return x.abs() < x.constant(float("inf"))


# ------------------------------------------------------------------ conversion


def convert(b: TextBuilder, x: Register, source: ElementType, target: ElementType) -> Register:
    """`x` converted as stablehlo.convert: floats to integers saturate, NaN becomes 0."""
    if source == target:
        return x
    x = wrap(b, x, source)
    if target.kind == "b":
        if source.is_float:
            wide = to_compute(b, x, source)
            return wide.differs(0)
        return x.differs(0)
    if source.is_float:
        wide = to_compute(b, x, source)
        if target.is_float:
            return _float_to_float(b, wide, source, target)
        return _float_to_int(b, wide, target)
    if target.is_float:
        return _int_to_float(b, x, source, target)
    have = 1 if source.kind == "b" else source.width
    if target.width > have:
        x = b.cast("arith.extsi" if source.is_signed else "arith.extui", x, target.register)
    elif target.width < have:
        x = b.cast("arith.trunci", x, target.register)
    return x


def _float_to_int(b: TextBuilder, x: Register, target: ElementType) -> Register:
    """The integer part of f32 or f64, saturated; NaN becomes 0."""
    if b.saturates:
        name = "llvm.fptosi.sat" if target.is_signed else "llvm.fptoui.sat"
        return _saturated(b, b.intrinsic(name, x, type_=x.like(target.register)), target)
    low = -(1 << target.bits - 1) if target.is_signed else 0
    high = (1 << target.bits) + low - 1
    lost = max(0, high.bit_length() - (53 if x.is_double else 24))
    top = high >> lost << lost  # the largest float that is in range
    within = b.select(x > low, x, x.constant(low))  # `low` for NaN
    within = b.select(within < top, within, x.constant(top))
    is_small = target.bits < 32
    name = "arith.fptosi" if target.is_signed or is_small else "arith.fptoui"
    whole = b.cast(name, within, "i32" if is_small else target.register)
    if top != high:
        whole = b.select(x > top, whole.constant(high if target.is_signed else -1), whole)
    if target.is_signed:
        whole = b.select(x.is_nan(), whole.constant(0), whole)
    return b.cast("arith.trunci", whole, target.register) if is_small else whole


def _saturated(b: TextBuilder, x: Register, e: ElementType) -> Register:
    """An integer of 8 bits brought into the range of a type of fewer."""
    if e.bits == e.width:
        return x
    if not e.is_signed:
        return b.op("arith.minui", x, x.constant((1 << e.bits) - 1))
    most = 1 << e.bits - 1
    return b.op("arith.maxsi", b.op("arith.minsi", x, x.constant(most - 1)), x.constant(-most))


def _float_to_float(
    b: TextBuilder, x: Register, source: ElementType, target: ElementType
) -> Register:
    if target.name == "f64":
        return b.cast("arith.extf", x, "f64")
    if source.name == "f64":
        x = round_odd(b, x) if target.is_narrow else b.cast("arith.truncf", x, "f32")
    return from_compute(b, x, target, any_nan=True)


def _int_to_float(
    b: TextBuilder, x: Register, source: ElementType, target: ElementType
) -> Register:
    name = "arith.sitofp" if source.is_signed else "arith.uitofp"
    if source.bits == 64 and (target.is_narrow or target.name == "f64"):
        # MLIR rewrites arith.truncf(arith.sitofp(x)) to one arith.sitofp, which rounds once where
        # the program rounds twice. LLVM does so only where the inner conversion is exact.
        name = name.replace("arith", "llvm")
    if target.is_narrow and source.bits >= 32:
        if source.bits == 64 and target.format.largest >= 53:  # others have no such numbers
            x = _sticky(b, x, source)
        return from_compute(b, round_odd(b, b.cast(name, x, "f64")), target)
    return from_compute(b, b.cast(name, x, target.compute), target)


def _sticky(b: TextBuilder, x: Register, source: ElementType) -> Register:
    """A 64-bit integer as one that f64 holds and that rounds alike to 8 bits: rounded to odd."""
    type_ = x.type
    limit = b.constant(1 << 53, type_)
    shifted = x + limit if source.is_signed else x
    large = b.cmpi("ugt", shifted, b.constant(1 << 54, type_) if source.is_signed else limit)
    zero = b.constant(0, type_)
    lost = (x & b.constant((1 << 11) - 1, type_)).differs(zero)
    odd = b.select(lost, b.constant(1 << 11, type_), zero)
    kept = x & b.constant(-(1 << 11), type_)
    return b.select(large, kept | odd, x)


def _convert(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    return convert(b, args[0], ins[0], out)


def _bitcast(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    (x,) = args
    if out.bits < 8:
        return own_bits(b, x, out) if out.is_float else x
    type_ = x.like(out.register)
    return x if x.type == type_ else b.bitcast(x, type_)


def reduce_precision(
    b: TextBuilder, x: Register, exponent_bits: int, mantissa_bits: int
) -> Register:
    """`x` (f32 or f64) rounded to a float with fewer exponent and mantissa bits, as XLA does it."""
    type_ = x.type
    bits, mantissa, exponent = (64, 52, 11) if x.is_double else (32, 23, 8)
    itype = like(type_, f"i{bits}")

    def const(value: int) -> Register:
        return b.constant(value - (1 << bits) if value >= 1 << (bits - 1) else value, itype)

    raw = b.bitcast(x, itype)
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        last = raw >> const(drop) & const(1)
        rounding = last + const((1 << (drop - 1)) - 1)
        keep = ((1 << bits) - 1) ^ ((1 << drop) - 1)
        raw = raw + rounding & const(keep)
    if exponent_bits < exponent:
        sign_mask = 1 << (bits - 1)
        exponent_mask = ((1 << exponent) - 1) << mantissa
        bias = (1 << (exponent - 1)) - 1
        reduced = (1 << (exponent_bits - 1)) - 1
        field = raw & const(exponent_mask)
        overflow = b.cmpi("ugt", field, const((bias + reduced) << mantissa))
        underflow = b.cmpi("ule", field, const((bias - reduced) << mantissa))
        sign = raw & const(sign_mask)
        raw = b.select(overflow, sign | const(exponent_mask), raw)
        raw = b.select(underflow, sign, raw)
    result = b.bitcast(raw, type_)
    nan = x if mantissa_bits > 0 else b.constant(float("inf"), type_)
    return b.select(x.is_nan(), nan, result)


def _reduce_precision(b: TextBuilder, op: Op, args: Args, ins: Types, out: ElementType) -> Register:
    e = ir.IntegerAttr(op.attributes["exponent_bits"]).value
    m = ir.IntegerAttr(op.attributes["mantissa_bits"]).value
    if out.is_narrow and e >= (5 if out.name == "f16" else 8):
        e = 8  # all exponents of the type, its denormals included
    return from_compute(b, reduce_precision(b, to_compute(b, args[0], out), e, m), out)


SCALAR_OPS: dict[str, Rule] = {
    **dict.fromkeys(names(lambda row: bool(row.math)), _math),
    "chlo.mulhi": _high_product,
    "stablehlo.abs": _abs,
    "stablehlo.add": _arith("arith.addf", "arith.addi", "arith.ori"),
    "stablehlo.and": _bits("arith.andi"),
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.ceil": _float_unary("math.ceil"),
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.count_leading_zeros": _leading_zeros,
    "stablehlo.divide": _divide,
    "stablehlo.floor": _float_unary("math.floor"),
    "stablehlo.is_finite": _is_finite,
    "stablehlo.maximum": _maximum,
    "stablehlo.minimum": _minimum,
    "stablehlo.multiply": _arith("arith.mulf", "arith.muli", "arith.andi"),
    "stablehlo.negate": _negate,
    "stablehlo.not": _not,
    "stablehlo.or": _bits("arith.ori"),
    "stablehlo.popcnt": _population,
    "stablehlo.power": _power,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.remainder": _remainder,
    "stablehlo.round_nearest_afz": _float_unary("math.round"),
    "stablehlo.round_nearest_even": _float_unary("math.roundeven"),
    "stablehlo.select": _select,
    "stablehlo.shift_left": _shift("arith.shli"),
    "stablehlo.shift_right_arithmetic": _shift("arith.shrsi"),
    "stablehlo.shift_right_logical": _shift("arith.shrui"),
    "stablehlo.sign": _sign,
    "stablehlo.sqrt": _float_unary("math.sqrt"),
    "stablehlo.subtract": _arith("arith.subf", "arith.subi"),
    "stablehlo.xor": _bits("arith.xori"),
}
"""Every op computed element by element from operands at the same index."""
