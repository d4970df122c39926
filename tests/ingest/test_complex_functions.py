"""Functions of complex numbers: the errors that docs/complex.md states, and special values.

Against mpmath with 60 digits, and against NumPy, which follows C99 Annex G, for special values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.ingest.complex_numbers.arithmetic import BINARY, UNARY

REFERENCE: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "atan2": lambda z, w: -1j * mp.log((w + 1j * z) / mp.sqrt(w * w + z * z)),
    "cbrt": lambda z: mp.exp(mp.log(z) / 3),
    "cosine": mp.cos,
    "divide": lambda z, w: z / w,
    "exponential": mp.exp,
    "exponential_minus_one": mp.expm1,
    "log": mp.log,
    "log_plus_one": lambda z: mp.log(1 + z),
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "multiply": lambda z, w: z * w,
    "power": lambda z, w: mp.exp(w * mp.log(z)),
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "sign": lambda z: z / abs(z),
    "sine": mp.sin,
    "sqrt": mp.sqrt,
    "tan": mp.tan,
    "tanh": mp.tanh,
}

BOUNDS: dict[str, tuple[float, float, float | None, float | None]] = {
    # of the norm in f32 and f64, of each component in f32 and f64 (None: not bounded)
    "abs": (1.5, 1.5, 1.5, 1.5),
    "atan2": (1, 100, None, None),
    "cbrt": (2, 2, 5, 4),
    "cosine": (2, 2, 4, 4),
    "divide": (1, 2, 1, None),
    "exponential": (2, 2, 3, 3),
    "exponential_minus_one": (3, 3, None, None),
    "log": (1.5, 1.5, 2, 2.5),
    "log_plus_one": (2, 2, 3, 5),
    "logistic": (3, 3, None, None),
    "multiply": (1.5, 1.5, None, None),
    "power": (1, 500, 1, None),
    "rsqrt": (1, 2, 1, 4),
    "sign": (1.5, 1.5, 2.5, 2.5),
    "sine": (2, 2, 4, 4),
    "sqrt": (1, 1.5, 1, 2),
    "tan": (3, 4, 6, 6),
    "tanh": (3, 4, 6, 6),
}
"""In units of the last place; docs/complex.md says the same."""


def test_every_function_has_a_reference_and_bounds():
    names = {name.removeprefix("stablehlo.") for name in (*UNARY, *BINARY)} | {"abs"}
    assert names - {"maximum", "minimum"} == set(REFERENCE) == set(BOUNDS)


@functools.cache
def functions(dtype: str) -> shlo_disc.Executable:
    """All functions, of two arrays, in the order of REFERENCE."""
    part = "f32" if dtype == "complex64" else "f64"
    kind = f"tensor<?xcomplex<{part}>>"
    lines, results, kinds = [], [], []
    for name in REFERENCE:
        real = f"tensor<?x{part}>"
        if name == "abs":
            lines.append(f"%{name} = stablehlo.abs %z : ({kind}) -> {real}")
        else:
            operands = "%z, %w" if f"stablehlo.{name}" in BINARY else "%z"
            lines.append(f"%{name} = stablehlo.{name} {operands} : {kind}")
        results.append(f"%{name}")
        kinds.append(real if name == "abs" else kind)
    text = (
        f"func.func @main(%z: {kind}, %w: {kind}) -> ({', '.join(kinds)}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {', '.join(results)} : {', '.join(kinds)}\n}}"
    )
    return shlo_disc.compile(text)


def evaluate(z: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    """Every function of z (and w), by name."""
    return dict(zip(REFERENCE, functions(z.dtype.name).run_numpy([z, w]), strict=True))


def points(dtype: str, count: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Arguments by the kind of function: of any magnitude, and where exponentials are finite."""
    rng = np.random.default_rng(seed)
    angles = np.exp(1j * rng.uniform(-np.pi, np.pi, (2, count)))
    most = 18 if dtype == "complex64" else 150
    any_size = angles * 10 ** rng.uniform(-most, most, (2, count))
    skewed = any_size.real * 10.0 ** rng.integers(-9, 1, (2, count)) + 1j * any_size.imag
    unit = angles * (1 + 10 ** rng.uniform(-8, 0, (2, count)) * rng.choice([-1, 1], (2, count)))
    small = angles * 10 ** rng.uniform(-6, 1.5, (2, count))
    poles = 1j * np.pi * (rng.integers(-3, 4, (2, count)) + 0.5) + small * 1e-3
    algebraic = np.concatenate([any_size, skewed, unit, small], 1)
    return {
        "algebraic": tuple(algebraic.astype(dtype)),
        "exponential": tuple(np.concatenate([small, small * 2, unit, poles], 1).astype(dtype)),
    }


