"""The automatic choice of symbols over typical functions: how general, how many traces, and
right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import traceback_util

import shlo_disc
from shlo_disc.jax.versions import family, tracing

RNG = np.random.default_rng(0)


def F(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def I(high, *shape):  # noqa: E743
    return RNG.integers(0, high, shape).astype(np.int32)


CASES = {}


def case(sizes, make, *others):
    """`sizes`: what must be found. `make(*sizes)` gives arguments; `others`: more tuples of
    sizes."""

    def add(function):
        CASES[function.__name__] = (function, sizes, make, others)
        return function

    return add


@case("d0,d1 d1 d2,d0", lambda i, o, b: (F(i, o), F(o), F(b, i)), (12, 5, 7), (3, 4, 1), (5, 5, 5))
def linear(w, b, x):
    return jax.nn.relu(x @ w + b)


@case(
    "d0,d1 d1,d2 d3,d1", lambda b, i, o: ({"b": F(b, i)}, F(i, b), F(o, i)), (7, 12, 4), (1, 3, 2)
)
def dict_and_arrays(p, y, z):
    return p["b"] @ y, z @ y


@case("d0,d1,d2 d2 d2", lambda b, t, c: (F(b, t, c), F(c), F(c)), (3, 7, 12), (1, 1, 5), (2, 9, 9))
def layer_norm(x, g, b):
    m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


@case(
    "d0,d1,d2,d3 d0,d4,d2,d3 d0,d4,d2,d5",
    lambda b, t, s, h: (F(b, t, h, 8), F(b, s, h, 8), F(b, s, h, 8)),
    (3, 7, 5, 4),
    (1, 1, 9, 2),
)
def attention(q, k, v):
    s = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), v)


@case(
    "d0,d1,4*d2 4*d2,12*d2 4*d2,d4",
    lambda b, t, c: (F(b, t, 4 * c), F(4 * c, 12 * c), F(4 * c, 4 * c)),
    (2, 7, 3),
    (1, 5, 4),
)
def self_attention(x, wqkv, wo):
    b, t, d = x.shape
    q, k, v = (a.reshape(b, t, 4, d // 4) for a in jnp.split(x @ wqkv, 3, -1))
    s = jnp.einsum("bthd,bshd->bhts", q, k)
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), v).reshape(b, t, d) @ wo


@case(
    "d0,d1,d2,d3 d8,d4,d3,d6 d6",
    lambda b, h, w, c, o: (F(b, h, w, c), F(3, 2, c, o), F(o)),
    (6, 16, 18, 5, 8),
    (1, 7, 9, 7, 4),
)
def convolution(x, w, b):
    dims = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=dims) + b)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@case(
    "d0,d1,d2 d2,4*d4 d4,4*d4 4*d4",
    lambda b, t, i, h: (F(b, t, i), F(i, 4 * h), F(h, 4 * h), F(4 * h)),
    (3, 7, 12, 5),
    (1, 4, 3, 2),
)
def lstm(x, wx, wh, b):
    def step(carry, xt):
        h, c = carry
        i, f, g, o = jnp.split(xt @ wx + h @ wh + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[0], wh.shape[0]))
    return lax.scan(step, (zero, zero), x.swapaxes(0, 1))


@case(
    "d0,d1 d2,d1 d3,d4",
    lambda v, c, p, b, t: (F(v, c), F(p, c), I(v, b, t)),
    (50, 12, 20, 3, 7),
    (9, 4, 8, 1, 8),
)
def embedding(table, positions, ids):
    return table[ids] + positions[: ids.shape[1]]


@case(
    "d0,d1,d2,d3 d0,d4,d2,d3 ",
    lambda b, s, t, h: (F(b, s, h, 8), F(b, t, h, 8), np.int32(1)),
    (3, 16, 1, 4),
    (1, 9, 3, 2),
)
def cache_update(cache, k, i):
    return lax.dynamic_update_slice(cache, k, (0, i, 0, 0))


@case("d0,d1", lambda b, n: (F(b, n),), (3, 50), (1, 6), (7, 5))
def top_k(x):
    return lax.top_k(x, 5)


@case("d0,d1", lambda b, n: (F(b, n),), (3, 50), (1, 7))
def top_p(x):
    s = jnp.sort(x, -1)[:, ::-1]
    k = (jnp.cumsum(jax.nn.softmax(s), -1) < 0.9).sum(-1)
    return jnp.where(x < jnp.take_along_axis(s, k[:, None], 1), -jnp.inf, x)


@case("d0,d1 d2 d2", lambda n, c, e: (F(n, c), I(n, e), I(n, e)), (9, 4, 20), (3, 1, 5))
def message_passing(x, senders, receivers):
    return jax.ops.segment_sum(x[senders], receivers, num_segments=x.shape[0])


@case("d0,d1 d2,d1", lambda n, m, c: (F(n, c), F(m, c)), (9, 5, 3), (1, 2, 7))
def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


@case("d0,4*d3,d2", lambda b, t, c: (F(b, 4 * t, c),), (3, 2, 12), (1, 5, 1))
def chunks(x):
    return x.reshape(x.shape[0], x.shape[1] // 4, 4, x.shape[2]).mean(2)


@case("d0,d1,2*d3", lambda b, t, c: (F(b, t, 2 * c),), (3, 8, 6), (1, 2, 3))
def glu(x):
    return jax.nn.glu(x)


@case("2*d2,d1", lambda n, c: (F(2 * n, c),), (4, 4), (3, 1))
def pooling(x):
    return jnp.mean(x.reshape(-1, 2, x.shape[1]), 1)


@case("d0,d1,d2 d0,d3,d2", lambda b, t, s, c: (F(b, t, c), F(b, s, c)), (3, 7, 2, 12), (1, 1, 4, 4))
def concatenation(x, y):
    return jnp.concatenate([x, y], 1)


@case("d0,d1,d2", lambda b, t, c: (F(b, t, c),), (3, 7, 12), (1, 16, 1))
def padded_to(x):
    return jnp.pad(x, ((0, 0), (0, 16 - x.shape[1]), (0, 0)))


@case("d0,d1 1,d1 d0,1", lambda b, c: (F(b, c), F(1, c), F(b, 1)), (7, 12), (2, 3))
def broadcast_ones(a, b, c):
    return a * b + c


@case("2 d1,d2", lambda n, c: (np.array([0, 1], np.uint32), F(n, c)), (7, 12), (5, 2))
def dropout(k, x):
    return jnp.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0)


@case("d0,4", lambda n: (F(n, 4),), (9,), (2,))
def python_loop(x):
    for k in range(x.shape[1]):
        x = x.at[:, k].add(k)
    return x


@case("d0,d1 d0", lambda n, c: (F(n, c), F(n)), (9, 4), (5, 3))
def ridge(x, y):
    return jnp.linalg.solve(x.T @ x + jnp.eye(x.shape[1]), x.T @ y)


@case("d0", lambda n: (F(n),), (9,), (4,))
def hessian(x):
    return jax.hessian(lambda v: (jnp.sin(v) * v.sum()).sum())(x)


@case(
    "d0 d1,d0 d2,d1 d2",
    lambda o, i, b: ({"w": F(i, o), "b": F(o)}, F(b, i), I(o, b)),
    (4, 12, 7),
    (2, 3, 1),
)
def cross_entropy_gradient(p, x, y):
    def loss(p):
        logits = jax.nn.log_softmax(x @ p["w"] + p["b"])
        return -jnp.mean(jnp.take_along_axis(logits, y[:, None], 1))

    return jax.value_and_grad(loss)(p)


def found(f, *args):
    pattern = f.lower(*args).pattern
    return " ".join(",".join(map(str, shape)) for shape in pattern.dims)


def compare(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_one_version_serves_all_sizes(name):
    function, sizes, make, others = CASES[name]
    f = shlo_disc.jit(function)
    args = make(*others[0])
    assert _renamed(found(f, *args)) == _renamed(sizes)
    for some in others:
        args = make(*some)
        compare(f(*args), jax.jit(function)(*args))
    assert f.cache_info().misses == 1


def _renamed(text):
    """Symbols numbered in order of appearance: which number the search gave them is no matter."""
    names, out = {}, []
    for word in text.replace(",", " , ").replace("*", " * ").split(" "):
        out.append(names.setdefault(word, f"d{len(names)}") if word[:1] == "d" else word)
    return " ".join(out)


# ---- sizes of 1, and sizes that are equal by accident -----------------------------------------


def encoder(params, ids, mask):
    x = params["table"][ids] + params["positions"][: ids.shape[1]]
    bias = (1.0 - mask[:, None, :].astype(x.dtype)) * -1e9
    s = jax.nn.softmax(jnp.einsum("btd,bsd->bts", x @ params["w"], x) + bias)
    return jnp.einsum("bts,bsd->btd", s, x) + sum(params["b"])


def parameters(hidden=6):
    biases = [F(hidden) for _ in range(16)]
    return {"table": F(30, hidden), "positions": F(20, hidden), "w": F(hidden, hidden), "b": biases}


def tokens(b, t):
    return I(30, b, t), np.ones((b, t), np.int32)


@pytest.mark.parametrize("first", [(1, 5), (1, 1), (4, 1), (6, 6), (20, 20), (2, 16)])
def test_batch_and_length_are_found_from_any_first_call(first):
    params = parameters()
    f = shlo_disc.jit(encoder)
    for b, t in [first, (1, 1), (5, 2), (1, 20)]:
        args = (params, *tokens(b, t))
        compare(f(*args), jax.jit(encoder)(*args))
    for b, t in [(2, 5), (6, 13), (13, 20), (1, 7)]:
        f.lower(params, *tokens(b, t))
    assert f.cache_info() == (f.cache_info().hits, 1, None, 1)


def test_parameters_are_constants_until_they_change():
    f = shlo_disc.jit(encoder)
    for hidden in (6, 10, 4):
        args = (parameters(hidden), *tokens(3, 5))
        compare(f(*args), jax.jit(encoder)(*args))
    assert f.cache_info().misses == 2
    assert "the sizes of params are constants" in f.explain()


def small(x, w):
    return jnp.tanh(x @ w) + x


def test_sizes_equal_by_accident_are_symbols_of_their_own():
    f = shlo_disc.jit(lambda x, y: (x.sum(1), y * 2))
    for x, y in [((4, 4), 4), ((5, 8), 5), ((5, 8), 6), ((1, 8), 9)]:
        x, y = F(*x), F(y)
        compare(f(x, y), (x.sum(1), y * 2))
    assert f.cache_info().misses == 1
    assert not f.guards()


def test_a_batch_of_one_that_must_broadcast_is_split_when_it_is_not_one():
    def bias(x, b):
        return x + b

    f = shlo_disc.jit(bias)
    for n, m in [(1, 1), (4, 4), (4, 1), (7, 1), (1, 1), (3, 3)]:
        x, b = F(n, 6), F(m, 6)
        compare(f(x, b), jnp.asarray(x + b))
    assert f.cache_info().misses == 2


def test_a_size_of_zero_has_a_version_of_its_own():
    f = shlo_disc.jit(small)
    for n in (3, 0, 5, 0):
        x, w = F(n, 4), F(4, 4)
        compare(f(x, w), jax.jit(small)(x, w))
    assert f.cache_info().misses == 2


def test_new_versions_are_bounded_and_a_warning_tells_why(caplog):
    def unrolled(x):
        return sum(x[k] for k in range(x.shape[0]))

    f = shlo_disc.jit(unrolled)
    with caplog.at_level("WARNING", "shlo_disc"):
        for n in range(2, 10):
            f(F(n, 3))
        (told,) = caplog.messages  # once, with the line and a spelling that keeps the symbol
        assert "a Python integer of d0" in told
        assert "lax.fori_loop" in told
        assert f.cache_info().misses == 8
        f(F(11, 3))
        f(F(12, 3))
    assert caplog.text.count("more than 8 versions") == 1


def halves(x):
    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID")

    once = pool(x)
    twice = jnp.repeat(jnp.repeat(pool(once), 2, 0), 2, 1)
    return jnp.concatenate([twice, once], 1)


def unrolled(x):
    total = x
    for i in range(len(x)):
        total = total * x[i]
    return total


@pytest.mark.parametrize(
    ("function", "shape"), [(halves, (8, 8)), (unrolled, (3,))], ids=["halves", "unrolled"]
)
def test_a_trace_that_another_follows_is_not_lowered(function, shape, monkeypatch):
    """The first trace finds that the size is a multiple, or a number."""
    calls = {"trace_with_symbols": 0, "lowered_module": 0}

    def count(module, name):
        original = getattr(module, name)

        def counted(*args, **kwargs):
            calls[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    count(family, "trace_with_symbols")
    count(tracing, "lowered_module")
    x = F(*shape)
    compare(shlo_disc.jit(function)(x), jax.jit(function)(x))
    assert calls == {"trace_with_symbols": 2, "lowered_module": 1}


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("catches", [False, True])
def test_a_trace_ends_soon_after_a_question_that_makes_it_be_repeated(catches):
    """Even where the program takes every error for its own."""
    reached = []

    def long(x, y):
        for _ in range(30):  # each asks for the width of new shapes
            x = jnp.concatenate([x, y])
        return x

    @shlo_disc.jit
    def function(x, y):
        reached.append("begins")
        if x.shape[0] < 100:  # no first question ends a trace for long
            x = x + jnp.ones(5)  # a number for both widths
        if catches:
            try:
                x = long(x, y)
            except BaseException:
                x = x * 0
        else:
            x = long(x, y)
        reached.append("ends")
        return x

    x, y = F(2, 5), F(3, 5)
    np.testing.assert_array_equal(function(x, y), np.concatenate([x + np.float32(1), *[y] * 30]))
    assert "d1 = 5" in function.explain()
    assert reached.count("begins") == 3  # two with symbols, one with numbers
    assert reached.count("ends") == (3 if catches else 2)


@pytest.mark.usefixtures("compiled_anew")
def test_a_trace_ends_at_once_with_its_first_question():
    """Twice, so that a function of many such arguments has few traces."""
    reached = []

    @shlo_disc.jit
    def function(*arrays):
        for k, x in enumerate(arrays):
            reached.append(k)
            x = x @ jnp.ones(k + 2)
        return x

    function(*(F(k + 2) for k in range(4)))
    assert reached == [0, *range(2), *range(4), *range(4)]
    assert all(f"d{k} = {k + 2}" in function.explain() for k in range(4))


@pytest.mark.usefixtures("compiled_anew")
def test_jax_adds_no_lines_to_what_ends_a_trace(monkeypatch):
    """It would filter tracebacks wherever the trace is in a gradient."""
    filtered = []
    monkeypatch.setattr(traceback_util, "filter_traceback", filtered.append)

    @jax.grad
    def gradient(x, y):
        y = jax.lax.stop_gradient(y)

        @jax.custom_vjp
        def identity(x):
            return x

        identity.defvjp(lambda x: (x, None), lambda _, g: (g + 0 * (y @ np.ones(5, np.float32)),))
        return identity(x).sum()

    x = F(5)
    np.testing.assert_array_equal(shlo_disc.jit(gradient)(x, x), np.ones(5))
    assert not filtered


@pytest.mark.usefixtures("compiled_anew")
def test_sizes_equal_to_a_number_are_found_in_one_trace():
    traces = []

    @shlo_disc.jit
    def function(a, b, c):
        traces.append(a.shape)
        return a + b, b + c, c + jnp.ones(5)

    x = F(5)
    for result in function(x, x, x)[:2]:
        np.testing.assert_array_equal(result, x + x)
    assert len(traces) == 2
    assert all(f"d{k} = 5" in function.explain() for k in range(3))
