"""Cases of `jax.numpy.linalg`, `jax.numpy.fft`, `jax.lax.linalg` and `jax.scipy.linalg`."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl
import scipy.linalg
from jax import lax

from tests.functions.cases import Case, Leave, case, each

SMALL = ((5, 4), (1, 6), (9, 1), (20, 3))
"""Sizes for functions whose code grows with the size, or whose work is n**3."""

NUMPY_LINALG = {
    "cholesky": case("definite: 3 n n", sizes=SMALL),
    "cond": case("well: n n", sizes=SMALL),
    "cross": case("n 3", "n 3"),
    "det": case("well: n n", sizes=SMALL),
    "diagonal": case("3 n m"),
    "eig": case("well: n n", sizes=SMALL),
    "eigh": case("symmetric: n n", sizes=SMALL),
    "eigvals": case("well: n n", sizes=SMALL),
    "eigvalsh": case("symmetric: n n", sizes=SMALL),
    "inv": case("well: 2 n n", sizes=SMALL),
    "lstsq": case("well: n+6 m", "n+6", sizes=SMALL),
    "matmul": case("n m", "m n"),
    "matrix_norm": case("n m"),
    "matrix_norm/one": case(lambda x: jnp.linalg.matrix_norm(x, ord=1), "n m"),
    "matrix_power": case(lambda x: jnp.linalg.matrix_power(x, 3), "n n", sizes=SMALL),
    "matrix_rank": case("n m", sizes=SMALL),
    "matrix_transpose": case("3 n m"),
    "multi_dot": case(lambda x, y, z: jnp.linalg.multi_dot([x, y, z]), "n 8", "8 3", "3 m"),
    "norm": case("n m"),
    "norm/axis": case(lambda x: jnp.linalg.norm(x, ord=1, axis=1, keepdims=True), "n m"),
    "outer": case("n", "m"),
    "pinv": case("n m", sizes=SMALL),
    "qr": case("well: n m", sizes=SMALL),
    "slogdet": case("well: n n", sizes=SMALL),
    "solve": case("well: n n", "n m", sizes=SMALL),
    "svd": case("n m", sizes=SMALL),
    "svdvals": case("n m", sizes=SMALL),
    "tensordot": case(lambda x, y: jnp.linalg.tensordot(x, y, axes=1), "n m", "m 3"),
    "tensorinv": case(lambda x: jnp.linalg.tensorinv(x, ind=1), "well: n n", sizes=SMALL),
    "tensorsolve": case("well: n n", "n", sizes=SMALL),
    "trace": case("3 n m"),
    "vecdot": case("n m", "n m"),
    "vector_norm": case("n m"),
    "vector_norm/three": case(lambda x: jnp.linalg.vector_norm(x, ord=3, axis=0), "n m"),
}  # fmt: skip

FFT = {
    **each("fft hfft ifft ihfft irfft rfft", "n m+1"),
    **each("fft2 fftn ifft2 ifftn irfft2 irfftn rfft2 rfftn", "n m+1"),
    **each("fftshift ifftshift", "n m"),
    "fftfreq": case(lambda x: jnp.fft.fftfreq(x.shape[0]), "n"),
    "rfftfreq": case(lambda x: jnp.fft.rfftfreq(x.shape[0]), "n"),
}

LAX_LINALG = {
    "cholesky": case("definite: n n", sizes=SMALL),
    "cholesky_update": case("definite: n n", "n", sizes=SMALL, reason="a Python loop over the rows"),
    **each("eig hessenberg schur", "well: n n", sizes=SMALL),
    "eigh": case("symmetric: n n", sizes=SMALL),
    "householder_product": case("n+4 n", "n", sizes=SMALL),
    **each("lu qdwh", "well: n n", sizes=SMALL),
    "lu_pivots_to_permutation": case(
        lambda p: lax.linalg.lu_pivots_to_permutation(p, p.shape[0]), "index(n): n", sizes=SMALL
    ),
    "ormqr": case("n n", "n", "n m", sizes=SMALL),
    "qr": case("well: n m", sizes=SMALL),
    "svd": case("n m", sizes=SMALL),
    "symmetric_product": case("n m", "symmetric: n n", sizes=SMALL),
    "triangular_solve": case(
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), "lower: n n", "n m", sizes=SMALL
    ),
    "tridiagonal": case("symmetric: n n", sizes=((5, 4), (2, 6), (9, 1), (20, 3))),
    "tridiagonal_solve": case("n", "above: n", "n", "n m", sizes=((5, 4), (3, 6), (9, 1), (20, 3))),
}  # fmt: skip

SCIPY_LINALG = {
    "block_diag": case("n m", "m 3", "2 n"),
    "cho_factor": case("definite: n n", sizes=SMALL),
    "cho_solve": case(lambda a, b: jsl.cho_solve((a, True), b), "lower: n n", "n m", sizes=SMALL),
    "cholesky": case(lambda a: jsl.cholesky(a, lower=True), "definite: n n", sizes=SMALL),
    **each("circulant fiedler hankel toeplitz", "n", sizes=SMALL),
    "companion": case("above: n+1", sizes=SMALL),
    "fiedler_companion": case("above: n+2", sizes=SMALL),
    "convolution_matrix": case(lambda x: jsl.convolution_matrix(x, 6), "n"),
    "leslie": case("n+1", "n", sizes=SMALL),
    "toeplitz/two": case(jsl.toeplitz, "n", "m"),
    **each("det expm funm hessenberg inv lu lu_factor qr schur", "well: n n", sizes=SMALL),
    "expm": case("n n", sizes=SMALL),
    "expm_frechet": case("n n", "n n", sizes=SMALL),
    "funm": case(lambda x: jsl.funm(x, jnp.exp), "well: n n", sizes=SMALL, reason="one row is another program"),
    "eigh": case("symmetric: n n", sizes=SMALL),
    "eigh_tridiagonal": case(
        lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=True), "n+1", "n", reason="bounds of its loops are Python numbers", sizes=SMALL
    ),
    "lu_solve": case(
        lambda lu, b: jsl.lu_solve((lu, jnp.arange(lu.shape[0])), b), "well: n n", "n m", sizes=SMALL
    ),
    "polar": case("well: n n", sizes=SMALL),
    "qr_multiply": case("well: n n", "n n", sizes=SMALL),
    "rsf2csf": case("well: n n", "well: n n", sizes=SMALL, reason="one row is another program"),
    "solve": case("well: n n", "n m", sizes=SMALL),
    "solve_sylvester": case("well: n n", "well: m m", "n m", sizes=SMALL),
    "solve_triangular": case(
        lambda a, b: jsl.solve_triangular(a, b, lower=True), "lower: n n", "n m", sizes=SMALL
    ),
    "solve_triangular/transposed": case(
        lambda a, b: jsl.solve_triangular(a, b, trans=1, lower=True), "lower: n n", "n m", sizes=SMALL
    ),
    "sqrtm": case("definite: n n", sizes=SMALL),
    "svd": case("n m", sizes=SMALL),
    **{
        name: case(lambda x, f=getattr(jsl, name): f(x.shape[0]), "n", sizes=((5, 4), (3, 6), (9, 1), (12, 3)))
        for name in "dft helmert hilbert invhilbert invpascal".split()
    },
    # JAX computes it in float32 in 64-bit mode, too.
    "pascal": case(
        lambda x: jsl.pascal(x.shape[0]), "n", sizes=((5, 4), (3, 6), (9, 1), (12, 3)),
        truth=lambda x: scipy.linalg.pascal(x.shape[0]),
    ),
}  # fmt: skip

MODULES: dict[str, tuple[dict[str, Case], Leave]] = {
    "jax.numpy.linalg": (NUMPY_LINALG, {}),
    "jax.numpy.fft": (FFT, {}),
    "jax.lax.linalg": (LAX_LINALG, {}),
    "jax.scipy.linalg": (SCIPY_LINALG, {"its size has to be a power of two": "hadamard"}),
}
