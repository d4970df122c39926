"""Writes `shlo_disc/lower/values/math/tables.py`: minimax polynomials of the vector math.

    python tools/minimax.py > shlo_disc/lower/values/math/tables.py

Each polynomial is the best weighted one by Remez' exchange algorithm on a dense Chebyshev grid in
60-digit arithmetic (mpmath). Coefficients are rounded to the element type one by one, lowest power
first, and the rest is fitted again each time, so that rounding costs next to no accuracy.

Source: E. Remez, "Sur la détermination des polynômes d'approximation de degré donnée" (1934);
N. Brisebarre, S. Chevillard, "Efficient polynomial L-infinity approximations" (2007) for the
reason to round one by one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """`f(x) ~ sum(c[i] * x**i, i < terms)` on [low, high]; the error is weighted by `weight`."""

    name: str
    meaning: str
    dtype: str
    f: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    terms: int


def _round(value: mp.mpf, dtype: str) -> mp.mpf:
    number = float(value)
    return mp.mpf(float(np.float32(number)) if dtype == "f32" else number)


def remez(
    points: Sequence[mp.mpf],
    values: Sequence[mp.mpf],
    weights: Sequence[mp.mpf],
    first: int,
    terms: int,
) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients of x**first ... x**(first + terms - 1), and the largest weighted error."""
    count = len(points)
    chosen = [round((count - 1) * k / terms) for k in range(terms + 1)]
    best: tuple[list[mp.mpf], mp.mpf] = ([], mp.inf)
    for _ in range(30):
        matrix = mp.matrix(terms + 1, terms + 1)
        right = mp.matrix(terms + 1, 1)
        for row, k in enumerate(chosen):
            for i in range(terms):
                matrix[row, i] = weights[k] * points[k] ** (first + i)
            matrix[row, terms] = (-1) ** row
            right[row] = weights[k] * values[k]
        found = mp.lu_solve(matrix, right)
        solution = [found[i] for i in range(terms)]
        errors = []
        for x, v, w in zip(points, values, weights, strict=True):
            p = mp.mpf(0)
            for c in reversed(solution):
                p = p * x + c
            errors.append(w * (v - p * x**first))
        largest = max(abs(e) for e in errors)
        if largest < best[1]:
            best = solution, largest
        if largest <= abs(found[terms]) * mp.mpf("1.01"):
            break
        # One extremum of every run of equal signs, then as many neighbours as needed.
        runs: list[int] = []
        for k, e in enumerate(errors):
            if runs and (errors[runs[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[runs[-1]]):
                    runs[-1] = k
            else:
                runs.append(k)
        while len(runs) > terms + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        if len(runs) < terms + 1:
            break
        chosen = runs
    return best


def solve(fit: Fit) -> tuple[list[float], float]:
    """Rounded coefficients and the log2 of the weighted error."""
    count = 24 * fit.terms
    points = [
        (fit.low + fit.high) / 2 - (fit.high - fit.low) / 2 * mp.cos(mp.pi * (k + 0.5) / count)
        for k in range(count)
    ]
    values, weights = [fit.f(x) for x in points], [fit.weight(x) for x in points]
    # Far terms need no refitting: their rounding is below the error. Of many terms the last ones
    # vanish around 0, where the system of equations becomes singular.
    refit = fit.terms if fit.dtype == "f32" and fit.terms <= 12 else min(fit.terms, 3)
    fixed: list[mp.mpf] = []
    for k in range(refit):
        found, _ = remez(points, values, weights, k, fit.terms - k)
        fixed.append(_round(found[0], fit.dtype))
        values = [v - fixed[-1] * x**k for v, x in zip(values, points, strict=True)]
        rest = found[1:]
    if refit < fit.terms:
        found, _ = remez(points, values, weights, refit, fit.terms - refit)
        rest = [_round(c, fit.dtype) for c in found]
    coefficients = fixed + (rest if refit < fit.terms else [])
    worst = mp.mpf(0)
    for x, w in zip(points, weights, strict=True):
        p = mp.mpf(0)
        for c in reversed(coefficients):
            p = p * x + c
        worst = max(worst, abs(w * (fit.f(x) - p)))
    return [float(c) for c in coefficients], float(mp.log(worst, 2))


def _tail(f: Function, lead: Function, power: int, low_series: Function) -> Function:
    """(f(x) - lead(x)) / x**power, by a series near 0."""

    def apply(x: mp.mpf) -> mp.mpf:
        if abs(x) < mp.mpf(10) ** -8:
            return low_series(x)
        return (f(x) - lead(x)) / x**power

    return apply


def _odd(f: Function, low: mp.mpf) -> Function:
    """(f(x) - x) / x**3 as a function of z = x**2; `low` is its value at 0."""

    def apply(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return low if x < mp.mpf(10) ** -12 else (f(x) - x) / x**3

    return apply


def fits() -> list[Fit]:
    """Everything in the tables."""
    half = mp.log(2) / 2
    small = mp.mpf(10) ** -9
    exp_tail = _tail(mp.exp, lambda r: 1 + r, 2, lambda r: mp.mpf(1) / 2 + r / 6)
    log_tail = _tail(
        lambda f: mp.log(1 + f), lambda f: f - f * f / 2, 3, lambda f: mp.mpf(1) / 3 - f / 4
    )
    low, high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
    s_max = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
    quarter = (mp.pi / 4) ** 2 * mp.mpf("1.0001")

    def atanh_tail(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        if s < mp.mpf(10) ** -12:
            return mp.mpf(2) / 3
        return (mp.log((1 + s) / (1 - s)) - 2 * s) / s**3

    def atanh_tail5(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        if s < mp.mpf(10) ** -8:
            return mp.mpf(2) / 5 + z * 2 / 7
        return (mp.log((1 + s) / (1 - s)) - 2 * s - 2 * s**3 / 3) / s**5

    def cos_tail(z: mp.mpf) -> mp.mpf:
        if z < mp.mpf(10) ** -12:
            return mp.mpf(1) / 24
        return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2

    def erf_over(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (2 / mp.sqrt(mp.pi) if x < small else mp.erf(x) / x) - 1

    def scaled_erfc(k: int) -> Function:
        def apply(t: mp.mpf) -> mp.mpf:
            a = k * (1 + t) / (1 - t)
            return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)

        return apply

    def erf_inv_of(w: mp.mpf) -> mp.mpf:
        x = mp.sqrt(-mp.expm1(-w))
        return mp.sqrt(mp.pi) / 2 if x < small else mp.erfinv(x) / x

    def erf_inv_fit(name: str, dtype: str, centre: str, low: str, high: str, terms: int,
                    root: bool) -> Fit:  # fmt: skip
        c = mp.mpf(centre)

        def of(u: mp.mpf) -> mp.mpf:
            v = u + c
            return erf_inv_of(max(mp.mpf(0), v * v if root else v)) - 1

        ends = [mp.sqrt(mp.mpf(e)) if root else mp.mpf(e) for e in (low, high)]
        what = f"{'sqrt(w)' if root else 'w'} - {centre}" if c else "w"
        return Fit(
            name, f"erf_inv(x) / x - 1, u = {what}, w = -log(1 - x^2) in [{low}, {high}]", dtype,
            of, lambda u: 1 / (1 + of(u)), ends[0] - c, ends[1] - c, terms,
        )  # fmt: skip

    out: list[Fit] = []
    for dtype in ("f32", "f64"):
        single = dtype == "f32"

        def pick(a: int, b: int, single: bool = single) -> int:
            return a if single else b

        k, top = (2, mp.mpf("10.1")) if single else (4, mp.mpf("27.3"))
        out += [
            Fit("exp", "(exp(r) - 1 - r) / r^2, |r| <= log(2) / 2", dtype, exp_tail,
                abs, -half * mp.mpf("1.001"), half * mp.mpf("1.001"), pick(5, 11)),
            Fit("log", "(log(1 + f) - f + f^2 / 2) / f^3, 1 + f in [sqrt(1/2), sqrt(2)]", dtype,
                log_tail, lambda f: f * f, low, high, 9) if single else
            Fit("log", "(log((1+s)/(1-s)) - 2s) / s^3, z = s^2", dtype, atanh_tail,
                lambda z: z, mp.mpf(0), s_max**2, 7),
            Fit("sin", "(sin(r) - r) / r^3, z = r^2, r <= pi/4", dtype,
                _odd(mp.sin, mp.mpf(-1) / 6), lambda z: z, mp.mpf(0), quarter, pick(3, 6)),
            Fit("cos", "(cos(r) - 1 + r^2 / 2) / r^4, z = r^2, r <= pi/4", dtype, cos_tail,
                lambda z: z * z, mp.mpf(0), quarter, pick(3, 6)),
            Fit("atan", "(atan(t) - t) / t^3, z = t^2, t <= 1", dtype,
                _odd(mp.atan, mp.mpf(-1) / 3), lambda z: z, mp.mpf(0), mp.mpf(1), pick(9, 20)),
            Fit("erfc", f"(1 + 2a) exp(a^2) erfc(a), t = (a - {k}) / (a + {k}), 0 <= a <= {top}",
                dtype, scaled_erfc(k), lambda t: mp.mpf(1), mp.mpf(-1), (top - k) / (top + k),
                pick(12, 23)),
            Fit("cbrt", "m^(-1/3), m in [1, 2]", dtype, lambda m: m ** (-mp.mpf(1) / 3),
                lambda m: m ** (mp.mpf(1) / 3), mp.mpf(1), mp.mpf(2), 5),
        ]  # fmt: skip
        if single:
            out += [
                Fit("erf_log", "-log(erfc(a)) / a, a <= 4", dtype,
                    lambda a: -mp.log(mp.erfc(a)) / a, lambda a: a * mp.erfc(a) / mp.erf(a),
                    mp.mpf(0), mp.mpf(4), 8),
                erf_inv_fit("erf_inv", dtype, "0", "0", "5", 11, False),
                erf_inv_fit("erf_inv_tail", dtype, "3", "5", "17", 10, True),
            ]  # fmt: skip
        else:
            out += [
                Fit("erf", "erf(x) / x - 1, z = x^2 <= 1.0", dtype, erf_over,
                    lambda z: 1 / (1 + erf_over(z)), mp.mpf(0), mp.mpf(1), 13),
                Fit("log_dd", "(log((1+s)/(1-s)) - 2s - 2s^3/3) / s^5, z = s^2", dtype,
                    atanh_tail5, lambda z: z * z, mp.mpf(0), s_max**2, 7),
                Fit("log_short", "(log((1+s)/(1-s)) - 2s) / s^3, z = s^2, for f32 pow", dtype,
                    atanh_tail, lambda z: z, mp.mpf(0), s_max**2, 5),
                Fit("exp_short", "exp(r), |r| <= log(2) / 2, for f32 pow", dtype,
                    mp.exp, lambda r: mp.exp(-r), -half * mp.mpf("1.001"),
                    half * mp.mpf("1.001"), 7),
                erf_inv_fit("erf_inv", dtype, "1.5", "0", "6.25", 24, False),
                erf_inv_fit("erf_inv_tail", dtype, "3.25", "6.25", "16", 19, True),
                erf_inv_fit("erf_inv_far", dtype, "5", "16", "37", 18, True),
            ]  # fmt: skip
    return out + [fit for dtype in ("f32", "f64") for fit in _special_fits(dtype)]


def _special_fits(dtype: str) -> list[Fit]:
    """Of bessel_i1e, digamma and lgamma."""
    single = dtype == "f32"

    def relative(f: Function) -> Function:
        return lambda x: 1 / abs(f(x))

    def bessel(z: mp.mpf) -> mp.mpf:
        a = mp.sqrt(z)
        return mp.mpf(1) / 2 if a < mp.mpf(10) ** -20 else mp.besseli(1, a) / a

    def bessel_far(v: mp.mpf) -> mp.mpf:
        u = (v + 1) / (2 * split)
        if u < mp.mpf("0.001"):  # its asymptotic series; the exponential is below 10^-400
            term, total = mp.mpf(1), mp.mpf(0)
            for k in range(1, 24):
                total += term
                term *= -(4 - (2 * k - 1) ** 2) * u / (8 * k)
            return total / mp.sqrt(2 * mp.pi)
        a = 1 / u
        return mp.sqrt(a) * mp.exp(-a) * mp.besseli(1, a)

    def digamma_far(u: mp.mpf) -> mp.mpf:
        if u < mp.mpf(10) ** -4:
            return sum(mp.bernoulli(2 * k) / (2 * k) * u ** (k - 1) for k in range(1, 16))
        x = 1 / mp.sqrt(u)
        return (mp.log(x) - mp.digamma(x) - 1 / (2 * x)) / u

    def lgamma_far(u: mp.mpf) -> mp.mpf:
        if u < mp.mpf(10) ** -4:
            return sum(
                mp.bernoulli(2 * k) / (2 * k * (2 * k - 1)) * u ** (k - 1) for k in range(1, 16)
            )
        x = 1 / mp.sqrt(u)
        return x * (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)

    def of_result(result: Function, power: int) -> Function:
        """The weight of a term of x^-power that is added to `result`, by u = x^-2."""

        def weight(u: mp.mpf) -> mp.mpf:
            x = 1 / mp.sqrt(u + mp.mpf(10) ** -40)
            return x**-power / result(x)

        return weight

    split = mp.mpf(8 if single else 12)
    zero = mp.findroot(mp.digamma, mp.mpf("1.4616"))

    def digamma(t: mp.mpf) -> mp.mpf:
        return mp.digamma(t + 2) / (t + 2 - zero)

    def lgamma(t: mp.mpf) -> mp.mpf:
        x = t + mp.mpf(float.fromhex("0x1.b33334p+0"))
        return mp.loggamma(x) / ((x - 1) * (x - 2))

    one = mp.mpf(1)
    return [
        Fit("bessel_i1", f"I1(a) / a, z = a^2, a <= {split}", dtype, bessel, relative(bessel),
            mp.mpf(0), split**2, 10 if single else 23),
        Fit("bessel_i1e_far", f"sqrt(a) exp(-a) I1(a), v = {2 * split} / a - 1, a >= {split}",
            dtype, bessel_far, relative(bessel_far), -one, one, 9 if single else 23),
        Fit("digamma", "digamma(x) / (x - x0), t = x - 2, 1 <= x <= 3", dtype, digamma,
            relative(digamma), -one, one, 15 if single else 33),
        Fit("digamma_far", "(log(x) - digamma(x) - 1 / (2x)) x^2, u = x^-2, x >= 6", dtype,
            digamma_far, of_result(mp.digamma, 2), mp.mpf(0), one / 36, 2 if single else 7),
        Fit("lgamma", "lgamma(x) / (x - 1) / (x - 2), t = x - 1.7, |t| <= 1", dtype, lgamma,
            relative(lgamma), -one, one, 19 if single else 36),
        Fit("lgamma_far", "x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2), u = x^-2, "
            "x >= 7.7", dtype, lgamma_far, of_result(mp.loggamma, 1), mp.mpf(0),
            one / mp.mpf("59.29"), 2 if single else 6),
    ]  # fmt: skip


def main() -> None:
    """Print the module."""
    print('"""Minimax polynomials, lowest power first; written by `tools/minimax.py`."""\n')
    print("from __future__ import annotations\n")
    print("# fmt: off")
    print("TABLES: dict[tuple[str, str], tuple[float, ...]] = {")
    for fit in fits():
        coefficients, error = solve(fit)
        print(f"    # {fit.meaning}:\n    # weighted error 2^{error:.1f}")
        print(f'    ("{fit.name}", "{fit.dtype}"): (')
        numbers = " ".join(f"{c!r}," for c in coefficients)
        print(textwrap.fill(numbers, 100, initial_indent=" " * 8, subsequent_indent=" " * 8))
        print("    ),")
    print("}")
    print('"""(name, dtype) to coefficients; the comment says of which function."""')


if __name__ == "__main__":
    main()
