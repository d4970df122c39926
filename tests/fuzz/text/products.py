"""Makers of products: dot_general, dot, einsum, convolution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.fuzz.draws import NothingFits
from tests.fuzz.program import Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Result, Scope, facts
from tests.fuzz.text.moves import numbers
from tests.fuzz.text.ops import dims, is_number, op
from tests.fuzz.text.types import Facts

_WIDER = {
    "bf16": ["f32"], "f16": ["f32"], "f32": ["f64"], "i8": ["i32"], "ui8": ["ui32", "i32"],
    "i4": ["i32", "i8"], "i16": ["i32", "i64"], "i32": ["i64"], "f8E4M3FN": ["f32", "bf16"],
    "f8E5M2": ["f32", "f16"], "i2": ["i8"], "ui4": ["ui32"], "f8E4M3": ["f32"],
    "f4E2M1FN": ["f32"],
}  # fmt: skip


def product(
    scope: Scope, x: Value, y: Value, count: int, mask: tuple[bool, ...], shapes: tuple
) -> Result:
    """The result of sums of `count` products. Raises NothingFits where it is open."""
    dtype = x.dtype
    if scope.chance(0.3) and dtype in _WIDER:
        dtype = scope.rng.choice(_WIDER[dtype])
    a, b = facts(x), facts(y)
    if dtype in known.INTEGER or dtype == "i1":
        return dtype, shapes, Facts(known.largest(dtype), grain=0, dynamic=mask)
    if a.special or b.special:
        raise NothingFits
    if known.is_float(dtype) and known.bits(dtype) < 16:
        raise NothingFits  # how their sums are rounded is open
    grain = None if a.grain is None or b.grain is None else a.grain + b.grain
    magnitude = a.magnitude * b.magnitude * max(count, 1)
    times = 4.0 if known.is_complex(dtype) else 1.0
    error = (a.error * b.magnitude + b.error * a.magnitude) * count
    real = Facts(magnitude * times, error * times, grain, False, a.rough or b.rough)
    narrow = {"bf16": "bf16", "f16": "f16"}.get(dtype, dtype)
    if not known.fits(narrow, magnitude * times, grain):
        real = replace(real, rough=True)
    found = known.rounded(dtype, real, once=True, roundings=times * (count + 2))
    if found is None:
        raise NothingFits
    return dtype, shapes, known.moved(found, mask)


@op(4)
def dot_general(scope: Scope) -> object:
    x = scope.pick(lambda v: is_number(v) and v.dtype != "f8E8M0FNU")
    y = scope.pick(lambda v: v.dtype == x.dtype)
    axes_x, axes_y = list(range(x.rank)), list(range(y.rank))
    batch: list[tuple[int, int]] = []
    contract: list[tuple[int, int]] = []
    for a in scope.rng.sample(axes_x, x.rank):
        fitting = [b for b in axes_y if x.sizes(a) == y.sizes(b) and dims(x)[a] == dims(y)[b]]
        if not fitting or scope.chance(0.3):
            continue
        b = scope.rng.choice(fitting)
        axes_x.remove(a)
        axes_y.remove(b)
        (batch if scope.chance(0.35) else contract).append((a, b))
    shapes = tuple(
        (
            *(x.shapes[c][a] for a, _ in batch),
            *(x.shapes[c][a] for a in axes_x),
            *(y.shapes[c][b] for b in axes_y),
        )
        for c in range(CALLS)
    )
    mask = (
        *(dims(x)[a] for a, _ in batch),
        *(dims(x)[a] for a in axes_x),
        *(dims(y)[b] for b in axes_y),
    )
    count = 1
    for a, _ in contract:
        count *= max(x.sizes(a))
    result = product(scope, x, y, count, mask, shapes)
    lists = [
        list(part)
        for part in (
            [a for a, _ in batch], [b for _, b in batch], [a for a, _ in contract],
            [b for _, b in contract],
        )
    ]  # fmt: skip
    text = (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {lists[0]}, "
        f"rhs_batching_dimensions = {lists[1]}, lhs_contracting_dimensions = {lists[2]}, "
        f"rhs_contracting_dimensions = {lists[3]}>"
    )
    return scope.one("dot_general", [x, y], result, text)


@op(1)
def dot(scope: Scope) -> object:
    x = scope.pick(lambda v: 1 <= v.rank <= 2 and is_number(v) and v.dtype != "f8E8M0FNU")
    y = scope.pick(
        lambda v: 1 <= v.rank <= 2 and v.dtype == x.dtype and v.sizes(0) == x.sizes(x.rank - 1)
    )
    shapes = tuple((*x.shapes[c][:-1], *y.shapes[c][1:]) for c in range(CALLS))
    mask = (*dims(x)[:-1], *dims(y)[1:])
    result = product(scope, x, y, max(x.sizes(x.rank - 1)), mask, shapes)
    return scope.one("dot", [x, y], result)


@op(1)
def einsum(scope: Scope) -> object:
    x = scope.pick(lambda v: is_number(v) and v.dtype != "f8E8M0FNU")
    y = scope.pick(lambda v: v.dtype == x.dtype and v.rank + x.rank <= 6)
    letters = "abcdefgh"
    left = list(letters[: x.rank])
    right: list[str] = []
    size = {name: x.sizes(a) for a, name in enumerate(left)}
    for b in range(y.rank):
        fitting = [name for name in left if size[name] == y.sizes(b) and name not in right]
        if fitting and scope.chance(0.7):
            right.append(scope.rng.choice(fitting))
        else:
            right.append(letters[x.rank + b])
            size[right[-1]] = y.sizes(b)
    every = sorted(size)
    kept = [name for name in every if not (name in left and name in right) or scope.chance(0.4)]
    gone = [name for name in every if name not in kept]
    scope.rng.shuffle(kept)
    masks = {name: dims(x)[a] for a, name in enumerate(left)} | {
        name: dims(y)[b] for b, name in enumerate(right)
    }
    shapes = tuple(tuple(size[name][c] for name in kept) for c in range(CALLS))
    count = 1
    for name in gone:
        count *= max(size[name])
    result = product(scope, x, y, count, tuple(masks[name] for name in kept), shapes)
    if result[0] != x.dtype:
        return None
    text = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    return scope.one("einsum", [x, y], result, f'einsum_config = "{text}"')


@op(0.5)
def unary_einsum(scope: Scope) -> object:
    x = scope.pick(
        lambda v: is_number(v) and v.rank >= 1 and v.dtype != "f8E8M0FNU" and not facts(v).special
    )
    letters = list("abcd"[: x.rank])
    kept = scope.rng.sample(letters, scope.rng.randint(0, x.rank))
    axes = [letters.index(name) for name in kept]
    count = 1
    for a in range(x.rank):
        if a not in axes:
            count *= max(x.sizes(a))
    a = facts(x)
    mask = tuple(dims(x)[k] for k in axes)
    shapes = tuple(tuple(s[k] for k in axes) for s in x.shapes)
    if x.dtype in known.INTEGER or x.dtype == "i1":
        found: Facts | None = Facts(known.largest(x.dtype), grain=0)
    else:
        real = Facts(a.magnitude * max(count, 1), a.error * count, a.grain, False, a.rough)
        if not known.fits(x.dtype, real.magnitude, a.grain):
            real = replace(real, rough=count > 1 or a.rough)
        found = known.rounded(x.dtype, real, once=True, roundings=count + 1)
    if found is None:
        return None
    text = f'einsum_config = "{"".join(letters)}->{"".join(kept)}"'
    return scope.one("unary_einsum", [x], (x.dtype, shapes, known.moved(found, mask)), text)


@op(3)
def convolution(scope: Scope) -> object:
    """One or two spatial dimensions; strides, dilations, padding, groups, reversal, any layout."""
    rng = scope.rng
    spatial = rng.choice([0, 1, 1, 2])
    x = scope.pick(lambda v: v.rank == spatial + 2 and is_number(v) and v.dtype != "f8E8M0FNU")
    y = scope.find(lambda v: v.rank == spatial + 2 and v.dtype == x.dtype and not any(dims(v)))
    if y is None or rng.random() < 0.5:
        drawn = np.random.default_rng(rng.randrange(10**6))
        shape = tuple(
            rng.choice([1, 2, 3, min(x.shapes[0]), max(x.shapes[0])]) for _ in range(x.rank)
        )
        y = scope.constant(drawn.integers(0, 2, shape), x.dtype)
    x_order = rng.sample(range(x.rank), x.rank)  # batch, feature, spatial...
    y_order = rng.sample(range(y.rank), y.rank)  # output, input, spatial...
    batch, feature = x.sizes(x_order[0]), x.sizes(x_order[1])
    out, inn = y.shapes[0][y_order[0]], y.shapes[0][y_order[1]]
    if dims(x)[x_order[1]] or not inn or feature[0] % inn:
        return None
    groups = feature[0] // inn
    batch_groups = 1
    if not groups or out % groups:
        return None
    if groups == 1 and not dims(x)[x_order[0]] and rng.random() < 0.3:
        fitting = [g for g in range(1, 9) if batch[0] % g == 0 and out % g == 0 and batch[0]]
        batch_groups = rng.choice(fitting or [1])
    draw = lambda many: [rng.choice(many) for _ in range(spatial)]  # noqa: E731
    strides, lhs, rhs = draw([1, 1, 2, 3]), draw([1, 1, 2]), draw([1, 1, 2])
    low, high = draw([0, 0, 1, 2, -1]), draw([0, 0, 1, 3, -1])
    reversal = draw([False, False, True])
    sizes: list[list[int]] = []
    for c in range(CALLS):
        row = []
        for k in range(spatial):
            n = x.shapes[c][x_order[2 + k]]
            base = max((n - 1) * lhs[k] + 1, 0) if n else 0
            window = y.shapes[0][y_order[2 + k]]
            reach = (window - 1) * rhs[k] + 1 if window else 0
            padded = base + low[k] + high[k]
            if padded < 0 or not window:
                return None
            row.append((padded - reach) // strides[k] + 1 if padded >= reach else 0)
        sizes.append(row)
    result_order = rng.sample(range(x.rank), x.rank)
    shapes = []
    for c in range(CALLS):
        shape = [0] * x.rank
        whole = [batch[c] // batch_groups, out, *sizes[c]]
        for place, number in zip(result_order, whole, strict=True):
            shape[place] = number
        shapes.append(tuple(shape))
    mask = [False] * x.rank
    for k, place in enumerate(result_order):
        mask[place] = False if k == 1 else dims(x)[x_order[k]]
    count = inn
    for k in range(spatial):
        count *= y.shapes[0][y_order[2 + k]]
    count *= 1
    result = product(scope, x, y, count, tuple(mask), tuple(shapes))

    def layout(order: list[int], first: str, second: str) -> str:
        names = [""] * len(order)
        for k, place in enumerate(order):
            names[place] = [first, second, *map(str, range(spatial))][k]
        return "[" + ", ".join(names) + "]"

    pads = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    text = (
        f"dimension_numbers = #stablehlo.conv<{layout(x_order, 'b', 'f')}x"
        f"{layout(y_order, 'o', 'i')}->{layout(result_order, 'b', 'f')}>, "
        f"batch_group_count = {batch_groups} : i64, feature_group_count = {groups} : i64, "
        f"window_strides = {numbers(strides)}, lhs_dilation = {numbers(lhs)}, "
        f"rhs_dilation = {numbers(rhs)}"
    )
    if spatial:
        text += f", padding = dense<[{pads}]> : tensor<{spatial}x2xi64>"
        inner = ", ".join(str(r).lower() for r in reversal)
        text += f", window_reversal = array<i1: {inner}>"
    return scope.one("convolution", [x, y], result, text)
