"""Programs of the kinds whose first call is timed, small: compilation depends on the program.

`PROGRAMS` has functions that make a function of JAX and its arguments for a batch and a length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def _normal(*shape: int) -> jax.Array:
    random = np.random.default_rng(sum(shape))
    return jnp.asarray(0.1 * random.standard_normal(shape), jnp.float32)


def _norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _dense(batch: int, _: int) -> Made:
    return lambda x, w, b: nn.gelu(x @ w + b), (_normal(batch, 64), _normal(64, 128), _normal(128))


def _vit(batch: int, length: int) -> Made:
    def block(x: jax.Array, p: tuple[jax.Array, ...]) -> jax.Array:
        q, k, v = (jnp.einsum("btd,dhe->bhte", _norm(x), w) for w in p[:3])
        weights = nn.softmax(jnp.einsum("bhte,bhse->bhts", q, k) / 4)
        x = x + jnp.einsum("bhts,bhse,hed->btd", weights, v, p[3])
        return x + nn.gelu(_norm(x) @ p[4]) @ p[5]

    def loss(blocks: Any, x: jax.Array) -> jax.Array:
        for p in blocks:
            x = block(x, p)
        return (x**2).mean()

    qkv = [_normal(64, 4, 16) for _ in range(3)]
    blocks = [(*qkv, _normal(4, 16, 64), _normal(64, 256), _normal(256, 64)) for _ in range(4)]
    return loss, (blocks, _normal(batch, length, 64))


def _conv(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _unet(batch: int, length: int) -> Made:
    def loss(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        one = nn.relu(_conv(nn.relu(_conv(x, p["a"])), p["b"]))
        two = nn.relu(_conv(nn.relu(_conv(one, p["down"], 2)), p["c"]))
        up = jnp.repeat(jnp.repeat(two, 2, 1), 2, 2)
        return (_conv(nn.relu(_conv(jnp.concatenate([one, up], -1), p["d"])), p["e"]) ** 2).mean()

    sizes = {"a": (3, 3, 3, 8), "b": (3, 3, 8, 8), "down": (3, 3, 8, 16), "c": (3, 3, 16, 16),
             "d": (3, 3, 24, 8), "e": (1, 1, 8, 3)}  # fmt: skip
    weights = {name: _normal(*shape) for name, shape in sizes.items()}
    return loss, (weights, _normal(batch, 2 * length, 2 * length, 3))


def _cnn(batch: int, length: int) -> Made:
    def loss(p: tuple[jax.Array, ...], x: jax.Array, label: jax.Array) -> jax.Array:
        for w in p[:2]:
            x = nn.relu(_conv(x, w))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = x.mean((1, 2)) @ p[2]
        return -(nn.log_softmax(logits) * nn.one_hot(label, 10)).sum(-1).mean()

    weights = (_normal(3, 3, 1, 8), _normal(3, 3, 8, 16), _normal(16, 10))
    return loss, (weights, _normal(batch, 2 * length, 2 * length, 1), jnp.arange(batch) % 10)


def _gru(batch: int, length: int) -> Made:
    def loss(p: tuple[jax.Array, ...], xs: jax.Array) -> jax.Array:
        def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            z = nn.sigmoid(x @ p[0] + h @ p[1])
            h = (1 - z) * h + z * jnp.tanh(x @ p[2] + (z * h) @ p[3])
            return h, h

        return (lax.scan(step, jnp.zeros((xs.shape[1], 64)), xs)[1] ** 2).mean()

    weights = (_normal(32, 64), _normal(64, 64), _normal(32, 64), _normal(64, 64))
    return loss, (weights, _normal(length, batch, 32))


def _gnn(batch: int, length: int) -> Made:
    def loss(p: list[jax.Array], x: jax.Array, start: jax.Array, end: jax.Array) -> jax.Array:
        for w in p:
            messages = jax.ops.segment_sum((x @ w)[start], end, x.shape[0])
            x = _norm(nn.relu(x + messages))
        return x.sum(0).max()

    ends = jnp.asarray(np.random.default_rng(0).integers(0, 8 * batch, (2, 8 * length)))
    return loss, ([_normal(32, 32) for _ in range(3)], _normal(8 * batch, 32), ends[0], ends[1])


def _adam(batch: int, _: int) -> Made:
    def loss(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for w, b in p:
            x = nn.relu(x @ w + b)
        return ((x - y) ** 2).mean()

    def step(p: Any, m: Any, v: Any, x: jax.Array, y: jax.Array) -> Any:
        g = jax.grad(loss)(p, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v

    p = [(_normal(64, 64), _normal(64)) for _ in range(6)]
    v = jax.tree.map(abs, p)
    return step, (p, p, v, _normal(batch, 64), _normal(batch, 64))


def _sampling(batch: int, _: int) -> Made:
    def sample(key: jax.Array, logits: jax.Array) -> jax.Array:
        values, places = lax.top_k(logits / 0.8, 40)
        chosen = jax.random.categorical(key, values)
        return jnp.take_along_axis(places, chosen[:, None], 1)[:, 0]

    return sample, (jax.random.PRNGKey(0), _normal(batch, 5000))


def _decode(batch: int, length: int) -> Made:
    def step(p: tuple[jax.Array, ...], x: jax.Array, kv: jax.Array, at: jax.Array) -> Any:
        q, k, v = (jnp.einsum("bd,dhe->bhe", _norm(x), w) for w in p[:3])
        kv = lax.dynamic_update_slice(kv, jnp.stack([k, v])[:, :, None], (0, 0, at, 0, 0))
        scores = jnp.einsum("bhe,bthe->bht", q, kv[0]) / 4
        weights = nn.softmax(jnp.where(jnp.arange(kv.shape[2]) <= at, scores, -jnp.inf))
        return x + jnp.einsum("bht,bthe,hed->bd", weights, kv[1], p[3]), kv

    p = (*(_normal(64, 4, 16) for _ in range(3)), _normal(4, 16, 64))
    return step, (p, _normal(batch, 64), _normal(2, batch, length, 4, 16), jnp.int32(3))


def _clusters(batch: int, length: int) -> Made:
    def step(points: jax.Array, centres: jax.Array) -> Any:
        def body(_: int, c: jax.Array) -> jax.Array:
            near = ((points[:, None] - c[None]) ** 2).sum(-1).argmin(1)
            of = nn.one_hot(near, c.shape[0])
            return (of.T @ points) / jnp.maximum(of.sum(0), 1)[:, None]

        return lax.fori_loop(0, 5, body, centres)

    return step, (_normal(8 * length, 3), _normal(batch, 3))


def _regression(batch: int, length: int) -> Made:
    def fit(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.linalg.solve(x.T @ x + 0.1 * jnp.eye(x.shape[1]), x.T @ y)

    return fit, (_normal(8 * length, batch + 2), _normal(8 * length))


def _bert(batch: int, length: int) -> Made:
    from benchmarks.bert import model

    return model.bert, (model.init(), *map(jnp.asarray, model.batch(batch, length)))


def _bert_training(batch: int, length: int) -> Made:
    from benchmarks.models import bert_training

    return bert_training.function, (bert_training.init(), *bert_training.inputs(batch, length))


def _transformer_training(batch: int, length: int) -> Made:
    from benchmarks.models import transformer_training as it

    return it.function, (it.init(), *it.inputs(batch, length, length + 2))


def _gradient(make: Callable[[int, int], Made]) -> Callable[[int, int], Made]:
    def made(batch: int, length: int) -> Made:
        function, arguments = make(batch, length)
        return jax.grad(function), arguments

    return made


PROGRAMS: dict[str, Callable[[int, int], Made]] = {
    "gelu(x @ w + b)": _dense,
    "ViT, 4 blocks": _vit,
    "ViT, gradient": _gradient(_vit),
    "U-Net": _unet,
    "U-Net, gradient": _gradient(_unet),
    "CNN, gradient": _gradient(_cnn),
    "GRU": _gru,
    "GRU, gradient": _gradient(_gru),
    "GNN, 3 layers": _gnn,
    "GNN, gradient": _gradient(_gnn),
    "MLP, Adam step": _adam,
    "top-k sampling": _sampling,
    "attention, decode step": _decode,
    "k-means": _clusters,
    "ridge regression": _regression,
    "BERT-base": _bert,
    "BERT, training step": _bert_training,
    "encoder-decoder, training step": _transformer_training,
}
