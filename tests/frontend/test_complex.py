"""Complex numbers under `shlo_disc.jit`, against `jax.jit`: one compilation for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc

pytest.importorskip("shlo_disc.ral._ral", reason="the runtime extension is not built here")

REAL = True

Case = tuple[Callable[..., Any], list[tuple[Any, ...]]]

RNG = np.random.default_rng(3)


def c(*shape: int, dtype: str = "c8") -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def r(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("f4")


def close(got: Any, want: Any) -> None:
    """Both have the same leaves, of one type; numbers agree to f32's precision."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)


def elements(z, w, x):
    return {
        "arithmetic": (z + w, z - w, z * w, z / w, -z, z * x, x / z, z * (1 + 2j), x + 1j, z**2),
        "functions": (jnp.exp(1j * x), jnp.sqrt(z), jnp.abs(z), jnp.angle(z), jnp.sign(z)),
        "parts": (z.real, z.imag, z.conj(), lax.complex(x, x)),
        "questions": (z == w, z != w, jnp.isnan(z), jnp.isfinite(z), z.astype(bool)),
        "types": (x.astype("c8"), jnp.arange(x.shape[0]).astype("c8")),
        "choice": (jnp.where(x > 0, z, 1j), lax.select_n(x > 0, z, w)),
    }


def moves(z, i):
    return {
        "order": (z[::-2], jnp.roll(z, 2), jnp.sort(z), jnp.argsort(z)),
        "indices": (z[i], z.at[i].add(1j), z.at[i].set(2), z.at[i].multiply(1j)),
        "shape": (jnp.pad(z, 3), jnp.stack([z, -z], 1).T, jnp.concatenate([z, z]), jnp.outer(z, z)),
        "sums": (z.sum(), jnp.cumsum(z), z.prod(), z.mean(), jax.ops.segment_sum(z[i], i, 4)),
    }


def control(z):
    return {
        "for": lax.fori_loop(0, 5, lambda i, s: s * z + 1j, z),
        "scan": lax.scan(lambda s, x: (s * x + 1, s), jnp.complex64(1j), z),
        "while": lax.while_loop(lambda s: s[1] < 4, lambda s: (s[0] * 2 + 1j, s[1] + 1), (z, 0)),
        "cond": lax.cond(z.shape[0] > 3, lambda z: z * 2, lambda z: z.conj(), z),
        "switch": lax.switch(z.shape[0] % 3, [lambda z: z, jnp.conj, jnp.negative], z),
        "ours": shlo_disc.jit(lambda z: z * 1j)(z),
    }


def products(a, b, v):
    return (a @ b, b.T @ a.conj().T, a @ v, v @ b, jnp.vdot(v, v), jnp.einsum("ij,kj->ik", a, a),
            jnp.outer(v, v), jnp.einsum("ij,ij->i", a, a))  # fmt: skip


def convolved(image, kernel, signal):
    numbers = ("NHWC", "HWIO", "NHWC")
    return (
        lax.conv_general_dilated(image, kernel, (2, 1), "SAME", dimension_numbers=numbers),
        jnp.convolve(signal, signal[:2]),
    )


def derivatives(z, w):
    def energy(z, w):
        return (jnp.abs(jnp.sin(z) @ w) ** 2).sum()

    holomorphic = jax.grad(lambda z: z**3 + jnp.exp(z), holomorphic=True)
    return jax.grad(energy, (0, 1))(z, w), jax.vmap(holomorphic)(z[:, 0])


def decompositions(a, b):
    """LAPACK reads arrays of pairs as complex numbers."""
    square = a @ a.conj().T + jnp.eye(a.shape[0])
    return (jnp.linalg.inv(square), jnp.linalg.solve(a, b), jnp.linalg.cholesky(square),
            jnp.linalg.eigvalsh(square), jnp.sort(jnp.linalg.eigvals(square).real),
            jax.scipy.linalg.solve_triangular(jnp.tril(a), b, lower=True))  # fmt: skip


