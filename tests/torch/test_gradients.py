"""Gradients of layers for pictures: one forward and one backward compilation, equal to eager."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shlo_disc.torch
from tests.torch.models import Of

weight_norm = nn.utils.parametrizations.weight_norm
SETS = [(3, 8), (2, 11), (5, 13)]


def pictures(count, channels=4):
    return lambda b, n: (torch.randn(b, channels, *[n, n + 2, n + 1][:count]),)


def gradients(model, args):
    """The result, and the gradients of parameters and arguments."""
    model.zero_grad()
    args = [x.detach().clone().requires_grad_() for x in args]
    y = model(*args)
    weights = 1 + torch.cos(1.7 * torch.arange(y.numel())).reshape(y.shape).to(y.dtype)
    (y * weights).sum().backward()
    return [y.detach(), *(x.grad.clone() for x in (*model.parameters(), *args))]


def assert_as_eager(model, make, sets=SETS):
    """Relative to the largest element of each result."""
    fast = torch.compile(model, backend="shlo_disc", dynamic=True)
    exact = copy.deepcopy(model).double()
    for sizes in sets:
        args = make(*sizes)
        wanted = gradients(exact, [x.double() for x in args])
        for mine, own in zip(gradients(fast, args), wanted, strict=True):
            assert mine.shape == own.shape
            torch.testing.assert_close(
                mine.double(), own, rtol=0, atol=1e-5 * own.abs().max().item() + 1e-5
            )
    kinds = [graph.kind for graph in shlo_disc.torch.compilations()]
    assert kinds == ["forward", "backward"]


CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "strided": {"kernel_size": 4, "stride": 2, "padding": 1},
    "padded": {"kernel_size": 3, "stride": 3, "padding": 2, "output_padding": 2, "dilation": 2},
    "grouped": {"kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2, "bias": False},
    "widely dilated": {"kernel_size": 2, "dilation": 3, "output_padding": 2},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_transposed_convolutions(count, name):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[count - 1]
    assert_as_eager(kind(4, 6, **CONVOLUTIONS[name]), pictures(count), [(3, 5), (2, 8)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: weight_norm(nn.Conv1d(4, 6, 3)),
        lambda: weight_norm(nn.ConvTranspose1d(4, 6, 3, 2), dim=1),
        lambda: weight_norm(nn.Conv1d(4, 6, 1), dim=None),
    ],
)
def test_weight_norms(make):
    assert_as_eager(make(), pictures(1))


@pytest.mark.parametrize(
    ("mode", "pads"),
    [
        ("reflect", (1, 2)), ("replicate", (2, 1)), ("replicate", (2, -1, -1, 3)),
        *(pytest.param(m, (2, 1, 1, 3), marks=pytest.mark.slow) for m in ("reflect", "circular")),
    ],
)  # fmt: skip
def test_paddings(pads, mode):
    assert_as_eager(Of(lambda x: F.pad(x, pads, mode)), pictures(len(pads) // 2))


def test_a_replicated_single_pixel():
    x = torch.randn(2, 3, 1, 1)
    model = Of(lambda x: F.pad(x, (2, 1, 0, 3), "replicate"))
    fast = torch.compile(model, backend="shlo_disc", dynamic=True)
    for mine, own in zip(gradients(fast, [x]), gradients(model, [x]), strict=True):
        torch.testing.assert_close(mine, own)


POOLS = {
    "mean": lambda x, f, **more: f(x, 3, 2, 1, **more),
    "mean without pads": lambda x, f, **more: f(x, 3, 2, 1, count_include_pad=False, **more),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_average_pools(count, ceil, name):
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[count - 1]
    assert_as_eager(Of(lambda x: POOLS[name](x, function, ceil_mode=ceil)), pictures(count))


@pytest.mark.parametrize("ceil", [False, True])
def test_largest_of_volumes(ceil):
    assert_as_eager(Of(lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=ceil)), pictures(3))


GRIDS = [(2, "nearest", "border", True), (3, "nearest", "zeros", True)]
_SLOW = [
    (2, "bilinear", "zeros", False), (3, "bilinear", "reflection", False),
    (2, "bicubic", "reflection", True), (2, "bicubic", "zeros", False),
    (2, "bilinear", "reflection", True), (2, "bilinear", "border", True),
    (3, "bilinear", "border", True), (3, "bilinear", "zeros", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "mode", "padding", "align"),
    [*GRIDS, *(pytest.param(*one, marks=pytest.mark.slow) for one in _SLOW)],
)
def test_grids(count, mode, padding, align):
    def make(b, n):
        grid = torch.rand(b, *[4, n + 1, 3][:count], count) * 3 - 1.5
        return *pictures(count)(b, n), grid

    function = Of(lambda x, g: F.grid_sample(x, g, mode, padding, align))
    assert_as_eager(function, make, [(5, 6), (2, 9)])  # the first ones all differ


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_a_grid_at_the_edges(padding, align):
    """Where a derivative jumps, it is that of PyTorch: an identity's grid ends at -1 and 1."""
    model = Of(lambda x, g: F.grid_sample(x, g, "bilinear", padding, align))
    edges = torch.tensor([-3.0, -1.5, -1.0, 0.0, 1.0, 1.25, 3.0])
    grid = torch.stack(torch.meshgrid(edges, edges, indexing="ij"), -1).unsqueeze(0)
    args = [torch.randn(2, 3, 4, 5), grid.repeat(2, 1, 1, 1)]
    fast = torch.compile(model, backend="shlo_disc", dynamic=True)
    for mine, own in zip(gradients(fast, args), gradients(model, args), strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_with_antialiasing(mode):
    """PyTorch itself cannot trace the gradients where sizes are dynamic, only with fixed ones."""

    def function(x):
        first = F.interpolate(x, scale_factor=0.4, mode=mode, antialias=True)
        second = F.interpolate(x, size=(17, 3), mode=mode, antialias=True)
        last = F.interpolate(first, size=(7, 5), mode=mode, antialias=True, align_corners=True)
        return first, second, last

    fast = torch.compile(function, backend="shlo_disc", dynamic=True)
    for sizes in SETS:
        (x,) = pictures(2)(*sizes)
        torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-5)
    assert len(shlo_disc.torch.compilations()) == 1
    fixed = torch.compile(Of(lambda x: function(x)[2]), backend="shlo_disc", dynamic=False)
    for mine, own in zip(*(gradients(f, [x]) for f in (fixed, Of(lambda x: function(x)[2])))):  # noqa: B905
        torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-5)


