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
from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ingest.size_arithmetic import Size
from shlo_disc.ir.builders import create, write_region
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import Body, BodyCall
from shlo_disc.torch.importer import Graph
from shlo_disc.torch.sizes import expression

_Function = Callable[[Sequence[ir.Value]], list[ir.Value]]
"""Calls a graph on all its operands."""


def _functions(call: BodyCall) -> list[_Function]:
    """The graphs of an op, moved to the module of the op."""
    return [_moved(call, number, graph) for number, graph in enumerate(call.carried.graphs)]


def _moved(call: BodyCall, number: int, graph: Graph) -> _Function:
    names = {}
    for view in graph.module.body.operations:
        name = ir.StringAttr(view.operation.attributes["sym_name"]).value
        names[name] = f"{call.carried.function}_{number}_{name.replace('.', '_')}"
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


def _cast(values: Sequence[ir.Value], kinds: Sequence[ir.Type]) -> list[ir.Value]:
    return [BodyCall.cast(*pair) for pair in zip(values, kinds, strict=True)]


def _cond(call: BodyCall) -> list[ir.Value]:
    """`cond(predicate, true_graph, false_graph, operands)`."""
    predicate, *operands = call["operands"]
    made = ir.Operation.create(
        "stablehlo.if", results=call.results, operands=[predicate], regions=2
    )
    for region, branch in zip(made.regions, _functions(call), strict=True):
        write_region(region, [], lambda branch=branch: _cast(branch(operands), call.results))
    return list(made.results)


def _while(call: BodyCall) -> list[Array]:
    """`while_loop(condition_graph, body_graph, carried, additional)`."""
    operands, (count, _) = call["operands"], call["counts"]
    states, more = operands[:count], operands[count:]
    condition, body = _functions(call)
    kinds = [value.type for value in states]
    return loop(
        states,
        lambda *now: condition([*now, *more])[0],
        lambda *now: _cast(body([*now, *more]), kinds),
    )


def _scan(call: BodyCall) -> list[Array]:
    """`scan(combine_graph, initial, entries, additional)`: the last states and the stacked rest."""
    operands, (count, entries) = call["operands"], call["counts"]
    states = operands[:count]
    stacks, more = operands[count : count + entries], operands[count + entries :]
    (combine,) = _functions(call)
    steps = stacks[0].extent(0)
    kinds = [value.type for value in states]
    written = [_empty(call, operands, place) for place in range(count, len(call.results))]

    def step(number: Array, *now: Array) -> list[ir.Value]:
        found = combine([*now[:count], *(x.entry(number) for x in stacks), *more])
        pairs = zip(now[count:], found[count:], strict=True)
        new = [y.written(x, number) for y, x in pairs]
        return [number + 1, *_cast(found[:count], kinds), *new]

    return loop([Array.size(0), *states, *written], lambda k, *_: k < steps, step)[1:]


def _empty(call: BodyCall, operands: Sequence[Array], place: int) -> ir.Value:
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
                sizes.append(value.sizes[axes[0]])
                break
        else:
            raise UnsupportedError(f"the size {size} of a result is no size of its operands")
    return BodyCall.cast(Array.constant(0, kind.element_type).expand(sizes), kind)


CONTROL: dict[Any, Body] = {
    torch.ops.higher_order.cond: _cond,
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.while_loop: _while,
}
"""Higher-order op -> what writes its results."""
