"""Every op that moves elements, against the StableHLO interpreter, over sizes and lane widths."""

# ruff: noqa: E501 - MLIR text
from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pytest

from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir.mlir import ir, new_context, stablehlo
from shlo_disc.lower.cpu.loop import emit
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.values.data_movement import DATA_MOVEMENT
from shlo_disc.lower.values.reduction import REDUCTIONS
from tests.lower.helpers import DTYPES, Tensor, fusion_text, plan_of, run, sample

N = [{"n": v} for v in (0, 1, 2, 7, 16, 17, 100, 1000)]
NM = [{"n": a, "m": b} for a, b in ((0, 3), (3, 0), (1, 1), (2, 7), (5, 16), (3, 17), (4, 100))]


@dataclass(frozen=True)
class Case:
    """A fusion body over operands; the interpreter says what it means."""

    op: str
    operands: tuple[str, ...]
    body: str
    result: str
    sizes: list[dict[str, int]] = field(default_factory=lambda: NM)
    ints: tuple[int, int] = (0, 5)
    """Range of integer operands (indices)."""


def shape_of(*dims: str) -> str:
    names = ", ".join(f'"{d}"' for d in dims)
    return f'"disc.sizes"() {{dims = [{names}]}} : () -> tensor<{len(dims)}xi64>'


