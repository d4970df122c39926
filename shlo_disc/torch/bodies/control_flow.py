"""Branches and loops: the graphs of a higher-order op are functions of the module.

    %y = cond(%p, %true_graph, %false_graph, (%x, %w))
==>
    %y = stablehlo.if %p { return @true(%x, %w) } { return @false(%x) }

`while_loop` and `scan` are `stablehlo.while`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant
from shlo_disc.ingest.size_arithmetic import Size, size_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, while_loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall
from shlo_disc.torch.bodies.recurrent import entry, with_first
from shlo_disc.torch.importer import Graph
from shlo_disc.torch.sizes import expression

_Function = Callable[[Sequence[ir.Value]], list[ir.Value]]
"""Calls a graph on all its operands."""


def _functions(call: BodyCall) -> list[_Function]:
    """The graphs of an op, moved to the module of the op."""
    return [_moved(call, number, graph) for number, graph in enumerate(call.graphs)]


def _moved(call: BodyCall, number: int, graph: Graph) -> _Function:
    names = {}
    for view in graph.module.body.operations:
        name = ir.StringAttr(view.operation.attributes["sym_name"]).value
        names[name] = f"{call.function}_{number}_{name.replace('.', '_')}"
        ir.SymbolTable.replace_all_symbol_uses(name, names[name], graph.module.operation)
        ir.SymbolTable.set_symbol_name(view.operation, names[name])
        view.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    with ir.InsertionPoint(call.module.body):
        copies = [view.operation.clone() for view in graph.module.body.operations]
    (main,) = (
        one for one in copies if ir.StringAttr(one.attributes["sym_name"]).value == names["main"]
    )
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def called(operands: Sequence[ir.Value]) -> list[ir.Value]:
        given = [operands[place] for place in graph.inputs]
        cast = [_as(value, one) for value, one in zip(given, kind.inputs, strict=True)]
        made = ir.Operation.create(
            "func.call",
            results=list(kind.results),
            operands=cast,
            attributes={"callee": ir.FlatSymbolRefAttr.get(names["main"])},
        )
        return list(made.results)

    return called


def _as(value: ir.Value, kind: ir.Type) -> ir.Value:
    """A tensor of these static sizes, or the number that a rank-0 tensor has."""
    if isinstance(kind, ir.RankedTensorType):
        return BodyCall.cast(value, kind)
    return create("tensor.extract", [value], kind)


def _cond(call: BodyCall) -> list[ir.Value]:
    """`cond(predicate, true_graph, false_graph, operands)`."""
    predicate, *operands = call["operands"]
    branches = _functions(call)
    made = ir.Operation.create(
        "stablehlo.if", results=call.results, operands=[predicate], regions=2
    )
    for region, branch in zip(made.regions, branches, strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            found = [
                BodyCall.cast(*pair) for pair in zip(branch(operands), call.results, strict=True)
            ]
            ir.Operation.create("stablehlo.return", operands=found)
    return list(made.results)


def _while(call: BodyCall) -> list[ir.Value]:
    """`while_loop(condition_graph, body_graph, carried, additional)`."""
    operands, (count, _) = call["operands"], call["counts"]
    states, more = operands[:count], operands[count:]
    condition, body = _functions(call)
    kinds = [value.type for value in states]

    def step(*now: ir.Value) -> list[ir.Value]:
        return [BodyCall.cast(*pair) for pair in zip(body([*now, *more]), kinds, strict=True)]

    def again(*now: ir.Value) -> ir.Value:
        (found,) = condition([*now, *more])
        return found

    return while_loop(states, again, step)


def _scan(call: BodyCall) -> list[ir.Value]:
    """`scan(combine_graph, initial, entries, additional)`: the last states and the stacked rest."""
    operands, (count, entries) = call["operands"], call["counts"]
    states = operands[:count]
    stacks, more = operands[count : count + entries], operands[count + entries :]
    (combine,) = _functions(call)
    steps = extent(stacks[0], 0)
    kinds = [value.type for value in states]
    zero, one = constant(0, "i64"), constant(1, "i64")
    written = [_empty(call, operands, place) for place in range(count, len(call.results))]

    def is_left(number: ir.Value, *_: ir.Value) -> ir.Value:
        return compare("LT", number, steps)

    def step(number: ir.Value, *now: ir.Value) -> list[ir.Value]:
        given = [entry(x, number) for x in stacks]
        found = combine([*now[:count], *given, *more])
        after = [BodyCall.cast(*pair) for pair in zip(found[:count], kinds, strict=True)]
        new = [
            create(
                "stablehlo.dynamic_update_slice",
                [y, with_first(x), number, *[zero] * (ir.RankedTensorType(y.type).rank - 1)],
                y.type,
            )
            for y, x in zip(now[count:], found[count:], strict=True)
        ]
        return [binary("add", number, one), *after, *new]

    return while_loop([zero, *states, *written], is_left, step)[1:]


def _empty(call: BodyCall, operands: Sequence[ir.Value], place: int) -> ir.Value:
    """Zeros for the result `place`, whose sizes are numbers or those of operands."""
    kind = ir.RankedTensorType(call.results[place])
    nodes = call.given("operands")
    sizes: list[Size] = []
    for size in call.node.meta["val"][place].shape:
        if isinstance(size, int):
            sizes.append(size)
            continue
        for node, value in zip(nodes, operands, strict=True):
            own = node.meta["val"]
            shape = own.shape if isinstance(own, torch.Tensor) else ()
            axes = [k for k, n in enumerate(shape) if expression(n) == expression(size)]
            if axes:
                sizes.append(size_of(value, axes[0]))
                break
        else:
            raise UnsupportedError(f"the size {size} of a result is no size of its operands")
    return BodyCall.cast(broadcast_to(constant(0, kind.element_type), [], sizes), kind)


CONTROL: dict[Any, Body] = {
    torch.ops.higher_order.cond: _cond,
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.while_loop: _while,
}
"""Higher-order op -> what writes its results."""
