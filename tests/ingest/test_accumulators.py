"""Regions that compute in a wider type than what they are given, beside NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shlo_disc

DTYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "ui8": np.uint8,
    "i32": np.int32,
    "ui32": np.uint32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}
PROMOTED = [
    ("i8", "i32"),
    ("i1", "i32"),
    ("ui8", "ui32"),
    ("bf16", "f32"),
    ("f16", "bf16"),
    ("f32", "bf16"),
    ("f32", "f64"),
    ("complex<f32>", "complex<f64>"),
]
ROWS = [0, 1, 3, 17]


def values(element: str, *shape: int) -> np.ndarray:
    """Integers whose sums leave the narrow type; as floats such that f32, not f16, holds them."""
    most = {"i1": 2, "i8": 127, "ui8": 255}.get(element, 9)
    return (np.random.default_rng(3).integers(0, most, shape) + (element == "i8")).astype(
        DTYPES[element]
    )


def add(element: str) -> str:
    return f"""^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
      %q = stablehlo.add %a, %b : tensor<{element}>
      stablehlo.return %q : tensor<{element}>"""


def summed(x: np.ndarray, element: str, axis: int = -1) -> np.ndarray:
    """Small integers: each sum is exact in every float type used."""
    return x.astype(DTYPES[element]).sum(axis, dtype=DTYPES[element])


def equal(got, want: np.ndarray) -> None:
    got = np.asarray(got)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("given", "wide"), PROMOTED)
@pytest.mark.parametrize("init", ["given", "wide"])
def test_reduce(given, wide, init):
    if init == "wide" and (given, wide) == ("f32", "bf16"):
        pytest.skip("an initial value is not wider than the accumulator")
    first = given if init == "given" else wide
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x4x{given}>, %z: tensor<{first}>) -> tensor<?x{wide}> {{
        %0 = "stablehlo.reduce"(%x, %z) ({{ {add(wide)} }}) {{dimensions = array<i64: 1>}}
          : (tensor<?x4x{given}>, tensor<{first}>) -> tensor<?x{wide}>
        return %0 : tensor<?x{wide}> }}""")
    for n in ROWS:
        x = values(given, n, 4)
        (got,) = made.run_numpy([x, np.array(1, DTYPES[first])])
        equal(got, summed(x, wide) + np.array(1, DTYPES[wide]))


def test_reduce_of_several_operands_promotes_those_that_need_it():
    made = shlo_disc.compile("""
      func.func @main(%x: tensor<?x4xi8>, %y: tensor<?x4xf32>, %z: tensor<i8>, %w: tensor<f32>)
          -> (tensor<?xi32>, tensor<?xf32>) {
        %0:2 = "stablehlo.reduce"(%x, %y, %z, %w) ({
          ^bb0(%a: tensor<i32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<f32>):
            %q = stablehlo.add %a, %c : tensor<i32>
            %r = stablehlo.maximum %b, %d : tensor<f32>
            stablehlo.return %q, %r : tensor<i32>, tensor<f32>
        }) {dimensions = array<i64: 1>}
          : (tensor<?x4xi8>, tensor<?x4xf32>, tensor<i8>, tensor<f32>)
          -> (tensor<?xi32>, tensor<?xf32>)
        return %0#0, %0#1 : tensor<?xi32>, tensor<?xf32> }""")
    for n in ROWS:
        x, y = values("i8", n, 4), values("f32", n, 4)
        total, most = made.run_numpy([x, y, np.int8(0), np.float32(2.5)])
        equal(total, summed(x, "i32"))
        equal(most, np.maximum(y.max(1, initial=0), np.float32(2.5)))


@pytest.mark.parametrize(("given", "wide"), PROMOTED)
def test_reduce_window(given, wide):
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x{given}>, %z: tensor<{given}>) -> tensor<?x{wide}> {{
        %0 = "stablehlo.reduce_window"(%x, %z) ({{ {add(wide)} }})
          {{window_dimensions = array<i64: 3>, padding = dense<1> : tensor<1x2xi64>}}
          : (tensor<?x{given}>, tensor<{given}>) -> tensor<?x{wide}>
        return %0 : tensor<?x{wide}> }}""")
    for n in ROWS[1:]:
        x = values(given, n)
        (got,) = made.run_numpy([x, np.array(0, DTYPES[given])])
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), 3)
        equal(got, summed(windows, wide))


@pytest.mark.parametrize(("given", "wide"), PROMOTED)
def test_a_window_of_run_time_size(given, wide):
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x{given}>, %y: tensor<?xf32>) -> tensor<?x{wide}> {{
        %z = stablehlo.constant dense<{zero(given)}> : tensor<{given}>
        %n = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xf32>) -> tensor<i32>
        %w = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
        %one = stablehlo.constant dense<1> : tensor<1xi32>
        %p = stablehlo.constant dense<0> : tensor<1x2xi32>
        %0 = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %w, %one, %one, %one,
          %p) {{called_computations = [@add]}} : (tensor<?x{given}>, tensor<{given}>,
          tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1x2xi32>)
          -> tensor<?x{wide}>
        return %0 : tensor<?x{wide}> }}
      func.func private @add(%a: tensor<{wide}>, %b: tensor<{wide}>) -> tensor<{wide}> {{
        %q = stablehlo.add %a, %b : tensor<{wide}>
        return %q : tensor<{wide}> }}""")
    for n, m in ((1, 1), (7, 3), (17, 17)):
        x = values(given, n)
        (got,) = made.run_numpy([x, np.zeros(m, np.float32)])
        equal(got, summed(np.lib.stride_tricks.sliding_window_view(x, m), wide))


