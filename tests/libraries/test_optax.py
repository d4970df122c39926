"""Optimizers, schedules, wrappers and losses of optax, each in a training step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.libraries.harness import REASON, check

optax = pytest.importorskip("optax", reason=REASON)
pytest.importorskip("optax.contrib", reason=REASON)

RNG = np.random.default_rng(0)
PARAMS = {
    "dense": {"w": RNG.standard_normal((8, 6), "f") * 0.3, "b": RNG.standard_normal(6, "f") * 0.1},
    "out": {"w": RNG.standard_normal((6, 3), "f") * 0.3, "b": RNG.standard_normal(3, "f") * 0.1},
}


def model(params, x):
    x = jax.nn.tanh(x @ params["dense"]["w"] + params["dense"]["b"])
    return x @ params["out"]["w"] + params["out"]["b"]


def loss_of(params, x, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(params, x), labels).mean()


def batch(b, rng):
    return rng.standard_normal((b, 8), "f"), rng.integers(0, 3, (b,), "i4")


def decayed(params):
    """As in the documentation of `optax.adamw`: no decay of biases."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def labels_of(params):
    return {name: "slow" if name == "dense" else "fast" for name in params}


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10, 1e-4)

OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(1e-3),
    "adamw": lambda: optax.adamw(SCHEDULE, weight_decay=1e-2, mask=decayed),
    "adabelief": lambda: optax.adabelief(1e-3),
    "adafactor": lambda: optax.adafactor(1e-3, min_dim_size_to_factor=4),
    "adagrad": lambda: optax.adagrad(1e-2),
    "adamax": lambda: optax.adamax(1e-3),
    "amsgrad": lambda: optax.amsgrad(1e-3),
    "lamb": lambda: optax.lamb(1e-3),
    "lars": lambda: optax.lars(1e-2),
    "lion": lambda: optax.lion(1e-3),
    "nadam": lambda: optax.nadam(1e-3),
    "novograd": lambda: optax.novograd(1e-3),
    "radam": lambda: optax.radam(1e-3),
    "rmsprop": lambda: optax.rmsprop(1e-3, momentum=0.9, centered=True),
    "noisy_sgd": lambda: optax.noisy_sgd(1e-2),
    "clip": lambda: optax.chain(optax.clip(0.05), optax.sgd(0.1)),
    "clip_by_global_norm": lambda: optax.chain(
        optax.clip_by_global_norm(0.1), optax.adamw(optax.cosine_decay_schedule(1e-2, 100))
    ),
    "piecewise": lambda: optax.adam(
        optax.join_schedules(
            [optax.linear_schedule(0.0, 1e-2, 1), optax.exponential_decay(1e-2, 3, 0.5)], [1]
        )
    ),
    "inject": lambda: optax.inject_hyperparams(optax.adamw)(
        learning_rate=optax.polynomial_schedule(1e-2, 1e-4, 2, 10), weight_decay=1e-3
    ),
    "masked": lambda: optax.chain(
        optax.masked(optax.add_decayed_weights(1e-2), decayed), optax.sgd(0.1)
    ),
    "multi_transform": lambda: optax.multi_transform(
        {"slow": optax.sgd(1e-3), "fast": optax.adam(1e-2)}, labels_of
    ),
    "frozen": lambda: optax.multi_transform(
        {"slow": optax.set_to_zero(), "fast": optax.adam(1e-2)}, labels_of
    ),
    "MultiSteps": lambda: optax.MultiSteps(optax.adamw(1e-2), every_k_schedule=2),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(1e-2), 3),
    "ema": lambda: optax.chain(optax.sgd(0.1), optax.ema(0.9)),
    "lookahead": lambda: optax.chain(optax.sgd(0.1), optax.trace(0.9), optax.centralize()),
    "agc": lambda: optax.chain(optax.adaptive_grad_clip(0.01), optax.sgd(0.1)),
    "muon": lambda: optax.contrib.muon(1e-2),
    "schedule_free": lambda: optax.contrib.schedule_free_adamw(1e-2),
    "plateau": lambda: optax.chain(optax.adam(1e-2), optax.contrib.reduce_on_plateau()),
}
ORDINARY = ("MultiSteps",)


@pytest.mark.parametrize(
    "name",
    [n if n in ORDINARY else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMIZERS],
)
def test_optimizer(name):
    optimizer = OPTIMIZERS[name]()
    needs_value = name == "plateau"

    def step(params, state, x, labels):
        loss, grads = jax.value_and_grad(loss_of)(params, x, labels)
        extra = {"value": loss} if needs_value else {}
        updates, state = optimizer.update(grads, state, params, **extra)
        return loss, optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.asarray, PARAMS)
    state = optimizer.init(params)
    reference = jax.jit(step)
    for _ in range(2):  # a state in the middle of training
        _, params, state = reference(params, state, *batch(4, np.random.default_rng(9)))
    check(
        step,
        lambda b, t, rng: (params, state, *batch(b, rng)),
        tolerance=1e-3,
        count=2 if name in ORDINARY else 4,
    )


