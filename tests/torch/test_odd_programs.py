"""Programs as users write them, that once gave wrong results, ended the process or were refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of
from tests.torch.test_backend import (
    assert_trains_as_eager,
    compiled,
    kinds,
)

# -- equal operations whose results meet in one operation -----------------------------------------


def bounded(x, low, high):
    """The two `repeat` are equal but for their operand, and `clamp` takes both results."""
    count = x.shape[0]
    return torch.clamp(x.sum(1), low.repeat(count), high.repeat(count))


def test_results_of_equal_operations_are_told_apart():
    with torch.no_grad():
        x, low, high = torch.randn(7, 5), torch.tensor([-0.5]), torch.tensor([0.25])
        torch.testing.assert_close(compiled(bounded)(x, low, high), bounded(x, low, high))
    program = export(Of(bounded), (x, low, high), dynamic_shapes=(({0: Dim("n")}, None, None),))
    got = shlo_disc.torch.compile(program)(x[:3], low, high)
    torch.testing.assert_close(got, bounded(x[:3], low, high))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_instance_norm_trains(affine, tracked):
    model = nn.InstanceNorm2d(8, affine=affine, track_running_stats=tracked)
    if affine:
        with torch.no_grad():
            model.weight.copy_(torch.arange(8.0) + 1)
            model.bias.copy_(torch.arange(8.0) * 3)
    model = nn.Sequential(nn.Conv2d(8, 8, 1), model)
    batches = [(torch.randn(b, 8, h, w),) for b, h, w in ((3, 5, 7), (2, 6, 9))]
    assert_trains_as_eager(model, batches)
    assert kinds() == ["forward", "backward"]


# -- attention, all of whose sizes are dynamic ----------------------------------------------------


def heads(b, h, s, t, d, groups=1):
    return torch.randn(b, groups * h, s, d), torch.randn(b, h, t, d), torch.randn(b, h, t, d)


ATTENTION = {
    "plain": (F.scaled_dot_product_attention, 1),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), 1),
    "grouped": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), 2),
    "one batch": (
        lambda q, k, v: F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in (q, k, v))), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTENTION)
def test_a_function_of_queries_keys_and_values(name):
    function, groups = ATTENTION[name]
    fast = compiled(function)
    for sizes in ((3, 4, 5, 7, 10), (2, 6, 11, 9, 16)):
        results = []
        given = heads(*sizes, groups=groups)
        for run in (fast, function):
            own = [x.clone().requires_grad_() for x in given]
            y = run(*own)
            (y * torch.arange(y.numel()).reshape(y.shape).cos()).sum().backward()
            results.append([y, *(x.grad for x in own)])
        for mine, want in zip(*results, strict=True):
            torch.testing.assert_close(mine, want, rtol=1e-4, atol=1e-4)
    assert kinds() == ["forward", "backward"]


# -- sizes in floats ------------------------------------------------------------------------------

OF_SIZES = {
    "a guard on a float": lambda x: x.masked_fill(x > 0, x.shape[0] / 2),
    "another guard": lambda x: torch.add(x, x, alpha=x.shape[0] / 2),
    "floor": lambda x: x.sum() + x.new_ones(math.floor(x.shape[0] / 2)).sum(),
    "ceiling": lambda x: x.sum() + x.new_ones(math.ceil(x.shape[0] / 4)).cumsum(0),
    "ceiling of a product": lambda x: x.sum() + x.new_ones(math.ceil(x.shape[0] * 1.5)).cumsum(0),
    "a third": lambda x: x[: int(x.shape[0] / 3)] * 2,
    "padded": lambda x: F.pad(x, (0, math.ceil(x.shape[-1] / 4) * 4 - x.shape[-1])),
    "a root": lambda x: x.softmax(-1) * (2 / x.shape[1] ** 0.5) + math.sqrt(x.shape[0]),
    "a range of halves": lambda x: torch.arange(0.5, x.shape[0] + 2, 1.5) * x.sum(),
    "a falling range": lambda x: torch.arange(x.shape[0], -1.5, -0.25, dtype=torch.float64),
    "a whole step": lambda x: torch.arange(0, x.shape[0] + 1, 2.0, dtype=torch.int64),
    "tenths": lambda x: torch.arange(0, 1, 0.1) * x.sum(),
    "a remainder": lambda x: x * (x.shape[0] % 5) + (-x.shape[1]) % 4,
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes_in_floats(name):
    function = OF_SIZES[name]
    with torch.no_grad():
        fast = compiled(function)
        for sizes in ((6, 10), (7, 13), (8, 16), (12, 9)):
            x = torch.randn(sizes)
            torch.testing.assert_close(fast(x), function(x))
    assert kinds() == ["inference"]


PARTS = {
    "a third": lambda x: x[: x.shape[0] // 3] * 2,
    "from a half": lambda x: x[:, x.shape[1] // 2 :].sin(),
    "padded": lambda x: F.pad(x, (x.shape[0], x.shape[1] - 3, 1, 0), value=2.0).square(),
    "cropped": lambda x: F.pad(x, (-(x.shape[1] // 4), 1)).square(),
}


@pytest.mark.parametrize("name", PARTS)
def test_gradients_of_parts_whose_ends_are_sizes(name):
    model = nn.Sequential(nn.Linear(12, 12), Of(lambda x: PARTS[name](x.flatten(1))))
    assert_trains_as_eager(model, [(torch.randn(b, s, 12),) for b, s in ((6, 7), (9, 5))])
    assert kinds() == ["forward", "backward"]


# -- no element, for every size -------------------------------------------------------------------


def places(i):
    return i[..., None].expand(-1, -1, 8)


EMPTY = {
    "embedding": lambda i, x, z: F.embedding(i, z.new_ones(6, 8)).relu(),
    "scatter": lambda i, x, z: z.scatter_add(1, places(i), x),
    "gather": lambda i, x, z: z.gather(1, places(i)),
    "index_add": lambda i, x, z: z.new_zeros(6, 8).index_add(0, i.flatten(), x.flatten(0, 1)),
    "one_hot": lambda i, x, z: F.one_hot(i, 6),
    "attention": lambda i, x, z: F.scaled_dot_product_attention(x, z, z, scale=0.5),
    "normed": lambda i, x, z: F.layer_norm(x, (8,)).sum(1).max(-1),
    "sorted": lambda i, x, z: (x.sort(1), x.topk(1, 1), x.cumsum(1)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_batch_of_none_that_dynamo_compiles_apart(name):
    function = EMPTY[name]
    with torch.no_grad():
        fast = compiled(function)
        for s in (5, 7):
            args = torch.zeros(0, s, dtype=torch.int64), torch.randn(0, s, 8), torch.randn(0, 6, 8)
            got, want = (torch.utils._pytree.tree_leaves(run(*args)) for run in (fast, function))
            for mine, own in zip(got, want, strict=True):
                torch.testing.assert_close(mine, own, check_stride=False)
    assert kinds() == ["inference"]


# -- layers that PyTorch runs as one operation in inference ---------------------------------------


def layers(**options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()


def lengths(b, s):
    """True behind the end of each sequence."""
    return torch.arange(s) >= torch.arange(1, b + 1).clamp(max=s)[:, None]


def later(s):
    """True for a key behind the query."""
    return torch.ones(s, s, dtype=torch.bool).triu(1)


ENCODERS = {
    "plain": (layers, lambda m, x: m(x)),
    "norms first": (lambda: layers(norm_first=True, activation="gelu"), lambda m, x: m(x)),
    "lengths": (layers, lambda m, x: m(x, src_key_padding_mask=lengths(*x.shape[:2]))),
    "masks": (lambda: nn.MultiheadAttention(16, 2, batch_first=True).eval(),
              lambda m, x: m(x, x, x, need_weights=False, attn_mask=later(x.shape[1]))[0]
              + m(x, x, x, lengths(*x.shape[:2]), need_weights=False,
                  attn_mask=later(x.shape[1]))[0]),
    "attention": (lambda: nn.MultiheadAttention(16, 2, batch_first=True).eval(),
                  lambda m, x: m(x, x, x, need_weights=False)),
    "weights": (lambda: nn.MultiheadAttention(16, 2, batch_first=True).eval(),
                lambda m, x: (*m(x, x, x, key_padding_mask=lengths(*x.shape[:2])),
                              m(x, x, x, average_attn_weights=False)[1])),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_layers_of_encoders_in_inference(name):
    make, call = ENCODERS[name]
    model = make()
    function = lambda x: call(model, x)  # noqa: E731
    with torch.no_grad():
        fast = compiled(function)
        for b, s in ((3, 5), (2, 7)):
            x = torch.randn(b, s, 16)
            torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-5)
    assert kinds() == ["inference"]
    (graph,) = shlo_disc.torch.compilations()
    if name in ("plain", "norms first", "attention"):
        assert "attention" in graph.explain()


def test_a_query_whose_keys_are_all_masked_is_not_a_number():
    model = layers()
    mask = torch.tensor([[True] * 5, [False, False, True, True, True]])
    with torch.no_grad():
        x = torch.randn(2, 5, 16)
        fast = compiled(lambda x, mask: model(x, src_key_padding_mask=mask))
        with pytest.raises((RuntimeError, shlo_disc.ShapeMismatchError), match=r"16|32"):
            fast(torch.randn(2, 5, 32), mask)
        got, want = fast(x, mask), model(x, src_key_padding_mask=mask)
    assert want[0].isnan().all()
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-4, atol=1e-5)
