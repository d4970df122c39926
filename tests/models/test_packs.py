"""What is computed from one weight alone is packed beside that weight, once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral

pytestmark = pytest.mark.usefixtures("no_packs")


def filled():
    return ral.pack_stats()["filled"]


def check(f, fn, *args):
    got, want = f(*args), fn(*args)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def weights(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def test_slices_of_a_weight_are_packed_once_each():
    def fn(x, w):
        half = w.shape[1] // 2
        return x @ w[:, :half] + jnp.tanh(x) @ w[:, half:]

    f, w = shlo_disc.jit(fn), weights(0, 32, 64)
    check(f, fn, weights(1, 40, 32), w)
    before = filled()
    for rows in (40, 50, 70):
        check(f, fn, weights(rows, rows, 32), w)
    assert filled() == before
    # Another weight of the same shape has slices of its own.
    other = weights(2, 32, 64)
    for rows in (40, 50, 70):
        check(f, fn, weights(rows, rows, 32), other)
    assert filled() > before


def test_two_slices_at_one_size_are_two_packs():
    first = shlo_disc.jit(lambda x, w: x @ w[:, 0:16])
    second = shlo_disc.jit(lambda x, w: x @ w[:, 16:32])
    x, w = weights(0, 40, 32), weights(1, 32, 32)
    for _ in range(3):
        check(first, lambda x, w: x @ w[:, 0:16], x, w)
        check(second, lambda x, w: x @ w[:, 16:32], x, w)


def test_equal_formulas_of_other_sizes_are_two_packs():
    # Rows n to 2n of a weight: n is half of its rows in one function, a third in the other.
    def half(x, w):
        n = w.shape[0] // 2
        return x @ w[n : 2 * n]

    def third(x, w):
        n = w.shape[0] // 3
        return x @ w[n : 2 * n]

    w = weights(0, 48, 100)
    first, second = shlo_disc.jit(half), shlo_disc.jit(third)
    for _ in range(3):
        check(first, half, weights(1, 40, 24), w)
        check(second, third, weights(2, 40, 16), w)


def test_what_depends_on_another_size_is_computed_at_every_call():
    # How much of the weight is used depends on the rows of x.
    def fn(x, w):
        return x @ w[:, : x.shape[0]]

    f, w = shlo_disc.jit(fn), weights(0, 8, 100)
    for rows in (40, 50, 40, 70, 50):
        check(f, fn, weights(rows, rows, 8), w)


RESHAPED = """func.func public @main(%x: tensor<?x?xf32>, %y: tensor<?xf32>, %v: tensor<?xf32>)
    -> tensor<?x?xf32> {
  %a = "stablehlo.get_dimension_size"(%x) <{dimension = 1 : i64}> : (tensor<?x?xf32>) -> tensor<i32>
  %b = "stablehlo.get_dimension_size"(%y) <{dimension = 0 : i64}> : (tensor<?xf32>) -> tensor<i32>
  %a1 = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %a1, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %flat = BODY : tensor<?xf32>
  %w = stablehlo.dynamic_reshape %flat, %s : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %r = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""


@pytest.mark.parametrize("body", ["stablehlo.add %v, %v", "stablehlo.reverse %v, dims = [0]"])
def test_a_reshape_to_sizes_of_other_arguments_is_not_kept(body):
    # The buffer is the same in every call, the matrix in it is not.
    program = shlo_disc.compile(RESHAPED.replace("BODY", body))
    v = weights(0, 24 * 40)
    flat = np.asarray(v) * 2 if "add" in body else np.asarray(v)[::-1]
    for _ in range(3):
        for a, b in ((24, 40), (40, 24)):
            x = weights(a, 64, a)
            (got,) = program(x, np.zeros(b, np.float32), v)
            want = np.asarray(x) @ flat.reshape(a, b)
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)


