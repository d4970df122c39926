"""Decompositions of `torch.linalg` into what LAPACK computes (`bodies/lapack.py`).

%q, %r = aten.linalg_qr(%a)
==>
%f, %t = shlo_disc.geqrf(%a), %r = aten.triu(%f), %q = aten.linalg_householder_product(%f, %t)

a: [..., m, n]    lu: the factors L and U in one matrix    pivots: [..., min(m, n)], from 1
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import is_contiguous_or_false

aten = torch.ops.aten

_OPS = torch.library.Library("shlo_disc", "FRAGMENT")
_OPS.define("geqrf(Tensor a) -> (Tensor, Tensor)")
_OPS.define("row_order(Tensor a, Tensor pivots) -> Tensor")
_OPS.define("squared(Tensor a, Tensor times) -> Tensor")
_OPS.define("triangular_solve(Tensor a, Tensor b, bool upper, bool left, bool unit) -> Tensor")
ops: Any = torch.ops.shlo_disc
"""QR with reflections as LAPACK keeps them; the order of rows that pivots give;
matrices squared as often as integers say; substitution."""


def _geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = a.shape
    return torch.empty_like(a), a.new_empty([*batch, torch.sym_min(rows, columns)])


# Not `register_fake`: it looks for the source of its caller, which takes 0.1 s at import.
_OPS.impl("geqrf", _geqrf, "Meta")
_OPS.impl("row_order", lambda a, pivots: a.new_empty(a.shape[:-1], dtype=torch.int64), "Meta")
_OPS.impl("squared", lambda a, times: a.new_empty(a.shape), "Meta")
_OPS.impl("triangular_solve", lambda a, b, upper, left, unit: b.new_empty(b.shape), "Meta")


def _qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    rows, columns = a.shape[-2:]
    least = torch.sym_min(rows, columns)
    factors, taus = ops.geqrf(a)
    if mode == "complete":
        wide = torch.cat([factors, a.new_zeros([*a.shape[:-1], rows])], -1)  # any m columns do
        return aten.linalg_householder_product(wide.narrow(-1, 0, rows), taus), factors.triu()
    r = factors.narrow(-2, 0, least).triu()
    if mode == "r":
        return a.new_zeros([0]), r
    return aten.linalg_householder_product(factors.narrow(-1, 0, least), taus), r


def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand([*batch, *a.shape[-2:]]), b.expand([*batch, *b.shape[-2:]])
    return ops.triangular_solve(a, b, upper, left, unitriangular)


def _solve_triangular_old(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    given = a.mT if transpose else a
    found = _solve_triangular(
        given, b, upper=upper != transpose, left=True, unitriangular=unitriangular
    )
    return found, a.clone()


def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    low = factor.mH if upper else factor
    return _solve_triangular(low.mH, _solve_triangular(low, b, upper=False), upper=True)


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    return _cholesky_solve(_eye_like(factor), factor, upper)


def _eye_like(a: Tensor) -> Tensor:
    eye: Tensor = torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)
    return eye.expand(a.shape)


def _lu_solve(
    lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    if not left:
        return _lu_solve(lu, pivots, b.mH, adjoint=not adjoint).mH
    order = ops.row_order(lu, pivots).unsqueeze(-1)
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    places = order.expand([*batch, *b.shape[-2:]])
    b = b.expand([*batch, *b.shape[-2:]])
    if not adjoint:
        y = _solve_triangular(lu, b.gather(-2, places), upper=False, unitriangular=True)
        return _solve_triangular(lu, y, upper=True)
    y = _solve_triangular(lu.mH, b, upper=False)
    y = _solve_triangular(lu.mH, y, upper=True, unitriangular=True)
    return torch.zeros_like(y).scatter(-2, places, y)


def _lu_unpack(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = lu.shape[-2:]
    least = torch.sym_min(rows, columns)
    none = lu.new_zeros([0])
    permuted = lower = upper = none
    if unpack_data:
        lower = lu.narrow(-1, 0, least).tril(-1)
        lower = lower + _eye_like(lower)
        upper = lu.narrow(-2, 0, least).triu()
    if unpack_pivots:
        order = ops.row_order(lu, pivots)
        numbers = torch.arange(rows).unsqueeze(-1)
        permuted = (order.unsqueeze(-2) == numbers).to(lu.dtype)
    return permuted, lower, upper


def _solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where `a` is singular, the solution is not finite."""
    lu, pivots, info = aten.linalg_lu_factor_ex(a)
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    x = b.unsqueeze(-1) if is_vector else b
    x = _lu_solve(lu, pivots, x, left=left)
    return x.squeeze(-1) if is_vector else x, lu, pivots, info


def _inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    inverse, _, _, info = _solve_ex(a, _eye_like(a))
    return inverse, info


def _sign_of_exchanges(pivots: Tensor) -> Tensor:
    exchanged = pivots != torch.arange(1, pivots.shape[-1] + 1)
    return 1 - 2 * (exchanged.to(torch.int64).sum(-1) % 2)


def _factors(a: Tensor) -> tuple[Tensor, Tensor]:
    """LU and pivots of `a`, or of its transpose where the gradient of a determinant expects that.

    Source: `linalg_det_backward` in torch/csrc/autograd/FunctionsManual.cpp.
    """
    is_transposed = is_contiguous_or_false(a) and not a.is_complex()
    lu, pivots, _ = aten.linalg_lu_factor_ex(a.mT if is_transposed else a)
    return lu, pivots


