"""The table of operations: each proposes a step over the values of a scope."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.fuzz import facts as known
from tests.fuzz.draws import NothingFits
from tests.fuzz.facts import (
    Facts,
    is_bool,
    is_complex,
    is_float,
    is_signed,
    is_unsigned,
    join,
    rounded,
)
from tests.fuzz.generate import CALLS, Draft, Rule, Scope
from tests.fuzz.program import Value

Real = Callable[..., Facts | None]
Maker = Callable[[Scope], Draft | None]


def each(real: Real, roundings: float = 1.0) -> Rule:
    """Every result is the rounded value of `real`."""

    def rule(environment, names, types):
        found = real(*(environment[n] for n in names))
        if found is None:
            return None
        results = [rounded(dtype, found, roundings) for dtype, _ in types]
        return None if None in results else results

    return rule


def moved(*which: int) -> Rule:
    """Every result holds elements of the operands `which` (none named: of all)."""

    def rule(environment, names, types):
        read = [environment[names[i]] for i in which or range(len(names))]
        return [_in_type(dtype, join(*read)) for dtype, _ in types]

    return rule


def _in_type(dtype: str, found: Facts) -> Facts:
    return found if is_float(dtype) else Facts(min(found.magnitude, known.largest(dtype)))


def exact(*results: float) -> Rule:
    """Only of exact operands; the results are integers of these magnitudes."""

    def rule(environment, names, types):
        if not all(environment[n].exact for n in names):
            return None
        bounds = list(results) + [results[-1]] * (len(types) - len(results))
        return [
            Facts(min(bound, known.largest(dtype)))
            for bound, (dtype, _) in zip(bounds, types, strict=True)
        ]

    return rule


def fixed(*results: Facts) -> Rule:
    """Results that do not depend on the facts of operands."""
    return lambda environment, names, types: list(results)


def only_exact(rule: Rule, *which: int) -> Rule:
    """`rule`, when the operands `which` (none named: all) are exact."""

    def guarded(environment, names, types):
        read = [environment[names[i]] for i in which or range(len(names))]
        return rule(environment, names, types) if all(f.exact for f in read) else None

    return guarded


# -- picking --------------------------------------------------------------------------------------


def floats(v: Value) -> bool:
    return is_float(v.dtype) and not is_complex(v.dtype)


def integers(v: Value) -> bool:
    return not is_float(v.dtype) and not is_bool(v.dtype)


def bools(v: Value) -> bool:
    return is_bool(v.dtype)


def numbers(v: Value) -> bool:
    return not is_bool(v.dtype) and not is_complex(v.dtype)


def settled(v: Value) -> bool:
    return v.facts.exact


def some_axis(s: Scope, v: Value, least: int = 0) -> int:
    """An axis whose size is at least `least` at every call."""
    axes = [a for a in range(v.rank) if min(v.sizes(a)) >= least]
    if not axes:
        raise NothingFits
    return s.rng.choice(axes)


def pair(s: Scope, wanted: Callable[[Value], bool], same_type: bool) -> list[Value]:
    """Two values that broadcast against each other at every call by their ranks and sizes."""
    a = s.pick(wanted)
    b = s.pick(lambda v: wanted(v) and (v.dtype == a.dtype or not same_type) and _fits(a, v))
    return [a, b] if s.chance(0.5) else [b, a]


def _fits(a: Value, b: Value) -> bool:
    for axis in range(1, min(a.rank, b.rank) + 1):
        x, y = a.sizes(-axis), b.sizes(-axis)
        if x != y and set(x) != {1} and set(y) != {1}:
            return False
    return True


# -- element-wise ---------------------------------------------------------------------------------


def _bounded(lipschitz: float, magnitude: float) -> Real:
    return lambda f: Facts(magnitude, lipschitz * f.error, None, f.special)


def _growing(lipschitz: float) -> Real:
    return lambda f: Facts(f.magnitude * max(1.0, lipschitz), lipschitz * f.error, None, f.special)


def _exponential(base: float = math.e) -> Real:
    def real(f: Facts) -> Facts | None:
        if f.magnitude > 5:
            return None
        top = base**f.magnitude
        return Facts(top, top * f.error * 1.1, None, f.special)

    return real


def _root(power: float) -> Real:
    return lambda f: Facts(max(1.0, f.magnitude) ** power, f.error**power, None, f.special)


UNARY_FLOAT: dict[str, tuple[Real, float]] = {
    "jnp.tanh($0)": (_bounded(1, 1), 4),
    "jnp.sin($0)": (_bounded(1, 1), 8),
    "jnp.cos($0)": (_bounded(1, 1), 8),
    "jax.nn.sigmoid($0)": (_bounded(0.25, 1), 4),
    "jnp.exp(-jnp.abs($0))": (_bounded(1, 1), 8),
    "jnp.exp($0)": (_exponential(), 16),
    "jnp.exp2($0)": (_exponential(2), 16),
    "jnp.expm1($0)": (_exponential(), 16),
    "jnp.sinh($0)": (_exponential(), 16),
    "jnp.cosh($0)": (_exponential(), 16),
    "jnp.log1p(jnp.abs($0))": (_growing(1), 4),
    "jnp.log(1 + jnp.abs($0))": (_growing(1), 8),
    "jnp.sqrt(jnp.abs($0))": (_root(0.5), 4),
    "jnp.cbrt($0)": (_root(1 / 3), 8),
    "lax.rsqrt(1 + jnp.abs($0))": (_bounded(0.5, 1), 8),
    "lax.erf($0)": (_bounded(1.2, 1), 4),
    "lax.erfc($0)": (_bounded(1.2, 2), 8),
    "jnp.arctan($0)": (_bounded(1, 1.6), 4),
    "jnp.arcsinh($0)": (_growing(1), 8),
    "jnp.arccosh(1.5 + jnp.abs($0))": (
        lambda f: Facts(f.magnitude + 2, f.error, None, f.special),
        8,
    ),
    "jnp.arctanh(0.5 * jnp.tanh($0))": (_bounded(1, 1), 16),
    "jnp.arcsin(0.5 * jnp.tanh($0))": (_bounded(1, 1), 16),
    "jnp.arccos(0.5 * jnp.tanh($0))": (_bounded(1, 3.2), 16),
    "lax.erf_inv(0.5 * jnp.tanh($0))": (_bounded(1, 1), 16),
    "jnp.tan(0.5 * jnp.tanh($0))": (_bounded(1, 1), 16),
    "lax.lgamma(1 + jnp.abs($0))": (
        lambda f: (
            Facts(f.magnitude * 5 + 1, f.error * 5, None, f.special) if f.magnitude < 100 else None
        ),
        16,
    ),
    "lax.digamma(1 + jnp.abs($0))": (_growing(2), 16),
    "jnp.square($0)": (
        lambda f: Facts(
            f.magnitude**2,
            2 * f.magnitude * f.error,
            None if f.grain is None else 2 * f.grain,
            f.special,
        ),
        1,
    ),
    "jax.nn.relu($0)": (lambda f: f, 0),
    "jax.nn.gelu($0)": (_growing(1.2), 16),
    "jax.nn.silu($0)": (_growing(1.2), 16),
    "jax.nn.softplus($0)": (lambda f: Facts(f.magnitude + 1, f.error, None, f.special), 16),
    "jnp.float_power(1 + jnp.abs($0), 0.5)": (_growing(1), 16),
}
EXACT_FLOAT = {
    "jnp.floor($0)": 0,
    "jnp.ceil($0)": 0,
    "jnp.trunc($0)": 0,
    "jnp.round($0)": 0,
    "lax.round($0, lax.RoundingMethod.AWAY_FROM_ZERO)": 0,
    "jnp.sign($0)": 0,
    "jnp.nan_to_num($0, posinf=3.0, neginf=-2.0)": None,
    "lax.reduce_precision($0, 5, 3)": None,
    "jnp.abs($0)": None,
    "-$0": None,
    "jnp.mod($0, 2)": None,
    "lax.rem($0, jnp.full_like($0, 1.5))": None,
    "lax.nextafter(1 + jnp.abs($0), jnp.ones_like($0))": None,
    "jnp.heaviside($0, 0.5)": 1,
}
UNARY_INTEGER = {
    "-$0": None,
    "jnp.abs($0)": None,
    "~$0": None,
    "jnp.sign($0)": 1,
    "lax.population_count($0)": 64,
    "lax.clz($0)": 64,
    "jnp.square($0)": None,
    "$0 ** 3": None,
    "$0 << 1": None,
    "$0 >> 1": None,
}


def unary_float(s: Scope) -> Draft | None:
    x = s.pick(floats)
    text = s.rng.choice(list(UNARY_FLOAT))
    return Draft(text, [x], each(*UNARY_FLOAT[text]))


def unary_exact(s: Scope) -> Draft | None:
    x = s.pick(lambda v: floats(v) and settled(v))
    text = s.rng.choice(list(EXACT_FLOAT))
    grain = EXACT_FLOAT[text]

    def rule(environment, names, types):
        f = environment[names[0]]
        if not f.exact:
            return None
        smooth = text in ("jnp.abs($0)", "-$0")
        if "nan_to_num" in text and f.special:
            return [Facts(max(f.magnitude, 3.0), 0, f.grain)]
        return [
            Facts(
                max(f.magnitude, 1.0) + (0 if smooth else 1),
                0,
                f.grain if smooth or (grain is None and "mod" in text) else grain,
                f.special,
            )
        ]

    return Draft(text, [x], rule)


def unary_integer(s: Scope) -> Draft | None:
    x = s.pick(integers)
    text = s.rng.choice(list(UNARY_INTEGER))
    bound = UNARY_INTEGER[text]
    return Draft(text, [x], exact(float("inf") if bound is None else bound))


def _product(a: Facts, b: Facts) -> Facts | None:
    if (a.special or b.special) and not (a.exact and b.exact):
        return None
    grain = None if a.grain is None or b.grain is None else a.grain + b.grain
    error = a.magnitude * b.error + b.magnitude * a.error + a.error * b.error
    return Facts(a.magnitude * b.magnitude, error, grain, a.special or b.special)


def _sum(a: Facts, b: Facts) -> Facts:
    grain = None if a.grain is None or b.grain is None else max(a.grain, b.grain)
    special = a.special or b.special
    return Facts(a.magnitude + b.magnitude, a.error + b.error, grain, special)


def _either(a: Facts, b: Facts) -> Facts:
    return Facts(
        max(a.magnitude, b.magnitude),
        max(a.error, b.error),
        join(a, b).grain,
        a.special or b.special,
    )


def _quotient(a: Facts, b: Facts) -> Facts | None:
    if (a.special or b.special) and not (a.exact and b.exact):
        return None
    error = a.error + a.magnitude * b.error
    return Facts(a.magnitude, error, None, a.special or b.special)


BINARY_FLOAT: dict[str, tuple[Real, float]] = {
    "$0 + $1": (_sum, 1),
    "$0 - $1": (_sum, 1),
    "$0 * $1": (_product, 1),
    "jnp.maximum($0, $1)": (_either, 0),
    "jnp.minimum($0, $1)": (_either, 0),
    "$0 / (1 + jnp.abs($1))": (_quotient, 2),
    "jnp.arctan2($0, 1 + jnp.abs($1))": (
        lambda a, b: Facts(1.6, a.error + b.error, None, a.special or b.special),
        8,
    ),
    "jnp.hypot($0, $1)": (
        lambda a, b: Facts(
            a.magnitude + b.magnitude, a.error + b.error, None, a.special or b.special
        ),
        8,
    ),
    "jnp.logaddexp($0, $1)": (
        lambda a, b: Facts(
            max(a.magnitude, b.magnitude) + 1, a.error + b.error, None, a.special or b.special
        ),
        16,
    ),
    "(1 + jnp.abs(jnp.tanh($0))) ** jnp.tanh($1)": (
        lambda a, b: Facts(2, a.error + b.error, None, a.special or b.special),
        16,
    ),
    "jnp.where($0 > 0, $0, $1)": (lambda a, b: _either(a, b) if a.exact else None, 0),
}


def binary_float(s: Scope) -> Draft | None:
    x = pair(s, floats, s.chance(0.8))
    text = s.rng.choice([*list(BINARY_FLOAT)[:5] * 3, *BINARY_FLOAT])
    return Draft(text, x, each(*BINARY_FLOAT[text]))


def mixed(s: Scope) -> Draft | None:
    """Operands of different types: JAX converts."""
    x = pair(s, lambda v: True, False)
    text = s.rng.choice(["$0 + $1", "$0 * $1", "jnp.maximum($0, $1)", "jnp.where($0 > $1, $1, $0)"])
    real = {"$0 + $1": _sum, "$0 * $1": _product}.get(text, _either)
    rule = _converting(real)
    return Draft(text, x, only_exact(rule) if "where" in text else rule)


def _converting(real: Real) -> Rule:
    """`real` of operands that are converted to the type of the result first."""

    def rule(environment, names, types):
        dtype = types[0][0]
        operands = [rounded(dtype, environment[n], 1) for n in names]
        if None in operands:
            return None
        if real is _product and any(f.special for f in operands):
            return None  # XLA takes x * converted bool for a selection: infinity times 0 is 0
        found = real(*operands)
        result = found and rounded(dtype, found, 1)
        return [result] if result else None

    return rule


BINARY_INTEGER = {
    "$0 + $1": _sum,
    "$0 - $1": None,
    "$0 * $1": _product,
    "jnp.maximum($0, $1)": _either,
    "jnp.minimum($0, $1)": _either,
    "lax.div($0, $1)": None,
    "lax.rem($0, $1)": None,
    "$0 // $1": None,
    "$0 % $1": None,
    "$0 & $1": None,
    "$0 | $1": None,
    "$0 ^ $1": None,
    "lax.shift_left($0, $1)": None,
    "lax.shift_right_logical($0, $1)": None,
    "lax.shift_right_arithmetic($0, $1)": None,
    "lax.pow($0, jnp.abs($1) & 3)": None,
    "jnp.gcd($0 >> 1, $1 >> 1)": None,  # of the smallest integer JAX's loop does not end
}


def binary_integer(s: Scope) -> Draft | None:
    x = pair(s, integers, True)
    text = s.rng.choice(list(BINARY_INTEGER))
    if text.startswith("lax") and x[0].shapes != x[1].shapes:
        text = "$0 + $1"
    if x[0] is x[1] and any(sign in text for sign in ("div", "rem", "//", "%")):
        text = "$0 * $1"  # XLA since JAX 0.11 takes x / x for 1, at a divisor of zero too
    real = BINARY_INTEGER[text]
    return Draft(text, x, each(real) if real else exact(float("inf")))


def logical(s: Scope) -> Draft | None:
    x = pair(s, bools, True)
    text = s.rng.choice(["$0 & $1", "$0 | $1", "$0 ^ $1", "~$0", "$0 < $1", "$0 == $1"])
    return Draft(text, x[:1] if text == "~$0" else x, exact(1))


def compare(s: Scope) -> Draft | None:
    x = pair(s, settled, True)
    sign = s.rng.choice(["<", "<=", ">", ">=", "==", "!="])
    return Draft(f"$0 {sign} $1", x, exact(1))


def constant(s: Scope) -> Draft | None:
    """With a Python number, a NumPy array or a size of another value."""
    x = s.pick(numbers)
    sign = s.rng.choice(["+", "*", "-"])
    other = s.find(lambda v: v.rank > 0)
    if s.chance(0.35) and other is not None:
        axis = s.rng.randrange(other.rank)
        bound = Facts(max(other.sizes(axis)))
        text, operands = f"$0 {sign} $1.shape[{axis}]", [x, other]
    elif floats(x):
        number = s.rng.choice([0.5, -2.0, 0.25, 3.0, 1.5, 2, 0])
        bound, text, operands = Facts(abs(number) or 1, 0, 2), f"$0 {sign} {number}", [x]
    else:
        number = s.rng.choice([0, 1, 2, 3, 7, 100])
        bound, text, operands = Facts(number or 1), f"$0 {sign} {number}", [x]
    integer = not floats(x)

    def real(*f: Facts) -> Facts | None:
        if integer and sign == "-":
            return Facts(float("inf"))
        return (_product if sign == "*" else _sum)(f[0], bound)

    return Draft(text, operands, each(real))


def is_finite(s: Scope) -> Draft | None:
    x = s.find(lambda v: floats(v) and settled(v))
    text = s.rng.choice(["jnp.isfinite($0)", "jnp.isnan($0)", "jnp.isinf($0)", "jnp.signbit($0)"])
    if x is None:
        return None
    return Draft(text if "signbit" not in text else "jnp.isfinite($0)", [x], exact(1))


def cast(s: Scope) -> Draft | None:
    x = s.pick()
    target = s.rng.choice(s.dtypes)
    text = f"$0.astype('{target}')"
    if is_float(x.dtype) and is_unsigned(target):
        text = f"jnp.abs($0).astype('{target}')"
    source = x.dtype

    def rule(environment, names, types):
        f = environment[names[0]]
        if is_bool(target):
            return [Facts(1)] if f.exact else None
        if is_float(target):
            if is_float(source) and known.bits_of(source) < known.bits_of(target):
                return [f]
            if f.magnitude > known.largest(target) / 2:
                return None
            return None if (r := rounded(target, f)) is None else [r]
        if is_float(source):
            if not f.exact or f.special or f.magnitude >= known.largest(target):
                return None
            return [Facts(f.magnitude)]
        wraps = is_unsigned(target) and is_signed(source)
        return [Facts(known.largest(target) if wraps else min(f.magnitude, known.largest(target)))]

    return Draft(text, [x], rule)


def bitcast(s: Scope) -> Draft | None:
    x = s.pick(integers)
    other = ("int" if is_unsigned(x.dtype) else "uint") + str(known.bits_of(x.dtype))
    return Draft(f"lax.bitcast_convert_type($0, '{other}')", [x], exact(float("inf")))


def select(s: Scope) -> Draft | None:
    x = pair(s, lambda v: True, s.chance(0.9))
    wide = max(x, key=lambda v: v.rank)
    p = s.pick(lambda v: bools(v) and _fits(wide, v))
    if x[0].dtype == x[1].dtype:
        return Draft("jnp.where($2, $0, $1)", [*x, p], only_exact(moved(0, 1), 2))

    def real(a: Facts, b: Facts, p: Facts) -> Facts | None:
        return _either(a, b) if p.exact else None

    return Draft("jnp.where($2, $0, $1)", [*x, p], each(real))


def select_many(s: Scope) -> Draft | None:
    x = s.pick()
    y = s.find(lambda v: v.dtype == x.dtype and v.shapes == x.shapes)
    i = s.find(lambda v: v.dtype == "int32" and v.shapes in (x.shapes, ((),) * CALLS))
    if y is None or i is None:
        return None
    text = "lax.select_n(jnp.clip($2, 0, 2), $0, $1, $0)"
    return Draft(text, [x, y, i], only_exact(moved(0, 1), 2))


def clamp(s: Scope) -> Draft | None:
    x = s.pick(numbers)
    low = s.find(lambda v: v.dtype == x.dtype and v.shapes in (x.shapes, ((),) * CALLS))
    if low is not None and s.chance(0.5):
        return Draft(
            "lax.clamp($1, $0, $1 + 1)", [x, low], each(lambda a, b: _either(a, _sum(b, Facts(1))))
        )
    return Draft("jnp.clip($0, 1, 3)", [x], each(lambda f: _either(f, Facts(3)), 0))


# -- reductions -----------------------------------------------------------------------------------


def _elements(x: Value, axes: Sequence[int]) -> int:
    return max(math.prod(shape[a] for a in axes) for shape in x.shapes)


def _axes(s: Scope, x: Value) -> list[int]:
    return sorted(s.rng.sample(range(x.rank), s.rng.randint(1, x.rank)))


def reduction(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    axes = _axes(s, x)
    count = _elements(x, axes)
    least = min(math.prod(shape[a] for a in axes) for shape in x.shapes)
    keep = ", keepdims=True" if s.chance(0.4) else ""
    where = f"axis={tuple(axes)}{keep}"
    total = _times(count)
    if bools(x):
        name = s.rng.choice(["any", "all", "sum"])
        return Draft(f"jnp.{name}($0, {where})", [x], exact(count))
    options: list[tuple[str, Rule]] = [(f"jnp.sum($0, {where})", each(total, count))]
    if least > 0:
        options += [(f"jnp.{n}($0, {where})", moved()) for n in ("max", "min")] * 2
    if floats(x):
        mean = each(lambda f: Facts(f.magnitude, f.error, None, f.special), count + 1)
        if least > 0:
            options += [(f"jnp.mean($0, {where})", mean)]
            options += [(f"jax.nn.softmax($0, axis={axes[0]})", _softmax(count))]
            options += [(f"jax.nn.logsumexp($0, {where})", _logsumexp(count))]
            options += [(f"jnp.var($0, {where})", _variance(count))]
    elif not known.is_complex(x.dtype):
        options += [(f"jnp.prod($0, {where})", exact(float("inf")))]
        dims = f"{tuple(axes)}"
        for name, start in (("or", "0"), ("and", "-1"), ("xor", "0")):
            # XLA leaves the start out of a reduction of one element, so it has to be neutral.
            text = (
                f"lax.reduce($0, jnp.array({start}).astype($0.dtype), lax.bitwise_{name}, {dims})"
            )
            options.append((text, exact(float("inf"))))
    text, rule = s.rng.choice(options)
    return Draft(text, [x], rule)


def _times(count: int) -> Real:
    def real(f: Facts) -> Facts:
        return Facts(f.magnitude * max(count, 1), f.error * count, f.grain, f.special)

    return real


def _softmax(count: int) -> Rule:
    return each(lambda f: None if f.special else Facts(1, 2 * f.error, None), 16 + count)


def _logsumexp(count: int) -> Rule:
    def real(f: Facts) -> Facts | None:
        return None if f.special else Facts(f.magnitude + math.log(count + 1), f.error, None)

    return each(real, 16 + count)


def _variance(count: int) -> Rule:
    def real(f: Facts) -> Facts | None:
        return None if f.special else Facts(4 * f.magnitude**2, 8 * f.magnitude * f.error, None)

    return each(real, 8 + 2 * count)


def custom_reduction(s: Scope) -> Draft | None:
    """Several results, or a combiner of one's own."""
    x = s.pick(lambda v: v.rank > 0 and numbers(v) and settled(v) and not v.facts.special)
    axis = some_axis(s, x, 1)
    y = s.find(lambda v: v.shapes == x.shapes and v.dtype == x.dtype and settled(v))
    # XLA drops the start value where one element is reduced: only neutral ones mean the same.
    limits = "jnp.finfo" if floats(x) else "jnp.iinfo"
    low, high = (f"jnp.array({limits}($0.dtype).{end}, $0.dtype)" for end in ("min", "max"))
    if y is not None and s.chance(0.5):
        text = (
            f"lax.reduce(($0, $1), ({low}, {high}), "
            f"lambda a, b: (lax.max(a[0], b[0]), lax.min(a[1], b[1])), ({axis},))"
        )
        return Draft(text, [x, y], moved(), results=2)
    text = f"lax.reduce($0, {low}, lambda a, b: lax.max(a, b), ({axis},))"
    return Draft(text, [x], moved())


