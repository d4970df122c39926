"""`shlo_disc.tensorflow.compile`: what it takes, and how its result is called."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra `tensorflow`: make test-tensorflow")


import shlo_disc.tensorflow  # noqa: E402

pytestmark = pytest.mark.tensorflow


def weight(*shape, seed=0):
    return tf.Variable(np.random.default_rng(seed).standard_normal(shape, np.float32))


def array(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def same(got, want, rtol=1e-5, atol=1e-6):
    """Both structures have the same tensors."""
    tf.nest.assert_same_structure(got, want)
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        if b is None:
            assert a is None
            continue
        assert isinstance(a, tf.Tensor)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=atol)


def test_structures_and_keywords():
    w = weight(8, 64)

    @tf.function
    def model(x, *, scale, nothing=None):
        return {"a": tf.nn.relu(x["k"] @ w) * scale, "none": nothing, "pair": (x["k"], x["b"][0])}

    spec = {"k": tf.TensorSpec([None, 8]), "b": [tf.TensorSpec([], tf.int32)]}
    concrete = model.get_concrete_function(spec, scale=tf.TensorSpec([]))
    run = shlo_disc.tensorflow.compile(concrete)
    for rows in (3, 1, 0, 7):
        x = {"k": tf.constant(array(rows, 8)), "b": [tf.constant(rows)]}
        scale = tf.constant(2.5)
        same(run(x, scale=scale), model(x, scale=scale))
        same(run(x=x, scale=2.5), model(x, scale=scale))
