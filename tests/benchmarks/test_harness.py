"""The harness: times, verdicts, and targets that name cases there are."""

import csv

import jax
import numpy as np
import pytest

from benchmarks import bert, harness, micro, ops, report_all, store
from benchmarks.__main__ import SUITES
from benchmarks.harness import Case, compare, interleaved, judged, report
from benchmarks.models.suite import MODELS
from benchmarks.peers.client import Peers, available, flat
from benchmarks.targets import FOR_ALL, TARGETS, wanted


class Counting:
    """A system in another process."""

    def __init__(self):
        self.asked = []

    def sample(self, count, settle):
        self.asked.append((count, settle))
        return [2.0] * count


def test_systems_take_turns_and_remote_ones_time_themselves():
    order, remote = [], Counting()
    times = interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b"), "c": remote},
        seconds=0.0, least=3,
    )  # fmt: skip
    assert times["c"].median == 2.0
    assert times["c"].count == 3
    assert remote.asked == [(2, 0.0), *[(1, 0.0)] * 3]
    assert order[-1] == "b"
    assert "a" in order[-(order.count("b")) :]


def test_verdicts():
    assert judged(1.4, 1.3) == "1.3 met"
    assert "1.3 missed" in judged(1.2, 1.3)
    assert judged(None, 1.3) == "1.3 not measured"
    assert judged(1.2, None) == ""


def test_targets_name_cases():
    known = {("bert", f"{b} x {t}") for b, t in bert.STEADY}
    known |= {
        ("models", f"{name} {' x '.join(map(str, shape))}")
        for name, model in MODELS.items()
        for shape in model.SHAPES
    }
    for suite, case in TARGETS:
        if suite in ("bert", "models"):
            assert (suite, case) in known
        if suite == "micro":
            assert case.rsplit(" ", 3)[0] in micro.FUNCTIONS


def test_a_suite_prints_and_stores_its_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "measure_peaks", lambda: harness.Peaks(100.0, 10.0))
    x = jax.numpy.ones(4)
    case = Case("1 x 16", {"ours": lambda: x + 1, "jax.jit": lambda: x + 2}, read_bytes=1e3)
    for _ in range(2):
        compare(report(), "bert", "a title", [case], seconds=0.01)
    (path,) = tmp_path.glob("bert-*.json")  # of the latest run
    assert path.stem.endswith(store.machine_name(store.host()))
    stored = store.latest("bert")
    assert stored["rows"][0]["case"] == "1 x 16"
    assert stored["rows"][0]["target_xla"] == 2.0
    assert stored["rows"][0]["floor_ms"] == pytest.approx(1e-4)
    assert len(path.read_text().splitlines()) < 40
    with (tmp_path / "history.csv").open() as file:
        first, second = csv.DictReader(file)
    assert first["rows"] == second["rows"] == "1"
    assert float(second["xla_over_ours"]) == pytest.approx(
        stored["rows"][0]["ratios"]["jax.jit"], 0.01
    )
    report_all.targets(report(), ["bert"])
    text = capsys.readouterr().out
    assert "a title" in text
    assert "not measured" in text


def test_weights_are_named_by_path():
    names = flat({"layers": [{"w": np.ones(2)}, {"w": np.ones(3)}], "b": np.ones(1)})
    assert {name: array.shape for name, array in names.items()} == {
        "layers/0/w": (2,), "layers/1/w": (3,), "b": (1,),
    }  # fmt: skip


@pytest.mark.skipif(not available(), reason="needs `make peers`")
@pytest.mark.slow
def test_peers_compute_what_we_compute():
    with Peers() as peers:
        for name, function in micro.FUNCTIONS.items():
            inputs = micro._inputs(name, (8, 6))
            peers.load(name)
            systems, failed = peers.systems(inputs, np.asarray(function(*inputs)))
            assert "torch.compile" in systems, (name, failed)
            assert all(time > 0 for time in systems["torch.compile"].sample(3, 0.0))


def test_every_single_op_can_be_traced_at_its_shapes():
    for name, op in ops.OPS.items():
        for shape in op.shapes:
            if np.prod(shape, dtype=np.int64) > 1 << 17:  # large inputs take long to make
                continue
            x = op.inputs(np.random.default_rng(0), *shape)
            assert jax.tree.leaves(jax.eval_shape(op.function, *x)), name
            assert op.flops(*shape) >= 0


def test_all_cases_of_a_suite_may_have_one_target():
    assert wanted("ops", "any") == (1.0, None)
    assert wanted("gemm", "1 x 768 x 3072") == TARGETS["gemm", "1 x 768 x 3072"]
    assert wanted("gemm", "any") == (None, None)
    assert set(FOR_ALL) <= set(SUITES)
