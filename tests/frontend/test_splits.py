"""Along which symbols a program may be split: the rule by cases, and against running the blocks.

No device is needed: JAX runs a program with symbolic sizes at the sizes of the whole and of each
block, and the states of its results say how the blocks make the whole.
"""

import random
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.derived.splits.splits import Split, split_along
from shlo_disc.jax.derived.splits.staged import Staged
from shlo_disc.jax.derived.splits.states import SUM, WHOLE, Kind

SIZES = {"b": 6, "t": 8, "n": 4, "m": 2}
BLOCKS = 2


def traced(function, *shapes, constraints=()):
    """The closed jaxpr of a function of arrays of these sizes; those with an `i` are integers."""
    scope = jax.export.SymbolicScope(constraints)
    specs = []
    for shape in shapes:
        sizes = jax.export.symbolic_shape(shape.lstrip("i"), scope=scope)
        dtype = np.int32 if shape.startswith("i") else np.float32
        specs.append(jax.ShapeDtypeStruct(sizes, dtype))
    return jax.jit(function).trace(*specs).jaxpr


# ---- blocks make the whole ----------------------------------------------------------------------


class Runnable:
    """A function of arrays with the symbols of `jaxpr`, which JAX compiles once for each sizes."""

    def __init__(self, jaxpr, function, avals):
        sizes = {str(s): s for a in jaxpr.in_avals for s in a.shape if str(s) in SIZES}
        self.symbols = list(sizes)
        count = len(avals)
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        # Its shape shows every symbol; those of the arguments need not.
        carrier = jax.ShapeDtypeStruct((*sizes.values(), 0), np.float32)
        jitted = jax.jit(lambda *args: function(*args[:count]), keep_unused=True)
        exported = jax.export.export(jitted, platforms=["cpu"])(*specs, carrier)
        self.call = jax.jit(exported.call)

    def __call__(self, arrays, sizes):
        carrier = np.zeros((*(sizes[s] for s in self.symbols), 0), np.float32)
        return [np.asarray(x) for x in self.call(*arrays, carrier)]


def arrays_for(jaxpr, seed):
    generator = np.random.default_rng(seed)
    for aval in jaxpr.in_avals:
        shape = tuple(Expr.parse(str(size)).evaluate(SIZES) for size in aval.shape)
        if jnp.issubdtype(aval.dtype, np.integer):
            yield generator.integers(-1, 5, shape).astype(aval.dtype)
        else:
            yield generator.standard_normal(shape).astype(aval.dtype)


def total(parts):
    return sum(np.asarray(part, np.float64) for part in parts).astype(parts[0].dtype)


def in_blocks(jaxpr, along, arrays):
    """The results of each block, in the stages that `Staged` makes, and their states."""

    staged = Staged(jaxpr, [along], lambda function, avals, _: Runnable(jaxpr, function, avals))
    (split,) = staged.splits.values()
    cut = [
        [x] * BLOCKS if isinstance(state, Kind) else np.split(x, BLOCKS, state)
        for x, state in zip(arrays, along.arguments, strict=True)
    ]
    numbers = staged.number_values(SIZES)
    values = [
        dict(zip(staged.arguments, [*block, *numbers], strict=True))
        for block in zip(*cut, strict=True)
    ]
    sizes = {**SIZES, along.symbol: SIZES[along.symbol] // BLOCKS}
    for stage in staged.stages:
        for known in values:
            made = stage.program([known[v] for v in stage.inputs], sizes)
            known.update(zip(stage.outputs, made, strict=True))
        for v in split.cuts.intersection(stage.outputs):
            whole = total([known[v] for known in values])
            for known in values:
                known[v] = whole
    results = [[staged.value(v, known) for v in staged.results] for known in values]
    return split.results, results, len(staged.stages)


def joined(state, parts):
    if state is SUM:
        return total(parts)
    if state is WHOLE:
        for part in parts:
            np.testing.assert_allclose(part, parts[0], rtol=1e-5)
        return parts[0]
    return np.concatenate(parts, state)


def check(jaxpr, along, whole, arrays):
    """The results of blocks make the results of the whole; how many stages they take."""
    states, blocks, stages = in_blocks(jaxpr, along, arrays)
    for state, want, parts in zip(states, whole, zip(*blocks, strict=True), strict=True):
        np.testing.assert_allclose(joined(state, parts), want, rtol=2e-4, atol=2e-4)
    return stages


# ---- cases --------------------------------------------------------------------------------------


def attention(q, k, v):
    scores = jnp.einsum("bqd,bkd->bqk", q, k)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), v)