def sequences(b, t, rng):
    """logits, their padding, labels, their padding."""
    frames, words = t + 2, 3
    return (
        rng.standard_normal((b, frames, 5), "f"),
        (np.arange(frames) >= rng.integers(words + 1, frames + 1, (b, 1))).astype("f"),
        rng.integers(1, 5, (b, words), "i4"),
        (np.arange(words) >= rng.integers(1, words + 1, (b, 1))).astype("f"),
    )


def two(b, t, rng):
    return rng.standard_normal((b, t), "f"), rng.standard_normal((b, t), "f")


def signs(b, t, rng):
    x, y = two(b, t, rng)
    return x, np.sign(y)


def classes(b, t, rng):
    return rng.standard_normal((b, t, 5), "f"), rng.integers(0, 5, (b, t), "i4")


def distributions(b, t, rng):
    return rng.standard_normal((b, 5), "f"), jax.nn.softmax(rng.standard_normal((b, 5), "f"))


def binary(b, t, rng):
    return rng.standard_normal((b, t), "f"), rng.integers(0, 2, (b, t)).astype("f")


LOSSES = {
    "ctc_loss": (optax.ctc_loss, sequences),
    "softmax_cross_entropy_with_integer_labels": (
        optax.softmax_cross_entropy_with_integer_labels, classes,
    ),
    "softmax_cross_entropy": (optax.softmax_cross_entropy, distributions),
    "sigmoid_binary_cross_entropy": (optax.sigmoid_binary_cross_entropy, binary),
    "sigmoid_focal_loss": (optax.sigmoid_focal_loss, binary),
    "poly_loss": (optax.losses.poly_loss_cross_entropy, distributions),
    "hinge_loss": (optax.hinge_loss, signs),
    "l2_loss": (optax.l2_loss, two),
    "squared_error": (optax.squared_error, two),
    "huber_loss": (optax.huber_loss, two),
    "log_cosh": (optax.log_cosh, two),
    "cosine_distance": (lambda a, b: optax.cosine_distance(a, b, epsilon=1e-3), two),
    "kl_divergence": (
        lambda a, b: optax.kl_divergence(jax.nn.log_softmax(a), b), distributions,
    ),
    "kl_divergence_with_log_targets": (
        lambda a, b: optax.losses.kl_divergence_with_log_targets(
            jax.nn.log_softmax(a), jnp.log(b)
        ),
        distributions,
    ),
    "safe_softmax": (optax.safe_softmax_cross_entropy, distributions),
    "ntxent": (
        optax.ntxent,
        lambda b, t, rng: (batch(b + 3, rng)[0], rng.integers(0, 2, (b + 3,), "i4")),
    ),
    "triplet": (
        lambda a, b: optax.losses.triplet_margin_loss(a, b, a * b), two,
    ),
    "ranking": (optax.losses.ranking_softmax_loss, binary),
    "perceptron": (optax.losses.perceptron_loss, two),
    "dice": (optax.losses.dice_loss, binary),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [n if n == "huber_loss" else pytest.param(n, marks=pytest.mark.slow) for n in LOSSES],
)
def test_loss_and_its_gradient(name):
    loss, data = LOSSES[name]

    def step(x, *rest):
        return jax.value_and_grad(lambda x: loss(x, *rest).mean())(x), loss(x, *rest)

    check(step, data, tolerance=1e-3)


@pytest.mark.slow
def test_gradients_of_examples():
    """`optax.per_example_global_norm_clip` over a batch of gradients, as for private training."""

    def step(params, x, labels):
        one = jax.grad(lambda p, x, y: loss_of(p, x[None], y[None]))
        grads = jax.vmap(one, in_axes=(None, 0, 0))(params, x, labels)
        clipped, count = optax.per_example_global_norm_clip(jax.tree.leaves(grads), 0.1)
        return clipped, count

    check(step, lambda b, t, rng: (PARAMS, *batch(b, rng)))


@pytest.mark.slow
def test_line_search():
    """The example of L-BFGS: `optax.value_and_grad_from_state`."""
    optimizer = optax.lbfgs(memory_size=3)

    def step(params, state, x, y):
        def value(params):
            return ((x @ params - y) ** 2).mean()

        loss, grads = optax.value_and_grad_from_state(value)(params, state=state)
        updates, state = optimizer.update(
            grads, state, params, value=loss, grad=grads, value_fn=value
        )
        return optax.apply_updates(params, updates), loss

    params = jnp.ones(4)
    check(
        step,
        lambda b, t, rng: (
            params, optimizer.init(params), rng.standard_normal((b, 4), "f"),
            rng.standard_normal((b,), "f"),
        ),
        tolerance=1e-2,
    )  # fmt: skip
