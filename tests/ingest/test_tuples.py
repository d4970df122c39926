"""Tuples as arguments, results and in each other; tokens in control flow."""

import re

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import new_context

X = "tensor<?xf32>"
INNER = f"tuple<{X}, !stablehlo.token>"
NESTED = f"""func.func @main(%n: tensor<i32> {{jax.global_constant = "n"}},
    %t: tuple<{X}, {INNER}> {{disc.name = "t"}}, %z: {X} {{disc.shape = ["n"]}})
    -> (tuple<tuple<>, {X}, tuple<{X}>> {{jax.result_info = "r"}}, {X}) {{
  %a = stablehlo.get_tuple_element %t[0] : (tuple<{X}, {INNER}>) -> {X}
  %u = stablehlo.get_tuple_element %t[1] : (tuple<{X}, {INNER}>) -> {INNER}
  %b = stablehlo.get_tuple_element %u[0] : ({INNER}) -> {X}
  %c = stablehlo.subtract %a, %b : {X}
  %e = stablehlo.tuple : tuple<>
  %v = stablehlo.tuple %a : tuple<{X}>
  %r = stablehlo.tuple %e, %c, %v : tuple<tuple<>, {X}, tuple<{X}>>
  return %r, %z : tuple<tuple<>, {X}, tuple<{X}>>, {X}
}}"""


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_call_has_an_array_for_each_element(n):
    made = shlo_disc.compile(NESTED, names=["t", "z"])
    assert [argument.name for argument in made.signature.arguments] == ["t[0]", "t[1][0]", "z"]
    x, y = np.arange(n, dtype=np.float32) ** 2, np.arange(n, dtype=np.float32)
    for got, want in zip(made.run_numpy([x, y, y + 1]), (x - y, x, y + 1), strict=True):
        np.testing.assert_array_equal(got, want)


LOOP = f"""func.func @main(%x: {X}, %k: !stablehlo.token) -> ({X}, !stablehlo.token, tensor<i32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %w:3 = stablehlo.while(%t = %k, %i = %zero, %y = %x) : !stablehlo.token, tensor<i32>, {X}
  cond {{
    %n = stablehlo.constant dense<3> : tensor<i32>
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %c = stablehlo.compare EQ, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %q:2 = "stablehlo.if"(%c) ({{
      stablehlo.return %t, %y : !stablehlo.token, {X}
    }}, {{
      %d = stablehlo.add %y, %y : {X}
      %t1 = stablehlo.create_token : !stablehlo.token
      %t2 = stablehlo.after_all %t, %t1 : !stablehlo.token
      stablehlo.return %t2, %d : !stablehlo.token, {X}
    }}) : (tensor<i1>) -> (!stablehlo.token, {X})
    %b:2 = stablehlo.optimization_barrier %q#0, %q#1 : !stablehlo.token, {X}
    stablehlo.return %b#0, %j, %b#1 : !stablehlo.token, tensor<i32>, {X}
  }}
  return %w#2, %w#0, %w#1 : {X}, !stablehlo.token, tensor<i32>
}}"""


def test_control_flow_carries_tokens():
    made = shlo_disc.compile(LOOP)
    for n in (0, 1, 7):
        x = np.arange(n, dtype=np.float32)
        y, steps = made.run_numpy([x])
        np.testing.assert_array_equal(y, 4 * x)
        assert steps == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"""%k = stablehlo.create_token : !stablehlo.token
          %q:2 = stablehlo.custom_call @f(%k, %x)
            : (!stablehlo.token, {X}) -> (!stablehlo.token, {X})
          return %q#1 : {X}""", "custom_call orders a side effect by a token"),
        (f"""%q = stablehlo.custom_call @f(%x) : ({X}) -> tuple<{X}>
          %r = stablehlo.get_tuple_element %q[0] : (tuple<{X}>) -> {X}
          return %r : {X}""", "custom_call takes or gives a tuple"),
    ],
)  # fmt: skip
def test_who_needs_a_tuple_or_a_token_is_refused(body, message):
    with pytest.raises(UnsupportedError, match=message):
        ingest(f"func.func @main(%x: {X}) -> {X} {{ {body} }}", new_context())


def test_sizes_are_those_of_elements():
    text = NESTED.replace('{disc.name = "t"}', '{disc.shape = ["n"]}')
    with pytest.raises(InvalidModuleError, match=re.escape("disc.shape of argument 1, which is a")):
        ingest(text, new_context())
    ingest(NESTED, new_context(), shapes=[["n"], ["n"], ["n"]])
