"""Systems, inverses and determinants at dynamic batches and dynamic sizes of matrices."""

import pytest
import torch
from torch.export import Dim, export

import shlo_disc.torch
from tests.torch.models import Of

ERROR = {"on_unsupported": "error"}
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


def factored(a, b, wide):
    """Factorizations, what is solved with them, and functions of matrices: all unique in sign."""
    s = a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype)
    low, (q, r), (p, lower, upper) = linalg.cholesky_ex(s)[0], linalg.qr(wide.mH), linalg.lu(wide)
    lu, pivots, _ = linalg.lu_factor_ex(a)
    values, vectors = linalg.eigh(s)
    u, sizes, v = linalg.svd(wide, full_matrices=False)
    return (
        low, linalg.cholesky_ex(s, upper=True)[0], torch.cholesky_solve(b, low), q @ r, q.mH @ q,
        torch.cholesky_inverse(low), p @ lower @ upper, linalg.lu_solve(lu, pivots, b),
        linalg.lu_solve(lu, pivots, b, adjoint=True), linalg.lu_solve(lu, pivots, b.mH, left=False),
        values, vectors * values.unsqueeze(-2) @ vectors.mH, linalg.eigvalsh(s, UPLO="U"),
        u * sizes.unsqueeze(-2) @ v, linalg.svdvals(a), linalg.pinv(wide), linalg.matrix_exp(a),
        linalg.pinv(s, hermitian=True), linalg.solve_triangular(s[0].triu(), b, upper=True),
        linalg.solve_triangular(s.tril(), b.mH, upper=False, left=False, unitriangular=True),
        linalg.solve_ex(a, b)[0], linalg.inv_ex(a)[0], linalg.det(a), linalg.slogdet(a)[1],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_factorizations_of_any_size(dtype):
    def make(b, n, m):
        a, x, wide = (torch.randn(b, n, k, dtype=dtype) for k in (n, 2, m))
        return a + 3 * torch.eye(n), x, wide

    fast = torch.compile(factored, backend="shlo_disc", dynamic=True, options=ERROR)
    for sizes in ((3, 4, 6), (2, 11, 5)):
        args = make(*sizes)
        for own, true in zip(fast(*args), factored(*args), strict=True):
            torch.testing.assert_close(own, true, rtol=1e-8, atol=1e-8)


OF_ONE = {
    "cholesky": lambda a: linalg.cholesky_ex(a @ a.mT)[0],
    "qr": linalg.qr,
    "eigenvalues": lambda a: (linalg.eigvalsh(a + a.mT), linalg.svdvals(a)),
    "lu": lambda a: linalg.lu_solve(*linalg.lu_factor_ex(a)[:2], a[..., :1] ** 2),
    "solved": lambda a: (linalg.solve_ex(a, a[..., 0] ** 2)[0], linalg.inv_ex(a)[0]),
    "determinants": lambda a: (linalg.det(a), linalg.slogdet(a.mT)[1]),
    "exponential": linalg.matrix_exp,
}


@pytest.mark.parametrize(
    "names", [("cholesky", "eigenvalues"),
              pytest.param(tuple(OF_ONE), marks=pytest.mark.slow)],
)  # fmt: skip
def test_gradients_are_those_of_eager_mode(names):
    def function(a):
        found = [OF_ONE[name](a) for name in names]
        return [y for one in found for y in (one if isinstance(one, tuple) else (one,))]

    fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)
    for b, n in ((3, 4), (2, 7)):
        a = torch.randn(b, n, n, dtype=torch.float64) + 3 * torch.eye(n)
        a.requires_grad_()
        grads = [torch.autograd.grad(sum((y * y).sum() for y in each(a)), a)[0]
                 for each in (fast, function)]  # fmt: skip
        torch.testing.assert_close(*grads, rtol=1e-7, atol=1e-7)


def test_a_matrix_without_a_factor_gives_nan():
    a = torch.stack([torch.eye(3), -torch.eye(3)])
    program = export(Of(linalg.cholesky_ex), (a,), dynamic_shapes=(({0: B},),))
    factor, info = shlo_disc.torch.compile(program)(a)
    assert torch.equal(factor[0], torch.eye(3))
    assert factor[1].diagonal().isnan().all()
    assert info.tolist() == [0, 1]


def test_products_of_groups_with_gradients():
    """Groups of rows; in the gradients also groups of what is summed. Some are empty."""

    def function(a, w, offsets):
        return torch._grouped_mm(a, w, offs=offsets)

    fast = torch.compile(function, backend="shlo_disc", dynamic=True, options=ERROR)
    for ends in ((2, 5, 16), (0, 5, 24)):
        a, w = (torch.randn(shape) / 4 for shape in ((ends[-1], 16), (3, 16, 8)))
        args = [x.bfloat16().requires_grad_() for x in (a, w)]
        offsets = torch.tensor(ends, dtype=torch.int32)
        results = [each(*args, offsets).float() for each in (fast, function)]
        torch.testing.assert_close(*results, rtol=3e-2, atol=3e-2)
        grads = [torch.autograd.grad(y.square().sum(), args) for y in results]
        torch.testing.assert_close(*grads, rtol=3e-2, atol=3e-2)


def test_singular_vectors_of_matrices_without_elements_are_orthogonal():
    function = Of(lambda x: linalg.svd(x, full_matrices=True))
    sizes = ({0: Dim("m"), 1: Dim("n")},)
    exe = shlo_disc.torch.compile(export(function, (torch.randn(3, 4),), dynamic_shapes=(sizes,)))
    for m, n in ((0, 5), (4, 0), (0, 0), (3, 5)):
        x = torch.randn(m, n)
        u, s, v = exe(x)
        torch.testing.assert_close(u @ u.T, torch.eye(m))
        torch.testing.assert_close(v @ v.T, torch.eye(n))
        torch.testing.assert_close(u[:, : len(s)] * s @ v[: len(s)], x)
