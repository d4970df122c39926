"""Along which symbols a program may be split: the rule by cases, and against running the blocks.

No device is needed: JAX runs a program with symbolic sizes at the sizes of the whole and of each
block, and the states of its results say how the blocks make the whole.
"""

from __future__ import annotations

import random
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shlo_disc.dynamic.expr import Expr
from shlo_disc.frontend.parts import SUM, WHOLE, Kind
from shlo_disc.frontend.splits import Split, split_along
from shlo_disc.frontend.whole_sizes import number_types, with_numbers_given

SIZES = {"b": 6, "t": 8, "n": 4, "m": 2}
BLOCKS = 2


def traced(function, *shapes):
    """The closed jaxpr of a function of arrays of these sizes; those with an `i` are integers."""
    scope = jax.export.SymbolicScope()
    specs = []
    for shape in shapes:
        sizes = jax.export.symbolic_shape(shape.lstrip("i"), scope=scope)
        dtype = np.int32 if shape.startswith("i") else np.float32
        specs.append(jax.ShapeDtypeStruct(sizes, dtype))
    return jax.jit(function).trace(*specs).jaxpr


def split(function, *shapes, along):
    return split_along(traced(function, *shapes).jaxpr_ if False else traced(function, *shapes), along)


# ---- blocks make the whole ----------------------------------------------------------------------


class Blocks:
    """A jaxpr that JAX compiles once for each sizes, and its results for blocks."""

    def __init__(self, jaxpr, numbers):
        self.jaxpr, self.numbers = jaxpr, sorted(numbers, key=str)
        self.types = number_types(jaxpr, self.numbers)
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jaxpr.in_avals]
        count = len(specs)
        specs += [jax.ShapeDtypeStruct((), dtype) for dtype in self.types]

        def program(*args):
            given = dict(zip(self.numbers, args[count:], strict=True))
            return with_numbers_given(jaxpr, args[:count], given)

        jitted = jax.jit(program, keep_unused=True)
        self.call = jax.jit(jax.export.export(jitted, platforms=["cpu"])(*specs).call)

    def __call__(self, arrays):
        sizes = [n.evaluate(SIZES) for n in self.numbers]
        numbers = [np.asarray(n, dtype) for n, dtype in zip(sizes, self.types, strict=True)]
        return [np.asarray(x) for x in self.call(*arrays, *numbers)]


def arrays_for(jaxpr, seed):
    generator = np.random.default_rng(seed)
    for aval in jaxpr.in_avals:
        shape = tuple(Expr.parse(str(size)).evaluate(SIZES) for size in aval.shape)
        if jnp.issubdtype(aval.dtype, np.integer):
            yield generator.integers(-1, 5, shape).astype(aval.dtype)
        else:
            yield generator.standard_normal(shape).astype(aval.dtype)


def joined(state, parts):
    if state is SUM:
        return sum(np.asarray(part, np.float64) for part in parts)
    if state is WHOLE:
        for part in parts:
            np.testing.assert_allclose(part, parts[0], rtol=1e-5)
        return parts[0]
    return np.concatenate(parts, state)


def check(jaxpr, found, seed=0):
    """The results of blocks make the results of the whole."""
    arrays, run = list(arrays_for(jaxpr, seed)), Blocks(jaxpr, found.numbers)
    cut = [
        [x] * BLOCKS if isinstance(state, Kind) else np.split(x, BLOCKS, state)
        for x, state in zip(arrays, found.arguments, strict=True)
    ]
    whole = run(arrays)
    parts = [run(block) for block in zip(*cut, strict=True)]
    for state, want, pieces in zip(found.results, whole, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(joined(state, pieces), want, rtol=2e-4, atol=2e-4)


# ---- random programs ----------------------------------------------------------------------------


def two_alike(r, values):
    x = r.choice(values)
    return x, r.choice([v for v in values if v.shape == x.shape and v.dtype == x.dtype])


def axis_of(r, x):
    return r.randrange(x.ndim)


def contraction(r, values):
    """Any two arrays, over any dimensions of equal sizes: some are summed, some are batched."""
    x, y = r.choice(values), r.choice(values)
    letters = iter("abcdefghijk")
    left = [next(letters) for _ in x.shape]
    right = [
        r.choice([c for c, size in zip(left, x.shape, strict=True) if size == other] or [""])
        for other in y.shape
    ]
    right = [c if c and c not in right[:k] else next(letters) for k, c in enumerate(right)]
    both = [c for c in left if c in right]
    batch = [c for c in both if r.random() < 0.5]
    rest = [c for c in left + right if c not in both]
    out = batch + rest
    r.shuffle(out)
    return jnp.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y) / 4


def scanned(r, values):
    x = r.choice([v for v in values if v.ndim > 1])
    keep = r.random() < 0.5

    def step(carry, row):
        carry = carry + (jnp.tanh(row) if keep else row)
        return carry, carry * 2

    start = jnp.zeros(x.shape[1:], x.dtype)
    return r.choice(lax.scan(step, start, x))


def looked_up(r, values):
    table = r.choice([v for v in values if v.ndim == 2])
    places = jnp.clip(r.choice([v for v in values if v.ndim < 3]).astype(int), 0, 1)
    return table[places] if r.random() < 0.5 else table[:, places]


def along(r, values):
    x, y = two_alike(r, values)
    return jnp.take_along_axis(x, jnp.clip(y.astype(int), 0, 1), axis_of(r, x), mode="clip")


def added_at(r, values):
    x = r.choice([v for v in values if v.ndim >= 1])
    places = jnp.clip(r.choice([v for v in values if v.ndim == 1]).astype(int), 0, 2)
    shape = (3, *x.shape[1:])
    start = jnp.zeros(shape, x.dtype) if r.random() < 0.7 else jnp.ones(shape, x.dtype)
    return start.at[places].add(x)


