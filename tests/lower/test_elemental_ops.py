"""Every element-wise op, for every element type, at sizes around the vector width.

The oracle is numpy (integers: Python's own arithmetic); 16-bit floats are computed in f32 and
rounded after every op, which is what numpy does with ml_dtypes.
"""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.values.elementwise import SCALAR_OPS
from tests.lower.helpers import (
    DTYPES,
    fusion_text,
    plan_of,
    run,
    sample,
    special_values,
    tensor,
)

FLOATS = ("f32", "f64", "bf16", "f16")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTS = SIGNED + UNSIGNED
ALL = (*FLOATS, *INTS, "i1")
SIZES = (0, 1, 2, 7, 16, 17, 100)


@dataclass(frozen=True)
class Case:
    """`text` computes `%r` of type R from %x, %y, %z: T; `want` is the oracle."""

    op: str
    text: str
    want: Callable[..., np.ndarray]
    dtypes: tuple[str, ...]
    result: str | None = None
    ulp: float = 0


def f(
    op: str, arity: int, want: Callable[..., np.ndarray], dtypes: tuple[str, ...], **more
) -> Case:
    names = ", ".join(["%x", "%y", "%z"][:arity])
    return Case(op, f"%r = stablehlo.{op} {names} : T", want, dtypes, **more)


