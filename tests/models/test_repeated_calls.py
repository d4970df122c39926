"""A call's result is a function of sizes and values: earlier calls, where the operands lie, and who
computes which piece change no bit.

Every program is called with the same values in many ways, among calls with other values and sizes:
the array of the first call, arrays that come for the second time, fresh ones, numpy arrays and
views of numpy arrays at odd addresses, donated ones, with and without kept copies of weights.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from tests.children import forked
from tests.models.harness import rng_of

Arrays = tuple[np.ndarray, ...]

ROWS = (5, 1, 2, 3, 8, 9, 19)
"""Sizes on both sides of what kernels choose by: a row, few rows, a register tile, several."""

ALL_ROWS = (*ROWS, 4, 6, 7, 16, 17, 33, 40, 129, 260)


@dataclass(frozen=True)
class Program:
    """A function and the arrays it is called with."""

    function: Callable[..., Any]
    arrays: Callable[[int], Arrays]
    """The arguments for a number of rows."""


def values(seed: int, dtype: Any, *sizes: int) -> np.ndarray:
    """Numbers whose sums round."""
    rng = rng_of(seed, *sizes)
    if jnp.issubdtype(dtype, jnp.integer):
        low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) else -100
        return rng.integers(low, 100, sizes).astype(dtype)
    return rng.standard_normal(sizes).astype(dtype)


def odd(x: np.ndarray) -> np.ndarray:
    """The same values, one element behind an address that vectors like."""
    room = np.empty(x.size * x.itemsize + 128, np.uint8)
    first = -room.ctypes.data % 64 + x.itemsize
    view = room[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def digest(result: Any) -> str:
    """All bits of a result, whatever its structure."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
    text = b"".join(f"{x.dtype}{x.shape}".encode() + x.tobytes() for x in leaves)
    return hashlib.sha256(text).hexdigest()


def ways(call: Callable[..., Any], arrays: Arrays) -> Iterator[tuple[str, str]]:
    """The same call in many ways: what is special about it, and the digest of its result."""
    kept = tuple(map(jnp.asarray, arrays))
    for number in range(3):
        yield f"jax.Array, time {number}", digest(call(*kept))
    yield "fresh jax.Array", digest(call(*map(jnp.array, arrays)))
    yield "numpy", digest(call(*arrays))
    yield "numpy at odd addresses", digest(call(*map(odd, arrays)))
    mixed = (x if k % 2 else y for k, (x, y) in enumerate(zip(kept, arrays, strict=True)))
    yield "numpy and jax.Array", digest(call(*mixed))
    ral.pack_clear()
    yield "without kept copies", digest(call(*kept))
    yield "with copies again", digest(call(*kept))


def as_one(programs: Sequence[Program]) -> tuple[Callable[..., Any], Callable[[int], Arrays]]:
    """All programs as one function, and its arguments: one compilation."""
    sizes = [len(p.arrays(1)) for p in programs]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]

    def together(*arrays: Any) -> list[Any]:
        return [
            p.function(*arrays[at : at + count])
            for p, at, count in zip(programs, starts, sizes, strict=True)
        ]

    return shlo_disc.jit(together), lambda m: tuple(x for p in programs for x in p.arrays(m))


def check(programs: Sequence[Program], rows: Sequence[int]) -> None:
    """All programs as one, every way at every number of rows, twice and interleaved."""
    check_call(*as_one(programs), len(programs), rows)


def check_call(
    call: Callable[..., Any], arrays: Callable[[int], Arrays], count: int, rows: Sequence[int]
) -> None:
    """The same of `count` programs that are one already."""
    given = {m: arrays(m) for m in rows}
    want: dict[int, list[str]] = {}
    for _ in range(2):
        for m in rows:
            for way, got in each(call, given[m], count):
                first = want.setdefault(m, got)
                differ = [k for k in range(count) if got[k] != first[k]]
                assert not differ, f"programs {differ} at {m} rows differ: {way}"
    assert call.cache_info().currsize == 1


