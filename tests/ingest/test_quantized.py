"""Programs of quantized types, beside NumPy in float64 by the definitions of the specification.

dequantize(q) = (q - zero point) * scale
quantize(x) = round(clamp(x / scale + zero point))
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import UnsupportedError

Array = np.ndarray
Q = "!quant.uniform<i8:f32, 0.5:3>"
FINER = "!quant.uniform<i8:f32, 0.25:-7>"
WEIGHT = "!quant.uniform<i8<-127:127>:f32, 0.5>"
X = f"tensor<?x4x{Q}>"
SCALAR = f"tensor<{Q}>"
SIZES = (0, 1, 3, 37)


def dequantize(q: Array, scale: Array | float = 0.5, zero: Array | int = 3) -> Array:
    return (q.astype(np.float64) - zero) * scale


def quantize(x: Array, scale: Array | float = 0.5, zero: Array | int = 3) -> Array:
    return np.round(np.clip(x / scale + zero, -128, 127)).astype(np.int8)


def run(arguments: dict[str, str], results: list[str], body: str) -> Callable[..., list[Array]]:
    head = ", ".join(f"%{name}: {kind}" for name, kind in arguments.items())
    values = ", ".join(f"%r{k}" for k in range(len(results)))
    program = shlo_disc.compile(
        f"func.func public @main({head}) -> ({', '.join(results)}) {{\n{body}\n"
        f"return {values} : {', '.join(results)}\n}}"
    )
    return lambda *given: [np.asarray(r) for r in program.run_numpy(list(given))]


def bytes_of(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def region(op: str, kind: str = SCALAR) -> str:
    return (
        f"({{ ^bb0(%a: {kind}, %b: {kind}): %c = stablehlo.{op} %a, %b : {kind}\n"
        f"stablehlo.return %c : {kind} }})"
    )


@pytest.mark.parametrize(
    ("expressed", "parameters", "scale", "zero"),
    [
        ("f32", ":1, {0.5, 0.25:3, 1.0:-2, 0.1}", [0.5, 0.25, 1.0, 0.1], [0, 3, -2, 0]),
        ("bf16", ", 0.5:3", 0.5, 3),
        ("f16", ":1, {0.5, 0.25:3, 1.0:-2, 0.125}", [0.5, 0.25, 1.0, 0.125], [0, 3, -2, 0]),
        ("f64", ", 0.1:-1", 0.1, -1),
    ],
)
def test_expressed_types_and_axes(expressed, parameters, scale, zero):
    """With symbolic sizes, there and back."""
    q = f"!quant.uniform<i8:{expressed}{parameters}>"
    x, y = f"tensor<?x4x{expressed}>", f"tensor<?x4x{q}>"
    there = run(
        {"x": x},
        [y, x],
        f"%r0 = stablehlo.uniform_quantize %x : ({x}) -> {y}\n"
        f"%r1 = stablehlo.uniform_dequantize %r0 : ({y}) -> {x}",
    )
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": "f2", "f32": "f4", "f64": "f8"}[expressed]
    scale, zero = np.asarray(scale, dtype), np.asarray(zero)
    for n in SIZES:
        given = (np.random.default_rng(n).standard_normal((n, 4)) * 40).astype(dtype)
        stored, back = there(given)
        number = given / scale + zero.astype(dtype)
        want = np.round(np.clip(number.astype("f8"), -128, 127)).astype(np.int8)
        np.testing.assert_array_equal(stored, want)
        np.testing.assert_array_equal(back, (want - zero).astype(dtype) * scale)


@pytest.mark.parametrize("storage", ["u8", "ui8"])
def test_unsigned_storage(storage):
    """MLIR writes the type both ways; the first is a signless integer with a flag."""
    q = f"tensor<?x!quant.uniform<{storage}:f32, 0.5:100>>"
    program = run(
        {"x": q},
        [q, "tensor<?xf32>"],
        f"%r0 = stablehlo.add %x, %x : {q}\n"
        f"%r1 = stablehlo.uniform_dequantize %r0 : ({q}) -> tensor<?xf32>",
    )
    x = np.arange(256).astype(np.uint8)
    total, number = program(x)
    want = np.clip(2 * x.astype(int) - 100, 0, 255)
    np.testing.assert_array_equal(total, want.astype(np.uint8))
    np.testing.assert_array_equal(number, (want - 100) * np.float32(0.5))


def test_a_constant_of_unsigned_storage():
    q = "tensor<3x!quant.uniform<u8:f32, 0.5:100>>"
    program = run(
        {"x": q},
        [q],
        f"%c = stablehlo.constant() {{value = dense<[0, 100, -56]> : tensor<3xi8>}} : () -> {q}\n"
        f"%r0 = stablehlo.maximum %x, %c : {q}",
    )
    (got,) = program(np.array([7, 120, 150], np.uint8))
    np.testing.assert_array_equal(got, np.array([7, 120, 200], np.uint8))


MOVES = {
    "reverse": (f"%r0 = stablehlo.reverse %x, dims = [1] : {X}", lambda x, y: x[:, ::-1]),
    "sort": (
        f'%r0 = "stablehlo.sort"(%x) ({{ ^bb0(%a: {SCALAR}, %b: {SCALAR}):\n'
        f"%c = stablehlo.compare LT, %a, %b, FLOAT : ({SCALAR}, {SCALAR}) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1> }}) {{dimension = 1 : i64}} : ({X}) -> {X}",
        lambda x, y: np.sort(x, 1),
    ),
    "while": (
        f"""%zero = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %w:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, {X}
        cond {{ %c = stablehlo.compare LT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }}
        do {{ %j = stablehlo.add %i, %one : tensor<i32>
          %n = stablehlo.add %s, %y : {X}
          stablehlo.return %j, %n : tensor<i32>, {X} }}
        %r0 = stablehlo.reverse %w#1, dims = [0] : {X}""",
        lambda x, y: quantize(dequantize(x) + dequantize(y))[::-1],
    ),
    "if": (
        f"""%n = stablehlo.get_dimension_size %x, dim = 0 : ({X}) -> tensor<i32>
        %two = stablehlo.constant dense<2> : tensor<i32>
        %p = stablehlo.compare LT, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %r0 = "stablehlo.if"(%p) ({{ stablehlo.return %x : {X} }},
          {{ stablehlo.return %y : {X} }}) : (tensor<i1>) -> {X}""",
        lambda x, y: x if len(x) < 2 else y,
    ),
    "map": (
        f'%r0 = "stablehlo.map"(%x, %y) {region("subtract")} {{dimensions = array<i64: 0, 1>}} '
        f": ({X}, {X}) -> {X}",
        lambda x, y: quantize(dequantize(x) - dequantize(y)),
    ),
    "scatter": (
        f"""%i = stablehlo.constant dense<[[0], [2]]> : tensor<2x1xi32>
        %u = stablehlo.constant() {{value = dense<9> : tensor<2xi8>}} : () -> tensor<2x{Q}>
        %t = stablehlo.transpose %x, dims = [1, 0] : ({X}) -> tensor<4x?x{Q}>
        %s = stablehlo.slice %y [0:1, 0:4] : ({X}) -> tensor<1x4x{Q}>
        %v = stablehlo.reshape %s : (tensor<1x4x{Q}>) -> tensor<4x{Q}>
        %w = "stablehlo.scatter"(%v, %i, %u) {region("add")} {{
          scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
          : (tensor<4x{Q}>, tensor<2x1xi32>, tensor<2x{Q}>) -> tensor<4x{Q}>
        %z = stablehlo.concatenate %y, %y, dim = 0 : ({X}, {X}) -> {X}
        %r = stablehlo.reshape %w : (tensor<4x{Q}>) -> tensor<1x4x{Q}>
        %k = stablehlo.constant dense<0> : tensor<i32>
        %r0 = stablehlo.dynamic_update_slice %z, %r, %k, %k
          : ({X}, tensor<1x4x{Q}>, tensor<i32>, tensor<i32>) -> {X}""",
        lambda x, y: np.concatenate(
            [
                np.where([1, 0, 1, 0], quantize(dequantize(y[:1]) + 3), y[:1]),
                np.concatenate([y, y])[1:],
            ]
        ),
    ),
    "select_and_scatter": (
        f"""%z = stablehlo.constant() {{value = dense<3> : tensor<i8>}} : () -> {SCALAR}
        %s = stablehlo.slice %y [0:1, 0:2] : ({X}) -> tensor<1x2x{Q}>
        %t = stablehlo.slice %x [0:1, 0:4] : ({X}) -> tensor<1x4x{Q}>
        %w = "stablehlo.select_and_scatter"(%t, %s, %z) ({{ ^bb0(%a: {SCALAR}, %b: {SCALAR}):
            %c = stablehlo.compare GE, %a, %b : ({SCALAR}, {SCALAR}) -> tensor<i1>
            stablehlo.return %c : tensor<i1> }}, {region("add")[1:-1]})
          {{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}}
          : (tensor<1x4x{Q}>, tensor<1x2x{Q}>, {SCALAR}) -> tensor<1x4x{Q}>
        %k = stablehlo.constant dense<0> : tensor<i32>
        %r0 = stablehlo.dynamic_update_slice %x, %w, %k, %k
          : ({X}, tensor<1x4x{Q}>, tensor<i32>, tensor<i32>) -> {X}""",
        lambda x, y: np.concatenate([selected(x[:1], y[:1]), x[1:]]),
    ),
    "add of two types": (
        f"%q = stablehlo.bitcast_convert %y : ({X}) -> tensor<?x4xi8>\n"
        f"%p = stablehlo.bitcast_convert %q : (tensor<?x4xi8>) -> tensor<?x4x{FINER}>\n"
        f"%r0 = stablehlo.add %x, %p : ({X}, tensor<?x4x{FINER}>) -> {X}",
        lambda x, y: quantize(dequantize(x) + dequantize(y, 0.25, -7)),
    ),
    "clamp": (f"%r0 = stablehlo.clamp %y, %x, %x : {X}", lambda x, y: x),
    "optimization_barrier": (f"%r0 = stablehlo.optimization_barrier %x : {X}", lambda x, y: x),
}


