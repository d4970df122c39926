"""Kind `row` against numpy in float64: softmax, layer-norm, chains, arg-max, every element type."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shlo_disc
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.cpu.row import emit
from shlo_disc.lower.plan import If, Launch
from tests.lower.helpers import DTYPES, Emitted, fusion_text, plan_of, run, sample

COLS = (0, 1, 2, 7, 16, 17, 63, 64, 65, 100, 1000)
WIDTHS = (64, 32)


def spread(
    name: str, source: str, dims: str, rows: str = "n", cols: str = "m", t: str = "f32"
) -> str:
    """A row value broadcast over the columns."""
    return (
        f'%{name}s = "disc.shape"() {{dims = ["{rows}", "{cols}"]}} : () -> tensor<2xi64>\n'
        f"%{name} = stablehlo.dynamic_broadcast_in_dim %{source}, %{name}s, dims = [{dims}] : "
        f"(tensor<{'?x' * len(dims.split(',')) if dims else ''}{t}>, tensor<2xi64>) -> tensor<?x?x{t}>"
    )


def reduce(name: str, source: str, init: str, op: str, t: str = "f32") -> str:
    return (
        f"%{name} = stablehlo.reduce(%{source} init: %{init}) applies stablehlo.{op} across "
        f"dimensions = [1] : (tensor<?x?x{t}>, tensor<{t}>) -> tensor<?x{t}>"
    )


# Without the vector math: 2^x by a square keeps these tests independent of it.
CHAIN = "\n".join([
    "%ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>",
    "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
    "%sc = stablehlo.constant dense<0.125> : tensor<f32>",
    spread("scb", "sc", ""),
    "%a = stablehlo.multiply %x, %scb : tensor<?x?xf32>",
    spread("mb", "mask", "1"),
    "%b = stablehlo.add %a, %mb : tensor<?x?xf32>",
    reduce("mx", "b", "ninf", "maximum"),
    spread("mxb", "mx", "0"),
    "%c = stablehlo.subtract %b, %mxb : tensor<?x?xf32>",
    "%d = stablehlo.multiply %c, %c : tensor<?x?xf32>",
    "%one = stablehlo.constant dense<1.0> : tensor<f32>",
    spread("oneb", "one", ""),
    "%e0 = stablehlo.add %d, %oneb : tensor<?x?xf32>",
    "%e = stablehlo.divide %oneb, %e0 : tensor<?x?xf32>",
    reduce("sum", "e", "zero", "add"),
    spread("sumb", "sum", "0"),
    "%y = stablehlo.divide %e, %sumb : tensor<?x?xf32>",
])  # fmt: skip


def chain(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    b = x.astype(np.float64) * 0.125 + mask.astype(np.float64)
    c = b - b.max(1, keepdims=True, initial=-np.inf)
    e = 1 / (c * c + 1)
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_three_sweeps_like_softmax(width: int) -> None:
    text = fusion_text(
        "row", ["x: n,m f32", "mask: m f32"], CHAIN, ["y: n,m f32"], "rows = 1 : i64"
    )
    emitted = plan_of(emit, text, Machine(vector_bytes=width))
    for n, m in [(3, m) for m in COLS] + [(0, 5), (1, 33)]:
        x, mask = sample((n, m), "f32"), sample((m,), "f32", 1)
        (y,) = run(emitted, [x, mask])
        np.testing.assert_allclose(y, chain(x, mask), rtol=3e-6)


def layer_norm(static: str) -> Emitted:
    body = "\n".join([
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>",
        '%cnt = "disc.dim"() {dim = "m"} : () -> tensor<f32>'.replace('"m"', f'"{static}"'),
        "%eps = stablehlo.constant dense<1.0e-5> : tensor<f32>",
        "%x = stablehlo.add %u, %v : T",
        "%s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2] : "
        "(T, tensor<f32>) -> tensor<?x?xf32>",
        '%sh1 = "disc.shape"() {dims = ["b", "t", "1"]} : () -> tensor<3xi64>',
        f'%sh = "disc.shape"() {{dims = ["b", "t", "{static}"]}} : () -> tensor<3xi64>',
        "%s1 = stablehlo.dynamic_broadcast_in_dim %s, %sh1, dims = [0, 1] : "
        "(tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x?x1xf32>",
        "%cb = stablehlo.dynamic_broadcast_in_dim %cnt, %sh1, dims = [] : "
        "(tensor<f32>, tensor<3xi64>) -> tensor<?x?x1xf32>",
        "%mean = stablehlo.divide %s1, %cb : tensor<?x?x1xf32>",
        "%mb = stablehlo.dynamic_broadcast_in_dim %mean, %sh, dims = [0, 1, 2] : "
        "(tensor<?x?x1xf32>, tensor<3xi64>) -> T",
        "%c = stablehlo.subtract %x, %mb : T",
        "%cc = stablehlo.multiply %c, %c : T",
        "%q = stablehlo.reduce(%cc init: %zero) applies stablehlo.add across dimensions = [2] : "
        "(T, tensor<f32>) -> tensor<?x?xf32>",
        "%q1 = stablehlo.dynamic_broadcast_in_dim %q, %sh1, dims = [0, 1] : "
        "(tensor<?x?xf32>, tensor<3xi64>) -> tensor<?x?x1xf32>",
        "%var = stablehlo.divide %q1, %cb : tensor<?x?x1xf32>",
        "%eb = stablehlo.dynamic_broadcast_in_dim %eps, %sh1, dims = [] : "
        "(tensor<f32>, tensor<3xi64>) -> tensor<?x?x1xf32>",
        "%ve = stablehlo.add %var, %eb : tensor<?x?x1xf32>",
        "%sd = stablehlo.sqrt %ve : tensor<?x?x1xf32>",
        "%sdb = stablehlo.dynamic_broadcast_in_dim %sd, %sh, dims = [0, 1, 2] : "
        "(tensor<?x?x1xf32>, tensor<3xi64>) -> T",
        "%n = stablehlo.divide %c, %sdb : T",
        "%gb = stablehlo.dynamic_broadcast_in_dim %g, %sh, dims = [2] : (G, tensor<3xi64>) -> T",
        "%y = stablehlo.multiply %n, %gb : T",
    ])  # fmt: skip
    c = static if static.isdigit() else "?"
    body = body.replace(": T", f": tensor<?x?x{c}xf32>").replace("(T,", f"(tensor<?x?x{c}xf32>,")
    body = body.replace("-> T", f"-> tensor<?x?x{c}xf32>").replace("(G,", f"(tensor<{c}xf32>,")
    return plan_of(emit, fusion_text(
        "row", [f"u: b,t,{static} f32", f"v: b,t,{static} f32", f"g: {static} f32"], body,
        [f"x: b,t,{static} f32", f"y: b,t,{static} f32", "mean: b,t,1 f32"], "rows = 2 : i64"))  # fmt: skip


@pytest.mark.parametrize("static", ["768", "50", "8", "m"])
def test_layer_norm_with_residual_and_three_results(static: str) -> None:
    emitted = layer_norm(static)
    for b, t, m in [(2, 3, 768), (1, 1, 768), (0, 4, 768), (2, 2, 17), (3, 1, 1)]:
        cols = int(static) if static.isdigit() else m
        u, v = sample((b, t, cols), "f32"), sample((b, t, cols), "f32", 1)
        g = sample((cols,), "f32", 2)
        x, y, mean = run(emitted, [u, v, g])
        np.testing.assert_array_equal(x, u + v)
        w = (u + v).astype(np.float64)
        want_mean = w.mean(-1, keepdims=True)
        np.testing.assert_allclose(mean, want_mean, atol=2e-6)
        c = w - want_mean
        want = c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g
        np.testing.assert_allclose(y, want, atol=2e-5, rtol=1e-4)


def test_the_residual_sum_is_written_once_and_read_back() -> None:
    (launch,) = layer_norm("768").plan.steps
    assert launch.scratch_bytes == 0
    text = launch.kernel.text
    assert text.count("vector.store") == 2
    assert "maskedstore" not in text
    assert str(launch.extent) == "b*t"


REDUCTIONS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
              "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_reduction_and_type(dtype: str) -> None:
    kind = DTYPES[dtype]
    is_float = kind.kind == "f" or kind == ml_dtypes.bfloat16
    names = [n for n in REDUCTIONS if not (is_float and n in ("and", "or", "xor"))]
    body = "\n".join(reduce(n, "x", "z", n, dtype) for n in names)
    body = body.replace("%and ", "%and_ ")
    results = [f"{'and_' if n == 'and' else n}: n {dtype}" for n in names]
    text = fusion_text("row", [f"x: n,m {dtype}", f"z: {dtype}"], body, results, "rows = 1 : i64")
    emitted = plan_of(emit, text)
    for m in COLS:
        x = sample((4, m), dtype)
        if is_float:
            x = (np.sign(x.astype(np.float32)) * (0.75 + np.abs(x.astype(np.float32)) / 16)).astype(
                kind
            )
        z = np.array(1).astype(kind)
        for name, got in zip(names, run(emitted, [x, z]), strict=True):
            if is_float:
                want = REDUCTIONS[name].reduce(x.astype(np.float64), 1, initial=1.0)
                eps = float(ml_dtypes.finfo(kind).eps)
                want_kind = want.astype(kind).astype(np.float64)
                np.testing.assert_allclose(
                    got.astype(np.float64), want_kind, rtol=(8 if eps < 1e-3 else 1) * eps,
                    atol=m * 1e-6, err_msg=name)  # fmt: skip
            elif dtype == "i1":
                fn = {"add": np.logical_or, "multiply": np.logical_and}.get(name, REDUCTIONS[name])
                np.testing.assert_array_equal(got, fn.reduce(x, 1, initial=True), err_msg=name)
            else:
                with np.errstate(all="ignore"):
                    want = REDUCTIONS[name].reduce(x, 1, dtype=kind, initial=kind.type(1))
                np.testing.assert_array_equal(got, want, err_msg=name)


def test_nan_and_signed_zero_survive_a_maximum() -> None:
    body = "%z = stablehlo.constant dense<0xFF800000> : tensor<f32>\n" + reduce(
        "y", "x", "z", "maximum"
    )
    emitted = plan_of(
        emit, fusion_text("row", ["x: n,m f32"], body, ["y: n f32"], "rows = 1 : i64")
    )
    for m in (1, 5, 64, 70, 200):
        x = np.full((m, m), -1.0, np.float32)
        np.fill_diagonal(x, np.nan)
        assert np.isnan(run(emitted, [x])[0]).all()
        np.fill_diagonal(x, 0.0)
        x[x != 0] = -0.0
        (y,) = run(emitted, [x])
        assert (y == 0).all()
        assert not np.signbit(y).any()
        assert (run(emitted, [np.full((3, m), -np.inf, np.float32)])[0] == -np.inf).all()


ARGMAX = """%z = stablehlo.constant dense<0xFF800000> : tensor<f32>
%k = stablehlo.constant dense<0> : tensor<i32>
%s = "disc.shape"() {dims = ["n", "m"]} : () -> tensor<2xi64>
%i = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> tensor<?x?xi32>
%v, %y = stablehlo.reduce(%x init: %z), (%i init: %k) across dimensions = [1] :
 (tensor<?x?xf32>, tensor<?x?xi32>, tensor<f32>, tensor<i32>) -> (tensor<?xf32>, tensor<?xi32>)
 reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>) {
  %gt = stablehlo.compare GT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %ne = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %or = stablehlo.or %gt, %ne : tensor<i1>
  %eq = stablehlo.compare EQ, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %lt = stablehlo.compare LT, %b, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %and = stablehlo.and %eq, %lt : tensor<i1>
  %or2 = stablehlo.or %or, %and : tensor<i1>
  %p = stablehlo.select %or, %a, %c : tensor<i1>, tensor<f32>
  %q = stablehlo.select %or2, %b, %d : tensor<i1>, tensor<i32>
  stablehlo.return %p, %q : tensor<f32>, tensor<i32>
}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_arg_max_takes_the_first_of_equals_and_the_first_nan(width: int) -> None:
    text = fusion_text("row", ["x: n,m f32"], ARGMAX, ["v: n f32", "y: n i32"], "rows = 1 : i64")
    emitted = plan_of(emit, text, Machine(vector_bytes=width))
    (step,) = emitted.plan.steps
    assert isinstance(step, If)
    (short,) = step.then
    assert isinstance(short, Launch)
    assert short.extent.evaluate({"n": 37}) == -(-37 // (width // 4)), "a row is not in a lane"
    for n, m in itertools.product((5, 37), (1, 2, 7, 16, 33, 100, 1000)):
        x = np.round(sample((n, m), "f32"))
        x[4, m // 2 :: 3] = np.nan
        v, y = run(emitted, [x])
        np.testing.assert_array_equal(y, x.argmax(1))
        np.testing.assert_array_equal(v, np.where(np.isnan(x).any(1), np.nan, x.max(1)))


AFFINE = """%one = stablehlo.constant dense<1> : tensor<i32>
%z = stablehlo.constant dense<0> : tensor<i32>
%u, %v = stablehlo.reduce(%x init: %one), (%w init: %z) across dimensions = [1] :
 (tensor<?x?xi32>, tensor<?x?xi32>, tensor<i32>, tensor<i32>) -> (tensor<?xi32>, tensor<?xi32>)
 reducer(%a: tensor<i32>, %c: tensor<i32>) (%b: tensor<i32>, %d: tensor<i32>) {
  %p = stablehlo.multiply %a, %c : tensor<i32>
  %q = stablehlo.multiply %b, %c : tensor<i32>
  %r = stablehlo.add %q, %d : tensor<i32>
  stablehlo.return %p, %r : tensor<i32>, tensor<i32>
}"""
"""(a, b) * (c, d) = (a*c, b*c + d): composition of affine maps is associative only."""


def affine(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.ones(len(x), np.int32), np.zeros(len(x), np.int32)
    with np.errstate(all="ignore"):
        for k in range(x.shape[1]):
            a, b = a * x[:, k], b * x[:, k] + w[:, k]
    return a, b


def test_a_body_that_does_not_commute_keeps_the_order() -> None:
    text = fusion_text("row", ["x: n,m i32", "w: n,m i32"], AFFINE, ["u: n i32", "v: n i32"])
    emitted = plan_of(emit, text)
    for n, m in itertools.product((3, 37), (0, 1, 5, 16, 64, 65, 200)):
        x, w = sample((n, m), "i32"), sample((n, m), "i32", 1)
        a, b = affine(x, w)
        u, v = run(emitted, [x, w])
        np.testing.assert_array_equal(u, a)
        np.testing.assert_array_equal(v, b)


def test_two_trailing_dimensions_and_a_transposed_operand() -> None:
    body = """%z = stablehlo.constant dense<0.0> : tensor<f32>
    %t = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<?x?x6xf32>) -> tensor<?x?x6xf32>
    %y = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1, 2] :
      (tensor<?x?x6xf32>, tensor<f32>) -> tensor<?xf32>"""
    text = fusion_text("row", ["x: a,c,6 f32"], body, ["y: c f32"], "rows = 1 : i64")
    emitted = plan_of(emit, text)
    for a, c in ((0, 3), (1, 1), (3, 5), (17, 4)):
        x = sample((a, c, 6), "f32")
        (y,) = run(emitted, [x])
        np.testing.assert_allclose(y, x.astype(np.float64).sum((0, 2)), atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i1", "i64"])
def test_few_long_rows_are_split_in_pieces(dtype: str) -> None:
    name = {"i1": "or"}.get(dtype, "add")
    body = "\n".join([reduce("s", "x", "z", name, dtype), reduce("t", "x", "z", "maximum", dtype),
                      f"%y = stablehlo.xor %s, %t : tensor<?x{dtype}>" if dtype[0] == "i"
                      else f"%y = stablehlo.multiply %s, %t : tensor<?x{dtype}>"])  # fmt: skip
    text = fusion_text("row", [f"x: n,m {dtype}", f"z: {dtype}"], body, [f"y: n {dtype}"])
    emitted = plan_of(emit, text)
    (few,) = emitted.plan.steps
    assert len(few.then[0].then) == 2
    z = np.array(0).astype(DTYPES[dtype])
    for n, m in [(1, 65535), (1, 65536), (3, 70001), (65, 65536)]:
        x = np.zeros((n, m), DTYPES[dtype]) if n == 65 else sample((n, m), dtype)
        x[:, 5] = DTYPES[dtype].type(1)
        (y,) = run(emitted, [x, z])
        if dtype == "i1":
            want = x.any(1) ^ x.any(1)
        elif dtype == "i64":
            want = x.sum(1) ^ np.maximum(x.max(1), 0)
        else:
            rounded = x.astype(np.float64).sum(1).astype(DTYPES[dtype]).astype(np.float64)
            want = rounded * np.maximum(x.astype(np.float64).max(1), 0)
        tol = 0 if dtype[0] == "i" else 2e-4 if dtype == "f32" else 1e-2
        np.testing.assert_allclose(y.astype(np.float64), want.astype(np.float64), rtol=tol)


def difference(square: str) -> str:
    """`c = x - r` and `e` of it, for a row value `r`."""
    return "\n".join([
        spread("rb", "r", "0"),
        "%c = stablehlo.subtract %x, %rb : tensor<?x?xf32>",
        "%e = stablehlo.multiply %c, %c : tensor<?x?xf32>" if square
        else "%e = stablehlo.exponential %c : tensor<?x?xf32>",
        reduce("s", "e", "z", "add"),
    ])  # fmt: skip


NEGATED = "%r = stablehlo.negate %m : tensor<?xf32>"
DIVIDED = "%y = stablehlo.divide %e, %sb : tensor<?x?xf32>"


@pytest.mark.parametrize(
    ("body", "result", "launches"),
    [
        # exp(x - max): the sum is taken in the first stage.
        ([reduce("r", "x", "z", "maximum"), difference(""), spread("sb", "s", "0"), DIVIDED],
         "y: n,m f32", ["pieces", "combine", "pieces"]),
        ([reduce("r", "x", "z", "maximum"), difference("")],
         "s: n f32", ["pieces", "combine"]),
        # -max is no bound: exp(x - r) might overflow where the program does not.
        ([reduce("m", "x", "z", "maximum"), NEGATED, difference("")],
         "s: n f32", ["pieces", "combine"] * 2),
        # The same for a mean; squares about any value need the sum only.
        ([reduce("r", "x", "z", "add"), difference("")],
         "s: n f32", ["pieces", "combine"] * 2),
        ([reduce("m", "x", "z", "add"), NEGATED, difference("square")],
         "s: n f32", ["pieces", "combine"]),
        ([reduce("r", "x", "z", "maximum"), difference("square")],
         "s: n f32", ["pieces", "combine"] * 2),
    ],
)  # fmt: skip
def test_the_second_of_two_sums_is_taken_relative_to_the_piece(
    body: list[str], result: str, launches: list[str]
) -> None:
    text = fusion_text("row", ["x: n,m f32", "z: f32"], "\n".join(body), [result])
    (few,) = plan_of(emit, text).plan.steps
    (long,) = few.then
    assert str(few.condition) == "n < 64"
    assert str(long.condition) == "m >= 65536"
    assert [step.kernel.name.rpartition("_")[2] for step in long.then] == launches
    assert all(step.scratch_bytes == Expr.const(0) for step in long.then)


def test_rows_of_scratch_are_split_however_many_there_are() -> None:
    body = "\n".join([CHAIN, "%w = stablehlo.add %x, %oneb : tensor<?x?xf32>"])
    text = fusion_text("row", ["x: n,m f32", "mask: m f32"], body, ["sum: n f32", "w: n,m f32"])
    (long,) = plan_of(emit, text).plan.steps
    assert str(long.condition) == "m >= 65536"
    (whole,) = long.otherwise
    assert whole.scratch_bytes != Expr.const(0)
    assert all(step.scratch_bytes == Expr.const(0) for step in long.then)


def test_scratch_rows_of_two_widths_do_not_overlap() -> None:
    """The second sweep reads bf16 elements of a row, and stores f32 elements."""
    body = "\n".join([
        "%e = stablehlo.exponential %x : tensor<?x?xbf16>",
        reduce("r", "e", "z", "maximum", "bf16"), spread("rb", "r", "0", t="bf16"),
        "%d = stablehlo.subtract %e, %rb : tensor<?x?xbf16>",
        "%w = stablehlo.convert %d : (tensor<?x?xbf16>) -> tensor<?x?xf32>",
        "%f = stablehlo.exponential %w : tensor<?x?xf32>",
        reduce("s", "f", "z32", "add"), spread("sb", "s", "0"),
        "%q = stablehlo.divide %f, %sb : tensor<?x?xf32>",
        "%y = stablehlo.convert %q : (tensor<?x?xf32>) -> tensor<?x?xf16>",
    ])  # fmt: skip
    operands = ["x: n,m bf16", "z: bf16", "z32: f32"]
    emitted = plan_of(emit, fusion_text("row", operands, body, ["y: n,m f16"]))
    zero = np.zeros((), np.float32)
    for m in (1, 33, 1000):
        x = np.clip(sample((3, m), "f32"), -1, 1).astype(ml_dtypes.bfloat16)
        (y,) = run(emitted, [x, zero.astype(ml_dtypes.bfloat16), zero])
        e = np.exp(x.astype(np.float64)).astype(ml_dtypes.bfloat16)
        d = (e - np.maximum(e.max(1, keepdims=True), 0)).astype(np.float64)
        want = np.exp(d) / np.exp(d).sum(1, keepdims=True)
        np.testing.assert_allclose(y.astype(np.float64), want, rtol=2e-2)


def test_a_static_number_of_many_rows_is_never_split() -> None:
    body = (
        reduce("y", "x", "z", "add")
        .replace("tensor<?x?x", "tensor<64x?x")
        .replace("tensor<?x", "tensor<64x")
    )
    text = fusion_text("row", ["x: 64,m f32", "z: f32"], body, ["y: 64 f32"])
    assert len(plan_of(emit, text).plan.steps) == 1
    assert isinstance(plan_of(emit, text).plan.steps[0], Launch)


def test_rows_of_one_element() -> None:
    body = "\n".join([
        "%z = stablehlo.constant dense<0.0> : tensor<f32>",
        "%r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : "
        "(tensor<1x?xf32>, tensor<f32>) -> tensor<?xf32>",
        "%y = stablehlo.add %r, %r : tensor<?xf32>",
    ])  # fmt: skip
    emitted = plan_of(emit, fusion_text("column", ["x: 1,m f32"], body, ["r: m f32", "y: m f32"]))
    for m in (0, 1, 5, 100):
        x = sample((1, m), "f32")
        r, y = run(emitted, [x])
        np.testing.assert_array_equal(r, x[0])
        np.testing.assert_array_equal(y, x[0] * 2)


def test_softmax_of_attention_scores() -> None:
    body = """%ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = "disc.shape"() {dims = ["b", "12", "t", "t"]} : () -> tensor<4xi64>
    %mb = stablehlo.dynamic_broadcast_in_dim %mask, %s, dims = [0, 3] : (tensor<?x?xf32>, tensor<4xi64>) -> tensor<?x12x?x?xf32>
    %a = stablehlo.add %x, %mb : tensor<?x12x?x?xf32>
    %m = stablehlo.reduce(%a init: %ninf) applies stablehlo.maximum across dimensions = [3] : (tensor<?x12x?x?xf32>, tensor<f32>) -> tensor<?x12x?xf32>
    %m4 = stablehlo.dynamic_broadcast_in_dim %m, %s, dims = [0, 1, 2] : (tensor<?x12x?xf32>, tensor<4xi64>) -> tensor<?x12x?x?xf32>
    %c = stablehlo.subtract %a, %m4 : tensor<?x12x?x?xf32>
    %e = stablehlo.exponential %c : tensor<?x12x?x?xf32>
    %d = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<?x12x?x?xf32>, tensor<f32>) -> tensor<?x12x?xf32>
    %d4 = stablehlo.dynamic_broadcast_in_dim %d, %s, dims = [0, 1, 2] : (tensor<?x12x?xf32>, tensor<4xi64>) -> tensor<?x12x?x?xf32>
    %y = stablehlo.divide %e, %d4 : tensor<?x12x?x?xf32>"""
    text = fusion_text("row", ["x: b,12,t,t f32", "mask: b,t f32"], body, ["y: b,12,t,t f32"])
    emitted = plan_of(emit, text)
    for b, t in ((1, 1), (2, 5), (1, 16), (2, 33), (1, 128)):
        x, mask = sample((b, 12, t, t), "f32"), sample((b, t), "f32", 1)
        (y,) = run(emitted, [x, mask])
        a = x.astype(np.float64) + mask[:, None, None, :]
        e = np.exp(a - a.max(-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-9)


def test_rows_in_a_loop_have_a_kernel_for_less_than_all_vectors() -> None:
    """A row of 16 in a vector of 32 lanes takes twice the time of two of 8."""

    def farthest(x: jax.Array) -> jax.Array:
        def step(i: int, most: jax.Array) -> jax.Array:
            return most + jnp.max(jnp.abs(x - x[i]), -1) * jnp.sum(x * x[i], -1)

        return jax.lax.fori_loop(0, x.shape[0], step, jnp.zeros(x.shape[:1]))

    f = shlo_disc.jit(farthest)
    uses = f.lower(np.ones((2, 40), np.float32)).compile().executable.host.uses
    (step,) = next(use.plan.steps for use in uses if use.kind == "row")
    assert isinstance(step, If)
    assert str(step.condition).startswith("d1 < ")
    assert all(isinstance(launch, Launch) for launch in step.then), "they are not long"
    for cols in (1, 13, 16, 31, 33, 70):
        x = sample((5, cols), "f32")
        wide = x.astype(np.float64)
        pairs = wide[:, None] - wide
        want = (np.abs(pairs).max(-1) * np.einsum("nc,mc->nm", wide, wide)).sum(1)
        np.testing.assert_allclose(f(x), want, rtol=2e-5, atol=2e-5)