def each(call: Callable[..., Any], arrays: Arrays, count: int) -> Iterator[tuple[str, list[str]]]:
    """`ways`, with a digest for every one of the results."""
    found: list[str] = []

    def noted(*given: Any) -> Any:
        results = call(*given)
        found[:] = [digest(result) for result in results]
        return results

    for way, _ in ways(noted, arrays):
        assert len(found) == count
        yield way, list(found)


# -- products ---------------------------------------------------------------------------------


def product(
    spec: str,
    dtype: Any = np.float32,
    seed: int = 0,
    preferred_element_type: Any = None,
    **sizes: int,
) -> Program:
    """An einsum; its size `m` is the number of rows."""
    left, right = (side for side in spec.split("->", maxsplit=1)[0].split(","))
    fixed = {"k": 77, "n": 53, "b": 3, "l": 4, **sizes}

    def arrays(rows: int) -> Arrays:
        of = {**fixed, "m": rows}
        return tuple(
            values(seed + k, dtype, *(of[axis] for axis in axes))
            for k, axes in enumerate((left, right))
        )

    wide = {"preferred_element_type": preferred_element_type}
    return Program(functools.partial(jnp.einsum, spec, **wide), arrays)


LAYOUTS = (
    "mk,kn->mn",
    "mk,nk->mn",
    "km,kn->mn",
    "km,nk->mn",
    "mk,nk->nm",
    "bmk,bkn->bmn",
    "bmk,bnk->bmn",
    "bmk,nk->bmn",
    "mbk,nk->bmn",
    "bmk,nk->mnb",
    "mkl,nkl->mn",
    "mkl,knl->mn",
    "mk,k->m",
    "k,nk->n",
    "mk,mk->m",
    "bm,bn->mn",
)


@pytest.mark.slow
def test_products_in_every_layout():
    check([product(spec, seed=k) for k, spec in enumerate(LAYOUTS)], ROWS)


def deep() -> list[Program]:
    """Products so deep that up to five rows read the weight in place, packed before or not."""
    wide = {"preferred_element_type": np.float32}
    return [
        product("mk,nk->mn", k=300),
        product("mk,nk->mn", jnp.bfloat16, k=256, **wide),
        with_weight(lambda x, w: jax.nn.gelu(x @ w.T), (53, 300), k=300),
    ]


def test_deep_products_of_few_rows():
    check(deep(), (3, 5, 6))


def with_weight(
    function: Callable[..., Any], *weights: tuple[int, ...], k: int = 77, dtype: Any = np.float32
) -> Program:
    """`function(x, *weights)` with x: [rows, k]."""

    def arrays(rows: int) -> Arrays:
        x = values(1, dtype, rows, k)
        return (x, *(values(n + 2, dtype, *sizes) for n, sizes in enumerate(weights)))

    return Program(function, arrays)