def arg_reduction(s: Scope) -> Draft | None:
    x = s.pick(lambda v: settled(v) and v.rank > 0 and not is_complex(v.dtype))
    axis = some_axis(s, x, 1)
    name = s.rng.choice(["argmax", "argmin"])
    keep = ", keepdims=True" if s.chance(0.3) else ""
    return Draft(f"jnp.{name}($0, axis={axis}{keep})", [x], exact(max(x.sizes(axis))))


def cumulative(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0 and numbers(v))
    axis = s.rng.randrange(x.rank)
    count = max(x.sizes(axis))
    end = f"axis={axis}, reverse={s.chance(0.4)})"
    options = [
        (f"lax.cumsum($0, {end}", each(_times(count), count)),
        (f"lax.cummax($0, {end}", moved()),
        (f"lax.cummin($0, {end}", moved()),
    ]
    if integers(x):
        options.append((f"lax.cumprod($0, {end}", exact(float("inf"))))
    else:
        options.append(
            (
                f"lax.cumprod(jnp.tanh($0), {end}",
                each(
                    lambda f: Facts(1, count * f.error, None, f.special) if not f.special else None,
                    8 * count,
                ),
            )
        )
        options.append((f"lax.cumlogsumexp($0, {end}", _logsumexp(count)))
    text, rule = s.rng.choice(options)
    return Draft(text, [x], rule)


