"""Starts and indices of every integer type, as large and as small as it holds, next to `jax.jit`.

An unsigned start is never negative, however many bits it has: it is clamped to the last place.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.models.harness import check_bits

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
QUICK = ("uint32", "uint64")


def slices(x, i):
    """Everything that clamps a start; the size of a window may be a symbol or a number."""
    new = x[:2, :2] * 0 - 1

    def stacked(carry, j):
        return carry, lax.dynamic_index_in_dim(x, j, keepdims=False)

    def stored(k, c):
        """The new row is computed where it is stored."""
        return lax.dynamic_update_slice_in_dim(c, x[:1] * 2 - k, i[0], 0)

    return {
        "row": lax.dynamic_index_in_dim(x, i[0], keepdims=False),
        "rows": lax.dynamic_slice_in_dim(x, i[0], 2),
        "columns": lax.dynamic_slice_in_dim(x, i[1], 2, axis=1),
        "window": lax.dynamic_slice(x, (i[0], i[1]), (2, 2)),
        "symbolic": lax.dynamic_slice(x, (i[0], i[2]), (x.shape[0] - 1, 2)),
        "computed": lax.dynamic_slice_in_dim(x, i[0] | i[2], 2),
        "update_rows": lax.dynamic_update_slice_in_dim(x, x[:2] * 0 - 1, i[0], 0),
        "update_window": lax.dynamic_update_slice(x, new, (i[0], i[1])),
        "update_row": lax.dynamic_update_index_in_dim(x, x[0] * 2, i[1], 0),
        "batched": jax.vmap(lambda j: lax.dynamic_slice_in_dim(x, j, 2))(i),
        "batched_update": jax.vmap(
            lambda j: lax.dynamic_update_slice_in_dim(x, x[:1] * 0 - 1, j, 0)
        )(i),
        "in_place": lax.fori_loop(0, 3, stored, x * 3),
        "scanned": lax.scan(stacked, 0.0, i)[1],
        "converted": lax.dynamic_slice_in_dim(x, i[0].astype(jnp.int32), 2),
    }


def numbers(x, i):
    """Indices within bounds after arithmetic of their own type, and numbers that steer."""
    n = jnp.asarray(x.shape[0], i.dtype)
    return {
        "remainder": x[i % n],
        "scattered": x.at[i % n].add(1.0),
        "dropped": x.at[i // 2].set(0.0, mode="drop") if i.dtype.itemsize < 8 else x,
        "compared": jnp.where(i[0] > i[1], x, -x),
        "branch": lax.cond(i[0] > 100, lambda: x, lambda: -x),
        "switch": lax.switch((i[0] % 3).astype(jnp.int32), [lambda: x, lambda: x * 2, lambda: -x]),
        "counted": lax.while_loop(lambda c: c[0] > 5, lambda c: (c[0] // 3, c[1] + 1), (i[0], x)),
        "bound": lax.fori_loop(jnp.zeros((), i.dtype), jnp.minimum(i[0], 3), lambda k, c: c + 1, x),
        "extremes": (i.max(), i.min(), jnp.sort(i), jnp.argsort(i)),
        "float": i.astype(jnp.float32) * x[0, 0],
    }


@pytest.mark.parametrize(
    "dtype", [d if d in QUICK else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES]
)
def test_starts(dtype):
    most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
    picks = [(most, 0, 1), (most // 2 + 1, 1, 2), (1, most - 1, 0), (least, 2, most)]
    cases = []
    for values, (n, m) in zip(picks * 2, [(4, 5), (6, 3)] * 4, strict=True):
        x = np.arange(n * m, dtype=np.float32).reshape(n, m) + 1
        cases.append((x, np.array(values, dtype)))
    wide = np.dtype(dtype).itemsize == 8
    with jax.enable_x64(True) if wide else contextlib.nullcontext():
        check_bits(slices, cases)
        check_bits(numbers, cases)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["ui64", "i64", "ui32", "i8"])
def test_starts_at_the_ends_of_their_type(name, known):
    """An index has 63 bits and a sign; starts are clamped as the specification says."""
    dtype = np.dtype(name.replace("ui", "uint") if name[0] == "u" else f"int{name[1:]}")
    limits = np.iinfo(dtype)
    numbers = {limits.min, limits.min + 1, 0, 3, 5, limits.max - 1, limits.max, limits.max // 2 + 1}
    x = np.arange(7, dtype=np.uint8)
    for start in numbers:
        kind = f"tensor<{name}>"
        begin = f"%c = stablehlo.constant dense<{start}> : {kind}\n" if known else ""
        taken = "" if known else f", %c: {kind}"
        run = shlo_disc.compile(
            f"func.func @main(%x: tensor<7xui8>, %u: tensor<2xui8>{taken})"
            f" -> (tensor<3xui8>, tensor<7xui8>) {{\n{begin}"
            '%r = "stablehlo.dynamic_slice"(%x, %c) {slice_sizes = array<i64: 3>} : '
            f"(tensor<7xui8>, {kind}) -> tensor<3xui8>\n"
            f"%s = stablehlo.dynamic_update_slice %x, %u, %c : "
            f"(tensor<7xui8>, tensor<2xui8>, {kind}) -> tensor<7xui8>\n"
            "return %r, %s : tensor<3xui8>, tensor<7xui8>\n}"
        )
        update = np.array([100, 200], np.uint8)
        got = run.run_numpy([x, update, *([] if known else [np.array(start, dtype)])])
        at = min(max(start, 0), 4)
        np.testing.assert_array_equal(got[0], x[at : at + 3])
        want = x.copy()
        at = min(max(start, 0), 5)
        want[at : at + 2] = update
        np.testing.assert_array_equal(got[1], want)
