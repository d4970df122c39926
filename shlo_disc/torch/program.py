"""From a functional FX graph to a module that `shlo_disc.compile` takes, and what goes with it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

import shlo_disc
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.base.late_module import LateModule
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.graphs import find_graph, graph_key, made_graph
from shlo_disc.driver.kept_keys import are_kept
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.torch.bodies import has_body
from shlo_disc.torch.importer import (
    FOREIGN,
    Carried,
    Graph,
    graphs_of,
    import_graph,
    is_control,
)
from shlo_disc.torch.keys import UnnamedError, named_graph
from shlo_disc.torch.lowering import lower
from shlo_disc.torch.places import note_place
from shlo_disc.torch.prepare import Begun, Known, Prepared, begin, finish
from shlo_disc.torch.results import Result
from shlo_disc.torch.size_numbers import SizeNumbers
from shlo_disc.torch.sizes import Numbers, environment_of


class Binding:
    """What a call of a lowered graph passes to the program, and what it makes of its results."""

    def __init__(self, prepared: Prepared) -> None:
        self.inputs = prepared.inputs
        """The placeholders of the given graph that are arguments, in order."""
        self.constants = [operator.attrgetter(n)(prepared.begun.module) for n in prepared.constants]
        """Further arguments, behind these: tensors that the graph holds."""
        self.draws = prepared.begun.draws
        """Random numbers, which a call draws; arguments behind the constants."""
        self._size_numbers = prepared.size_numbers
        self.has_own = bool(self.draws.names or self._size_numbers.names)
        """There are arguments that a call makes itself."""
        self.held = range(len(self.inputs), len(self.inputs) + len(self.constants))
        """The numbers of the arguments that are constants."""
        self.unstated = prepared.unstated
        """Conditions on sizes that are no constraint, for :meth:`check`."""
        self._results = prepared.begun.results
        self._sizes = prepared.begun.sizes
        flags = [(one.value, given.check) for one, given in prepared.assertions if given.is_flag]
        self.flag: int | None
        self._check_flag: Callable[[Any], None]
        self.flag, self._check_flag = flags[0] if flags else (None, _never)
        """The result that tells whether indices are in range, and what raises if not."""
        asserted = [(one, given.check) for one, given in prepared.assertions if not given.is_flag]
        self._checks = [(one.value, check) for one, check in asserted if _is_tensor(one)]
        """What is asserted of results of the program."""
        self._assertions = [pair for pair in asserted if not _is_tensor(pair[0])]
        """And of numbers."""
        self._count = len(self._results)
        plain = [("tensor", number) for number in range(self._count)]
        given = [(r.kind, r.value) for r in self._results if r.order is None]
        self.is_plain = given == plain and not self._assertions
        """The results of the graph are the first ones of the program."""
        self.is_certain = self.is_plain and not self._checks
        """So they are, and nothing but the flag is asserted of data."""

    def check(self, inputs: Sequence[Any]) -> None:
        """Raise ShapeMismatchError for sizes that break a condition which is no constraint."""
        for condition in self.unstated:
            if self._sizes.value(condition, inputs):
                continue
            if condition == sympy.false:
                raise ShapeMismatchError(
                    "PyTorch traced the program for a size of 0 or 1 and takes sizes to be 2 or "
                    "more (backed_size_oblivious), so its own guards do not hold"
                )
            raise ShapeMismatchError(f"the program requires {condition} of its sizes")

    def leaves(self, inputs: Sequence[Any]) -> list[Any]:
        """The arguments of the program but its own, from all inputs of the graph."""
        return [*map(inputs.__getitem__, self.inputs), *self.constants]

    def own(self, inputs: Sequence[Any]) -> list[Any]:
        """The arguments that a call makes: random numbers, and numbers computed from sizes."""
        return [*self.draws(inputs), *self._size_numbers(inputs)] if self.has_own else []

    def finish(self, tensors: list[torch.Tensor], inputs: Sequence[Any]) -> list[Any]:
        """All results of the graph, from those of the program and the inputs of the call.

        Raises where what the graph asserts of data does not hold; RuntimeError of most.
        """
        if self.flag is not None and tensors[self.flag]:
            self._check_flag(tensors[self.flag])
        for number, check in self._checks:
            check(tensors[number])
        if self.is_plain:
            return tensors[: self._count]
        for condition, check in self._assertions:
            check(condition.of(tensors, inputs, self._sizes))
        return [result.of(tensors, inputs, self._sizes) for result in self._results]


def _never(_: Any) -> None:
    """What checks a program without a flag."""


def _is_tensor(result: Result) -> bool:
    return result.kind == "tensor" and result.order is None


@dataclass(frozen=True)
class Lowered:
    """StableHLO with what `shlo_disc.compile` is told beside it."""

    module: LateModule
    shapes: list[tuple[str, ...]]
    names: list[str]
    constraints: list[str]
    symbols: dict[str, str]
    """The names of its sizes, by symbols of PyTorch."""
    binding: Binding

    def compiled(self, *, constraints: Sequence[str] = (), **more: Any) -> Any:
        """What `shlo_disc.compile` makes of it, which requires these `constraints`, too."""
        return shlo_disc.compile(
            self.module, shapes=self.shapes, names=self.names,
            constraints=[*self.constraints, *constraints], **more,
        )  # fmt: skip


@lets_others_run
def lower_graph(
    graph: torch.fx.GraphModule, names: Sequence[str], known: Known, *, seen: int | None = None,
    checks: bool = True, guarded: bool = False, is_kept: bool = True,
) -> Lowered:  # fmt: skip
    """Lower `graph`, which must be functional. For the arguments see :func:`begin`.

    With `is_kept` later processes find the module on disk.

    Raises UnsupportedError for an operation that has no lowering, with its source line.
    """
    begun = begin(graph, names, known, seen=seen, checks=checks, guarded=guarded)
    nodes = [*begun.module.graph.nodes]
    for node in nodes:
        note_place(node)
    lines = [node.meta.get("place", "") for node in nodes]
    key, reason = _key(begun, names, lines) if is_kept and are_kept() else (None, "")
    found = None if key is None else find_graph(key, lines, lambda: _lowered(begun)[1])
    if found is not None:
        return _told(names, _prepared(begun, *found[1]), found[0])
    held = {str(node.target) for node in nodes if node.op == "get_attr"}
    guards = _guards(begun)
    prepared, module = _lowered(begun)
    if prepared.size_numbers.names:
        reason = "computes numbers from sizes"
    elif prepared.unstated:
        reason = "requires of sizes what no constraint states"
    elif len(prepared.assertions) != len(begun.assertions):
        reason = "has an operation made of some that assert something of data"
    elif not held.issuperset(prepared.constants):
        reason = "has an operation made of some that hold tensors"
    elif _guards(begun) != guards:
        reason = "was lowered for relations of the sizes of its first call"
    made = tuple(getattr(prepared, name) for name in _STORED)
    return _told(names, prepared, made_graph(key, lines, module, made, reason))


def _key(begun: Begun, names: Sequence[str], lines: Sequence[str]) -> tuple[bytes | None, str]:
    """The key of a graph on disk; None where it has none, and why, behind "it"."""
    facts = names, begun.symbols, begun.ranges, begun.conditions, begun.guarded
    try:
        return graph_key("torch", *named_graph(begun.module, lines, *facts)), ""
    except UnnamedError as error:
        return None, str(error)


_STORED = "inputs", "constants", "shapes", "constraints"


def _prepared(
    begun: Begun,
    inputs: list[int],
    constants: list[str],
    shapes: list[tuple[str, ...]],
    constraints: list[str],
) -> Prepared:
    """What :func:`finish` gave in an earlier process, but for the graph to import."""
    return Prepared(
        begun, inputs, constants, SizeNumbers(), shapes, begun.assertions, constraints, [],
        Numbers(()),
    )  # fmt: skip


def _guards(begun: Begun) -> int:
    """How many conditions on sizes PyTorch has noted."""
    environment = environment_of([node.meta.get("val") for node in begun.placeholders])
    return 0 if environment is None else len(environment.guards)


def _told(names: Sequence[str], prepared: Prepared, module: LateModule) -> Lowered:
    own = [names[k] for k in prepared.inputs]
    own += [f"constant_{k}" for k in range(len(prepared.constants))]
    own += [*prepared.begun.draws.names, *prepared.size_numbers.names]
    return Lowered(
        module, prepared.shapes, own, prepared.constraints, prepared.begun.symbols,
        Binding(prepared),
    )  # fmt: skip


def _lowered(begun: Begun) -> tuple[Prepared, ir.Module]:
    """The graph ready to import, and in StableHLO."""
    prepared, graph = finish(begun, has_body), begun.module.graph
    try:
        module, carried = import_graph(graph, new_context(), has_body, prepared.numbers)
    except UnsupportedError:
        raise
    except FOREIGN as error:
        missing = error.args[0] if error.args else None
        where = _place_of_type(graph, missing)
        if isinstance(missing, torch.dtype):
            raise UnsupportedError(
                f"{where}elements of type {missing} are not supported; convert them first, "
                f"to {_NEAREST.get(missing, 'a type of 8 bits or more')}"
            ) from error
        raise UnsupportedError(f"{where}torch-mlir cannot import the program: {error!r}") from error
    lower(module, [_with_graphs(one, prepared, module.context) for one in carried])
    return prepared, module


def _with_graphs(one: Carried, prepared: Prepared, context: ir.Context) -> Carried:
    """`one` with the graphs of a higher-order op in StableHLO.

    What they require of sizes is required of every call, as in PyTorch's guards.
    """
    if not is_control(one.node):
        return one
    graphs = [_lower_inner(graph, prepared, context) for graph in graphs_of(one.node)]
    return dataclasses.replace(one, graphs=graphs)


def _lower_inner(graph: torch.fx.GraphModule, outer: Prepared, context: ir.Context) -> Graph:
    """A graph of a higher-order op, which takes and gives tensors alone.

    Raises UnsupportedError for a graph that holds tensors, draws numbers, asserts something of data
    or computes floats from sizes. Branches that are not taken do none of these.
    """
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    symbols = outer.begun.symbols
    begun = begin(graph, names, Known(symbols), seen=0, checks=False)
    inner = finish(begun, has_body)
    own = begun.draws.names or inner.size_numbers.names
    if inner.constants or own or inner.assertions:
        raise UnsupportedError(
            "a branch or the body of a loop that holds tensors, draws numbers, computes floats "
            "from sizes or asserts something of data is not covered"
        )
    if any(result.kind != "tensor" for result in begun.results):
        raise UnsupportedError("a branch or the body of a loop that gives numbers is not covered")
    if not begun.symbols.keys() <= symbols.keys() and (inner.constraints or inner.unstated):
        raise UnsupportedError("a branch or the body of a loop requires something of sizes in it")
    outer.constraints += [text for text in inner.constraints if text not in outer.constraints]
    outer.unstated += inner.unstated
    module, carried = import_graph(begun.module.graph, context, has_body, inner.numbers)
    lower(module, [_with_graphs(one, inner, context) for one in carried])
    return Graph(module, inner.inputs)


_NEAREST = {torch.uint16: torch.int32, torch.uint64: torch.int64, torch.complex32: torch.complex64}
"""Element type that torch-mlir lacks -> one that has its numbers, or most of them."""


def _place_of_type(graph: torch.fx.Graph, dtype: Any) -> str:
    """In front of a message: the first node with elements of a type that torch-mlir lacks."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype is dtype and "place" in node.meta:
            return f"{node.meta['place']}: {node.target}: "
    return ""
