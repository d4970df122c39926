"""Vector math against mpmath and float64: stated bounds, special values, every lane count."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from shlo_disc.base.errors import InternalError
from shlo_disc.lower.cpu.builder import CpuBuilder
from shlo_disc.lower.cpu.codegen import Function, compile_functions
from shlo_disc.lower.cpu.machine import Machine, host_machine
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.math import FUNCTIONS, emit_math

mp.mp.prec = 250
TWO = ("atan2", "polygamma", "pow", "zeta")
"""Functions of two arguments."""
SLOW = ("bessel_i1e", "polygamma", "zeta")
"""Functions of which mpmath computes a hundred values a second."""
ONE = sorted(set(FUNCTIONS) - set(TWO))
_CALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_compiled: dict[tuple[str, str, int, Machine], Function] = {}


def zeta(s: mp.mpf, q: mp.mpf) -> mp.mpf:
    """Hurwitz' function; mpmath's has so many digits behind the point, not of the result."""
    below = max(0, int(mp.ceil(-q)))
    with mp.workprec(int(250 + max(0, s * mp.log(q + below, 2)))):
        return +(mp.zeta(s, q + below) + mp.fsum((q + k) ** -s for k in range(below)))


def polygamma(n: mp.mpf, x: mp.mpf) -> mp.mpf:
    if n == 0:
        return mp.digamma(x)
    return (-1) ** int(n + 1) * mp.factorial(n) * zeta(n + 1, x)


EXACT: dict[str, Callable[..., mp.mpf]] = {
    "atan2": mp.atan2,
    "bessel_i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "cos": mp.cos,
    "cosh": mp.cosh,
    "digamma": mp.digamma,
    "erf": mp.erf,
    "erf_inv": mp.erfinv,
    "erfc": mp.erfc,
    "exp": mp.exp,
    "expm1": mp.expm1,
    "lgamma": lambda x: mp.re(mp.loggamma(x)),
    "log": mp.log,
    "log1p": mp.log1p,
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "polygamma": polygamma,
    "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sin": mp.sin,
    "sinh": mp.sinh,
    "sqrt": mp.sqrt,
    "tan": mp.tan,
    "tanh": mp.tanh,
    "zeta": zeta,
}
DOUBLE: dict[str, Callable[..., np.ndarray]] = {
    "bessel_i1e": lambda x: np.copysign(special.i1e(x), x),
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    # NaN at poles, as XLA has it
    "digamma": lambda x: np.where((x <= 0) & (x == np.floor(x)), np.nan, special.digamma(x)),
    "erf": special.erf,
    "erf_inv": lambda x: np.copysign(special.erfinv(x), x),
    "erfc": special.erfc,
    "exp": np.exp,
    "expm1": np.expm1,
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x)),
    "log": np.log,
    "log1p": np.log1p,
    "logistic": special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _digamma_terms(x: np.ndarray) -> np.ndarray:
    return np.maximum(1, np.maximum(special.digamma(1 - x), np.abs(np.pi / np.tan(np.pi * x))))


BESIDE_ZEROS: dict[str, Callable[..., np.ndarray]] = {
    "digamma": lambda x: np.where(x < 0, _digamma_terms(x), 0),
    "lgamma": lambda x: np.where(x < 0, np.maximum(1, special.gammaln(-x)), 0),
    "polygamma": lambda n, x: np.where(n == 0, BESIDE_ZEROS["digamma"](x),
                                       special.factorial(n) * BESIDE_ZEROS["zeta"](n + 1, x)),
    "zeta": lambda s, q: np.where(q < 0, special.zeta(s, q - np.floor(q))
                                  + special.zeta(s, np.ceil(q) - q), 0),
}  # fmt: skip
"""The sizes of which `Function.beside_zeros` says that the error is counted in them, in float64."""


def last_places(name: str, exact: np.ndarray, args: Sequence[np.ndarray]) -> np.ndarray:
    """The unit of errors of results `exact`, which are of the type of the function's results."""
    with np.errstate(all="ignore"):
        size = BESIDE_ZEROS.get(name, lambda *_: 0.0)(*(a.astype(np.float64) for a in args))
        size = np.maximum(np.abs(exact), np.asarray(size).astype(exact.dtype))
    return np.spacing(size).astype(np.float64)


