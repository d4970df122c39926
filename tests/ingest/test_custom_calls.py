"""Custom calls that this compiler reads: what their check refuses, and that none is raw."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import new_context, ops_of

F = "tensor<?x4xf32>"
ONE = "stablehlo.constant dense<1>"


def module(call: str, kinds: str, results: str, *functions: str, before: str = "") -> str:
    count = results.count("tensor")
    values = "%0" if count == 1 else ", ".join(f"%0#{k}" for k in range(count))
    left = "%0" if count == 1 else f"%0:{count}"
    out = f"({results})" if count > 1 else results
    return f"""func.func @main(%x: {F}, %k: tensor<i32>, %s: tensor<2xui64>) -> {out} {{
  {before}
  {left} = stablehlo.custom_call {call} : {kinds} -> {out}
  return {values} : {results}
}}
{" ".join(functions)}"""


def refused(text: str) -> str:
    with pytest.raises(InvalidModuleError) as raised:
        ingest(text, new_context())
    assert re.match(r"<module>:\d+:\d+: custom_call @", str(raised.value))
    return str(raised.value)


ADD = """func.func private @f(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32> }"""
HALF = ADD.replace("f32", "f16")
GREATER = """func.func private @f(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1> }"""
NUMBERS = f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = {ONE} : tensor<2xi32>
  %m = {ONE} : tensor<3xi32>
  %g = stablehlo.constant dense<1.0> : tensor<2xf32>
  %p = stablehlo.constant dense<0> : tensor<2x2xi32>"""


@pytest.mark.parametrize(
    ("operands", "kinds", "attributes", "functions", "message"),
    [
        ("%x", f"({F})", "", [], "must have 7 operands and 1 results, not 1 and 1"),
        ("%x, %z, %n, %n, %n, %n, %p", "", "", [ADD], "an attribute called_computations"),
        ("%x, %z, %n, %n, %n, %n, %p", "", "called_computations = []", [ADD], "one called computa"),
        ("%x, %z, %n, %n, %n, %n, %p", "", "called_computations = [@f]", [HALF],
         "a computation of the elements of its results"),
        ("%x, %z, %n, %n, %n, %n, %p", "", "called_computations = [@f]", [GREATER],
         "a computation of the elements of its results"),
        ("%x, %z, %m, %n, %n, %n, %p", "", "called_computations = [@f]", [ADD],
         "the window as operand 2: a tensor of integers with shape [2], not tensor<3xi32>"),
        ("%x, %z, %n, %g, %n, %n, %p", "", "called_computations = [@f]", [ADD], "strides as"),
        ("%x, %z, %n, %n, %n, %n, %n", "", "called_computations = [@f]", [ADD], "a padding of int"),
        ("%x, %x, %n, %n, %n, %n, %p", "", "called_computations = [@f]", [ADD],
         "initial values of rank 0"),
    ],
)  # fmt: skip
def test_dynamic_reduce_window(operands, kinds, attributes, functions, message):
    types = {"%x": F, "%z": "tensor<f32>", "%n": "tensor<2xi32>", "%m": "tensor<3xi32>",
             "%g": "tensor<2xf32>", "%p": "tensor<2x2xi32>"}  # fmt: skip
    kinds = kinds or f"({', '.join(types[name] for name in operands.split(', '))})"
    call = f"@stablehlo.dynamic_reduce_window({operands}) {{{attributes}}}"
    assert message in refused(module(call, kinds, F, *functions, before=NUMBERS))


@pytest.mark.parametrize(
    ("operands", "attributes", "message"),
    [
        ("%x", "", "an attribute mhlo.backend_config"),
        ("%x", "mhlo.backend_config = 3", "an attribute mhlo.backend_config of another type"),
        ("%x, %z", "mhlo.backend_config = {top_k = 3 : i64}", "reduction_dim in"),
        ("%x, %z", "mhlo.backend_config = {reduction_dim = 2 : i64, top_k = 3 : i64}",
         "a reduction_dim from 0 to 1, not 2"),
        ("%x, %z", 'mhlo.backend_config = {reduction_dim = "1", top_k = 3 : i64}', "another type"),
        ("%x, %z", "mhlo.backend_config = {reduction_dim = 1 : i64, top_k = 5 : i64}",
         "a top_k from 0 to 4, not 5"),
        ("%x", "mhlo.backend_config = {reduction_dim = 1 : i64, top_k = 3 : i64}", "2 operands"),
        ("%x, %z", "mhlo.backend_config = {reduction_dim = 1 : i64}", "3 operands and 1 results"),
        ("%x, %z", "mhlo.backend_config = {reduction_dim = 1 : i64, top_k = 3 : i64}",
         "an attribute called_computations"),
    ],
)  # fmt: skip
def test_approx_top_k(operands, attributes, message):
    types = {"%x": F, "%z": "tensor<f32>"}
    kinds = f"({', '.join(types[name] for name in operands.split(', '))})"
    call = f"@ApproxTopK({operands}) {{{attributes}}}"
    assert message in refused(module(call, kinds, "tensor<?x3xf32>", GREATER, before=NUMBERS))


