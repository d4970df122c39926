"""An FX graph made ready for torch-mlir, and what the compiler is told beside it.

Placeholders are the arguments, with symbols as their sizes, and tensors that the graph holds stand
behind them. Assertions on sizes become constraints. Sizes that are arguments are read from a tensor
that has them, and those that are results are computed by the caller (:class:`Sizes`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch._higher_order_ops.effects import has_effects
from torch.utils import _pytree as pytree

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.torch.assertions import checks_data, take_assertions
from shlo_disc.torch.bodies.complex_numbers import MOVES, is_complex
from shlo_disc.torch.checks import check_indices, sizes_of_maxima
from shlo_disc.torch.decompositions import decompose, inline
from shlo_disc.torch.empty_results import state_empty_results
from shlo_disc.torch.nodes import copied, fake_of, made, state_constants
from shlo_disc.torch.places import note_place, where
from shlo_disc.torch.random_numbers import Draws, draw_before, is_dropout_within
from shlo_disc.torch.results import Assertion, Result, check_data, take_results
from shlo_disc.torch.running_statistics import writes_statistics
from shlo_disc.torch.size_floats import state_floats
from shlo_disc.torch.size_nodes import SizeNodes, state_reshapes
from shlo_disc.torch.size_numbers import SizeNumbers, take_numbers
from shlo_disc.torch.sizes import Notation, Numbers, Sizes, places_of, symbols_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Known:
    """What is known of the symbols of a graph, and of its regions."""

    symbols: Mapping[str, str] = field(default_factory=dict)
    """Their names; others are named after the placeholders."""
    ranges: Mapping[Any, Any] = field(default_factory=dict)
    """Their bounds, as PyTorch has them."""
    conditions: Sequence[Any] = ()
    """What holds of them in every call."""


@dataclass
class Begun:
    """A graph with its results and arguments as the program has them, before it is decomposed."""

    module: torch.fx.GraphModule
    placeholders: list[torch.fx.Node]
    """Those of the given graph."""
    drawn: list[torch.fx.Node]
    """Those of random numbers."""
    draws: Draws
    """Random numbers of a call; arguments behind the constants."""
    sizes: Sizes
    symbols: dict[str, str]
    """Symbols -> the names of sizes."""
    ranges: Mapping[Any, Any]
    conditions: list[Any]
    results: list[Result]
    assertions: list[tuple[Result, Assertion]]
    """Conditions on data, each with what raises where it does not hold."""
    guarded: bool


@dataclass
class Prepared:
    """A graph that torch-mlir can import, with what it takes and gives."""

    begun: Begun
    """Whose module it is."""
    inputs: list[int]
    """Of each argument that a call is given: which placeholder of the given graph it is."""
    constants: list[str]
    """The names of tensors that the graph holds; arguments behind the others."""
    size_numbers: SizeNumbers
    """Numbers that a call computes from sizes; arguments behind all others."""
    shapes: list[tuple[str, ...]]
    """The sizes of every argument."""
    assertions: list[tuple[Result, Assertion]]
    """As those before it was decomposed, and what its ops are made of asserts."""
    constraints: list[str]
    unstated: list[Any]
    """Conditions on sizes that are no constraint: a call evaluates them."""
    numbers: Numbers
    """Sizes that are numbers in every call."""


def begin(
    given: torch.fx.GraphModule, names: Sequence[str], known: Known, *, seen: int | None = None,
    checks: bool = True, guarded: bool = False,
) -> Begun:  # fmt: skip
    """A copy of the functional graph `given`, for :func:`finish`.

    `names` are those of its placeholders. With `guarded` the caller checks the conditions that are
    `known`. The caller sees the strides of the first `seen` results, or of all. With `checks`,
    indices and the like are checked as eager mode does (:mod:`shlo_disc.torch.checks`). Raises
    UnsupportedError for a size that no notation has.
    """
    module = copied(given)
    graph = module.graph
    inline_modes(module)
    _refuse_values_and_effects(graph)
    state_constants(module)
    placeholders = _placeholders_first(graph)
    sizes = Sizes(places_of(placeholders))
    named = _symbol_names(sizes, names, known.symbols)
    of_sizes, of_data = take_assertions(graph, sizes)
    conditions = [*known.conditions, *of_sizes]
    if checks:
        conditions += sizes_of_maxima(graph)
        of_data += check_indices(graph)
    results = take_results(graph, sizes, seen)
    assertions = check_data(graph, sizes, of_data)
    drawn, draws = draw_before(graph, sizes)
    return Begun(
        module, placeholders, drawn, draws, sizes, named, known.ranges, conditions, results,
        assertions, guarded,
    )  # fmt: skip


def finish(begun: Begun, carried: Callable[[torch.fx.Node], bool]) -> Prepared:
    """The graph of `begun`, which is changed, ready to import.

    `carried` says which ops have a body of ours. Raises UnsupportedError as :func:`begin`.
    """
    module, placeholders, sizes = begun.module, begun.placeholders, begun.sizes
    graph, named, guarded = module.graph, begun.symbols, begun.guarded
    conditions, assertions = [*begun.conditions], [*begun.assertions]
    state_empty_results(graph, placeholders, sizes.places)
    conditions += decompose(module, carried, libraries=not guarded)
    of_sizes, of_data = take_assertions(graph, sizes)  # of what ops are made of
    conditions += of_sizes
    assertions += check_data(graph, sizes, of_data)
    state_empty_results(graph, placeholders, sizes.places)
    _refuse(graph, carried)
    every = list(graph.nodes)
    numbers = Numbers(conditions)
    nodes = SizeNodes(graph, placeholders, sizes.places, numbers)
    state_reshapes(graph, nodes)
    _state_sizes(every, nodes)
    made, size_numbers = take_numbers(graph, placeholders, sizes, nodes)
    state_floats(graph, lambda value: fake_of(graph, value))
    _write_numbers(graph)
    graph.eliminate_dead_code()
    inputs, kept = [], []
    for number, node in enumerate(placeholders):
        if isinstance(node.meta.get("val"), torch.Tensor) or node.users:
            inputs.append(number)
            kept.append(node)
        else:
            graph.erase_node(node)
    constants = _take_constants(module, kept)
    kept += [*begun.drawn, *made]
    for node in graph.nodes:
        note_place(node)
    graph.lint()
    module.recompile()
    held = {name for name, place in sizes.places.items() if place.is_whole}
    of_arguments = Notation({symbol: name for symbol, name in named.items() if symbol in held})
    shapes = [tuple(map(of_arguments.argument_size, _shape(node))) for node in kept]
    in_shapes = set(re.findall(r"[A-Za-z_]\w*", " ".join(size for s in shapes for size in s)))
    stated = Notation(
        {symbol: name for symbol, name in named.items() if name in in_shapes},
        of_arguments.terms,
        numbers,
    )
    # A call reads other symbols where a dimension is `2*s`, say.
    is_checked = stated.knows if guarded else lambda e: symbols_of(e) <= sizes.places.keys()
    found, unstated = stated.constraints([e for e in conditions if is_checked(e)])
    found += stated.constraints([e for e in numbers.multiples() if is_checked(e)])[0]
    # Of simple ones follow many of the others, and the analysis proves what it need not assume.
    found.sort(key=len)
    found = list(dict.fromkeys([*stated.bounds(begun.ranges), *found]))
    return Prepared(
        begun, inputs, constants, size_numbers, shapes, assertions, found, unstated, numbers
    )


def _placeholders_first(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The placeholders, moved to the front: those of a region are where they are used."""
    found = list(graph.find_nodes(op="placeholder"))
    for node in reversed(found):
        if (first := next(iter(graph.nodes))) is not node:
            first.prepend(node)
    return found


