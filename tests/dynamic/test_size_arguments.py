"""Sizes that a call passes as integers: read by the host when the call starts, and checked."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.driver.compile import compile_one

INTEGERS = {f"{p}{n}": np.dtype(f"{q}int{n}") for p, q in (("i", ""), ("ui", "u"))
            for n in (8, 16, 32, 64)}  # fmt: skip

# [2*n - m, m] of n, and -n, which wraps as data does.
GRID = """
func.func @main(%n: tensor<K>, %m: tensor<K>) -> (tensor<?x?xK>, tensor<K>) {
  %c = stablehlo.constant dense<2> : tensor<K>
  %d = stablehlo.multiply %n, %c : tensor<K>
  %s = stablehlo.subtract %d, %m : tensor<K>
  %0 = stablehlo.reshape %s : (tensor<K>) -> tensor<1xK>
  %1 = stablehlo.reshape %m : (tensor<K>) -> tensor<1xK>
  %v = stablehlo.concatenate %0, %1, dim = 0 : (tensor<1xK>, tensor<1xK>) -> tensor<2xK>
  %w = stablehlo.convert %v : (tensor<2xK>) -> tensor<2xi32>
  %i = stablehlo.dynamic_broadcast_in_dim %n, %w, dims = []
     : (tensor<K>, tensor<2xi32>) -> tensor<?x?xK>
  %q = stablehlo.negate %n : tensor<K>
  return %i, %q : tensor<?x?xK>, tensor<K>
}"""


@pytest.mark.parametrize("t", INTEGERS)
def test_arithmetic_of_scalar_arguments_of_any_type(t):
    run = shlo_disc.compile(GRID.replace("K", t))
    kind = INTEGERS[t].type
    for n, m in ((3, 2), (2, 4), (1, 0), (0, 0), (60, 100)):
        grid, data = run.run_numpy((kind(n), kind(m)))
        np.testing.assert_array_equal(grid, np.full((2 * n - m, m), n, kind))
        assert data == np.negative(np.array([n], kind))[0]
    with pytest.raises(ShapeMismatchError, match=r"needs 2\*n0_0 - n1_0 >= 0: -1 >= 0 does not"):
        run.run_numpy((kind(2), kind(5)))
    if kind(0).dtype.kind == "i":
        with pytest.raises(ShapeMismatchError, match="argument 1 holds the size n1_0, which must"):
            run.run_numpy((kind(2), kind(-1)))
    if kind(0).itemsize == 1:
        most = np.iinfo(kind).max
        with pytest.raises(ShapeMismatchError, match=rf"needs 2\*n0_0 <= {most}"):
            run.run_numpy((kind(most), kind(most)))
    if t == "ui64":
        with pytest.raises(ShapeMismatchError, match="must not be negative"):
            run.run_numpy((kind(2**63), kind(1)))


IOTA = """
func.func @main(%n: tensor<i64>, %a: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
  %2 = stablehlo.add %1, %a : tensor<?xf32>
  return %2 : tensor<?xf32>
}"""


def test_a_size_argument_beside_an_array_of_that_size():
    run = shlo_disc.compile(IOTA)
    assert str(run.signature) == "(args[0]: int64[], args[1]: float32[d1_0]) -> (float32[n0_0])"
    for n in (0, 1, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(run.run_numpy((np.int64(n), x))[0], x * 2)
        np.testing.assert_array_equal(run(n, jnp.asarray(x))[0], x * 2)
    with pytest.raises(ShapeMismatchError) as error:
        run.run_numpy((np.int64(4), np.ones(3, np.float32)))
    assert str(error.value) == (
        "<module>:5:8: stablehlo.add needs n0_0 == d1_0: 4 == 3 does not hold (n0_0 = 4 was read "
        "from element 0 of argument 0 ('args[0]'); d1_0 = 3 was read from dimension 0 of argument "
        "1 ('args[1]'))"
    )
    assert run.cost_analysis({"n0_0": 3, "d1_0": 3})["bytes accessed"] == 24
    assert "n0_0 = 3" in str(run.profile(np.int64(3), np.ones(3, np.float32), calls=1))
    likely = shlo_disc.compile(IOTA, likely={"n0_0": [64]})
    x = np.ones(64, np.float32)
    np.testing.assert_array_equal(likely.run_numpy((np.int64(64), x))[0], np.arange(64) + x)


def test_a_global_constant_is_an_argument_where_no_shape_gives_it():
    text = IOTA.replace("%n: tensor<i64>", '%n: tensor<i64> {jax.global_constant = "b"}')
    x = np.ones(3, np.float32)
    alone = shlo_disc.compile(text)
    assert str(alone.signature).startswith("(b: int64[], ")
    np.testing.assert_array_equal(alone.run_numpy((np.int64(3), x))[0], [1, 2, 3])
    given = shlo_disc.compile(text, shapes=[["b"]])
    np.testing.assert_array_equal(given.run_numpy((x,))[0], [1, 2, 3])
    squared = shlo_disc.compile(
        text.replace("add %1, %a", "multiply %1, %1"), shapes=[["b*b"]]
    )  # a size JAX cannot solve
    x = np.ones(9, np.float32)
    np.testing.assert_array_equal(squared.run_numpy((np.int64(3), x))[0], [0, 1, 4])
    with pytest.raises(ShapeMismatchError, match=r"dimension 0 is 9, but b\^2 = 4"):
        squared.run_numpy((np.int64(2), x))


def test_a_lowered_module_takes_its_sizes_as_arguments():
    b, c = export.symbolic_shape("b, c")

    def f(x):
        return jnp.broadcast_to(jnp.arange(2 * b)[:, None], (2 * b, c)) + x.sum()

    spec = jax.ShapeDtypeStruct((b, c), np.float32)
    run = shlo_disc.compile(jax.jit(f).trace(spec).lower().as_text())
    for shape in ((2, 3), (5, 1)):
        x = np.ones(shape, np.float32)
        (got,) = run.run_numpy((np.int32(shape[0]), np.int32(shape[1]), x))
        want = np.arange(2 * shape[0])[:, None] + np.full((1, shape[1]), x.sum())
        np.testing.assert_array_equal(got, want)


def test_a_vector_of_sizes():
    run = shlo_disc.compile("""
      func.func @main(%s: tensor<2xi32>, %a: tensor<?xf32>) -> tensor<?x?xf32> {
        %0 = stablehlo.dynamic_reshape %a, %s
           : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
        return %0 : tensor<?x?xf32>
      }""")
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (1, 6), (6, 1)):
        got = run.run_numpy((np.array(shape, np.int32), x))[0]
        np.testing.assert_array_equal(got, x.reshape(shape))
    for shape in ((2, 2), (-2, -3)):
        with pytest.raises(ShapeMismatchError):
            run.run_numpy((np.array(shape, np.int32), x))


def test_padding_and_loops_by_arguments():
    run = shlo_disc.compile("""
      func.func @main(%n: tensor<i32>, %a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
        %l = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
        %two = stablehlo.constant dense<2> : tensor<1xi32>
        %h = stablehlo.subtract %l, %two : tensor<1xi32>
        %none = stablehlo.constant dense<0> : tensor<1xi32>
        %v = stablehlo.constant dense<9.0> : tensor<f32>
        %p = stablehlo.dynamic_pad %a, %v, %l, %h, %none
           : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)
          -> tensor<?xf32>
        %x = stablehlo.dynamic_broadcast_in_dim %v, %l, dims = []
           : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %r:3 = stablehlo.while(%i = %z, %m = %n, %y = %x) : tensor<i32>, tensor<i32>, tensor<?xf32>
          cond {
            %c = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %c : tensor<i1>
          } do {
            %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
            %k = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
            %y2 = stablehlo.add %y, %k : tensor<?xf32>
            %i2 = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %i2, %m, %y2 : tensor<i32>, tensor<i32>, tensor<?xf32>
          }
        return %p, %r#2 : tensor<?xf32>, tensor<?xf32>
      }""")
    x = np.arange(1, 4, dtype=np.float32)
    for n in (0, 1, 2, 4):
        padded, summed = run.run_numpy((np.int32(n), x))
        want = np.pad(x, (n, max(n - 2, 0)), constant_values=9)[: 3 + 2 * n - 2]
        np.testing.assert_array_equal(padded, want)
        np.testing.assert_array_equal(summed, 9 + n * np.arange(n))
    with pytest.raises(ShapeMismatchError, match=r"dynamic_pad needs .* >= 0"):
        run.run_numpy((np.int32(0), x[:1]))


def test_arrays_no_machine_can_hold_are_refused_before_they_wrap():
    run = shlo_disc.compile("""
      func.func @main(%n: tensor<2xi64>) -> tensor<?x?xf32> {
        %i = stablehlo.dynamic_iota %n, dim = 0 : (tensor<2xi64>) -> tensor<?x?xf32>
        return %i : tensor<?x?xf32>
      }""")
    for shape in ((2**33, 2**31), (2**62, 2**62), (2**32, 2**32), (1, 2**63 - 1)):
        with pytest.raises(ShapeMismatchError, match=r"more than 2\*\*46 bytes, got .* sizes \("):
            run.run_numpy((np.array(shape),))


@pytest.mark.parametrize(
    "size",
    [
        "stablehlo.convert %f : (tensor<f32>) -> tensor<i32>",
        "stablehlo.select %p, %n, %m : tensor<i1>, tensor<i32>",
    ],
)
def test_a_size_of_data_is_refused_in_one_program(size):
    text = f"""
      func.func @main(%f: tensor<f32>, %p: tensor<i1>, %n: tensor<i32>, %m: tensor<i32>)
          -> tensor<?xf32> {{
        %x = {size}
        %0 = stablehlo.reshape %x : (tensor<i32>) -> tensor<1xi32>
        %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
        return %1 : tensor<?xf32>
      }}"""
    with pytest.raises(UnsupportedError, match="dynamic_iota: operand 0 is a size that depends"):
        compile_one(text)
    f, p, n, m = np.float32(3.5), np.bool_(False), np.int32(2), np.int32(3)
    (iota,) = shlo_disc.compile(text).run_numpy((f, p, n, m))  # by two programs
    np.testing.assert_array_equal(iota, np.arange(3, dtype="f4"))


def test_an_integer_that_is_no_size_stays_data():
    run = shlo_disc.compile("""
      func.func @main(%n: tensor<i32>, %a: tensor<?xi32>) -> tensor<?xi32> {
        %s = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xi32>) -> tensor<i32>
        %0 = stablehlo.reshape %s : (tensor<i32>) -> tensor<1xi32>
        %1 = stablehlo.dynamic_broadcast_in_dim %n, %0, dims = []
           : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
        return %1 : tensor<?xi32>
      }""")
    assert run.program.size_arguments == ()
    assert run.run_numpy((np.int32(-3), np.ones(2, np.int32)))[0].tolist() == [-3, -3]


PADDED = """
func.func @main(%x: tensor<?xf32>, %l: tensor<1xK>, %h: tensor<1xK>, %i: tensor<1xK>)
    -> tensor<?xf32> {
  %v = stablehlo.constant dense<7.0> : tensor<f32>
  %r = stablehlo.dynamic_pad %x, %v, %l, %h, %i
     : (tensor<?xf32>, tensor<f32>, tensor<1xK>, tensor<1xK>, tensor<1xK>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""


def padded(x: np.ndarray, low: int, high: int, interior: int) -> np.ndarray:
    """Source: the specification of `pad`, its constraints on every index."""
    size = len(x) + low + high + max(len(x) - 1, 0) * interior
    out = np.full(size, 7, "f4")
    for k, value in enumerate(x):
        place = low + k * (interior + 1)
        if 0 <= place < size:
            out[place] = value
    return out


@pytest.mark.parametrize("t", ["i8", "i32", "i64"])
def test_padding_may_be_negative(t):
    run = shlo_disc.compile(PADDED.replace("K", t))
    for n, low, high, interior in itertools.product(
        (0, 1, 5), (-3, -1, 0, 2), (-4, -2, 0, 3), (0, 2)
    ):
        x = np.arange(1, n + 1, dtype="f4")
        arguments = [x, *(np.array([k], INTEGERS[t]) for k in (low, high, interior))]
        if n + low + high + max(n - 1, 0) * interior >= 0:
            (got,) = run.run_numpy(arguments)
            np.testing.assert_array_equal(got, padded(x, low, high, interior))
        else:
            with pytest.raises(ShapeMismatchError, match=r"dynamic_pad needs .* >= 0: -"):
                run.run_numpy(arguments)
    with pytest.raises(ShapeMismatchError, match="the size n3_0, which must not be negative"):
        run.run_numpy([x, *(np.array([k], INTEGERS[t]) for k in (1, 1, -1))])


def test_padding_that_is_a_size_elsewhere_is_not_negative():
    """Element 0 is padding only; 1 is padding and a size."""
    run = shlo_disc.compile("""
      func.func @main(%x: tensor<?xf32>, %p: tensor<2xi64>) -> (tensor<?xf32>, tensor<?xf32>) {
        %v = stablehlo.constant dense<7.0> : tensor<f32>
        %none = stablehlo.constant dense<0> : tensor<1xi64>
        %l = stablehlo.slice %p [0:1] : (tensor<2xi64>) -> tensor<1xi64>
        %h = stablehlo.slice %p [1:2] : (tensor<2xi64>) -> tensor<1xi64>
        %r = stablehlo.dynamic_pad %x, %v, %l, %h, %none : (tensor<?xf32>, tensor<f32>,
          tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
        %i = stablehlo.dynamic_iota %h, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
        return %r, %i : tensor<?xf32>, tensor<?xf32>
      }""")
    x = np.float32([1, 2, 3])
    for low, high in ((-1, 2), (2, 0), (-3, 1)):
        got, iota = run.run_numpy([x, np.array([low, high])])
        np.testing.assert_array_equal(got, padded(x, low, high, 0))
        np.testing.assert_array_equal(iota, np.arange(high, dtype="f4"))
    with pytest.raises(ShapeMismatchError, match="the size n1_1, which must not be negative"):
        run.run_numpy([x, np.array([1, -1])])


def test_an_index_that_is_compared_with_0_may_be_negative():
    """`max(n, 0)` and `select(n < 0, n + size, n)`; a number that is a size may not."""
    run = shlo_disc.compile("""
      func.func @main(%x: tensor<?xf32>, %n: tensor<i64>, %m: tensor<i64>)
          -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
        %zero = stablehlo.constant dense<0> : tensor<i64>
        %size32 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
        %size = stablehlo.convert %size32 : (tensor<i32>) -> tensor<i64>
        %below = stablehlo.compare LT, %n, %zero : (tensor<i64>, tensor<i64>) -> tensor<i1>
        %from = stablehlo.add %n, %size : tensor<i64>
        %index = stablehlo.select %below, %from, %n : tensor<i1>, tensor<i64>
        %most = stablehlo.maximum %n, %zero : tensor<i64>
        %1 = stablehlo.reshape %index : (tensor<i64>) -> tensor<1xi64>
        %2 = stablehlo.reshape %most : (tensor<i64>) -> tensor<1xi64>
        %3 = stablehlo.reshape %m : (tensor<i64>) -> tensor<1xi64>
        %a = stablehlo.dynamic_iota %1, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
        %b = stablehlo.dynamic_iota %2, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
        %c = stablehlo.dynamic_iota %3, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
        return %a, %b, %c : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
      }""")
    x = np.ones(5, "f4")
    for n in (-1, -5, 0, 3):
        sizes = [len(a) for a in run.run_numpy([x, np.int64(n), np.int64(2)])]
        assert sizes == [n + 5 if n < 0 else n, max(n, 0), 2]
    with pytest.raises(ShapeMismatchError, match="the size n2_0, which must not be negative"):
        run.run_numpy([x, np.int64(1), np.int64(-1)])


def test_numbers_that_may_be_negative_are_computed_with_exactly():
    """Quotients, remainders, clamps and minima of padding, as data of the program's own type."""
    names = ("divide", "remainder", "maximum", "minimum")
    lines = "\n".join(f"%{name} = stablehlo.{name} %s, %three : tensor<i32>" for name in names)
    run = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?xf32>, %l: tensor<1xi32>) -> ({", ".join(["tensor<i32>"] * 5)},
          tensor<?xf32>) {{
        %v = stablehlo.constant dense<7.0> : tensor<f32>
        %none = stablehlo.constant dense<0> : tensor<1xi32>
        %three = stablehlo.constant dense<3> : tensor<i32>
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %most = stablehlo.constant dense<2147483647> : tensor<i32>
        %s = stablehlo.reshape %l : (tensor<1xi32>) -> tensor<i32>
        {lines}
        %clamp = stablehlo.clamp %zero, %s, %most : tensor<i32>
        %r = stablehlo.dynamic_pad %x, %v, %l, %none, %none : (tensor<?xf32>, tensor<f32>,
          tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
        return %{", %".join(names)}, %clamp, %r : {", ".join(["tensor<i32>"] * 5)}, tensor<?xf32>
      }}""")
    x = np.arange(20, dtype="f4")
    for n in range(-11, 12):
        *got, _ = run.run_numpy([x, np.array([n], "i4")])
        quotient = int(n / 3)
        assert [int(g) for g in got] == [
            quotient, n - 3 * quotient, max(n, 3), min(n, 3), max(n, 0)
        ]  # fmt: skip
