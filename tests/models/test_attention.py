"""Attention in the ways people write it: one kernel, every size, against float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.models.harness import kernels, kernels_of


def softmax(x, axis=-1):
    return jax.nn.softmax(x, axis=axis)


def masked(q, k, v, bias):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(7.0) + bias
    return jnp.einsum("bhts,bshd->bthd", softmax(scores), v)


def causal(q, k, v, bias):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) + bias
    t, s = scores.shape[-2:]
    scores = jnp.where(jnp.arange(t)[:, None] >= jnp.arange(s)[None, :], scores, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", softmax(scores), v)


def heads_first(q, k, v, bias):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    weights = softmax(q @ jnp.swapaxes(k, -1, -2) + bias)
    return jnp.swapaxes(weights @ v, 1, 2)


def values_first(q, k, v, bias):
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k) + bias)
    return jnp.einsum("bshd,bhts->bthd", v, weights)


def of_rank_3(q, k, v, bias):
    """As PyTorch computes them: batch and heads are one dimension of the products."""
    b, t, h, d = q.shape
    q, k, v = (jnp.swapaxes(x, 1, 2).reshape(b * h, x.shape[1], d) for x in (q, k, v))
    scores = (q * 0.5 @ jnp.swapaxes(k * 0.5, 1, 2)).reshape(b, h, t, k.shape[1]) + bias
    mixed = softmax(scores).reshape(b * h, t, k.shape[1]) @ v
    return jnp.swapaxes(mixed.reshape(b, h, t, d), 1, 2)


def multi_query(q, k, v, bias):
    scores = jnp.einsum("bthd,bsd->bhts", q, k[:, :, 0]) + bias
    return jnp.einsum("bhts,bsd->bthd", softmax(scores), v[:, :, 0])


def linear(q, k, v, bias):
    """Rows by their sum, not by a softmax: the scores are read again after they were."""
    scores = jnp.abs(jnp.einsum("bthd,bshd->bhts", q, k)) + bias + 1.0
    shifted = jnp.exp(scores - scores.max(-1, keepdims=True)) + scores
    return jnp.einsum("bhts,bshd->bthd", shifted / shifted.sum(-1, keepdims=True), v)


def gated(q, k, v, bias):
    return jax.nn.gelu(masked(q, k, v, bias)) * 2.0


WAYS = [
    masked,
    causal,
    multi_query,
    *(
        pytest.param(way, marks=pytest.mark.slow)
        for way in (of_rank_3, gated, heads_first, values_first, linear)
    ),
]


def inputs(rng, b, t, s, h, d, dtype=np.float32):
    q = rng.standard_normal((b, t, h, d)).astype(dtype)
    k, v = (rng.standard_normal((b, s, h, d)).astype(dtype) for _ in range(2))
    return q, k, v, rng.standard_normal((b, 1, 1, s)).astype(dtype)


SHAPES = [
    (2, 5, 9, 3, 7),
    (1, 1, 1, 1, 1),
    (1, 1, 130, 2, 7),
    (3, 127, 127, 2, 5),
    (2, 100, 33, 4, 64),
    (1, 17, 513, 1, 80),
    (0, 4, 4, 2, 8),
    (2, 0, 4, 2, 8),
    (2, 31, 31, 0, 8),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_one_kernel_at_every_size(way):
    rng = np.random.default_rng(0)
    compiled = shlo_disc.jit(way)
    first = inputs(rng, *SHAPES[0])
    compiled(*first)
    kinds = kernels_of(compiled, *first)
    assert kinds.count("attention") == 1
    assert not {"dense", "row"} & set(kinds)
    for shape in SHAPES:
        if way is multi_query and shape[3] == 0:
            continue  # there is no head 0
        args = inputs(rng, *shape)
        got = np.asarray(compiled(*args))
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(way)(*(jnp.asarray(a, jnp.float64) for a in args)))
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=str(shape))
    assert compiled.cache_info().misses <= 4  # an empty dimension may be a version of its own


def by_vmap(q, k, v):
    """Groups of queries that share a head of keys, by `vmap` over examples, heads and groups."""

    def one(q, k, v):
        return softmax(q @ k.T / np.sqrt(7.0)) @ v

    q = q.reshape(*q.shape[:2], k.shape[2], 3, q.shape[-1])
    heads = jax.vmap(jax.vmap(one, (1, None, None), 1), 1, 1)
    return jax.vmap(heads)(q, k, v).reshape(*q.shape[:2], -1, v.shape[-1])


def by_library(q, k, v):
    return jax.nn.dot_product_attention(q, k, v)


def by_library_causal(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize(
    "way", [by_vmap, pytest.param(by_library, marks=pytest.mark.slow), by_library_causal]
)
def test_groups_of_queries_are_one_kernel(way):
    rng = np.random.default_rng(6)
    compiled = shlo_disc.jit(way)
    for b, t, s, heads, d in [
        (2, 5, 9, 2, 7),
        (1, 1, 1, 1, 1),
        (2, 65, 33, 2, 16),
        (3, 17, 130, 1, 8),
    ]:
        q = rng.standard_normal((b, t, 3 * heads, d)).astype(np.float32)
        k, v = (rng.standard_normal((b, s, heads, d)).astype(np.float32) for _ in range(2))
        if b == 2 and t == 5:
            assert set(kernels_of(compiled, q, k, v)) == {"attention"}
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(way)(*(jnp.asarray(a, jnp.float64) for a in (q, k, v))))
        np.testing.assert_allclose(
            np.asarray(compiled(q, k, v)), want, rtol=2e-5, atol=2e-5, err_msg=str((b, t, s))
        )


def test_positions_or_heads_that_share_keys_are_the_rows():
    """Of one position and many heads the heads are: keys and values are read once for them."""
    rng = np.random.default_rng(8)
    compiled = shlo_disc.jit(by_library)
    # The sizes of the first call are equal where those of others are not.
    for b, t, s, heads, group, d in [
        (2, 3, 3, 2, 1, 8), (2, 70, 9, 2, 1, 8), (1, 1, 40, 3, 1, 8), (3, 1, 33, 2, 4, 8),
        (1, 2, 5, 1, 7, 8), (2, 1, 130, 2, 2, 8), (2, 3, 17, 2, 4, 8), (1, 65, 65, 2, 3, 8),
    ]:  # fmt: skip
        q = rng.standard_normal((b, t, heads * group, d)).astype(np.float32)
        k, v = (rng.standard_normal((b, s, heads, d)).astype(np.float32) for _ in range(2))
        with jax.enable_x64(True):
            want = jax.jit(by_library)(*(jnp.asarray(a, jnp.float64) for a in (q, k, v)))
        np.testing.assert_allclose(compiled(q, k, v), want, rtol=2e-5, atol=2e-5)
    assert compiled.cache_info().misses == 1
    assert "((attention_rows if floordiv(d2, d6) <= 2 [2:2], else attention) if d1 <= 2 [4:4]" in (
        compiled.explain()
    )


def repeated(q, k, v):
    """Keys and values repeated for every query head of their group."""
    k, v = (jnp.repeat(x, 3, axis=2) for x in (k, v))
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(7.0))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def repeated_heads_first(q, k, v):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    b, heads, s, d = k.shape
    k, v = (
        jnp.broadcast_to(x[:, :, None], (b, heads, 3, s, d)).reshape(b, 3 * heads, s, d)
        for x in (k, v)
    )
    return jnp.swapaxes(softmax(q @ jnp.swapaxes(k, -1, -2)) @ v, 1, 2)


def repeated_keys_alone(q, k, v):
    """Values have all heads."""
    v = jnp.concatenate([v, v + 1.0, v - 1.0], axis=2)
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, jnp.repeat(k, 3, axis=2)))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def broadcast_to_groups(q, k, v):
    b, t, heads, d = q.shape
    s = k.shape[1]
    q = q.reshape(b, t, heads // 3, 3, d)
    k, v = (jnp.broadcast_to(x[:, :, :, None], (b, s, heads // 3, 3, d)) for x in (k, v))
    weights = softmax(jnp.einsum("bthgd,bshgd->bhgts", q, k))
    return jnp.einsum("bhgts,bshgd->bthgd", weights, v).reshape(b, t, heads, d)


def one_head_for_all(q, k, v):
    k, v = (jnp.broadcast_to(x[:, :, :1], (*x.shape[:2], q.shape[2], x.shape[3])) for x in (k, v))
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def tiled(q, k, v):
    """Heads 0 1 0 1 0 1: no repetition of each."""
    k, v = (jnp.tile(x, (1, 1, 3, 1)) for x in (k, v))
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def repeated_in_time(q, k, v):
    """Every key twice: not along a batch dimension."""
    k, v = (jnp.repeat(jnp.repeat(x, 3, axis=2), 2, axis=1) for x in (k, v))
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


@pytest.mark.parametrize(
    ("way", "kinds"),
    [
        (repeated, ["attention"]),
        (repeated_heads_first, ["attention"]),
        (repeated_keys_alone, ["loop", "attention"]),
        (broadcast_to_groups, ["attention"]),
        (one_head_for_all, ["attention"]),
        (tiled, None),
        (repeated_in_time, None),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_keys_repeated_for_groups_of_heads_are_read_where_they_are(way, kinds):
    rng = np.random.default_rng(7)
    compiled = shlo_disc.jit(way)
    for b, t, s, d in [(2, 5, 9, 7), (1, 1, 70, 16), (3, 65, 33, 8)]:
        q = rng.standard_normal((b, t, 6, d)).astype(np.float32)
        k, v = (rng.standard_normal((b, s, 2, d)).astype(np.float32) for _ in range(2))
        if kinds is not None and b == 2:
            assert kernels_of(compiled, q, k, v) == kinds
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(way)(*(jnp.asarray(a, jnp.float64) for a in (q, k, v))))
        np.testing.assert_allclose(
            np.asarray(compiled(q, k, v)), want, rtol=2e-5, atol=2e-5, err_msg=str((b, t, s))
        )


def test_repeated_keys_with_an_unknown_number_of_heads():
    compiled = shlo_disc.jit(repeated, shapes=("b, t, 3*h, d", "b, s, h, d", "b, s, h, d"))
    rng = np.random.default_rng(8)
    for b, t, s, h, d in [(2, 5, 9, 2, 7), (1, 1, 50, 1, 16)]:
        q = rng.standard_normal((b, t, 3 * h, d)).astype(np.float32)
        k, v = (rng.standard_normal((b, s, h, d)).astype(np.float32) for _ in range(2))
        np.testing.assert_allclose(
            np.asarray(compiled(q, k, v)), jax.jit(repeated)(q, k, v), rtol=2e-5, atol=2e-5
        )
    assert compiled.cache_info().misses == 1


def split_in_three(x, w):
    q, k, v = jnp.split(x @ w, 3, -1)
    q, k, v = (a.reshape(*a.shape[:2], 4, -1) for a in (q, k, v))
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def indexed_in_three(x, w):
    h = (x @ w).reshape(*x.shape[:2], 3, 4, -1)
    weights = softmax(jnp.einsum("bthd,bshd->bhts", h[:, :, 0], h[:, :, 1]))
    return jnp.einsum("bhts,bshd->bthd", weights, h[:, :, 2])


@pytest.mark.parametrize("way", [split_in_three, indexed_in_three])
def test_parts_of_one_projection_are_read_in_place(way):
    rng = np.random.default_rng(7)
    compiled = shlo_disc.jit(way)
    for b, t, width, d in [(2, 5, 32, 8), (1, 1, 16, 1), (3, 70, 24, 16)]:
        x = rng.standard_normal((b, t, width)).astype(np.float32)
        w = rng.standard_normal((width, 3 * 4 * d)).astype(np.float32) / 8
        assert kernels_of(compiled, x, w) == ["dense", "attention"]
        with jax.enable_x64(True):
            want = np.asarray(jax.jit(way)(*(jnp.asarray(a, jnp.float64) for a in (x, w))))
        np.testing.assert_allclose(np.asarray(compiled(x, w)), want, rtol=2e-5, atol=2e-5)


def test_rows_with_everything_masked_are_nan_as_in_xla():
    rng = np.random.default_rng(1)
    q, k, v, _ = inputs(rng, 2, 5, 6, 2, 8)
    bias = np.full((2, 1, 1, 6), -np.inf, np.float32)
    bias[1] = 0
    got = np.asarray(shlo_disc.jit(masked)(q, k, v, bias))
    np.testing.assert_allclose(
        got, np.asarray(jax.jit(masked)(q, k, v, bias)), rtol=1e-5, atol=1e-6
    )
    assert np.isnan(got[0]).all()


def test_no_keys_give_zeros():
    rng = np.random.default_rng(2)
    args = inputs(rng, 2, 3, 0, 2, 8)
    q, k, v, _ = args

    def plain(q, k, v):
        scores = jnp.einsum("bthd,bshd->bhts", q, k)
        return jnp.einsum("bhts,bshd->bthd", scores / scores.sum(-1, keepdims=True), v)

    got = np.asarray(shlo_disc.jit(plain)(q, k, v))
    np.testing.assert_array_equal(got, np.zeros((2, 3, 2, 8), np.float32))


def test_half_precision_operands_are_widened():
    rng = np.random.default_rng(3)

    def mixed(q, k, v):
        scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32)
        weights = softmax(scores)
        return jnp.einsum("bhts,bshd->bthd", weights, v.astype(jnp.float32))

    q, k, v, _ = (jnp.asarray(a, jnp.bfloat16) for a in inputs(rng, 2, 19, 23, 3, 16))
    assert "attention" in kernels(mixed, q, k, v)
    with jax.enable_x64(True):
        want = np.asarray(
            jax.jit(mixed)(*(jnp.asarray(np.asarray(a, np.float64)) for a in (q, k, v)))
        )
    np.testing.assert_allclose(
        np.asarray(shlo_disc.jit(mixed)(q, k, v)), want, rtol=1e-4, atol=1e-5
    )


def test_double_precision():
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        args = [jnp.asarray(a) for a in inputs(rng, 2, 37, 41, 2, 24, np.float64)]
        assert "attention" in kernels(masked, *args)
        got, want = shlo_disc.jit(masked)(*args), jax.jit(masked)(*args)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12, atol=1e-13)


def weights_too(q, k, v, bias):
    return softmax(jnp.einsum("bthd,bshd->bhts", q, k)), v


def scores_too(q, k, v, bias):
    return masked(q, k, v, bias), jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(7.0)


def columns_reduced(q, k, v, bias):
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k), -2)
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def ends_in_rows(q, k, v, bias):
    weights = softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    return jnp.einsum("bhts,bshd->bdth", weights, v)


def no_batch(q, k, v, bias):
    return softmax(q[0, :, 0] @ k[0, :, 0].T) @ v[0, :, 0]


@pytest.mark.parametrize(
    "function", [weights_too, scores_too, columns_reduced, ends_in_rows, no_batch]
)
def test_what_is_no_attention_is_still_right(function):
    rng = np.random.default_rng(5)
    compiled, reference = shlo_disc.jit(function), jax.jit(function)
    for shape in [(2, 5, 9, 3, 7), (1, 33, 17, 2, 16)]:
        args = inputs(rng, *shape)
        got, want = compiled(*args), reference(*args)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_few_rows_read_keys_and_values_in_place(dtype) -> None:
    def function(q, k, v):
        seen = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool), k.shape[1] - q.shape[1])
        scores = jnp.where(seen, jnp.einsum("bthd,bshd->bhts", q, k) / 4.0, -1e30)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v) * 2.0

    sizes = tuple(f"b, {n}, 3, d" for n in ("t", "s", "s"))
    rng = np.random.default_rng(5)
    with jax.enable_x64(True):
        ours = shlo_disc.jit(function, shapes=sizes, constraints=("s >= t",))
        for t in (1, 2, 3):
            for s, d in [(3, 1), (5, 7), (8, 8), (17, 20), (100, 64), (33, 72), (9, 129)]:
                q, k, v = (rng.standard_normal((2, n, 3, d)).astype(dtype) for n in (t, s, s))
                scores = np.einsum("bthd,bshd->bhts", *(x.astype(np.float64) for x in (q, k))) / 4
                scores = np.where(np.tril(np.ones((t, s), bool), s - t), scores, -1e30)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                want = np.einsum("bhts,bshd->bthd", weights, v.astype(np.float64)) * 2
                tolerance = 1e-5 if dtype == np.float32 else 1e-13
                np.testing.assert_allclose(ours(q, k, v), want, rtol=tolerance, atol=tolerance)
    assert kernels(function, *(jnp.ones((2, 3, 3, 8)) for _ in range(3))) == ["attention"]


@pytest.mark.parametrize("other", [lambda s: jnp.swapaxes(s, -1, -2), lambda s: s[..., ::-1]])
def test_scores_that_are_read_at_other_places(other):
    """Of symmetric and of reversed scores a row is not computed from a row."""

    def function(x, v):
        scores = x @ jnp.swapaxes(x, -1, -2)
        return softmax(scores + other(scores)) @ v

    rng = np.random.default_rng(0)
    x, v = (rng.standard_normal((2, 3, 6, n)).astype("f4") * 0.4 for n in (8, 5))
    assert "attention" not in kernels(function, x, v)
    ours, theirs = shlo_disc.jit(function)(x, v), jax.jit(function)(x, v)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
