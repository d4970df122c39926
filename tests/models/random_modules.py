"""Random trainable modules beside `jax.jit`, forward and gradient: norms, dense layers, attention,
dropout, embeddings, recurrent layers, convolutions, pooling and residuals in random order.

    python -m tests.models.random_modules --seeds 0:500 [--flavour jax|flax]

A program is a `Spec`, plain data: a failing one is made small and printed as a call of `check`.
Every program has to compile, as it is planned, and to be right at all its shapes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

if __name__ == "__main__":  # as tests/conftest.py
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("SHLO_DISC_SPEC", "1")
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".lstrip()
    )

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import shlo_disc
from tests.alarms import pinned

SHAPES = (
    ((2, 5), (3, 8), (1, 1)), ((4, 3), (2, 9)), ((1, 6), (5, 4)), ((3, 7), (7, 3)),
    ((2, 16), (3, 33)), ((6, 2), (1, 20)),
)  # fmt: skip
"""(batch, length) of the calls of one program; the first traces."""

WORDS = 11
"""Of the vocabulary."""


@dataclass(frozen=True)
class Spec:
    """A program: `layers` one after the other on [batch, length, width]."""

    layers: tuple[tuple[Any, ...], ...]
    """(name, is there a residual around it, options...)"""
    width: int
    embeds: bool
    """Are the inputs words, or vectors?"""
    loss: str
    """A key of LOSSES."""
    mode: str
    """forward, gradient or a key of UPDATES."""
    shapes: tuple[tuple[int, int], ...]
    flavour: str = "jax"


# ---------------------------------------------------------------- layers in JAX

Init = Callable[..., np.ndarray]
Layer = Callable[[Init, int], tuple[Any, Callable[..., Any], int]]
"""(how to make weights, width) -> (weights, (weights, x, key) -> x, new width)."""


def draws(key: Any, shape: tuple[Any, ...]) -> Any:
    """The same numbers whatever the type of what they choose."""
    return jax.random.uniform(key, shape, jnp.float32)


def layer_norm(new: Init, d: int, bias: bool, axis: int | tuple[int, ...] = -1) -> Any:
    weights = {"scale": new(d) + 1.0} | ({"bias": new(d)} if bias else {})

    def apply(p: Any, x: Any, _: Any) -> Any:
        mean = x.mean(axis, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-3) * p["scale"] + p.get("bias", 0.0)

    return weights, apply, d


def fast_variance(new: Init, d: int) -> Any:
    """As flax computes it."""

    def apply(p: Any, x: Any, _: Any) -> Any:
        mean, square = x.mean(-1, keepdims=True), lax.square(x).mean(-1, keepdims=True)
        scale = lax.rsqrt(jnp.maximum(0.0, square - lax.square(mean)) + 1e-2) * p
        return (x - mean) * scale

    return new(d) + 1.0, apply, d


def rms_norm(new: Init, d: int, eps: float) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * p

    return new(d) + 1.0, apply, d


def unit_norm(new: Init, d: int) -> Any:
    def apply(_: Any, x: Any, __: Any) -> Any:
        return x / (jnp.linalg.norm(x + 0.1, axis=-1, keepdims=True) + 0.1)

    return (), apply, d


def group_norm(new: Init, d: int, groups: int) -> Any:
    groups = groups if d % groups == 0 else 1

    def apply(p: Any, x: Any, _: Any) -> Any:
        b, t, _ = x.shape
        y = x.reshape(b, t, groups, d // groups)
        mean, variance = y.mean((1, 3), keepdims=True), y.var((1, 3), keepdims=True)
        return ((y - mean) / jnp.sqrt(variance + 1e-2)).reshape(b, t, d) * p

    return new(d) + 1.0, apply, d


def dense(new: Init, d: int, width: int, bias: bool, act: str) -> Any:
    weights = {"w": new(d, width)} | ({"b": new(width)} if bias else {})

    def apply(p: Any, x: Any, _: Any) -> Any:
        y = x @ p["w"]
        return ACTIVATIONS[act](y + p["b"] if bias else y)

    return weights, apply, width


def tied(new: Init, d: int) -> Any:
    """There and back through one weight."""

    def apply(p: Any, x: Any, _: Any) -> Any:
        return jnp.tanh(x @ p) @ p.T

    return new(d, 2 * d), apply, d


def weight_norm(new: Init, d: int) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        return x @ (p["v"] / jnp.linalg.norm(p["v"], axis=0) * p["g"])

    return {"v": new(d, d), "g": new(d) + 1.0}, apply, d


def gated(new: Init, d: int, act: str) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        return (ACTIVATIONS[act](x @ p["gate"]) * (x @ p["up"])) @ p["down"]

    return {"gate": new(d, 2 * d), "up": new(d, 2 * d), "down": new(2 * d, d)}, apply, d


def glu(new: Init, d: int) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        return jax.nn.glu(x @ p["w"] + p["b"], -1)

    return {"w": new(d, 2 * d), "b": new(2 * d)}, apply, d


def attention(
    new: Init, d: int, heads: int, groups: int, causal: bool, drop: bool, whole: bool
) -> Any:
    size = max(d // heads, 2)
    shared = heads // groups
    weights = {
        "q": new(d, heads * size), "k": new(d, groups * size), "v": new(d, groups * size),
        "o": new(heads * size, d),
    }  # fmt: skip
    if whole:
        joined = np.concatenate([weights.pop(name) for name in "qkv"], 1)
        weights["qkv"] = joined

    def apply(p: Any, x: Any, key: Any) -> Any:
        b, t, _ = x.shape
        if whole:
            cuts = (heads * size, (heads + groups) * size)
            q, k, v = jnp.split(x @ p["qkv"], cuts, -1)
        else:
            q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
        q = q.reshape(b, t, heads, size)
        k, v = (jnp.repeat(a.reshape(b, t, groups, size), shared, 2) for a in (k, v))
        scores = jnp.einsum("bthd,bshd->bhts", q, k) * size**-0.5
        if causal:
            mask = jnp.arange(t)[:, None] >= jnp.arange(t)
            scores = jnp.where(mask, scores, -1e9)
        probabilities = jax.nn.softmax(scores)
        if drop:
            keep = draws(key, probabilities.shape) < 0.8
            probabilities = jnp.where(keep, probabilities / 0.8, 0.0)
        mixed = jnp.einsum("bhts,bshd->bthd", probabilities, v)
        return mixed.reshape(b, t, heads * size) @ p["o"]

    return weights, apply, d


def dropout(_: Init, d: int, rate: float, rows: bool) -> Any:
    def apply(_: Any, x: Any, key: Any) -> Any:
        shape = (x.shape[0], 1, d) if rows else x.shape
        keep = draws(key, shape) < 1 - rate
        return jnp.where(keep, x / (1 - rate), 0.0)

    return (), apply, d


def activation(_: Init, d: int, act: str) -> Any:
    return (), lambda _, x, __: ACTIVATIONS[act](x), d


def lstm(new: Init, d: int, size: int) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        def step(carry: Any, z: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(z @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[0], size))
        return lax.scan(step, (start, start), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    return {"x": new(d, 4 * size), "h": new(size, 4 * size), "b": new(4 * size)}, apply, size


def gru(new: Init, d: int, backwards: bool) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        inputs = x @ p["x"]

        def step(h: Any, z: Any) -> Any:
            zr, zz, zn = jnp.split(z, 3, -1)
            hr, hz, hn = jnp.split(h @ p["h"], 3, -1)
            r, u = jax.nn.sigmoid(zr + hr), jax.nn.sigmoid(zz + hz)
            h = (1 - u) * jnp.tanh(zn + r * hn) + u * h
            return h, h

        start = jnp.zeros((x.shape[0], d))
        _, out = lax.scan(step, start, inputs.swapaxes(0, 1), reverse=backwards)
        return out.swapaxes(0, 1)

    return {"x": new(d, 3 * d), "h": new(d, 3 * d)}, apply, d


def convolution(new: Init, d: int, width: int, taps: int, act: str, separate: bool) -> Any:
    width = d if separate else width

    def apply(p: Any, x: Any, _: Any) -> Any:
        y = lax.conv_general_dilated(
            x, p["w"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=d if separate else 1,
        )  # fmt: skip
        return ACTIVATIONS[act](y + p["b"])

    weights = {"w": new(taps, 1 if separate else d, width) * 1.5, "b": new(width)}
    return weights, apply, width


def pooling(_: Init, d: int, kind: str, window: int, stride: int) -> Any:
    def apply(_: Any, x: Any, __: Any) -> Any:
        sizes, strides = (1, window, 1), (1, stride, 1)
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, "SAME")
        return lax.reduce_window(x, 0.0, lax.add, sizes, strides, "SAME") / window

    return (), apply, d


def squeeze(new: Init, d: int) -> Any:
    """Gates from the means over all positions."""

    def apply(p: Any, x: Any, _: Any) -> Any:
        return x * jax.nn.sigmoid(jax.nn.relu(x.mean(1) @ p["a"]) @ p["b"])[:, None]

    return {"a": new(d, d), "b": new(d, d)}, apply, d


def positions(new: Init, d: int) -> Any:
    def apply(p: Any, x: Any, _: Any) -> Any:
        return x + p[: x.shape[1]]

    return new(64, d), apply, d


def rotary(_: Init, d: int) -> Any:
    def apply(_: Any, x: Any, __: Any) -> Any:
        half = d // 2
        angle = jnp.arange(x.shape[1])[:, None] * (0.5 ** jnp.arange(half))
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine, rest], -1)

    return (), apply, d


def mixer(new: Init, d: int) -> Any:
    """A running mean over the positions, times a learnt vector."""

    def apply(p: Any, x: Any, _: Any) -> Any:
        count = jnp.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return jnp.cumsum(x, 1) / count * p

    return new(d), apply, d


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "gelu": jax.nn.gelu,
    "gelu erf": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
    "softmax": jax.nn.softmax,
    "log softmax": jax.nn.log_softmax,
    "softmax of positions": lambda x: jax.nn.softmax(x, 1),
    "leaky": jax.nn.leaky_relu,
    "squared relu": lambda x: jax.nn.relu(x) ** 2,
}

_ACTS = tuple(ACTIVATIONS)
_SIZES = (4, 6, 8, 12, 16)

LAYERS: dict[str, tuple[Callable[..., Any], tuple[tuple[Any, ...], ...]]] = {
    "layer norm": (layer_norm, ((True, False),)),
    "batch norm": (layer_norm, ((True, False), ((0, 1), (0,), (1,)))),
    "fast variance": (fast_variance, ()),
    "rms norm": (rms_norm, ((1e-2, 1e-3),)),
    "unit norm": (unit_norm, ()),
    "group norm": (group_norm, ((1, 2, 4),)),
    "dense": (dense, (_SIZES, (True, False), _ACTS)),
    "tied": (tied, ()),
    "weight norm": (weight_norm, ()),
    "gated": (gated, (("silu", "gelu", "relu", "none"),)),
    "glu": (glu, ()),
    "attention": (attention, ((2, 4), (1, 2), (True, False), (True, False), (True, False))),
    "dropout": (dropout, ((0.1, 0.5), (True, False, False))),
    "activation": (activation, (_ACTS,)),
    "lstm": (lstm, (_SIZES,)),
    "gru": (gru, ((True, False),)),
    "convolution": (convolution, (_SIZES, (1, 3, 4), ("none", "relu", "gelu"), (True, False))),
    "pooling": (pooling, (("max", "mean"), (2, 3), (1, 2))),
    "squeeze": (squeeze, ()),
    "positions": (positions, ()),
    "rotary": (rotary, ()),
    "mixer": (mixer, ()),
}  # fmt: skip
"""By name: how to make it, and what each option may be."""

FREQUENT = ("layer norm", "dense", "dense", "attention", "dropout", "fast variance", "gated")

# ---------------------------------------------------------------- layers in flax


def _flax_layers() -> dict[str, tuple[Callable[..., Any], tuple[tuple[Any, ...], ...]]]:
    import flax.linen as nn

    class Transposed(nn.Module):
        """Recurrent layers of flax take their inputs as we have them."""

        cell: Any

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.RNN(self.cell)(x)

    acts = {"relu": nn.relu, "gelu": nn.gelu, "silu": nn.silu, "softmax": nn.softmax,
            "tanh": nn.tanh, "log softmax": nn.log_softmax}  # fmt: skip

    def attend(d: int, heads: int, causal: bool, drop: float) -> Any:
        class Attention(nn.Module):
            @nn.compact
            def __call__(self, x: Any) -> Any:
                mask = nn.make_causal_mask(x[..., 0]) if causal else None
                layer = nn.MultiHeadDotProductAttention(
                    heads, qkv_features=heads * max(d // heads, 2), dropout_rate=drop,
                    deterministic=False,
                )  # fmt: skip
                return layer(x, mask=mask)

        return Attention(), d

    return {
        "LayerNorm": (
            lambda d, bias, fast: (nn.LayerNorm(use_bias=bias, use_fast_variance=fast), d),
            ((True, False), (True, False)),
        ),
        "RMSNorm": (lambda d: (nn.RMSNorm(), d), ()),
        "GroupNorm": (lambda d, n: (nn.GroupNorm(n if d % n == 0 else 1), d), ((1, 2, 4),)),
        "BatchNorm": (lambda d: (nn.BatchNorm(use_running_average=False), d), ()),
        "InstanceNorm": (lambda d: (nn.InstanceNorm(), d), ()),
        "Dense": (lambda d, n, bias: (nn.Dense(n, use_bias=bias), n), (_SIZES, (True, False))),
        "DenseGeneral": (lambda d, n: (nn.DenseGeneral(n), n), (_SIZES,)),
        "WeightNorm": (lambda d, n: (nn.WeightNorm(nn.Dense(n)), n), (_SIZES,)),
        "Dropout": (lambda d, r: (nn.Dropout(r, deterministic=False), d), ((0.1, 0.5),)),
        "attention": (attend, ((1, 2, 4), (True, False), (0.0, 0.2))),
        "activation": (lambda d, a: (acts[a], d), (tuple(acts),)),
        "Conv": (lambda d, n, k: (nn.Conv(n, (k,)), n), (_SIZES, (1, 3, 4))),
        "ConvCausal": (lambda d, n: (nn.Conv(n, (3,), padding="CAUSAL"), n), (_SIZES,)),
        "avg_pool": (lambda d: (lambda x: nn.avg_pool(x, (2,), (1,), "SAME"), d), ()),
        "max_pool": (lambda d: (lambda x: nn.max_pool(x, (2,), (2,), "SAME"), d), ()),
        "LSTM": (lambda d, n: (Transposed(nn.OptimizedLSTMCell(n)), n), (_SIZES,)),
        "GRU": (lambda d, n: (Transposed(nn.GRUCell(n)), n), (_SIZES,)),
    }  # fmt: skip


FLAX_FREQUENT = ("LayerNorm", "Dense", "Dense", "Dropout", "attention", "activation")

# ---------------------------------------------------------------- programs


def cross_entropy(logits: Any, labels: Any) -> Any:
    found = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -found.mean()


def masked_entropy(logits: Any, labels: Any) -> Any:
    keep = labels > 2
    found = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    each = jax.nn.logsumexp(logits, -1) - found
    return jnp.where(keep, each, 0.0).sum() / jnp.maximum(keep.sum(), 1)


def one_hot_entropy(logits: Any, labels: Any) -> Any:
    target = jax.nn.one_hot(labels, logits.shape[-1]) * 0.9 + 0.1 / logits.shape[-1]
    return -(target * jax.nn.log_softmax(logits)).sum(-1).mean()


def squares(logits: Any, labels: Any) -> Any:
    return ((logits - labels[..., None] * 0.1) ** 2).mean()


def binary(logits: Any, labels: Any) -> Any:
    value = logits.mean((1, 2))
    return jnp.mean(jax.nn.softplus(value) - value * (labels[:, 0] > 4))


LOSSES = {f.__name__: f for f in (cross_entropy, masked_entropy, one_hot_entropy, squares, binary)}


def sgd(p: Any, g: Any) -> Any:
    return jax.tree.map(lambda w, d: w - 0.01 * (d + 0.1 * w), p, g)


def clipped(p: Any, g: Any) -> Any:
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    factor = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    return jax.tree.map(lambda w, d: w - 0.01 * d * factor, p, g)


def adam(p: Any, g: Any) -> Any:
    """The first step, with weight decay; smooth at gradients of 0."""

    def update(w: Any, d: Any) -> Any:
        m, v = 0.1 * d, 0.001 * d * d
        return w - 0.01 * ((m / 0.1) / jnp.sqrt(v / 0.001 + 1e-2) + 0.1 * w)

    return jax.tree.map(update, p, g)


UPDATES = {f.__name__: f for f in (sgd, clipped, adam)}

Program = Callable[..., Any]


def program_of(spec: Spec) -> tuple[Any, Program]:
    """(weights, function of (weights, inputs, labels, key))."""
    rng = np.random.default_rng(7)

    def new(*sizes: int) -> np.ndarray:
        scale = sizes[-2] ** -0.5 if len(sizes) > 1 else 0.1
        return (rng.standard_normal(sizes) * scale).astype(np.float32)

    weights: dict[str, Any] = {"words": new(WORDS, spec.width)} if spec.embeds else {}
    layers: list[tuple[str, Any, bool]] = []
    width = spec.width
    flax = spec.flavour == "flax"
    table = _flax_layers() if flax else LAYERS
    for number, (name, residual, *options) in enumerate(spec.layers):
        make, _ = table[name]
        before, at = width, f"{number} {name}"
        if flax:
            module, width = make(width, *options)
            apply = _applied(module, weights, at, before)
        else:
            weights[at], apply, width = make(new, width, *options)
        layers.append((at, apply, residual and width == before))
    weights["head"] = new(width, WORDS)

    def forward(p: Any, x: Any, key: Any) -> Any:
        if spec.embeds:
            x = p["words"][x]
        for number, (at, apply, residual) in enumerate(layers):
            y = apply(p.get(at, ()), x, jax.random.fold_in(key, number))
            x = x + y if residual and "pool" not in at else y
        return x @ p["head"]

    def loss(p: Any, x: Any, labels: Any, key: Any) -> Any:
        logits = forward(p, x, key)
        return LOSSES[spec.loss](logits, labels[:, : logits.shape[1]])

    def program(p: Any, x: Any, labels: Any, key: Any) -> Any:
        if spec.mode == "forward":
            return forward(p, x, key), loss(p, x, labels, key)
        value, gradient = jax.value_and_grad(loss)(p, x, labels, key)
        return value, (gradient if spec.mode == "gradient" else UPDATES[spec.mode](p, gradient))

    return weights, program


def _applied(module: Any, weights: dict[str, Any], at: str, width: int) -> Callable[..., Any]:
    """A flax module, or a function, as a layer; its weights go to `weights`."""
    if not hasattr(module, "init"):
        return lambda _, x, __: module(x)
    first, second = jax.random.split(jax.random.key(3))
    made = module.init({"params": first, "dropout": second}, jnp.ones((2, 3, width)))
    weights[at] = jax.tree.map(np.asarray, made)

    def apply(p: Any, x: Any, key: Any) -> Any:
        found, _ = module.apply(p, x, rngs={"dropout": key}, mutable=["batch_stats"])
        return found

    return apply


def arguments(spec: Spec, weights: Any, b: int, t: int) -> tuple[Any, ...]:
    rng = np.random.default_rng([b, t])
    x = (
        rng.integers(0, WORDS, (b, t), np.int32)
        if spec.embeds
        else rng.standard_normal((b, t, spec.width), np.float32)
    )
    return weights, x, rng.integers(0, WORDS, (b, t), np.int32), jax.random.key(b + t)


def spec_of(seed: int, flavour: str = "jax") -> Spec:
    """The program of a seed."""
    rng = np.random.default_rng([seed, flavour == "flax"])

    def one_of(choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    table = _flax_layers() if flavour == "flax" else LAYERS
    frequent = FLAX_FREQUENT if flavour == "flax" else FREQUENT
    layers = []
    for _ in range(rng.integers(2, 8)):
        name = one_of(frequent) if rng.random() < 0.4 else one_of(tuple(table))
        layers.append((name, bool(rng.random() < 0.5), *map(one_of, table[name][1])))
    return Spec(
        tuple(layers),
        one_of(_SIZES),
        bool(rng.random() < 0.5),
        one_of(tuple(LOSSES)),
        one_of(("forward", "gradient", "gradient", "gradient", *UPDATES)),
        one_of(SHAPES),
        flavour,
    )


# ---------------------------------------------------------------- checking


def check(spec: Spec) -> tuple[str, ...]:
    """The program compiles as planned, and gives what `jax.jit` gives at all its shapes.

    Returns its false alarms (`tests/alarms.py`).
    """
    weights, program = program_of(spec)
    f, reference = shlo_disc.jit(program), jax.jit(program)
    for b, t in spec.shapes:
        args = arguments(spec, weights, b, t)
        got = jax.tree.leaves_with_path(f(*args))
        want = jax.tree.leaves(reference(*args))
        exact: list[Any] | None = None
        other: list[Any] = []
        # What is zero but for rounding, as the gradient of a bias in front of a norm, is measured
        # by the others.
        largest = max(_scale(x) for x in want)
        for number, ((path, ours), theirs) in enumerate(zip(got, want, strict=True)):
            where = f"result{jax.tree_util.keystr(path)} at {b} x {t}"
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), where
            if _near(ours, theirs, 2e-5):
                continue
            if spec.flavour == "flax" and not _has_double(spec):
                if not _near(ours, theirs, 1e-3, 1e-5 * largest):
                    other = other or _optimised(program, args)
                    spread = np.abs(np.asarray(other[number]) - np.asarray(theirs)).max()
                    assert _near(ours, theirs, 1e-3, 8 * float(spread)), where
                continue
            if exact is None:
                exact = _in_double(program, args)
            _judge(ours, theirs, exact[number], where, 1e-6 * largest)
    return pinned(f)


def _has_double(spec: Spec) -> bool:
    """True if a program of flax computes the same in float64.

    Dropout draws other numbers for another type, and recurrent cells begin with float32.
    """
    return not any(name in ("Dropout", "LSTM", "GRU") or (name == "attention" and last[-1] > 0)
                   for name, *last in spec.layers)  # fmt: skip


def _scale(x: Any) -> float:
    x = np.asarray(x, np.float64)
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def _near(a: Any, b: Any, tolerance: float, floor: float = 1e-9) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.allclose(a, b, rtol=0, atol=tolerance * _scale(b) + floor, equal_nan=True)


def _in_double(program: Program, args: tuple[Any, ...]) -> list[Any]:
    def wide(x: Any) -> Any:
        return x.astype(np.float64) if getattr(x, "dtype", None) == np.float32 else x

    with jax.enable_x64(True):
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(program)(*jax.tree.map(wide, args)))]


def _optimised(program: Program, args: tuple[Any, ...]) -> list[Any]:
    """Results of XLA that were rounded elsewhere: how far rounding alone may go.

    Tests run XLA without optimisation.
    """
    options = {"xla_backend_optimization_level": 3}
    compiled = jax.jit(program, compiler_options=options).lower(*args).compile()
    return jax.tree.leaves(compiled(*args))


def _judge(ours: Any, theirs: Any, exact: Any, where: str, floor: float) -> None:
    """Rounding grows through a deep program: ours may be off as far as XLA's is, and some."""
    exact = np.asarray(exact, np.float64)
    scale = _scale(exact)
    errors = [np.abs(np.asarray(x, np.float64) - exact).max(initial=0.0) for x in (ours, theirs)]
    assert np.isfinite(errors).all(), f"{where}: not finite: {errors}"
    limit = 8 * errors[1] + 1e-4 * scale + floor + 1e-9
    assert errors[0] <= limit, f"{where}: error {errors[0]:.3g}, XLA's {errors[1]:.3g}, {scale:.3g}"