def function(name: str, element: str, lanes: int, machine: Machine) -> Callable[..., None]:
    """A kernel over whole vectors (or scalars): result, then arguments."""
    if (name, element, lanes, machine) not in _compiled:
        b = CpuBuilder(machine)
        memories = [b.memref(i, element) for i in range(3 if name in TWO else 2)]
        with b.loop(b.lo, b.hi, max(1, lanes)) as loop:
            if lanes:
                args = [b.vector_load(m, loop.index, lanes) for m in memories[1:]]
            else:
                args = [b.load(m, loop.index) for m in memories[1:]]
            result = emit_math(name, args)
            if lanes:
                b.vector_store(result, memories[0], loop.index)
            else:
                b.store(result, memories[0], loop.index)
        text, _ = b.finish()
        (_compiled[name, element, lanes, machine],) = compile_functions([text])
    return _CALL(_compiled[name, element, lanes, machine].address)


def ours(
    name: str, *args: np.ndarray, lanes: int = 16, machine: Machine | None = None
) -> np.ndarray:
    element = "f32" if args[0].dtype == np.float32 else "f64"
    count, step = args[0].size, max(1, lanes)
    padded = [np.ones(-(-count // step) * step, args[0].dtype) for _ in range(len(args) + 1)]
    for array, value in zip(padded[1:], args, strict=True):
        array[:count] = value
    pointers = (ctypes.c_void_p * len(padded))(*(a.ctypes.data for a in padded))
    call = function(name, element, lanes, machine or host_machine())
    call(pointers, None, 0, len(padded[0]), None)
    return padded[0][:count]


def test_every_function_has_a_bound_and_a_reference():
    assert set(FUNCTIONS) == set(EXACT)
    with pytest.raises(InternalError, match="gamma"):
        emit_math("gamma", [KernelBuilder().constant(1.0, "f32")])


@pytest.mark.parametrize("name", ONE)
def test_f32_over_all_bit_patterns(name):
    """Every 4099th: denormals, huge arguments, infinities and NaNs are among them."""
    x = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        exact = DOUBLE[name](x.astype(np.float64))
        want = exact.astype(np.float32)
    got = ours(name, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite])
    regular = np.isfinite(want)
    signs = regular | infinite
    np.testing.assert_array_equal(np.signbit(got[signs]), np.signbit(want[signs]))
    unit = last_places(name, want[regular], [x[regular]])
    errors = np.abs(got[regular].astype(np.float64) - exact[regular]) / unit
    worst = int(errors.argmax())
    assert errors[worst] <= FUNCTIONS[name].ulp[0], (
        x[regular][worst],
        got[regular][worst],
        errors[worst],
    )


def test_erfc_of_f32_at_ten_million_numbers():
    """Every 53rd from 2^-30 to where only denormals are left, of both signs."""
    ends = np.array([2.0**-30, 9.2], np.float32).view(np.uint32)
    size = np.arange(*ends, 53, dtype=np.uint32).view(np.float32)
    for x in (size, -size):
        exact = special.erfc(x.astype(np.float64))
        unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
        errors = np.abs(ours("erfc", x).astype(np.float64) - exact) / unit
        worst = int(errors.argmax())
        assert errors[worst] <= FUNCTIONS["erfc"].ulp[0], (x[worst], errors[worst])
        tail = np.abs(x) > 1
        assert errors[tail].max() <= 4.01


def spread(low: float, high: float, signed: bool = True):
    """Exponents uniform in [low, high]."""

    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        values = np.exp2(rng.uniform(low, high, count))
        return values * rng.choice([-1.0, 1.0], count) if signed else values

    return draw


def between(low: float, high: float):
    return lambda rng, count: rng.uniform(low, high, count)


def whole(low: int, high: int):
    return lambda rng, count: rng.integers(low, high, count, endpoint=True).astype(np.float64)


ANGLES = [(between(-10, 10),), (spread(-60, 31),), (spread(29, 1023),)]
F64 = {
    "atan2": [(spread(-30, 30), spread(-30, 30)), (between(-2, 2), between(-2, 2))],
    "bessel_i1e": [(between(-14, 14),), (spread(-60, 10),)],
    "cbrt": [(spread(-1074, 1023),)],
    "cos": ANGLES,
    "cosh": [(between(-711, 711),), (spread(-60, 3),)],
    "digamma": [(between(0, 8),), (between(-20, 0),), (spread(-1000, 1000, signed=False),)],
    "erf": [(between(-6, 6),), (spread(-60, 0),)],
    "erf_inv": [(between(-1, 1),), (spread(-60, -1),)],
    "erfc": [(between(-6, 26),), (spread(-60, 0),)],
    "exp": [(between(-708, 709.7),), (spread(-60, 0),)],
    "expm1": [(between(-40, 709),), (spread(-60, 1),)],
    "lgamma": [(between(0, 9),), (between(-20, 0),), (spread(-1000, 1000, signed=False),)],
    "log": [(spread(-1074, 1023, signed=False),), (between(0.5, 2),)],
    "log1p": [(between(-0.99, 4),), (spread(-60, -1),), (spread(0, 1000, signed=False),)],
    "logistic": [(between(-708, 40),), (spread(-60, 2),)],
    "polygamma": [
        (whole(0, 30), between(0, 12)),
        (whole(0, 12), between(-12, 0)),
        (whole(0, 99), spread(-2, 10, signed=False)),
    ],
    "pow": [
        (spread(-80, 80, signed=False), between(-12, 12)),
        (between(0.9, 1.1), between(-4e3, 4e3)),
        (spread(-1074, 1023, signed=False), between(-0.9, 0.9)),
    ],
    "rsqrt": [(spread(-1074, 1023, signed=False),)],
    "sin": ANGLES,
    "sinh": [(between(-711, 711),), (spread(-60, 3),)],
    "sqrt": [(spread(-1074, 1023, signed=False),)],
    "tan": ANGLES,
    "tanh": [(between(-22, 22),), (spread(-60, 0),)],
    "zeta": [
        (between(1, 40), between(0, 20)),
        (whole(2, 12), between(-12, 0)),
        (between(1, 30), spread(-5, 20, signed=False)),
    ],
}


def check(name: str, dtype: type, *args: np.ndarray) -> None:
    got = ours(name, *args, lanes=8)
    exact = [EXACT[name](*map(mp.mpf, map(float, t))) for t in zip(*args, strict=True)]
    tiny, huge = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    bound = FUNCTIONS[name].ulp[dtype is np.float64]
    with np.errstate(over="ignore"):
        rounded = np.array([float(e) for e in exact]).astype(dtype)
    units = last_places(name, rounded, args)
    for g, e, unit, *at in zip(got, exact, units, *args, strict=True):
        if tiny <= abs(e) < huge:
            error = abs(mp.mpf(float(g)) - e) / unit
            assert error <= bound, (at, g, mp.nstr(e, 20), float(error))


@pytest.mark.parametrize("name", sorted(F64))
def test_f64_at_random_points(name):
    for number, draws in enumerate(F64[name]):
        rng = np.random.default_rng(number)
        count = 40 if name in SLOW else 150
        check(name, np.float64, *(draw(rng, count) for draw in draws))


@pytest.mark.parametrize("name", TWO)
def test_f32_pairs_at_random_points(name):
    for number, draws in enumerate(F64[name][:2]):
        rng = np.random.default_rng(number)
        scale = 4.0 if name == "pow" else 1.0
        count = 40 if name in SLOW else 200
        args = [
            (draw(rng, count) / s).astype(np.float32)
            for draw, s in zip(draws, (1, scale), strict=True)
        ]
        check(name, np.float32, *args)


def near_multiples(bits: int, top: int) -> list[float]:
    """Numbers with `bits` bits unusually near a multiple of pi/2, by continued fractions."""
    found = []
    for e in range(0, top, 7):
        ratio = mp.pi / 2 / mp.mpf(2) ** e
        p0, q0, p1, q1, x = 0, 1, 1, 0, ratio
        for _ in range(60):
            a = int(mp.floor(x))
            p0, p1, q0, q1 = p1, a * p1 + p0, q1, a * q1 + q0
            if p1 >= 1 << bits:
                break
            if p1 > 1 << (bits - 20):
                found.append(float(p1) * 2.0**e)
            if x == a:
                break
            x = 1 / (x - a)
    return found


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_next_to_multiples_of_half_pi(name):
    check(name, np.float64, np.array(near_multiples(53, 960)))
    check(name, np.float32, np.array(near_multiples(24, 100), np.float32))


INF, NAN = np.inf, np.nan
SPECIAL = {
    "bessel_i1e": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (-INF, -0.0), (NAN, NAN)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (1e4, INF)],
    "digamma": [(0.0, NAN), (-0.0, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "lgamma": [(0.0, INF), (-0.0, INF), (1.0, 0.0), (2.0, 0.0), (-3.0, INF), (INF, INF),
               (-INF, INF), (NAN, NAN)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (-1e4, -INF)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (27.0, 3.0)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "erf_inv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (NAN, NAN)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (1e4, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN), (NAN, NAN)],
    "logistic": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN), (NAN, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (1e4, 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(name, dtype):
    x, want = np.array(SPECIAL[name], dtype).T
    got = ours(name, x)
    np.testing.assert_array_equal(got, want)
    signs = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[signs]), np.signbit(want[signs]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["atan2", "pow"])
def test_special_pairs_as_libm(name, dtype):
    tiny = float(np.finfo(dtype).smallest_subnormal)
    big = 2.0**60 + 2.0**40
    half = [0.0, tiny, 0.5, 1.0, 1.5, 2.0, 3.0, 1e6 + 1, big, float(np.finfo(dtype).max), INF]
    values = np.array([*half, *(-v for v in half), NAN], dtype)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = (np.power if name == "pow" else np.arctan2)(x, y)
    got = ours(name, x, y)
    rtol = 3e-7 if dtype == np.float32 else 1e-15
    np.testing.assert_allclose(got, want, rtol=rtol, atol=2 * tiny)
    signs = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[signs]), np.signbit(want[signs]))


SPECIAL_PAIRS = {
    "polygamma": [(0, 0, NAN), (0, INF, INF), (1, 0, INF), (1, -2, INF), (2, -0.0, NAN),
                  (2, -3, NAN), (-1, 2, NAN), (1.5, 2, NAN), (NAN, 2, NAN), (2, NAN, NAN),
                  (INF, 2, NAN), (1, -INF, INF)],
    "zeta": [(1, 2, INF), (1, -2, INF), (0.5, 2, NAN), (2, 0, INF), (2, -3, INF), (3, -0.0, NAN),
             (3, -1, NAN), (2.5, -0.5, NAN), (NAN, 2, NAN), (2, NAN, NAN), (INF, 2, NAN),
             (2, INF, NAN), (2, -INF, INF), (-2, -3, INF), (-2, 0, INF), (0, -0.0, INF),
             (0, -1, INF), (-2, -INF, INF), (-3, -3, NAN), (-2, 0.5, NAN), (-INF, -2, NAN),
             (INF, -2, NAN), (-2.5, -2, NAN)],
}  # fmt: skip
"""Two arguments and the result, as XLA has it."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(SPECIAL_PAIRS))
def test_special_pairs_as_xla(name, dtype):
    x, y, want = np.array(SPECIAL_PAIRS[name], dtype).T.copy()
    np.testing.assert_array_equal(ours(name, x, y), want)


def test_denormal_results_are_gradual():
    x = np.linspace(-746, -700, 500)
    with np.errstate(all="ignore"):
        want = np.exp(x)
    step = float(np.finfo(np.float64).smallest_subnormal)
    got = ours("exp", x, lanes=8)
    assert (np.abs(got - want) <= np.maximum(step, 2e-16 * want)).all()
    assert (got[want > 0] > 0).any()


@pytest.mark.parametrize("lanes", [0, 4, 64])
def test_any_number_of_lanes_gives_the_same_bits(lanes):
    x = np.concatenate([np.linspace(-20, 20, 60), [1e30, 3e5, -0.0, NAN]]).astype(np.float32)
    for name in ("exp", "tanh", "sin", "erf", "log1p", "erfc"):
        np.testing.assert_array_equal(ours(name, x, lanes=lanes), ours(name, x, lanes=16))


def test_without_avx512_results_are_the_same():
    x = np.concatenate([np.linspace(-103, 89, 1000), [INF, -INF, NAN]]).astype(np.float32)
    names = ("exp", "logistic", "erfc")
    before = [ours(name, x) for name in names]
    for name, want in zip(names, before, strict=True):
        got = ours(name, x, machine=Machine())
        np.testing.assert_array_max_ulp(got[:-3], want[:-3], 1)
        np.testing.assert_array_equal(got[-3:], want[-3:])