def window(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0 and numbers(v))
    axis = s.rng.randrange(x.rank)
    size = s.rng.choice([1, 2, 3])
    dims = tuple(size if a == axis else 1 for a in range(x.rank))
    strides = tuple(s.rng.choice([1, 2]) if a == axis else 1 for a in range(x.rank))
    padding = s.rng.choice(["'SAME'", "'VALID'"])
    name = s.rng.choice(["max", "min", "add"])
    low = "0" if name == "add" else ("-jnp.inf" if name == "max" else "jnp.inf")
    if not floats(x) and name != "add":
        low = f"jnp.iinfo($0.dtype).{'min' if name == 'max' else 'max'}"
    start = f"jnp.array({low}, $0.dtype)"
    text = f"lax.reduce_window($0, {start}, lax.{name}, {dims}, {strides}, {padding})"
    if name == "add":
        return Draft(text, [x], each(_times(size), size))

    def rule(environment, names, types):
        f = environment[names[0]]
        if f.special:  # XLA's windows of some shapes take the larger of 7 and NaN for 7
            return None
        return [
            _in_type(
                types[0][0],
                Facts(
                    known.largest(types[0][0]) if not floats(x) else f.magnitude,
                    f.error,
                    f.grain,
                    floats(x) or f.special,
                ),
            )
        ]

    return Draft(text, [x], rule)


