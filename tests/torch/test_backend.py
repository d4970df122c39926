"""`torch.compile(backend="shlo_disc")`: inference and training, one compilation for all sizes."""

from __future__ import annotations

import copy
import gc
import logging
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc.torch
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.torch import partition, regions
from shlo_disc.torch.dynamo import CompiledGraph
from shlo_disc.torch.linalg_rewrites import OF_LIBRARIES
from shlo_disc.torch.options import Options
from tests.torch.models import Block, Of, Perceptron, Pictures, Words


def compiled(model, **options):
    """As a user compiles it, but what is not covered is an error unless a test says otherwise."""
    options = {"on_unsupported": "error", **options}
    return torch.compile(model, backend="shlo_disc", dynamic=True, options=options)


def kinds():
    return [graph.kind for graph in shlo_disc.torch.compilations()]


def tensors(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def weighted_sum(x):
    """With other weights than the squares of a norm, whose gradient is 0."""
    return (x * torch.cos(1.7 * torch.arange(x.numel()).reshape(x.shape))).sum()


def assert_trains_as_eager(model, batches, *, tolerance=2e-5, **options):
    """Results, gradients and buffers are PyTorch's; gradients relative to the largest one."""
    fast = compiled(model, **options)
    for batch in batches:
        slow = copy.deepcopy(model)
        losses = []
        for run in (fast, slow):
            torch.manual_seed(1)
            results = tensors(run(*batch))
            losses.append(sum(map(weighted_sum, results)))
            losses[-1].backward()
        torch.testing.assert_close(losses[0], losses[1], rtol=tolerance, atol=1e-4)
        pairs = list(zip(model.parameters(), slow.parameters(), strict=True))
        largest = max(own.grad.abs().max().item() for _, own in pairs if own.grad is not None)
        for mine, own in pairs:
            assert (mine.grad is None) == (own.grad is None)
            if own.grad is not None:
                torch.testing.assert_close(mine.grad, own.grad, rtol=0, atol=tolerance * largest)
        for mine, own in zip(model.buffers(), slow.buffers(), strict=True):
            torch.testing.assert_close(mine, own, rtol=tolerance, atol=1e-6)
        model.zero_grad()


def normal(*shapes):
    return [(torch.randn(shape),) for shape in shapes]


def slices(x):
    x = torch.slice_scatter(x, x[:, 1:] * 2, 1, 1)
    return x[:, :], x[:, 1:], x[:, :-1], x[:, -2:], x[:, ::2], x[..., 2:5], x[:, 1]


TRAINED = {
    "perceptron": (Perceptron, normal((3, 8), (5, 8), (17, 8))),
    "block": (Block, normal((3, 5, 32), (2, 7, 32), (4, 17, 32))),
    "causal": (lambda: Block(causal=True), normal((3, 5, 32), (2, 7, 32), (4, 17, 32))),
    "words": (Words, [(torch.randint(0, 50, s),) for s in ((3, 5), (2, 9))]),
    "pictures": (Pictures, normal((4, 3, 16, 17), (5, 3, 24, 13))),
    "slices": (lambda: nn.Sequential(nn.Linear(8, 8), Of(slices)),
               normal((3, 5, 8), (2, 7, 8), (4, 17, 8))),
    "average": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(2, padding=1)),
                normal((4, 3, 16, 17), (5, 3, 24, 13))),
}  # fmt: skip
for _name, _options in {
    "strided": {"stride": 2, "padding": 1}, "dilated": {"stride": 3, "padding": 2, "dilation": 2},
    "grouped": {"groups": 2, "stride": 2}, "depthwise": {"groups": 4, "padding": "same"},
}.items():  # fmt: skip
    TRAINED[_name] = (
        lambda options=_options: nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 8, 3, **options)),
        normal((3, 4, 16, 17), (5, 4, 24, 13)),
    )


@pytest.mark.parametrize("name", TRAINED)
def test_training_compiles_one_forward_and_one_backward(name):
    make, batches = TRAINED[name]
    assert_trains_as_eager(make(), batches)
    assert kinds() == ["forward", "backward"]