def _det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    lu, pivots = _factors(a)
    return lu.diagonal(0, -2, -1).prod(-1) * _sign_of_exchanges(pivots), lu, pivots


def _slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lu, pivots = _factors(a)
    diagonal = lu.diagonal(0, -2, -1)
    sign = diagonal.sgn().prod(-1) * _sign_of_exchanges(pivots)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


def _pinv(
    a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """Source: `linalg_pinv` and `get_atol_rtol` in ATen/native/LinearAlgebra.cpp."""
    if hermitian:
        values, left = torch.linalg.eigh(a)
        right = left.mH
    else:
        left, values, right = torch.linalg.svd(a, full_matrices=False)
    size = values.abs()
    least = torch.scalar_tensor(0, dtype=size.dtype) if atol is None else atol
    if rtol is None:
        rows, columns = a.shape[-2:]
        share = torch.finfo(size.dtype).eps * torch.scalar_tensor(
            torch.sym_max(rows, columns), dtype=size.dtype
        )
        rtol = torch.where(least > 0, 0, share)
    if size.shape[-1] == 0:
        return a.new_zeros([*a.shape[:-2], a.shape[-1], a.shape[-2]])
    largest = size.amax(-1)
    is_kept = size > torch.maximum(least, rtol * largest).unsqueeze(-1)
    inverse = torch.where(is_kept, 1 / torch.where(is_kept, values, 1), 0)
    return (right.mH * inverse.unsqueeze(-2).to(a.dtype)) @ left.mH


def _matrix_exp(a: Tensor) -> Tensor:
    """The Taylor polynomial of degree 18 of `a / 2^s`, of norm 1 at most, squared s times.

    The polynomial is one in `a^3`, so that it takes 7 products.
    Source: Golub and Van Loan, Matrix Computations, 4th edition, 9.3.
    """
    norm = a.abs().sum(-2, keepdim=True)
    norm = aten.constant_pad_nd(norm, [0, 1], 0).amax(-1, keepdim=True)  # of no columns, 0
    times = torch.ceil(torch.log2(norm.clamp(min=1))).clamp(max=1100)
    small = a * torch.exp2(-times)
    powers = [_eye_like(a), small, small @ small]
    cube = powers[2] @ small
    found: Any = powers[0] * (1 / math.factorial(18))
    for k in range(15, -1, -3):
        terms = (one * (1 / math.factorial(k + i)) for i, one in enumerate(powers))
        found = found @ cube + sum(terms)
    return ops.squared(found, times.to(torch.int32).squeeze(-1).squeeze(-1))


def _grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Products of groups: one product of matrices in which each group stands beside zeros.

    Group g lies in front of `offs[g]`, behind the groups before it. It is one of rows for
    a: [m, k] and b: [g, k, n]. It is one of columns for a: [g, m, k] and b: [k, n]. It is one of
    terms for a: [m, k] and b: [k, n], with results [g, m, n].
    """
    if offs is None:
        found = a @ b
    elif a.dim() == 3:
        found = _grouped_mm(b.t(), a.mT, offs).t()
    else:
        count = a.shape[0] if b.dim() == 3 else a.shape[-1]
        starts = torch.cat([offs.new_zeros([1]), offs]).narrow(0, 0, offs.shape[0])
        places = torch.arange(count)
        is_own = (places >= starts.unsqueeze(1)) & (places < offs.unsqueeze(1))  # [g, count]
        if b.dim() == 2:
            found = torch.where(is_own.unsqueeze(1), a, 0.0) @ b
        else:
            parts = torch.where(is_own.t().unsqueeze(-1), a.unsqueeze(1), 0.0)  # [m, g, k]
            depth = b.shape[0] * b.shape[1]
            found = parts.reshape([count, depth]) @ b.reshape([depth, b.shape[2]])
    found = found if bias is None else found + bias
    return found.to(out_dtype or a.dtype)


LINALG: dict[Any, Callable[..., Any]] = {
    aten._cholesky_solve_helper.default: _cholesky_solve,
    aten._grouped_mm.default: _grouped_mm,
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten._linalg_solve_ex.default: _solve_ex,
    aten.cholesky.default: lambda a, upper=False: aten.linalg_cholesky_ex(a, upper=upper)[0],
    aten.cholesky_inverse.default: _cholesky_inverse,
    aten.cholesky_solve.default: _cholesky_solve,
    aten.linalg_inv_ex.default: _inv_ex,
    aten.linalg_lu.default: lambda a, pivot=True: _lu_unpack(
        *aten.linalg_lu_factor_ex(a, pivot=pivot)[:2]
    ),
    aten.linalg_lu_solve.default: _lu_solve,
    aten.linalg_matrix_exp.default: _matrix_exp,
    aten.linalg_pinv.atol_rtol_tensor: _pinv,
    aten.linalg_qr.default: _qr,
    aten.linalg_solve_triangular.default: _solve_triangular,
    aten.lu_unpack.default: _lu_unpack,
    aten.triangular_solve.default: _solve_triangular_old,
}
"""Overload -> what it is traced from."""

OF_LIBRARIES: dict[str, Callable[..., Any]] = {"transformers::grouped_mm_fallback": _grouped_mm}
"""Name of an op of another library -> what it is traced from in exports, to be one program.

Under `torch.compile` PyTorch runs the op: it multiplies no zeros.
"""
