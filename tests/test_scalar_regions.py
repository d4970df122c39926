"""Control flow and values from outside in regions of scalars, beside the StableHLO interpreter."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.debug.interpreter import evaluate
from tests.cases import crossed

RNG = np.random.default_rng(3)
NUMPY = {
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i1": np.bool_,
    "i32": np.int32,
    "i8": np.int8,
    "ui16": np.uint16,
}

# Bodies: %a and %b give %r, of type T. %c is a scalar and %t an array from outside.

PICK = """
  %more = stablehlo.compare GT, %a, %b : (tensor<T>, tensor<T>) -> tensor<i1>
  %nan = stablehlo.compare NE, %a, %a : (tensor<T>, tensor<T>) -> tensor<i1>
  %p = stablehlo.or %more, %nan : tensor<i1>
  %r = "stablehlo.if"(%p) ({ stablehlo.return %a : tensor<T> }, { stablehlo.return %b : tensor<T> })
    : (tensor<i1>) -> tensor<T>
"""

CAPTURED = """
  %no_a = stablehlo.compare EQ, %a, %c : (tensor<T>, tensor<T>) -> tensor<i1>
  %r = "stablehlo.if"(%no_a) ({ stablehlo.return %b : tensor<T> }, {
    %no_b = stablehlo.compare EQ, %b, %c : (tensor<T>, tensor<T>) -> tensor<i1>
    %k = "stablehlo.if"(%no_b) ({ stablehlo.return %a : tensor<T> }, {
      %m = stablehlo.maximum %b, %a : tensor<T>
      stablehlo.return %m : tensor<T>
    }) : (tensor<i1>) -> tensor<T>
    stablehlo.return %k : tensor<T>
  }) : (tensor<i1>) -> tensor<T>
"""

CASE = """
  %index = stablehlo.convert %a : (tensor<T>) -> tensor<i32>
  %r = "stablehlo.case"(%index) ({
    %s = stablehlo.add %a, %b : tensor<T>
    stablehlo.return %s : tensor<T>
  }, {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %w:2 = stablehlo.while(%i = %zero, %s = %b) : tensor<i32>, tensor<T> cond {
      %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %more = stablehlo.add %s, %a : tensor<T>
      stablehlo.return %next, %more : tensor<i32>, tensor<T>
    }
    stablehlo.return %w#1 : tensor<T>
  }, { stablehlo.return %b : tensor<T> }) : (tensor<i32>) -> tensor<T>
"""

LOOP = """
  %zero = stablehlo.constant dense<0> : tensor<i8>
  %one = stablehlo.constant dense<1> : tensor<i8>
  %five = stablehlo.constant dense<5> : tensor<i8>
  %w:2 = stablehlo.while(%i = %zero, %s = %a) : tensor<i8>, tensor<T> cond {
    %few = stablehlo.compare LT, %i, %five : (tensor<i8>, tensor<i8>) -> tensor<i1>
    %less = stablehlo.compare LE, %s, %b : (tensor<T>, tensor<T>) -> tensor<i1>
    %go = stablehlo.and %few, %less : tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i8>
    %p = stablehlo.compare LT, %s, %c : (tensor<T>, tensor<T>) -> tensor<i1>
    %n = "stablehlo.if"(%p) ({
      %v = stablehlo.while(%u = %s) : tensor<T> cond {
        %again = stablehlo.compare LT, %u, %c : (tensor<T>, tensor<T>) -> tensor<i1>
        stablehlo.return %again : tensor<i1>
      } do {
        stablehlo.return %c : tensor<T>
      }
      stablehlo.return %v : tensor<T>
    }, {
      %d = stablehlo.add %s, %b : tensor<T>
      stablehlo.return %d : tensor<T>
    }) : (tensor<i1>) -> tensor<T>
    stablehlo.return %next, %n : tensor<i8>, tensor<T>
  }
  %r = stablehlo.add %w#1, %b : tensor<T>
"""

TABLE = """
  %at = stablehlo.convert %b : (tensor<T>) -> tensor<i32>
  %part = stablehlo.dynamic_slice %t, %at, sizes = [1]
    : (tensor<Kxf32>, tensor<i32>) -> tensor<1xf32>
  %twice = stablehlo.add %part, %part : tensor<1xf32>
  %number = stablehlo.reshape %twice : (tensor<1xf32>) -> tensor<f32>
  %entry = stablehlo.convert %number : (tensor<f32>) -> tensor<T>
  %r = stablehlo.add %a, %entry : tensor<T>