def layer_norm(x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


CONSTANT = values(9, np.float32, 53, 77)


def around_products() -> list[Program]:
    """What is computed in front of, behind and beside a product in its kernel."""

    def padded(x: jax.Array) -> jax.Array:
        twice = jnp.concatenate([x, x], 1)
        y = jax.lax.pad(twice, jnp.float32(0), ((0, 0, 0), (3, 0, 1)))
        return y @ y.T

    def gates(x: jax.Array, w: jax.Array) -> jax.Array:
        a, b, c = jnp.split(x @ w.T, 3, -1)
        return jax.nn.sigmoid(a) * jnp.tanh(b) + c

    return [
        with_weight(lambda x, w, b: jax.nn.gelu(x @ w.T + b), (53, 77), (53,)),
        with_weight(lambda x, w: layer_norm(x @ w.T), (64, 77)),
        with_weight(lambda x, w, v, u: (x @ w.T, x @ v.T, x @ u.T), *[(48, 77)] * 3),
        with_weight(lambda x: x @ CONSTANT.T),
        with_weight(lambda x, w: x @ w[:, 3:80].T, (53, 90)),
        with_weight(lambda x, w: x @ jnp.tanh(w).T, (53, 77)),
        with_weight(lambda x, w: x @ (w - w.mean(0)).T, (53, 77)),
        with_weight(lambda x, w: jnp.where(x > 0, x, 0.0) @ w.T, (53, 77)),
        with_weight(lambda x, w: x @ w[jnp.arange(50) * 7 % 53].T, (53, 77)),
        with_weight(gates, (96, 77)),
        with_weight(lambda x: x @ x.T),
        with_weight(padded, k=3),
    ]


@pytest.fixture(scope="module")
def around() -> tuple[Callable[..., Any], Callable[[int], Arrays]]:
    """`around_products` as one function, compiled once for all tests."""
    return as_one(around_products())


def test_what_is_around_products(around):
    check_call(*around, len(around_products()), ROWS)


@pytest.mark.slow
def test_products_of_other_types():
    specs, types = ("mk,nk->mn", "bmk,nk->bmn"), (jnp.float16, jnp.bfloat16, np.int8)
    # Sums that are rounded to 16 bits would hide a difference.
    wide = {"preferred_element_type": np.float32}
    programs = [product(spec, dtype) for spec in specs for dtype in types]
    programs += [product(spec, dtype, **wide) for spec in specs for dtype in types[:2]]
    check(programs, (5, 1, 2, 9))


def test_products_of_float64():
    with jax.enable_x64(True):
        specs = ("mk,kn->mn", "mk,nk->mn", "bmk,nk->bmn", "km,nk->mn")
        check([product(spec, np.float64, seed=k) for k, spec in enumerate(specs)], (5, 1, 2, 9))


# -- models -----------------------------------------------------------------------------------


def attention(x: jax.Array, w: jax.Array) -> jax.Array:
    q, k, v = jnp.split(jnp.einsum("bti,oi->bto", x, w), 3, -1)

    def heads(y: jax.Array) -> jax.Array:
        return y.reshape(*y.shape[:-1], 2, 8).swapaxes(1, 2)

    scores = heads(q) @ heads(k).swapaxes(-1, -2) / 8**0.5
    return jax.nn.softmax(scores, -1) @ heads(v)


def lstm(xs: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
    def step(carry: Any, x: jax.Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ w.T + h @ u.T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[1]))
    return jax.lax.scan(step, (zero, zero), xs)[1]


def perceptron(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ w.T) @ v.T) ** 2)


def models() -> list[Program]:
    """Programs of other kernels: attention, convolution, loops, gradients, reductions, updates."""

    def images(*kernel: int) -> Callable[[int], Arrays]:
        return lambda m: (values(m, np.float32, 2, m + 4, 6, 8), values(1, np.float32, *kernel))

    def conv(layout: str, **options: Any) -> Callable[..., Any]:
        return functools.partial(
            jax.lax.conv_general_dilated,
            window_strides=(1, 1),
            dimension_numbers=("NHWC", layout, "NHWC"),
            **{"padding": "VALID", **options},
        )

    def scattered(x: jax.Array) -> jax.Array:
        places = jnp.arange(x.shape[0]) * 5 % 7
        return jnp.zeros((7, x.shape[1])).at[places].add(x)

    return [
        Program(
            attention, lambda m: (values(m, np.float32, 3, m, 16), values(1, np.float32, 48, 16))
        ),
        Program(conv("HWIO"), images(3, 3, 8, 12)),
        Program(conv("OHWI", padding="SAME"), images(12, 3, 3, 8)),
        Program(conv("OHWI"), images(12, 1, 1, 8)),
        Program(conv("HWIO", feature_group_count=8), images(3, 3, 1, 8)),
        Program(
            lstm,
            lambda m: (
                values(m, np.float32, 6, m, 20),
                values(1, np.float32, 64, 20),
                values(2, np.float32, 64, 16),
            ),
        ),
        with_weight(jax.value_and_grad(perceptron, (0, 1, 2)), (53, 77), (20, 53)),
        with_weight(
            lambda x: (jax.nn.softmax(x), jax.nn.softmax(x, 0), x.sum(0), x.sum(1), x.sum())
        ),
        with_weight(lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x, 1), jax.nn.logsumexp(x))),
        with_weight(scattered),
        with_weight(lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), jax.lax.top_k(x, 5), x.argmax())),
        with_weight(lambda x: jax.random.normal(jax.random.key(3), x.shape) * x),
    ]


@pytest.mark.slow
def test_models():
    check(models(), (5, 1, 2, 9))