EXPONENTIAL = {
    "cosine", "exponential", "exponential_minus_one", "log_plus_one", "logistic", "power", "sine",
    "tan", "tanh", "atan2",
}  # fmt: skip


def errors(name: str, dtype: str, count: int, seed: int = 0) -> tuple[float, float]:
    """(of the norm, of the worst component) in ULP, where results are normal numbers."""
    group = points(dtype, count, seed)["exponential" if name in EXPONENTIAL else "algebraic"]
    got = evaluate(*group)[name]
    two = f"stablehlo.{name}" in BINARY
    form = np.finfo(dtype)
    norm = component = 0.0
    for k in range(len(got)):
        z = [mp.mpc(complex(v[k])) for v in group[: 1 + two]]
        want = mp.mpc(REFERENCE[name](*z))
        size = abs(want)
        if not 1e3 * float(form.tiny) < size < float(form.max) / 10:
            continue
        have = mp.mpc(complex(got[k]))
        norm = max(norm, float(abs(have - want) / size) / float(form.eps))
        for a, b in ((have.real, want.real), (have.imag, want.imag)):
            if abs(b) > 1e3 * float(form.tiny):
                spacing = float(np.spacing(form.dtype.type(abs(b))))
                component = max(component, float(abs(a - b)) / spacing)
    return norm, component


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_errors_are_within_the_stated_bounds(name, dtype):
    with mp.workdps(60):
        norm, component = errors(name, dtype, 12)
    wide = dtype == "complex128"
    assert norm <= BOUNDS[name][wide]
    bound = BOUNDS[name][2 + wide]
    assert bound is None or component <= bound


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-30, 3e30, np.inf, -np.inf, np.nan, 1e-40, 88.9, -103.0]
ANNEX_G = {
    "abs": np.abs,
    "cosine": np.cos,
    "exponential": np.exp,
    "log": np.log,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _kinds(x: np.ndarray) -> np.ndarray:
    """0 for zeros, 1 for other numbers, 2 for infinities, 3 for NaN."""
    return np.select([np.isnan(x), np.isinf(x), x == 0], [3, 2, 0], 1)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_special_values_are_those_of_annex_g(dtype):
    z = np.array([complex(a, b) for a in EDGES for b in EDGES], dtype)
    got = evaluate(z, z)
    wild = ~np.isfinite(z.real) & ~np.isfinite(z.imag)
    for name, function in ANNEX_G.items():
        with np.errstate(all="ignore"):
            want = function(z)
        # Annex G leaves a sign open beside NaN, and for most arguments without a direction.
        is_open = wild | np.isnan(want.real) | np.isnan(want.imag)
        for part in ("real", "imag"):
            have, right = getattr(got[name], part), getattr(want, part)
            np.testing.assert_array_equal(_kinds(have), _kinds(right), err_msg=f"{name}.{part}")
            signed = ~is_open & ~np.isnan(right)
            np.testing.assert_array_equal(np.signbit(have)[signed], np.signbit(right)[signed])


INF, NAN = np.inf, np.nan
QUOTIENTS = [
    # numerator, denominator, real and imaginary part by Annex G.5.1
    ((1, 1), (0.0, 0.0), (INF, INF)),
    ((-1, 2), (0.0, -0.0), (-INF, INF)),
    ((1, -1), (-0.0, 0.0), (-INF, INF)),
    ((NAN, 1), (0.0, 0.0), (NAN, INF)),
    ((0, 0), (0.0, 0.0), (NAN, NAN)),
    ((INF, 1), (1, 1), (INF, -INF)),
    ((1, INF), (-1, 1), (INF, -INF)),
    ((INF, NAN), (2, 0), (INF, NAN)),
    ((1, 1), (INF, 1), (0.0, 0.0)),
    ((1, 1), (INF, NAN), (0.0, 0.0)),
    ((1, -1), (-INF, INF), (-0.0, 0.0)),
    ((INF, INF), (INF, INF), (NAN, NAN)),
    ((1, NAN), (1, 1), (NAN, NAN)),
]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_quotients_by_zero_and_with_infinities(dtype):
    z, w, want = (np.array([complex(*row[k]) for row in QUOTIENTS], dtype) for k in range(3))
    got = evaluate(z, w)["divide"]
    for row, have, right in zip(QUOTIENTS, got, want, strict=True):
        np.testing.assert_array_equal([have.real, have.imag], [right.real, right.imag], str(row))
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got.real[zeros]), np.signbit(want.real[zeros]))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_nothing_overflows_on_the_way(dtype):
    """Huge and denormal arguments of functions whose results are ordinary numbers."""
    form = np.finfo(dtype)
    huge, tiny = float(form.max) * 0.5, float(form.smallest_subnormal) * 3
    z = np.array([complex(a, b) for a in (huge, -tiny) for b in (huge, -huge, tiny)], dtype)
    got = evaluate(z, z)
    with mp.workdps(60):
        for k, number in enumerate(z):
            exact = mp.mpc(complex(number))
            for name, bound in (("log", 2), ("sqrt", 2), ("sign", 2), ("abs", 2)):
                want = mp.mpc(REFERENCE[name](exact))
                error = abs(mp.mpc(complex(got[name][k])) - want) / abs(want)
                small = abs(want) < float(form.tiny)  # a denormal result
                assert small or error <= bound * float(form.eps), (name, number)
    np.testing.assert_allclose(got["divide"], 1, rtol=2 * float(form.eps))