def selected(x: Array, source: Array) -> Array:
    """The updates at the larger one of two neighbours, the first of equal ones; else zero."""
    pairs = x.reshape(2, 2)
    out = np.full((2, 2), 3, np.int8)
    out[[0, 1], pairs.argmax(1)] = source[0, :2]
    return out.reshape(1, 4)


@pytest.mark.parametrize("name", MOVES)
def test_storage_is_moved_and_compared(name):
    body, want = MOVES[name]
    program = run({"x": X, "y": X}, [X], body)
    for n in SIZES[1:]:
        x, y = bytes_of(n, 4, seed=n), bytes_of(n, 4, seed=n + 1)
        np.testing.assert_array_equal(program(x, y)[0], want(x, y), err_msg=f"{n}")


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("maximum", lambda x: x.max(1, initial=-128)),
        ("add", lambda x: quantize(dequantize(x).sum(1))),
    ],
)
def test_reductions(op, function):
    reduce = run(
        {"x": X, "z": SCALAR},
        [f"tensor<?x{Q}>"],
        f"%r0 = stablehlo.reduce(%x init: %z) applies stablehlo.{op} across dimensions = [1] "
        f": ({X}, {SCALAR}) -> tensor<?x{Q}>",
    )
    for n in SIZES:
        x = bytes_of(n, 4, seed=n) // 8
        start = np.int8(-128 if op == "maximum" else 3)
        np.testing.assert_array_equal(reduce(x, start)[0], function(x))