@pytest.mark.parametrize(
    ("call", "kinds", "results", "message"),
    [
        ("@stablehlo.dynamic_top_k(%x)", f"({F})", f"{F}, tensor<?x4xi32>", "must have 2 operands"),
        ("@stablehlo.dynamic_top_k(%x, %s)", f"({F}, tensor<2xui64>)", f"{F}, tensor<?x4xi32>",
         "the number of elements kept as operand 1"),
        ("@stablehlo.dynamic_top_k(%x, %k)", f"({F}, tensor<i32>)", f"{F}, tensor<?x4xi64>",
         "a second result of i32"),
        ("@stablehlo.dynamic_rng_bit_generator(%s)", "(tensor<2xui64>)", "tensor<4xui32>",
         "must have 2 operands"),
        ("@stablehlo.dynamic_rng_bit_generator(%s, %s)", "(tensor<2xui64>, tensor<2xui64>)",
         "tensor<2xui64>, tensor<?x?xui32>", "an attribute rng_algorithm"),
        ("@stablehlo.dynamic_rng_bit_generator(%s, %s) {rng_algorithm = 1}",
         "(tensor<2xui64>, tensor<2xui64>)", "tensor<2xui64>, tensor<?x?xui32>", "another type"),
        ("@stablehlo.dynamic_fft(%x)", f"({F})", F, "one to three lengths"),
        ("@stablehlo.dynamic_fft(%x, %k)", f"({F}, tensor<i32>)", F, "an attribute backend_config"),
        ('@stablehlo.dynamic_fft(%x, %k) {backend_config = "DCT"}', f"({F}, tensor<i32>)", F,
         "a backend_config of FFT, IFFT, RFFT, IRFFT, not 'DCT'"),
        ('@stablehlo.dynamic_fft(%x, %k) {backend_config = "FFT"}', f"({F}, tensor<i32>)", F,
         "complex elements where FFT has them"),
        ('@stablehlo.dynamic_fft(%x, %x) {backend_config = "RFFT"}', f"({F}, {F})",
         "tensor<?x3xcomplex<f32>>", "a length as operand 1"),
        ("@chlo.erfc(%x, %x)", f"({F}, {F})", F, "1 operands and 1 results"),
        ("@chlo.erfc(%s)", "(tensor<2xui64>)", "tensor<2xui64>", "floats, not ui64"),
        ("@chlo.erf_inv(%x)", f"({F})", "tensor<?x4xf64>", "result 0 of the type of operand 0"),
        ("@shlo_disc.parked.chlo.erf(%x) {shlo_disc.attributes = 1}", f"({F})", F,
         "has a name that only passes of shlo_disc may use"),
        ("@foo(%x) {indices_of_shape_operands = dense<7> : tensor<1xi64>}", f"({F})", F,
         "indices_of_shape_operands of operands that it has: 7"),
        ("@foo(%x) {indices_of_shape_operands = dense<[0, 0]> : tensor<2xi64>}", f"({F})", F,
         "an operand of its own for each result"),
        ("@foo(%x) {indices_of_shape_operands = 1}", f"({F})", F, "of another type"),
        ("@foo(%x, %s) {indices_of_shape_operands = dense<0> : tensor<1xi64>}",
         f"({F}, tensor<2xui64>)", F, "the sizes of a result as operand 0"),
        ("@foo(%x) {shlo_disc.size_attributes = {}}", f"({F})", F, "an attribute mhlo.backend_con"),
        ("@foo(%x) {mhlo.backend_config = {a = 1 : i32}, "
         "shlo_disc.size_attributes = {a = dense<[0, 2]> : tensor<2xi64>}}", f"({F})", F,
         "an operand and its dimension as shlo_disc.size_attributes.a, not [0, 2]"),
        ("@foo(%x) {mhlo.backend_config = {}, "
         "shlo_disc.size_attributes = {a = dense<[0, 1]> : tensor<2xi64>}}",
         f"({F})", F, "an integer a in mhlo.backend_config"),
    ],
)  # fmt: skip
def test_others(call, kinds, results, message):
    assert message in refused(module(call, kinds, results))