CASES = [
    Case("broadcast_in_dim", ("x: 5 f32",),
         "%y = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<5xf32>) -> tensor<3x5x2xf32>",
         "y: 3,5,2 f32", [{}]),
    Case("broadcast_in_dim", ("x: 4,1,3 f32",),
         "%y = stablehlo.broadcast_in_dim %x, dims = [2, 0, 1] : (tensor<4x1x3xf32>) -> "
         "tensor<7x3x4xf32>", "y: 7,3,4 f32", [{}]),
    Case("dynamic_broadcast_in_dim", ("x: m f32", "z: n,m f32"),
         f"%s = {shape_of('n', 'm')}\n"
         "%b = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : "
         "(tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>\n"
         "%y = stablehlo.add %b, %z : tensor<?x?xf32>", "y: n,m f32"),
    Case("dynamic_broadcast_in_dim", ("x: n f32", "z: n,m f32"),
         f"%s = {shape_of('n', 'm')}\n"
         "%b = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : "
         "(tensor<?xf32>, tensor<2xi64>) -> tensor<?x?xf32>\n"
         "%y = stablehlo.subtract %b, %z : tensor<?x?xf32>", "y: n,m f32"),
    Case("dynamic_broadcast_in_dim", ("x: k,j f32", "z: n,m f32"),
         f"%s = {shape_of('n', 'm')}\n"
         "%b = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0, 1] : "
         "(tensor<?x?xf32>, tensor<2xi64>) -> tensor<?x?xf32>\n"
         "%y = stablehlo.add %b, %z : tensor<?x?xf32>", "y: n,m f32",
         [{"n": 3, "m": 17, "k": 1, "j": 17}, {"n": 3, "m": 17, "k": 3, "j": 1},
          {"n": 3, "m": 33, "k": 3, "j": 33}, {"n": 2, "m": 20, "k": 1, "j": 1}]),
    Case("reshape", ("x: 6,4 f32",), "%y = stablehlo.reshape %x : (tensor<6x4xf32>) -> "
         "tensor<2x12xf32>", "y: 2,12 f32", [{}]),
    Case("reshape", ("x: 1 f32",), "%y = stablehlo.reshape %x : (tensor<1xf32>) -> tensor<f32>",
         "y: f32", [{}]),
    Case("dynamic_reshape", ("x: n,m,12,64 f32",),
         f"%s = {shape_of('n', 'm', '768')}\n"
         "%r = stablehlo.dynamic_reshape %x, %s : (tensor<?x?x12x64xf32>, tensor<3xi64>) -> "
         "tensor<?x?x768xf32>\n%y = stablehlo.negate %r : tensor<?x?x768xf32>", "y: n,m,768 f32",
         NM[:4]),
    Case("dynamic_reshape", ("x: n,m,12 f32", "b: 12 f32"),
         # A bias between two reshapes: the tile space has to be cut inside a dimension.
         f"%s = {shape_of('n*m', '4', '3')}\n%s2 = {shape_of('n', 'm', '12')}\n"
         "%c = stablehlo.dynamic_broadcast_in_dim %b, %s2, dims = [2] : "
         "(tensor<12xf32>, tensor<3xi64>) -> tensor<?x?x12xf32>\n"
         "%a = stablehlo.add %x, %c : tensor<?x?x12xf32>\n"
         "%r = stablehlo.dynamic_reshape %a, %s : (tensor<?x?x12xf32>, tensor<3xi64>) -> "
         "tensor<?x4x3xf32>\n"
         "%y = stablehlo.transpose %r, dims = [1, 0, 2] : (tensor<?x4x3xf32>) -> tensor<4x?x3xf32>",
         "y: 4,n*m,3 f32"),
    Case("dynamic_reshape", ("x: n,35 f32", "b: 5 f32"),
         f"%s = {shape_of('n', '7', '5')}\n%s1 = {shape_of('7*n', '5')}\n"
         "%c = stablehlo.dynamic_broadcast_in_dim %b, %s1, dims = [1] : "
         "(tensor<5xf32>, tensor<2xi64>) -> tensor<?x5xf32>\n"
         "%r = stablehlo.dynamic_reshape %x, %s1 : (tensor<?x35xf32>, tensor<2xi64>) -> "
         "tensor<?x5xf32>\n%a = stablehlo.multiply %r, %c : tensor<?x5xf32>\n"
         "%y = stablehlo.dynamic_reshape %a, %s : (tensor<?x5xf32>, tensor<3xi64>) -> "
         "tensor<?x7x5xf32>", "y: n,7,5 f32", N[:7]),
    Case("transpose", ("x: n,m f32",),
         "%y = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>",
         "y: m,n f32"),
    Case("transpose", ("x: n,m,12,16 f32",),
         "%t = stablehlo.transpose %x, dims = [0, 2, 1, 3] : (tensor<?x?x12x16xf32>) -> "
         "tensor<?x12x?x16xf32>\n%y = stablehlo.abs %t : tensor<?x12x?x16xf32>",
         "y: n,12,m,16 f32", NM[:5]),
    Case("transpose", ("x: n,3,m i32",),
         "%y = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<?x3x?xi32>) -> tensor<?x?x3xi32>",
         "y: m,n,3 i32"),
    Case("slice", ("x: n,40 f32",),
         "%y = stablehlo.slice %x [0:1, 3:38:5] : (tensor<?x40xf32>) -> tensor<1x7xf32>",
         "y: 1,7 f32", [{"n": 1}, {"n": 4}]),
    Case("slice", ("x: 9,40 f32",),
         "%a = stablehlo.slice %x [2:8, 0:33] : (tensor<9x40xf32>) -> tensor<6x33xf32>\n"
         "%y = stablehlo.negate %a : tensor<6x33xf32>", "y: 6,33 f32", [{}]),
    Case("real_dynamic_slice", ("x: n,m f32",),
         f"%a = {shape_of('0', '1')}\n%b = {shape_of('n', 'm')}\n%c = {shape_of('1', '1')}\n"
         "%y = stablehlo.real_dynamic_slice %x, %a, %b, %c : (tensor<?x?xf32>, tensor<2xi64>, "
         "tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>", "y: n,m-1 f32",
         [{"n": 1, "m": 1}, {"n": 3, "m": 2}, {"n": 4, "m": 18}, {"n": 2, "m": 100}]),
    Case("dynamic_slice", ("x: n,50 f32", "i: i32", "j: i32"),
         "%y = stablehlo.dynamic_slice %x, %i, %j, sizes = [1, 20] : (tensor<?x50xf32>, "
         "tensor<i32>, tensor<i32>) -> tensor<1x20xf32>", "y: 1,20 f32",
         [{"n": 1}, {"n": 4}, {"n": 10}], (-3, 60)),
    Case("pad", ("x: n,5 f32", "p: f32"),
         "%y = stablehlo.pad %x, %p, low = [0, 3], high = [0, 30], interior = [0, 0] : "
         "(tensor<?x5xf32>, tensor<f32>) -> tensor<?x38xf32>", "y: n,38 f32", N[:6]),
    Case("pad", ("x: 6,20 f32", "p: f32"),
         "%y = stablehlo.pad %x, %p, low = [2, -2], high = [-1, 3], interior = [0, 2] : "
         "(tensor<6x20xf32>, tensor<f32>) -> tensor<7x59xf32>", "y: 7,59 f32", [{}]),
    Case("pad", ("x: 4,3,17 f32", "p: f32"),
         "%y = stablehlo.pad %x, %p, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0] : "
         "(tensor<4x3x17xf32>, tensor<f32>) -> tensor<4x5x17xf32>", "y: 4,5,17 f32", [{}]),
    Case("pad", ("x: 5,4 f32", "p: f32"),
         "%y = stablehlo.pad %x, %p, low = [1, 0], high = [0, 0], interior = [1, 0] : "
         "(tensor<5x4xf32>, tensor<f32>) -> tensor<10x4xf32>", "y: 10,4 f32", [{}]),
    Case("dynamic_pad", ("x: n,m f32", "p: f32"),
         f"%a = {shape_of('1', '2')}\n%b = {shape_of('n', '0')}\n%c = {shape_of('0', '0')}\n"
         "%y = stablehlo.dynamic_pad %x, %p, %a, %b, %c : (tensor<?x?xf32>, tensor<f32>, "
         "tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>", "y: 2*n + 1,m+2 f32"),
    Case("concatenate", ("x: n f32", "z: m f32", "w: 3 f32"),
         "%y = stablehlo.concatenate %x, %z, %w, dim = 0 : (tensor<?xf32>, tensor<?xf32>, "
         "tensor<3xf32>) -> tensor<?xf32>", "y: n+m+3 f32"),
    Case("concatenate", ("x: n,m f32", "z: n,2 f32"),
         "%a = stablehlo.negate %x : tensor<?x?xf32>\n"
         "%y = stablehlo.concatenate %a, %z, dim = 1 : (tensor<?x?xf32>, tensor<?x2xf32>) -> "
         "tensor<?x?xf32>", "y: n,m+2 f32"),
    Case("concatenate", ("x: n,m f32", "z: 3,m f32"),
         "%y = stablehlo.concatenate %x, %z, %x, dim = 0 : (tensor<?x?xf32>, tensor<3x?xf32>, "
         "tensor<?x?xf32>) -> tensor<?x?xf32>", "y: 2*n+3,m f32"),
    Case("concatenate", ("x: n,1 i32", "z: n,1 i32"),
         "%y = stablehlo.concatenate %x, %z, dim = 1 : (tensor<?x1xi32>, tensor<?x1xi32>) -> "
         "tensor<?x2xi32>", "y: n,2 i32", N),
    Case("reverse", ("x: n,m f32",),
         "%y = stablehlo.reverse %x, dims = [1] : tensor<?x?xf32>", "y: n,m f32"),
    Case("reverse", ("x: n,m f32",),
         "%a = stablehlo.abs %x : tensor<?x?xf32>\n"
         "%y = stablehlo.reverse %a, dims = [0, 1] : tensor<?x?xf32>", "y: n,m f32"),
    Case("iota", ("x: 7,20 f32",),
         "%i = stablehlo.iota dim = 1 : tensor<7x20xf32>\n%j = stablehlo.iota dim = 0 : "
         "tensor<7x20xf32>\n%a = stablehlo.multiply %i, %j : tensor<7x20xf32>\n"
         "%y = stablehlo.add %a, %x : tensor<7x20xf32>", "y: 7,20 f32", [{}]),
    Case("dynamic_iota", ("x: n,m i32",),
         f"%s = {shape_of('n', 'm')}\n"
         "%i = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> tensor<?x?xi32>\n"
         "%j = stablehlo.dynamic_iota %s, dim = 0 : (tensor<2xi64>) -> tensor<?x?xi32>\n"
         "%c = stablehlo.compare LE, %i, %j : (tensor<?x?xi32>, tensor<?x?xi32>) -> "
         "tensor<?x?xi1>\n%y = stablehlo.select %c, %x, %i : tensor<?x?xi1>, tensor<?x?xi32>",
         "y: n,m i32"),
    Case("dynamic_update_slice", ("x: n,30 f32", "u: 1,20 f32", "i: i32", "j: i32"),
         "%y = stablehlo.dynamic_update_slice %x, %u, %i, %j : (tensor<?x30xf32>, "
         "tensor<1x20xf32>, tensor<i32>, tensor<i32>) -> tensor<?x30xf32>", "y: n,30 f32",
         [{"n": 1}, {"n": 4}, {"n": 9}], (-3, 20)),
    Case("gather", ("x: 6,40 f32", "i: n,1 i32"),
         '%y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = '
         "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
         "slice_sizes = array<i64: 1, 40>}> : (tensor<6x40xf32>, tensor<?x1xi32>) -> "
         "tensor<?x40xf32>", "y: n,40 f32", N[:6], (-2, 9)),
    Case("gather", ("x: 50 f32", "i: n i32"),
         '%y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<'
         "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
         "slice_sizes = array<i64: 1>}> : (tensor<50xf32>, tensor<?xi32>) -> tensor<?xf32>",
         "y: n f32", N, (-9, 60)),
    Case("gather", ("x: 8,30,5 f32", "i: 2,n i32"),
         '%y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = '
         "[1, 2], collapsed_slice_dims = [2], start_index_map = [2, 1], index_vector_dim = 0>, "
         "slice_sizes = array<i64: 8, 20, 1>}> : (tensor<8x30x5xf32>, tensor<2x?xi32>) -> "
         "tensor<?x8x20xf32>", "y: n,8,20 f32", N[:5], (-2, 14)),
    Case("gather", ("x: n,10,6 f32", "i: n,3,1 i32"),
         '%y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = '
         "[2], collapsed_slice_dims = [1], operand_batching_dims = [0], "
         "start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, "
         "slice_sizes = array<i64: 1, 1, 6>}> : (tensor<?x10x6xf32>, tensor<?x3x1xi32>) -> "
         "tensor<?x3x6xf32>", "y: n,3,6 f32", N[1:5], (-2, 12)),
    Case("dynamic_gather", ("x: 9,m f32", "i: n,1 i32"),
         f"%s = {shape_of('1', 'm')}\n"
         '%y = "stablehlo.dynamic_gather"(%x, %i, %s) <{dimension_numbers = #stablehlo.gather<'
         "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
         "index_vector_dim = 1>}> : (tensor<9x?xf32>, tensor<?x1xi32>, tensor<2xi64>) -> "
         "tensor<?x?xf32>", "y: n,m f32", NM, (-3, 12)),
    Case("constant", ("x: n i32",),
         "%c = stablehlo.constant dense<-7> : tensor<i32>\n"
         f"%s = {shape_of('n')}\n"
         "%b = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [] : (tensor<i32>, "
         "tensor<1xi64>) -> tensor<?xi32>\n%y = stablehlo.add %x, %b : tensor<?xi32>", "y: n i32",
         N),
    Case("disc.dim", ("x: n f32",),
         '%d = "disc.dim"() {dim = "2*n"} : () -> tensor<f32>\n'
         f"%s = {shape_of('n')}\n"
         "%b = stablehlo.dynamic_broadcast_in_dim %d, %s, dims = [] : (tensor<f32>, "
         "tensor<1xi64>) -> tensor<?xf32>\n%y = stablehlo.divide %x, %b : tensor<?xf32>",
         "y: n f32", N),
    Case("disc.sizes", ("x: n,m i64",),
         f"%y = {shape_of('n', 'm', 'n*m', '4')}", "y: 4 i64"),
    Case("reduce", ("x: n,m f32", "z: f32"),
         "%y = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [0] : "
         "(tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>", "y: m f32"),
    Case("reduce", ("x: n,3,m,2 f32", "z: f32"),
         "%a = stablehlo.reduce(%x init: %z) applies stablehlo.minimum across dimensions = [1, 3] :"
         " (tensor<?x3x?x2xf32>, tensor<f32>) -> tensor<?x?xf32>\n"
         "%y = stablehlo.abs %a : tensor<?x?xf32>", "y: n,m f32"),
    Case("reduce", ("x: n,m i32", "z: i32"),
         "%y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1] : "
         "(tensor<?x?xi32>, tensor<i32>) -> tensor<i32>", "y: i32"),
    Case("reduce_window", ("x: n,20 f32", "z: f32"),
         '%y = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 1, 3>, '
         "window_strides = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 1]]> : "
         "tensor<2x2xi64>}> ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
         "%c = stablehlo.maximum %a, %b : tensor<f32>\nstablehlo.return %c : tensor<f32>}) : "
         "(tensor<?x20xf32>, tensor<f32>) -> tensor<?x10xf32>", "y: n,10 f32", N[:6]),
    Case("reduce_window", ("x: 7,12,3 i32", "z: i32"),
         '%y = "stablehlo.reduce_window"(%x, %z) <{window_dimensions = array<i64: 2, 3, 1>, '
         "window_strides = array<i64: 2, 1, 1>, base_dilations = array<i64: 1, 2, 1>, "
         "window_dilations = array<i64: 2, 1, 1>, padding = dense<[[1, 0], [-1, 2], [0, 0]]> : "
         "tensor<3x2xi64>}> ({\n^bb0(%a: tensor<i32>, %b: tensor<i32>):\n"
         "%c = stablehlo.add %a, %b : tensor<i32>\nstablehlo.return %c : tensor<i32>}) : "
         "(tensor<7x12x3xi32>, tensor<i32>) -> tensor<3x22x3xi32>", "y: 3,22,3 i32", [{}]),
]  # fmt: skip


