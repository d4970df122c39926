"""Calls of Python in the order of the program: each takes and gives a token.

    custom_call @shlo_disc.callback.1(%x)      %t1 = custom_call @shlo_disc.callback.1(%x, %t)
    while (%i = %zero) ... {              ==>  while (%i = %zero, %s = %t1) ... {
      custom_call @shlo_disc.callback.2(%i)      %u = custom_call @shlo_disc.callback.2(%i, %s)
      return %j                                  return %j, %u
    }                                          }

A token is a number that nobody reads. It makes the order of effects an order of values. So no later
stage moves a call across another or out of its loop or branch, merges two, or computes one again.
The attribute `has_side_effect` keeps the calls alive. Calls of pure functions that are in the
program still are ordered, too: they may raise errors.

Needs   `expand_foreign_calls`.   Keeps  every result.   Cost  O(ops).
Source  StableHLO specification, custom_call and `token`; tokens of JAX's lowering.
"""

from __future__ import annotations

import numpy as np

from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.errors import ELSEWHERE, UnsupportedError
from shlo_disc.ingest.present import target_of
from shlo_disc.ir.builders import integer, no_sizes
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of, terminator
from shlo_disc.ir.ops import ffi

_CONTROL = ("stablehlo.case", "stablehlo.if", "stablehlo.while")


def order_effects(main: ir.Operation) -> None:
    """Thread a token through the calls of Python in `main`.

    Raises UnsupportedError for a call in a region that is neither a loop nor a branch.
    """
    if not _calls_python(main):
        return
    block = main.regions[0].blocks[0]
    kind = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    with ir.InsertionPoint.at_block_begin(block), main.location:
        token = integer(0, kind)
    _thread(block, token)


def _calls_python(root: ir.Operation) -> bool:
    return any(is_callback(target_of(op)) for op in ops_of(root, "stablehlo.custom_call"))


def _thread(block: ir.Block, token: ir.Value) -> ir.Value:
    """The token behind the operations of `block`, given the one before them."""
    # No set of ops: the bindings hash what an op holds, and that changes here.
    for op in [view.operation for view in block.operations]:
        if not _calls_python(op):
            continue
        if not len(op.regions):
            token = _call(op, token)
        elif op.name in _CONTROL:
            token = _control(op, token)
        else:
            where = source_line(op)
            raise UnsupportedError(f"{where}: a callback into Python inside {op.name}; {ELSEWHERE}")
    return token


def _call(op: ir.Operation, token: ir.Value) -> ir.Value:
    attributes = {a: op.attributes[a] for a in op.attributes}
    attributes["has_side_effect"] = ir.BoolAttr.get(True)
    for name in ("disc.operand_orders", "disc.result_orders"):
        attributes[name] = ir.ArrayAttr.get(
            [*ir.ArrayAttr(attributes[name]), ir.DenseI64ArrayAttr.get([])]
        )
    operands = [*op.operands, token]
    if sizes := ffi.size_operands(op):
        with at(op):
            none = no_sizes()
        operands.append(none)
        places = np.array([*sizes, len(operands) - 1])
        attributes["indices_of_shape_operands"] = ir.DenseIntElementsAttr.get(places)
    return _replaced(op, operands, attributes)


def _control(op: ir.Operation, token: ir.Value) -> ir.Value:
    is_loop = op.name == "stablehlo.while"
    attributes = {a: op.attributes[a] for a in op.attributes}
    operands = [*op.operands, token] if is_loop else list(op.operands)
    for k, region in enumerate(op.regions):
        block = region.blocks[0]
        given = block.add_argument(token.type, op.location) if is_loop else token
        last = _thread(block, given)
        if is_loop and k == 0:
            continue  # the condition; its calls come before those of the body anyway
        end = terminator(block)
        with at(end):
            ir.Operation.create(end.name, operands=[*end.operands, last])
        end.erase()
    return _replaced(op, operands, attributes)


def _replaced(
    op: ir.Operation, operands: list[ir.Value], attributes: dict[str, ir.Attribute]
) -> ir.Value:
    """The token that `op` gives in its new form; its regions are moved there."""
    token = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    with at(op):
        new = ir.Operation.create(
            op.name,
            results=[*(r.type for r in op.results), token],
            operands=operands,
            attributes=attributes,
            regions=len(op.regions),
        )
    for old, region in zip(op.regions, new.regions, strict=True):
        old.blocks[0].append_to(region)
    *results, token_after = new.results
    for old_result, result in zip(op.results, results, strict=True):
        old_result.replace_all_uses_with(result)
    op.erase()
    return token_after