# -- products -------------------------------------------------------------------------------------


def product(s: Scope) -> Draft | None:
    """An einsum whose letters are shared where sizes are equal at every call."""
    a = s.pick(lambda v: numbers(v) and v.rank > 0)
    b = s.pick(lambda v: v.dtype == a.dtype and v.rank > 0)
    left = "ijkln"[: a.rank]
    unused = list("pqrst")
    right = ""
    free = list(range(a.rank))
    for axis in range(b.rank):
        same = [k for k in free if a.sizes(k) == b.sizes(axis)]
        if same and s.chance(0.75):
            k = s.rng.choice(same)
            free.remove(k)
            right += left[k]
        else:
            right += unused.pop(0)
    letters = list(dict.fromkeys(left + right))
    out = [c for c in letters if s.chance(0.35 if c in left and c in right else 0.85)]
    s.rng.shuffle(out)
    sizes = {c: max(a.sizes(i)) for i, c in enumerate(left)}
    sizes |= {c: max(b.sizes(i)) for i, c in enumerate(right)}
    count = math.prod(sizes[c] for c in letters if c not in out)
    whole = math.prod(sizes.values())
    if whole > 2_000_000:
        return None
    spec = f"{left},{right}->{''.join(out)}"
    wide = ""
    if a.dtype in ("int8", "uint8", "bfloat16", "float16") and s.chance(0.4):
        wide = ", preferred_element_type='" + ("int32" if integers(a) else "float32") + "'"

    def real(f: Facts, g: Facts) -> Facts | None:
        p = _product(s.in_product(f, a.dtype), s.in_product(g, a.dtype))
        return p and _times(count)(p)

    return Draft(f"jnp.einsum('{spec}', $0, $1{wide})", [a, b], each(real, count + 1))