def recurrent(w, x):
    def step(h, row):
        h = jnp.tanh(h @ w + row)
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], x.shape[2])), x)[1]


def mean_loss(w, x):
    return ((jnp.tanh(x @ w) - 1) ** 2).mean()


def step(w, x):
    return w - 0.1 * jax.grad(mean_loss)(w, x)


CASES = {  # results' states, stages, uses sizes of the whole; or the reason of a refusal
    "elements": (lambda x: jnp.tanh(x) * 2, ["b, n"], "b", ([0], 0, False)),
    "transpose": (lambda x: x.T + 1, ["b, n"], "b", ([1], 0, False)),
    "rows": (lambda x: jax.nn.softmax(x, -1), ["b, n"], "b", ([0], 0, False)),
    "columns": (lambda x: jax.nn.softmax(x, -1), ["b, n"], "n", "reduce_max needs all"),
    "product": (lambda x, w: x @ w, ["b, n", "n, m"], "m", ([1], 0, False)),
    "contracted": (lambda x, w: x @ w, ["b, n", "n, m"], "n", ([SUM], 0, False)),
    "contracted first": (lambda x, w: jnp.tanh(x @ w), ["b, n", "n, m"], "n", ([WHOLE], 1, False)),
    "batched": (attention, ["b, t, n", "b, m, n", "b, m, n"], "b", ([0], 0, False)),
    "queries": (attention, ["b, t, n", "b, m, n", "b, m, n"], "t", ([1], 0, False)),
    "keys": (attention, ["b, t, n", "b, m, n", "b, m, n"], "m", "reduce_max needs all"),
    "merged": (lambda x: x.reshape(-1, x.shape[2]), ["b, t, n"], "b", ([0], 0, False)),
    "merged behind": (lambda x: x.reshape(-1, x.shape[2]), ["b, t, n"], "t", "reshape needs all"),
    "looked up": (lambda w, i: w[i], ["n, m", "ib"], "b", ([0], 0, False)),
    "table": (lambda w, i: w[i], ["n, m", "ib"], "n", "reads or writes at places"),
    "recurrent": (recurrent, ["n, n", "t, b, n"], "b", ([1], 0, False)),
    "time": (recurrent, ["n, n", "t, b, n"], "t", "scan runs along"),
    "running": (lambda x: jnp.cumsum(x, 0), ["b, n"], "b", "cumsum needs all"),
    "running rows": (lambda x: jnp.cumsum(x, 1), ["b, n"], "b", ([0], 0, False)),
    "ratio": (lambda x, y: x.sum() / y.sum(), ["b", "b"], "b", ([WHOLE], 2, False)),
    "counts": (
        lambda x, i: jnp.zeros((9, x.shape[1])).at[i].add(x),
        ["b, n", "ib"],
        "b",
        ([SUM], 0, False),
    ),
    "counts on top": (
        lambda x, i: jnp.ones((9, x.shape[1])).at[i].add(x),
        ["b, n", "ib"],
        "b",
        "reads or writes at places",
    ),
    "square": (recurrent, ["n, n", "t, b, n"], "n", "more dimensions of n"),
    "mean": (lambda x: x.mean(), ["b, n"], "b", ([SUM], 0, True)),
    "loss": (mean_loss, ["n, m", "b, n"], "b", ([SUM], 0, True)),
    "gradient": (jax.grad(mean_loss), ["n, m", "b, n"], "b", ([SUM], 0, True)),
    "training step": (step, ["n, m", "b, n"], "b", ([WHOLE], 1, True)),
    "centred": (lambda x: x - x.mean(0), ["b, n"], "b", ([0], 1, True)),
    "counted": (lambda x: x + jnp.arange(x.shape[0]), ["b"], "b", "iota counts along"),
    "count": (lambda x: x * x.shape[0], ["b"], "b", ([0], 0, True)),
    "count in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda _, x: x * x.shape[0], x),
        ["b"],
        "b",
        "number b",
    ),
    "a part": (lambda x: lax.slice_in_dim(x, 1, x.shape[0]), ["b"], "b", "slice"),
    "half": (lambda x: lax.slice_in_dim(x, 0, x.shape[0] // 2), ["2*b"], "b", "slice"),
    "no multiple": (jnp.tanh, ["b + 3"], "b", "not a multiple"),
    "sorted": (lambda x: jnp.sort(x, 0), ["b, n"], "b", "sort runs along"),
    "random": (
        lambda x: x + jax.random.uniform(jax.random.key(0), x.shape),
        ["b, n"],
        "b",
        "uses b",
    ),
    "branch on data": (
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        ["b, n"],
        "b",
        "slice",
    ),
    "loop on sums": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x),
        ["b"],
        "b",
        "lt is not linear",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    function, shapes, symbol, expected = CASES[name]
    jaxpr = traced(function, *shapes)
    split = split_along(jaxpr, symbol)
    if isinstance(expected, str):
        assert isinstance(split, str), split
        assert expected in split
        return
    states, cuts, numbers = expected
    assert isinstance(split, Split), split
    assert (list(split.results), len(split.cuts), bool(split.numbers)) == (states, cuts, numbers)


def test_blocks_of_a_training_step_make_the_whole():
    jaxpr = traced(step, "n, m", "b, n")
    arrays = list(arrays_for(jaxpr, 0))
    whole = [step(*arrays)]
    assert check(jaxpr, split_along(jaxpr, "b"), whole, arrays) == 2
    (number,) = split_along(jaxpr, "b").numbers
    assert "b" in number.symbols()


def test_a_place_that_is_a_size_is_not_split():
    """Neither the operand nor the result shows the symbol."""

    def function(x, y):
        return x * 2, lax.slice_in_dim(y, x.shape[0], x.shape[0] + 3)

    jaxpr = traced(function, "b", "t", constraints=["t >= b + 3"])
    assert "slice uses b" in split_along(jaxpr, "b")


def test_an_unknown_operation_is_not_split():
    def function(x):
        return lax.linalg.cholesky(x), lax.reduce(x, 0.0, lambda a, b: a + b * b, [1])

    jaxpr = traced(function, "b, 4, 4")
    assert "uses b" in split_along(jaxpr, "b")


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
    part = lax.dynamic_slice_in_dim(y, 1, 1, axis)
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
    return jnp.broadcast_to(jnp.expand_dims(x, at), (*x.shape[:at], size, *x.shape[at:]))


def with_window(x, axis):
    """`x`; raises ValueError where jax.export refuses a window: over b - 1 elements."""
    if not str(x.shape[axis]).isalnum():
        raise ValueError(f"a window over {x.shape[axis]}")
    return x


def pooled(r, values):
    x = r.choice(values)
    window = [1] * x.ndim
    axis = axis_of(r, x)
    with_window(x, axis)
    window[axis] = 2
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
    "cumsum": one(lambda x, k: jnp.cumsum(with_window(x, k), k)),  # XLA:CPU sums windows
    "cummax": one(lambda x, k: lax.cummax(with_window(x, k), k)),
    "sort": one(jnp.sort),
    "top": one(lambda x, k: lax.top_k(x, 1)[0]),
    "softmax": one(jax.nn.softmax),
    "flip": one(jnp.flip),
    "double": one(lambda x, k: jnp.concatenate([x, x * 2], k)),
    "split": one(lambda x, k: lax.split(x, [1, x.shape[k] - 1], k)[1]),
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
    """Programs are split along each symbol; what was tried, and what was found."""
    names, found = Counter(), Counter()
    for seed in seeds:
        jaxpr = traced(program(seed, names), *SHAPES)
        arrays, whole = list(arrays_for(jaxpr, seed)), None
        for symbol in SIZES:
            split = split_along(jaxpr, symbol)
            if isinstance(split, str):
                found["refused"] += 1
                continue
            kinds = [s for s in split.results if s is not WHOLE]
            if not kinds and not split.cuts:
                found["nothing"] += 1
                continue
            if whole is None:
                whole = Runnable(jaxpr, jaxpr_as_fun(jaxpr), jaxpr.in_avals)(arrays, SIZES)
            found["stages"] += check(jaxpr, split, whole, arrays) > 1
            found.update("sum" if s is SUM else "axis" for s in kinds)
            found["numbers"] += bool(split.numbers)
    return names, found


def test_blocks_of_random_programs_make_the_whole():
    names, found = sampled(range(8))
    assert len(names) > 15
    assert min(found[kind] for kind in ("axis", "sum", "stages", "refused", "numbers")) > 0, found


@pytest.mark.slow(minutes=2)
def test_blocks_of_many_random_programs_make_the_whole():
    names, _ = sampled(range(1000, 1200))
    assert names.keys() == OPS.keys()