def test_functions_of_floats_and_truth_values():
    program = run(
        {"x": X, "y": X},
        [X, "tensor<?x4xi1>", "tensor<?x4xi1>"],
        f"%r0 = stablehlo.multiply %x, %y : {X}\n"
        f"%r1 = stablehlo.is_finite %x : ({X}) -> tensor<?x4xi1>\n"
        f"%r2 = stablehlo.compare GT, %x, %y : ({X}, {X}) -> tensor<?x4xi1>",
    )
    for n in SIZES:
        x, y = bytes_of(n, 4, seed=n), bytes_of(n, 4, seed=n + 1)
        product, finite, greater = program(x, y)
        np.testing.assert_array_equal(product, quantize(dequantize(x) * dequantize(y)))
        assert finite.all()
        np.testing.assert_array_equal(greater, x > y)


AXIS_WEIGHT = "!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25, 1.0, 0.1}>"
AXIS_RESULT = "!quant.uniform<i32:f32:1, {0.25, 0.125, 0.5, 0.05}>"


@pytest.mark.parametrize(
    ("shapes", "weight", "result", "scales", "units"),
    [
        (("?x5", "5x4", "?x4"), WEIGHT, Q, 0.5, (0.5, 3)),
        (("3x?", "?x4", "3x4"), WEIGHT, Q, 0.5, (0.5, 3)),
        (("3x?", "?x4", "3x4"), AXIS_WEIGHT, AXIS_RESULT, [0.5, 0.25, 1, 0.1], None),
        (("3x5", "5x4", "3x4"), AXIS_WEIGHT, AXIS_RESULT, [0.5, 0.25, 1, 0.1], None),
    ],
)
def test_products(shapes, weight, result, scales, units):
    """Sums are exact; a tie is rounded after the zero point was added."""
    x, y, r = (f"tensor<{s}x{q}>" for s, q in zip(shapes, (Q, weight, result), strict=True))
    program = run(
        {"x": x, "y": y},
        [r],
        f"%r0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({x}, {y}) -> {r}",
    )
    for n in SIZES if "?" in "".join(shapes) else (1,):
        sizes = [[n if s == "?" else int(s) for s in shape.split("x")] for shape in shapes]
        a, b = bytes_of(*sizes[0], seed=n) // 9, bytes_of(*sizes[1], seed=n + 1) // 9
        exact = dequantize(a) @ dequantize(b, np.asarray(scales), 0)
        if units is None:
            step = np.array([0.25, 0.125, 0.5, 0.05])
            want = np.round(exact / step).astype(np.int32)
        else:
            want = quantize(exact, *units)
        np.testing.assert_array_equal(program(a, b)[0], want)


