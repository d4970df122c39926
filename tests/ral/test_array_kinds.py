"""Arguments of every kind NumPy makes, and 64-bit results while `jax_enable_x64` is off."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc

BASE = np.arange(1, 13, dtype=np.float32).reshape(3, 4) / 3


class Subclass(np.ndarray):
    pass


def misaligned(like: np.ndarray) -> np.ndarray:
    out = np.ndarray(like.shape, like.dtype, np.zeros(like.nbytes + 1, np.uint8), 1)
    out[...] = like
    return out


def read_only(like: np.ndarray) -> np.ndarray:
    out = like.copy()
    out.flags.writeable = False
    return out


KINDS = {
    "as it is": lambda a: a,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian, strided": lambda a: np.repeat(a, 2, 1).astype(a.dtype.newbyteorder(">"))[:, ::2],
    "big-endian, misaligned": lambda a: misaligned(a.astype(a.dtype.newbyteorder(">"))),
    "broadcast": lambda a: np.broadcast_to(a[0], a.shape),
    "Fortran": np.asfortranarray,
    "matrix": lambda a: a.view(np.matrix),
    "misaligned": misaligned,
    "none": lambda a: a[:0],
    "none, big-endian": lambda a: a[:0].astype(a.dtype.newbyteorder(">")),
    "read-only": read_only,
    "record array": lambda a: a.view(np.recarray),
    "field of records": lambda a: np.rec.fromarrays([a, a], names="p, q").p,
    "reversed": lambda a: a[::-1, ::-1],
    "strided": lambda a: np.repeat(a, 3, 0)[::3],
    "subclass": lambda a: a.view(Subclass),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
}


@functools.cache
def doubler(t: str) -> shlo_disc.Executable:
    kind = f"tensor<?x4x{t}>"
    return shlo_disc.compile(
        f"func.func @main(%a: {kind}, %s: tensor<{t}>) -> ({kind}, tensor<{t}>) {{\n"
        f"%0 = stablehlo.add %a, %a : {kind}\n%1 = stablehlo.add %s, %s : tensor<{t}>\n"
        f"return %0, %1 : {kind}, tensor<{t}>\n}}"
    )


@functools.cache
def doubled():
    return shlo_disc.jit(lambda a, s: (a + a, s + s))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint32, np.float16])
@pytest.mark.parametrize("name", KINDS)
def test_an_array_of_any_kind(name, dtype):
    array = KINDS[name](BASE.astype(dtype))
    scalar = array.dtype.type(7)
    zero_rank = np.array(7, array.dtype)  # big-endian where the array is
    t = {"f": "f", "i": "i", "u": "ui"}[array.dtype.kind] + str(8 * array.itemsize)
    want = np.asarray(array, dtype) * dtype(2)
    run = doubler(t)
    calls = [run, run.run_numpy, doubled(), doubled(), doubled()]
    for call in calls:
        for s in (scalar, zero_rank):
            many, one = call((array, s)) if call == run.run_numpy else call(array, s)
            np.testing.assert_array_equal(np.asarray(many), want)
            assert np.asarray(many).dtype == dtype
            assert np.asarray(one) == dtype(14)


@pytest.mark.parametrize("call", ["call", "run_numpy", "jit"])
def test_a_masked_array_is_refused(call):
    array = np.ma.masked_greater(BASE, 2)
    run = doubler("f32")
    calls = {
        "call": run,
        "run_numpy": lambda *arrays: run.run_numpy(arrays),
        "jit": doubled(),
    }
    with pytest.raises((TypeError, ValueError), match=r"(?i)masked ?array"):
        calls[call](array, np.float32(1))


def test_another_type_of_the_same_bytes_is_refused():
    for array in (BASE.astype(">f8"), BASE.view(">i4"), BASE.view([("p", "<f4")])):
        with pytest.raises(TypeError, match="the program takes float32"):
            doubler("f32")(array, np.float32(1))


WIDE = {"i64": np.int64, "ui64": np.uint64, "f64": np.float64}


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("t", WIDE)
@pytest.mark.parametrize("x64", [False, True])
def test_64_bit_results_keep_all_bits(t, x64):
    run = doubler(t)
    dtype = np.dtype(WIDE[t])
    array = np.array([[2**31, 2**40, 3, 2**62]], dtype)
    if dtype.kind == "f":
        array += np.array([2.0**-21, 2.0**-12, 2.0**-51, 0])  # below what float32 holds
    with jax.enable_x64(x64):
        many, one = run(array, array[0, 1])
        with jax.enable_x64(True):
            made = jnp.asarray(array * 2)
        for result in (many, one):
            assert result.dtype == np.asarray(result).dtype == dtype
            assert result.nbytes == result.size * 8
        np.testing.assert_array_equal(np.asarray(many), array * 2)
        assert np.asarray(one) == array[0, 1] * 2
        # As an argument again, twice: the second time its address is remembered.
        for _ in range(2):
            again, _ = run(many, one)
            np.testing.assert_array_equal(np.asarray(again), array * 4)
        # JAX does with it what it does with an array made under enable_x64.
        uses = (
            lambda v: v + 1,
            lambda v: v[::-1],
            lambda v: v[0, 1],
            lambda v: v.astype(np.float32),
            jax.jit(lambda v: v + v),
            jax.device_put,
            np.asarray,
        )
        for f in uses:
            got, want = f(many), f(made)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
        empty, _ = run(array[:0], array[0, 1])
        assert np.asarray(empty).dtype == dtype
    dispatched = jax.jit(lambda v: v)(many)  # outside, whatever was on inside
    assert np.asarray(dispatched).dtype == dtype


def test_the_way_of_jit_keeps_64_bits():
    """Traced under x64 inside a function: results through the dispatcher."""

    def wide(x):
        with jax.enable_x64(True):
            return jnp.asarray(x, np.float64) * (1 + 2.0**-40), x

    compiled = shlo_disc.jit(wide)
    x = np.ones((3,), np.float32)
    for _ in range(3):
        result, narrow = compiled(x)
        assert np.asarray(result).dtype == result.dtype == np.float64
        np.testing.assert_array_equal(np.asarray(result), np.full(3, 1 + 2.0**-40))
        assert narrow.dtype == np.float32
