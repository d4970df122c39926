"""Vector math: every function within its stated ULP of an exact reference, and C99's specials."""

from __future__ import annotations

import ctypes
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from shlo_disc.lower.cpu.codegen import compile_functions
from shlo_disc.lower.cpu.text import Text
from shlo_disc.lower.cpu.vector_math import ULP, emit_math

mp.mp.prec = 200
LANES = {"f32": 16, "f64": 8}
DTYPE = {"f32": np.float32, "f64": np.float64}
TWO = {"atan2", "pow"}
FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


@cache
def compiled(name: str, element: str):
    b = Text()
    lanes = LANES[element]
    memories = [b.memref(i, element) for i in range(3 if name in TWO else 2)]
    with b.loop(b.lo, b.hi, lanes) as i:
        args = [b.vector_load(m, i.index, lanes, readonly=True) for m in memories[1:]]
        b.vector_store(emit_math(b, name, args, f"vector<{lanes}x{element}>"), memories[0], i.index)
    text, _ = b.finish()
    return FUNCTION(compile_functions([text])[0])


def ours(name: str, element: str, *args: np.ndarray) -> np.ndarray:
    lanes, dtype = LANES[element], DTYPE[element]
    count = len(args[0])
    padded = [np.ones(-(-count // lanes) * lanes, dtype) for _ in range(len(args) + 1)]
    for array, value in zip(padded[1:], args, strict=True):
        array[:count] = value
    pointers = (ctypes.c_void_p * len(padded))(*(a.ctypes.data for a in padded))
    compiled(name, element)(pointers, None, 0, len(padded[0]), None)
    return padded[0][:count]


EXACT = {
    "atan2": mp.atan2,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "cos": mp.cos,
    "erf": mp.erf,
    "erf_inv": mp.erfinv,
    "erfc": mp.erfc,
    "exp": mp.exp,
    "expm1": mp.expm1,
    "log": mp.log,
    "log1p": mp.log1p,
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sin": mp.sin,
    "tan": mp.tan,
    "tanh": mp.tanh,
}


def signed(low: float, high: float):
    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.choice([-1.0, 1.0], count) * np.exp2(rng.uniform(low, high, count))

    return draw


def positive(low: float, high: float):
    return lambda rng, count: np.exp2(rng.uniform(low, high, count))


def uniform(low: float, high: float):
    return lambda rng, count: rng.uniform(low, high, count)


DOMAINS = {
    ("atan2", "f32"): [(signed(-30, 30), signed(-30, 30))],
    ("atan2", "f64"): [(signed(-30, 30), signed(-30, 30)), (signed(-2, 2), signed(-2, 2))],
    ("cbrt", "f32"): [(signed(-149, 127),)],
    ("cbrt", "f64"): [(signed(-1074, 1023),)],
    ("cos", "f32"): [(uniform(-100, 100),), (signed(0, 126),)],
    ("cos", "f64"): [(uniform(-100, 100),), (signed(0, 60),), (signed(19, 1020),)],
    ("erf", "f32"): [(uniform(-5, 5),), (signed(-60, 0),)],
    ("erf", "f64"): [(uniform(-6, 6),), (signed(-60, 0),)],
    ("erf_inv", "f32"): [(uniform(-1, 1),), (signed(-60, -1),)],
    ("erf_inv", "f64"): [(uniform(-1, 1),), (signed(-60, -1),)],
    ("erfc", "f32"): [(uniform(-4, 9),)],
    ("erfc", "f64"): [(uniform(-6, 26),)],
    ("exp", "f32"): [(uniform(-87, 88.7),), (signed(-40, 0),)],
    ("exp", "f64"): [(uniform(-708, 709.7),), (signed(-60, 0),)],
    ("expm1", "f32"): [(uniform(-20, 88),), (signed(-40, 0),)],
    ("expm1", "f64"): [(uniform(-40, 709),), (signed(-60, 1),)],
    ("log", "f32"): [(positive(-149, 128),), (uniform(0.5, 2),)],
    ("log", "f64"): [(positive(-1074, 1023),), (uniform(0.5, 2),)],
    ("log1p", "f32"): [(uniform(-0.99, 4),), (signed(-40, -1),), (positive(0, 120),)],
    ("log1p", "f64"): [(uniform(-0.99, 4),), (signed(-60, -1),), (positive(0, 1000),)],
    ("logistic", "f32"): [(uniform(-87, 20),)],
    ("logistic", "f64"): [(uniform(-700, 40),)],
    ("pow", "f32"): [(positive(-20, 20), uniform(-6, 6)), (uniform(0.9, 1.1), uniform(-500, 500))],
    ("pow", "f64"): [
        (positive(-80, 80), uniform(-12, 12)), (uniform(0.9, 1.1), uniform(-4e3, 4e3))],
    ("rsqrt", "f32"): [(positive(-126, 127),)],
    ("rsqrt", "f64"): [(positive(-1022, 1023),)],
    ("sin", "f32"): [(uniform(-100, 100),), (signed(-60, 126),)],
    ("sin", "f64"): [(uniform(-100, 100),), (signed(-60, 60),), (signed(19, 1020),)],
    ("tan", "f32"): [(uniform(-10, 10),), (signed(-60, 126),)],
    ("tan", "f64"): [(uniform(-10, 10),), (signed(19, 1020),)],
    ("tanh", "f32"): [(uniform(-10, 10),), (signed(-60, 0),)],
    ("tanh", "f64"): [(uniform(-23, 23),), (signed(-60, 0),)],
}  # fmt: skip


def ulps(got: np.ndarray, exact: list, dtype: type) -> np.ndarray:
    errors = []
    for g, e in zip(got, exact, strict=True):
        unit = float(np.spacing(np.abs(dtype(float(e)))))
        errors.append(float(abs(mp.mpf(float(g)) - e) / unit) if np.isfinite(g) else np.inf)
    return np.array(errors)


def test_every_function_is_measured_in_both_types():
    assert set(DOMAINS) == {(name, element) for name in ULP for element in ("f32", "f64")}


@pytest.mark.parametrize(("name", "element"), sorted(DOMAINS))
def test_within_the_stated_ulp(name: str, element: str):
    dtype = DTYPE[element]
    for number, draws in enumerate(DOMAINS[name, element]):
        rng = np.random.default_rng(number)
        with np.errstate(over="ignore"):
            args = [draw(rng, 400).astype(dtype) for draw in draws]
        exact = [EXACT[name](*map(mp.mpf, map(float, row))) for row in zip(*args, strict=True)]
        largest, least = float(np.finfo(dtype).max), float(np.finfo(dtype).tiny)
        keep = np.array([least <= abs(e) < largest for e in exact])
        got = ours(name, element, *args)
        errors = ulps(got[keep], [e for e, k in zip(exact, keep, strict=True) if k], dtype)
        worst = int(errors.argmax())
        at = [a[keep][worst] for a in args]
        assert errors[worst] <= ULP[name][element == "f64"], (at, got[keep][worst])


INF, NAN = np.inf, np.nan
SPECIAL = {
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (27.0, 3.0)],
    "cos": [(0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "erf_inv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (NAN, NAN)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN),
              (1e4, INF), (-1e4, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN),
            (-INF, NAN), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN),
              (-INF, NAN), (NAN, NAN)],
    "logistic": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN), (NAN, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (1e4, 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(name: str, element: str):
    keys, want = np.array(SPECIAL[name], DTYPE[element]).T
    got = ours(name, element, keys)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_special_pairs_as_libm(name: str, element: str):
    values = np.array([0.0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, INF, -INF, NAN], DTYPE[element])
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = (np.power if name == "pow" else np.arctan2)(x, y)
    got = ours(name, element, x, y)
    np.testing.assert_allclose(got, want, rtol=3e-7 if element == "f32" else 1e-15)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def test_denormal_results_are_gradual():
    x = np.linspace(-103, -87.5, 64).astype(np.float32)
    want = np.exp(x.astype(np.float64)).astype(np.float32)
    step = np.finfo(np.float32).smallest_subnormal
    assert np.abs(ours("exp", "f32", x) - want).max() <= step
    assert (want[:40] > 0).all()
