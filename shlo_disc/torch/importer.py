"""From an FX graph to the torch dialect; ops with a body of ours become calls of it.

    %y = aten.cumsum(%x, 1)      ==>      %y = func.call @shlo_disc.cumsum_1(%x)

The calls pass through torch-mlir untouched. `lowering.py` writes the functions behind them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_mlir.extras.fx_importer import ContextCache, FxImporter, GraphNodeImporter

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.places import where
from shlo_disc.torch.sizes import Numbers

FOREIGN = (AssertionError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""What torch-mlir's importer raises."""


@dataclass(frozen=True)
class Graph:
    """A graph that a higher-order op runs, in StableHLO."""

    module: ir.Module
    """With the function `main`."""
    inputs: Sequence[int]
    """Which operands of the graph are arguments of the function."""


@dataclass(frozen=True)
class Carried:
    """An op that torch-mlir does not see."""

    function: str
    """The name of the function that is called for it."""
    node: torch.fx.Node
    arguments: Mapping[str, Any]
    """By the names of its schema, defaults too."""
    operands: tuple[torch.fx.Node, ...]
    """Those among the arguments, in the order of the function's parameters."""
    location: ir.Location
    graphs: Sequence[Graph] = ()
    """Of a higher-order op."""


def import_graph(
    graph: torch.fx.Graph,
    context: ir.Context,
    carries: Callable[[torch.fx.Node], bool],
    numbers: Numbers,
) -> tuple[ir.Module, list[Carried]]:
    """`graph`, functional, as `@main` in the torch dialect, and the ops in it that it `carries`.

    Sizes that `numbers` knows are static in every type: the result of a view is as static as what
    it views, which torch-mlir relies on.
    Raises UnsupportedError for an op that torch-mlir cannot import, and one of :data:`FOREIGN` for
    another node.
    """
    carried: list[Carried] = []
    functions: dict[str, ir.FunctionType] = {}

    class NodeImporter(GraphNodeImporter):  # type: ignore[misc]
        def _import_torch_op_overload(
            self, loc: ir.Location, node: torch.fx.Node, concrete_target: Any = None
        ) -> None:
            if concrete_target is not None or not carries(node):
                try:
                    super()._import_torch_op_overload(loc, node, concrete_target)
                except FOREIGN as error:
                    said = f"{where(node)}: torch-mlir cannot import it: {error!r}"
                    raise UnsupportedError(said) from error
                return
            self._carry(loc, node)

        def _import_hop(self, loc: ir.Location, node: torch.fx.Node, hop: Any) -> None:
            if carries(node):
                self._carry(loc, node)
            else:
                super()._import_hop(loc, node, hop)

        def _carry(self, loc: ir.Location, node: torch.fx.Node) -> None:
            arguments = schema_arguments(node)
            operands = tuple(_operands(arguments.values()))
            function = f"shlo_disc.{_name(node)}_{len(carried)}"
            made = Carried(function, node, arguments, operands, loc)
            carried.append(made)
            value = node.meta["val"]
            values = [value] if isinstance(value, torch.Tensor) else list(value)
            places = [place for place, one in enumerate(values) if one is not None]
            kinds = [self._cc.get_vtensor_type(values[k].shape, values[k].dtype) for k in places]
            if not isinstance(value, torch.Tensor) and (len(values) > 1 or is_control(node)):
                self._multi_result_nodes.add(node)
            given = [self._import_argument(loc, operand) for operand in operands]
            kind = ir.FunctionType.get([v.type for v in given], kinds, context=context)
            functions[function] = kind
            call = ir.Operation.create(
                "func.call",
                results=kinds,
                operands=given,
                attributes={"callee": ir.FlatSymbolRefAttr.get(made.function)},
                loc=loc,
            )
            for place, result in zip(places, call.results, strict=True):
                self.bind_node_value(node, result, place)

    class Types(ContextCache):  # type: ignore[misc]
        def format_asm_shape(self, shape: Sequence[Any]) -> str:
            sizes = map(numbers.of, shape)
            return ",".join(str(size) if size.is_Integer else "?" for size in sizes)

    importer = FxImporter(context=context, graph_node_importer_cls=NodeImporter)
    importer._cc = Types(context, py_attr_tracker=importer._py_attr_tracker)
    importer.import_stateless_graph(graph, func_name="main")
    module = importer.module
    _declare(module, functions)
    return module, carried


def schema_arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a call of an ATen op by name, defaults where the call has none.

    Of a higher-order op `operands` are what its graphs take, and `counts` tells the kinds of these.
    """
    if is_control(node):
        first, *_ = groups = _groups(node)
        counts = len(first), len(groups[1]) if len(groups) > 1 else 0
        return {"operands": tuple(x for group in groups for x in group), "counts": counts}
    schema = node.target._schema
    found: dict[str, Any] = {}
    for index, argument in enumerate(schema.arguments):
        if index < len(node.args):
            found[argument.name] = node.args[index]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found


def is_control(node: torch.fx.Node) -> bool:
    """True for a higher-order op."""
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _groups(node: torch.fx.Node) -> list[list[Any]]:
    """The operands of a higher-order op: a single one, and those of each list."""
    found: list[list[Any]] = []
    for argument in node.args:
        if isinstance(argument, list | tuple):
            found.append(list(argument))
        elif not (isinstance(argument, torch.fx.Node) and argument.op == "get_attr"):
            found.append([argument])
    return found


def graphs_of(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    """The graphs that a higher-order op runs."""
    owner = node.graph.owning_module
    return [
        operator.attrgetter(str(argument.target))(owner)
        for argument in node.args
        if isinstance(argument, torch.fx.Node) and argument.op == "get_attr"
    ]


def _operands(arguments: Any) -> list[torch.fx.Node]:
    found: list[torch.fx.Node] = []
    torch.fx.map_arg(tuple(arguments), found.append)
    return list(dict.fromkeys(found))


def _name(node: torch.fx.Node) -> str:
    return node.target.name() if is_control(node) else str(node.target.overloadpacket.__name__)


def _declare(module: ir.Module, carried: Mapping[str, ir.FunctionType]) -> None:
    """A private function without a body for every call."""
    with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(module.body):
        for name, kind in carried.items():
            ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(name),
                    "function_type": ir.TypeAttr.get(kind),
                    "sym_visibility": ir.StringAttr.get("private"),
                },
                regions=1,
            )
