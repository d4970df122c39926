"""`jax.numpy.linalg` and `jax.scipy.linalg` at symbolic sizes, through LAPACK, beside `jax.jit`.

Programs hold many functions, so that each is compiled a few times only. `tests/functions` holds
every public function in a program of its own.
"""

import functools

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc import ShapeMismatchError
from tests.cases import crossed
from tests.children import at_once

SQUARE = ((2, 3, 3), (1, 1, 1), (1, 17, 17))
RECTANGULAR = ((2, 5, 3), (1, 3, 5), (3, 1, 4))
EMPTY = ((0, 3, 3), (2, 0, 0))


def matrices(shape, dtype, seed=0):
    """Well-conditioned, positive definite and symmetric (eigenvalues apart), right-hand sides."""
    random = np.random.default_rng(seed)
    a = random.standard_normal(shape)
    *_, m, n = shape
    well = a + 3 * np.sqrt(n) * np.eye(m, n)
    symmetric = (a + a.swapaxes(-1, -2)) / 2 if m == n else a
    symmetric = symmetric + 4 * np.diag(np.arange(n)) if m == n else a
    definite = a @ a.swapaxes(-1, -2) + n * np.eye(m)
    right = random.standard_normal((*shape[:-1], 2))
    return [x.astype(dtype) for x in (well, definite, symmetric, right)]


def square(well, definite, symmetric, right, only=None):
    """Whatever takes square matrices, in forms that do not depend on signs of vectors."""

    def eigh():
        values, vectors = jnp.linalg.eigh(symmetric)
        return (vectors * values[..., None, :]) @ vectors.mT

    return chosen(
        only,
        {
            "cho_solve": lambda: jsl.cho_solve((jnp.linalg.cholesky(definite), True), right),
            "det": lambda: jnp.linalg.det(well),
            "eigh": eigh,
            "hessenberg": lambda: jsl.hessenberg(well),
            "lu": lambda: lax.linalg.lu(well),
            "schur": lambda: jnp.sort(jnp.diagonal(jsl.schur(symmetric[0])[0])),
            "solve": lambda: jnp.linalg.solve(well, right),
            "triangular": lambda: lax.linalg.triangular_solve(
                well, right, left_side=True, lower=True
            ),
            "triangular right": lambda: lax.linalg.triangular_solve(
                well, right.mT, transpose_a=True, unit_diagonal=True
            ),
            "tridiagonal": lambda: jnp.abs(lax.linalg.tridiagonal(symmetric)[1]),
        },
    )


def rectangular(x, *_, only=None):
    """Whatever takes matrices of any shape."""

    def svd():
        u, s, v = jnp.linalg.svd(x, full_matrices=False)
        return (u * s[..., None, :]) @ v

    return chosen(
        only,
        {
            "lu": lambda: lax.linalg.lu(x),
            "matrix_rank": lambda: jnp.linalg.matrix_rank(x),
            "qr": lambda: jnp.linalg.qr(x),
            "qr complete": lambda: jnp.linalg.qr(x, mode="complete"),
            "qr pivoting": lambda: jsl.qr(x, pivoting=True, mode="economic"),
            "svd": svd,
        },
    )


def chosen(only, functions):
    return {k: f() for k, f in functions.items() if only is None or k in only}


def loss(function, names):
    """A number that depends on every result."""

    def number(*arguments):
        results = function(*arguments, only=names)
        leaves = jax.tree.leaves([results[name] for name in names])
        floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.sum(jnp.sin(x / 4)) for x in floats)

    return number


def compare(got, want, dtype, what):
    """Equal up to the rounding of algorithms of n steps."""
    tolerance = 3e-4 if dtype == "f4" else 1e-11
    for (path, w), g in zip(
        jax.tree_util.tree_leaves_with_path(want), jax.tree.leaves(got), strict=True
    ):
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert (g.shape, g.dtype) == (w.shape, w.dtype), where
        scale = max(1.0, float(np.max(np.abs(np.nan_to_num(w)), initial=0)))
        np.testing.assert_allclose(g, w, tolerance, tolerance * scale, err_msg=where)


@pytest.mark.parametrize(
    ("function", "shapes", "dtype", "only"),
    [
        (square, SQUARE, "f4", None),
        (square, SQUARE, "f8", ("cho_solve", "eigh", "solve")),
        (rectangular, RECTANGULAR, "f4", None),
        (rectangular, RECTANGULAR, "f8", ("lu", "qr", "svd")),
    ],
)
def test_values(function, shapes, dtype, only):
    with jax.enable_x64(dtype == "f8"):
        bound = functools.partial(function, only=only)
        ours, theirs = shlo_disc.jit(bound), jax.jit(bound)
        for shape in shapes:
            given = matrices(shape, dtype)
            compare(ours(*given), theirs(*given), dtype, f"{shape} ")
        assert ours.cache_info().misses == 1, ours.guards()


