"""Scatters and updates of slices that compute their updates themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from tests.models.harness import check, kernels, normal, rng_of

SHAPES = ((5, 4, 3), (100, 768, 50), (17, 2, 9))  # (rows, columns, updates)


def case(m, n, k):
    r = rng_of(m, n, k)
    return normal(r, m, n), r.integers(-m - 2, m + 2, k).astype(np.int32), normal(r, k, n)


def test_cheap_work_on_the_updates_of_a_scatter():
    def function(x, at, y):
        return jnp.sin(x).at[at].add(y * 2 + 1)

    assert kernels(function, *case(*SHAPES[0])) == ["loop", "loop", "scatter"]  # sin, places, add
    check(function, [case(*s) for s in SHAPES])


MOVES = {
    "reverse": lambda y: y[:, ::-1] * 2.0,
    "shift": lambda y: jnp.concatenate([y[:, 1:], y[:, :1]], 1),
    "pad": lambda y: jnp.pad(y, ((0, 0), (1, 0)))[:, :-1],
    "transpose": lambda y: jnp.swapaxes(jnp.swapaxes(y, 0, 1) + 1.0, 0, 1),
    "slice": lambda y: jnp.concatenate([y, y], 0)[y.shape[0] :] * 0.5,
    "mask": lambda y: jnp.where(jnp.arange(y.shape[1]) % 2 == 0, y, 0.5),
}


def test_updates_that_are_moved_first():
    """Windows that are rows, several elements a vector, and windows of one element."""

    def function(x, at, y):
        rows = [x.at[at].add(move(y * (k + 1.0))) for k, move in enumerate(MOVES.values())]
        columns = [
            x.T.at[:, at].add(move(y.T * (k + 2.0))) for k, move in enumerate(MOVES.values())
        ]
        return rows, columns

    check(function, [case(*s) for s in ((5, 4, 3), (17, 9, 6))])


BY_ELEMENTS = {
    "rows": lambda x, i, u: x.at[i[:, None], jnp.arange(u.shape[1])].add(u),
    "last one": lambda x, i, u: x.at[i[:, None], jnp.arange(u.shape[1])[None]].set(u),
    "columns": lambda x, i, u: x.T.at[jnp.arange(u.shape[1])[:, None], i[None]].add(u.T),
    "transposed": lambda x, i, u: x.T.at[jnp.arange(u.shape[1])[None], i[:, None]].max(u),
    "two counts": lambda x, i, u: jnp.zeros((x.shape[0], *u.shape)).at[
        i[:, None], jnp.arange(u.shape[0])[:, None], jnp.arange(u.shape[1])
    ].add(u),
    "shifted": lambda x, i, u: x.at[i[:, None], jnp.arange(u.shape[1]) + 1].add(u),
    "one column": lambda x, i, u: x.at[i[:, None], jnp.zeros((1, u.shape[1]), int)].add(u),
    "computed": lambda x, i, u: x.at[((i * 7 + i * i) % 5)[:, None], jnp.arange(u.shape[1])].add(u),
}  # fmt: skip


def test_rows_that_are_indexed_by_elements():
    """Some become rows, some may not."""
    check(
        lambda x, i, u: [update(x, i, u) for update in BY_ELEMENTS.values()],
        [case(*size) for size in ((5, 4, 3), (17, 9, 6), (1, 1, 1))],
    )


BY_ROWS = {
    "one of each": lambda x, i, u: u.at[jnp.arange(u.shape[0]), i].add(x[0, 0]),
    "several": lambda x, i, u: u.at[
        jnp.arange(i.shape[0])[:, None], i[:, None] + jnp.arange(2) * i[:1]
    ].add(u[:, :1]),
    "of planes": lambda x, i, u: jnp.stack([u, u], 1).at[jnp.arange(i.shape[0]), i % 3, i].set(2.0),
    "other way round": lambda x, i, u: u.T.at[i, jnp.arange(i.shape[0])].multiply(u[:, 0]),
    "fewer": lambda x, i, u: jnp.concatenate([u, x]).at[jnp.arange(i.shape[0]), i].min(0.0),
}


def test_rows_that_are_batches():
    """An element of each row, at a place of its own, in range or not; or several."""
    check(
        lambda x, i, u: [update(x, i, u) for update in BY_ROWS.values()],
        [case(*size) for size in ((5, 4, 3), (17, 9, 600), (1, 1, 1))],
    )
    f = shlo_disc.jit(BY_ROWS["one of each"])
    assert "input_batching_dims = [0]" in f.lower(*case(5, 4, 3)).as_text("disc")


def test_rows_have_no_index_of_each_element():
    def function(x, i, u):
        count = u.shape[1]
        return jnp.zeros((len(x), count)).at[i[:, None], jnp.arange(count)].add(u)

    text = shlo_disc.jit(function).lower(*case(9, 4, 3)).as_text("disc")
    assert "update_window_dims = [1], inserted_window_dims = [0]" in text
    assert "stablehlo.concatenate" not in text


def test_updates_that_are_looked_up_are_read_by_rows():
    """No division finds the row of an element, and no vector gathers what is a row."""

    def function(x, i, u):
        return jax.ops.segment_sum(x[i] * u, i, x.shape[0])

    args = case(*SHAPES[1])
    f = shlo_disc.jit(function)
    np.testing.assert_allclose(f(*args), jax.jit(function)(*args), rtol=1e-5, atol=1e-6)
    text = f.lower(*args).as_text("kernels")
    assert "arith.addf" in text
    assert "arith.divf" not in text
    assert "vector.gather" not in text


def test_gradients_of_columns_taken_in_another_order():
    def function(x, w):
        def loss(x, w):
            shifted = jnp.concatenate([x[:, 1:], x[:, :1]], 1)
            return ((shifted @ w[:, ::-1]) ** 2).mean()

        return jax.grad(loss, (0, 1))(x, w)

    check(function, [(normal(rng_of(m), m, 8), normal(rng_of(8), 8, 8)) for m in (5, 9)])


def test_costly_work_is_done_before():
    def function(x, at, y):
        return x.at[at].set(jnp.exp(y))

    assert kernels(function, *case(*SHAPES[0])).count("loop") == 2
    check(function, [case(*s) for s in SHAPES])


def test_updates_computed_from_what_is_updated():
    """Not in place then: an update would be computed from what another has changed."""

    def function(x, at, y):
        x = jnp.sin(x)
        return x.at[at].add(x[: y.shape[0]] * y)

    check(function, [case(*s) for s in SHAPES[::2]])


def test_updates_that_others_read_are_stored():
    def function(x, at, y):
        z = y * 2 + 1
        return x.at[at].add(z), z

    check(function, [case(*s) for s in SHAPES])


def test_a_cache_of_keys():
    """[B, H, T, D], one entry [B, 1, H, D] at a time: no run of memory."""

    def function(cache, key, at):
        zero = jnp.zeros_like(at)
        return lax.dynamic_update_slice(
            jnp.cos(cache), jnp.swapaxes(key * 0.5, 1, 2), (zero, zero, at, zero)
        )

    def cache(b, h, t, d, at):
        r = rng_of(b, h, t)
        return normal(r, b, h, t, d), normal(r, b, 1, h, d), np.int32(at)

    found = kernels(function, *cache(2, 3, 7, 4, 2))
    assert [kind for kind in found if kind != "host"] == ["loop", "dynamic_update_slice"]
    check(function, [cache(2, 3, 7, 4, 2), cache(2, 4, 9, 8, 20), cache(3, 2, 5, 16, -1)])


OWN_PLACES = {
    "array, places and updates": lambda y: y.at[y].max(y),
    "places and updates": lambda y: jnp.zeros(5, y.dtype).at[y].add(y),
    "array and updates": lambda y: y.at[jnp.array([1, 0])].multiply(y),
    "array and places": lambda y: y.at[y].set(7),
    "places computed from updates": lambda y: jnp.ones(5, y.dtype).at[y * 2 + 1].multiply(y),
    "moved places": lambda y: jnp.zeros(5, y.dtype).at[y[::-1]].add(y),
    "one element": lambda y: jnp.arange(5, dtype=y.dtype).at[y[1]].multiply(y[1]),
    "start and slice": lambda y: lax.dynamic_update_slice(jnp.arange(5, dtype=y.dtype), y, (y[0],)),
    "array, start and slice": lambda y: lax.dynamic_update_slice(y, y, (y[0],)),
    "read as well": lambda y: (y.at[y].add(y), y + 1),
}


def test_one_value_that_is_array_places_and_updates():
    """Few integers are computed where they are needed, but places and arrays are in memory."""

    def function(x, start):
        sources = [
            x[1:3],
            lax.dynamic_slice_in_dim(x, start, 2),
            x[::-1][:2],
            jnp.concatenate([x[:1], x[3:4]]),
            jnp.stack([x.sum() % 5, x.max()]),
        ]
        return [[use(y) for y in sources] for use in OWN_PLACES.values()]

    arrays = [np.arange(n, dtype=np.int32) % 3 for n in (5, 9)]
    check(function, [(x, np.int32(len(x) - 4)) for x in arrays])


OWN_LOOK_UPS = {
    "array and places": lambda y: y[y],
    "filled": lambda y: y.at[y].get(mode="fill", fill_value=7),
    "read as it is, too": lambda y: y.astype("float32") * y[y].astype("float32"),
    "twice": lambda y: y[y[y]],
    "moved": lambda y: y[::-1][y] + y[y][::-1],
    "windows of it": lambda y: lax.reduce_window(y, y.dtype.type(0), lax.add, (2,), (1,), "SAME"),
    "windows of a look-up": lambda y: lax.reduce_window(
        y.at[y].get(mode="fill", fill_value=1), y.dtype.type(0), lax.max, (2,), (1,), "SAME"
    ).astype("int8"),
    "updates, too": lambda y: y.at[y].add(y[y]),
}

FEW_INTEGERS = {
    "sizes": lambda x, k: jnp.array([x.shape[0], k, x.shape[0] + k], "int32"),
    "sizes through floats": lambda x, k: jnp.abs(
        jnp.array([x.shape[0], k, x.shape[0]], "float32")
    ).astype("uint32"),
    "sums": lambda x, k: jnp.stack([x.sum() + k, x.max(), x[0]]).astype("int32"),
    "running totals": lambda x, k: jnp.cumsum(jnp.array([x.shape[0], k, 1], "int32")),
}


def test_one_value_that_is_array_and_places():
    """What is read in memory is not computed in the kernel that reads it."""

    def function(x):
        # Every use has its own integers: what others read is stored in any case.
        return [
            use(few(x, k))
            for few in FEW_INTEGERS.values()
            for k, use in enumerate(OWN_LOOK_UPS.values())
        ]

    check(function, [(np.arange(n, dtype=np.float32) % 3,) for n in (5, 9)])


@pytest.mark.parametrize("start", ["i8", "i32", "ui64"])
def test_starts_that_are_written_behind_what_they_place(start):
    """Constants between the largest numbers and their update, also in a loop's body."""
    text = """func.func @main(%x: ROW, %y: ROWS) -> (ROWS, ROWS) {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %i = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.tanh %y : ROWS
      %b, %places = "chlo.top_k"(%x) {k = 2 : i64} : (ROW) -> (TWO, tensor<1x2xi32>)
      %c = stablehlo.constant dense<1> : tensor<START>
      %r = stablehlo.dynamic_update_slice %a, %b, %c, %c
        : (ROWS, TWO, tensor<START>, tensor<START>) -> ROWS
      %w:3 = stablehlo.while(%k = %i, %t = %y, %z = %x) : tensor<i32>, ROWS, ROW cond {
        %go = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %k, %one : tensor<i32>
        %u, %at = "chlo.top_k"(%z) {k = 2 : i64} : (ROW) -> (TWO, tensor<1x2xi32>)
        %d = stablehlo.constant dense<0> : tensor<START>
        %o = stablehlo.dynamic_update_slice %t, %u, %d, %d
          : (ROWS, TWO, tensor<START>, tensor<START>) -> ROWS
        %h = stablehlo.negate %z : ROW
        stablehlo.return %next, %o, %h : tensor<i32>, ROWS, ROW
      }
      return %r, %w#1 : ROWS, ROWS }"""
    types = {"ROWS": "tensor<5x3xf32>", "ROW": "tensor<1x3xf32>", "TWO": "tensor<1x2xf32>"}
    for name, kind in {**types, "START": start}.items():
        text = text.replace(name, kind)
    r = rng_of(5)
    x, y = normal(r, 1, 3), normal(r, 5, 3)
    placed, looped = np.tanh(y), y.copy()
    placed[1, 1:] = looped[0, :2] = np.sort(x[0])[:0:-1]
    found = shlo_disc.compile(text).run_numpy([x, y])
    np.testing.assert_allclose(found[0], placed, rtol=1e-6)
    np.testing.assert_array_equal(found[1], looped)
