"""The suites of benchmarks for PyTorch run, compare what they time, and store their rows."""

import os

import pytest
import torch

pytest.importorskip("transformers", reason="make test-torch-models")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jax
import numpy as np
from torch import nn

from benchmarks import (
    bert,
    harness,
    store,
    torch_bert_jax,
    torch_first_call,
    torch_needs,
    torch_overhead,
    torch_training,
)
from benchmarks.__main__ import SUITES
from benchmarks.targets import FOR_ALL
from benchmarks.torch_training import Trained


@pytest.fixture(autouse=True)
def stored_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "measure_peaks", lambda: harness.Peaks(100.0, 10.0))
    torch._dynamo.reset()


@pytest.fixture
def run(capsys):
    """A suite's stored rows, and what it printed."""

    def run(name):
        SUITES[name](harness.report(), True)
        stored = store.latest(name)
        assert stored["versions"]["torch"] == torch.__version__
        return stored["rows"], capsys.readouterr().out

    return run


def test_a_suite_without_its_modules_tells_how_to_get_them(capsys):
    assert not torch_needs.has_modules(harness.report(), "some", "torch", "none_such")
    assert "some needs none_such: run `make bench-torch`" in capsys.readouterr().out


@pytest.mark.slow
def test_overhead_is_measured_for_every_system(run, monkeypatch):
    monkeypatch.setattr(torch_overhead, "CASES", {"one": torch_overhead.CASES["one tensor"]})
    ((row,), text) = run("torch_overhead")
    assert set(row["spread"]) == {"export", "backend", "eager", "Inductor"}
    assert all(0 < row[f"{system}_us"] < 1e6 for system in row["spread"])
    assert ("12 met" in text) == (row["export_us"] <= 12)


def test_an_absolute_target_is_judged():
    assert torch_overhead._verdict(11.9, 12.0) == "12 met"
    assert "missed" in torch_overhead._verdict(12.1, 12.0)


@pytest.mark.slow
def test_first_calls_are_in_processes_of_their_own(run):
    ((row,), text) = run("torch_first_call")
    for seconds in row["seconds"].values():
        assert 0 < seconds["compiler"] < seconds["whole"] < 600
        assert seconds["PyTorch"] == pytest.approx(seconds["whole"] - seconds["compiler"], abs=0.05)
    assert "perceptron" in text


def test_a_first_call_that_fails_is_no_row():
    with pytest.raises(RuntimeError, match=r"(?s)no such model, export:.*KeyError"):
        torch_first_call._in_a_process("no such model", "export")


def small(wrong=False):
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x, y):
            loss = nn.functional.cross_entropy(self.layer(x), y)
            return loss * (1 + wrong * torch.compiler.is_compiling())

    return Trained(
        Loss, lambda b: (torch.randn(b, 8), torch.randint(0, 3, (b,))), ((4,), (5,)), (7,)
    )


@pytest.mark.slow
def test_a_training_step_is_timed_with_its_optimizer_apart(run, monkeypatch):
    monkeypatch.setattr(torch_training, "MODELS", {"small": small()})
    ((row,), _) = run("torch_training")
    assert row["case"] == "small 4"
    assert set(row["ratios"]) == {"torch", "torch.compile", "AdamW"}
    assert row["target_dynamic"] == FOR_ALL["torch_training"][1] == 1.1


@pytest.mark.slow
def test_losses_that_differ_are_not_timed():
    with pytest.raises(AssertionError, match="ours: "):
        torch_training._systems(small(wrong=True))


@pytest.mark.slow
def test_bert_of_transformers_is_the_example_in_jax(monkeypatch):
    monkeypatch.setattr(bert.model, "LAYERS", 2)
    model = torch_bert_jax.torch_bert(layers=2)
    ids, mask = bert.model.batch(3, 11)
    params = torch_bert_jax.jax_weights(model)
    with torch.no_grad():
        want = model(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
    got = np.asarray(jax.jit(bert.model.bert)(params, ids, mask))
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
    assert torch_bert_jax.attention_kernels(torch_bert_jax.compiled(model)) == 2
