"""Programs of jraph: graphs of any number of nodes and edges, without padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.libraries.harness import REASON, check

jraph = pytest.importorskip("jraph", reason=REASON)

SIZES = {"edges": (3 + 4 + 4 + 2, 5), "nodes": (4 + 5 + 5 + 2, 6), "globals": (6 + 5 + 2, 1)}
"""Weights of a network over nodes of 4, edges of 3 and globals of 2 features."""


def parameters():
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal(sizes, "f") / 4 for k, sizes in SIZES.items()}


def parts(total, count, rng):
    """`count` positive numbers with the sum `total`."""
    return (1 + rng.multinomial(total - count, [1 / count] * count)).astype("i4")


def graphs(b, t, rng):
    """A batch of `b` graphs with nodes and edges that grow with `t`."""
    nodes, edges = b * t, b * (t + 3)
    n_node, n_edge = parts(nodes, b, rng), parts(edges, b, rng)
    first = np.cumsum([0, *n_node[:-1]])

    def ends():
        each = [rng.integers(0, n, e) + k for n, e, k in zip(n_node, n_edge, first, strict=True)]
        return np.concatenate(each).astype("i4")

    return jraph.GraphsTuple(
        nodes=rng.standard_normal((nodes, 4), "f"),
        edges=rng.standard_normal((edges, 3), "f"),
        senders=ends(),
        receivers=ends(),
        n_node=n_node,
        n_edge=n_edge,
        globals=rng.standard_normal((b, 2), "f"),
    )


def network(params, graph):
    def update(name, activation):
        return lambda *features: activation(jnp.concatenate(features, -1) @ params[name])

    return jraph.GraphNetwork(
        update_edge_fn=update("edges", jax.nn.relu),
        update_node_fn=update("nodes", jax.nn.relu),
        update_global_fn=update("globals", lambda x: x),
    )(graph)


@pytest.mark.slow
def test_graph_network_trains():
    def loss_of(params, graph, labels):
        return jnp.mean((network(params, graph).globals[:, 0] - labels) ** 2)

    def step(params, graph, labels):
        loss, grads = jax.value_and_grad(loss_of)(params, graph, labels)
        return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    check(step, lambda b, t, rng: (parameters(), graphs(b, t, rng), rng.standard_normal(b, "f")))


@pytest.mark.slow
def test_attention_over_edges():
    def attend(params, graph):
        return jraph.GAT(
            attention_query_fn=lambda nodes: nodes @ params["edges"][:4],
            attention_logit_fn=lambda sent, got, edges: (sent * got).sum(-1, keepdims=True),
        )(graph._replace(edges=None)).nodes

    check(attend, lambda b, t, rng: (parameters(), graphs(b, t, rng)))


@pytest.mark.slow
def test_segment_functions():
    def pooled(graph):
        segments = jnp.repeat(
            jnp.arange(graph.n_node.shape[0]), graph.n_node,
            total_repeat_length=graph.nodes.shape[0],
        )  # fmt: skip
        count = graph.n_node.shape[0]
        return [
            f(graph.nodes, segments, count)
            for f in (jraph.segment_mean, jraph.segment_max, jraph.segment_variance)
        ] + [jraph.segment_softmax(graph.nodes[:, 0], segments, count)]

    check(pooled, lambda b, t, rng: (graphs(b, t, rng),))
