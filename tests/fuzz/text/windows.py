"""Makers of windows, gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.program import Body, Value
from tests.fuzz.text import types as known
from tests.fuzz.text.generate import CALLS, Scope, facts
from tests.fuzz.text.moves import numbers, pairs
from tests.fuzz.text.ops import (
    dims,
    elementwise,
    is_exact,
    is_number,
    letter,
    op,
)
from tests.fuzz.text.reductions import (
    ONCE,
    draw_monoid,
    initials,
    monoid_body,
    reduced,
    reducible,
    several,
)
from tests.fuzz.text.types import Facts


@op(4)
def reduce_window(scope: Scope) -> object:
    """Strides, both dilations, paddings of either sign, several operands."""
    rng = scope.rng
    drawn = reducible(scope)
    many, monoid = drawn
    x = many[0]
    rank = x.rank
    whole = rng.random() < 0.15  # a running sum
    window, strides, base, dilations, padding = [], [], [], [], []
    for axis in range(rank):
        sizes = x.sizes(axis)
        if whole and axis == rank - 1 and len(set(sizes)) == 1 and sizes[0] > 1:
            window.append(sizes[0])
            padding.append((sizes[0] - 1, 0) if rng.random() < 0.7 else (0, sizes[0] - 1))
            strides.append(1)
            base.append(1)
            dilations.append(1)
            continue
        window.append(1 if whole else rng.choice([1, 1, 2, 3]))
        strides.append(1 if whole else rng.choice([1, 1, 2, 3]))
        base.append(1 if whole else rng.choice([1, 1, 1, 2]))
        dilations.append(1 if whole else rng.choice([1, 1, 1, 2]))
        padding.append(
            (0, 0) if whole else (rng.choice([0, 0, 1, 2, -1]), rng.choice([0, 0, 1, -1]))
        )
    shapes = []
    for shape in x.shapes:
        row = []
        for axis, size in enumerate(shape):
            dilated = (size - 1) * base[axis] + 1 if size else 0
            padded = dilated + sum(padding[axis])
            reach = (window[axis] - 1) * dilations[axis] + 1
            if padded < 0:
                return None
            row.append((padded - reach) // strides[axis] + 1 if padded >= reach else 0)
        shapes.append(tuple(row))
    # Padding holds the initial value, and XLA leaves padding out.
    inits = initials(scope, monoid, [v.dtype for v in many], any_value=monoid.is_idempotent)
    count = int(np.prod(window))
    body = monoid_body(scope, monoid, [v.dtype for v in many])
    found = reduced(monoid, many, inits, count)
    results = [
        (v.dtype, tuple(shapes), known.moved(f, dims(x))) for v, f in zip(many, found, strict=True)
    ]
    attributes = (
        f"window_dimensions = {numbers(window)}, window_strides = {numbers(strides)}, "
        f"base_dilations = {numbers(base)}, window_dilations = {numbers(dilations)}, "
        f"padding = {pairs(padding)}"
    )
    return scope.add("reduce_window", [*many, *inits], results, attributes, [body])


@op(1.5)
def select_and_scatter(scope: Scope) -> object:
    rng = scope.rng
    x = scope.pick(
        lambda v: v.rank >= 1 and letter(v.dtype) in "iuf" and is_exact(v)
        and not facts(v).special and v.dtype != "f8E8M0FNU"
    )  # fmt: skip
    window, strides, padding = [], [], []
    for _ in range(x.rank):
        window.append(rng.choice([1, 1, 2, 3]))
        strides.append(rng.choice([1, 1, 2, 3]))
        padding.append(
            (0, 0)
            if window[-1] == 1 or rng.random() < 0.6
            else (rng.choice([0, 1]), rng.choice([0, 1]))
        )
    shapes = []
    for shape in x.shapes:
        row = []
        for axis, size in enumerate(shape):
            padded = size + sum(padding[axis])
            row.append(
                (padded - window[axis]) // strides[axis] + 1 if padded >= window[axis] else 0
            )
        shapes.append(tuple(row))
    if any(0 in shape for shape in shapes):  # XLA leaves some results without a value
        return None
    source = scope.find(lambda v: v.dtype == x.dtype and v.shapes == tuple(shapes))
    if source is None:
        scalar = scope.constant(rng.choice([1, 2]) if known.bits(x.dtype) > 2 else 1, x.dtype)
        mask = known.moved(facts(scalar), dims(x))
        if any(dims(x)):
            return None
        source = scope.one(
            "broadcast_in_dim", [scalar], (x.dtype, tuple(shapes), mask),
            "broadcast_dimensions = array<i64>",
        )  # fmt: skip
    monoid = draw_monoid(scope, [source])
    inits = initials(scope, monoid, [x.dtype])
    body = monoid_body(scope, monoid, [x.dtype])
    found = reduced(monoid, [source], inits, int(np.prod(window)))
    parameters = [scope.define("a", x.dtype, ONCE, facts(x)) for _ in range(2)]
    inner = scope.inner(parameters)
    way = rng.choice(["GE", "GE", "GT", "LE", "LT"])
    chosen = inner.one(
        "compare", parameters, ("i1", ONCE, Facts(1, grain=0)),
        f"comparison_direction = #stablehlo<comparison_direction {way}>",
    )  # fmt: skip
    attributes = (
        f"window_dimensions = {numbers(window)}, window_strides = {numbers(strides)}, "
        f"padding = {pairs(padding)}"
    )
    result = (x.dtype, x.shapes, known.moved(found[0], dims(x)))
    return scope.one(
        "select_and_scatter", [x, source, inits[0]], result, attributes,
        [inner.body(parameters, [chosen], is_fixed=True), body],
    )  # fmt: skip


# --- gather and scatter ------------------------------------------------------------------------


class Places:
    """The dimension numbers of a gather or scatter, and shapes that fit them."""

    def __init__(self, scope: Scope, x: Value) -> None:
        rng = scope.rng
        self.scope, self.x = scope, x
        axes = rng.sample(range(x.rank), x.rank)
        still = [a for a in axes if not dims(x)[a]]
        self.batching = sorted(a for a in still if rng.random() < 0.2)
        rest = [a for a in axes if a not in self.batching]
        count = rng.randint(min(1, len(rest)), len(rest)) if rng.random() < 0.95 else 0
        self.indexed = rest[:count]
        """Dimensions whose start is looked up, in the order of the index vector."""
        self.sizes: list[int] = []
        for axis in range(x.rank):
            most = min(x.sizes(axis))
            if axis in self.batching or not most:
                self.sizes.append(min(1, most))
            elif axis not in self.indexed and rng.random() < 0.5 and not dims(x)[axis]:
                self.sizes.append(most)
            else:
                self.sizes.append(rng.randint(1, most) if rng.random() < 0.5 else 1)
        self.collapsed = sorted(
            a for a in range(x.rank)
            if a not in self.batching and self.sizes[a] == 1 and rng.random() < 0.7
        )  # fmt: skip
        self.offsets = [
            a for a in range(x.rank) if a not in self.batching and a not in self.collapsed
        ]
        more = [rng.choice([1, 2, 3]) for _ in range(rng.randint(0, 2))]
        batch = [x.shapes[0][a] for a in self.batching]
        self.batch_sizes = [*batch, *more]
        order = rng.sample(range(len(self.batch_sizes)), len(self.batch_sizes))
        self.batch_sizes = [self.batch_sizes[k] for k in order]
        self.index_batching = [order.index(k) for k in range(len(batch))]
        self.vector = len(self.batch_sizes)
        self.has_vector = len(self.indexed) != 1 or rng.random() < 0.6
        if self.has_vector:
            self.vector = rng.randint(0, len(self.batch_sizes))
            self.index_batching = [k + (k >= self.vector) for k in self.index_batching]
        rank = len(self.batch_sizes) + len(self.offsets)
        self.places = sorted(rng.sample(range(rank), len(self.offsets)))
        """Where the offsets are in the result."""
        self.rank = rank

    @property
    def index_shape(self) -> tuple[int, ...]:
        shape = list(self.batch_sizes)
        if self.has_vector:
            shape.insert(self.vector, len(self.indexed))
        return tuple(shape)

    @property
    def result_shape(self) -> tuple[int, ...]:
        batch, offsets = iter(self.batch_sizes), iter(self.sizes[a] for a in self.offsets)
        return tuple(next(offsets) if k in self.places else next(batch) for k in range(self.rank))

    def indices(self, whole: bool = False) -> Value:
        """Indices, also outside of the operand; `whole`: no window is partly outside.

        XLA drops such an update whole, the specification only its elements that are outside.
        """
        scope, shape = self.scope, self.index_shape
        if whole and any(self.sizes[a] != 1 for a in self.indexed):
            return scope.constant(np.zeros(shape, np.int64), "i32")
        found = scope.find(lambda v: v.dtype in known.INTEGER and v.shapes == (shape,) * CALLS)
        if found is not None and not any(dims(found)):
            return found
        dtype = scope.rng.choice(["i32", "i64", "ui8", "i8", "ui32"])
        low = 0 if dtype.startswith("u") else -2
        drawn = np.random.default_rng(scope.rng.randrange(10**6)).integers(low, 5, shape)
        return scope.constant(drawn, dtype)


@op(3)
def gather(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1)
    places = Places(scope, x)
    if places.rank > 4 or 0 in places.batch_sizes:
        return None
    indices = places.indices()
    rank = places.rank
    found = known.moved(facts(x), (False,) * rank)
    text = (
        f"#stablehlo.gather<offset_dims = {places.places}, "
        f"collapsed_slice_dims = {places.collapsed}, operand_batching_dims = {places.batching}, "
        f"start_indices_batching_dims = {places.index_batching}, "
        f"start_index_map = {places.indexed}, index_vector_dim = {places.vector}>"
    )
    result = (x.dtype, (places.result_shape,) * CALLS, found)
    if scope.chance(0.25):
        sizes = scope.constant(np.array(places.sizes), scope.rng.choice(["i32", "i64"]))
        return scope.one(
            "dynamic_gather", [x, indices, sizes], result, f"dimension_numbers = {text}"
        )
    attributes = f"dimension_numbers = {text}, slice_sizes = {numbers(places.sizes)}"
    return scope.one("gather", [x, indices], result, attributes)


@op(4)
def scatter(scope: Scope) -> object:
    """A monoid over any indices, or any function where no element is written twice."""
    rng = scope.rng
    many = several(scope)
    x = many[0]
    places = Places(scope, x)
    if places.rank > 4 or 0 in places.batch_sizes:
        return None
    indices = places.indices(whole=True)
    shape = places.result_shape
    updates: list[Value] = []
    for value in many:
        update = scope.find(
            lambda v, t=value.dtype: (
                v.dtype == t and v.shapes == (shape,) * CALLS and not any(dims(v))
            )
        )
        if update is None:
            drawn = np.random.default_rng(rng.randrange(10**6)).integers(0, 2, shape)
            update = scope.constant(drawn, value.dtype)
        updates.append(update)
    once = int(np.prod(places.batch_sizes)) == 1 or (
        places.batching and len(places.batching) == len(places.batch_sizes)
    )
    dtypes = [v.dtype for v in many]
    if once and rng.random() < 0.6:
        body, found = _any_update(scope, many, updates)
    else:
        monoid = draw_monoid(scope, many)
        if monoid.name.startswith("arg"):
            return None
        count = int(np.prod(places.batch_sizes))
        both = [_joined(v, u) for v, u in zip(many, updates, strict=True)]
        body = monoid_body(scope, monoid, dtypes)
        found = reduced(monoid, both, both, count)
    results = [(t, x.shapes, known.moved(f, dims(x))) for t, f in zip(dtypes, found, strict=True)]
    text = (
        f"#stablehlo.scatter<update_window_dims = {places.places}, "
        f"inserted_window_dims = {places.collapsed}, input_batching_dims = {places.batching}, "
        f"scatter_indices_batching_dims = {places.index_batching}, "
        f"scatter_dims_to_operand_dims = {places.indexed}, index_vector_dim = {places.vector}>"
    )
    attributes = f"scatter_dimension_numbers = {text}"
    if once and rng.random() < 0.5:
        attributes += ", unique_indices = true"
    return scope.add("scatter", [*many, indices, *updates], results, attributes, [body])


def _joined(value: Value, update: Value) -> Value:
    from dataclasses import replace

    found: Any = known.join(facts(value), facts(update))
    return replace(value, facts=replace(found, dynamic=dims(value)))


def _any_update(scope: Scope, many: list[Value], updates: list[Value]) -> tuple[Body, list[Facts]]:
    """A region that is any function of the elements, the updates, and what it captures."""
    left = [scope.define("a", v.dtype, ONCE, known.moved(facts(v), ())) for v in many]
    right = [scope.define("b", v.dtype, ONCE, known.moved(facts(v), ())) for v in updates]
    inner = scope.inner([*left, *right])
    inner.values = [v for v in inner.values if v.rank == 0]
    for _ in range(scope.rng.randint(0, 4)):
        elementwise(inner)
    ends, found = [], []
    for old, new in zip(left, right, strict=True):
        end = inner.find(lambda v, t=old.dtype: v.dtype == t and (v in inner.made))
        end = end or new
        ends.append(end)
        found.append(known.join(facts(end), facts(old)))
    return inner.body([*left, *right], ends), found


@op(1)
def torch_index_select(scope: Scope) -> object:
    x = scope.pick(lambda v: v.rank >= 1 and not any(dims(v)) and is_number(v))
    if 0 in x.shapes[0]:
        return None
    axis = scope.rng.randrange(x.rank)
    batch = scope.rng.randint(0, axis)
    size = scope.rng.choice([1, 2, 3])
    shape = (*x.shapes[0][:batch], size)
    drawn = np.random.default_rng(scope.rng.randrange(10**6)).integers(0, x.shapes[0][axis], shape)
    index = scope.constant(drawn, scope.rng.choice(["i32", "i64"]))
    result = (*x.shapes[0][:axis], size, *x.shapes[0][axis + 1 :])
    found = known.moved(facts(x), (False,) * len(result))
    attributes = f"batch_dims = {batch} : i64, dim = {axis} : i64"
    return scope.one(
        "torch_index_select", [x, index], (x.dtype, (result,) * CALLS, found), attributes
    )