def _shape(node: torch.fx.Node) -> Sequence[Any]:
    """The sizes of an argument; a number has none."""
    value = node.meta["val"]
    return value.shape if isinstance(value, torch.Tensor) else ()


def _symbol_names(sizes: Sizes, names: Sequence[str], symbols: Mapping[str, str]) -> dict[str, str]:
    """Symbol -> `x_0` for dimension 0 of the argument `x`."""
    found = {symbol: symbols[symbol] for symbol in sizes.places if symbol in symbols}
    for symbol, place in sizes.places.items():
        if symbol in found or not (place.is_whole or place.axis is None):
            continue
        number, axis = place.number, place.axis
        name = names[number] if axis is None else f"{names[number]}_{axis}"
        name = re.sub(r"\W", "_", name)
        while name in found.values():
            name += "_"
        found[symbol] = name
    return found


# -- graphs in graphs ---------------------------------------------------------------------------

_MODES = {"wrap_with_autocast": 4, "wrap_with_set_grad_enabled": 1}
"""Higher-order ops that run a graph in a mode, and which argument the graph is."""


def inline_modes(module: torch.fx.GraphModule) -> None:
    """Inline the graphs that are run in a mode: none matters in a functional graph.

    PyTorch has applied autocasts where they are on (:func:`needs_retracing`).
    """
    while True:
        found = [n for n in module.graph.nodes if _mode(n)]
        if not found:
            return
        for node in found:
            place = _MODES[_mode(node)]
            graph = getattr(module, str(node.args[place].target))
            inline(module, node, graph, node.args[place + 1 :])
        module.graph.eliminate_dead_code()