def test_long_sums():
    # Cut into pieces for all cores.
    def arrays(rows: int) -> Arrays:
        return values(rows, np.float32, rows, 1 << 16), values(1, np.float32, 3, 1 << 16)

    check(
        [
            Program(lambda x, w: x @ w.T, arrays),
            Program(
                lambda x, w: x.T @ w[:1, : x.shape[0]].T,
                lambda m: tuple(x[:, :4096] for x in arrays(m)),
            ),
            Program(lambda x, w: (x.sum(), x.sum(1), jax.nn.softmax(x, 1), w.mean()), arrays),
        ],
        (2, 1, 3),
    )


def test_donated_operands():
    # A result takes the memory of `w`, which a product reads in between.
    def function(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = x @ w.T
        return y, w * 0.9 + y.sum()

    donating = shlo_disc.jit(function, shapes=("m, k", "n, k"), donate_argnums=1)
    plain = shlo_disc.jit(function, shapes=("m, k", "n, k"))
    fresh = shlo_disc.jit(lambda x: x + 0.0)
    for rows in (5, 1, 2, 40):
        x, w = values(1, np.float32, rows, 77), values(2, np.float32, 53, 77)
        want = digest(plain(x, w))
        for _ in range(4):
            assert digest(donating(fresh(x), fresh(w))) == want
            assert digest(plain(fresh(x), fresh(w))) == want
            assert digest(donating(x, w)) == want
            assert digest(plain(x, w)) == want


def test_calls_of_many_threads_at_once(around):
    # One thread fills the kept copies, the others go on without.
    call, arrays = around
    given = {m: arrays(m) for m in (1, 5, 40)}
    want = {m: digest(call(*given[m])) for m in given}
    start = threading.Barrier(4)

    def work(_: int) -> list[bool]:
        start.wait(30)
        return [digest(call(*kept[m])) == want[m] for _ in range(3) for m in given]

    for _ in range(3):
        kept = {m: tuple(map(jnp.asarray, given[m])) for m in given}
        ral.pack_clear()
        with ThreadPoolExecutor(4) as threads:
            assert all(same for found in threads.map(work, range(4)) for same in found)


def test_a_loop_with_a_copy_for_one_call():
    # The first steps of a recurrent layer of numpy's weights have no copy of them, the others do.
    arrays = {
        rows: (values(0, np.float32, 6, rows, 20), *(values(k, np.float32, 64, n) for k, n in
               ((1, 20), (2, 16))))
        for rows in (1, 3, 5, 33)
    }  # fmt: skip
    call = shlo_disc.jit(lstm)
    for given in arrays.values():
        found = {digest(call(*given)), *(digest(call(*map(jnp.array, given))) for _ in range(2))}
        kept = tuple(map(jnp.asarray, given))
        assert {*found, *(digest(call(*kept)) for _ in range(3))} == found
        assert len(found) == 1


def test_a_call_inside_jax_jit_is_the_same_call(around):
    call, arrays = around
    for m in (5, 1, 2):
        given = tuple(map(jnp.asarray, arrays(m)))
        assert digest(jax.jit(call)(*given)) == digest(call(*given))


def all_programs() -> list[tuple[str, list[Program]]]:
    return [
        ("layouts", [product(spec, seed=k) for k, spec in enumerate(LAYOUTS)]),
        ("deep", [product(spec, seed=k, k=1031, n=200) for k, spec in enumerate(LAYOUTS)]),
        ("around", around_products()),
        ("models", models()),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in all_programs()])
def test_all_sizes(name):
    check(dict(all_programs())[name], ALL_ROWS)


def summary() -> str:
    """One digest of all programs at some sizes, for comparison between processes."""
    found = []
    for _, programs in all_programs()[1:]:
        call, arrays = as_one(programs)
        found += [digest(call(*arrays(m))) for m in (5, 2, 40)]
    return hashlib.sha256("".join(found).encode()).hexdigest()


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit():
    code = "from tests.models.test_repeated_calls import summary; print(summary())"
    one, seven = (forked(code, 500, SHLO_DISC_NUM_THREADS=str(threads)) for threads in (1, 7))
    assert one == seven
