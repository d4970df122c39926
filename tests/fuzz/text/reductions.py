"""Makers of ops with regions over scalars: reduce, map, sort, and monoids for other modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fuzz.draws import NothingFits
from tests.fuzz.program import Body, Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Scope, facts
from tests.fuzz.text.moves import numbers
from tests.fuzz.text.ops import (
    dims,
    elementwise,
    is_exact,
    is_integer,
    is_number,
    letter,
    op,
)
from tests.fuzz.text.types import Facts

ONCE = ((),) * CALLS


@dataclass(frozen=True)
class Monoid:
    """An associative and commutative function of two tuples of scalars."""

    name: str
    dtypes: tuple[str, ...]
    identity: tuple[Any, ...]

    @property
    def is_idempotent(self) -> bool:
        """True if it does not matter how often an element is taken."""
        return self.name in ("maximum", "minimum", "and", "or")


def lowest(dtype: str) -> Any:
    if dtype == "i1":
        return 0
    if dtype in known.INTEGER:
        return 0 if dtype.startswith("u") else -(2 ** (known.bits(dtype) - 1))
    return -known.largest(dtype)


def highest(dtype: str) -> Any:
    return int(known.largest(dtype)) - 1 if dtype in known.INTEGER else known.largest(dtype)


_OF_ONE: dict[str, Callable[[str], Any]] = {
    "add": lambda t: 0,
    "multiply": lambda t: 1,
    "maximum": lowest,
    "minimum": highest,
    "and": lambda t: 1 if t == "i1" else (2 ** known.bits(t) - 1 if t.startswith("u") else -1),
    "or": lambda t: 0,
    "xor": lambda t: 0,
}


def draw_monoid(scope: Scope, many: Sequence[Value]) -> Monoid:
    """A monoid on elements of these types."""
    rng = scope.rng
    dtypes = tuple(v.dtype for v in many)
    if len(many) == 2 and rng.random() < 0.7 and is_integer(many[1]):
        key = many[0]
        if letter(key.dtype) in "iuf" and is_exact(key) and not facts(key).special:
            return Monoid(rng.choice(["argmax", "argmin"]), dtypes, ())
    names = []
    for value in many:
        kind = letter(value.dtype)
        names.append(
            rng.choice(
                {
                    "b": ["and", "or", "xor", "add", "multiply", "maximum"],
                    "c": ["add", "add", "multiply"],
                    "f": ["add", "add", "maximum", "minimum", "multiply"],
                }.get(kind, list(_OF_ONE))
            )
        )
    if len(many) == 1:
        return Monoid(names[0], dtypes, (_OF_ONE[names[0]](dtypes[0]),))
    return Monoid(
        "+".join(names), dtypes, tuple(_OF_ONE[n](t) for n, t in zip(names, dtypes, strict=True))
    )


def reducible(scope: Scope) -> tuple[Sequence[Value], Monoid]:
    """Values of one shape, and a monoid on their elements."""
    many = several(scope)
    return many, draw_monoid(scope, many)


def reduced(
    monoid: Monoid, many: Sequence[Value], inits: Sequence[Value], count: int
) -> list[Facts]:
    """Facts of the results of `count` elements and an initial value.

    Raises NothingFits where they say too little.
    """
    if monoid.name.startswith("arg"):
        return [known.join(facts(a), facts(b)) for a, b in zip(many, inits, strict=True)]
    found = []
    for name, value, init in zip(monoid.name.split("+"), many, inits, strict=True):
        dtype = value.dtype
        a = known.join(facts(value), facts(init))
        if dtype in known.INTEGER or dtype == "i1":
            found.append(Facts(known.largest(dtype), grain=0))
            continue
        if name in ("maximum", "minimum"):
            found.append(a)
            continue
        if name == "multiply":
            if count > 6 and a.magnitude > 1:
                raise NothingFits
            if a.rough or a.magnitude > 1e3:
                raise NothingFits
            magnitude = max(a.magnitude, 1.0) ** (count + 1)
            real = Facts(magnitude, 0, None, a.special, True)
        else:
            magnitude = a.magnitude * (count + 1)
            real = Facts(magnitude, a.error * (count + 1), a.grain, a.special, a.rough)
        if known.is_complex(dtype) and a.special:
            raise NothingFits
        if not (name == "add" and not real.rough and known.fits(dtype, magnitude, real.grain)):
            if count > 1:
                real = replace(real, rough=True)
            if a.special and name == "multiply":
                raise NothingFits
        times = 2.0 * (count + 1)
        end = known.rounded(dtype, real, once=True, roundings=times)
        if end is None:
            raise NothingFits
        found.append(end)
    return found


def monoid_body(
    scope: Scope, monoid: Monoid, dtypes: Sequence[str], elements: Sequence[str] | None = None
) -> Body:
    """The region: accumulators first, then elements, both of `dtypes` (or `elements`)."""
    left = [scope.define("a", t, ONCE, Facts(known.largest(t), rough=True)) for t in dtypes]
    right = [
        scope.define("b", t, ONCE, Facts(known.largest(t), rough=True))
        for t in (elements or dtypes)
    ]
    inner = scope.inner([*left, *right])
    anything = Facts(0, rough=True)

    def two(name: str, x: Value, y: Value, dtype: str | None = None, more: str = "") -> Value:
        return inner.one(name, [x, y], (dtype or x.dtype, ONCE, anything), more)

    def same_type(x: Value, dtype: str) -> Value:
        if x.dtype == dtype:
            return x
        return inner.one("convert", [x], (dtype, ONCE, anything))

    def less(way: str, x: Value, y: Value) -> Value:
        return two("compare", x, y, "i1",
                   f"comparison_direction = #stablehlo<comparison_direction {way}>")  # fmt: skip

    def choose(p: Value, x: Value, y: Value) -> Value:
        return inner.one("select", [p, x, y], (x.dtype, ONCE, anything))

    right = [same_type(r, t) for r, t in zip(right, dtypes, strict=True)]
    if monoid.name.startswith("arg"):
        a, b = left[0], right[0]
        better = less("GT" if monoid.name == "argmax" else "LT", a, b)
        tie = two("and", less("EQ", a, b), less("LT", left[1], right[1]))
        take = two("or", better, tie)
        ends = [choose(take, x, y) for x, y in zip(left, right, strict=True)]
        return inner.body([*left, *_params(right, scope, inner, left)], ends, is_fixed=True)
    ends = []
    for name, x, y in zip(monoid.name.split("+"), left, right, strict=True):
        if scope.chance(0.3):
            x, y = y, x
        kind = letter(x.dtype)
        if name in ("maximum", "minimum") and kind in "iu" and scope.chance(0.3):
            ends.append(choose(less("GE" if name == "maximum" else "LE", x, y), x, y))
        elif name == "add" and kind in "iuf" and scope.chance(0.15) and x.dtype != "f8E8M0FNU":
            negative = inner.one("negate", [y], (y.dtype, ONCE, anything))
            ends.append(two("subtract", x, negative))
        elif name == "or" and kind in "iub" and scope.chance(0.3):
            flipped = [inner.one("not", [v], (v.dtype, ONCE, anything)) for v in (x, y)]
            both = two("and", *[f for f in flipped if f])  # type: ignore[arg-type]
            end = inner.one("not", [both], (both.dtype, ONCE, anything))
            ends.append(end)
        else:
            ends.append(two(name, x, y))
    return inner.body([*left, *_params(right, scope, inner, left)], ends, is_fixed=True)


def _params(
    right: Sequence[Value], scope: Scope, inner: Scope, left: Sequence[Value]
) -> list[Value]:
    """The parameters behind converted elements."""
    by_name = {s.results[0]: s.operands[0] for s in inner.steps if "convert" in s.text}
    return [scope.names.values[by_name.get(r.name, r.name)] for r in right]


def several(scope: Scope, wanted: Callable[[Value], bool] = is_number) -> list[Value]:
    """One to three values of the same sizes, of any types."""
    x = scope.pick(lambda v: v.rank >= 1 and wanted(v) and v.dtype != "f8E8M0FNU")
    many = [x]
    while len(many) < 3 and scope.chance(0.3):
        y = scope.find(
            lambda v: v.shapes == x.shapes and dims(v) == dims(x) and wanted(v)
            and v.dtype != "f8E8M0FNU"
        )  # fmt: skip
        if y is not None:
            many.append(y)
    return many


def initials(
    scope: Scope, monoid: Monoid, dtypes: Sequence[str], any_value: bool = True
) -> list[Value]:
    """Initial values: mostly the identity; sometimes, with `any_value`, another scalar.

    StableHLO lets a reduction use an initial value any number of times: XLA does so never over no
    elements or one, and shlo_disc more than once in a reduction of several operands.
    """
    any_value = any_value and len(dtypes) == 1
    if monoid.name.startswith("arg"):
        value = lowest(dtypes[0]) if monoid.name == "argmax" else highest(dtypes[0])
        return [scope.constant(value, dtypes[0]), scope.constant(highest(dtypes[1]), dtypes[1])]
    inits = []
    for name, number, dtype in zip(monoid.name.split("+"), monoid.identity, dtypes, strict=True):
        if scope.chance(0.15) and any_value:
            found = scope.find(lambda v, t=dtype: v.rank == 0 and v.dtype == t and is_exact(v))
            if found is not None:
                inits.append(found)
                continue
        inits.append(scope.constant(number, dtype))
        if name in ("maximum", "minimum"):  # its magnitude is not that of results
            facts_of = facts(inits[-1])
            small = replace(inits[-1], facts=replace(facts_of, magnitude=0.0, grain=None))
            inits[-1] = small
    return inits


@op(4)
def reduce_(scope: Scope) -> object:
    drawn = reducible(scope)
    many, monoid = drawn
    x = many[0]
    axes = sorted(scope.rng.sample(range(x.rank), scope.rng.randint(0, x.rank)))
    dtypes = [v.dtype for v in many]
    inits = initials(scope, monoid, dtypes, any_value=bool(axes))
    count = 1
    for axis in axes:
        count *= max(s[axis] for s in x.shapes)
    found = reduced(monoid, many, inits, count)
    body = monoid_body(scope, monoid, dtypes)
    kept = [a for a in range(x.rank) if a not in axes]
    shapes = tuple(tuple(s[a] for a in kept) for s in x.shapes)
    mask = tuple(dims(x)[a] for a in kept)
    results = [(t, shapes, known.moved(f, mask)) for t, f in zip(dtypes, found, strict=True)]
    attributes = f"dimensions = {numbers(axes)}"
    return scope.add("reduce", [*many, *inits], results, attributes, [body])


@op(2)
def map_(scope: Scope) -> object:
    """Any function of scalars, with what it captures."""
    many = several(scope)
    x = many[0]
    parameters = [scope.define("a", v.dtype, ONCE, known.moved(facts(v), ())) for v in many]
    inner = scope.inner(parameters)
    inner.values = [v for v in inner.values if v.rank == 0]
    for _ in range(scope.rng.randint(1, 4)):
        elementwise(inner)
    end = inner.pick(lambda v: v in inner.made or v in parameters)
    if known.is_quantized(end.dtype):
        return None
    found = known.moved(facts(end), dims(x))
    attributes = f"dimensions = {numbers(list(range(x.rank)))}"
    body = inner.body(parameters, [end])
    return scope.one("map", many, (end.dtype, x.shapes, found), attributes, [body])


@op(2)
def sort(scope: Scope) -> object:
    """By one or two keys, stable; the comparator computes with them."""
    many = several(scope, lambda v: is_number(v) and is_exact(v))
    x = many[0]
    axis = scope.rng.randrange(x.rank)
    parameters = []
    for v in many:
        for _ in range(2):
            parameters.append(scope.define("a", v.dtype, ONCE, known.moved(facts(v), ())))
    keys = [
        k
        for k, v in enumerate(many)
        if letter(v.dtype) in "iufb" and not (facts(v).special and letter(v.dtype) == "f")
    ]
    if not keys:
        return None
    inner = scope.inner(parameters)
    way = scope.rng.choice(["LT", "GT"])

    def less(k: int, direction: str) -> Value:
        a, b = parameters[2 * k : 2 * k + 2]
        if letter(a.dtype) in "iu" and scope.chance(0.4):  # a function of the key
            changed = [inner.one("not", [v], (v.dtype, ONCE, facts(v))) for v in (a, b)]
            if scope.chance(0.5):
                other = scope.find(lambda v: v.rank == 0 and v.dtype == a.dtype and is_exact(v))
                if other is not None:
                    whole = (a.dtype, ONCE, Facts(known.largest(a.dtype), grain=0))
                    changed = [inner.one("xor", [v, other], whole) for v in (a, b)]
            a, b = [c for c in changed if c]  # type: ignore[misc]
        text = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
        if a.dtype in ("f32", "f64", "bf16", "f16") and scope.chance(0.4):
            text += ", compare_type = #stablehlo<comparison_type TOTALORDER>"
        return inner.one("compare", [a, b], ("i1", ONCE, Facts(1, grain=0)), text)

    first = scope.rng.choice(keys)
    end = less(first, way)
    if len(keys) > 1 and scope.chance(0.5):
        second = scope.rng.choice([k for k in keys if k != first])
        a, b = parameters[2 * first : 2 * first + 2]
        text = "comparison_direction = #stablehlo<comparison_direction EQ>"
        tie = inner.one("compare", [a, b], ("i1", ONCE, Facts(1, grain=0)), text)
        plain_end = inner.one(
            "compare", [a, b], ("i1", ONCE, Facts(1, grain=0)),
            f"comparison_direction = #stablehlo<comparison_direction {way}>",
        )  # fmt: skip
        more = inner.one("and", [tie, less(second, "LT")], ("i1", ONCE, Facts(1, grain=0)))
        found = inner.one("or", [plain_end, more], ("i1", ONCE, Facts(1, grain=0)))
        end = found
    results = [(v.dtype, v.shapes, known.moved(facts(v), dims(v))) for v in many]
    attributes = f"dimension = {axis} : i64, is_stable = true"
    return scope.add(
        "sort", many, results, attributes, [inner.body(parameters, [end], is_fixed=True)]
    )


@op(0.7)
def top_k(scope: Scope) -> object:
    x = scope.pick(
        lambda v: v.rank >= 1 and letter(v.dtype) in "iufb" and is_exact(v)
        and not facts(v).special and not dims(v)[-1] and v.dtype != "f8E8M0FNU"
    )  # fmt: skip
    if not x.shapes[0][-1]:
        return None
    k = scope.rng.randint(1, x.shapes[0][-1])
    shapes = tuple((*s[:-1], k) for s in x.shapes)
    results = [
        (x.dtype, shapes, known.moved(facts(x), dims(x))),
        ("i32", shapes, Facts(x.shapes[0][-1], grain=0, dynamic=dims(x))),
    ]
    return scope.add("chlo.top_k", [x], results, f"k = {k} : i64")
