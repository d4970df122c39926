"""docs/torch-ops.md tells the truth: every op that it calls covered is right at several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch.export import export  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import shlo_disc  # noqa: E402
import shlo_disc.torch  # noqa: E402
from shlo_disc.torch import ops  # noqa: E402
from tests.torch.models import Of  # noqa: E402
from tests.torch.samples import SAMPLES, SIZES  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


def test_the_page_is_the_table():
    assert (ROOT / ops.PAGE).read_text() == ops.page()


def test_every_core_op_is_tried_or_has_a_reason():
    core = {name for name, _ in ops.core_ops()}
    assert set(ops.NOT_TRIED) | set(SAMPLES) <= core
    assert core - set(SAMPLES) - set(ops.NOT_TRIED) == set()
    assert not set(SAMPLES) & set(ops.NOT_TRIED)


def program(name):
    function, make, dims = SAMPLES[name]
    torch.manual_seed(0)
    return export(Of(function), make(*SIZES[0]), dynamic_shapes=(dims,))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_covered_op_is_right_at_every_size(name):
    function, make, _ = SAMPLES[name]
    exe = shlo_disc.torch.compile(program(name))
    is_one = type(exe.executable) is shlo_disc.Executable
    assert is_one != (name == "nonzero.default")  # the only one whose size comes from data
    for sizes in SIZES:
        args = make(*sizes)
        torch.manual_seed(1)
        got = pytree.tree_leaves(exe(*args))
        torch.manual_seed(1)  # random ones draw the same numbers
        want = pytree.tree_leaves(function(*args))
        for mine, own in zip(got, want, strict=True):
            torch.testing.assert_close(mine, own, equal_nan=True, rtol=2e-5, atol=2e-5)