def wide(fn: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The oracle in float64 (float32 for 16-bit), rounded to the operand type."""

    def apply(*args: np.ndarray) -> np.ndarray:
        dtype = args[0].dtype
        return fn(*(a.astype(np.float64) for a in args)).astype(dtype)

    return apply


def ints(fn: Callable[..., int]) -> Callable[..., np.ndarray]:
    """The oracle in Python integers, wrapped."""

    def apply(*args: np.ndarray) -> np.ndarray:
        dtype = args[0].dtype
        out = [fn(dtype, *(int(v) for v in t)) for t in zip(*args, strict=True)]
        bits = dtype.itemsize * 8
        return np.array([v % (1 << bits) for v in out], f"uint{bits}").view(dtype)

    return apply


def quotient(dtype: np.dtype, x: int, y: int) -> int:
    if y == 0:
        return -1
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q


def rest(dtype: np.dtype, x: int, y: int) -> int:
    return x if y == 0 else x - quotient(dtype, x, y) * y


def power(dtype: np.dtype, x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64)
    return 1 if x == 1 else (-1 if y % 2 else 1) if x == -1 else 0


def shift(kind: str) -> Callable[[np.dtype, int, int], int]:
    def apply(dtype: np.dtype, x: int, y: int) -> int:
        bits = dtype.itemsize * 8
        by = y % (1 << bits)
        if kind == "left":
            return x << by if by < bits else 0
        if kind == "logical":
            return (x % (1 << bits)) >> by if by < bits else 0
        signed = x % (1 << bits)
        signed -= (1 << bits) if signed >> (bits - 1) else 0
        return signed >> min(by, bits - 1)

    return apply


def sign(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x) | (x == 0), x, np.copysign(np.ones_like(x), x)).astype(x.dtype)


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iub":
        return np.maximum(x, y)
    both_zero = (x == 0) & (y == 0)
    zero = np.where(np.signbit(x) & np.signbit(y), -0.0, 0.0).astype(x.dtype)
    return np.where(both_zero, zero, np.maximum(x, y)).astype(x.dtype)


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iub":
        return np.minimum(x, y)
    both_zero = (x == 0) & (y == 0)
    zero = np.where(np.signbit(x) | np.signbit(y), -0.0, 0.0).astype(x.dtype)
    return np.where(both_zero, zero, np.minimum(x, y)).astype(x.dtype)


def fmod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


def away(x: np.ndarray) -> np.ndarray:
    v = x.astype(np.float64)
    whole = np.trunc(v)
    r = np.where(np.abs(v - whole) >= 0.5, whole + np.copysign(1, v), whole)
    return np.copysign(np.where(np.isfinite(v), r, v), v).astype(x.dtype)


def total(x: np.ndarray) -> np.ndarray:
    bits = x.view(f"int{x.dtype.itemsize * 8}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def compares() -> list[Case]:
    found = []
    table = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal",
             "GT": "greater", "GE": "greater_equal"}  # fmt: skip
    for direction, name in table.items():
        fn = getattr(np, name)
        text = f"%r = stablehlo.compare {direction}, %x, %y : (T, T) -> R"
        found.append(Case("compare", text, fn, ALL, "i1"))
        text = f"%r = stablehlo.compare {direction}, %x, %y, TOTALORDER : (T, T) -> R"
        found.append(
            Case("compare", text, lambda x, y, fn=fn: fn(total(x), total(y)), FLOATS, "i1")
        )
    return found


CASES = [
    f("abs", 1, np.abs, FLOATS + SIGNED),
    f("add", 2, np.add, ALL),
    f("and", 2, np.bitwise_and, (*INTS, "i1")),
    f("ceil", 1, wide(np.ceil), FLOATS),
    Case(
        "clamp",
        "%r = stablehlo.clamp %x, %y, %z : T",
        lambda x, y, z: minimum(maximum(y, x), z),
        FLOATS + INTS,
    ),
    Case(
        "clamp",
        "%lo = stablehlo.constant dense<1> : S\n%hi = stablehlo.constant dense<5> : S\n"
        "%r = stablehlo.clamp %lo, %x, %hi : (S, T, S) -> T",
        lambda x: np.clip(x, x.dtype.type(1), x.dtype.type(5)),
        INTS,
    ),
    *compares(),
    f("count_leading_zeros", 1, ints(lambda d, x: 8 * d.itemsize
      - (x % (1 << (8 * d.itemsize))).bit_length()), INTS),
    f("divide", 2, np.divide, FLOATS),
    f("divide", 2, ints(quotient), INTS),
    f("floor", 1, wide(np.floor), FLOATS),
    Case("is_finite", "%r = stablehlo.is_finite %x : (T) -> R", np.isfinite, FLOATS, "i1"),
    f("maximum", 2, maximum, ALL),
    f("minimum", 2, minimum, ALL),
    Case("chlo.mulhi", '%r = "chlo.mulhi"(%x, %y) : (T, T) -> T',
         ints(lambda d, x, y: x * y >> 8 * d.itemsize), INTS),
    f("multiply", 2, np.multiply, ALL),
    f("negate", 1, np.negative, FLOATS + INTS),
    f("not", 1, np.invert, (*INTS, "i1")),
    f("or", 2, np.bitwise_or, (*INTS, "i1")),
    f("popcnt", 1, ints(lambda d, x: (x % (1 << (8 * d.itemsize))).bit_count()), INTS),
    f("power", 2, ints(power), INTS),
    f("remainder", 2, fmod, FLOATS),
    f("remainder", 2, ints(rest), INTS),
    f("round_nearest_afz", 1, away, FLOATS),
    f("round_nearest_even", 1, wide(np.rint), FLOATS),
    Case(
        "select",
        "%c = stablehlo.compare NE, %x, %y : (T, T) -> P\n"
        "%r = stablehlo.select %c, %x, %z : P, T",
        lambda x, y, z: np.where(x != y, x, z),
        ALL,
    ),
    Case(
        "select",
        "%c = stablehlo.constant dense<false> : tensor<i1>\n"
        "%r = stablehlo.select %c, %x, %z : tensor<i1>, T",
        lambda x, z: z,
        ALL,
    ),
    f("shift_left", 2, ints(shift("left")), INTS),
    f("shift_right_arithmetic", 2, ints(shift("arithmetic")), INTS),
    f("shift_right_logical", 2, ints(shift("logical")), INTS),
    f("sign", 1, sign, FLOATS),
    f("sign", 1, np.sign, SIGNED),
    f("sqrt", 1, wide(np.sqrt), FLOATS),
    f("subtract", 2, np.subtract, FLOATS + INTS),
    f("xor", 2, np.bitwise_xor, (*INTS, "i1")),
]  # fmt: skip

MATH: dict[str, tuple[str, int, Callable[..., np.ndarray]]] = {
    "stablehlo.atan2": ("stablehlo", 2, np.arctan2),
    "stablehlo.cbrt": ("stablehlo", 1, np.cbrt),
    "stablehlo.cosine": ("stablehlo", 1, np.cos),
    "stablehlo.exponential": ("stablehlo", 1, np.exp),
    "stablehlo.exponential_minus_one": ("stablehlo", 1, np.expm1),
    "stablehlo.log": ("stablehlo", 1, np.log),
    "stablehlo.log_plus_one": ("stablehlo", 1, np.log1p),
    "stablehlo.logistic": ("stablehlo", 1, lambda x: 1 / (1 + np.exp(-x))),
    "stablehlo.power": ("stablehlo", 2, np.power),
    "stablehlo.rsqrt": ("stablehlo", 1, lambda x: 1 / np.sqrt(x)),
    "stablehlo.sine": ("stablehlo", 1, np.sin),
    "stablehlo.tan": ("stablehlo", 1, np.tan),
    "stablehlo.tanh": ("stablehlo", 1, np.tanh),
    "chlo.bessel_i1e": ("chlo", 1, special.i1e),
    "chlo.cosh": ("chlo", 1, np.cosh),
    "chlo.digamma": ("chlo", 1, special.digamma),
    "chlo.lgamma": ("chlo", 1, None),  # SciPy is less exact beside 1 and 2
    "chlo.polygamma": ("chlo", 2, None),
    "chlo.sinh": ("chlo", 1, np.sinh),
    "chlo.tan": ("chlo", 1, np.tan),
    "chlo.zeta": ("chlo", 2, None),
    "chlo.erf": ("chlo", 1, np.vectorize(math.erf, otypes=[np.float64])),
    "chlo.erf_inv": ("chlo", 1, None),
    "chlo.erfc": ("chlo", 1, np.vectorize(math.erfc, otypes=[np.float64])),
}


def program(cases: list[Case], dtype: str) -> tuple[str, list[str]]:
    """One fusion with a result per case."""
    body, results = [], []
    for i, case in enumerate(cases):
        out = case.result or dtype
        text = case.text.replace("stablehlo.constant dense<", "stablehlo.constant @")
        for name in ("r", "c", "lo", "hi"):
            text = text.replace(f"%{name} ", f"%{name}{i} ").replace(f"%{name},", f"%{name}{i},")
        kinds = {"T": tensor("n", dtype), "R": tensor("n", out), "P": tensor("n", "i1"),
                 "S": tensor("", dtype)}  # fmt: skip
        words = text.replace("stablehlo.constant @", "stablehlo.constant dense<")
        for short, full in kinds.items():
            for end in ("\n", ",", ")", ""):
                for begin in (" ", "("):
                    target = begin + short + end
                    if end or words.endswith(target):
                        words = words.replace(target, begin + full + end)
        body.append(words)
        results.append(f"r{i}: n {out}")
    operands = [f"{v}: n {dtype}" for v in "xyz"]
    return fusion_text("loop", operands, "\n".join(body), results), results


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal bits, any NaN equal to any NaN."""
    if got.dtype.kind in "iub":
        return got == want
    a, b = got.astype(np.float64), want.astype(np.float64)
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


@pytest.mark.parametrize("dtype", ALL)
def test_op_matches_numpy(dtype: str) -> None:
    cases = [c for c in CASES if dtype in c.dtypes]
    text, _ = program(cases, dtype)
    emitted = plan_of(emit, text)
    for size in SIZES:
        x, y, z = (sample((size,), dtype, seed, special=True) for seed in (1, 2, 3))
        with np.errstate(all="ignore"):
            wants = [
                c.want(
                    *(v for v, name in zip((x, y, z), "xyz", strict=True) if f"%{name}" in c.text)
                )
                for c in cases
            ]
        for case, got, want in zip(cases, run(emitted, [x, y, z], {"n": size}), wants, strict=True):
            ok = same(got, want)
            bad = np.argmin(ok) if size else 0
            assert ok.all(), (case.text, size, x[bad], y[bad], z[bad], got[bad], want[bad])


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pair_of_special_values(dtype: str) -> None:
    values = special_values(dtype)
    x, y = (v.reshape(-1).copy() for v in np.meshgrid(values, values))
    names = {"add", "divide", "maximum", "minimum", "remainder", "multiply", "subtract", "compare"}
    cases = [c for c in CASES if c.op in names and dtype in c.dtypes]
    emitted = plan_of(emit, program(cases, dtype)[0])
    with np.errstate(all="ignore"):
        for case, got in zip(cases, run(emitted, [x, y, y]), strict=True):
            want = case.want(x, y)
            ok = same(got, want)
            bad = np.argmin(ok)
            assert ok.all(), (case.text, x[bad], y[bad], got[bad], want[bad])


def conversion(x: np.ndarray, target: str) -> np.ndarray:
    """stablehlo.convert with saturation, in float64 and Python integers."""
    kind = DTYPES[target]
    if target == "i1":
        return x != 0
    if kind.kind in "iu" and (x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16):
        info = np.iinfo(kind)
        out = [0 if math.isnan(v) else info.max if v >= info.max else info.min if v <= info.min
               else int(v) for v in x.astype(np.float64).tolist()]  # fmt: skip
        return np.array(out, kind)
    if kind.kind in "iu":
        return x.astype(kind)
    if kind in (ml_dtypes.bfloat16, np.float16):
        return np.array([_round(float(v), kind) for v in x.astype(object)], kind)
    return x.astype(kind)


def _round(v: float, kind: np.dtype) -> float:
    """Round to nearest even without the double rounding of a detour through f32."""
    if not math.isfinite(v) or v == 0:
        return v
    if abs(v) > 1e300:
        return math.copysign(math.inf, v)
    info = ml_dtypes.finfo(kind)
    exponent = math.frexp(v)[1]
    low = max(exponent - info.nmant - 1, round(math.log2(float(info.smallest_subnormal))))
    rounded = math.ldexp(float(round(math.ldexp(v, -low))), low)
    return math.copysign(math.inf if abs(rounded) > float(info.max) else rounded, v)


@pytest.mark.parametrize("source", ALL)
def test_convert_saturates_and_rounds_once(source: str) -> None:
    body = [
        f"%r{i} = stablehlo.convert %x : ({tensor('n', source)}) -> {tensor('n', t)}"
        for i, t in enumerate(ALL)
    ]
    results = [f"r{i}: n {t}" for i, t in enumerate(ALL)]
    emitted = plan_of(emit, fusion_text("loop", [f"x: n {source}"], "\n".join(body), results))
    special = special_values(source)
    edges = np.array([127.5, 128, -129, 255.9, 65504, 65519.9, 65520, 3.4e38, 2.0**31, 2.0**63,
                      -(2.0**63), 2.0**64, 1e30, 33.0625, 257.0, 1 + 2.0**-8 + 2.0**-30,
                      1.00390625 + 2.0**-40, 2.0**-149, 2.0**-25, 2.0**-24 * 1.5])  # fmt: skip
    with np.errstate(all="ignore"):
        if DTYPES[source].kind in "iub":
            edges = np.array([v for v in edges if 0 <= v < 128])
        x = np.concatenate([special, edges.astype(DTYPES[source]), sample((30,), source)])
        for target, got in zip(ALL, run(emitted, [x]), strict=True):
            want = conversion(x, target)
            ok = same(got, want)
            bad = np.argmin(ok)
            assert ok.all(), (source, target, x[bad], got[bad], want[bad])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("exponent", "mantissa"), [(5, 10), (8, 7), (5, 2), (4, 3), (11, 52), (3, 1)]
)
def test_reduce_precision(dtype: str, exponent: int, mantissa: int) -> None:
    t = tensor("n", dtype)
    body = f"%r = stablehlo.reduce_precision %x, format = e{exponent}m{mantissa} : {t}"
    emitted = plan_of(emit, fusion_text("loop", [f"x: n {dtype}"], body, [f"r: n {dtype}"]))
    x = np.concatenate([special_values(dtype), sample((40,), dtype)])
    (got,) = run(emitted, [x])
    info = ml_dtypes.finfo(DTYPES[dtype])
    m, e = min(mantissa, info.nmant), min(exponent, info.bits - info.nmant - 1)
    for v, r in zip(x.astype(np.float64), got.astype(np.float64), strict=True):
        assert r == pytest.approx(_reduced(float(v), e, m, float(info.tiny)), nan_ok=True, rel=0), v


