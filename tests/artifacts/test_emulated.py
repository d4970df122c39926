"""Programs for AArch64, run by the runtime for AArch64 in qemu."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from tests.cases import slow
from tests.emulator import needs_emulator
from tools.emulated import TARGET, Emulated

ROOT = Path(__file__).parents[2]
ACCEPTANCE = ROOT.parent / "shared/acceptance"

pytestmark = [needs_emulator, pytest.mark.unsanitized]


def both(function, *specs, runner: Path, folder: Path):
    """A function of arrays of `specs` (dtype, sizes): on AArch64, and on this machine."""
    scope = export.SymbolicScope()
    with jax.enable_x64(True):
        shapes = [
            jax.ShapeDtypeStruct(export.symbolic_shape(sizes, scope=scope), np.dtype(dtype))
            for dtype, sizes in specs
        ]
        exported = export.export(jax.jit(function))(*shapes)
    own = shlo_disc.compile(exported)
    return Emulated(own, runner, folder), own


def numbers(dtype: str, *sizes: int, seed: int = 0) -> np.ndarray:
    """Of all magnitudes, and special ones."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iub":
        return rng.integers(0, 2 if kind.kind == "b" else 100, sizes).astype(kind)
    values = rng.normal(size=sizes) * 2.0 ** rng.integers(-30, 30, sizes)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.5, 88.7, -104.0]
    flat = values.reshape(-1)
    flat[: len(special)] = special[: flat.size]
    with np.errstate(over="ignore"):
        return values.astype(kind)


def equal_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """True if the bits are the same; the sign and payload of NaN belong to a processor."""
    if a.dtype.kind == "V":
        a, b = a.astype(np.float32), b.astype(np.float32)
    nans = [np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, bool) for x in (a, b)]
    same = np.where(nans[0], 0, a).tobytes() == np.where(nans[1], 0, b).tobytes()
    return same and np.array_equal(*nans)


ELEMENTWISE = {
    "arithmetic": lambda x: (x * 1.7 - 0.3) / (x * x + 1.0),
    "exponentials": lambda x: jnp.exp(x) + jnp.expm1(x) * jnp.log1p(jnp.abs(x)),
    "logarithms": lambda x: jnp.log(jnp.abs(x)) + jnp.cbrt(x) + jnp.sqrt(jnp.abs(x)),
    "waves": lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x),
    "hyperbolic": lambda x: jnp.tanh(x) + jnp.arctan2(x, 0.7) + jnp.arcsinh(x),
    "errors": lambda x: jax.lax.erf(x) + jax.scipy.special.erfc(x) + jax.nn.gelu(x),
    "gamma": lambda x: jax.scipy.special.gammaln(x) + jax.scipy.special.digamma(x),
    "powers": lambda x: jnp.abs(x) ** 1.37 + x**3,
    "rounding": lambda x: jnp.round(x) + jnp.floor(x * 0.3) - jnp.trunc(x) + jnp.fmod(x, 3.1),
    "order": lambda x: jnp.maximum(x, 0.4) - jnp.clip(x, -1, 1) + jnp.where(x > 0, x, -x),
    "integers": lambda x: x.astype(jnp.int32) + jnp.isnan(x),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.int32) ^ 7,
    "narrow": lambda x: x.astype(jnp.float16).astype(jnp.float32) + x.astype(jnp.bfloat16),
    "unsigned": lambda x: (jnp.abs(x) % 1000).astype(jnp.uint8),
}
NOT_OF_SPECIAL = {"integers", "unsigned"}
"""What StableHLO leaves open for NaN and numbers out of range."""


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements_have_the_bits_of_x86(name, arm_runner, tmp_path):
    foreign, own = both(ELEMENTWISE[name], ("f4", "n, m"), runner=arm_runner, folder=tmp_path)
    for sizes in ((7, 9), (1, 1), (40, 65)):
        x = numbers("f4", *sizes)
        if name in NOT_OF_SPECIAL:
            x = np.clip(np.nan_to_num(x), -1e6, 1e6)
        (got,), (want,) = foreign.run_numpy([x]), own.run_numpy([x])
        assert equal_bits(got, want), np.nonzero(got != want)


@pytest.mark.parametrize("dtype", slow(["f8", "f2", "bfloat16", "i1", "i4", "i8", "u2"]))
def test_elements_of_all_types(dtype, arm_runner, tmp_path):
    def function(x):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            return jnp.exp(x) + jnp.tanh(x) * x, jnp.sin(x), jnp.round(x)
        return x * 3 + x // 7, x % 5, x.astype(jnp.float32), x << 1

    foreign, own = both(function, (dtype, "n"), runner=arm_runner, folder=tmp_path)
    for size in (1, 13, 300):
        x = numbers(dtype, size)
        for got, want in zip(foreign.run_numpy([x]), own.run_numpy([x]), strict=True):
            assert equal_bits(got.astype(want.dtype), want)


def near(got: np.ndarray, exact: np.ndarray, magnitude: np.ndarray, terms: int) -> None:
    """Rounding of sums of so many `terms`, the sum of whose absolute values is `magnitude`."""
    bound = np.finfo(got.dtype).eps * (np.sqrt(terms) + 8) * magnitude
    assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