def matmul(s: Scope) -> Draft | None:
    a = s.pick(lambda v: numbers(v) and v.rank in (2, 3, 4))
    text = s.rng.choice(
        [
            "$0 @ jnp.swapaxes($0, -1, -2)",
            "jnp.swapaxes($0, -1, -2) @ $0",
            "jnp.dot($0, jnp.ones(($0.shape[-1], 5), $0.dtype))",
            "jnp.dot($0, jnp.eye($0.shape[-1], dtype=$0.dtype))",
        ]
    )
    count = max(a.sizes(-1)) + max(a.sizes(-2))

    def real(f: Facts) -> Facts | None:
        f = s.in_product(f, a.dtype)
        p = _product(f, join(f, Facts(1)))
        return p and _times(count)(p)

    return Draft(text, [a], each(real, count + 1))


def convolution(s: Scope) -> Draft | None:
    x = s.pick(lambda v: numbers(v) and v.rank in (3, 4))
    spatial = x.rank - 2
    kernel = tuple(s.rng.choice([1, 2, 3]) for _ in range(spatial))
    strides = tuple(s.rng.choice([1, 1, 2]) for _ in range(spatial))
    dilation = tuple(s.rng.choice([1, 1, 2]) for _ in range(spatial))
    padding = s.rng.choice(["'SAME'", "'VALID'", str([(1, 2)] * spatial)])
    letters = "HW"[:spatial]
    layout = s.rng.choice([f"N{letters}C", f"NC{letters}"])
    channels = layout.index("C")
    filters = {f"N{letters}C": f"{letters}IO", f"NC{letters}": f"OI{letters}"}[layout]
    shape = {"H": kernel[0], "W": kernel[-1], "I": f"$0.shape[{channels}]", "O": 3}
    sizes = ", ".join(str(shape[c]) for c in filters)
    weights = f"(lax.iota('int32', 3 * {math.prod(kernel)} * $0.shape[{channels}]) % 5 - 2)"
    text = (
        f"lax.conv_general_dilated($0, {weights}.astype($0.dtype).reshape({sizes}), {strides}, "
        f"{padding}, rhs_dilation={dilation}, "
        f"dimension_numbers=('{layout}', '{filters}', '{layout}'))"
    )
    count = math.prod(kernel) * max(x.sizes(channels))

    def real(f: Facts) -> Facts | None:
        p = _product(s.in_product(f, x.dtype), Facts(2))
        return p and _times(count)(p)

    return Draft(text, [x], each(real, count + 1))


# -- moves ----------------------------------------------------------------------------------------