def evaluated(sizes: str, env: dict[str, int]) -> tuple[int, ...]:
    return tuple(Expr.parse(s).evaluate(env) for s in sizes.split(",") if s.strip())


def interpret(case: Case, env: dict[str, int], inputs: list[np.ndarray]) -> np.ndarray:
    """The result according to the StableHLO interpreter, at concrete sizes."""
    ins, out = [Tensor.parse(t) for t in case.operands], Tensor.parse(case.result)
    body = re.sub(
        r'"disc.sizes"\(\) \{dims = \[(.*?)\]\} : \(\) ->',
        lambda m: (
            "stablehlo.constant dense<"
            + str([Expr.parse(s.strip(' "')).evaluate(env) for s in m[1].split(",")])
            + "> :"
        ),
        case.body,
    )
    body = re.sub(
        r'"disc.dim"\(\) \{dim = "(.*?)"\} : \(\) ->',
        lambda m: f"stablehlo.constant dense<{Expr.parse(m[1]).evaluate(env)}.0> :",
        body,
    )  # fmt: skip
    arguments = ", ".join(f"%{t.name}: {t.type}" for t in ins)
    text = (f"func.func @main({arguments}) -> {out.type} {{\n{body}\n"
            f"return %{out.name} : {out.type} }}")  # fmt: skip
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        values = []
        for tensor, array in zip(ins, inputs, strict=True):
            element = ir.Type.parse(tensor.dtype)
            values.append(
                ir.DenseElementsAttr.get(array, type=element, shape=list(array.shape))
                if array.size
                else ir.Attribute.parse(
                    f"dense<> : tensor<{'x'.join(map(str, array.shape))}x{tensor.dtype}>"
                )
            )
        (result,) = stablehlo.eval_module(module, values)
        shape = evaluated(out.sizes, env)
        if 0 in shape:
            return np.zeros(shape, DTYPES[out.dtype])
        return np.array(result).astype(DTYPES[out.dtype]).reshape(shape)


