"""Systems, inverses and determinants at dynamic batches and dynamic sizes of matrices."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")

from torch.export import Dim, export  # noqa: E402

import shlo_disc.torch  # noqa: E402
from tests.torch.models import Of  # noqa: E402

pytestmark = pytest.mark.torch
linalg = torch.linalg
B, N = Dim("b"), Dim("n")
SETS = [(3, 4), (1, 1), (2, 17), (5, 7)]


def functions(a, b):
    solved = linalg.solve(a, b), linalg.solve(a[0], b[0, :, 0]), linalg.inv(a)
    return *solved, linalg.det(a), *linalg.slogdet(a)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_systems_are_as_exact_as_those_of_lapack(dtype):
    """The error of f32 beside f64 is a few times that of PyTorch."""
    torch.manual_seed(0)

    def make(b, n):
        return torch.randn(b, n, n, dtype=dtype), torch.randn(b, n, 3, dtype=dtype)

    dims = ({0: B, 1: N, 2: N}, {0: B, 1: N})
    exe = shlo_disc.torch.compile(export(Of(functions), make(*SETS[0]), dynamic_shapes=(dims,)))
    for sizes in SETS:
        args = make(*sizes)
        exact = functions(*(x.double() for x in args))
        for mine, own, true in zip(exe(*args), functions(*args), exact, strict=True):
            assert mine.shape == own.shape
            assert mine.dtype == own.dtype
            if dtype is torch.float64:
                torch.testing.assert_close(mine, own, rtol=1e-9, atol=1e-9)
                continue
            off, least = ((x.double() - true).abs().max() for x in (mine, own))
            assert off <= 8 * least + 16 * torch.finfo(dtype).eps * true.abs().max()
    nothing = torch.zeros(0, 3, 3, dtype=dtype), torch.zeros(0, 3, 3, dtype=dtype)
    det = shlo_disc.torch.compile(
        export(Of(linalg.det), (args[0],), dynamic_shapes=(({0: Dim("b", min=0), 1: N, 2: N},),))
    )
    assert det(nothing[0]).shape == (0,)
    assert torch.equal(det(torch.zeros(2, 0, 0, dtype=dtype)), torch.ones(2, dtype=dtype))


def test_singular_matrices_and_nan():
    a = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 3.0], [1.0, 0.0]], [[torch.nan, 1], [1, 1]]])
    exe = shlo_disc.torch.compile(
        export(
            Of(lambda a: (*linalg.inv_ex(a), linalg.det(a), *linalg.slogdet(a))), (a,),
            dynamic_shapes=(({0: B},),),
        )
    )  # fmt: skip
    inverse, info, det, sign, size = exe(a)
    assert not inverse[0].isfinite().all()
    torch.testing.assert_close(inverse[1], linalg.inv(a[1]))
    assert inverse[2].isnan().any()
    assert info[:2].tolist() == [2, 0]
    assert det[:2].tolist() == [0, -3]
    assert det[2].isnan()
    assert (sign[0], size[0]) == (0, -torch.inf)
    torch.testing.assert_close(size[1], torch.tensor(3.0).log())
