"""Architectures with random weights: exported, through the backend, and trained."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch.export import export  # noqa: E402

import shlo_disc.torch  # noqa: E402
from tests.torch.architectures import MODELS, REAL, SMALL, Result  # noqa: E402
from tests.torch.test_backend import assert_trains_as_eager  # noqa: E402
from tests.torch.test_exported import assert_as_accurate  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def seeded():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def assert_one_compilation_is_accurate(name, scale):
    """The kernels of the one executable for all sizes of the model."""
    given = MODELS[name]
    model = given.make(scale).eval()
    dims = (given.dims,) if isinstance(model, Result) else given.dims
    with torch.no_grad():
        first = given.arguments(scale, *given.sizes[0])
        run = shlo_disc.torch.compile(export(model, first, dynamic_shapes=dims))
        assert len(given.sizes) == 5
        for own in given.sizes:
            args = given.arguments(scale, *own)
            assert_as_accurate(model, args, run(*args))
    return [use.kind for use in run.executable.host.uses]


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_as_accurate_as_pytorch(name):
    kinds = assert_one_compilation_is_accurate(name, SMALL)
    assert kinds.count("attention") == MODELS[name].attention


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_of_real_width_is_as_accurate_as_pytorch(name):
    assert_one_compilation_is_accurate(name, REAL)


TRAINED = ["bert", "gpt2", "llama", "t5 encoder", "vit", "resnet"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_training_compiles_one_forward_and_one_backward(name):
    given = MODELS[name]
    before = {graph.number for graph in shlo_disc.torch.compilations()}
    batches = [given.arguments(SMALL, *own) for own in given.sizes[2:]]  # Dynamo compiles 1 apart
    assert_trains_as_eager(given.make(SMALL).train(), batches, tolerance=1e-4)
    made = [g for g in shlo_disc.torch.compilations() if g.number not in before]
    assert [graph.kind for graph in made] == ["forward", "backward"]