def inputs_of(case: Case, env: dict[str, int]) -> list[np.ndarray]:
    found = []
    for k, text in enumerate(case.operands):
        t = Tensor.parse(text)
        shape = evaluated(t.sizes, env)
        if t.dtype.startswith("f"):
            found.append(sample(shape, t.dtype, k))
        else:
            rng = np.random.default_rng(k + len(env))
            found.append(rng.integers(*case.ints, shape).astype(DTYPES[t.dtype]))
    return found


@pytest.mark.parametrize("vector_bytes", [64, 32])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{CASES.index(c)}")
def test_move_matches_the_interpreter(case: Case, vector_bytes: int) -> None:
    text = fusion_text("loop", case.operands, case.body, [case.result])
    emitted = plan_of(emit, text, Machine(vector_bytes=vector_bytes))
    for env in case.sizes:
        inputs = inputs_of(case, env)
        want = interpret(case, env, inputs)
        (got,) = run(emitted, inputs, env)
        np.testing.assert_array_equal(got, want, err_msg=f"{env}")


@pytest.mark.parametrize(
    ("narrow", "wide"), [("i16", "f32"), ("ui8", "i64"), ("f16", "f32"), ("i8", "bf16")]
)
def test_bitcast_convert_between_widths_both_ways(narrow: str, wide: str) -> None:
    ratio = DTYPES[wide].itemsize // DTYPES[narrow].itemsize
    small, large = f"tensor<?x{ratio}x{narrow}>", f"tensor<?x{wide}>"
    join = plan_of(emit, fusion_text(
        "loop", [f"x: n,{ratio} {narrow}"],
        f"%y = stablehlo.bitcast_convert %x : ({small}) -> {large}", [f"y: n {wide}"]))  # fmt: skip
    cut = plan_of(emit, fusion_text(
        "loop", [f"x: n {wide}"],
        f"%y = stablehlo.bitcast_convert %x : ({large}) -> {small}", [f"y: n,{ratio} {narrow}"]))  # fmt: skip
    for n in (0, 1, 7, 17, 100):
        bits = np.random.default_rng(n).integers(0, 256, n * DTYPES[wide].itemsize).astype(np.uint8)
        x, y = bits.view(DTYPES[narrow]).reshape(n, ratio), bits.view(DTYPES[wide])
        assert run(join, [x])[0].tobytes() == bits.tobytes()
        assert run(cut, [y])[0].tobytes() == bits.tobytes()


