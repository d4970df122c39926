"""Calls of functions of sizes on equal operands are one call before they are inlined."""

import numpy as np
import pytest

from shlo_disc.ingest.equal_calls import share_equal_calls
from shlo_disc.ir.mlir import ir, new_context, ops_of, stablehlo

_PURE = """
func.func private @half(%x: tensor<i32>) -> tensor<i32> {
  %c = stablehlo.constant dense<2> : tensor<i32>
  %0 = stablehlo.divide %x, %c : tensor<i32>
  return %0 : tensor<i32>
}
func.func private @quarter(%x: tensor<i32>) -> tensor<i32> {
  %0 = call @half(%x) : (tensor<i32>) -> tensor<i32>
  %1 = call @half(%0) : (tensor<i32>) -> tensor<i32>
  return %1 : tensor<i32>
}"""

_CHAINS = (
    _PURE
    + """
func.func public @main(%x: tensor<i32>, %y: tensor<i32>)
    -> (tensor<i32>, tensor<i32>, tensor<i32>) {
  %c = stablehlo.constant dense<3> : tensor<i32>
  %0 = stablehlo.add %x, %c : tensor<i32>
  %1 = call @quarter(%0) : (tensor<i32>) -> tensor<i32>
  %2 = call @half(%1) : (tensor<i32>) -> tensor<i32>
  %d = stablehlo.constant dense<3> : tensor<i32>
  %3 = stablehlo.add %x, %d : tensor<i32>
  %4 = call @quarter(%3) : (tensor<i32>) -> tensor<i32>
  %5 = call @half(%4) : (tensor<i32>) -> tensor<i32>
  %6 = call @half(%y) : (tensor<i32>) -> tensor<i32>
  return %2, %5, %6 : tensor<i32>, tensor<i32>, tensor<i32>
}"""
)


def test_chains_of_equal_calls_are_one_chain():
    x, y = np.int32(77), np.int32(13)
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(_CHAINS)
        want = [np.array(r) for r in stablehlo.eval_module(module, _attributes(x, y))]
        share_equal_calls(module)
        module.operation.verify()
        main = next(f for f in module.body.operations if f.sym_name.value == "main")
        called = [str(op.attributes["callee"]) for op in ops_of(main, "func.call")]
        assert called == ["@quarter", "@half", "@half"]
        got = [np.array(r) for r in stablehlo.eval_module(module, _attributes(x, y))]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, [10, 10, 6])


def _attributes(*values):
    return [ir.DenseElementsAttr.get(np.array(value)) for value in values]


@pytest.mark.parametrize(
    "effect",
    [
        "%0 = stablehlo.custom_call @print(%x) {has_side_effect = true} : "
        "(tensor<i32>) -> tensor<i32>",
        "%a = stablehlo.constant dense<0> : tensor<i32>\n"
        "%s = stablehlo.constant dense<> : tensor<0xi64>\n"
        "%0 = stablehlo.rng %a, %x, %s, distribution = UNIFORM : "
        "(tensor<i32>, tensor<i32>, tensor<0xi64>) -> tensor<i32>",
    ],
    ids=["custom_call", "rng"],
)
def test_calls_with_effects_stay_two(effect):
    text = f"""
      func.func private @effect(%x: tensor<i32>) -> tensor<i32> {{
        {effect}
        return %0 : tensor<i32>
      }}
      func.func private @caller(%x: tensor<i32>) -> tensor<i32> {{
        %0 = call @effect(%x) : (tensor<i32>) -> tensor<i32>
        return %0 : tensor<i32>
      }}
      func.func public @main(%x: tensor<i32>) -> (tensor<i32>, tensor<i32>) {{
        %0 = call @caller(%x) : (tensor<i32>) -> tensor<i32>
        %1 = call @caller(%x) : (tensor<i32>) -> tensor<i32>
        return %0, %1 : tensor<i32>, tensor<i32>
      }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        share_equal_calls(module)
        assert len(ops_of(module, "func.call")) == 3
