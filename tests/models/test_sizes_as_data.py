"""Sizes used as numbers: scalars and small arrays of them through every op, next to `jax.jit`.

Each program is compiled once and called at four shapes. Sizes, and integers computed from them,
are known on the host; whoever needs them in memory must get them there.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.models.harness import check_bits

SIGNED = ("int8", "int16", "int32")
DTYPES = (*SIGNED, "uint8", "uint16", "uint32")
SHAPES = ((3, 4), (1, 9), (8, 2), (2, 7))


def mostly_slow(values, *quick):
    """Parameters of which all but `quick` are slow tests."""
    return [v if v in quick else pytest.param(v, marks=pytest.mark.slow) for v in values]


def matrices():
    return [(np.arange(n * m, dtype=np.float32).reshape(n, m) - 5,) for n, m in SHAPES]


def producers(x, dtype):
    """Small arrays of sizes, of rank 0, 1 and 2 and without elements."""
    n, m = x.shape
    return {
        "scalar": jnp.asarray(n, dtype),
        "sum": jnp.asarray(2 * n + m - 1, dtype),
        "stack": jnp.array([n, m], dtype),
        "mixed": jnp.array([n, 3, m + n, 0], dtype),
        "full": jnp.full((4,), n, dtype),
        "plus_iota": jnp.asarray(n, dtype) + jnp.arange(5, dtype=dtype),
        "times_constant": jnp.asarray(m, dtype) * np.array([1, 2, 3], dtype),
        "minus": jnp.arange(17, dtype=dtype) - jnp.asarray(n, dtype),
        "quotient": (jnp.full((3,), n, dtype) + 7) // 3,
        "remainder": (jnp.full((3,), m, dtype) + 8) % 3,
        "square": jnp.array([[n, m], [1, n]], dtype),
        "none": jnp.full((0,), n, dtype),
        "none_of_two": jnp.full((0, 2), m, dtype),
    }


@pytest.mark.parametrize("dtype", mostly_slow(DTYPES, "int32", "uint8"))
def test_results(dtype):
    check_bits(lambda x: producers(x, dtype), matrices())


def consumers(v, x):
    """What may be done with a vector of at least two small positive integers."""
    i = v.astype(jnp.int32)
    flag = x[0, 0] > 0
    return {
        "add": v + v[0],
        "float": v.astype(jnp.float32) * x[0, 1],
        "concatenate": jnp.concatenate([v, v[:1], jnp.arange(2, dtype=v.dtype)]),
        "reverse": v[::-1],
        "slice": v[1:],
        "pick": v[i[0] % 2],
        "transpose": jnp.stack([v, v]).T,
        "outer": v[:, None] * v[None],
        "broadcast": jnp.broadcast_to(v, (x.shape[0], v.shape[0])),
        "dot": jnp.dot(i, i),
        "float_dot": v.astype(jnp.float32) @ jnp.ones((v.shape[0], 3)),
        "sort": jnp.sort(v),
        "argsort": jnp.argsort(v),
        "cumsum": jnp.cumsum(i),
        "reduce": (v.max(), v.min(), i.sum(), (v > 2).any()),
        "compare": v > v[::-1],
        "where": jnp.where(v > 2, v, v[0]),
        "cond": lax.cond(flag, lambda: v, lambda: v[::-1]),
        "cond_reads": lax.cond(flag, lambda y: y[: v.shape[0]] + v, lambda y: y[0] * v, i),
        "switch": lax.switch(i[0] % 3, [lambda: v, lambda: v + v, lambda: v * 0]),
        "carried": lax.fori_loop(0, i[0], lambda k, c: c + v, v),
        "unchanged": lax.while_loop(lambda c: c[0] < i[1], lambda c: (c[0] + 1, c[1]), (0, v)),
        "scan": lax.scan(lambda c, e: (c + e, c * e), jnp.zeros((), v.dtype), v),
        "read": x[i % x.shape[0]],
        "read_two": x[i % x.shape[0], i % x.shape[1]],
        "set": x.at[i - 1].set(0.0, mode="drop"),
        "accumulate": x.at[:, i % x.shape[1]].add(1.0),
        "scattered": jnp.zeros(12, v.dtype).at[i % 12].add(v),
        "update": lax.dynamic_update_slice(jnp.zeros(9, v.dtype), v, (i[0],)),
        "window": lax.dynamic_slice(x, (i[0] - 1, i[1] - 1), (1, 1)),
        "top": lax.top_k(v, 1),
        "bits": lax.bitcast_convert_type(v, {1: jnp.int8, 2: jnp.int16, 4: jnp.int32}[
            v.dtype.itemsize]),
    }  # fmt: skip


@pytest.mark.parametrize(
    "producer", mostly_slow(["stack", "mixed", "full", "plus_iota", "times_constant"], "mixed")
)
def test_every_consumer(producer):
    def run(x):
        return consumers(producers(x, jnp.int32)[producer], x)

    check_bits(run, matrices())


@pytest.mark.parametrize("dtype", mostly_slow([d for d in DTYPES if d != "int32"], "uint16"))
def test_every_consumer_of_type(dtype):
    check_bits(lambda x: consumers(producers(x, dtype)["stack"], x), matrices())


def test_indices_from_constants_and_sizes():
    """Negative indices are made positive with a size: constants and sizes in one vector."""

    def run(x):
        n = x.shape[0]
        return (
            x.at[np.array([0, -1])].set(0.0),
            x.at[jnp.array([0, -1])].add(1.0),
            x.at[jnp.array([n - 1])].set(0.0),
            x[jnp.array([0, -1])],
            x.at[1 - jnp.arange(3)].set(1.0),
            x.at[-jnp.arange(2)].add(1.0),
            x.at[jnp.arange(n) - 1].set(1.0),
            x.at[-1, jnp.array([0, -1])].multiply(2.0),
        )

    check_bits(run, matrices())


def test_choice():
    def run(key, x):
        return (
            jax.random.choice(key, x, (3,)),
            jax.random.choice(key, x, (3,), p=jax.nn.softmax(x * 0)),
            jax.random.choice(key, x),
        )

    key = jax.random.key_data(jax.random.key(3))
    compiled = shlo_disc.jit(run)
    for n in (1, 70):
        x = np.arange(n, dtype=np.float32)
        for got, wanted in zip(compiled(key, x), jax.jit(run)(key, x), strict=True):
            np.testing.assert_array_equal(got, wanted)


# --- an index that is read from an array by slices ------------------------------------------------


WAYS = {
    "dynamic_slice": lambda x, at: lax.dynamic_slice_in_dim(x, at, 1, axis=1),
    "row": lambda x, at: x[at],
    "two": lambda x, at: (x[at], x[:, at]),
    "computed": lambda x, at: x[at // 2 + 1] * at,
    "update": lambda x, at: lax.dynamic_update_slice_in_dim(x, x[:1] * 2, at, axis=0),
    "set": lambda x, at: x.at[at].set(0.0),
    "loop": lambda x, at: lax.fori_loop(0, at, lambda k, c: c * 2, x),
    "cond": lambda x, at: lax.cond(at > 0, lambda: x[at], lambda: x[0]),
    "float": lambda x, at: x * at + x[at],
}


@pytest.mark.parametrize("way", WAYS)
def test_an_index_read_by_slices(way):
    """The last slice may be a load in its reader; what it slices must then be in memory."""

    def run(x, i):
        return WAYS[way](x, i[0][1]), WAYS[way](x, x[0][1].astype(jnp.int32) % 2)

    def one(x, i):
        return WAYS[way](x, i[0][1])

    cases = []
    for n in (5, 12):
        x = np.arange(n * n, dtype=np.float32).reshape(n, n)
        cases.append((x, (np.arange(n * n).reshape(n, n) % 3).astype(np.int32)))
    check_bits(run, cases)
    check_bits(one, cases)


def test_indices_read_by_slices_of_one_program():
    def run(x, i):
        also = i[1:][:, 0][0]
        ways = [WAYS[way](x, i[0][1]) for way in WAYS]
        return ways, x[also][i[0][1]]

    n = 6
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)
    check_bits(run, [(x, (np.arange(n * n).reshape(n, n) % 3).astype(np.int32))])


def test_a_start_computed_beside_the_slice():
    """The start of a slice that every reader repeats is in memory, or repeated, too."""

    def run(x, i):
        start = (i[0] // 2 + i[1] % 3) // 2
        part = lax.dynamic_slice(x, (start,), (2,))
        return part * 2, part[::-1], part + i[0], jnp.sum(part), start

    check_bits(run, [(np.arange(n, dtype=np.int32), np.array([n, n + 1])) for n in (5, 9)])


# --- sizes in 64 bits -----------------------------------------------------------------------------


def test_floats_of_large_sizes_are_exact():
    """Python's integers do not wrap; what is an int32 in the end does, as an array would."""

    def run(x):
        n = x.shape[0]
        pairs = n * (n - 1) / 2
        return (
            x.sum() / pairs,
            x[0] * n**2,
            x[0] * (n * n * n),
            x[:2] + (n * n - n) // 7,
            jnp.array([n * n, n], jnp.float32),
            jnp.float32(n**2) + jnp.asarray(n * n - 1, jnp.float16),
        )

    compiled = shlo_disc.jit(run)
    for n in (3, 70000, 46341, 100000):
        x = np.ones(n, np.float32)
        got = [np.asarray(g) for g in compiled(x)]
        wanted = [
            np.float32(n) / np.float32(n * (n - 1) / 2),
            np.float32(n**2),
            np.float32(n**3),
            np.full(2, 1 + (n * n - n) // 7, np.float32),
            np.array([n * n, n], np.float32),
            np.float32(n**2) + np.float32(n * n - 1 if n < 256 else np.inf),
        ]
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_allclose(g, w, rtol=3e-7, err_msg=f"n = {n}")
    assert compiled.cache_info().misses == 1


def test_arithmetic_of_arrays_wraps():
    """Integers that are no sizes wrap in their type, unsigned ones made from sizes, too."""

    def run(x, k):
        n = jnp.asarray(x.shape[0]).astype(jnp.uint32)
        mixed = n * jnp.uint32(2654435761)
        cube = k * k * k
        return (
            mixed >> 16,
            mixed % 1000,
            (n + jnp.uint32(4294967290)) // 3,
            (n << 29) >> 29,
            (mixed > 7).astype(jnp.float32),
            mixed.astype(jnp.float32),
            cube.astype(jnp.float32),
            cube // 5,
            (jnp.asarray(x.shape[0]).astype(jnp.int8) * jnp.int8(100)).astype(jnp.float32),
        )

    check_bits(run, [(np.ones(n, np.float32), np.int32(2000 + n)) for n in (3, 8, 40, 300)])


def test_reductions_of_no_numbers():
    def program(x):
        v = jnp.full((x.shape[0] - x.shape[0], 2), x.shape[0], "int32")
        w = jnp.full((0, 0), x.shape[1], "uint32")
        return (
            v.sum(0), v.max(1, initial=3), v.prod(), v[:, ::-1].T.sum(1), jnp.sort(v, 0),
            lax.reduce(w, jnp.array(5, w.dtype), lax.bitwise_and, (1,)), w.sum(0), w.sum(),
        )  # fmt: skip

    check_bits(program, matrices())


WIDE_UNSIGNED = """func.func @main(%x: tensor<?xf32>)
    -> (tensor<ui64>, tensor<ui64>, tensor<ui64>, tensor<i1>, tensor<ui64>, tensor<ui64>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %u = stablehlo.convert %n : (tensor<i32>) -> tensor<ui64>
  %m = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
  %h = stablehlo.constant dense<9223372036854775808> : tensor<ui64>
  %a = stablehlo.minimum %u, %m : tensor<ui64>
  %b = stablehlo.maximum %u, %h : tensor<ui64>
  %c = stablehlo.add %u, %m : tensor<ui64>
  %d = stablehlo.compare LT, %u, %m : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
  %e = stablehlo.remainder %m, %u : tensor<ui64>
  %f = stablehlo.divide %m, %u : tensor<ui64>
  return %a, %b, %c, %d, %e, %f
    : tensor<ui64>, tensor<ui64>, tensor<ui64>, tensor<i1>, tensor<ui64>, tensor<ui64>
}"""


def test_sizes_beside_numbers_that_only_ui64_holds():
    executable = shlo_disc.compile(WIDE_UNSIGNED)
    top = 2**64 - 1
    for n in (1, 7, 40):
        found = [int(np.asarray(r)) for r in executable(np.ones(n, np.float32))]
        assert found == [n, 2**63, n - 1, 1, top % n, top // n]