def test_every_rule_is_exercised() -> None:
    tested = {"stablehlo.bitcast_convert"} | {
        c.op if c.op.startswith("disc.") else f"stablehlo.{c.op}" for c in CASES
    }
    assert tested == set(DATA_MOVEMENT) | set(REDUCTIONS)


def test_purely_element_wise_work_is_one_flat_loop() -> None:
    body = "%y = stablehlo.negate %x : tensor<?x?xf32>"
    emitted = plan_of(emit, fusion_text("loop", ["x: n,m f32"], body, ["y: n,m f32"]))
    (launch,) = emitted.plan.steps
    assert str(launch.params[0]) == "m*n"
    assert "divui" not in launch.kernel.text


def test_head_split_needs_no_division_in_the_loop() -> None:
    """[b, t, 768] + bias -> [b, t, 12, 64] -> [b, 12, t, 64]: the loops follow the heads."""
    body = f"""%s = {shape_of("b", "t", "12", "64")}
    %s3 = {shape_of("b", "t", "768")}
    %c = stablehlo.dynamic_broadcast_in_dim %w, %s3, dims = [2] : (tensor<768xf32>, tensor<3xi64>) -> tensor<?x?x768xf32>
    %a = stablehlo.add %x, %c : tensor<?x?x768xf32>
    %r = stablehlo.dynamic_reshape %a, %s : (tensor<?x?x768xf32>, tensor<4xi64>) -> tensor<?x?x12x64xf32>
    %y = stablehlo.transpose %r, dims = [0, 2, 1, 3] : (tensor<?x?x12x64xf32>) -> tensor<?x12x?x64xf32>"""
    text = fusion_text("loop", ["x: b,t,768 f32", "w: 768 f32"], body, ["y: b,12,t,64 f32"])
    emitted = plan_of(emit, text)
    kernel = emitted.plan.steps[0].kernel.text
    loop = kernel[kernel.index("scf.for %task") :]
    assert not any(word in loop for word in ("div", "rem", "gather"))
    x, w = sample((2, 5, 768), "f32"), sample((768,), "f32", 1)
    (y,) = run(emitted, [x, w])
    np.testing.assert_array_equal(y, (x + w).reshape(2, 5, 12, 64).transpose(0, 2, 1, 3))


def test_equal_kernels_have_equal_texts() -> None:
    def text(a: str, b: str) -> str:
        body = "%y = stablehlo.tanh %x : tensor<?x?xf32>".replace("tanh", "negate")
        return plan_of(
            emit, fusion_text("loop", [f"x: {a},{b} f32"], body, [f"y: {a},{b} f32"])
        ).plan.steps[0].kernel.text  # fmt: skip

    assert text("n", "m") == text("batch", "length")


def test_results_of_different_counts_are_a_planner_mistake() -> None:
    text = fusion_text("loop", ["x: n f32", "y: m f32"], "", ["x: n f32", "y: m f32"])
    with pytest.raises(InternalError, match="different element counts"):
        plan_of(emit, text)
