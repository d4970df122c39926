"""The processes and the server of `benchmarks/deploy`, around artifacts of ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from benchmarks.deploy import _difference
from benchmarks.deploy.models import MODELS
from benchmarks.deploy.processes import Process, built, python_of_ours, write_inputs
from benchmarks.deploy.serving import Server, requests

pytest.importorskip("llvmlite")


def saved(function, path, *given):
    shlo_disc.jit(function).lower(*given).compile().save(path, ["x86-64-v3"])
    return path


def products(x):
    return jnp.tanh(x @ jnp.ones((5, 3), "f4"))


def test_processes_answer_as_the_function_does(tmp_path):
    given = [(np.ones((n, 5), np.float32) / n,) for n in (1, 4, 7)]
    inputs = tmp_path / "inputs"
    write_inputs(inputs, given)
    model = saved(products, tmp_path / "m.disc", *given[-1])
    wanted = [np.asarray(products(*one)).reshape(-1) for one in given]
    for command, environment in ((built("process", "disc", tmp_path), {}), python_of_ours()):
        with Process(command, model, inputs, environment) as process:
            assert process.start_ms > process.load_ms > 0
            for _ in range(2):
                results = [process.result(case, tmp_path) for case in range(len(given))]
                assert _difference(results, wanted) == ""
            assert len(process.sample(1, 4, 0.0)) == 4
            assert process.resident_mb() > 1
    assert "elements" in _difference(results[:1], wanted[1:])
    assert "off by" in _difference(results[:1], [wanted[0] + 1])


def test_a_process_that_fails_says_why(tmp_path):
    write_inputs(tmp_path / "inputs", [])
    (tmp_path / "m.disc").write_bytes(b"no artifact")
    with pytest.raises(RuntimeError, match=r"ended \(1\): process: .*no artifact"):
        Process(built("process", "disc", tmp_path), tmp_path / "m.disc", tmp_path / "inputs", {})


def test_the_server_answers_many_requests(tmp_path):
    def twice(ids, mask):
        return ((ids * 2 + mask)[..., None] * jnp.ones(3)).astype("f4")

    spec = jax.ShapeDtypeStruct((2, 8), "i4")
    model = saved(twice, tmp_path / "m.disc", spec, spec)
    given = list(requests(40))
    with Server(built("server", "disc", tmp_path), model) as server:
        times, seconds = server.latencies(given)
        assert times.shape == (40,)
        assert 0 < times.max() <= seconds * 1e3
        for request in given[:5]:
            ids = np.frombuffer(request.split(b"\r\n\r\n", 1)[1], np.int32)
            ids = ids[: len(ids) // 2]
            np.testing.assert_array_equal(server.result(request), np.repeat(ids * 2.0 + 1, 3))
        with pytest.raises(RuntimeError, match="400"):
            server.result(given[0].replace(b"batch=", b"batch=9"))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_last_sizes_are_no_constants(model):
    """Exporters take a size of one for a constant."""
    assert all(size > 1 for size in model.sizes[-1])