def test_powers_of_zero():
    z = np.zeros(4, np.complex64)
    w = np.array([0, 2, 1 + 1j, 0.5], np.complex64)
    np.testing.assert_array_equal(evaluate(z, w)["power"], [1, 0, 0, 0])


def test_poles_of_rsqrt():
    z = np.array([0, complex(INF, 1), complex(1, -INF), complex(NAN, INF)], np.complex128)
    got = evaluate(z, z)["rsqrt"]
    assert got[0].real == INF
    np.testing.assert_array_equal(got[1:], 0)
    np.testing.assert_array_equal(np.signbit(got[1:].imag), [True, False, True])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_both_parts_of_roots_of_unlike_parts(dtype):
    """The small part of a root is right however small it is; it may be denormal."""
    form = np.finfo(dtype)
    sizes = [float(form.max), float(form.tiny), 1.0, float(form.eps) * float(form.tiny), 1e-12]
    sizes += [float(np.sqrt(form.tiny))]
    z = np.array([complex(sign * a, b) for a in sizes for b in sizes for sign in (1, -1)], dtype)
    got = evaluate(z, z)["sqrt"]
    with mp.workdps(60):
        for number, have in zip(z, got, strict=True):
            want = mp.sqrt(mp.mpc(complex(number)))
            for part, exact in ((have.real, want.real), (have.imag, want.imag)):
                spacing = max(float(form.eps) * abs(exact), mp.mpf(float(form.smallest_subnormal)))
                assert abs(mp.mpf(float(part)) - exact) <= 3 * spacing, (number, have)
