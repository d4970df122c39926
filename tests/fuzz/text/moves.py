"""Makers of ops that move elements: static and dynamic forms."""

from __future__ import annotations

from tests.fuzz.program import Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Scope, facts
from tests.fuzz.text.ops import dims, every, is_number, op
from tests.fuzz.text.types import Facts


def numbers(values: list[int] | tuple[int, ...], kind: str = "i64") -> str:
    """An array attribute."""
    return f"array<{kind}: {', '.join(map(str, values))}>" if values else f"array<{kind}>"


def pairs(values: list[tuple[int, int]]) -> str:
    """Paddings as a dense attribute."""
    inner = ", ".join(f"[{a}, {b}]" for a, b in values)
    return (
        f"dense<[{inner}]> : tensor<{len(values)}x2xi64>" if values else "dense<> : tensor<0x2xi64>"
    )


def permuted(items: tuple, order: list[int]) -> tuple:
    return tuple(items[i] for i in order)


@op(2)
def transpose(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank > 1)
    order = scope.rng.sample(range(x.rank), x.rank)
    shapes = tuple(permuted(s, order) for s in x.shapes)
    found = known.moved(facts(x), permuted(dims(x), order))
    attributes = f"permutation = {numbers(order)}"
    return scope.one("transpose", [x], (x.dtype, shapes, found), attributes)