def shrink(spec: Spec) -> tuple[Spec, BaseException]:
    """The smallest program like `spec` that fails in the same way, and its error."""
    error = _error(spec)
    assert error is not None
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(spec):
            found = _error(candidate)
            if found is not None and type(found) is type(error):
                spec, error, smaller = candidate, found, True
                break
    return spec, error


def _smaller(spec: Spec) -> Iterator[Spec]:
    for number in range(len(spec.layers)):
        yield replace(spec, layers=spec.layers[:number] + spec.layers[number + 1 :])
    for number, (name, residual, *options) in enumerate(spec.layers):
        if residual:
            layer = (name, False, *options)
            yield replace(spec, layers=(*spec.layers[:number], layer, *spec.layers[number + 1 :]))
    if spec.mode != "forward":
        yield replace(spec, mode="forward")
    if spec.mode not in ("forward", "gradient"):
        yield replace(spec, mode="gradient")
    if spec.embeds:
        yield replace(spec, embeds=False)
    if spec.loss != "squares":
        yield replace(spec, loss="squares")
    for shape in spec.shapes if len(spec.shapes) > 1 else ():
        yield replace(spec, shapes=(shape,))


def _error(spec: Spec) -> Exception | None:
    try:
        check(spec)
    except Exception as error:
        return error
    return None


def report(seed: int, spec: Spec, error: BaseException) -> str:
    """What is printed of a failing program."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return (
        f"seed {seed}: {text[:600]}\nfrom tests.models.random_modules import Spec, check\n"
        f"check({spec!r})\n"
    )


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:50")
    parser.add_argument("--flavour", default="jax", choices=("jax", "flax"))
    parser.add_argument("--keep", action="store_true", help="print failing programs as they are")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    failed, alarming, begin = 0, 0, time.perf_counter()
    for seed in range(first, last):
        spec = spec_of(seed, options.flavour)
        try:
            found = check(spec)
        except Exception as first_error:
            failed += 1
            error: BaseException = first_error
            if not options.keep:
                spec, error = shrink(spec)
            print(report(seed, spec, error), flush=True)
        else:
            if found:
                alarming += 1
                print(f"seed {seed}: false alarms: {'; '.join(found)}", flush=True)
        if (seed + 1) % 10 == 0:
            seconds = time.perf_counter() - begin
            print(
                f"{seed + 1 - first} programs, {failed} failed, {alarming} with false alarms, "
                f"{seconds:.0f} s",
                flush=True,
            )
        if (seed + 1) % 25 == 0:
            jax.clear_caches()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
