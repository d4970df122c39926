"""examples/train_gpt.py: one compilation of the step, the losses of `jax.jit`."""

import numpy as np
import pytest
from click.testing import CliRunner

from tests.libraries.harness import REASON

pytest.importorskip("flax", reason=REASON)
pytest.importorskip("optax", reason=REASON)


@pytest.fixture(scope="module")
def example():
    from examples import train_gpt

    return train_gpt


def data_of(example, count):
    return list(example.batches(count, sizes=(2, 5), lengths=(3, 20)))


def model_of(example, rate):
    return example.GPT(layers=1, width=16, heads=2, longest=32, rate=rate)


@pytest.mark.slow
def test_losses_are_those_of_jax(example):
    data = data_of(example, 2)
    assert len({text.shape for text in data}) == 2
    ours = example.train("shlo_disc", data, model_of(example, 0.1), again=1)
    theirs = example.train("jax", data, model_of(example, 0.1))
    assert (ours.compilations, theirs.compilations) == (1, 2)
    assert (ours.compiled, theirs.compiled) == ([0], [0, 1])
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-4)
    assert theirs.losses[0] == pytest.approx(np.log(256), rel=0.2)
    assert example.table_of({"shlo_disc": ours, "jax": theirs}, 3).row_count == 2


@pytest.mark.slow
def test_padded_batches_have_the_same_losses(example):
    """Without dropout, which draws by the place in the padded batch."""
    data = data_of(example, 4)
    exact = example.train("jax", data, model_of(example, 0.0))
    padded = example.train("padded", data, model_of(example, 0.0))
    assert padded.compilations < exact.compilations
    np.testing.assert_allclose(padded.losses, exact.losses, rtol=1e-4)


@pytest.mark.slow
def test_command(example):
    small = ["--steps", "2", "--layers", "1", "--width", "16"]
    result = CliRunner().invoke(example.main, [*small, "--compare"])
    assert result.exit_code == 0, result.output
    assert "largest difference of a loss" in result.output
    wrong = CliRunner().invoke(example.main, ["--store"])
    assert "--store needs --compare" in wrong.output


def test_batches_are_real_text_and_deterministic(example):
    (text,), (again,) = example.batches(1, seed=3), example.batches(1, seed=3)
    np.testing.assert_array_equal(text, again)
    assert text[0].astype(np.uint8).tobytes() in example.corpus().tobytes()
    for batch in example.batches(20, multiple=16):
        assert 4 <= batch.shape[0] <= 16
        assert (batch.shape[1] - 1) in range(32, 129, 16)
    padded, weights = example.padded(text)
    size, length = text.shape[0], text.shape[1] - 1
    assert weights.sum() == size * length
    assert {n & (n - 1) for n in weights.shape} == {0}
    np.testing.assert_array_equal(padded[:size, : length + 1], text)
