"""Makers of what is left: quantized types, tuples, broadcasts of CHLO, custom calls, scans."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import replace

import numpy as np

from tests.fuzz.draws import NothingFits
from tests.fuzz.program import Value
from tests.fuzz.text import types as known
from tests.fuzz.text.control import result_of
from tests.fuzz.text.generate import CALLS, Result, Scope, facts
from tests.fuzz.text.moves import numbers, pairs
from tests.fuzz.text.ops import (
    broadcast_to,
    dims,
    is_exact,
    is_float,
    is_integer,
    is_number,
    is_real,
    letter,
    op,
    same,
    similar,
)
from tests.fuzz.text.reductions import ONCE, draw_monoid, initials, monoid_body, reduced
from tests.fuzz.text.types import Facts

# --- quantized -----------------------------------------------------------------------------------

_STORAGES = {"i8": (-128, 127), "ui8": (0, 255), "i4": (-8, 7), "i16": (-(2**15), 2**15 - 1),
             "i32": (-(2**31), 2**31 - 1)}  # fmt: skip


def _quantized(scope: Scope, x: Value) -> tuple[str, float]:
    """A quantized type for the sizes of a value, and its largest magnitude."""
    rng = scope.rng
    storage = rng.choice(["i8", "i8", "ui8", "i4", "i16"])
    low, high = _STORAGES[storage]
    expressed = x.dtype
    limits = ""
    if rng.random() < 0.2 and storage == "i8":
        low, high = -127, 127
        limits = "<-127:127>"
    scales = [rng.choice([0.0625, 0.125, 0.25, 0.5]) for _ in range(8)]
    points = [rng.choice([0, 0, 1, 3]) + (8 if storage == "ui8" else 0) for _ in range(8)]
    still = [a for a in range(x.rank) if not dims(x)[a] and 0 < x.shapes[0][a] <= 8]
    most = max(abs(low), abs(high)) + 16
    if still and rng.random() < 0.4:
        axis = rng.choice(still)
        count = x.shapes[0][axis]
        each = ", ".join(f"{s}:{p}" for s, p in zip(scales[:count], points, strict=False))
        text = f"!quant.uniform<{storage}{limits}:{expressed}:{axis}, {{{each}}}>"
        return text, most * max(scales[:count])
    return f"!quant.uniform<{storage}{limits}:{expressed}, {scales[0]}:{points[0]}>", most * scales[
        0
    ]


@op(2)
def quantize(scope: Scope) -> object:
    """There, some steps on quantized values, and back."""
    rare = scope.chance(0.1)  # no oracle knows expressed types but f32
    x = scope.pick(
        lambda v: (v.dtype == "f32" or (rare and v.dtype in ("bf16", "f16"))) and is_exact(v)
        and not facts(v).special and not known.is_quantized(v.dtype)
    )  # fmt: skip
    drawn = _quantized(scope, x)
    dtype, magnitude = drawn
    found = Facts(magnitude, dynamic=dims(x))
    q = scope.one("uniform_quantize", [x], (dtype, x.shapes, found))
    per_axis = "{" in dtype
    ends = [q]
    for _ in range(scope.rng.randint(0, 3)):
        with contextlib.suppress(NothingFits):
            ends.append(_on_quantized(scope, ends[-1], per_axis))
    last = ends[-1]
    for value in ends:
        if value in scope.values:
            scope.values.remove(value)
        if value in scope.made:
            scope.made.remove(value)
    return scope.one("uniform_dequantize", [last], (x.dtype, last.shapes, facts(last)))


def _expressed(dtype: str) -> str:
    """The type whose numbers a quantized type stands for."""
    found = re.search(r":(b?f\d+)", dtype)
    assert found is not None
    return found[1]


def _on_quantized(scope: Scope, q: Value, per_axis: bool) -> Value:
    rng = scope.rng
    names = ["requantize"]
    if not per_axis:
        names += [
            "reverse", "optimization_barrier", "transpose", "add", "multiply", "negate", "maximum",
            "minimum", "tanh", "concatenate", "broadcast", "reduce", "abs", "subtract", "clamp",
            "ceil", "select", "sort",
        ]  # fmt: skip
    name = rng.choice(names)
    whole: Result = (q.dtype, q.shapes, facts(q))
    if name == "reverse":
        return scope.one(name, [q], whole, f"dimensions = {numbers(list(range(q.rank)))}")
    if name == "requantize":
        expressed = _expressed(q.dtype)
        drawn = _quantized(scope, replace(q, dtype=expressed))
        if ("{" in drawn[0]) != per_axis or per_axis:
            raise NothingFits
        return scope.one(
            "uniform_quantize", [q], (drawn[0], q.shapes, Facts(drawn[1], dynamic=dims(q)))
        )
    if name == "transpose":
        if q.rank < 2:
            raise NothingFits
        order = rng.sample(range(q.rank), q.rank)
        shapes = tuple(tuple(s[i] for i in order) for s in q.shapes)
        found = known.moved(facts(q), tuple(dims(q)[i] for i in order))
        return scope.one(name, [q], (q.dtype, shapes, found), f"permutation = {numbers(order)}")
    if name == "broadcast":
        shapes = tuple((2, *s) for s in q.shapes)
        found = known.moved(facts(q), (False, *dims(q)))
        return scope.one(name, [q], (q.dtype, shapes, found), "broadcast_sizes = array<i64: 2>")
    if name == "concatenate":
        if not q.rank:
            raise NothingFits
        shapes = tuple((s[0] * 2, *s[1:]) for s in q.shapes)
        return scope.one(name, [q, q], (q.dtype, shapes, facts(q)), "dimension = 0 : i64")
    if name == "reduce":
        if not q.rank:
            raise NothingFits
        zero = scope.constant(0, _expressed(q.dtype))
        start = scope.one("uniform_quantize", [zero], (q.dtype, ONCE, Facts(0)))
        scope.values.remove(start)
        scope.made.remove(start)
        a, b = (scope.define("a", q.dtype, ONCE, Facts(1)) for _ in range(2))
        inner = scope.inner([a, b])
        end = inner.one(rng.choice(["maximum", "minimum"]), [a, b], (q.dtype, ONCE, Facts(1)))
        shapes = tuple(s[1:] for s in q.shapes)
        found = known.moved(facts(q), dims(q)[1:])
        return scope.one(
            "reduce", [q, start], (q.dtype, shapes, found), "dimensions = array<i64: 0>",
            [inner.body([a, b], [end], is_fixed=True)],
        )  # fmt: skip
    if name == "clamp":
        return scope.one(name, [q, q, q], whole)
    if name == "select":
        p = scope.pick(lambda v: v.dtype == "i1" and (v.shapes == q.shapes or v.rank == 0))
        return scope.one(name, [p, q, q], whole)
    if name == "sort":
        if not q.rank:
            raise NothingFits
        a, b = (scope.define("a", q.dtype, ONCE, Facts(1)) for _ in range(2))
        inner = scope.inner([a, b])
        text = "comparison_direction = #stablehlo<comparison_direction LT>"
        end = inner.one("compare", [a, b], ("i1", ONCE, Facts(1, grain=0)), text)
        attributes = "dimension = 0 : i64, is_stable = true"
        return scope.one("sort", [q], whole, attributes, [inner.body([a, b], [end], is_fixed=True)])
    if name in ("add", "multiply", "maximum", "minimum", "subtract"):
        return scope.one(name, [q, q], whole)
    return scope.one(name, [q], whole)


# --- tuples --------------------------------------------------------------------------------------


@op(1)
def tuples(scope: Scope) -> object:
    """A tuple of values, one of whose elements is taken; tuples of tuples, too."""
    many = [v for _ in range(scope.rng.randint(1, 3)) if (v := scope.find())]
    if not many or scope.depth > 0:
        return None
    index = scope.rng.randrange(len(many))
    way = scope.rng.choice(["flat", "nested"])
    return scope.one("fuzz.tuple", many, result_of(many[index]), f"{index} {way}")


# --- CHLO ----------------------------------------------------------------------------------------


@op(2)
def chlo_broadcast(scope: Scope) -> object:
    """Operands of other ranks, with sizes of 1."""
    rng = scope.rng
    name = rng.choice(
        ["add", "subtract", "maximum", "minimum", "and", "or", "xor", "compare", "multiply"]
    )
    logical = name in ("and", "or", "xor")
    x = scope.pick(
        lambda v: (
            is_real(v)
            and is_exact(v)
            and (letter(v.dtype) in "biu" if logical else v.dtype != "i1")
        )
    )

    def fits(v: Value) -> bool:
        if v.dtype != x.dtype or not is_exact(v) or v.rank > x.rank:
            return False
        behind = x.rank - v.rank
        return all(
            s[a] == t[a + behind]
            or (s[a] == 1 and not dims(v)[a])
            or (t[a + behind] == 1 and not dims(x)[a + behind])
            for s, t in zip(v.shapes, x.shapes, strict=True)
            for a in range(v.rank)
        )

    y = scope.pick(fits)
    behind = x.rank - y.rank
    shapes = tuple(
        tuple(t if a < behind else (s[a - behind] if t == 1 else t) for a, t in enumerate(shape))
        for s, shape in zip(y.shapes, x.shapes, strict=True)
    )
    mask = tuple(d or (a >= behind and dims(y)[a - behind]) for a, d in enumerate(dims(x)))
    a, b = facts(x), facts(y)
    grain = None if a.grain is None or b.grain is None else max(a.grain, b.grain)
    dtype = x.dtype
    if name == "compare":
        found: Facts | None = Facts(1, grain=0)
        dtype = "i1"
    elif name in ("add", "subtract"):
        found = known.rounded(
            dtype, Facts(a.magnitude + b.magnitude, 0, grain, a.special or b.special), once=True
        )
    elif name == "multiply":
        grain = None if grain is None else (a.grain or 0) + (b.grain or 0)
        found = known.rounded(
            dtype, Facts(a.magnitude * b.magnitude, 0, grain, a.special or b.special), once=True
        )
    elif logical:
        found = Facts(known.largest(dtype), grain=0)
    else:
        found = known.join(a, b)
    if found is None:
        return None
    attributes = []
    if behind or rng.random() < 0.3:
        attributes.append(f"broadcast_dimensions = {numbers(list(range(behind, x.rank)))}")
    if name == "compare":
        attributes.append("comparison_direction = #chlo<comparison_direction GE>")
    operands = [x, y] if rng.random() < 0.6 else [y, x]
    return scope.one(
        f"chlo.broadcast_{name}", operands, (dtype, shapes, known.moved(found, mask)),
        ", ".join(attributes),
    )  # fmt: skip


@op(1)
def chlo_broadcast_function(scope: Scope) -> object:
    """Operands of one shape, or one that is a scalar."""
    rng = scope.rng
    names = ["atan2", "divide", "remainder", "next_after", "complex", "select", "power"]
    names += ["shift_left", "shift_right_arithmetic", "shift_right_logical"]
    name = rng.choice(names)
    if name == "select":
        p = scope.pick(lambda v: v.dtype == "i1")
        x = scope.pick(lambda v: is_real(v) and (v.shapes == p.shapes or not v.rank or not p.rank))
        y = similar(scope, x)
        whole = p if p.rank else x
        found = known.moved(known.join(facts(x), facts(y)), dims(whole))
        return scope.one(f"chlo.broadcast_{name}", [p, x, y], (x.dtype, whole.shapes, found))
    if name.startswith("shift"):
        x = scope.pick(is_integer)
    else:
        x = scope.pick(lambda v: v.dtype in ("f32", "f64") and is_exact(v))
    y = scope.find(lambda v: v.dtype == x.dtype and not v.rank and is_exact(v)) or similar(scope, x)
    if not is_exact(y):
        return None
    special = facts(x).special or facts(y).special
    dtype = x.dtype
    found = Facts(known.largest(dtype), special=True)
    if name.startswith("shift"):
        found = Facts(known.largest(dtype), grain=0)
    elif name == "complex":
        dtype, found = f"complex<{dtype}>", known.join(facts(x), facts(y))
        found = replace(found, magnitude=found.magnitude * 2)
    elif name == "atan2":
        found = Facts(3.2, 16 * known.epsilon(dtype), None, special, rough=True)
    elif name == "power":
        found = Facts(math.inf, 0, None, special=True, rough=True)
    operands = [x, y] if rng.random() < 0.6 else [y, x]
    return scope.one(f"chlo.broadcast_{name}", operands, same(x, found, dtype))


@op(0.5)
def constant_like(scope: Scope) -> object:
    x = scope.pick(lambda v: v.dtype in ("f32", "i32", "f64", "i64", "bf16", "ui8"))
    number = scope.rng.randint(0, 3)
    text = f"value = {float(number) if is_float(x) else number} : {x.dtype}"
    return scope.one("chlo.constant_like", [x], same(x, Facts(3, grain=0)), text)


# --- dynamic forms -------------------------------------------------------------------------------


@op(1)
def dynamic_conv(scope: Scope) -> object:
    """With a padding that is an operand."""
    rng = scope.rng
    x = scope.pick(
        lambda v: v.rank == 3 and v.dtype in ("f32", "i32", "f64", "i8") and not facts(v).special
    )
    if dims(x)[1]:
        return None
    out, window = rng.randint(1, 3), rng.randint(1, 3)
    feature = x.shapes[0][1]
    drawn = np.random.default_rng(rng.randrange(10**6)).integers(0, 2, (out, feature, window))
    kernel = scope.constant(drawn, x.dtype)
    low, high, stride = rng.choice([0, 1, 2, -1]), rng.choice([0, 1, -1]), rng.choice([1, 2])
    shapes = []
    for b, _, n in x.shapes:
        padded = n + low + high
        if padded < 0:
            return None
        shapes.append((b, out, (padded - window) // stride + 1 if padded >= window else 0))
    from tests.fuzz.text.products import product

    mask = (dims(x)[0], False, dims(x)[2])
    result = product(scope, x, kernel, feature * window, mask, tuple(shapes))
    if result[0] != x.dtype:
        return None
    padding = scope.constant(np.array([[low, high]]), rng.choice(["i32", "i64"]))
    text = (
        "dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, "
        f"batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
        f"window_strides = {numbers([stride])}"
    )
    return scope.one("dynamic_conv", [x, kernel, padding], result, text)


@op(1)
def set_dimension_size(scope: Scope) -> object:
    """The size it has: another one would be a bounded dimension."""
    x = scope.pick(lambda v: v.rank >= 1 and not any(dims(v)) and is_number(v))
    axis = scope.rng.randrange(x.rank)
    size = scope.constant(x.shapes[0][axis], "i32")
    return scope.one("set_dimension_size", [x, size], result_of(x), f"dimension = {axis} : i64")


@op(0.7)
def chlo_scan(scope: Scope) -> object:
    """A running monoid along a dimension: results and the last carry."""
    x = scope.pick(
        lambda v: v.rank >= 1 and is_integer(v) and not any(dims(v)) and 0 not in v.shapes[0]
    )
    axis = scope.rng.randrange(x.rank)
    monoid = draw_monoid(scope, [x])
    rest = tuple(n for a, n in enumerate(x.shapes[0]) if a != axis)
    scalar = scope.constant(monoid.identity[0], x.dtype)
    init = scalar
    shapes = (rest,) * CALLS
    if rest:
        found = known.moved(facts(scalar), (False,) * len(rest))
        made = scope.one("broadcast_in_dim", [scalar], (x.dtype, shapes, found),
                         "broadcast_dimensions = array<i64>")  # fmt: skip
        init = made
    anything = Facts(known.largest(x.dtype), grain=0)
    a, b = (scope.define("a", x.dtype, shapes, anything) for _ in range(2))
    inner = scope.inner([a, b], captures=False)
    name = monoid.name
    end = inner.one(name, [a, b], (x.dtype, shapes, known.moved(anything, (False,) * len(rest))))
    whole: Result = (x.dtype, x.shapes, known.moved(anything, dims(x)))
    last: Result = (x.dtype, shapes, known.moved(anything, (False,) * len(rest)))
    text = (
        f"dimension = {axis} : i64, is_reverse = {scope.rng.choice(['true', 'false'])}, "
        "operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>"
    )
    return scope.add(
        "chlo.scan", [x, init], [whole, last], text, [inner.body([a, b], [end, end], is_fixed=True)]
    )


@op(0.7)
def cumulative(scope: Scope) -> object:
    """A reduce_window that is a running sum, along any dimension and either way."""
    rng = scope.rng
    x = scope.pick(
        lambda v: v.rank >= 1 and is_number(v) and v.dtype != "f8E8M0FNU" and not any(dims(v))
    )
    if 0 in x.shapes[0]:
        return None
    axis = rng.randrange(x.rank)
    monoid = draw_monoid(scope, [x])
    inits = initials(scope, monoid, [x.dtype], any_value=monoid.is_idempotent)
    size = x.shapes[0][axis]
    body = monoid_body(scope, monoid, [x.dtype])
    found = reduced(monoid, [x], inits, size)
    window = [size if a == axis else 1 for a in range(x.rank)]
    ends = (size - 1, 0) if rng.random() < 0.6 else (0, size - 1)
    padding = [ends if a == axis else (0, 0) for a in range(x.rank)]
    attributes = f"window_dimensions = {numbers(window)}, padding = {pairs(padding)}"
    result = (x.dtype, x.shapes, known.moved(found[0], dims(x)))
    return scope.one("reduce_window", [x, *inits], result, attributes, [body])


@op(0.7)
def rectified(scope: Scope) -> object:
    """A comparison with a splat, and a selection by it."""
    x = scope.pick(
        lambda v: is_real(v) and is_exact(v) and v.dtype != "f8E8M0FNU" and not facts(v).special
    )
    zero = broadcast_to(scope, scope.constant(0, x.dtype), x)
    text = "comparison_direction = #stablehlo<comparison_direction GT>"
    flag = scope.one("compare", [x, zero], same(x, Facts(1, grain=0), "i1"), text)
    y = similar(scope, x)
    return scope.one("select", [flag, x, y], same(x, known.join(facts(x), facts(y))))
