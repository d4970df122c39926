"""The table of operations on complex numbers; `magnitude` and `error` are of the absolute value."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.fuzz.facts import Facts, is_complex
from tests.fuzz.generate import Draft, Scope
from tests.fuzz.ops import Maker, Real, each, exact, some_axis
from tests.fuzz.program import Value

INSIDE = "(0.9 * $0 / (1 + jnp.abs($0)))"
"""A number inside the unit circle; it moves at most twice as far as $0."""


def complexes(v: Value) -> bool:
    return is_complex(v.dtype)


def _tame(v: Value) -> bool:
    """Rounding and special values are those of every formula."""
    return not v.facts.special


def _within(lipschitz: float, magnitude: float) -> Real:
    return lambda f: Facts(magnitude, lipschitz * f.error, None)


def _entire(f: Facts) -> Facts | None:
    """Functions whose value and derivative are at most e**|z|."""
    if f.magnitude > 5:
        return None
    top = math.exp(f.magnitude)
    return Facts(top, 1.2 * top * f.error, None)


def _same(f: Facts) -> Facts:
    return f


def _square(f: Facts) -> Facts:
    return Facts(f.magnitude**2, 2.5 * f.magnitude * f.error, None)


UNARY: dict[str, tuple[Real, float]] = {
    "jnp.conj($0)": (_same, 0),
    "-$0": (_same, 0),
    "$0 * (0.5 - 2j)": (lambda f: Facts(2.1 * f.magnitude, 2.1 * f.error, None), 4),
    "$0 + 1j": (lambda f: Facts(f.magnitude + 1, f.error, None), 1),
    "jnp.square($0)": (_square, 4),
    "$0 ** 3": (lambda f: Facts(f.magnitude**3, 4 * f.magnitude**2 * f.error, None), 8),
    "jnp.exp($0)": (_entire, 24),
    "jnp.expm1($0)": (_entire, 24),
    "jnp.sin($0)": (_entire, 24),
    "jnp.cosh($0)": (_entire, 24),
    f"jnp.tanh({INSIDE})": (_within(8, 2), 32),
    f"jnp.tan({INSIDE})": (_within(8, 2), 32),
    f"jnp.log(2 + {INSIDE})": (_within(4, 2), 32),
    f"jnp.log1p({INSIDE})": (_within(24, 3), 64),
    f"jnp.sqrt(2 + {INSIDE})": (_within(2, 2), 16),
    f"lax.rsqrt(2 + {INSIDE})": (_within(2, 1), 16),
    f"lax.logistic({INSIDE})": (_within(4, 2), 32),
    f"(2 + {INSIDE}) ** (0.5 + 1j)": (_within(8, 4), 64),
    f"jnp.arctan({INSIDE})": (_within(24, 3), 64),
    f"jnp.arcsinh({INSIDE})": (_within(8, 2), 64),
}
BINARY: dict[str, tuple[Real, float]] = {
    "$0 + $1": (lambda a, b: Facts(a.magnitude + b.magnitude, a.error + b.error, None), 1),
    "$0 - $1": (lambda a, b: Facts(a.magnitude + b.magnitude, a.error + b.error, None), 1),
    "$0 * $1": (
        lambda a, b: Facts(
            a.magnitude * b.magnitude,
            1.5 * (a.magnitude * b.error + b.magnitude * a.error + a.error * b.error),
            None,
        ),
        4,
    ),
    "$0 / (2 + jnp.abs($1))": (
        lambda a, b: Facts(a.magnitude, a.error + a.magnitude * b.error, None),
        8,
    ),
    f"$1 / (2 + {INSIDE})": (
        lambda a, b: Facts(b.magnitude, b.error + 2 * b.magnitude * a.error, None),
        16,
    ),
}


def unary(s: Scope) -> Draft | None:
    x = s.pick(lambda v: complexes(v) and _tame(v))
    text = s.rng.choice(list(UNARY))
    return Draft(text, [x], each(*UNARY[text]))


def _pair(s: Scope, wanted: Callable[[Value], bool]) -> list[Value]:
    a = s.pick(lambda v: wanted(v) and _tame(v))
    return [a, s.pick(lambda v: (v.dtype, v.shapes) == (a.dtype, a.shapes) and _tame(v))]


def binary(s: Scope) -> Draft | None:
    pair = _pair(s, complexes)
    text = s.rng.choice(list(BINARY))
    return Draft(text, pair, each(*BINARY[text]))


def from_parts(s: Scope) -> Draft | None:
    pair = _pair(s, lambda v: v.dtype in ("float32", "float64"))

    def real(a: Facts, b: Facts) -> Facts:
        return Facts(a.magnitude + b.magnitude, a.error + b.error, None)

    return Draft("lax.complex($0, $1)", pair, each(real, 0))


def parts(s: Scope) -> Draft | None:
    x = s.pick(lambda v: complexes(v) and _tame(v))
    texts: dict[str, tuple[Real, float]] = {
        "$0.real": (_same, 0),
        "$0.imag": (_same, 0),
        "jnp.abs($0)": (lambda f: Facts(f.magnitude, f.error, None), 4),
        "lax.real($0 * jnp.conj($0))": (_square, 4),
    }
    text = s.rng.choice(list(texts))
    return Draft(text, [x], each(*texts[text]))


def equal(s: Scope) -> Draft | None:
    pair = _pair(s, lambda v: complexes(v) and v.facts.exact)
    return Draft(s.rng.choice(["$0 == $1", "$0 != $1"]), pair, exact(1))


def total(s: Scope) -> Draft | None:
    x = s.pick(lambda v: complexes(v) and _tame(v) and v.rank > 0)
    axis = some_axis(s, x)
    count = max(x.sizes(axis))
    name = s.rng.choice(["jnp.sum", "jnp.cumsum", "jnp.sum", "jnp.mean"])
    if name == "jnp.mean" and min(x.sizes(axis)) == 0:
        return None

    def real(f: Facts) -> Facts:
        most = max(count, 1)
        return Facts(f.magnitude * most, f.error * most, None)

    return Draft(f"{name}($0, axis={axis})", [x], each(real, 2 * count + 2))


def product(s: Scope) -> Draft | None:
    pair = _pair(s, lambda v: complexes(v) and v.rank > 0)
    x = pair[0]
    count = max(x.sizes(-1))
    texts = ["jnp.einsum('...i,...i->...', $0, $1)"]
    if x.rank > 1:
        texts += ["$0 @ jnp.swapaxes($1, -1, -2)", "$0 @ jnp.conj(jnp.swapaxes($1, -1, -2))"]

    def real(a: Facts, b: Facts) -> Facts:
        a, b = s.in_product(a, x.dtype), s.in_product(b, x.dtype)
        found = BINARY["$0 * $1"][0](a, b)
        return Facts(found.magnitude * max(count, 1), found.error * max(count, 1), None)

    return Draft(s.rng.choice(texts), pair, each(real, 4 * count + 4))


def scatter(s: Scope) -> Draft | None:
    x = s.pick(lambda v: complexes(v) and _tame(v) and v.rank > 0 and min(v.sizes(0)) > 0)
    first, last = s.rng.randrange(min(x.sizes(0))), s.rng.randrange(-min(x.sizes(0)), 0)
    text = f"$0.at[jnp.array([{first}, {last}])].add($0[0] * 1j)"
    return Draft(text, [x], each(lambda f: Facts(3 * f.magnitude, 3 * f.error, None), 6))


def transform(s: Scope) -> Draft | None:
    """A Fourier transform: n numbers are added, inverse ones are divided by n after that."""
    kinds = ("float32", "float64", "complex64", "complex128")
    x = s.pick(lambda v: v.dtype in kinds and _tame(v) and v.rank > 0)
    axis = some_axis(s, x, 1)
    count = max(x.sizes(axis))
    size = f"$0.shape[{axis}]"
    texts = [f"fft($0, axis={axis})", f"ifft($0, axis={axis}, n={size} + 3)"]
    if complexes(x):
        texts.append(f"irfft($0, axis={axis}, n={size})")
        texts.append(f"hfft($0, axis={axis}, n=2 * {size} - 1)")
    else:
        texts.append(f"rfft($0, axis={axis})")
        texts.append(f"rfft($0, axis={axis}, n={size} // 2 + 1)")
    if x.rank > 1 and min(*x.sizes(-1), *x.sizes(-2)) > 0:
        texts.append("fft2($0, norm='ortho')")
        count = max(count, *(a * b for a, b in zip(x.sizes(-1), x.sizes(-2), strict=True)))

    def real(f: Facts) -> Facts:
        most = 2 * count + 3
        return Facts(f.magnitude * most, f.error * most, None)

    return Draft(f"jnp.fft.{s.rng.choice(texts)}", [x], each(real, 8))


TABLE: dict[Maker, float] = {
    from_parts: 6,
    parts: 4,
    unary: 8,
    binary: 8,
    equal: 1,
    total: 4,
    product: 4,
    scatter: 2,
    transform: 3,
}