def move(s: Scope) -> Draft | None:
    x = s.pick()
    r, n = s.rng, x.rank
    options = [
        "$0[None]",
        "$0[..., None]",
        "jnp.ravel($0)",
        "jnp.broadcast_to($0, (2, *$0.shape))",
        "jnp.expand_dims($0, 0)",
        "jnp.stack([$0, $0])",
        "jnp.copy($0)",
    ]
    if n > 0:
        a = r.randrange(n)
        other = r.randrange(n)
        order = r.sample(range(n), n)
        at = ", ".join(
            r.choice([":", "::-1", "1:", ":-1", "::2", ":3", "-2:", "1::2", "::-2"])
            for _ in range(n)
        )
        options += [
            f"jnp.transpose($0, {tuple(order)})",
            f"jnp.transpose($0, {tuple(order)})",
            f"jnp.swapaxes($0, {a}, {other})",
            f"jnp.flip($0, {a})",
            f"lax.rev($0, {tuple(r.sample(range(n), r.randint(1, n)))})",
            f"$0[{at}]",
            f"$0[{at}]",
            f"jnp.reshape($0, (-1, $0.shape[{a}]))" if n > 1 else "$0.reshape(1, -1)",
            f"jnp.roll($0, {r.randint(-3, 3)}, axis={a})",
            f"jnp.tile($0, {tuple(r.choice([1, 2]) for _ in range(n))})",
            f"jnp.repeat($0, 2, axis={a})",
            f"jnp.squeeze($0[{':, ' * a}:1], {a})",
            f"jnp.concatenate([$0, jnp.flip($0, {a})], axis={a})",
            f"jnp.moveaxis($0, {a}, {other})",
        ]
    if n > 1:
        k = r.randrange(n - 1)
        dims = [f"$0.shape[{i}]" for i in range(n)]
        merged = ", ".join([*dims[:k], f"{dims[k]} * {dims[k + 1]}", *dims[k + 2 :]])
        options += [f"jnp.reshape($0, ({merged},))"] * 3
        options += [
            "jnp.tril($0)" if floats(x) else "jnp.triu($0)",
            "jnp.diagonal($0)",
            "jnp.reshape($0, $0.shape[::-1])",
        ]
    return Draft(r.choice(options), [x], moved())