def _reduced(v: float, e: int, m: int, tiny: float) -> float:
    """XLA's reduce-precision: nearest even, overflow to infinity, denormals to zero."""
    if math.isnan(v):
        return math.nan if m else math.inf
    if not math.isfinite(v) or v == 0:
        return v
    bias = 2 ** (e - 1) - 1
    scale = math.frexp(v)[1] - 1
    step = max(scale, round(math.log2(tiny))) - m
    r = v
    if -1000 < step < 900:
        units = round(math.ldexp(v, -step))
        r = math.ldexp(units, step) if step + units.bit_length() < 1024 else math.inf
    if r == 0 or math.frexp(r)[1] - 1 < 1 - bias:
        keeps = bias == round(-math.log2(tiny)) + 1  # the type's own exponent: denormals stay
        return r if keeps else math.copysign(0.0, v)
    return math.copysign(math.inf, v) if math.frexp(r)[1] - 1 > bias else r


@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "i32"), ("bf16", "i16"), ("f16", "ui16"), ("f64", "i64"), ("i8", "ui8")],
)
def test_bitcast_keeps_bits_both_ways(source: str, target: str) -> None:
    s, t = tensor("n", source), tensor("n", target)
    body = f"""%r = stablehlo.bitcast_convert %x : ({s}) -> {t}
    %q = stablehlo.bitcast_convert %r : ({t}) -> {s}"""
    text = fusion_text("loop", [f"x: n {source}"], body, [f"r: n {target}", f"q: n {source}"])
    bits = np.random.default_rng(0).integers(0, 256, 37 * DTYPES[source].itemsize).astype(np.uint8)
    x = bits.view(DTYPES[source])
    r, q = run(plan_of(emit, text), [x])
    assert r.tobytes() == q.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_math_ops_go_through_the_vector_math(dtype: str) -> None:
    t = tensor("n", dtype)
    body, results, wants = [], [], []
    for i, (name, (_, arity, want)) in enumerate(MATH.items()):
        if want is None:
            continue
        args = ", ".join(["%x", "%y"][:arity])
        arrow = f"{t} -> {t}" if name.startswith("chlo") else t
        body.append(f"%r{i} = {name} {args} : {arrow}")
        results.append(f"r{i}: n {dtype}")
        wants.append((name, arity, want))
    emitted = plan_of(emit, fusion_text("loop", [f"x: n {dtype}", f"y: n {dtype}"],
                                        "\n".join(body), results))  # fmt: skip
    eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    for size in (0, 1, 17, 100):
        x = np.abs(sample((size,), dtype, 1)) + DTYPES[dtype].type(0.125)
        y = sample((size,), dtype, 2)
        for (name, arity, want), got in zip(wants, run(emitted, [x, y]), strict=True):
            exact = want(*(v.astype(np.float64) for v in (x, y)[:arity]))
            np.testing.assert_allclose(got.astype(np.float64), exact, rtol=8 * eps, atol=8 * eps * 1e-3,
                                       err_msg=name)  # fmt: skip


def test_every_row_of_the_table_is_exercised() -> None:
    tested = {c.op if "." in c.op else f"stablehlo.{c.op}" for c in CASES} | set(MATH)
    tested |= {"stablehlo.convert", "stablehlo.reduce_precision", "stablehlo.bitcast_convert"}
    assert tested == set(SCALAR_OPS)


def test_complex_is_refused_with_its_type() -> None:
    t = "tensor<?xcomplex<f32>>"
    text = fusion_text("loop", ["x: n f32"], "", ["x: n f32"]).replace("tensor<?xf32>", t)
    with pytest.raises(UnsupportedError, match="element type complex<f32> is not compiled"):
        plan_of(emit, text)