def _mode(node: torch.fx.Node) -> str:
    """The name of the higher-order op of :data:`_MODES` that `node` is; else empty."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
        return ""
    name = node.target.name()
    return name if name in _MODES else ""


def needs_retracing(module: torch.fx.GraphModule) -> bool:
    """True for a graph that PyTorch must take apart first.

    It writes operands or running statistics, runs parts under autocast, or has ops with random
    numbers within.
    """
    for inner in module.modules():
        for node in inner.graph.nodes if isinstance(inner, torch.fx.GraphModule) else ():
            if node.op != "call_function":
                continue
            if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                return True
            if _mode(node) == "wrap_with_autocast" and node.args[2]:
                return True
            if is_dropout_within(node) or writes_statistics(node):
                return True
    return False


# -- what goes ----------------------------------------------------------------------------------


def _take_constants(module: torch.fx.GraphModule, kept: list[torch.fx.Node]) -> list[str]:
    """Make arguments of the tensors that the graph holds, behind the `kept` ones."""
    graph = module.graph
    found: list[str] = []
    for node in list(graph.nodes):
        if node.op != "get_attr" or not node.users:
            continue
        value = operator.attrgetter(str(node.target))(module)
        if not isinstance(value, torch.Tensor):
            continue  # a graph of a higher-order op
        first = next(iter(graph.nodes))
        with graph.inserting_after(kept[-1]) if kept else graph.inserting_before(first):
            new = graph.placeholder(f"constant_{len(found)}")
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        kept.append(new)
        found.append(str(node.target))
    return found


def _refuse(graph: torch.fx.Graph, carried: Callable[[torch.fx.Node], bool]) -> None:
    """Raise UnsupportedError for an op that torch-mlir takes, and gives another meaning or none.

    Results of random ones depend on the state of a generator. Most of complex numbers lose the
    imaginary part: the absolute value becomes that of the real part.
    """
    for node in graph.nodes:
        is_control = isinstance(node.target, torch._ops.HigherOrderOperator)
        is_op = isinstance(node.target, torch._ops.OpOverload)
        if not (is_op or is_control) or carried(node):
            continue
        if is_control:
            what = "runs graphs of its own, which is not covered"
        elif torch.Tag.nondeterministic_seeded in node.target.tags:
            what = (
                "is random, and its numbers depend on more than sizes; call the model in eval "
                "mode, or pass the numbers as an argument"
            )
        elif _misreads_complex_numbers(node):
            what = "of complex numbers is not covered"
        else:
            continue
        raise UnsupportedError(f"{where(node)} {what}")


def _refuse_values_and_effects(graph: torch.fx.Graph) -> None:
    """Raise UnsupportedError for an op that does more than give results, such as a print.

    And for tensors that are not dense. First of all: rewrites may drop what has no elements.
    """
    for node in graph.nodes:
        if not is_dense(node):
            note_place(node)
            at = node.meta.get("place", node.name)
            raise UnsupportedError(
                f"{at}: {node.target}: a tensor that is sparse, nested or quantized"
            )
        if node.op != "call_function":
            continue
        op = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
        if has_effects(op) and not checks_data(op):
            note_place(node)
            at = node.meta.get("place", "unknown location")
            raise UnsupportedError(f"{at}: {op} has an effect outside the program")


def is_dense(node: torch.fx.Node) -> bool:
    """False for a node with a tensor whose memory is no array of its elements."""
    return not any(
        isinstance(x, torch.Tensor)
        and (x.layout is not torch.strided or x.is_nested or x.is_quantized)
        for x in pytree.tree_leaves(node.meta.get("val"))
    )


def _misreads_complex_numbers(node: torch.fx.Node) -> bool:
    """True for an op whose tensors are complex, and whose lowering may take them for real ones."""
    is_size = isinstance(node.meta.get("val"), torch.SymInt | int)
    known = is_size or node.target in MOVES
    return not known and any(map(is_complex, (node, *node.all_input_nodes)))


_OF_NUMBERS = {
    torch.sym_float: aten.Float.Scalar,
    torch.sym_max: torch.ops.prim.max.int,
    torch.sym_min: torch.ops.prim.min.int,
}
"""Functions of numbers that torch-mlir has as ops."""


def _write_numbers(graph: torch.fx.Graph) -> None:
    """Sizes where torch-mlir wants other values: in the place of tensors, and as floats."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _OF_NUMBERS:
            node.target = _OF_NUMBERS[node.target]
        elif node.target is torch.sym_sum:
            node.replace_all_uses_with(_sum_of(node))
        elif isinstance(node.target, torch._ops.OpOverload):
            for index, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
                given = node.args[index]
                if str(argument.type) != "Tensor" or not isinstance(given, torch.fx.Node):
                    continue
                if isinstance(given.meta.get("val"), torch.SymInt | torch.SymFloat):
                    with graph.inserting_before(node):
                        new = graph.call_function(aten.scalar_tensor.default, (given,))
                    is_float = isinstance(given.meta["val"], torch.SymFloat)
                    new.meta["val"] = fake_of(
                        graph, torch.zeros((), dtype=None if is_float else torch.int64)
                    )
                    new.kwargs = {} if is_float else {"dtype": torch.int64}
                    node.update_arg(index, new)


def _sum_of(node: torch.fx.Node) -> Any:
    """A sum of many sizes, some of them from data, as sums of two."""
    total, *rest = node.args[0]
    with node.graph.inserting_before(node):
        for part in rest:
            total = made(node.graph, operator.add, total, part)
    return total


# -- sizes --------------------------------------------------------------------------------------


def _state_sizes(given: Sequence[torch.fx.Node], nodes: SizeNodes) -> None:
    """Replace sizes, arguments too, by terms of what tensors have; those that none has stay."""
    for node in given:
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt) or not node.users:
            continue
        new = nodes.of(value)
        if new is not None and new is not node:
            node.replace_all_uses_with(new)
