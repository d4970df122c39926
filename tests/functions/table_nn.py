"""Cases of `jax.nn`, `jax.nn.initializers` and `jax.ops`."""

from __future__ import annotations

from dataclasses import replace

import jax
from jax.nn import initializers

from tests.functions.cases import Case, Leave, case, each

NN = {
    **each(
        "celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu "
        "log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax "
        "softplus sparse_plus sparse_sigmoid squareplus standardize swish tanh",
        "n m",
    ),
    "log1mexp": case("positive: n m"),
    "gelu/exact": case(lambda x: jax.nn.gelu(x, approximate=False), "n m"),
    "glu": case("n 2*m"),
    "logsumexp/axis": case(lambda x, b: jax.nn.logsumexp(x, axis=0, b=b, return_sign=True), "n m", "n m"),
    "softmax/where": case(
        lambda x, w: jax.nn.softmax(x, axis=0, where=w), "n m", "bool: n m"
    ),
    "one_hot": case(lambda i: jax.nn.one_hot(i, 7), "index(9): n m"),
    "one_hot/size": case(lambda i, x: jax.nn.one_hot(i, x.shape[0]), "index(n): m", "n"),
    "dot_product_attention": case("2 n 3 8", "2 m 3 8", "2 m 3 8"),
    "dot_product_attention/causal": case(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), "2 n 3 8", "2 n 3 8", "2 n 3 8"
    ),
    "dot_product_attention/grouped": case(
        lambda q, k, v, b: jax.nn.dot_product_attention(q, k, v, bias=b), "2 n 4 8", "2 m 2 8", "2 m 2 8", "1 4 n m"
    ),
    "scaled_dot_general": case(
        lambda x, y: jax.nn.scaled_dot_general(x, y, (((1,), (1,)), ((), ()))), "n 32", "m 32"
    ),
}  # fmt: skip


def initial(name: str) -> Case:
    """An initializer, for weights of two sizes."""
    make = getattr(initializers, name)
    return case(lambda key, x: make()(key, x.shape, "float32"), "key:", "n m")


INITIALIZERS = {
    **{
        name: initial(name)
        for name in (
            "glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform lecun_normal "
            "lecun_uniform normal truncated_normal uniform xavier_normal xavier_uniform"
        ).split()
    },
    "orthogonal": replace(initial("orthogonal"), reason="wide weights are the transposed ones of tall ones"),
    "constant": case(lambda key, x: initializers.constant(2.0)(key, x.shape, "float32"), "key:", "n m"),
    "delta_orthogonal": case(
        lambda key: initializers.delta_orthogonal()(key, (3, 3, 4, 4), "float32"), "key:"
    ),
    "ones": case(lambda key, x: initializers.ones(key, x.shape, "float32"), "key:", "n m"),
    "variance_scaling": case(
        lambda key, x: initializers.variance_scaling(1.0, "fan_avg", "normal")(key, x.shape, "float32"),
        "key:", "n m",
    ),
    "zeros": case(lambda key, x: initializers.zeros(key, x.shape, "float32"), "key:", "n m"),
}  # fmt: skip

OPS = {
    name: case(lambda x, i, f=getattr(jax.ops, name): f(x, i, num_segments=4), "n m", "index(4): n")
    for name in "segment_max segment_min segment_prod segment_sum".split()
} | {
    "segment_sum/size": case(
        lambda x, i, y: jax.ops.segment_sum(x, i, y.shape[0]), "n", "index(m): n", "m"
    )
}

MODULES: dict[str, tuple[dict[str, Case], Leave]] = {
    "jax.nn": (
        NN,
        {
            "gives no array": "get_scaled_dot_general_config",
            "CPUs of JAX have none": "scaled_matmul",
        },
    ),
    "jax.nn.initializers": (INITIALIZERS, {}),
    "jax.ops": (OPS, {}),
}