def test_equal_symbols_of_other_programs_are_other_sizes():
    # Both programs multiply by a matrix of k rows of n; the buffer has k rows in the first only.
    text = """func.func public @main(%x: tensor<?x?xf32> {disc.shape = ["m", "k"]},
        %w: tensor<?x?xf32> {disc.shape = [SIZES]}) -> tensor<?x?xf32> {
      %k = "stablehlo.get_dimension_size"(%w) <{dimension = K : i64}>
          : (tensor<?x?xf32>) -> tensor<i32>
      %n = "stablehlo.get_dimension_size"(%w) <{dimension = N : i64}>
          : (tensor<?x?xf32>) -> tensor<i32>
      %k1 = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
      %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %s = stablehlo.concatenate %k1, %n1, dim = 0
          : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %v = stablehlo.dynamic_reshape %w, %s
          : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
      %r = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
          : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
      return %r : tensor<?x?xf32>
    }"""
    first, second = (
        shlo_disc.compile(text.replace("SIZES", sizes).replace("K :", k).replace("N :", n))
        for sizes, k, n in (('"k", "n"', "0 :", "1 :"), ('"n", "k"', "1 :", "0 :"))
    )
    w = weights(0, 24, 40)
    for _ in range(3):
        for program, shape in ((first, (24, 40)), (second, (40, 24))):
            x = weights(1, 64, shape[0])
            (got,) = program(x, w)
            want = np.asarray(x) @ np.asarray(w).reshape(shape)
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)


W = "tensor<32x48xf32>"
COMPARED = f"""%z = stablehlo.constant dense<0.0> : {W}
  %m = stablehlo.compare DIRECTION, %w, %z : ({W}, {W}) -> tensor<32x48xi1>
  %s = stablehlo.select %m, %w, %z : tensor<32x48xi1>, {W}
  %v = stablehlo.tanh %s : {W}"""
SCALED = f"""%c = stablehlo.constant dense<NUMBER> : {W}
  %p = stablehlo.multiply %w, %c : {W}
  %v = stablehlo.tanh %p : {W}"""
DERIVED = {
    "factor 2": SCALED.replace("NUMBER", "2.0"),
    "factor 3": SCALED.replace("NUMBER", "3.0"),
    "factor -0": SCALED.replace("NUMBER", "-0.0"),
    "factor 0": SCALED.replace("NUMBER", "0.0"),
    "factor NaN": SCALED.replace("NUMBER", "0x7FC00000"),
    "reverse 0": f"%v = stablehlo.reverse %w, dims = [0] : {W}",
    "reverse 1": f"%v = stablehlo.reverse %w, dims = [1] : {W}",
    "less": COMPARED.replace("DIRECTION", "LT"),
    "greater": COMPARED.replace("DIRECTION", "GT"),
    "f16": f"""%h = stablehlo.convert %w : ({W}) -> tensor<32x48xf16>
      %t = stablehlo.tanh %h : tensor<32x48xf16>
      %v = stablehlo.convert %t : (tensor<32x48xf16>) -> {W}""",
    "bf16": f"""%h = stablehlo.convert %w : ({W}) -> tensor<32x48xbf16>
      %t = stablehlo.tanh %h : tensor<32x48xbf16>
      %v = stablehlo.convert %t : (tensor<32x48xbf16>) -> {W}""",
}


def key(derived):
    (found,) = shlo_disc.compile(
        f"""func.func public @main(%x: tensor<?x32xf32>, %w: {W}) -> tensor<?x48xf32> {{
          {derived}
          %r = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
              : (tensor<?x32xf32>, {W}) -> tensor<?x48xf32>
          return %r : tensor<?x48xf32>
        }}"""
    ).host.pack_keys
    return found


def test_equal_computations_share_a_key_and_others_have_their_own():
    keys = {name: key(derived) for name, derived in DERIVED.items()}
    assert len(set(keys.values())) == len(DERIVED)
    assert key(DERIVED["less"]) == keys["less"]
    assert (
        key("%v = " + DERIVED["reverse 0"].split("=", 1)[1] + ' loc("x.py":1:1)')
        == (keys["reverse 0"])
    )


def test_a_recurrent_weight_is_packed_over_all_steps():
    def fn(xs, w):
        def step(h, x):
            h = jnp.tanh(x + h @ w[:, : h.shape[1]].astype(jnp.float32))
            return h, h

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    f, w = shlo_disc.jit(fn), weights(0, 16, 24) * 0.2
    for steps in (5, 9):
        check(f, fn, weights(steps, steps, 40, 16) * 0.1, w)
    before = filled()
    check(f, fn, weights(3, 7, 41, 16) * 0.1, w)
    assert filled() == before