"""

COSTLY = """
  %p = stablehlo.compare GT, %a, %b : (tensor<T>, tensor<T>) -> tensor<i1>
  %r = "stablehlo.if"(%p) ({
    %e0 = stablehlo.tanh %a : tensor<T>
""" + "\n".join(f"%e{k} = stablehlo.tanh %e{k - 1} : tensor<T>" for k in range(1, 12)) + """
    %e = stablehlo.add %e11, %c : tensor<T>
    stablehlo.return %e : tensor<T>
  }, { stablehlo.return %b : tensor<T> }) : (tensor<i1>) -> tensor<T>
"""  # fmt: skip

BODIES = {"pick": PICK, "captured": CAPTURED, "case": CASE, "loop": LOOP, "table": TABLE,
          "costly": COSTLY}  # fmt: skip


def combine(body: str) -> str:
    return f"({{ ^bb0(%a: tensor<T>, %b: tensor<T>): {body} stablehlo.return %r : tensor<T> }})"


def comparator(body: str) -> str:
    """Less by what the body makes of each and %c; in the place of %b there is %c."""
    left, right = (
        re.sub(r"%(?!c\b|t\b|x\b|z\b)(\w+)", rf"%\1_{side}", body.replace("%b", "%c"))
        for side in ("l", "g")
    )
    return f"""({{ ^bb0(%a_l: tensor<T>, %a_g: tensor<T>): {left} {right}
      %less = stablehlo.compare LT, %r_l, %r_g, TOTALORDER : (tensor<T>, tensor<T>) -> tensor<i1>
      stablehlo.return %less : tensor<i1> }})"""


OPS = {
    "reduce rows": lambda body: (
        f'%y = "stablehlo.reduce"(%x, %z) {combine(body)} {{dimensions = array<i64: 1>}}'
        " : (tensor<MxNxT>, tensor<T>) -> tensor<MxT>",
        "M",
    ),
    "reduce columns": lambda body: (
        f'%y = "stablehlo.reduce"(%x, %z) {combine(body)} {{dimensions = array<i64: 0>}}'
        " : (tensor<MxNxT>, tensor<T>) -> tensor<NxT>",
        "N",
    ),
    "reduce all": lambda body: (
        f'%y = "stablehlo.reduce"(%x, %z) {combine(body)} {{dimensions = array<i64: 0, 1>}}'
        " : (tensor<MxNxT>, tensor<T>) -> tensor<T>",
        "",
    ),
    "reduce_window": lambda body: (
        f'%y = "stablehlo.reduce_window"(%x, %z) {combine(body)} '
        "{window_dimensions = array<i64: 1, 3>, "
        "padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}"
        " : (tensor<MxNxT>, tensor<T>) -> tensor<MxNxT>",
        "MxN",
    ),
    "sort": lambda body: (
        f'%y = "stablehlo.sort"(%x) {comparator(body)} {{dimension = 1 : i64, is_stable = true}}'
        " : (tensor<MxNxT>) -> tensor<MxNxT>",
        "MxN",
    ),
    "scatter": lambda body: (
        "%places = stablehlo.constant dense<[[0], [2], [0], [7]]> : tensor<4x1xi32>\n"
        "%q = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<T>) -> tensor<4x2xT>\n"
        f'%y = "stablehlo.scatter"(%x, %places, %q) {combine(body)} {{scatter_dimension_numbers = '
        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}"
        " : (tensor<MxNxT>, tensor<4x1xi32>, tensor<4x2xT>) -> tensor<MxNxT>",
        "MxN",
    ),
    "select_and_scatter": lambda body: (
        '%y = "stablehlo.select_and_scatter"(%x, %x, %z) '
        f"({comparator(body)[1:-1]}, {combine(body if body in (PICK, CAPTURED) else PICK)[1:-1]}) "
        "{window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [1, 1]]> : "
        "tensor<2x2xi64>} : (tensor<MxNxT>, tensor<MxNxT>, tensor<T>) -> tensor<MxNxT>",
        "MxN",
    ),
    "map": lambda body: (
        "%x2 = stablehlo.add %x, %x : tensor<MxNxT>\n"
        f'%y = "stablehlo.map"(%x, %x2) {combine(body)} {{dimensions = array<i64: 0, 1>}}'
        " : (tensor<MxNxT>, tensor<MxNxT>) -> tensor<MxNxT>",
        "MxN",
    ),
}  # fmt: skip


def program(op: str, body: str, element: str, m: object, n: object) -> str:
    text, sizes = OPS[op](BODIES[body])
    result, wide = (f"{sizes}x{kind}" if sizes else kind for kind in ("T", "f64"))
    whole = f"""
    func.func @main(%x: tensor<MxNxT>, %c: tensor<T>, %t: tensor<Kxf32>) -> tensor<{wide}> {{
      %z = stablehlo.constant dense<ZERO> : tensor<T>
      {text}
      %wide = stablehlo.convert %y : (tensor<{result}>) -> tensor<{wide}>
      return %wide : tensor<{wide}>
    }}"""
    for name, size in (("M", m), ("N", n), ("K", "?" if m == "?" else 5)):
        whole = re.sub(rf"(?<=[<x]){name}(?=x)", str(size), whole)
    whole = re.sub(r"\bT\b|(?<=x)T\b", element, whole)
    return whole.replace("ZERO", "0.0" if "f" in element else "0")


def data(element: str, *shape: int, nan: bool = False) -> np.ndarray:
    values = RNG.normal(size=shape) * 2 + 0.5
    if element.startswith(("i", "ui")):
        return np.abs(values).astype(NUMPY[element])
    if nan:
        values = np.where(RNG.random(shape) < 0.03, np.nan, values)
    values = np.where(RNG.random(shape) < 0.1, 1.5, values)
    return values.astype(NUMPY[element])


def check(op: str, body: str, element: str, sizes: list[tuple[int, int]]) -> None:
    made = shlo_disc.compile(program(op, body, element, "?", "?"))
    table = np.arange(5, dtype=np.float32)
    for m, n in sizes:
        x, c = (
            data(element, m, n, nan=op.startswith("reduce") and body != "table"),
            np.array(1.5).astype(NUMPY[element]),
        )
        got = np.asarray(made(x, c, table)[0])
        if 0 in x.shape:
            want = np.zeros(got.shape, got.dtype)
        else:
            (want,) = evaluate(program(op, body, element, m, n), [x, c, table])
            want = np.asarray(want)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64),
            rtol=1e-6 if body == "costly" else 0, err_msg=f"{op} {body} {element} {m}x{n}",
        )  # fmt: skip


PAIRS = [(op, body) for op in OPS for body in BODIES]
PAIRS.remove(("sort", "costly"))  # keys that a rounding makes equal


@pytest.mark.parametrize(("op", "body"), PAIRS)
def test_as_the_interpreter_computes(op, body):
    check(op, body, "f32", [(3, 37), (8, 2), (0, 4)] + [(3, 0)] * (op != "scatter"))


@pytest.mark.parametrize(
    ("op", "element"),
    crossed(
        ["reduce rows", "sort", "scatter", "map"],
        ["f64", "bf16", "f16", "f8E4M3FN", "i8", "i32", "ui16"],
    ),
)
def test_every_element_type(op, element):
    for body in ("captured", "loop", "table"):
        check(op, body, element, [(3, 19)])


# --- complex numbers, beside NumPy --------------------------------------------------------------


def test_complex_numbers_in_branches_and_loops():
    made = shlo_disc.compile("""
    func.func @main(%x: tensor<?x?xcomplex<f32>>, %c: tensor<complex<f32>>)
        -> tensor<?xcomplex<f32>> {
      %z = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
      %y = "stablehlo.reduce"(%x, %z) ({
      ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>):
        %u = stablehlo.real %b : (tensor<complex<f32>>) -> tensor<f32>
        %v = stablehlo.imag %b : (tensor<complex<f32>>) -> tensor<f32>
        %p = stablehlo.compare GT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %r = "stablehlo.if"(%p) ({
          %s = stablehlo.add %a, %c : tensor<complex<f32>>
          stablehlo.return %s : tensor<complex<f32>>
        }, {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %two = stablehlo.constant dense<2> : tensor<i32>
          %w:2 = stablehlo.while(%i = %zero, %s = %a) : tensor<i32>, tensor<complex<f32>> cond {
            %go = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %go : tensor<i1>
          } do {
            %next = stablehlo.add %i, %one : tensor<i32>
            %more = stablehlo.multiply %s, %b : tensor<complex<f32>>
            stablehlo.return %next, %more : tensor<i32>, tensor<complex<f32>>
          }
          stablehlo.return %w#1 : tensor<complex<f32>>
        }) : (tensor<i1>) -> tensor<complex<f32>>
        stablehlo.return %r : tensor<complex<f32>>
      }) {dimensions = array<i64: 1>}
        : (tensor<?x?xcomplex<f32>>, tensor<complex<f32>>) -> tensor<?xcomplex<f32>>
      return %y : tensor<?xcomplex<f32>>
    }""")
    c = np.complex64(0.5 - 0.25j)
    for shape in [(3, 7), (5, 1), (2, 0), (0, 3)]:
        x = (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(np.complex64)
        want = np.zeros(shape[0], np.complex128)
        for b in x.T:
            want = np.where(b.real > b.imag, want + c, want * b * b)
        np.testing.assert_allclose(np.asarray(made(x, c)[0]), want, rtol=1e-5, atol=1e-6)


# --- through JAX --------------------------------------------------------------------------------


def larger(a, b):
    return lax.cond(a > b, lambda: a, lambda: b)


def switched(a, b):
    place = jnp.clip(b, 0, 2).astype(jnp.int32)
    return lax.switch(place, [lambda: jnp.maximum(a, b)] * 3)


def where_negative(a, b):
    return jnp.where(b < 0, jnp.minimum(a, b), a)


def grown(a, b):
    """Adds `b` times a power of two that is at least 1. XLA ends the process on such a body."""
    return a + lax.while_loop(lambda s: s < 1, lambda s: s * 2, b)


REDUCTIONS = [(larger, -np.inf, np.max), (switched, -np.inf, np.max)]
REDUCTIONS += [(where_negative, np.inf, lambda x, **how: np.min(np.where(x < 0, x, np.inf), **how))]


@pytest.mark.parametrize(("function", "init", "known"), REDUCTIONS)
def test_reductions_of_python_functions(function, init, known):
    """Beside NumPy: XLA ends the process where a body with a branch is fused."""
    for dims in [(0,), (1,), (0, 1)]:
        reduced = lambda x, dims=dims: -lax.reduce(x * 2, np.float32(init), function, dims)  # noqa: E731
        ours = shlo_disc.jit(reduced)
        for shape in [(4, 33), (70, 3), (1, 1), (0, 5), (6, 0)]:
            x = RNG.normal(size=shape).astype(np.float32)
            np.testing.assert_array_equal(ours(x), -known(2 * x, axis=dims, initial=init))


def test_a_reduction_with_a_branch_as_xla_computes():
    reduced = lambda x: lax.reduce(x, np.float32(0), larger, (1,))  # noqa: E731
    x = RNG.normal(size=(4, 33)).astype(np.float32)
    np.testing.assert_array_equal(shlo_disc.jit(reduced)(x), jax.jit(reduced)(x))


def test_a_loop_beside_other_work():
    """The loop ends for positive elements alone: none is made up."""

    def both(x):
        rows = lax.reduce(x, np.float32(0), grown, (1,))
        return jnp.concatenate([rows, x[:, 0] + 1]) * 2, jnp.pad(rows, (2, 1), constant_values=3.0)

    ours = shlo_disc.jit(both)
    for shape in [(5, 9), (64, 2), (1, 1)]:
        x = RNG.uniform(0.01, 4, size=shape).astype(np.float32)
        each = np.where(x < 1, x * 2 ** np.ceil(-np.log2(x)), x).astype(np.float32)
        rows = functools.reduce(np.add, each.T, np.zeros(shape[0], np.float32))
        joined, padded = ours(x)
        np.testing.assert_array_equal(joined, np.concatenate([rows, x[:, 0] + 1]) * 2)
        np.testing.assert_array_equal(padded, np.pad(rows, (2, 1), constant_values=3.0))


def test_a_window_of_a_size_known_at_run_time():
    """Of all that comes before, and of a fixed number of neighbours."""

    def running(x):
        def largest(a, b):
            most = lax.while_loop(lambda s: s < b, lambda s: jnp.maximum(s, b), a)
            return lax.cond(a > most, lambda: a, lambda: most)

        n = x.shape[0]
        return lax.reduce_window(x, -np.inf, largest, (n,), (1,), [(n - 1, 0)]), lax.reduce_window(
            x, -np.inf, largest, (3,), (1,), [(2, 0)]
        )

    ours = shlo_disc.jit(running)
    for n in [7, 64, 1, 33]:
        x = RNG.normal(size=n).astype(np.float32)
        before = [x[max(0, k - 2) : k + 1].max() for k in range(n)]
        whole, three = ours(x)
        np.testing.assert_array_equal(whole, np.maximum.accumulate(x))
        np.testing.assert_array_equal(three, before)


def test_a_captured_array_is_not_overwritten():
    """The updates of a scatter read the operand, which may not change meanwhile."""
    made = shlo_disc.compile("""
    func.func @main(%x: tensor<?xf32>, %u: tensor<3xf32>) -> tensor<?xf32> {
      %y = stablehlo.add %x, %x : tensor<?xf32>
      %i = stablehlo.constant dense<[[0], [1], [2]]> : tensor<3x1xi32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r = "stablehlo.scatter"(%y, %i, %u) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %at = stablehlo.convert %b : (tensor<f32>) -> tensor<i32>
        %v = stablehlo.dynamic_slice %y, %at, sizes = [1]
          : (tensor<?xf32>, tensor<i32>) -> tensor<1xf32>
        %w = stablehlo.reshape %v : (tensor<1xf32>) -> tensor<f32>
        %s = stablehlo.add %a, %w : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<?xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }""")
    x = np.arange(1, 6, dtype=np.float32)
    want = 2 * x
    want[:3] += 2 * x[[0, 0, 1]]
    np.testing.assert_array_equal(made(x, np.float32([0, 0, 1]))[0], want)


# --- arrays that regions read -------------------------------------------------------------------


def mapped(body: str, table: str) -> shlo_disc.Executable:
    """What `body` computes as %v of every element %b of %x and the array %t."""
    return shlo_disc.compile(f"""
    func.func @main(%x: tensor<?xi32>, %t: {table}) -> tensor<?xi32> {{
      %y = "stablehlo.map"(%x) ({{ ^bb0(%b: tensor<i32>):
        {body}
        stablehlo.return %v : tensor<i32>
      }}) {{dimensions = array<i64: 0>}} : (tensor<?xi32>) -> tensor<?xi32>
      return %y : tensor<?xi32>
    }}""")


def test_sums_sizes_and_tables():
    reduced = mapped(
        "%v = stablehlo.reduce(%t init: %b) applies stablehlo.add across dimensions = [0]"
        " : (tensor<?xi32>, tensor<i32>) -> tensor<i32>",
        "tensor<?xi32>",
    )
    sized = mapped(
        "%n = stablehlo.get_dimension_size %t, dim = 0 : (tensor<?xi32>) -> tensor<i32>\n"
        "%v = stablehlo.multiply %n, %b : tensor<i32>",
        "tensor<?xi32>",
    )
    constant = mapped(
        "%k = stablehlo.constant dense<[1, 20, 300]> : tensor<3xi32>\n"
        "%w = stablehlo.dynamic_slice %k, %b, sizes = [1] : (tensor<3xi32>, tensor<i32>)"
        " -> tensor<1xi32>\n"
        "%v = stablehlo.reshape %w : (tensor<1xi32>) -> tensor<i32>",
        "tensor<?xi32>",
    )
    for x, t in [([0, 1, 2, 9], [5, 6]), ([], [1]), ([2], [])]:
        x, t = np.int32(x), np.int32(t)
        np.testing.assert_array_equal(reduced(x, t)[0], x + t.sum())
        np.testing.assert_array_equal(sized(x, t)[0], x * len(t))
        np.testing.assert_array_equal(constant(x, t)[0], [[1, 20, 300][min(k, 2)] for k in x])


def test_a_loop_that_carries_an_array_is_refused():
    body = """
      %w:2 = stablehlo.while(%s = %b, %u = %t) : tensor<i32>, tensor<2xi32> cond {
        %go = stablehlo.compare LT, %s, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %u2 = stablehlo.add %u, %t : tensor<2xi32>
        stablehlo.return %b, %u2 : tensor<i32>, tensor<2xi32>
      }
      %v = stablehlo.add %w#0, %b : tensor<i32>
    """
    with pytest.raises(UnsupportedError, match=r"stablehlo.while at .*:5:.* carry its elements"):
        mapped(body, "tensor<2xi32>")
