"""Functions of floats through `compile`: the errors that docs/coverage.md states, of every type.

`tests/lower/test_math.py` holds the formulas of f32 and f64 to theirs. Here are the functions that
are expanded, and all functions of the narrower types, of every bit pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath as mp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.ir.ops import OPS, names
from shlo_disc.lower.values.math import FUNCTIONS
from tests.lower.test_math import BESIDE_ZEROS, DOUBLE, EXACT, TWO

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
EXPANDED = sorted(names(lambda row: row.ulp is not None))
FORMULAS = sorted(names(lambda row: bool(row.math) and row.math not in TWO))
INFINITE = {"is_inf": np.isinf, "is_neg_inf": np.isneginf, "is_pos_inf": np.isposinf}

_NUMPY = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "sqrt": np.sqrt,
}


def in_double(name: str) -> Callable[[np.ndarray], np.ndarray]:
    row = OPS[name]
    return DOUBLE[row.math] if row.math else _NUMPY[name.rpartition(".")[2]]


@cache
def compiled(element: str) -> shlo_disc.Executable:
    """The functions of one argument in one program: all, or for f32 and f64 the expanded ones."""
    chosen = EXPANDED if element in ("f32", "f64") else EXPANDED + FORMULAS
    kind, truth = f"tensor<?x{element}>", "tensor<?xi1>"
    lines = [f'%{k} = "{name}"(%x) : ({kind}) -> {kind}' for k, name in enumerate(chosen)]
    lines += [f'%{name} = "chlo.{name}"(%x) : ({kind}) -> {truth}' for name in INFINITE]
    lines += [f'%next = "chlo.next_after"(%x, %y) : ({kind}, {kind}) -> {kind}']
    lines += [f'%square = "chlo.square"(%x) : ({kind}) -> {kind}']
    results = [*(str(k) for k in range(len(chosen))), *INFINITE, "next", "square"]
    kinds = [kind] * len(chosen) + [truth] * len(INFINITE) + [kind] * 2
    values, types = ", ".join(f"%{r}" for r in results), ", ".join(kinds)
    body = "\n".join(lines)
    return shlo_disc.compile(
        f"func.func public @main(%x: {kind}, %y: {kind}) -> ({types}) {{\n{body}\n"
        f"return {values} : {types}\n}}"
    )


def functions(element: str, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    chosen = EXPANDED if element in ("f32", "f64") else EXPANDED + FORMULAS
    results = [np.asarray(r) for r in compiled(element)(x, y)]
    return dict(zip([*chosen, *INFINITE, "next_after", "square"], results, strict=True))


def bound(name: str, element: str) -> float:
    if element in ("f16", "bf16"):
        return 0.51
    return (OPS[name].ulp or FUNCTIONS[OPS[name].math].ulp)[element == "f64"]


def problems(name: str, element: str, x: np.ndarray, got: np.ndarray, exact: np.ndarray) -> str:
    """What is wrong with results `got` of a function whose true values are `exact`, in float64."""
    dtype, limits = DTYPES[element], ml_dtypes.finfo(DTYPES[element])
    wide, want = got.astype(np.float64), exact.astype(dtype).astype(np.float64)
    special = ~np.isfinite(want) | ~np.isfinite(wide)
    same = (wide == want) | (np.isnan(wide) & np.isnan(want))
    signs = np.isnan(want) | (np.signbit(wide) == np.signbit(want))
    size = np.abs(exact)
    if OPS[name].math in BESIDE_ZEROS:
        size = np.maximum(size, BESIDE_ZEROS[OPS[name].math](x.astype(np.float64)))
    _, exponent = np.frexp(np.maximum(size, float(limits.tiny)))
    unit = np.ldexp(float(limits.eps), exponent - 1)
    error = np.where(special, 0.0, np.abs(wide - exact) / unit)
    wrong = ~np.where(special, same, (error <= bound(name, element)) & signs)
    if not wrong.any():
        return ""
    k = int(np.where(wrong, error, 0).argmax()) if error[wrong].max() > 0 else int(wrong.argmax())
    return f"{name} of {element} {x[k]!r}: {got[k]!r}, not {exact[k]!r}: {error[k]} ULP"


def exact_ones(element: str, x: np.ndarray, y: np.ndarray, got: dict[str, np.ndarray]) -> None:
    for name, of in INFINITE.items():
        np.testing.assert_array_equal(got[name], of(x.astype(np.float64)), err_msg=name)
    squares = got["square"].astype(np.float64)
    np.testing.assert_array_equal(squares, (x * x).astype(np.float64))
    bits = np.dtype(f"u{x.itemsize}")
    want = np.nextafter(x, y)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got["next_after"]), ~number)
    np.testing.assert_array_equal(got["next_after"][number].view(bits), want[number].view(bits))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@np.errstate(all="ignore")
def test_every_number_of_16_bits(element: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[element])
    y = np.random.default_rng(0).permutation(x)
    got = functions(element, x, y)
    wide = x.astype(np.float64)
    found = [problems(n, element, x, got[n], in_double(n)(wide)) for n in EXPANDED + FORMULAS]
    assert not [p for p in found if p]
    exact_ones(element, x, y, got)


def spots(element: str) -> np.ndarray:
    """Zeros, ends of domains and their neighbours, the smallest and the largest numbers."""
    limits = np.finfo(DTYPES[element])
    ends = np.array([0, 1, 2, 0.5, limits.smallest_subnormal, limits.tiny, limits.max, np.inf],
                    DTYPES[element])  # fmt: skip
    near = np.concatenate([ends, *(np.nextafter(ends, ends.dtype.type(e)) for e in (0, np.inf))])
    return np.concatenate([near, -near, np.array([np.nan], near.dtype)])


@np.errstate(all="ignore")
def test_expanded_functions_of_f32() -> None:
    rng = np.random.default_rng(0)
    every = np.arange(0, 1 << 32, 16411, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [rng.uniform(-1, 1, 50_000), rng.uniform(1, 3, 20_000), rng.uniform(-10, 10, 20_000)]
    x = np.concatenate([every, *near, spots("f32")], dtype=np.float32)
    y = rng.permutation(x)
    got = functions("f32", x, y)
    found = [problems(n, "f32", x, got[n], in_double(n)(x.astype(np.float64))) for n in EXPANDED]
    assert not [p for p in found if p]
    exact_ones("f32", x, y, got)


@np.errstate(all="ignore")
def test_expanded_functions_of_f64() -> None:
    """Their errors are taken from a difference with mpmath, which float64 holds."""
    rng = np.random.default_rng(0)
    wide = np.exp2(rng.uniform(-60, 1000, 100)) * rng.choice([-1, 1], 100)
    near = [rng.uniform(-1, 1, 150), rng.uniform(1, 3, 80), 1 - np.exp2(rng.uniform(-50, 0, 80))]
    x = np.concatenate([wide, *near, spots("f64")])
    got = functions("f64", x, x[::-1].copy())
    exact_ones("f64", x, x[::-1].copy(), got)
    wrong = []
    for name in EXPANDED:
        want = in_double(name)(x)
        function = getattr(mp, name.rpartition(".")[2])
        for at, g, w in zip(x, got[name], want, strict=True):
            if not np.isfinite(w):
                good = g == w or (np.isnan(g) and np.isnan(w))
            else:
                error = abs(mp.mpf(float(g)) - function(mp.mpf(float(at))))
                unit = float(np.spacing(max(abs(w), np.finfo(np.float64).tiny)))
                good = error <= bound(name, "f64") * unit and np.signbit(g) == np.signbit(w)
            if not good:
                wrong.append((name, at, g, w))
    assert not wrong


POWERS = tuple(0.5 * k for k in range(-9, 10))


@cache
def by_constants(name: str, element: str, constants: tuple[float, ...]) -> shlo_disc.Executable:
    """`name` of x and each constant."""
    kind = f"tensor<?x{element}>"
    body = "\n".join(
        f"%c{k} = stablehlo.constant dense<{y!r}> : tensor<{element}>\n"
        f"%b{k} = stablehlo.dynamic_broadcast_in_dim %c{k}, %n, dims = [] : "
        f"(tensor<{element}>, tensor<1xi32>) -> {kind}\n%{k} = {name} %x, %b{k} : {kind}"
        for k, y in enumerate(constants)
    )
    kinds = ", ".join([kind] * len(constants))
    return shlo_disc.compile(
        f"""func.func public @main(%x: {kind}) -> ({kinds}) {{
          %size = stablehlo.get_dimension_size %x, dim = 0 : ({kind}) -> tensor<i32>
          %n = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
          {body}
          return {", ".join(f"%{k}" for k in range(len(constants)))} : {kinds} }}"""
    )


DIVISORS = (1.0, 2.0, 0.5, -0.25, 1024.0, 2.0**-120, 2.0**120, 0.3, -3.0)


@pytest.mark.parametrize("element", ["f32", "f64"])
@np.errstate(all="ignore")
def test_remainders_of_constants(element: str) -> None:
    """They are exact: those of powers of two, which are products, and the others."""
    rng = np.random.default_rng(0)
    top = {"f32": 127, "f64": 1023}[element]
    wide = np.exp2(rng.uniform(-top, top, 3000)) * rng.choice([-1, 1], 3000)
    halves = rng.integers(-(1 << 26), 1 << 26, 500) * 0.5
    x = np.concatenate([wide, rng.uniform(-9, 9, 500), halves, spots(element)])
    x = x.astype(DTYPES[element])
    for y, got in zip(
        DIVISORS, by_constants("stablehlo.remainder", element, DIVISORS)(x), strict=True
    ):
        want = np.fmod(x.astype(np.float64), np.float64(x.dtype.type(y))).astype(x.dtype)
        np.testing.assert_array_equal(got, want, err_msg=str(y))
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("element", ["f32", "f64"])
@np.errstate(all="ignore")
def test_powers_with_constant_exponents(element: str) -> None:
    """They have the error and the special cases of all powers."""
    rng = np.random.default_rng(0)
    top = {"f32": 150, "f64": 1075}[element]
    random = np.exp2(rng.uniform(-top, top, 300)) * rng.choice([-1, 1], 300, p=[0.2, 0.8])
    # Squares around the ends of the range, and below them.
    ends = np.exp2(-np.arange(1.0, top, 0.77)), np.exp2(np.arange(0.5, top - 25, 0.77))
    x = np.concatenate([random, rng.uniform(0.5, 3, 100), *ends, spots(element)])
    x = x.astype(DTYPES[element])
    limits, most = np.finfo(x.dtype), bound("stablehlo.power", element)
    wrong = []
    for y, got in zip(POWERS, by_constants("stablehlo.power", element, POWERS)(x), strict=True):
        want = np.power(x.astype(np.float64), np.full(x.size, y)).astype(x.dtype)  # as libm
        with mp.workprec(200):
            for at, g, w in zip(x, np.asarray(got), want, strict=True):
                if not np.isfinite(w) or not w:
                    error = 0.0 if g == w or (np.isnan(g) and np.isnan(w)) else np.inf
                else:
                    exact = mp.mpf(float(at)) ** mp.mpf(y)
                    unit = float(np.spacing(max(abs(w), limits.tiny)))
                    error = float(abs(mp.mpf(float(g)) - exact) / unit)
                if error > most or not (np.isnan(w) or np.signbit(g) == np.signbit(w)):
                    wrong.append((y, at, g, w, error))
    assert not wrong


def test_every_function_has_a_bound_that_is_tested() -> None:
    """A row of floats that is not exact to the bit states its error; its function is sampled."""
    stated = names(lambda row: bool(row.math) or row.ulp is not None)
    assert {n.rpartition(".")[2] for n in EXPANDED} == set(_NUMPY)
    assert {OPS[n].math for n in FORMULAS} <= {*DOUBLE} & {*EXACT}
    elementwise = names(lambda row: row.role.value == "elementwise" and "f" in row.types)
    assert elementwise - names(lambda row: row.exact_bits) <= stated


SPECIAL_POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.5, -2.5, 20.0, -88.0, 104.0, 1e-30,
                  1e30, -1e30, np.inf, -np.inf, np.nan]  # fmt: skip
DIFFERENTIABLE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "cos",
    "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "expm1", "lgamma", "log", "log1p",
    "logistic", "rsqrt", "sin", "sinh", "sqrt", "square", "tan", "tanh",
)  # fmt: skip


def test_gradients_are_numbers_where_those_of_jax_are() -> None:
    """Neither has NaN where the other has a number, and both agree."""

    def gradients(x: jax.Array) -> list[jax.Array]:
        return [jax.vmap(jax.grad(getattr(jax.lax, name)))(x) for name in DIFFERENTIABLE]

    x = jnp.array(SPECIAL_POINTS, jnp.float32)
    got, want = (np.array(jit(gradients)(x)) for jit in (shlo_disc.jit, jax.jit))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    number = np.isfinite(want)
    np.testing.assert_allclose(got[number], want[number], rtol=2e-4, atol=1e-20)
    np.testing.assert_array_equal(got[~number], want[~number])
