"""Gathers and scatters: embeddings, their gradients, segment sums, one-hot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.harness import check, check_bits, normal, rng_of

SHAPES = ((3, 10), (1, 1), (2, 61), (16, 8))
ROWS, WIDTH = 37, 24


def table():
    return normal(rng_of(ROWS, WIDTH), ROWS, WIDTH)


def ids(*sizes: int, low: int = 0, high: int = ROWS):
    return rng_of(*sizes).integers(low, high, sizes, np.int32)


def test_embedding_lookup():
    check_bits(lambda w, i: w[i], [(table(), ids(*s)) for s in SHAPES])


def test_negative_and_out_of_range_ids_follow_jax():
    cases = [(table(), ids(*s, low=-60, high=60)) for s in SHAPES]
    check_bits(lambda w, i: (w[i], jnp.take(w, i, axis=0), w.at[i].get(mode="clip")), cases)


def test_gradient_of_an_embedding_is_a_scatter_add():
    def loss(w, i, y):
        return jnp.sum((w[i] * y) ** 2)

    cases = []
    for b, t in SHAPES:
        cases.append((table(), ids(b, t), normal(rng_of(b, t), b, t, WIDTH)))
    check(jax.grad(loss), cases)


def test_gradient_of_a_table_of_any_size():
    def loss(w, i):
        return jnp.sum(jnp.tanh(w[i]).mean(1) ** 2)

    cases = []
    for rows, b, t in ((37, 3, 10), (5, 1, 2), (101, 4, 33)):
        w = normal(rng_of(rows), rows, WIDTH)
        cases.append((w, ids(b, t, high=rows)))
    check(jax.grad(loss), cases)


def test_segment_sum_and_maximum():
    def segments(x, owner):
        return (
            jax.ops.segment_sum(x, owner, num_segments=7),
            jax.ops.segment_max(x, owner, num_segments=7),
        )

    cases = [(normal(rng_of(n), n, 6), ids(n, high=7)) for n in (10, 1, 128, 61)]
    check(segments, cases)


def test_message_passing_on_a_graph():
    def layer(nodes, senders, receivers, weight):
        messages = jax.nn.relu(nodes[senders] @ weight)
        total = (
            jnp.zeros((nodes.shape[0], weight.shape[1]), nodes.dtype).at[receivers].add(messages)
        )
        degree = jnp.zeros((nodes.shape[0],), nodes.dtype).at[receivers].add(1.0)
        return total / jnp.maximum(degree, 1.0)[:, None]

    weight = normal(rng_of(6, 9), 6, 9)
    cases = []
    for n, e in ((10, 25), (1, 3), (64, 200)):
        rng = rng_of(n, e)
        ends = rng.integers(0, n, (2, e), np.int32)
        cases.append((normal(rng, n, 6), ends[0], ends[1], weight))
    check(layer, cases)


def test_one_hot():
    check_bits(lambda i: jax.nn.one_hot(i, 11), [(ids(*s, low=-2, high=14),) for s in SHAPES])


def test_scatter_set_and_multiply():
    def update(x, i, v):
        return x.at[i].set(v), x.at[i].multiply(2.0), x.at[i].max(v), x.at[1:].add(1.0)

    cases = []
    for n in (10, 4, 129):
        rng = rng_of(n)
        index = rng.permutation(n)[:3].astype(np.int32)
        cases.append((normal(rng, n, 5), index, normal(rng, 3, 5)))
    check(update, cases)


def test_scatter_of_out_of_range_updates_is_dropped():
    cases = [(np.zeros(n, "f4"), np.array([0, n, n + 5, -1], "i4")) for n in (6, 1, 33)]
    check_bits(lambda x, i: x.at[i].add(1.0), cases)


def test_histogram_counts_exactly():
    cases = [(rng_of(n).integers(0, 5, n, np.int32),) for n in (10, 1, 4096)]
    check_bits(lambda i: jnp.zeros(5, jnp.int32).at[i].add(1), cases)


def test_take_along_an_axis_and_advanced_indexing():
    def pick(x, i):
        return jnp.take_along_axis(x, i, 1), x[jnp.arange(x.shape[0]), i[:, 0]], x[:, i[0]]

    cases = []
    for b, n, k in ((3, 10, 4), (1, 1, 1), (5, 61, 7)):
        rng = rng_of(b, n, k)
        cases.append((normal(rng, b, n), rng.integers(0, n, (b, k), np.int32)))
    check_bits(pick, cases)
