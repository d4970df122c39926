"""Makers of control flow, calls, tuples and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.fuzz.draws import NothingFits
from tests.fuzz.program import Body, Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Result, Scope, facts
from tests.fuzz.text.moves import numbers
from tests.fuzz.text.ops import dims, is_exact, is_number, op
from tests.fuzz.text.reductions import draw_monoid, monoid_body
from tests.fuzz.text.types import Facts

ONCE = ((),) * CALLS
INDEX = "comparison_direction = #stablehlo<comparison_direction LT>"


def result_of(value: Value, found: Facts | None = None) -> Result:
    return value.dtype, value.shapes, known.moved(found or facts(value), dims(value))


def results_of_branches(ends: Sequence[Sequence[Value]]) -> list[Result]:
    """Of values of equal types, one of each list."""
    return [result_of(many[0], known.join(*map(facts, many))) for many in zip(*ends, strict=True)]


def branch(scope: Scope, wanted: Sequence[Value] | None, count: int) -> tuple[Scope, list[Value]]:
    """A body without parameters that ends with values of the types of `wanted`."""
    inner = scope.inner([])
    if scope.depth < 2:
        inner.grow(count)
    if wanted is None:
        made = inner.made or inner.values
        ends = [v for v in made if not known.is_quantized(v.dtype)]
        return inner, scope.rng.sample(ends, min(len(ends), scope.rng.randint(1, 2)))
    ends = []
    for value in wanted:
        fitting = [
            v for v in inner.values
            if v.dtype == value.dtype and v.shapes == value.shapes and dims(v) == dims(value)
            and v.name != value.name
        ]  # fmt: skip
        if fitting:
            ends.append(scope.rng.choice(fitting[-3:]))
            continue
        ends.append(filler(inner, scope, value))
    return inner, ends


def filler(inner: Scope, outer: Scope, like: Value) -> Value:
    """A value of a type: zeros, or a value of the scope outside."""
    for v in outer.values:
        if v.dtype == like.dtype and v.shapes == like.shapes and dims(v) == dims(like):
            return v
    from tests.fuzz.text.ops import broadcast_to

    scalar = inner.constant(1, like.dtype)
    carrier = next(
        (v for v in outer.values if v.shapes == like.shapes and dims(v) == dims(like)), None
    )
    if carrier is None and any(dims(like)):
        raise NothingFits
    return broadcast_to(inner, scalar, carrier or replace(like, name="none"))


@op(1)
def if_(scope: Scope) -> object:
    p = scope.find(lambda v: v.dtype == "i1" and v.rank == 0)
    if p is None:
        p = scalar_of(scope, "i1")
    first, ends = branch(scope, None, 3)
    if not ends:
        return None
    second, others = branch(scope, ends, 3)
    bodies = [first.body([], ends), second.body([], others)]
    return scope.add("if", [p], results_of_branches([ends, others]), "", bodies)


@op(0.7)
def case(scope: Scope) -> object:
    """Indices out of range, too."""
    index = scope.find(lambda v: v.dtype == "i32" and v.rank == 0 and is_exact(v))
    if index is None:
        index = scalar_of(scope, "i32")
    first, ends = branch(scope, None, 2)
    if not ends:
        return None
    bodies, lists = [first.body([], ends)], [ends]
    for _ in range(scope.rng.randint(0, 2)):
        other, others = branch(scope, ends, 2)
        bodies.append(other.body([], others))
        lists.append(others)
    return scope.add("case", [index], results_of_branches(lists), "", bodies)


def scalar_of(scope: Scope, dtype: str) -> Value:
    """A scalar from data if there is a value to take it from, a constant otherwise."""
    x = scope.find(
        lambda v: v.dtype == dtype and v.rank >= 1 and not any(dims(v)) and 0 not in v.shapes[0]
    )
    if x is None:
        return scope.constant(scope.rng.randint(0, 1), dtype)
    ones = ((1,) * x.rank,) * CALLS
    found = known.moved(facts(x), (False,) * x.rank)
    piece = scope.one(
        "slice", [x], (dtype, ones, found),
        f"start_indices = {numbers([0] * x.rank)}, limit_indices = {numbers([1] * x.rank)}, "
        f"strides = {numbers([1] * x.rank)}",
    )  # fmt: skip
    return scope.one("reshape", [piece], (dtype, ONCE, known.moved(found, ())))


@op(2)
def while_(scope: Scope) -> object:
    """A counter and values that keep their types; with captures in both regions."""
    rng = scope.rng
    if scope.depth > 1:
        return None
    carried = []
    for _ in range(rng.randint(1, 3)):
        value = scope.find(
            lambda v: (
                is_number(v)
                and (v.dtype in (*known.INTEGER, "i1") or is_exact(v))
                and v not in carried
            )
        )
        if value is not None:
            carried.append(value)
    if not carried:
        return None
    dtype = rng.choice(["i32", "i64", "ui8", "ui32", "i8"])
    start = scope.constant(0, dtype)
    trips = rng.randint(0, 4)
    counter = scope.define("c", dtype, ONCE, Facts(5, grain=0))
    heads = [counter]
    for v in carried:
        heads.append(scope.define("c", v.dtype, v.shapes, anything(v)))
    inner = scope.inner(heads)
    inner.grow(rng.randint(1, 4))
    one = inner.constant(1, dtype)
    step = inner.one("add", [counter, one], (dtype, ONCE, Facts(6, grain=0)))
    ends = [step]
    for head in heads[1:]:
        fitting = [
            v for v in inner.values
            if v.dtype == head.dtype and v.shapes == head.shapes and dims(v) == dims(head)
            and facts(v).implies(facts(head))
        ]  # fmt: skip
        made = [v for v in fitting if v in inner.made]
        ends.append(rng.choice(made) if made else rng.choice(fitting))
    body = inner.body(heads, ends)
    heads2 = [scope.define("d", v.dtype, v.shapes, facts(v)) for v in heads]
    test = scope.inner(heads2)
    limit = test.constant(trips, dtype)
    if rng.random() < 0.3:  # a limit that is captured
        limit = scope.constant(trips, dtype)
    go = test.one("compare", [heads2[0], limit], ("i1", ONCE, Facts(1, grain=0)), INDEX)
    if rng.random() < 0.2:
        flag = test.find(lambda v: v.dtype == "i1" and v.rank == 0 and v != go and is_exact(v))
        if flag is not None:
            both = test.one("and", [go, flag], ("i1", ONCE, Facts(1, grain=0)))
            go = both
    results = [result_of(start)] + [result_of(h) for h in heads[1:]]
    bodies = [test.body(heads2, [go]), body]
    return scope.add("while", [start, *carried], results, "", bodies)


def anything(value: Value) -> Facts:
    """What is known of a carried value: as much as its type says."""
    if value.dtype in known.INTEGER or value.dtype == "i1":
        return Facts(known.largest(value.dtype), grain=0, dynamic=dims(value))
    special = value.dtype not in known.FINITE
    return Facts(known.largest(value.dtype), special=special, dynamic=dims(value))


@op(1)
def call(scope: Scope) -> object:
    """A function, or a composite with one as its decomposition."""
    if scope.depth > 0:
        return None
    given = [v for _ in range(scope.rng.randint(1, 3)) if (v := scope.find(is_number))]
    if not given:
        return None
    heads = [scope.define("p", v.dtype, v.shapes, known.moved(facts(v), dims(v))) for v in given]
    inner = scope.inner(heads, captures=False)
    inner.depth = 1
    inner.grow(scope.rng.randint(1, 4))
    ends = inner.made or heads
    chosen = scope.rng.sample(ends, min(len(ends), scope.rng.randint(1, 2)))
    results = [result_of(v) for v in chosen]
    body = inner.body(heads, chosen)
    if scope.chance(0.5):
        return scope.add("func.call", given, results, "callee = @$F0", [body])
    attributes = 'name = "fuzz.any", decomposition = @$F0, version = 1 : i32'
    return scope.add("stablehlo.composite", given, results, attributes, [body])


@op(0.7)
def barrier(scope: Scope) -> object:
    many = [v for _ in range(scope.rng.randint(1, 3)) if (v := scope.find())]
    if not many:
        return None
    return scope.add("optimization_barrier", many, [result_of(v) for v in many])


GROUP = "replica_groups = dense<0> : tensor<1x1xi64>"


@op(1)
def collective(scope: Scope) -> object:
    """Of one replica and partition."""
    if scope.depth > 0:
        return None
    x = scope.pick(lambda v: is_number(v) and v.dtype != "f8E8M0FNU" and v.rank >= 1)
    name = scope.rng.choice(
        ["all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute",
         "reduce_scatter", "replica_id", "partition_id"]
    )  # fmt: skip
    if name.endswith("_id"):
        return scope.one(name, [], ("ui32", ONCE, Facts(0, grain=0)))
    axis = scope.rng.randrange(x.rank)
    if name == "all_gather" and any(s[axis] == 0 for s in x.shapes):  # the verifier refuses these
        return None
    bodies: list[Body] = []
    if "reduce" in name:
        monoid = draw_monoid(scope, [x])
        body = monoid_body(scope, monoid, [x.dtype])
        bodies.append(body)
    attributes = {
        "all_gather": f"all_gather_dim = {axis} : i64, {GROUP}",
        "all_reduce": GROUP,
        "all_to_all": f"split_dimension = {axis} : i64, concat_dimension = {axis} : i64, "
        f"split_count = 1 : i64, {GROUP}",
        "collective_broadcast": GROUP,
        "collective_permute": "source_target_pairs = dense<0> : tensor<1x2xi64>",
        "reduce_scatter": f"scatter_dimension = {axis} : i64, {GROUP}",
    }[name]
    return scope.one(name, [x], result_of(x), attributes, bodies)


# --- linear algebra, random bits, normalisation --------------------------------------------------


@op(0.5)
def cholesky(scope: Scope) -> object:
    """Of a matrix that is made positive definite."""
    dtype = scope.rng.choice(["f32", "f64"])
    size = scope.rng.randint(1, 4)
    made = np.random.default_rng(scope.rng.randrange(10**6)).integers(-4, 5, (size, size)) / 2.0
    matrix = scope.constant(made @ made.T + 4 * np.eye(size), dtype)
    found = Facts(20, 64 * known.epsilon(dtype) * 20, rough=True)
    lower = scope.rng.choice(["true", "false"])
    full = scope.one("cholesky", [matrix], (dtype, matrix.shapes, found), f"lower = {lower}")
    # The other triangle is open.
    row, column = (
        scope.one(
            "iota", [], ("i32", matrix.shapes, Facts(4, grain=0)), f"iota_dimension = {d} : i64"
        )
        for d in (0, 1)
    )
    way = "GE" if lower == "true" else "LE"
    inside = scope.one(
        "compare", [row, column], ("i1", matrix.shapes, Facts(1, grain=0)),
        f"comparison_direction = #stablehlo<comparison_direction {way}>",
    )  # fmt: skip
    zero = scope.constant(np.zeros((size, size)), dtype)
    result = scope.one("select", [inside, full, zero], (dtype, matrix.shapes, found))
    full_index = scope.values.index(full)
    del scope.values[full_index]
    scope.made.remove(full)
    return result


@op(0.5)
def triangular_solve(scope: Scope) -> object:
    dtype = scope.rng.choice(["f32", "f64"])
    rng = scope.rng
    size, other = rng.randint(1, 4), rng.randint(1, 3)
    draw = np.random.default_rng(rng.randrange(10**6))
    made = np.eye(size) * 4 + draw.integers(-4, 5, (size, size)) / 4.0
    left = rng.random() < 0.5
    a = scope.constant(made, dtype)
    b = scope.constant(draw.integers(-8, 9, (size, other) if left else (other, size)) / 8.0, dtype)
    found = Facts(100, 256 * known.epsilon(dtype) * 10, rough=True)
    way = rng.choice(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    attributes = (
        f"left_side = {str(left).lower()}, lower = {rng.choice(['true', 'false'])}, "
        f"unit_diagonal = {rng.choice(['true', 'false'])}, "
        f"transpose_a = #stablehlo<transpose {way}>"
    )
    return scope.one("triangular_solve", [a, b], (dtype, b.shapes, found), attributes)


@op(1)
def fft(scope: Scope) -> object:
    rng = scope.rng
    kind = rng.choice(["FFT", "IFFT", "RFFT", "IRFFT"])
    wanted = ["f32", "f64"] if kind == "RFFT" else known.COMPLEX
    x = scope.pick(
        lambda v: v.dtype in wanted and v.rank >= 1 and not facts(v).special
        and not any(dims(v)) and 0 not in v.shapes[0] and facts(v).magnitude < 1e6
    )  # fmt: skip
    count = rng.randint(1, min(2, x.rank))
    lengths = list(x.shapes[0][-count:])
    shape = list(x.shapes[0])
    dtype = x.dtype
    if kind == "RFFT":
        shape[-1] = lengths[-1] // 2 + 1
        dtype = f"complex<{x.dtype}>"
    if kind == "IRFFT":
        lengths[-1] = max(2 * (lengths[-1] - 1), 1) + rng.randint(0, 1) * (lengths[-1] > 1)
        if lengths[-1] // 2 + 1 != x.shapes[0][-1]:
            return None
        shape[-1] = lengths[-1]
        dtype = known.real_of(x.dtype)
    a = facts(x)
    total = int(np.prod(lengths)) * 2
    magnitude = a.magnitude * total
    error = a.error * total + 8 * known.epsilon(dtype) * magnitude
    found = Facts(magnitude, error, None, False, True)
    attributes = f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {numbers(lengths)}"
    return scope.one("fft", [x], (dtype, (tuple(shape),) * CALLS, found), attributes)


@op(0.15)
def rng_bit_generator(scope: Scope) -> object:
    algorithm, count = scope.rng.choice(
        [("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)]
    )
    state = scope.find(lambda v: v.dtype == "ui64" and v.shapes == ((count,),) * CALLS)
    if state is None:
        drawn = np.random.default_rng(scope.rng.randrange(10**6)).integers(0, 2**62, (count,))
        state = scope.constant(drawn, "ui64")
    dtype = scope.rng.choice(["ui32", "ui64", "ui8", "ui16"])
    shape = tuple(scope.rng.choice([1, 2, 3, 5]) for _ in range(scope.rng.randint(0, 2)))
    results: list[Result] = [
        ("ui64", state.shapes, Facts(2.0**64, grain=0)),
        (dtype, (shape,) * CALLS, Facts(known.largest(dtype), grain=0)),
    ]
    attributes = f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>"
    return scope.add("rng_bit_generator", [state], results, attributes)


@op(1)
def batch_norm(scope: Scope) -> object:
    x = scope.pick(
        lambda v: v.dtype in ("f32", "f64", "bf16", "f16") and v.rank >= 1
        and not facts(v).special and facts(v).magnitude < 10 and is_exact(v)
        and not any(dims(v)) and 0 not in v.shapes[0]
    )  # fmt: skip
    axis = scope.rng.randrange(x.rank)
    features = x.shapes[0][axis]
    draw = np.random.default_rng(scope.rng.randrange(10**6))

    def vector(low: float) -> Value:
        return scope.constant(draw.integers(1, 9, (features,)) / 4.0 + low, x.dtype)

    text = f"epsilon = 0.125 : f32, feature_index = {axis} : i64"
    eps = known.epsilon(x.dtype)
    scale, offset, mean, variance = vector(0), vector(-1), vector(-1), vector(0)
    count = int(np.prod(x.shapes[0]))
    found = Facts(200, 400 * eps * 8, rough=True)
    name = scope.rng.choice(["inference", "training", "grad"])
    whole: Result = (x.dtype, x.shapes, found)
    row: Result = (x.dtype, ((features,),) * CALLS, replace(found, magnitude=200.0 * count))
    if name == "inference":
        operands = [x, scale, offset, mean, variance]
        return scope.one("batch_norm_inference", operands, whole, text)
    if name == "training":
        return scope.add("batch_norm_training", [x, scale, offset], [whole, row, row], text)
    error = 100 * eps * count * 10
    results = [(d, s, replace(f, error=error)) for d, s, f in (whole, row, row)]
    return scope.add("batch_norm_grad", [x, scale, mean, variance, x], results, text)
