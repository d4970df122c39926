"""Graphs on disk: an equal graph of a later process is found without being converted."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import shlo_disc.tensorflow
from shlo_disc.driver import graphs, kept
from shlo_disc.store.entries import current
from shlo_disc.tensorflow import program


@pytest.fixture(autouse=True)
def entries_at_once(monkeypatch, own_store):
    """Entries are there at once, in a store of the test's own."""
    for module in (graphs, kept):
        monkeypatch.setattr(module, "do_later", lambda job: job())


@pytest.fixture
def lowered(monkeypatch):
    """The graphs that were converted."""
    found = []
    own = program._lowered
    monkeypatch.setattr(program, "_lowered", lambda frozen: found.append(frozen) or own(frozen))
    return found


X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


def run(factor=2.0, weight=0.5, width=64):
    """Two products by weights of these values; checked."""
    w = tf.Variable(tf.fill([8, width], weight))

    def model(x):
        return tf.nn.relu(x @ w) * factor

    gc.collect()
    fast = shlo_disc.tensorflow.compile(model, [tf.TensorSpec([None, 8])])
    for rows in (3, 0, 1):
        np.testing.assert_allclose(fast(X[:rows]).numpy(), model(X[:rows]).numpy(), rtol=1e-5)
    return fast.executable


def test_an_equal_graph_is_not_converted(lowered):
    assert not run().was_loaded
    assert run().was_loaded
    assert run(weight=-3.0).was_loaded  # weights are arguments
    assert len(lowered) == 1


def test_another_graph_is_converted(lowered):
    run()
    run(factor=3.0)
    run(width=65)
    assert len(lowered) == 3


def test_a_damaged_entry_is_none(lowered):
    run()
    (path,) = (entry.path for entry in current().entries() if entry.kind == "graphs")
    path.write_bytes(path.read_bytes()[:-5])
    assert run().was_loaded  # by its module
    assert len(lowered) == 2