def padding(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    edges = tuple(
        (s.rng.choice([-1, 0, 0, 1, 2]), s.rng.choice([-1, 0, 0, 1, 3]), s.rng.choice([0, 0, 1, 2]))
        for _ in range(x.rank)
    )
    filler = s.find(lambda v: v.rank == 0 and v.dtype == x.dtype)
    if filler is not None:
        return Draft(f"lax.pad($0, $1, {edges})", [x, filler], moved())
    number = "True" if bools(x) else str(s.rng.choice([0, 1, 7]))
    text = f"lax.pad($0, jnp.array({number}, $0.dtype), {edges})"
    return Draft(text, [x], each(lambda f: _either(f, Facts(7)), 0))


def concatenate(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    axis = s.rng.randrange(x.rank)

    def joins(v: Value) -> bool:
        return (
            v.dtype == x.dtype
            and v.rank == x.rank
            and all(v.sizes(a) == x.sizes(a) for a in range(x.rank) if a != axis)
        )

    parts = [x] + [s.find(joins) or x for _ in range(s.rng.randint(1, 3))]
    s.rng.shuffle(parts)
    names = ", ".join(f"${i}" for i in range(len(parts)))
    if s.chance(0.3) and all(p.shapes == x.shapes for p in parts):
        return Draft(f"jnp.stack([{names}], axis={axis})", parts, moved())
    return Draft(f"jnp.concatenate([{names}], axis={axis})", parts, moved())


def broadcast(s: Scope) -> Draft | None:
    x = s.pick()
    y = s.pick(lambda v: v.rank >= x.rank and _fits(v, x))
    return Draft("jnp.broadcast_to($0, $1.shape)", [x, y], moved(0))


def iota(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    dtype = s.rng.choice([t for t in s.dtypes if t != "bool"])
    axis = s.rng.randrange(x.rank)
    size = f"$0.shape[{axis}]"
    options = [
        f"jnp.arange({size}, dtype='{dtype}')",
        f"lax.broadcasted_iota('{dtype}', $0.shape, {axis})",
        f"lax.iota('{dtype}', {size})",
        f"jnp.full($0.shape, {size}, '{dtype}')",
        f"jnp.array({size}, '{dtype}')",
        f"jnp.arange(2, dtype='{dtype}') + {size}",
        f"jnp.array([{size}, 2, $0.shape[0]], '{dtype}')",
        f"jnp.ones($0.shape, '{dtype}')",
        f"jnp.eye({size}, dtype='{dtype}')",
    ]
    top = max(max(shape) for shape in x.shapes) + 3
    if top > min(known.largest(dtype), 250):
        return None
    return Draft(s.rng.choice(options), [x], lambda e, n, t: [Facts(top)])


def literal(s: Scope) -> Draft | None:
    """A constant array."""
    dtype = s.rng.choice(s.dtypes)
    shape = tuple(s.rng.choice([1, 2, 3, 5]) for _ in range(s.rng.choice([0, 1, 1, 2])))
    numbers = [
        s.rng.randint(0 if is_unsigned(dtype) or is_bool(dtype) else -6, 6)
        for _ in range(math.prod(shape))
    ]
    text = f"jnp.array({numbers}, '{dtype}').reshape({shape})"
    return Draft(text, [], lambda e, n, t: [Facts(6 if not is_bool(dtype) else 1)])


# -- looking up and writing -----------------------------------------------------------------------


def index(s: Scope, ranks: Sequence[int] = (0, 1, 2), like: Value | None = None) -> Value | None:
    """An array of places. With x64 JAX converts unsigned ones to int32 where sizes are numbers,
    to int64 where they are symbols: another place beyond 2**31, by JAX's choice.
    """
    return s.find(
        lambda v: (
            integers(v)
            and v.rank in ranks
            and (like is None or v.rank == 0 or v.shapes == like.shapes)
            and not (s.x64 and is_unsigned(v.dtype) and v.facts.magnitude >= 2**31)
        )
    )


def gather(s: Scope) -> Draft | None:
    x = s.find(lambda v: v.rank > 0)
    i = index(s)
    if x is None or i is None:
        return None
    axis = some_axis(s, x, 1)
    before = ":, " * axis
    mode = s.rng.choice(["clip", "fill", "wrap"])
    options = [
        f"jnp.take($0, $1, axis={axis}, mode='{mode}')",
        f"$0[{before}$1]",
        f"$0.at[{before}$1].get(mode='{s.rng.choice(['clip', 'fill'])}')",
    ]
    operands = [x, i]
    if x.rank > 1:
        j = index(s, like=i)
        if j is not None:
            options.append("$0[$1, $2]")
            if x.rank > 2:
                options.append("$0[$1, :, $2]")
            operands = [x, i, j]
    text = s.rng.choice(options)
    operands = operands if "$2" in text else [x, i]

    def rule(environment, names, types):
        f = environment[names[0]]
        filled = is_float(types[0][0])  # 'fill' writes NaN, or the smallest integer
        bound = f.magnitude if filled else known.largest(types[0][0])
        special = f.special or filled
        return [Facts(bound, f.error, f.grain, special)]

    plain = "get(" not in text and "fill" not in text and "$2" not in text
    plain = plain and ("clip" in text or "wrap" in text)
    return Draft(text, operands, moved(0) if plain else rule)


def gather_along(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    axis = some_axis(s, x, 1)
    i = s.pick(lambda v: integers(v) and v.shapes == x.shapes)
    text = f"jnp.take_along_axis($0, $1, axis={axis}, mode='clip')"
    return Draft(text, [x, i], moved(0))


def scatter(s: Scope) -> Draft | None:
    x = s.find(lambda v: v.rank > 0 and numbers(v))
    i = index(s, (0, 1, 1, 2))
    if x is None or i is None:
        return None
    axis = some_axis(s, x, 1)
    before = ":, " * axis
    name = s.rng.choice(["set", "add", "min", "max", "multiply"])
    mode = s.rng.choice(["", ", mode='drop'", ", mode='clip'"])
    count = _elements(i, range(i.rank)) + 1
    # Several updates of one element: `set` keeps one of them, floats add up in some order.
    if name == "set" and i.rank > 0:
        update = s.rng.choice(["2", "0"])
        operands = [x, i]
    else:
        u = s.find(
            lambda v: v.dtype == x.dtype and v.rank in (0, x.rank + i.rank - 1) and v.rank < 4
        )
        if u is None or s.chance(0.2):
            update, operands = "2", [x, i]
        else:
            update, operands = "$2", [x, i, u]
    text = f"$0.at[{before}$1].{name}({update}{mode})"

    def rule(environment, names, types):
        f = environment[names[0]]
        u = environment[names[2]] if len(names) > 2 else Facts(2)
        if name == "set":
            return [_in_type(types[0][0], join(f, u))]
        if name in ("min", "max"):
            return [_in_type(types[0][0], join(f, u))]
        if name == "multiply":
            if not is_float(types[0][0]):
                return [Facts(known.largest(types[0][0]))]
            if count > 8 or f.special or u.special:
                return None
            found = f
            for _ in range(count):
                found = join(found, _product(found, u) or found)
        else:
            found = _sum(f, _times(count)(u))
        result = rounded(types[0][0], found, count)
        return None if result is None else [result]

    return Draft(text, operands, rule)


def scatter_elements(s: Scope) -> Draft | None:
    """Two index arrays, or a mask."""
    x = s.find(lambda v: v.rank > 1 and numbers(v))
    i = index(s, (0, 1))
    if x is None or i is None or min(min(shape) for shape in x.shapes) < 1:
        return None
    j = index(s, like=i)
    if j is None:
        return None
    where = s.rng.choice(["$1, $2", "$1, ..., $2", "..., $1, $2"])
    name = s.rng.choice(["set", "max", "min"])
    text = f"$0.at[{where}].{name}(3)"
    return Draft(text, [x, i, j], lambda e, n, t: [_in_type(t[0][0], join(e[n[0]], Facts(3)))])


def dynamic_slice(s: Scope) -> Draft | None:
    x = s.find(lambda v: v.rank > 0)
    i = index(s, (0,))
    if x is None or i is None:
        return None
    axis = s.rng.randrange(x.rank)
    size = s.rng.randint(0 if s.chance(0.05) else 1, max(1, min(*x.sizes(axis), 4)))
    starts = ", ".join("$1" if s.chance(0.5) else "jnp.zeros((), $1.dtype)" for _ in range(x.rank))
    sizes = ", ".join(
        str(s.rng.randint(1, max(1, min(x.sizes(a))))) if s.chance(0.5) else f"$0.shape[{a}]"
        for a in range(x.rank)
    )
    options = [
        f"lax.dynamic_slice_in_dim($0, $1, {size}, axis={axis})",
        f"lax.dynamic_slice($0, ({starts},), ({sizes},))",
        f"lax.dynamic_index_in_dim($0, $1, axis={axis}, keepdims={s.chance(0.5)})",
        f"lax.dynamic_slice_in_dim($0, $1, $0.shape[{axis}] - 1, axis={axis})",
    ]
    return Draft(s.rng.choice(options), [x, i], moved(0))


def dynamic_update_slice(s: Scope) -> Draft | None:
    x = s.find(lambda v: v.rank > 0)
    i = index(s, (0,))
    if x is None or i is None:
        return None
    axis = s.rng.randrange(x.rank)
    u = s.find(
        lambda v: (
            v.dtype == x.dtype
            and v.rank == x.rank
            and all(
                max(p - q for p, q in zip(v.sizes(a), x.sizes(a), strict=True)) <= 0
                for a in range(x.rank)
            )
        )
    )
    if u is None or s.chance(0.3):
        cut = ", ".join(":1" if a == axis else ":" for a in range(x.rank))
        text = f"lax.dynamic_update_slice_in_dim($0, $0[{cut}] * 0 + 1, $1, axis={axis})"
        if bools(x):
            text = f"lax.dynamic_update_slice_in_dim($0, ~$0[{cut}], $1, axis={axis})"
        return Draft(
            text, [x, i], each(lambda f, i: None if f.special else _either(f, Facts(1)), 0)
        )
    starts = ", ".join("$1" if s.chance(0.6) else "jnp.zeros((), $1.dtype)" for _ in range(x.rank))
    return Draft(f"lax.dynamic_update_slice($0, $2, ({starts},))", [x, i, u], moved(0, 2))


def scalar_index(s: Scope) -> Draft | None:
    """An integer of rank 0 read from an array: what starts, bounds and conditions are made of."""
    x = s.pick(lambda v: integers(v) and v.rank > 0 and min(min(t) for t in v.shapes) > 0)
    zeros = ", ".join(s.rng.choice(["0", "-1"]) for _ in range(x.rank))
    text = s.rng.choice(
        [f"$0[{zeros}]", "jnp.max($0)", "jnp.min($0)", "$0" + "[0]" * x.rank, "jnp.sum($0) % 5"]
    )
    if "sum" in text:
        return Draft(text, [x], exact(5))
    return Draft(text, [x], moved())


# -- sorting --------------------------------------------------------------------------------------


def settled_only(environment, names, types):
    """The same facts of an operand that is exact."""
    found = environment[names[0]]
    return [found] if found.exact else None


def sort(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    axis = s.rng.randrange(x.rank)
    # Complex numbers with real parts that rounding makes equal change places.
    rule = settled_only if is_complex(x.dtype) else moved()
    options = [
        ("jnp.sort($0, axis={a})", rule, 1),
        ("jnp.sort($0, axis={a}, descending=True)", rule, 1),
    ]
    if settled(x):
        bound = exact(max(x.sizes(axis)))
        options += [("jnp.argsort($0, axis={a})", bound, 1)] * 2
        options += [("jnp.argsort($0, axis={a}, descending=True)", bound, 1)]
    text, rule, results = s.rng.choice(options)
    return Draft(text.replace("{a}", str(axis)), [x], rule, results)


def sort_many(s: Scope) -> Draft | None:
    """Rows sorted by one or two keys, with what goes along."""
    x = s.pick(lambda v: v.rank > 0 and settled(v))
    others = [v for _ in range(2) if (v := s.find(lambda v: v.shapes == x.shapes and settled(v)))]
    operands = [x, *others]
    axis = s.rng.randrange(x.rank)
    names = ", ".join(f"${i}" for i in range(len(operands)))
    keys = s.rng.randint(1, len(operands))
    text = f"lax.sort(({names},), dimension={axis}, num_keys={keys})"

    def rule(environment, names, types):
        found = [environment[n] for n in names]
        return found if all(f.exact for f in found) else None

    return Draft(text, operands, rule, results=len(operands), several=True)


def top_k(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0 and numbers(v) and min(v.sizes(-1)) > 0 and not v.facts.special)
    k = s.rng.randint(1, min(4, *x.sizes(-1)))
    if not settled(x):
        return Draft(f"lax.top_k($0, {k})[0]", [x], moved())

    def rule(environment, names, types):
        f = environment[names[0]]
        return [f, Facts(max(x.sizes(-1)))] if f.exact and not f.special else None

    return Draft(f"lax.top_k($0, {k})", [x], rule, results=2)


def search(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank == 1 and numbers(v) and settled(v) and not v.facts.special)
    y = s.pick(lambda v: v.dtype == x.dtype and settled(v) and not v.facts.special and v.rank < 3)
    if min(x.sizes(0)) < 1:
        return None
    side = s.rng.choice(["left", "right"])
    text = f"jnp.searchsorted(jnp.sort($0), $1, side='{side}')"
    return Draft(text, [x, y], exact(max(x.sizes(0))))


# -- random bits ----------------------------------------------------------------------------------


def _normal(dtype: str) -> Facts | None:
    """Normal numbers: XLA's float64 `erf_inv` loses digits near 1 (800 ULP in 10 000 numbers)."""
    return rounded(dtype, Facts(9, 0, None), 2.0**16 if dtype == "float64" else 16)


def random_bits(s: Scope) -> Draft | None:
    x = s.pick(lambda v: v.rank > 0)
    key = f"jax.random.key({s.rng.randint(0, 99)})"
    seed = s.find(lambda v: integers(v) and v.rank == 0)
    operands = [x]
    if seed is not None and s.chance(0.4):
        key = f"jax.random.fold_in({key}, $1)"
        operands = [x, seed]
    options: list[tuple[str, Rule]] = [
        (f"jax.random.bits({key}, $0.shape, 'uint32')", lambda e, n, t: [Facts(2.0**32)]),
        (f"jax.random.bits({key}, $0.shape, 'uint8')", lambda e, n, t: [Facts(255)]),
        (
            f"jax.random.uniform({key}, $0.shape)",
            lambda e, n, t: [Facts(1, 0, 23 if t[0][0] == "float32" else 52)],
        ),
        (f"jax.random.randint({key}, $0.shape, -5, 9)", lambda e, n, t: [Facts(9)]),
        (f"jax.random.bernoulli({key}, 0.25, $0.shape)", lambda e, n, t: [Facts(1)]),
        (
            f"jax.random.normal({key}, $0.shape)",
            lambda e, n, t: [_normal(t[0][0])],
        ),
    ]
    text, rule = s.rng.choice(options)
    return Draft(text, operands, rule)


def draft(s: Scope) -> Draft | None:
    """A random step, by the weights of the table."""
    from tests.fuzz import complexes, control

    table = TABLE | complexes.TABLE
    if s.depth < 2:
        table |= control.TABLE
    return s.rng.choices(list(table), list(table.values()))[0](s)


TABLE: dict[Maker, float] = {
    unary_float: 6,
    unary_exact: 3,
    unary_integer: 3,
    binary_float: 8,
    mixed: 2,
    binary_integer: 5,
    logical: 2,
    compare: 4,
    constant: 5,
    is_finite: 1,
    cast: 6,
    bitcast: 1,
    select: 4,
    select_many: 1,
    clamp: 2,
    reduction: 7,
    custom_reduction: 1,
    arg_reduction: 3,
    cumulative: 3,
    window: 2,
    product: 5,
    matmul: 2,
    convolution: 2,
    move: 9,
    padding: 3,
    concatenate: 3,
    broadcast: 3,
    iota: 4,
    literal: 1,
    gather: 5,
    gather_along: 2,
    scatter: 5,
    scatter_elements: 2,
    dynamic_slice: 4,
    dynamic_update_slice: 4,
    scalar_index: 4,
    sort: 3,
    sort_many: 2,
    top_k: 2,
    search: 1,
    random_bits: 2,
}