def test_empty(capfd):
    """No matrices, or matrices without elements; LAPACK is not asked to complain of them."""

    def program(well, definite, symmetric, right):
        return {
            "cholesky": jnp.linalg.cholesky(definite),
            "eigh": jnp.linalg.eigh(symmetric),
            "lu": lax.linalg.lu(well),
            "qr": jnp.linalg.qr(well),
            "qr pivoting": jsl.qr(well, pivoting=True),
            "solve": jnp.linalg.solve(well, right),
            "svd": jnp.linalg.svd(well),
            "triangular": lax.linalg.triangular_solve(well, right, left_side=True),
        }

    ours = shlo_disc.jit(program)
    for shape in EMPTY:
        given = [np.zeros(shape, "f4")] * 3 + [np.zeros((*shape[:-1], 2), "f4")]
        theirs = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), jax.eval_shape(program, *given))
        assert not any(x.size for x in jax.tree.leaves(theirs))
        compare(ours(*given), theirs, "f4", f"{shape} ")
    qr = shlo_disc.jit(lambda x: jsl.qr(x, pivoting=True))
    for shape in ((2, 3, 4), (2, 0, 4), (2, 3, 0)):
        x = np.ones(shape, "f4")
        compare(qr(x), jsl.qr(x, pivoting=True), "f4", f"{shape} ")
    assert "illegal value" not in capfd.readouterr().err


SMOOTH = ("cho_solve", "det", "eigh", "solve", "triangular")


@pytest.mark.parametrize(
    ("function", "shapes", "dtype", "only"),
    [
        (square, ((2, 3, 3), (1, 6, 6)), "f4", ("cho_solve", "solve")),
        pytest.param(square, ((2, 4, 4),), "f8", SMOOTH, marks=pytest.mark.slow),
        (rectangular, ((2, 5, 3),), "f4", ("qr",)),
        pytest.param(rectangular, ((1, 9, 4),), "f8", ("qr", "svd"), marks=pytest.mark.slow),
    ],
)
def test_gradients(function, shapes, dtype, only):
    with jax.enable_x64(dtype == "f8"):
        derivative = jax.grad(loss(function, only), argnums=(0, 1, 2, 3))
        ours, theirs = shlo_disc.jit(derivative), jax.jit(derivative)
        for shape in shapes:
            given = matrices(shape, dtype)
            compare(ours(*given), theirs(*given), dtype, f"{shape} ")


def test_what_is_not_definite_is_nan():
    f = shlo_disc.jit(jnp.linalg.cholesky)
    a = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)]).astype("f4")
    got = np.asarray(f(a))
    np.testing.assert_array_equal(got[0], np.eye(3))
    assert np.isnan(got[1:][np.tril(np.ones_like(got[1:])) > 0]).all()


def test_in_loops_batches_and_compiled_ahead():
    def program(a, b):
        def step(x, _):
            x = jnp.linalg.solve(a, x) + b
            return x, jnp.linalg.cholesky(a @ a.T + jnp.eye(a.shape[0]))

        x, factors = lax.scan(step, b, None, length=3)
        x = lax.cond(x.sum() > 0, jnp.linalg.inv, lambda y: y, a) @ x
        return lax.while_loop(lambda s: jnp.abs(s).max() > 1, lambda s: s / 2, x), factors

    ours, theirs = shlo_disc.jit(program), jax.jit(program)
    for n in (3, 8):
        well, _, _, right = (x[0] for x in matrices((1, n, n), "f4"))
        compare(ours(well, right), theirs(well, right), "f4", f"{n} ")
    assert ours.cache_info().misses == 1
    given = [x[0] for x in matrices((1, 5, 5), "f4")]
    ahead = ours.lower(given[0], given[3]).compile()
    compare(ahead(given[0], given[3]), theirs(given[0], given[3]), "f4", "ahead ")
    solve = shlo_disc.jit(jnp.linalg.solve)
    well, _, _, right = matrices((4, 5, 5), "f4")
    want = np.linalg.solve(well.astype("f8"), right)
    np.testing.assert_allclose(jax.vmap(solve)(well, right), want, 1e-4, 1e-4)
    np.testing.assert_allclose(jax.jit(lambda a, b: solve(a, b) + 0)(well, right), want, 1e-4, 1e-4)


def test_from_many_threads():
    f = shlo_disc.jit(lambda a, b: (jnp.linalg.solve(a, b), jnp.linalg.eigvalsh(a @ a.mT)))

    def work(seed):
        for k in range(12):
            well, _, _, right = matrices((seed % 3 + 1, k + 1, k + 1), "f4", seed)
            got, values = f(well, right)
            want = np.linalg.solve(well.astype("f8"), right)
            squares = np.linalg.eigvalsh(well.astype("f8") @ well.swapaxes(-1, -2))
            np.testing.assert_allclose(got, want, 1e-3, 1e-3)
            np.testing.assert_allclose(values, squares, 1e-3, 1e-3 * squares.max())

    at_once(work, range(8))