def test_inference_compiles_once_and_has_no_gradients():
    model = Block()
    fast = compiled(model)
    with torch.no_grad():
        for shape in ((3, 5), (2, 7), (4, 17)):
            x = torch.randn(*shape, 32)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
            assert not fast(x).requires_grad
    (graph,) = shlo_disc.torch.compilations()
    assert graph.kind == "inference"
    assert "attention" in graph.explain()
    assert "tests/torch/models.py:" in graph.explain()
    assert [a.name for a in graph.parts[0].executable.signature.arguments][:2] == [
        "x",
        "norms.0.weight",
    ]
    assert "x_0" in str(graph)
    assert "x_1" in str(graph)


def test_inference_mode_and_autocast():
    model = Perceptron()
    x = torch.randn(5, 8)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(model)(x), model(x))
    torch._dynamo.reset()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, want = compiled(model)(x), model(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_sizes_of_one_and_zero_need_no_compilation_where_dynamo_does_not_ask():
    model = Perceptron()
    with torch.fx.experimental._config.patch(backed_size_oblivious=True), torch.no_grad():
        fast = compiled(model)
        for size in (1, 5, 2, 0):
            x = torch.randn(size, 8)
            torch.testing.assert_close(fast(x), model(x))
    assert kinds() == ["inference"]


def test_a_loop_over_no_rows_is_refused_where_dynamo_takes_sizes_to_be_two_or_more():
    """Its guard `n == 0` is false for such a size, so that any number of rows would be none."""

    def function(x):
        return [row + 1 for row in x]

    with torch.fx.experimental._config.patch(backed_size_oblivious=True):
        fast = compiled(function)
        for size in (0, 3):
            with pytest.raises(ShapeMismatchError, match="backed_size_oblivious"):
                fast(torch.ones(size, 8))


def test_numbers_and_sizes_that_are_results():
    def function(x, factor):
        return x * factor, x.shape[0] * x.shape[1], (x.sum(), None)

    fast = compiled(function)
    for shape, factor in (((3, 4), 2.5), ((5, 7), 0.5)):
        x = torch.ones(shape)
        got = fast(x, factor)
        torch.testing.assert_close(got[0], x * factor)
        assert got[1] == x.shape[0] * x.shape[1]
        assert got[2][0] == x.sum()
        assert got[2][1] is None


def test_a_size_that_no_tensor_has():
    def function(x, count):
        return torch.zeros(count, x.shape[0]) + x

    fast = compiled(function)
    for count in (3, 7, 12):
        x = torch.randn(5)
        assert torch.equal(fast(x, count), function(x, count))


# -- what is not covered ------------------------------------------------------------------------


class Sampled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(torch.tanh(hidden) * torch.bernoulli(torch.sigmoid(hidden.detach())))


def test_a_random_operation_on_data_is_refused_on_request():
    with pytest.raises(Exception, match=r"test_backend\.py:\d+: aten\.\w+.*is random"):
        compiled(Sampled())(torch.randn(3, 8))


EAGER = {"on_unsupported": "eager"}


def test_pytorch_runs_what_is_not_covered_and_random_numbers_are_its_own(caplog):
    regions._TOLD.clear()
    with caplog.at_level(logging.WARNING, "shlo_disc"):
        assert_trains_as_eager(Sampled(), normal((3, 8), (5, 8)), **EAGER)
    forward, backward = shlo_disc.torch.compilations()
    assert [op.split()[0] for op in forward.eager] == ["aten.bernoulli.default"]
    assert backward.eager == {}
    assert (len(forward.parts), forward.eager_count) == (2, 1)
    assert "PyTorch runs 1 operations of each call" in forward.explain()
    assert "PyTorch runs aten.bernoulli.default at" in forward.explain()
    assert [r.message.split(" at ")[0] for r in caplog.records] == [
        f"{forward.name}: PyTorch runs aten.bernoulli.default"
    ]


@torch.library.custom_op("shlo_disc_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    """An op of a user, which no compiler knows."""
    return x / 2


halved.register_fake(torch.empty_like)


def test_pytorch_runs_what_is_not_covered_by_default():
    def function(x):
        attended = F.scaled_dot_product_attention(x[None], x[None], x[None])[0]
        return halved(x * 2) + torch.multinomial(x[0].abs() + 1, 3).sum() * 0 + attended

    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    with torch.no_grad():
        for rows in (4, 6):
            x = torch.rand(rows, 3)
            torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-4)
    (graph,) = shlo_disc.torch.compilations()
    assert sorted(op.split()[0] for op in graph.eager) == [
        "aten.multinomial.default", "shlo_disc_tests.halved.default",
    ]  # fmt: skip
    assert graph.parts


def test_a_graph_of_nothing_is_no_program():
    graph = torch.fx.Graph()
    graph.output(())
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    compiled_graph = CompiledGraph(module, "inference", [], Options.of({}, None))
    assert compiled_graph([]) == []
    assert not compiled_graph.parts


def test_draws_are_in_the_order_of_eager_mode():
    def drawn(x):
        chosen = torch.multinomial(x.sigmoid(), 2)  # needs more than the next one does
        return chosen, torch.nn.functional.dropout(x, 0.5)

    fast = compiled(drawn, **EAGER)
    x = torch.rand(7, 5)
    with torch.no_grad():
        torch.manual_seed(3)
        want = drawn(x)
        torch.manual_seed(3)
        for mine, own in zip(fast(x), want, strict=True):
            assert torch.equal(mine, own)


def test_ops_of_libraries_that_are_known_are_compiled_in_exports(monkeypatch):
    model = Of(lambda x: halved(x) + 1)
    program = export(model, (torch.rand(3, 2),), dynamic_shapes=(({0: Dim("rows")},),))
    with pytest.raises(UnsupportedError, match=r"shlo_disc_tests\.halved"):
        shlo_disc.torch.compile(program)
    monkeypatch.setitem(OF_LIBRARIES, "shlo_disc_tests::halved", lambda x: x * 0.5)
    run = shlo_disc.torch.compile(program)
    for rows in (1, 5):
        x = torch.rand(rows, 2)
        torch.testing.assert_close(run(x), model(x))


class Choosy(regions.Part):
    """Compiles nothing with both a sine and a cosine."""

    def __init__(self, graph, *args, **kwargs):
        ops = {node.target for node in graph.graph.nodes}
        if {torch.ops.aten.sin.default, torch.ops.aten.cos.default} <= ops:
            raise KeyError("both")
        super().__init__(graph, *args, **kwargs)


def in_halves(function, monkeypatch):
    """The graph of `function`, right beside eager mode, of which `Choosy` makes the parts."""
    monkeypatch.setattr(regions, "Part", Choosy)
    fast = compiled(function, **EAGER)
    with torch.no_grad():
        for rows in (4, 6):
            x = torch.rand(rows, 3)
            torch.testing.assert_close(fast(x), function(x))
    (graph,) = shlo_disc.torch.compilations()
    return graph


def test_what_compiles_alone_but_not_together_is_in_regions_of_its_own(monkeypatch):
    def function(x):
        low, high = x.aminmax(dim=1)
        return ((x + 1).tanh() * high[:, None]).sin() * 2, x.cos() - low[:, None]

    graph = in_halves(function, monkeypatch)
    assert len(graph.parts) >= 2
    assert graph.eager == {}


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_regions_have_sizes_from_data(monkeypatch):
    def function(x):
        return x.sin()[x[:, 0] > 0.5] * 2, x.cos()

    graph = in_halves(function, monkeypatch)
    assert graph.eager == {}


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_size_from_data_between_two_halves_is_computed_by_pytorch(monkeypatch):
    """The first half has what the size is made of, and what is made of it."""

    def function(x):
        y = x.sin()
        count = int(y.argmax())
        z = y + torch.zeros(3) * count
        return z.exp() + torch.ones(3) * (count + 1), x.cos() * z

    graph = in_halves(function, monkeypatch)
    assert graph.parts


def test_pytorch_runs_a_graph_that_cannot_be_cut(monkeypatch):
    def refuse(*args):
        raise AssertionError("Invalid partition, found dependency cycles")

    monkeypatch.setattr(regions, "cut", refuse)
    fast = torch.compile(lambda x: halved(x * 2) + 1, backend="shlo_disc", dynamic=True)
    x = torch.rand(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), x + 1)
    (graph,) = shlo_disc.torch.compilations()
    assert (graph.parts, graph.eager_count) == ([], 3)
    assert "the graph cannot be cut: AssertionError: Invalid" in graph.explain()


def test_pytorch_runs_a_graph_that_it_cannot_trace(caplog):
    """Its functional form of `resize_` fails for sizes that are symbols."""

    def function(x):
        return torch.ops.aten.resize_(torch.empty(0), x.shape).copy_(x) + x.exp()

    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    for n in (4, 1, 7):
        x = torch.rand(n, 3, requires_grad=True)
        y = fast(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close((y, gradient), (x + x.exp(), 1 + x.exp()))
    graph = shlo_disc.torch.compilations()[0]
    assert (graph.kind, graph.parts, graph.eager_count) == ("untraced", [], 6)
    assert "PyTorch cannot trace the graph" in graph.explain()
    assert len([r for r in caplog.records if "resize_" in r.getMessage()]) == 1
    strict = torch.compile(
        function, backend="shlo_disc", dynamic=True, options={"on_unsupported": "error"}
    )
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        strict(torch.rand(4, 3))


def test_no_mistake_of_ours_ends_a_program(monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise AssertionError("a mistake")

    monkeypatch.setattr(regions, "Part", broken)
    monkeypatch.setattr(partition, "lower_graph", broken)
    x = torch.rand(4, 3)
    with caplog.at_level(logging.WARNING, "shlo_disc"), torch.no_grad():
        torch.testing.assert_close(compiled(torch.sin, **EAGER)(x), torch.sin(x))
    assert "PyTorch runs aten.sin.default" in caplog.text
    assert "AssertionError: a mistake" in caplog.text


@pytest.mark.parametrize("freeze", [False, True])
def test_weights_of_a_cut_graph_are_known(freeze):
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)

        def forward(self, x):
            return halved(self.first(x)).sum() + self.first(x).sum()

    model = Cut()
    with torch.no_grad():
        fast = compiled(model, on_unsupported="eager", freeze=freeze)
        x = torch.randn(8, 8)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        (graph,) = shlo_disc.torch.compilations()
        assert [op.split()[0] for op in graph.eager] == ["shlo_disc_tests.halved.default"]
        assert {len(part._program._versioned) for part in graph.parts} == {0 if freeze else 1}


# -- options and memory -------------------------------------------------------------------------


def test_frozen_weights_of_two_models_are_their_own():
    models = [Perceptron(), Perceptron()]
    with torch.no_grad():
        x = torch.randn(3, 8)
        for model in models:
            fast = compiled(model, freeze=True)
            for _ in range(2):
                torch.testing.assert_close(fast(x), model(x))


def test_likely_sizes_by_the_names_of_arguments():
    with torch.no_grad():
        compiled(Perceptron(), likely={"x_0": [8]})(torch.randn(3, 8))
        (graph,) = shlo_disc.torch.compilations()
        assert "8" in graph.explain()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"likly": {}}, ValueError, "unknown options likly"),
        ({"freeze": 1}, TypeError, "freeze must be True or False"),
        ({"on_unsupported": "xla"}, ValueError, "on_unsupported must be 'eager' or 'error'"),
        ({"likely": {"x_0": "8"}}, TypeError, "whole number"),
    ],
)
def test_options_are_checked(options, error, says):
    with pytest.raises(Exception, match=says) as caught:
        compiled(Perceptron(), **options)(torch.randn(3, 8))
    assert error.__name__ in str(caught.value) or isinstance(caught.value, error)


def test_programs_go_with_their_function():
    model = Perceptron()
    with torch.no_grad():
        compiled(model)(torch.randn(3, 8))
    (graph,) = shlo_disc.torch.compilations()
    gone = weakref.ref(graph)
    del graph
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None


def test_the_backend_is_listed():
    assert "shlo_disc" in torch._dynamo.list_backends()


def test_training_with_an_optimizer_gives_the_losses_of_eager():
    model = Block(causal=True)
    own = copy.deepcopy(model)
    fast = compiled(model)
    runs = [(fast, torch.optim.AdamW(model.parameters(), 1e-3)),
            (own, torch.optim.AdamW(own.parameters(), 1e-3))]  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        b, s = (int(torch.randint(2, 9, (), generator=generator)) for _ in range(2))
        x = torch.randn(b, s, 32, generator=generator)
        losses = []
        for run, optimizer in runs:
            loss = F.mse_loss(run(x), x.roll(1, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert kinds() == ["forward", "backward"]


def test_a_function_of_two_views_and_an_input_it_writes():
    def function(x, y):
        x.add_(y)
        return x.t(), x[1:]

    fast = compiled(function)
    for count in (3, 6):
        x, y = torch.randn(count, 4), torch.randn(count, 4)
        mine = x.clone()
        got, want = fast(mine, y), function(x, y)
        assert torch.equal(mine, x)
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b)