def updated(r, values):
    x, y = two_alike(r, values)
    axis = axis_of(r, x)
    part = lax.dynamic_slice_in_dim(y, 1, 2, axis)
    return lax.dynamic_update_slice_in_dim(x, part * 2, r.choice([0, 1]), axis)


def convolved(r, values):
    x = r.choice([v for v in values if v.ndim == 3])
    w = r.choice([v for v in values if v.ndim == 2])
    return lax.conv_general_dilated(x, w[:, :, None], (1,), [(0, 0)]) / 4


def looped(r, values):
    x = r.choice(values)
    stop = x.sum() if r.random() < 0.3 else 3
    return lax.while_loop(lambda c: c[0] < stop, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))[1]


def branched(r, values):
    x, y = two_alike(r, values)
    test = jnp.float32(2) > (x.mean() if r.random() < 0.5 else 1)
    return lax.cond(test, lambda x, y: x * 0.5, lambda x, y: y + x, x, y)


def counted(r, values):
    x = r.choice(values)
    return x + lax.broadcasted_iota(x.dtype, x.shape, axis_of(r, x))


def merged(r, values):
    x = r.choice([v for v in values if v.ndim > 1])
    at = r.randrange(x.ndim - 1)
    return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])


def sliced(r, values):
    x = r.choice(values)
    axis, n = axis_of(r, x), 1 + r.randrange(2)
    return lax.slice_in_dim(x, n, x.shape[axis], axis=axis)


def padded(r, values):
    x = r.choice(values)
    config = [(0, 0, 0)] * x.ndim
    config[axis_of(r, x)] = (1, 0, 0)
    return lax.pad(x, jnp.asarray(r.choice([0, 1]), x.dtype), config)


def spread(r, values):
    """`broadcast_in_dim` to a size of another array."""
    x = r.choice([v for v in values if v.ndim < 3])
    size = r.choice([s for v in values for s in v.shape])
    at = r.randrange(x.ndim + 1)
    return jnp.broadcast_to(
        jnp.expand_dims(x, at), (*x.shape[:at], size, *x.shape[at:])
    )


def pooled(r, values):
    x = r.choice(values)
    window = [1] * x.ndim
    window[axis_of(r, x)] = 2
    reduce, start = r.choice([(lax.add, 0), (lax.max, -np.inf)])
    return lax.reduce_window(x, jnp.asarray(start, x.dtype), reduce, window, [1] * x.ndim, "SAME")


def one(function):
    return lambda r, values: function(x := r.choice(values), axis_of(r, x))


def pair(function):
    return lambda r, values: function(*two_alike(r, values))


OPS = {
    "tanh": one(lambda x, _: jnp.tanh(x)),
    "negative": one(lambda x, _: -x),
    "halve": one(lambda x, _: x / 2),
    "scale": lambda r, values: r.choice(values) * r.choice(values).sum() / 50,
    "add": pair(jnp.add),
    "multiply": pair(jnp.multiply),
    "maximum": pair(jnp.maximum),
    "where": pair(lambda x, y: jnp.where(x > 0, y, 0)),
    "sum": one(jnp.sum),
    "mean": one(jnp.mean),
    "max": one(jnp.max),
    "argmax": one(lambda x, k: jnp.argmax(x, k).astype(x.dtype)),
    "cumsum": one(jnp.cumsum),
    "cummax": one(lambda x, k: lax.cummax(x, k)),
    "sort": one(jnp.sort),
    "top": one(lambda x, k: lax.top_k(x, 1)[0]),
    "softmax": one(jax.nn.softmax),
    "flip": one(jnp.flip),
    "double": one(lambda x, k: jnp.concatenate([x, x * 2], k)),
    "split": one(lambda x, k: jnp.split(x, 2, k)[1]),
    "norm": one(lambda x, k: x - x.mean(k, keepdims=True)),
    "moved": one(lambda x, k: jnp.moveaxis(x, k, 0)),
    "contraction": contraction,
    "scan": scanned,
    "look up": looked_up,
    "along": along,
    "add at": added_at,
    "update": updated,
    "convolve": convolved,
    "loop": looped,
    "branch": branched,
    "count": counted,
    "merge": merged,
    "slice": sliced,
    "pad": padded,
    "broadcast": spread,
    "pool": pooled,
    "remat": one(lambda x, k: jax.checkpoint(lambda x: jnp.sin(x).sum(k))(x)),
    "relu": one(lambda x, _: jax.nn.relu(x)),
    "gradient": one(lambda x, k: jax.grad(lambda x: (jnp.tanh(x) ** 2).mean())(x)),
}
SHAPES = ("b, t, n", "b, n", "n, m", "b, t", "ib", "it")


def program(seed, names):
    """A function of arrays of `SHAPES` made of a few of `OPS`; `names` counts them."""

    def function(*arrays):
        r = random.Random(seed)
        values, made = list(arrays), []
        for _ in range(60):
            name = r.choice(list(OPS))
            try:
                value = OPS[name](r, values)
            except Exception:  # these arrays do not fit
                continue
            if value.ndim <= 4:
                names[name] += 1
                values.append(value)
                made.append(value)
            if len(made) == 4:
                break
        return made

    return function


def sampled(seeds):
    names, found = Counter(), Counter()
    for seed in seeds:
        jaxpr = traced(program(seed, names), *SHAPES)
        for symbol in SIZES:
            split = split_along(jaxpr, symbol)
            if isinstance(split, str):
                found["refused"] += 1
                continue
            check(jaxpr, split, seed)
            found.update(str(s) if isinstance(s, Kind) else "axis" for s in split.results)
            found["numbers"] += bool(split.numbers)
    return names, found