@op(2)
def reshape(scope: Scope) -> object:
    x = scope.pick(lambda v: len(set(v.shapes)) == 1 and not any(dims(v)))
    count = 1
    for size in x.shapes[0]:
        count *= size
    shape: list[int] = []
    left = count
    while left > 1 and len(shape) < 3:
        shape.append(scope.rng.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= shape[-1]
    if count == 0:
        shape = [0, *shape]
    elif left > 1 or scope.chance(0.1):
        shape.append(left)
    scope.rng.shuffle(shape)
    found = known.moved(facts(x), (False,) * len(shape))
    return scope.one("reshape", [x], (x.dtype, every(tuple(shape)), found))


@op(1)
def dynamic_reshape(scope: Scope) -> object:
    """Two neighbours become one, or a dimension of 1 comes or goes."""
    x = scope.pick(lambda v: v.rank >= 1)
    axis = scope.rng.randrange(x.rank)
    sizes: list[tuple[Value, int] | int] = [(x, a) for a in range(x.rank)]
    sizes = [s if dims(x)[a] else x.shapes[0][a] for a, s in enumerate(sizes)]
    shapes = [list(s) for s in x.shapes]
    mask = list(dims(x))
    if axis + 1 < x.rank and scope.chance(0.6):
        if any(dims(x)[axis : axis + 2]):
            return _flat(scope, x, axis)
        for s in shapes:
            s[axis : axis + 2] = [s[axis] * s[axis + 1]]
        sizes[axis : axis + 2] = [shapes[0][axis]]
        mask[axis : axis + 2] = [False]
    else:
        for s in shapes:
            s.insert(axis, 1)
        sizes.insert(axis, 1)
        mask.insert(axis, False)
    shape = scope.shape_operand(sizes)
    found = known.moved(facts(x), tuple(mask))
    result = (x.dtype, tuple(map(tuple, shapes)), found)
    return scope.one("dynamic_reshape", [x, shape], result)


def _flat(scope: Scope, x: Value, axis: int) -> object:
    """Two dimensions become their product, which is computed."""
    scalars = []
    for a in range(x.rank):
        known_of = tuple((s[a],) for s in x.shapes)
        found = Facts(400, grain=0, known=known_of)
        scalars.append(
            scope.one("get_dimension_size", [x], ("i32", ((),) * CALLS, found),
                      f"dimension = {a} : i64")
        )  # fmt: skip
    a, b = scalars[axis : axis + 2]
    product = tuple((s[axis] * s[axis + 1],) for s in x.shapes)
    both = scope.one("multiply", [a, b], ("i32", ((),) * CALLS, Facts(400, grain=0, known=product)))
    scalars[axis : axis + 2] = [both]
    rows = [scope.one("reshape", [s], ("i32", ((1,),) * CALLS, facts(s))) for s in scalars]
    shapes = tuple((*s[:axis], s[axis] * s[axis + 1], *s[axis + 2 :]) for s in x.shapes)
    shape = rows[0]
    if len(rows) > 1:
        found = Facts(400, grain=0, known=shapes)
        result = ("i32", ((len(rows),),) * CALLS, found)
        shape = scope.one("concatenate", rows, result, "dimension = 0 : i64")
    mask = (*dims(x)[:axis], True, *dims(x)[axis + 2 :])
    return scope.one("dynamic_reshape", [x, shape], (x.dtype, shapes, known.moved(facts(x), mask)))


@op(2)
def broadcast_in_dim(scope: Scope) -> object:
    """New dimensions, and dimensions of 1 that are repeated."""
    like = scope.find(lambda v: v.rank >= 1)
    x = scope.find(lambda v: v.rank <= 3)
    if like is None or x is None:
        return None
    places: list[int] = []
    for axis in range(x.rank):
        fitting = [
            p
            for p in range(like.rank)
            if p not in places
            and all(s[axis] in (1, t[p]) for s, t in zip(x.shapes, like.shapes, strict=True))
            and (
                not dims(x)[axis]
                or all(s[axis] == t[p] for s, t in zip(x.shapes, like.shapes, strict=True))
            )
        ]
        if not fitting:
            break
        places.append(scope.rng.choice(fitting))
    if len(places) < x.rank:  # a new dimension before or behind
        size = scope.rng.choice([1, 2, 3, 5])
        place = scope.rng.randrange(x.rank + 1)
        shapes = tuple((*s[:place], size, *s[place:]) for s in x.shapes)
        mask = (*dims(x)[:place], False, *dims(x)[place:])
        places = [a if a < place else a + 1 for a in range(x.rank)]
        sizes: list[tuple[Value, int] | int] = [(x, a) for a in range(x.rank)]
        sizes.insert(place, size)
    else:
        shapes, mask = like.shapes, dims(like)
        sizes = [(like, a) for a in range(like.rank)]
    found = known.moved(facts(x), mask)
    attributes = f"broadcast_dimensions = {numbers(places)}"
    if not any(mask) and scope.chance(0.8):
        return scope.one("broadcast_in_dim", [x], (x.dtype, shapes, found), attributes)
    shape = scope.shape_operand(sizes)
    if scope.chance(0.3) and x.rank:
        ones = [a for a in range(x.rank) if all(s[a] == 1 for s in x.shapes) and not dims(x)[a]]
        others = [
            a for a in range(x.rank)
            if all(s[a] == t[places[a]] for s, t in zip(x.shapes, shapes, strict=True))
            and a not in ones
        ]  # fmt: skip
        wider = [a for a in ones if not all(t[places[a]] == 1 for t in shapes)]
        attributes += f", known_expanding_dimensions = {numbers(wider)}"
        attributes += f", known_nonexpanding_dimensions = {numbers(others)}"
    return scope.one("dynamic_broadcast_in_dim", [x, shape], (x.dtype, shapes, found), attributes)


@op(1)
def broadcast(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank <= 2 and is_number(v))
    sizes = tuple(scope.rng.choice([1, 2, 3]) for _ in range(scope.rng.randint(0, 2)))
    shapes = tuple((*sizes, *s) for s in x.shapes)
    found = known.moved(facts(x), ((False,) * len(sizes) + dims(x)))
    return scope.one(
        "broadcast", [x], (x.dtype, shapes, found), f"broadcast_sizes = {numbers(sizes)}"
    )


@op(1)
def iota(scope: Scope) -> object:
    like = scope.pick(lambda v: v.rank >= 1)
    dtype = scope.rng.choice([t for t in scope.dtypes if t != "i1"] + ["i32"])
    axis = scope.rng.randrange(like.rank)
    most = max(s[axis] for s in like.shapes)
    if most > known.largest(dtype):
        return None
    if known.is_float(known.real_of(dtype)) and not known.fits(dtype, max(most, 1), 0):
        return None
    found = Facts(most, grain=0, dynamic=dims(like))
    attributes = f"iota_dimension = {axis} : i64"
    if not any(dims(like)) and scope.chance(0.7):
        return scope.one("iota", [], (dtype, like.shapes, found), attributes)
    shape = scope.shape_operand([(like, a) for a in range(like.rank)])
    return scope.one("dynamic_iota", [shape], (dtype, like.shapes, found), attributes)


@op(1)
def reverse(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)
    axes = scope.rng.sample(range(x.rank), scope.rng.randint(0, x.rank))
    found = known.moved(facts(x), dims(x))
    return scope.one("reverse", [x], (x.dtype, x.shapes, found), f"dimensions = {numbers(axes)}")


def _limits(scope: Scope, x: Value) -> tuple[list[int], list[int], list[int]]:
    """Starts, limits and strides within the smallest sizes; `?` dimensions are cut, too."""
    low, high, steps = [], [], []
    for axis in range(x.rank):
        size = min(s[axis] for s in x.shapes)
        start = scope.rng.randint(0, size) if scope.chance(0.6) else 0
        low.append(start)
        high.append(scope.rng.randint(start, size) if scope.chance(0.6) else size)
        steps.append(scope.rng.choice([1, 1, 1, 2, 3]))
    return low, high, steps


@op(2)
def slice_(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)
    low, high, steps = _limits(scope, x)
    shape = tuple(-(-(hi - lo) // s) for lo, hi, s in zip(low, high, steps, strict=True))
    if 0 in shape and not scope.chance(0.1):
        return None
    found = known.moved(facts(x), (False,) * x.rank)
    attributes = (
        f"start_indices = {numbers(low)}, limit_indices = {numbers(high)}, "
        f"strides = {numbers(steps)}"
    )
    return scope.one("slice", [x], (x.dtype, every(shape), found), attributes)


@op(2)
def pad(scope: Scope) -> object:
    """With negative and interior paddings."""
    x = scope.pick(lambda v: v.rank >= 1)
    value = scope.find(lambda v: v.rank == 0 and v.dtype == x.dtype)
    if value is None:
        if not is_number(x) or x.dtype == "f8E8M0FNU":
            return None
        value = scope.constant(scope.rng.choice([0, 1, 2]) % 2, x.dtype)
    low = [scope.rng.choice([0, 0, 1, 2, -1, -2]) for _ in range(x.rank)]
    high = [scope.rng.choice([0, 0, 1, 3, -1]) for _ in range(x.rank)]
    inner = [scope.rng.choice([0, 0, 0, 1, 2]) for _ in range(x.rank)]
    shapes = tuple(
        tuple(
            lo + hi + size + max(size - 1, 0) * i
            for size, lo, hi, i in zip(s, low, high, inner, strict=True)
        )
        for s in x.shapes
    )
    if min(n for s in shapes for n in s) < 0:
        return None
    found = known.moved(known.join(facts(x), facts(value)), dims(x))
    result = (x.dtype, shapes, found)
    if scope.chance(0.3):
        dtype = scope.rng.choice(["i32", "i64"])
        operands = [scope.shape_operand(v, dtype) for v in (low, high, inner)]
        return scope.one("dynamic_pad", [x, value, *operands], result)
    attributes = (
        f"edge_padding_low = {numbers(low)}, edge_padding_high = {numbers(high)}, "
        f"interior_padding = {numbers(inner)}"
    )
    return scope.one("pad", [x, value], result, attributes)


@op(2)
def concatenate(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)
    axis = scope.rng.randrange(x.rank)

    def rest(v: Value) -> list[tuple[int, ...]]:
        return [(*s[:axis], *s[axis + 1 :]) for s in v.shapes]

    many = [x]
    for _ in range(scope.rng.randint(0, 3)):
        y = scope.find(lambda v: v.dtype == x.dtype and v.rank == x.rank and rest(v) == rest(x))
        if y is not None:
            many.append(y)
    shapes = tuple(
        (*x.shapes[c][:axis], sum(v.shapes[c][axis] for v in many), *x.shapes[c][axis + 1 :])
        for c in range(CALLS)
    )
    mask = list(dims(x))
    mask[axis] = any(dims(v)[axis] for v in many)
    for a in range(x.rank):
        if a != axis:
            mask[a] = all(dims(v)[a] for v in many)
    found = known.moved(known.join(*map(facts, many)), tuple(mask))
    return scope.one("concatenate", many, (x.dtype, shapes, found), f"dimension = {axis} : i64")


@op(1)
def dynamic_slice(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)
    starts = _starts(scope, x.rank)
    sizes = tuple(
        scope.rng.randint(1, n) if (n := min(s[a] for s in x.shapes)) else 0 for a in range(x.rank)
    )
    found = known.moved(facts(x), (False,) * x.rank)
    attributes = f"slice_sizes = {numbers(sizes)}"
    return scope.one("dynamic_slice", [x, *starts], (x.dtype, every(sizes), found), attributes)


def _starts(scope: Scope, rank: int) -> list[Value]:
    """Integer scalars of one type: also outside of every array, where they are clamped."""
    first = scope.find(lambda v: v.rank == 0 and v.dtype in known.INTEGER)
    dtype = first.dtype if first else scope.rng.choice(["i32", "i64", "ui8", "ui32", "i8"])
    starts = []
    for _ in range(rank):
        one = scope.find(lambda v: v.rank == 0 and v.dtype == dtype)
        if one is None or scope.chance(0.4):
            low = 0 if dtype not in known.SIGNED else -1
            one = scope.constant(scope.rng.randint(low, 3 if known.bits(dtype) > 2 else 1), dtype)
        starts.append(one)
    return starts


@op(1)
def dynamic_update_slice(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)

    def inside(v: Value) -> bool:
        return (
            v.dtype == x.dtype
            and v.rank == x.rank
            and all(
                a <= b for s, t in zip(v.shapes, x.shapes, strict=True)
                for a, b in zip(s, t, strict=True)
            )
        )  # fmt: skip

    update = scope.find(inside)
    starts = _starts(scope, x.rank)
    if update is None:
        return None
    found = known.moved(known.join(facts(x), facts(update)), dims(x))
    return scope.one("dynamic_update_slice", [x, update, *starts], (x.dtype, x.shapes, found))


@op(1)
def real_dynamic_slice(scope: Scope) -> object:
    """With bounds that are sizes, or numbers."""
    x = scope.pick(lambda v: v.rank >= 1)
    low, high, steps = _limits(scope, x)
    whole = [scope.chance(0.5) for _ in range(x.rank)]
    shapes = tuple(
        tuple(
            -(-((size if w else hi) - lo) // s)
            for size, lo, hi, s, w in zip(shape, low, high, steps, whole, strict=True)
        )
        for shape in x.shapes
    )
    ends = [(x, a) if whole[a] else high[a] for a in range(x.rank)]
    if min(n for s in shapes for n in s) < 1:
        return None
    dtype = scope.rng.choice(["i32", "i64"])
    operands = [scope.shape_operand(v, dtype) for v in (low, ends, steps)]
    mask = tuple(d and w for d, w in zip(dims(x), whole, strict=True))
    found = known.moved(facts(x), mask)
    return scope.one("real_dynamic_slice", [x, *operands], (x.dtype, shapes, found))