TEXT = """
  func.func @main(%a: tensor<MATRIX>, %b: tensor<RIGHT>) -> (tensor<MATRIX>, tensor<RIGHT>) {
    %0 = "stablehlo.cholesky"(%a) {lower = LOWER} : (tensor<MATRIX>) -> tensor<MATRIX>
    %1 = "stablehlo.triangular_solve"(%a, %b) {left_side = LEFT, lower = LOWER,
      unit_diagonal = UNIT, transpose_a = #stablehlo<transpose TRANSPOSE>}
      : (tensor<MATRIX>, tensor<RIGHT>) -> tensor<RIGHT>
    return %0, %1 : tensor<MATRIX>, tensor<RIGHT>
  }"""


TOLERANCES = {
    "f32": 1e-4,
    "f64": 1e-11,
    "bf16": 0.1,
    "f8E4M3FN": 0.25,
    "complex<f32>": 1e-4,
    "complex<f64>": 1e-11,
}


FORMS = [
    (True, True, False, "NO_TRANSPOSE"),
    (False, False, True, "TRANSPOSE"),
    (True, False, False, "ADJOINT"),
    (False, True, False, "TRANSPOSE"),
]
"""lower, left, unit, transpose."""


@pytest.mark.parametrize(
    ("symbolic", "form", "dtype"),
    crossed(
        [True, False],
        FORMS,
        TOLERANCES,
        also=[
            (True, FORMS[1], "f64"),
            (True, FORMS[2], "complex<f64>"),
            (True, FORMS[3], "bf16"),
            (False, FORMS[0], "complex<f32>"),
            (False, FORMS[2], "f32"),
        ],
    ),
)
def test_operations_of_stablehlo(symbolic, form, dtype):
    """`stablehlo.cholesky` and `stablehlo.triangular_solve`, which JAX does not emit for CPUs."""
    lower, left, unit, transpose = form
    tolerance = TOLERANCES[dtype]
    wide_type = "c16" if dtype.startswith("complex") else "f8"
    words = {"LOWER": lower, "LEFT": left, "UNIT": unit}
    text = TEXT.replace("TRANSPOSE}", f"{transpose}}}").replace(" TRANSPOSE>", f" {transpose}>")
    for word, value in words.items():
        text = text.replace(f"= {word}", f"= {str(value).lower()}")
    exe = None
    for batch, n, k in ((3, 4, 2), (1, 1, 1), (2, 0, 2), (0, 3, 2)) if symbolic else ((2, 5, 3),):
        right = (batch, n, k) if left else (batch, k, n)
        if exe is None:
            types = {"MATRIX": (batch, n, n), "RIGHT": right}
            for word, sizes in types.items():
                shown = "?x?x?" if symbolic else "x".join(map(str, sizes))
                text = text.replace(word, f"{shown}x{dtype}")
            exe = shlo_disc.compile(text)
        random = np.random.default_rng(n)
        a, b = (random.standard_normal((2, *shape)) for shape in ((batch, n, n), right))
        a, b = (v[0] + 1j * v[1] if wide_type == "c16" else v[0] for v in (a, b))
        a = (a @ a.conj().mT + n * np.eye(n)).astype(exe.signature.arguments[0].dtype)
        b = b.astype(a.dtype)
        factor, x = (np.asarray(y, wide_type) for y in exe.run_numpy([a, b]))
        for i in range(batch):
            wide, given = np.asarray(a[i], wide_type), np.asarray(b[i], wide_type)
            part = np.tril(wide) if lower else np.triu(wide)
            if unit:
                part = part - np.diag(np.diag(part)) + np.eye(n)
            matrix = {"NO_TRANSPOSE": part, "TRANSPOSE": part.T, "ADJOINT": part.conj().T}[
                transpose
            ]
            product = matrix @ x[i] if left else x[i] @ matrix
            scale = max(1, np.abs(matrix).max(initial=0) * np.abs(x[i]).max(initial=0))
            np.testing.assert_allclose(product, given, tolerance, tolerance * scale)
            triangle = np.tril(factor[i]) if lower else np.triu(factor[i]).conj().T
            np.testing.assert_allclose(triangle @ triangle.conj().T, wide, tolerance, tolerance * 8)
    if symbolic:
        with pytest.raises(ShapeMismatchError, match=r"stablehlo.cholesky: sizes .* must be equal"):
            exe.run_numpy([np.zeros((1, 3, 4), a.dtype), np.zeros((1, 4, 4), a.dtype)])


def test_a_complex_matrix_that_is_not_definite_is_nan():
    exe = shlo_disc.compile(
        """func.func @main(%a: tensor<?x?xcomplex<f32>>) -> tensor<?x?xcomplex<f32>> {
      %0 = "stablehlo.cholesky"(%a) {lower = true}
        : (tensor<?x?xcomplex<f32>>) -> tensor<?x?xcomplex<f32>>
      return %0 : tensor<?x?xcomplex<f32>> }"""
    )
    (factor,) = exe.run_numpy([np.diag([4, -1j]).astype("c8")])
    assert np.isnan(factor[[0, 1], [0, 1]].view("f4")).all()