def test_an_assertion_that_cannot_be_read():
    text = f"""func.func @main(%x: {F}) -> {F} {{
      stablehlo.custom_call @shape_assertion(ARGS) {{has_side_effect = true, ATTR}} : (KINDS) -> ()
      return %x : {F} }}"""
    for arguments, kinds, more, message in (
        ("", "", "a = 1", "must have a condition"),
        ("%x", F, "a = 1", "a condition of tensor<i1> as operand 0"),
    ):
        found = text.replace("ARGS", arguments).replace("KINDS", kinds).replace("ATTR", more)
        assert message in refused(found)


def test_calls_of_chlo_become_the_op_whatever_attributes_they_have():
    call = "@chlo.erfc(%x) {shlo_disc.attributes = 1}"
    made = ingest(module(call, f"({F})", F), new_context())
    assert len(ops_of(made, "chlo.erfc")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "func.func @main(%x: T) -> T attributes {a = C} { return %x : T }",
        "func.func @main(%x: T) -> T { %0 = stablehlo.tanh %x {a = [{b = C}]} : T return %0 : T }",
        "func.func @main(%x: T) -> T { %0 = stablehlo.custom_call @f(%x) {mhlo.backend_config = "
        "{a = C}} : (T) -> T return %0 : T }",
        "func.func @main(%x: T {m.a = C}) -> T { return %x : T }",
        "module attributes {m.a = [C]} { func.func @main(%x: T) -> T { return %x : T } }",
    ],
)
@pytest.mark.parametrize(
    "unreadable",
    [
        "dense<(0.0, 0.0)> : tensor<complex<f32>>",
        "loc(unknown)",
        'loc("f.py":1:2)',
        'loc(fused["a", callsite("b" at "c")])',
    ],
)
def test_attributes_that_the_bindings_cannot_read_are_refused(text, unreadable):
    text = text.replace("T", "tensor<4xf32>").replace("C", unreadable)
    with pytest.raises(UnsupportedError, match="holds a location, or numbers that only a constant"):
        ingest(text, new_context())


def test_reducers_with_control_flow_read_their_arguments_inside():
    reducer = """func.func private @f(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
      %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %0 = "stablehlo.if"(%p) ({ stablehlo.return %a : tensor<f32> },
        { stablehlo.return %b : tensor<f32> }) : (tensor<i1>) -> tensor<f32>
      return %0 : tensor<f32> }"""
    call = (
        "@stablehlo.dynamic_reduce_window(%x, %z, %n, %n, %n, %n, %p) {called_computations = [@f]}"
    )
    kinds = f"({F}, tensor<f32>, {', '.join(['tensor<2xi32>'] * 4)}, tensor<2x2xi32>)"
    made = ingest(module(call, kinds, F, reducer, before=NUMBERS), new_context())
    assert made.operation.verify()
    assert len(ops_of(made, "stablehlo.reduce_window")) == 1


def test_an_operation_beside_the_program_runs_in_its_place():
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %s = "stablehlo.async_start"(%x) ({
        ^bb0(%a: tensor<?xf32>):
          %c = "stablehlo.collective_permute"(%a) {PAIRS} : (tensor<?xf32>) -> tensor<?xf32>
          stablehlo.return %c : tensor<?xf32>
      }) : (tensor<?xf32>) -> !stablehlo.future<tensor<?xf32>>
      %0 = "stablehlo.async_done"(%s) : (!stablehlo.future<tensor<?xf32>>) -> tensor<?xf32>
      return %0 : tensor<?xf32> }"""
    for pairs, want in (
        ("dense<0> : tensor<1x2xi64>", [2, 3]),
        ("dense<> : tensor<0x2xi64>", [0, 0]),
    ):
        made = shlo_disc.compile(text.replace("PAIRS", f"source_target_pairs = {pairs}"))
        (got,) = made.run_numpy([np.array([2, 3], np.float32)])
        assert got.tolist() == want
    with pytest.raises(UnsupportedError, match="a future that is an argument"):
        ingest(
            "func.func @main(%x: !stablehlo.future<tensor<4xf32>>) -> tensor<4xf32> {\n"
            '%0 = "stablehlo.async_done"(%x) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>'
            "\nreturn %0 : tensor<4xf32> }",
            new_context(),
        )
