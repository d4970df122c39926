"""docs/torch-ops.md tells the truth: every op is right at several sizes, in three ways of running.

They are exported programs whose inputs require gradients, `torch.compile`, and `torch.compile`
with gradients. The slow tests run all; the others run each third op in one of these ways.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.export import export
from torch.fx.experimental import _config as fx_config
from torch.utils import _pytree as pytree

import shlo_disc
import shlo_disc.torch
from tests.torch import ops
from tests.torch.models import Of
from tests.torch.samples import OF_LIBRARIES, SAMPLES, SIZES

ROOT = Path(__file__).parents[2]
EVERY = {**SAMPLES, **OF_LIBRARIES}


def test_the_page_is_the_table():
    assert (ROOT / ops.PAGE).read_text() == ops.page()


def test_every_op_is_tried_or_has_a_reason():
    core = set(ops.core_ops())
    assert set(SAMPLES) <= core
    assert not core & set(OF_LIBRARIES)
    assert not set(EVERY) & set(ops.NOT_TRIED)
    assert (core | set(ops.listed())) - set(EVERY) - set(ops.NOT_TRIED) - ops.ELSEWHERE == set()


def exported(function, sets, dims):
    """The compiled form of `function`, exported with inputs that require gradients."""
    for given in (trained(sets[0]), sets[0]):
        try:
            program = export(Of(function), given, dynamic_shapes=dims and (dims,))
            break
        except RuntimeError as error:
            if not NO_GRADIENT.search(str(error)):
                raise
    return shlo_disc.torch.compile(program, on_unsupported="eager")


def trained(args):
    """New tensors, of which the floats require gradients."""
    return tuple(
        x.detach().clone().requires_grad_(x.is_floating_point() or x.is_complex()) for x in args
    )


def results_of(function, args, *, has_gradients=False):
    """The results, and the gradients of all arguments that have one."""
    torch.manual_seed(1)  # random ones draw the same numbers
    with torch.set_grad_enabled(has_gradients):
        results = pytree.tree_leaves(function(*args))
    tensors = [x for x in results if isinstance(x, torch.Tensor)]
    ends = [x for x in tensors if x.requires_grad] if has_gradients else []
    starts = [x for x in args if x.requires_grad] if ends else []
    weights = [torch.cos(1.7 * torch.arange(x.numel())).reshape(x.shape).to(x.dtype) for x in ends]
    gradients = torch.autograd.grad(ends, starts, weights, materialize_grads=True) if starts else ()
    return [x.detach() if isinstance(x, torch.Tensor) else x for x in (*results, *gradients)]


def assert_as_eager(run, function, args, **how):
    want = results_of(function, trained(args) if how else args, **how)
    got = results_of(run, trained(args) if how else args, **how)
    for mine, own in zip(got, want, strict=True):
        torch.testing.assert_close(mine, own, equal_nan=True, rtol=2e-5, atol=2e-5)


def check(name, way):
    function, make, dims = EVERY[name]
    torch.manual_seed(0)
    sets = [make(*sizes) for sizes in SIZES]
    if way == "exported":
        if name in OF_FIXED_SIZES:
            sets, dims = sets[:1], None
        if name in ops.NOT_EXPORTED:
            with pytest.raises(Exception) as raised:  # noqa: PT011 - PyTorch has many
                exported(function, sets, dims)
            assert ops.NOT_EXPORTED[name] in f"{type(raised.value).__name__}: {raised.value}"
            return
        run = exported(function, sets, dims)
        assert bool(run.eager_count) == (name in ops.EAGER), run.eager
        is_one = type(run.executable) is shlo_disc.Executable
        assert is_one != (name in OF_DATA)
        for args in sets:
            assert_as_eager(run, function, args)
        return
    breaks = torch._dynamo.utils.counters["graph_break"]  # PyTorch runs an op that is at one
    breaks.clear()
    run = torch.compile(function, backend="shlo_disc", dynamic=True)
    how = {"has_gradients": True} if way == "trained" else {}
    if how:
        try:
            results_of(function, trained(sets[0]), **how)
        except RuntimeError as error:
            if NO_GRADIENT.search(str(error)):
                pytest.skip("PyTorch has no gradient of it")
            raise
    with fx_config.patch(backed_size_oblivious=True):
        for args in sets:
            assert_as_eager(run, function, args, **how)
    graphs = shlo_disc.torch.compilations()
    eager = [op for graph in graphs for op in graph.eager]
    # Dynamo itself runs ops of data, and those that give Python numbers, by default.
    if name not in OF_DATA | NUMBERS and not (way == "trained" and name in GRADIENT_OF_NUMBERS):
        assert bool(eager or breaks or not graphs) == (name in ops.EAGER), eager


NO_GRADIENT = re.compile(
    "derivative for|not differentiable|support automatic differentiation|Autograd not"
)

GRADIENT_OF_NUMBERS = frozenset({"affine_grid_generator.default", "upsample_linear1d.default"})
"""Ops whose gradients PyTorch traces for numbers only."""

OF_FIXED_SIZES = frozenset({
    "indices.default", "values.default", "crow_indices.default", "col_indices.default",
    "chunk.default", "unsafe_chunk.default", "fft_rfftfreq.default",
    "max_pool1d.default",
    "hann_window.default", "istft.default", "linalg_cross.default", "linspace.default",
    "logspace.default", "split.Tensor", "take_along_dim.default", "tril_indices.default",
    "triu_indices.default", "unsafe_split.Tensor", "norm_except_dim.default",
    *(f"upsample_{kind}_backward.default"
      for kind in ("bicubic2d", "bilinear2d", "linear1d", "nearest2d", "trilinear3d")),
})  # fmt: skip
"""Ops that PyTorch exports for numbers only."""

OF_DATA = frozenset({
    "_unique2.default", "argwhere.default", "bincount.default", "masked_select.default",
    "nonzero.default", "nonzero_numpy.default", "repeat_interleave.Tensor",
    "repeat_interleave.self_Tensor", "unique_consecutive.default", "unique_dim.default",
    "where.default",
})  # fmt: skip
"""Ops with sizes that come from data."""

NUMBERS = frozenset({
    "_local_scalar_dense.default", "sym_is_contiguous.default", "sym_storage_offset.default",
})  # fmt: skip
"""Ops that give Python numbers."""

WAYS = ("exported", "compiled", "trained")
RUNS = [(name, way) for name in EVERY for way in WAYS]
SAMPLED = [run for k, run in enumerate(RUNS) if k % 3 == k // 3 % 3][::3]


@pytest.mark.parametrize(("name", "way"), SAMPLED)
def test_an_op_is_right_at_every_size(name, way):
    check(name, way)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), [run for run in RUNS if run not in set(SAMPLED)])
def test_every_op_is_right_at_every_size(name, way):
    check(name, way)
