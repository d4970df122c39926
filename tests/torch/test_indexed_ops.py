"""Ops that read or write at computed places, in all their variants."""

import itertools

import pytest
import torch
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of

aten = torch.ops.aten
B, S = Dim("b"), Dim("s", min=5)
BS = {0: B, 1: S}


def assert_right(function, make, dims, sets):
    """`function` of `make(*sizes)` is PyTorch's at every set of sizes, by one compilation."""
    torch.manual_seed(0)
    exe = shlo_disc.torch.compile(export(Of(function), make(*sets[0]), dynamic_shapes=(dims,)))
    assert type(exe.executable) is shlo_disc.Executable  # no size comes from data
    for sizes in sets:
        args = make(*sizes)
        torch.testing.assert_close(exe(*args), function(*args), equal_nan=True)


def whole(dtype, *shape):
    return torch.randint(-6 if dtype.is_signed else 0, 7, shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8])
@pytest.mark.parametrize(
    ("reduce", "include_self"),
    list(itertools.product(["sum", "prod", "mean", "amax", "amin"], [True, False])),
)
def test_scatter_reduce(reduce, include_self, dtype):
    def function(x, index, src):
        return aten.scatter_reduce(x, 1, index, src, reduce, include_self=include_self)

    def make(b, s):  # `src` is larger than `index`
        index = torch.randint(0, 4, (b, 3))
        return whole(dtype, b, s), index, whole(dtype, b + 1, 5)

    dims = (BS, {0: B}, {0: Dim.AUTO})
    assert_right(function, make, dims, [(4, 6), (1, 5), (3, 7), (0, 8)])


def test_scatter_reduce_keeps_nan():
    x = torch.tensor([[1.0, torch.nan, 2.0, 3.0, 4.0]])
    index, src = torch.tensor([[0, 2, 3]]), torch.tensor([[torch.nan, 5.0, 1.0]])
    assert_right(
        lambda x, i, v: aten.scatter_reduce(x, 1, i, v, "amax"),
        lambda b: (x.repeat(b, 1), index.repeat(b, 1), src.repeat(b, 1)),
        ({0: B}, {0: B}, {0: B}),
        [(2,), (1,)],
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_distances(p):
    assert_right(
        lambda x, y: aten._cdist_forward(x, y, p, None),
        lambda b, s: (torch.randn(b, 1, s, 4), torch.randn(3, b + 1, 4)),
        ({0: B, 2: S}, {1: Dim.AUTO}),
        [(4, 6), (1, 5), (0, 7)],
    )
    assert_right(
        lambda x: aten._pdist_forward(x, p),
        lambda s: (torch.randn(5, s),),
        ({1: S},),
        [(6,), (5,), (9,)],
    )


@pytest.mark.parametrize(
    ("offset", "dims"), [(0, (0, 1)), (2, (0, 1)), (-3, (1, 2)), (1, (-1, 0)), (-2, (0, 2))]
)
def test_diagonals(offset, dims):
    assert_right(
        lambda x: aten.diagonal(x, offset, *dims) * 2,
        lambda b, s: (torch.randn(b, s, 7),),
        ({0: Dim.AUTO, 1: Dim.AUTO},),
        [(14, 6), (5, 5), (11, 8)],
    )


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1)])
def test_masked_scatter_broadcasts_its_mask(shape):
    assert_right(
        aten.masked_scatter,
        lambda b, s: (torch.randn(3, b, s), torch.rand(shape) < 0.7, torch.randn(3 * b * s)),
        ({1: B, 2: S}, {}, {0: Dim.AUTO}),
        [(4, 6), (1, 5), (2, 9)],
    )


def test_masked_scatter_of_nothing():
    assert_right(
        aten.masked_scatter,
        lambda b, n: (torch.randn(b), torch.arange(b) < n, torch.randn(n)),
        ({0: B}, {0: B}, {0: Dim.AUTO}),
        [(7, 5), (6, 6), (4, 0)],
    )


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 3}, {"scale_factor": 1.5}, {"scale_factor": (0.75, 2)}, {"size": (7, 30)},
        {"scale_factor": 2.25, "recompute_scale_factor": True},
    ],
)  # fmt: skip
def test_nearest_pixels(options):
    assert_right(
        lambda x: torch.nn.functional.interpolate(x, mode="nearest", **options),
        lambda b, s: (torch.randn(b, 3, s, 9),),
        ({0: B, 2: S},),
        [(4, 6), (1, 5), (2, 23)],
    )


