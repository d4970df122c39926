"""What the door to MLIR promises of the bindings."""

import pytest

from shlo_disc.ir.mlir import ir, new_context

TEXT = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = stablehlo.tanh %a : tensor<4xf32>
  %c = stablehlo.add %b, %a : tensor<4xf32>
  return %c : tensor<4xf32>
}
"""


def changed_operand(op):
    op.operands[0] = op.parent.regions[0].blocks[0].arguments[0]


def changed_attribute(op):
    op.attributes["disc.note"] = ir.UnitAttr.get(op.context)


@pytest.mark.parametrize("position", [1, 2])  # with a result and without
@pytest.mark.parametrize("change", [changed_operand, changed_attribute])
def test_sets_keep_operations_that_change(change, position):
    module = ir.Module.parse(TEXT, new_context())
    block = module.body.operations[0].regions[0].blocks[0]
    op, other = block.operations[position].operation, block.operations[0].operation
    known = {op}
    change(op)
    assert op in known
    assert block.operations[position].operation in known
    assert other not in known