CASES: dict[str, Case] = {
    "elements": (elements, [(c(n), c(n), r(n)) for n in (5, 1, 0, 131)]),
    "moves": (moves, [(c(n), np.array([1, 0, 2, 1])) for n in (9, 3, 131)]),
    "control": (control, [(c(n),) for n in (6, 7, 19)]),
    "products": (products, [(c(n, k), c(k, m), c(k)) for n, k, m in
                            ((3, 5, 7), (1, 2, 1), (17, 64, 33), (0, 3, 2))]),
    "convolved": (convolved, [(c(n, 9, m, 3), c(3, 2, 3, 4), c(m)) for n, m in ((2, 8), (1, 11))]),
    "derivatives": (derivatives, [(c(n, k), c(k, 2)) for n, k in ((3, 5), (7, 2))]),
    "decompositions": (decompositions, [(c(n, n) + 3 * np.eye(n, dtype="c8"), c(n, 2))
                                        for n in (4, 7)]),
    "in batches": (jax.vmap(lambda a, b: (a @ b, a.sum())),
                   [(c(n, 3, k), c(n, k, 2)) for n, k in ((4, 5), (2, 7))]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_compilation_gives_what_jax_gives(name):
    function, calls = CASES[name]
    f = shlo_disc.jit(function)
    for arguments in calls:
        close(f(*arguments), jax.jit(function)(*arguments))
    # Where sizes are broadcast, a size of 1 is another program.
    assert f.cache_info().misses == 1 + (name in ("elements", "products"))


def test_double_precision():
    with jax.enable_x64(True):
        f = shlo_disc.jit(lambda z: (jnp.exp(z) / z, z.astype("c8"), z.real, z @ z))
        for n in (3, 7):
            z = c(n, dtype="c16")
            got = f(z)
            assert [a.dtype.name for a in got] == [
                "complex128",
                "complex64",
                "float64",
                "complex128",
            ]
            np.testing.assert_allclose(got[0], np.exp(z) / z, rtol=1e-14)
            np.testing.assert_allclose(got[3], z @ z, rtol=1e-14)


@pytest.mark.parametrize("value", [1 + 2j, np.complex64(3j), jnp.complex64(-1), np.array(2j, "c8")])
def test_scalars(value):
    f = shlo_disc.jit(lambda z: (z * 2, abs(z)))
    close(f(value), jax.jit(lambda z: (z * 2, abs(z)))(value))


def test_constants_keep_every_bit():
    numbers = np.array([complex(-0.0, np.inf), complex(np.nan, -0.0), 1e-45 + 1e-40j, 0.1 + 3e38j])
    for count in (1, 4, 400):
        constant = np.resize(numbers.astype("c8"), count)
        got = shlo_disc.jit(lambda x, k=constant: jnp.where(x > 0, k, 0))(jnp.ones(count))
        np.testing.assert_array_equal(np.asarray(got).view("u4"), constant.view("u4"))


def test_memory_of_donated_arrays_is_used():
    f = shlo_disc.jit(lambda z: jnp.exp(z * 1j) * z + 1, donate_argnums=0)
    for n in (1, 64, 1009):
        z = f(jnp.asarray(c(n, 33)))
        want = np.exp(np.asarray(z) * 1j) * np.asarray(z) + 1
        address = z.unsafe_buffer_pointer()
        result = f(z)
        assert z.is_deleted()
        assert result.unsafe_buffer_pointer() == address
        np.testing.assert_allclose(np.asarray(result), want, rtol=1e-5, atol=1e-5)


def test_arguments_of_every_kind():
    f = shlo_disc.jit(lambda z: z.conj() + 1)
    whole = c(6, 8)
    for z in (whole, whole[::2, 1:], whole.T, whole.astype(">c8"), jnp.asarray(whole)):
        close(f(z), jax.jit(lambda z: z.conj() + 1)(np.asarray(z).astype("c8")))
    assert {x.dtype.name for x in jax.tree.leaves(f(whole.astype("f4")))} == {"float32"}


def test_the_signature_and_the_guards_speak_of_complex_arrays():
    kind = "tensor<?x3xcomplex<f32>>"
    text = (
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n"
        f"%0 = stablehlo.add %a, %b : {kind}\nreturn %0 : {kind}\n}}"
    )
    executable = shlo_disc.compile(text, shapes=[["n", "3"], ["n", "3"]], names=["a", "b"])
    assert str(executable.signature) == (
        "(a: complex64[n, 3], b: complex64[n, 3]) -> (complex64[n, 3])"
    )
    assert executable.memory_analysis({"n": 10})["argument_size_in_bytes"] == 2 * 10 * 3 * 8
    with pytest.raises(shlo_disc.ShapeMismatchError, match=r"'b'\): dimension 0 is 5, but n = 4"):
        executable(c(4, 3), c(5, 3))
    with pytest.raises(shlo_disc.ShapeMismatchError, match="rank is 1, the program takes 2"):
        executable(c(4, 3), c(4))
    with pytest.raises(TypeError, match="dtype is float32, the program takes complex64"):
        executable(c(4, 3), r(4, 3))


def test_unused_parts_are_not_computed():
    f = shlo_disc.jit(lambda z: jnp.exp(z).real)
    text = f.lower(c(5)).compile().as_text("disc")
    assert "stablehlo.cosine" in text
    assert "stablehlo.sine" not in text


def test_a_chain_of_elements_is_one_kernel():
    f = shlo_disc.jit(lambda z, w: jnp.conj(z) * w + (1 + 2j) * jnp.exp(z) / w)
    text = f.lower(c(5), c(5)).compile().as_text("disc")
    assert text.count('"disc.fusion"') == 1