def test_products_and_sums(arm_runner, tmp_path):
    def function(x, w):
        return x @ w, x.sum(1), x.sum(0)

    specs = ("f4", "n, k"), ("f4", "k, 96")
    foreign, _ = both(function, *specs, runner=arm_runner, folder=tmp_path)
    rng = np.random.default_rng(0)
    for n, k in ((1, 64), (33, 200), (130, 777)):
        x, w = (rng.normal(size=s).astype("f4") for s in ((n, k), (k, 96)))
        got = foreign.run_numpy([x, w])
        x, w = x.astype(np.float64), w.astype(np.float64)
        for result, one, other in (
            (got[0], x, w), (got[1], x, np.ones(k)), (got[2], x.T, np.ones(n)),
        ):  # fmt: skip
            near(result, one @ other, np.abs(one) @ np.abs(other), one.shape[1])


def test_kernels_of_many_kinds(arm_runner, tmp_path):
    """Sorts, scans, transforms, windows, attention: as here, up to the order of sums."""

    def function(x, i):
        scores = jax.nn.softmax(x @ x.T) @ x
        pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 3), (1, 1), "SAME")
        exact = jnp.sort(x, 1), jnp.argsort(x, 0), pooled, x[i], x.at[i].add(1.0)
        return *exact, jnp.cumsum(x, 0), jnp.abs(jnp.fft.rfft(x)), scores, jnp.var(x, 1)

    foreign, own = both(function, ("f4", "n, 48"), ("i4", "k"), runner=arm_runner, folder=tmp_path)
    rng = np.random.default_rng(1)
    for n, k in ((5, 3), (70, 11)):
        given = [rng.normal(size=(n, 48)).astype("f4"), rng.integers(0, n, k).astype("i4")]
        got, want = foreign.run_numpy(given), own.run_numpy(given)
        for place, (one, other) in enumerate(zip(got, want, strict=True)):
            if place < 5:
                assert equal_bits(one, other), place
            else:
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["f4", *slow(["f8"])])
def test_transforms(dtype, arm_runner, tmp_path):
    """Of powers, products of small primes, primes, and long ones that threads share.

    Those of float32 have the bits of x86-64. Roots of float64 are rounded once from long doubles,
    which have other lengths.
    """
    lengths = (64, 48, 97, 1000, 15, 1 << 15, 10007)

    def function(*arrays):
        return [(jnp.fft.rfft(x), jnp.fft.ifft(x)) for x in arrays]

    specs = [(dtype, f"b, {length}") for length in lengths]
    foreign, own = both(function, *specs, runner=arm_runner, folder=tmp_path)
    rng = np.random.default_rng(4)
    for b in (1, 5):
        given = [rng.normal(size=(b, length)).astype(dtype) for length in lengths]
        found = zip(foreign.run_numpy(given), own.run_numpy(given), strict=True)
        for place, (got, want) in enumerate(found):
            bound = 0 if dtype == "f4" else 4 * np.finfo(dtype).eps * np.abs(want).max()
            assert np.abs(got - want).max() <= bound, lengths[place // 2]


def test_constants_and_packed_copies(arm_runner, tmp_path):
    weight = np.random.default_rng(2).normal(size=(256, 300)).astype("f4")
    function = lambda x: jnp.maximum(x @ weight, 0)  # noqa: E731
    foreign, own = both(function, ("f4", "n, 256"), runner=arm_runner, folder=tmp_path)
    for n in (1, 50):
        x = np.random.default_rng(3).normal(size=(n, 256)).astype("f4")
        (got,), (want,) = foreign.run_numpy([x]), own.run_numpy([x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_wrong_sizes_are_told(arm_runner, tmp_path):
    specs = ("f4", "n, m"), ("f4", "n, m")
    foreign, _ = both(lambda x, y: x + y, *specs, runner=arm_runner, folder=tmp_path)
    with pytest.raises(ShapeMismatchError, match=r"argument 1 \('y'\): dimension 1 must be m"):
        foreign.run_numpy([np.zeros((3, 4), "f4"), np.zeros((3, 5), "f4")])


def test_one_file_for_several_machines(arm_runner, tmp_path):
    foreign, own = both(jnp.exp, ("f4", "n"), runner=arm_runner, folder=tmp_path)
    x = numbers("f4", 33)
    (want,) = own.run_numpy([x])
    own.save(foreign.artifact, targets=["x86-64-v3", TARGET])
    (here,) = shlo_disc.load(foreign.artifact).run_numpy([x])
    (there,) = foreign.run_numpy([x])
    assert equal_bits(there, want)
    assert equal_bits(here, want)
    own.save(foreign.artifact, targets=["x86-64-v3"])
    with pytest.raises(ShapeMismatchError, match="is for x86-64, this is aarch64"):
        foreign.run_numpy([x])
    own.save(foreign.artifact, targets=[TARGET])
    with pytest.raises(UnsupportedError, match="saved for aarch64, none of which runs here"):
        shlo_disc.load(foreign.artifact)


@pytest.mark.slow
@pytest.mark.skipif(not ACCEPTANCE.is_dir(), reason="../shared/acceptance is not here")
def test_programs_of_others(tmp_path):
    command = [sys.executable, "tools/acceptance.py", str(ACCEPTANCE), "--emulated"]
    command += ["--sample", "220", "--timeout", "180", "--json", str(tmp_path / "outcomes")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    outcomes = json.loads((tmp_path / "outcomes").read_text())
    assert sum(outcome["passed"] for outcome in outcomes) >= 200
