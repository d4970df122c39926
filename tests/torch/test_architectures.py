"""Architectures with random weights: exported, through the backend, and trained."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.export import export

import shlo_disc.torch
from tests.torch.architectures import (
    MODELS,
    REAL,
    SMALL,
    Result,
    gpt2_model,
    llama_model,
)
from tests.torch.test_backend import assert_trains_as_eager, compiled
from tests.torch.test_exported import assert_as_accurate


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
    first = given.arguments(scale, *given.sizes[0])
    run = shlo_disc.torch.compile(export(model, first, dynamic_shapes=dims))
    assert len(given.sizes) == 5
    with torch.no_grad():
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


BATCHES = {
    "bert": lambda draw: (draw(2, 9), draw(3, 24)),
    "gpt2": lambda draw: (draw(2, 9), draw(3, 24)),
    "timm resnet18": lambda draw: (draw(2, 9), draw(65, 96), draw(65, 96)),
}
"""What is trained, and how its sizes are drawn."""

FIRST = {2: (5, 19), 3: (5, 71, 83)}
"""Sizes of the first step: they differ from each other and from numbers of channels."""


def losses_of(name, steps):
    """Losses of (this backend, eager, eager in f64) at each step of AdamW.

    Batches have random sizes and lengths. There is one forward and one backward program.
    """
    given = MODELS[name]
    mine = given.make(SMALL).train()
    own, exact = copy.deepcopy(mine), copy.deepcopy(mine).double()
    models = {mine: compiled(mine), own: own, exact: exact}
    optimizers = {model: torch.optim.AdamW(model.parameters(), 1e-3) for model in models}
    before = {graph.number for graph in shlo_disc.torch.compilations()}
    generator = torch.Generator().manual_seed(3)
    sizes = FIRST[len(given.sizes[0])]
    losses = []
    for _ in range(steps):
        args = given.arguments(SMALL, *sizes)
        losses.append([])
        for model, run in models.items():
            rows = run(*(in_f64(args) if model is exact else args)).flatten(0, -2)
            labels = torch.arange(rows.shape[0]) % rows.shape[1]
            loss = F.cross_entropy(rows, labels)
            optimizers[model].zero_grad()
            loss.backward()
            optimizers[model].step()
            losses[-1].append(loss.item())
        sizes = BATCHES[name](lambda *ends: int(torch.randint(*ends, (), generator=generator)))
    made = [g for g in shlo_disc.torch.compilations() if g.number not in before]
    assert [graph.kind for graph in made] == ["forward", "backward"]
    assert not any(graph.eager for graph in made)
    return np.array(losses).T


def in_f64(args):
    return [x.double() if x.is_floating_point() else x for x in args]


@pytest.mark.parametrize("name", BATCHES)
def test_twenty_steps_give_the_losses_of_eager(name):
    mine, own, _ = losses_of(name, 20)
    np.testing.assert_allclose(mine, own, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", BATCHES)
def test_a_hundred_steps_stay_as_near_to_f64_as_eager(name):
    """AdamW divides small gradients by their size, so a rounding in 1e7 becomes 2 % of a loss."""
    mine, own, exact = losses_of(name, 100)
    drift = abs(own / exact - 1).max()
    assert abs(mine / exact - 1).max() <= 2 * drift + 1e-3


@pytest.mark.parametrize("make", [gpt2_model, llama_model])
def test_decoding_compiles_twice_for_a_growing_cache(make):
    """Once more at the second step: a guard of the first reads an attribute that is None then."""
    model = make(SMALL).eval()
    own = copy.deepcopy(model)

    def step(ids, cache):
        found = model(input_ids=ids, past_key_values=cache, use_cache=True)
        return found.logits, found.past_key_values

    before = {graph.number for graph in shlo_disc.torch.compilations()}
    with torch.no_grad():
        fast = compiled(step)
        ids = torch.randint(0, SMALL.words, (2, 7))
        mine, theirs = (own(input_ids=ids, use_cache=True).past_key_values for _ in range(2))
        ids = ids[:, -1:]
        for _ in range(12):
            got, mine = fast(ids, mine)
            want = own(input_ids=ids, past_key_values=theirs, use_cache=True).logits
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            ids = want[:, -1:].argmax(-1)
    assert mine.get_seq_length() == 19
    made = [graph for graph in shlo_disc.torch.compilations() if graph.number not in before]
    assert [graph.kind for graph in made] == ["inference", "inference"]