class UNet(nn.Module):
    """Down twice, up twice, with skips and all three kinds of padding."""

    def __init__(self, width=6):
        super().__init__()

        def block(a, b, mode):
            conv = nn.Conv2d(a, b, 3, padding=1, padding_mode=mode)
            return nn.Sequential(conv, nn.BatchNorm2d(b), nn.LeakyReLU(0.2))

        self.down = nn.ModuleList([block(3, width, "reflect"), block(width, width, "replicate")])
        self.middle = block(width, width, "circular")
        self.up = nn.ModuleList([nn.ConvTranspose2d(width, width, 4, 2, 1) for _ in range(2)])
        self.join = nn.ModuleList([block(2 * width, width, "zeros") for _ in range(2)])
        self.last = weight_norm(nn.Conv2d(width, 2, 1))

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            x = join(torch.cat([up(x), skip], 1))
        return torch.einsum("bchw,ck->bkhw", self.last(x), torch.eye(2))


class Generator(nn.Module):
    """Of DCGAN: noise becomes pictures."""

    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(5, 2 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(2 * width),
            nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1, groups=2), nn.Tanh(),
            nn.Conv2d(width, 1, 4, 2, 1), nn.AdaptiveAvgPool2d(2),
        )  # fmt: skip

    def forward(self, z):
        return self.layers(z)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "channels", "step"), [(UNet, 3, 4), (Generator, 5, 1)])
def test_training_at_random_sizes(make, channels, step):
    """The loss of 12 steps at random batches and pictures is that of eager mode."""
    models = [make()]
    models.append(copy.deepcopy(models[0]))
    runs = [torch.compile(models[0], backend="shlo_disc", dynamic=True), models[1]]
    steps = [torch.optim.AdamW(model.parameters(), 1e-2) for model in models]
    sizes = torch.randint(2, 8, (12, 3)).tolist()
    for b, h, w in [(7, 4, 6), *sizes]:
        x = torch.randn(b, channels, h * step, w * step)
        losses = []
        for run, optimizer in zip(runs, steps, strict=True):
            optimizer.zero_grad()
            loss = (run(x) - 0.3).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    kinds = [graph.kind for graph in shlo_disc.torch.compilations()]
    assert kinds == ["forward", "backward"]
