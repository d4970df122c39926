"""Numbers made of sizes in floating point: the bits of Python's, as sizes and as floats."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch.export import Dim, export
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

import shlo_disc.torch
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.torch.decompositions import _guards
from shlo_disc.torch.size_nodes import SizeNodes
from shlo_disc.torch.size_numbers import take_numbers
from shlo_disc.torch.sizes import Numbers, Sizes, places_of
from tests.torch.models import Of
from tests.torch.test_backend import compiled, kinds
from tests.torch.test_sizes_of_views import assert_equal_to_eager

# -- the numbers of a call ------------------------------------------------------------------------

OF_A_SIZE = (
    lambda n: math.trunc(n * 0.7),
    lambda n: math.trunc(n * 2.3),
    lambda n: math.floor(n * 0.29),
    lambda n: math.ceil(n * 0.7),
    lambda n: round(n * 0.4),
    lambda n: math.trunc(n * 0.3 + 1.9),
    lambda n: math.trunc(n**0.5),
    lambda n: n * 0.7 * 0.1,
    lambda n: n / 3 + 0.1,
    lambda n: torch.sym_min(1.0, 16 / n),
    lambda n: torch._sym_sqrt(n) - n**-0.5,
    lambda n: 10000.0 * ((2 * n / 16) - 1.0) ** (8 / 6),
)
"""Integers are used as sizes, floats as numbers."""


def test_numbers_have_the_bits_of_python():
    def function(x):
        found = [f(x.shape[0]) for f in OF_A_SIZE]
        return [x.new_empty(n) if isinstance(n, int | torch.SymInt) else x * n for n in found]

    graph = make_fx(function, tracing_mode="symbolic")(torch.empty(20)).graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    sizes = Sizes(places_of(placeholders))
    nodes = SizeNodes(graph, placeholders, sizes.places, Numbers(()))
    made, numbers = take_numbers(graph, placeholders, sizes, nodes)
    assert len(made) == len(OF_A_SIZE)
    users = [next(iter(node.users)) for node in made]
    order = [next(k for k, n in enumerate(graph.nodes) if n is user) for user in users]
    functions = dict(zip(sorted(order), OF_A_SIZE, strict=True))
    stated = [functions[place] for place in order]
    for n in (9, 10, 17, *range(20, 100_001, 7)):
        assert numbers([torch.empty(n, device="meta")]) == [f(n) for f in stated]


# -- programs -------------------------------------------------------------------------------------

OF_SIZES = {
    "zeros": lambda x: x.new_zeros(int(x.shape[0] * 0.7)) + x.sum(),
    "two of one size": lambda x: x[: int(x.shape[0] * 0.7)] + torch.ones(int(x.shape[0] * 0.7)),
    "a range": lambda x: torch.arange(math.trunc(x.shape[0] * 0.3 + 1.9)) * x.sum(),
    "at most 1": lambda x: x * min(1.0, 16 / x.shape[0]) + max(0.5, x.shape[0] / 10),
    "rounded": lambda x: torch.full((round(x.shape[0] * 0.4) + 1,), x.shape[0] / 7),
    "rotary": lambda x: x.sum() * (
        (10000.0 * ((2 * x.shape[0] / 16) - 0.1) ** (8 / 6)) ** torch.arange(0, 4, 0.5)
    ),
    "results": lambda x: (x * 2, int(x.shape[0] * 0.7), x.shape[0] / 3, x.shape[0] ** 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_SIZES)
def test_programs_with_numbers_made_of_sizes(name):
    function = OF_SIZES[name]
    run = compiled(function)
    for n in (20, 17, 33):
        assert_equal_to_eager(run, function, torch.randn(n))


RESIZED = {
    "nearest": {"scale_factor": 0.7},
    "bilinear": {"scale_factor": 0.7, "mode": "bilinear"},
    "recomputed": {"scale_factor": 2.3, "mode": "bilinear", "recompute_scale_factor": True},
}


@pytest.mark.parametrize("name", RESIZED)
def test_gradients_of_images_resized_by_a_factor(name):
    def function(x):
        return F.interpolate(x, **RESIZED[name])

    run = compiled(function)
    for height, width in ((10, 20), (30, 31)):
        x = torch.randn(2, 3, height, width, requires_grad=True)
        mine, own = run(x), function(x)
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)
        weights = torch.arange(own.numel()).reshape(own.shape).cos()
        gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (mine, own)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert kinds() == ["forward", "backward"]


def test_gradients_of_a_range_of_floats():
    def function(x):
        return x[:, None] * torch.arange(1.0, x.shape[0] + 1), x.sum() * torch.arange(
            0.5, x.shape[0] + 1, 1.5
        )

    run = compiled(function)
    for n in (20, 9):
        x = torch.randn(n, requires_grad=True)
        gradients = [
            torch.autograd.grad(sum(y.square().sum() for y in f(x)), x)[0] for f in (run, function)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_an_exported_program_with_numbers_made_of_sizes():
    model = Of(lambda x: (F.interpolate(x, scale_factor=0.7), x * x.shape[2] ** -0.25))
    program = export(
        model, (torch.randn(2, 3, 20),), dynamic_shapes=(({2: Dim("length", min=4)},),)
    )
    run = shlo_disc.torch.compile(program)
    for length in (20, 5, 9):
        assert_equal_to_eager(run, model, torch.randn(2, 3, length))


# -- sums with sizes from data --------------------------------------------------------------------


def numbered(i):
    y = torch.cat([i[i > 1], i[i < 1], i])
    return y * torch.arange(len(y))


OF_DATA = {
    "one more": lambda i: torch.zeros(int(i.max()) + 1, 3).index_add(0, i, torch.ones(len(i), 3)),
    "and a size": lambda i: torch.zeros(int(i.max()) + i.shape[0] + 1),
    "two": lambda i: torch.arange(int(i.max()) + int(i.min()) + 3) * 2,
    "a length": numbered,
    "rounded": lambda i: torch.zeros(int(i.max().item() * 0.7) + round(i.min().item() * 0.3 + 1)),
}


@pytest.mark.parametrize("name", OF_DATA)
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_sums_with_sizes_from_data(name):
    function = OF_DATA[name]
    run = compiled(function)
    for given in ([0, 2, 1, 2], [4, 0], [1, 1, 3]):
        assert_equal_to_eager(run, function, torch.tensor(given))


def test_a_correction_that_is_a_number_of_the_caller():
    def variances(correction):
        return lambda x: torch.var_mean(x, 1, correction=correction)

    for correction in (0, 2):
        own = variances(correction)
        assert_equal_to_eager(compiled(own), own, torch.randn(3, 5 + correction))


def test_a_refused_decomposition_leaves_no_trace_in_the_environment():
    """PyTorch makes guards of what the environment knows."""
    environment, source = ShapeEnv(), ConstantSource("size")
    symbol = environment.create_symbol(5, source, DimDynamic.DYNAMIC)
    size = environment.create_symintnode(symbol, hint=5, source=source)
    text, bounds = str(size), dict(environment.var_to_range)
    with pytest.raises(UnsupportedError, match="for numbers only"), _guards(environment):
        assert (int(size), str(size)) == (5, "5")
    assert (str(size), environment.guards, environment.var_to_range) == (text, [], bounds)
