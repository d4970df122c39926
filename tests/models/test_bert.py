"""The encoder of `examples/bert.py`, made small, at many (batch, length) pairs."""

import jax.numpy as jnp
import pytest

from tests.models.harness import assert_compiled, check, compiled, small_bert


@pytest.fixture(scope="module")
def model():
    return small_bert()


SHAPES = ((3, 16), (1, 16), (2, 1), (7, 7), (5, 37), (8, 128))


def test_encoder_at_every_batch_and_length(model):
    params = model.init(layers=2)
    check(model.bert, [(params, *model.batch(b, t)) for b, t in SHAPES])


def test_encoder_first_called_with_one_token(model):
    params = model.init(layers=1)
    check(model.bert, [(params, *model.batch(b, t)) for b, t in ((1, 1), (3, 131))])


def test_encoder_with_stated_shapes(model):
    params = model.init(layers=1)
    shapes = (None, "b, t", "b, t")
    cases = [(params, *model.batch(b, t)) for b, t in ((3, 16), (1, 97))]
    check(model.bert, cases, shapes=shapes)


def test_same_shapes_again_are_hits_and_an_empty_batch_gives_an_empty_result(model):
    params = model.init(layers=1)
    f = compiled(model.bert)
    ids, mask = model.batch(3, 16)
    for _ in range(3):
        assert f(params, ids, mask).shape == (3, 16, 48)
    assert_compiled(f, 1)
    empty = f(params, ids[:0], mask[:0])
    assert (empty.shape, empty.dtype) == ((0, 16, 48), jnp.float32)