def test_nearest_pixels_of_a_size_of_another_tensor():
    assert_right(
        lambda x, y: torch.nn.functional.interpolate(x, size=y.shape[2:], mode="nearest"),
        lambda b, s: (torch.randn(b, 3, s, 9), torch.randn(b, 3, 2 * s, s + 3)),
        ({0: B, 2: S}, {0: B, 2: Dim.AUTO, 3: Dim.AUTO}),
        [(4, 6), (1, 5), (2, 23)],
    )


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sum", "padding_idx": 2}, {"mode": "mean", "include_last_offset": True},
        {"mode": "mean", "padding_idx": 0}, {"mode": "sum", "weights": True},
    ],
)  # fmt: skip
def test_bags_of_rows(options):
    options = dict(options)
    has_weights = options.pop("weights", False)

    def function(weight, indices, offsets, factors):
        return torch.nn.functional.embedding_bag(
            indices, weight, offsets, per_sample_weights=factors if has_weights else None, **options
        )

    def make(bags, rows):  # the second bag is empty, the last one may be
        offsets = torch.arange(bags).clamp(max=rows) * 2
        offsets[2:] -= 2
        if "include_last_offset" in options:
            offsets[-1] = 2 * rows
        return torch.randn(9, 4), torch.randint(0, 9, (2 * rows,)), offsets, torch.rand(2 * rows)

    dims = ({}, {0: Dim.AUTO}, {0: Dim.AUTO}, {0: Dim.AUTO})
    assert_right(function, make, dims, [(4, 6), (3, 5), (5, 8)])


@pytest.mark.parametrize("part", [slice(None, -100), slice(4, 2), slice(-100, 3), slice(100, None)])
def test_slices_beyond_the_ends(part):
    assert_right(
        lambda x: x[:, part] * 2,
        lambda b: (torch.randn(b, 12),),
        ({0: B},),
        [(4,), (1,)],
    )


ENDS = {
    "[:-1]": lambda x, y: x[:, :-1],
    "[:n]": lambda x, y: x[:, : y.shape[0]],
    "[n:]": lambda x, y: x[:, y.shape[0] :],
    "[1:n + 1]": lambda x, y: x[:, 1 : y.shape[0] + 1],
    "[:-n]": lambda x, y: x[:, : -y.shape[0]],
    "[-n:]": lambda x, y: x[:, -y.shape[0] :],
    "[:n:2]": lambda x, y: x[:, : y.shape[0] : 2],
}


@pytest.mark.parametrize("is_oblivious", [False, True])
@pytest.mark.parametrize("name", ENDS)
def test_slices_that_end_at_a_size(name, is_oblivious):
    """Where PyTorch's own program takes the sizes; an end of 0 is no end at the last element."""
    with torch.fx.experimental._config.patch(backed_size_oblivious=is_oblivious):
        program = export(
            Of(ENDS[name]),
            (torch.randn(3, 12), torch.randn(5)),
            dynamic_shapes=(({1: Dim.AUTO}, {0: Dim.AUTO}),),
        )
    exe, theirs = shlo_disc.torch.compile(program), program.module()
    tried = 0
    for size, count in ((12, 5), (5, 3), (5, 0), (5, 5), (1, 1), (1, 2), (2, 1)):
        args = torch.randn(3, size), torch.randn(count)
        try:
            want = theirs(*args)
        except AssertionError:  # a guard of PyTorch's
            continue
        tried += 1
        torch.testing.assert_close(exe(*args), want)
    assert tried >= 2


STRIDED = {
    "window": (lambda x: (x * 2).flatten().as_strided([x.shape[0], 3], [1, 1]), True),
    "offset": (lambda x: (x * 2).as_strided([x.shape[0], 4], [x.shape[1], 1], 1), True),
    "transposed": (lambda x: (x.t() * 2).as_strided(x.shape, [x.shape[1], 1]), True),
    "part": (lambda x: x[1:].as_strided([2, 2], [1, 2], 3), True),
    "rest": (lambda x: x.flatten()[2:].as_strided([2, 2], [1, 2]), True),
    "beyond": (lambda x: x[:1].as_strided(x.shape, [x.shape[1], 1]), True),
    "gaps": (lambda x: (x * 2)[:, ::2].as_strided([2, 2], [1, 2]), True),
    "nested": (lambda x: x.as_strided([3], [2], 4).as_strided([2, 2], [1, 3], 1), True),
    "windows": (lambda x: x.flatten().unfold(0, 3, 2).as_strided([2, 2], [2, 1]), True),
    "expanded": (lambda x: (x * 2)[:, :1].expand(x.shape).as_strided([2, 2], [1, 2]), True),
    "split": (lambda x: torch.split(x, [1, x.shape[0] - 1])[0].as_strided([2, 3], [3, 1]), True),
    "converted": (lambda x: x[1:].double().as_strided([2, 3], [3, 1]), True),
    "moved": (lambda x: x[1:].as_strided([2, 2], [1, 2]), False),
    "outside": (lambda x: x.as_strided([x.shape[0], x.shape[1]], [x.shape[1], 1], 1), False),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_of_dense_memory_are_places_and_others_are_refused(name):
    function, is_covered = STRIDED[name]
    dims = (({0: Dim("b", min=3), 1: Dim("s", min=6)},),)
    program = export(Of(function), (torch.randn(4, 8),), dynamic_shapes=dims)
    if not is_covered:
        with pytest.raises(shlo_disc.UnsupportedError, match=r"as_strided\.default"):
            shlo_disc.torch.compile(program)
        return
    exe = shlo_disc.torch.compile(program)
    for sizes in ((4, 8), (3, 7), (5, 13), (11, 6)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(exe(x), function(x))