@pytest.mark.parametrize("expressed", ["f64", "bf16"])
def test_products_of_other_expressed_types(expressed):
    q, w = (f"!quant.uniform<i8:{expressed}, 0.5{zero}>" for zero in (":3", ""))
    x, y, r = f"tensor<?x3x{q}>", f"tensor<3x4x{w}>", f"tensor<?x4x{q}>"
    program = run(
        {"x": x, "y": y},
        [r],
        f"%r0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({x}, {y}) -> {r}",
    )
    for n in SIZES:
        a, b = bytes_of(n, 3, seed=n) // 32, bytes_of(3, 4, seed=n + 1) // 32
        np.testing.assert_array_equal(
            program(a, b)[0], quantize(dequantize(a) @ dequantize(b, 0.5, 0))
        )


def test_sums_beyond_32_bits():
    """Upstream's pass would add them up modulo 2**32."""
    kind, result = "!quant.uniform<i16:f32, 0.5>", "!quant.uniform<i16:f32, 32768.0>"
    dot = run(
        {"x": f"tensor<?x8x{kind}>", "y": f"tensor<8x3x{kind}>"},
        [f"tensor<?x3x{result}>"],
        f"""%r0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
          : (tensor<?x8x{kind}>, tensor<8x3x{kind}>) -> tensor<?x3x{result}>""",
    )
    x, y = np.full((2, 8), 20000, np.int16), np.full((8, 3), 20000, np.int16)
    y[:, 1] *= -1
    wanted = np.round((x * 0.5) @ (y * 0.5) / 32768.0).astype(np.int16)
    np.testing.assert_array_equal(dot(x, y)[0], wanted)
    wide = "tensor<?x!quant.uniform<i32:f32, 1.0>>"
    add = run({"x": wide, "y": wide}, [wide], f"%r0 = stablehlo.add %x, %y : {wide}")
    z = np.array([2 * 10**9, -2 * 10**9, 1 << 20], np.int32)
    limits = np.iinfo(np.int32)
    np.testing.assert_array_equal(add(z, z)[0], [limits.max, limits.min, 1 << 21])


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match=r":2:\d+: custom_call @foo of quantized types"):
        run({"x": X}, [X], f"%r0 = stablehlo.custom_call @foo(%x) : ({X}) -> {X}")


def test_products_of_dequantised_operands_sum_integers():
    """`uniform_dequantize` in front of a product, with a zero point of each side."""
    left, right = "!quant.uniform<u8:f32, 0.03:128>", "!quant.uniform<i8:f32:1, {0.01, 0.02:-3}>"
    text = f"""
func.func @main(%x: tensor<5x40x{left}>, %w: tensor<40x2x{right}>) -> tensor<5x2xf32> {{
  %a = stablehlo.uniform_dequantize %x : (tensor<5x40x{left}>) -> tensor<5x40xf32>
  %b = stablehlo.uniform_dequantize %w : (tensor<40x2x{right}>) -> tensor<40x2xf32>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<5x40xf32>, tensor<40x2xf32>) -> tensor<5x2xf32>
  return %y : tensor<5x2xf32>
}}"""
    made = shlo_disc.compile(text)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (5, 40)).astype(np.uint8)
    w = rng.integers(-128, 128, (40, 2)).astype(np.int8)
    (got,) = made(x, w)
    want = (x.astype(int) - 128) @ (w.astype(int) - [0, -3]) * 0.03 * np.array([0.01, 0.02])
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert "sums of integers: both" in made.explain()