def zero(element: str) -> str:
    if element.startswith("complex"):
        return "(0.0, 0.0)"
    return {"i1": "false"}.get(element, "0" if "i" in element else "0.0")


@pytest.mark.parametrize(("given", "wide"), PROMOTED)
def test_scatter(given, wide):
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x{given}>, %i: tensor<?x1xi32>, %u: tensor<?x{given}>)
          -> tensor<?x{wide}> {{
        %0 = "stablehlo.scatter"(%x, %i, %u) ({{ {add(wide)} }}) {{
          scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
            scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
          : (tensor<?x{given}>, tensor<?x1xi32>, tensor<?x{given}>) -> tensor<?x{wide}>
        return %0 : tensor<?x{wide}> }}""")
    for n in ROWS:
        x, updates = values(given, n), values(given, n)[::-1].copy()
        indices = np.arange(n, dtype=np.int32)[:, None] // 4
        (got,) = made.run_numpy([x, indices, updates])
        want = x.astype(DTYPES[wide])
        np.add.at(want, indices[:, 0], updates.astype(DTYPES[wide]))
        equal(got, want)


def test_scatter_of_several_operands():
    made = shlo_disc.compile("""
      func.func @main(%x: tensor<?xi8>, %y: tensor<?xf32>, %i: tensor<?x1xi32>, %u: tensor<?xi8>,
          %v: tensor<?xf32>) -> (tensor<?xi32>, tensor<?xf32>) {
        %0:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) ({
          ^bb0(%a: tensor<i32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<f32>):
            %q = stablehlo.add %a, %c : tensor<i32>
            %r = stablehlo.add %b, %d : tensor<f32>
            stablehlo.return %q, %r : tensor<i32>, tensor<f32>
        }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
            scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
          : (tensor<?xi8>, tensor<?xf32>, tensor<?x1xi32>, tensor<?xi8>, tensor<?xf32>)
          -> (tensor<?xi32>, tensor<?xf32>)
        return %0#0, %0#1 : tensor<?xi32>, tensor<?xf32> }""")
    x, y = np.array([100, 2, 3, 127], np.int8), np.arange(4, dtype=np.float32)
    u, v = np.array([100, 100], np.int8), np.array([1, 2], np.float32)
    total, other = made.run_numpy([x, y, np.zeros((2, 1), np.int32), u, v])
    equal(total, np.array([300, 2, 3, 127], np.int32))
    equal(other, np.array([3, 1, 2, 3], np.float32))


@pytest.mark.parametrize(("given", "wide"), [pair for pair in PROMOTED if "complex" not in pair[0]])
def test_select_and_scatter(given, wide):
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x4x{given}>, %s: tensor<?x2x{given}>, %z: tensor<{given}>)
          -> tensor<?x4x{wide}> {{
        %0 = "stablehlo.select_and_scatter"(%x, %s, %z) ({{
          ^bb0(%a: tensor<{given}>, %b: tensor<{given}>):
            %q = stablehlo.compare GE, %a, %b : (tensor<{given}>, tensor<{given}>) -> tensor<i1>
            stablehlo.return %q : tensor<i1>
        }}, {{ {add(wide)} }}) {{
          window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}}
          : (tensor<?x4x{given}>, tensor<?x2x{given}>, tensor<{given}>) -> tensor<?x4x{wide}>
        return %0 : tensor<?x4x{wide}> }}""")
    # Equal as bf16 and not as f16: the comparison is one of what was given.
    near = np.array([[1.0, 1.001, 1.001, 1.0]]).astype(DTYPES[given])
    for x in (values(given, 0, 4), values(given, 1, 4), values(given, 7, 4), near):
        source = values(given, len(x), 2)
        (got,) = made.run_numpy([x, source, np.array(1, DTYPES[given])])
        want = np.ones((len(x), 4), DTYPES[wide])
        for row, column in np.ndindex(len(x), 2):
            a, b = x[row, 2 * column : 2 * column + 2]
            place = 2 * column + (0 if a >= b else 1)
            want[row, place] += source[row, column].astype(DTYPES[wide])
        equal(got, want)


@pytest.mark.parametrize(("given", "wide"), PROMOTED)
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_collectives_of_one_device(op, given, wide):
    more = ", scatter_dimension = 0 : i64" if op == "reduce_scatter" else ""
    made = shlo_disc.compile(f"""
      func.func @main(%x: tensor<?x{given}>) -> tensor<?x{wide}> {{
        %0 = "stablehlo.{op}"(%x) ({{ {add(wide)} }}) {{
          replica_groups = dense<0> : tensor<1x1xi64>{more}}}
          : (tensor<?x{given}>) -> tensor<?x{wide}>
        return %0 : tensor<?x{wide}> }}""")
    for n in ROWS:
        x = values(given, n)
        (got,) = made.run_numpy([x])
        equal(got, x.astype(DTYPES[wide]))
