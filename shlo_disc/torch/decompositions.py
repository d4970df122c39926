"""Which ATen ops are rewritten into others, and how: only those that nothing below can take.

    %y = aten.layer_norm(%x, ...)      ==>      %m = aten.mean(%x, ...), %d = aten.sub(%x, %m), ...

To retrace a whole program takes 5 to 50 s, and states guards on sizes that the program itself does
not need. So each such node is traced alone, from the sizes that it has already. Equal nodes, such
as the norms of a model's layers, are traced once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch_mlir.extras.fx_decomp_util import DEFAULT_DECOMPOSITIONS

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.torch.bag_rewrites import ROWS
from shlo_disc.torch.complex_rewrites import complex_rule
from shlo_disc.torch.convolution_rewrites import PLAIN_CONVOLUTIONS
from shlo_disc.torch.encoder_rewrites import OF_FEATURES
from shlo_disc.torch.indexed_rewrites import MASKED, read_storages
from shlo_disc.torch.linalg_rewrites import OF_LIBRARIES
from shlo_disc.torch.nodes import origin
from shlo_disc.torch.number_rewrites import DIVISIONS, fused_rule
from shlo_disc.torch.places import where
from shlo_disc.torch.quantized_rewrites import quantized_rule
from shlo_disc.torch.rewrites import REWRITES
from shlo_disc.torch.running_statistics import NATIVE_NORMS
from shlo_disc.torch.scalar_rewrites import OF_VECTORS, promotion_rule
from shlo_disc.torch.sizes import expression, is_plain_symbol
from shlo_disc.torch.type_rewrites import TYPES, Rule
from shlo_disc.torch.view_rewrites import parts_rule

aten = torch.ops.aten

KEPT = frozenset({
    aten.addmm, aten.alias, aten.avg_pool2d, aten.batch_norm, aten.bmm, aten.broadcast_to, aten.cat,
    aten.clamp, aten.clone, aten.conv2d, aten.convolution, aten.detach, aten.embedding,
    aten.expand, aten.expand_as, aten.gelu, aten.linear, aten.log_softmax, aten.masked_fill,
    aten.matmul, aten.max_pool2d, aten.mm, aten.narrow, aten.native_batch_norm, aten.numpy_T,
    aten.permute, aten.relu, aten.reshape, aten.reshape_as, aten.scaled_dot_product_attention,
    aten.select, aten.sigmoid, aten.silu, aten.slice, aten.softmax, aten.stack, aten.sym_size,
    aten.t, aten.tanh, aten.to, aten.transpose, aten.unflatten, aten.unsqueeze, aten.view,
    aten.where,
})  # fmt: skip
"""Packets with a decomposition in PyTorch that torch-mlir or a body of ours takes whole."""

_VIEWS = frozenset({aten._reshape_alias.default, aten._unsafe_view.default})
"""Views by other names. To trace them costs seconds where sizes are quotients."""

Decomposition = Callable[..., Any]


@functools.cache
def table() -> Mapping[Any, Decomposition]:
    """Overload -> the function that it is traced from.

    Without composite ops, for which :func:`_rule` asks: to collect them takes 0.2 s.
    """
    found = {
        **_core_aten_decompositions_post_autograd(),
        **get_decompositions(DEFAULT_DECOMPOSITIONS),
    }
    kept = {op: f for op, f in found.items() if op._overloadpacket not in KEPT}
    return {**kept, **REWRITES}


def decompose(
    module: torch.fx.GraphModule, carried: Callable[[torch.fx.Node], bool], *, libraries: bool
) -> list[Any]:
    """Rewrite the nodes of `module` that :func:`table` has, but for those that are `carried`.

    With `libraries`, those of other libraries too. Returns the conditions on sizes that a
    rewritten node needs, as SymPy expressions.
    """
    rules = {**table(), **_of_libraries(module.graph)} if libraries else table()
    # PyTorch keeps answers, and then adds no guard: not to a program that is compiled again.
    ShapeEnv._inner_evaluate_expr.cache_clear()
    guards: list[Any] = []
    traces: _Traces = {}
    read_storages(module)
    for node in module.graph.nodes:
        if node.target in _VIEWS:
            node.target, node.args = aten.view.default, node.args[:2]
    for node in _ops(module.graph):
        rule = None if carried(node) else _rule(node, rules)
        if rule is not None:
            guards += _rewrite(module, node, rules, rule, traces)
    for special in (complex_rule, _special_rule):
        for node in _ops(module.graph):
            rule = None if carried(node) else special(node)
            if rule is not None:
                guards += _rewrite(module, node, rules, rule, {})
    module.graph.eliminate_dead_code()
    return guards


def _ops(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The calls of ops; not those of functions of Python, and of ops that run graphs."""
    return [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def _of_libraries(graph: torch.fx.Graph) -> dict[Any, Decomposition]:
    """The rules for ops of other libraries in `graph`, which may be imported at any time."""
    ops = {node.target for node in _ops(graph)}
    return {op: OF_LIBRARIES[op.name()] for op in ops if op.name() in OF_LIBRARIES}


def _rule(node: torch.fx.Node, rules: Mapping[Any, Decomposition]) -> Decomposition | None:
    """What a node is traced from, None for an op that stays as it is.

    An op with a composite kernel is traced from itself: PyTorch runs the ops that it is made of.
    """
    op = node.target
    found = rules.get(op) or parts_rule(node) or fused_rule(node) or quantized_rule(node)
    if found is not None:
        return found
    return op if is_composite(op) else None


@functools.cache
def is_composite(op: torch._ops.OpOverload) -> bool:
    """True for an op that is defined by other ops, in C++ or in Python, and is not kept."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
    return op.overloadpacket not in KEPT and (has_kernel or key in op.py_kernels)


_FOREIGN = (
    AssertionError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What PyTorch's decompositions raise where they cannot be traced."""


def _plain(value: Any) -> Any:
    """`value` with plain lists and dicts."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


_SPECIAL: tuple[tuple[Collection[Any], Rule], ...] = (
    *TYPES,
    *(({op}, rule) for rows in (
        DIVISIONS, MASKED, ROWS, PLAIN_CONVOLUTIONS, NATIVE_NORMS, OF_VECTORS,
    ) for op, rule in rows.items()),
)  # fmt: skip
"""Overloads that are rewritten for some arguments only, and what says for which."""


def _special_rule(node: torch.fx.Node) -> Decomposition | None:
    """What a node is traced from whose op is rewritten for some arguments only."""
    for ops, rule in _SPECIAL:
        if node.target in ops and (found := rule(node)) is not None:
            return found
    return promotion_rule(node)


_Traces = dict[Any, tuple[torch.fx.GraphModule, list[Any]]]
"""Graphs of nodes with the conditions that they need, by :func:`_key`."""


def _rewrite(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    rules: Mapping[Any, Decomposition],
    function: Decomposition,
    traces: _Traces,
) -> list[Any]:
    """Put the graph of `function`, traced for the arguments of `node`, in its place.

    `traces` has the graphs of nodes that were rewritten before, by the same functions.
    """
    # Lists of a graph cannot be changed, and some functions do.
    leaves, structure = pytree.tree_flatten(_plain((node.args, node.kwargs)))
    inputs = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)))
    key = node.target, structure, tuple(_key(leaf, inputs) for leaf in leaves)
    if key not in traces:
        traces[key] = _traced(module, node, rules, function, leaves, structure, inputs)
    traced, guards = traces[key]
    inline(module, node, traced, inputs)
    return guards


def _key(leaf: Any, inputs: Sequence[torch.fx.Node]) -> Any:
    """Equal for arguments that a function is traced from in the same way."""
    if not isinstance(leaf, torch.fx.Node):
        return type(leaf).__name__, repr(leaf)
    value, place = leaf.meta["val"], inputs.index(leaf)
    if not isinstance(value, torch.Tensor):
        return place, type(value).__name__, str(value)
    sizes = tuple(map(str, (*value.shape, *value.stride(), value.storage_offset())))
    return place, value.dtype, value.device, value.layout, value.requires_grad, sizes


def _traced(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    rules: Mapping[Any, Decomposition],
    function: Decomposition,
    leaves: Sequence[Any],
    structure: pytree.TreeSpec,
    inputs: Sequence[torch.fx.Node],
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph of `function` for these arguments of `node`, and the conditions that it needs."""

    def call(*values: Any) -> Any:
        known = dict(zip(inputs, values, strict=True))
        args, kwargs = pytree.tree_unflatten(
            [known[x] if isinstance(x, torch.fx.Node) else x for x in leaves], structure
        )
        results = function(*args, **kwargs)  # as plain tuples: named ones would be nodes
        return tuple(results) if isinstance(results, tuple) else results

    mode = torch._guards.detect_fake_mode([x.meta["val"] for x in inputs] + _fakes(module))
    try:
        features = _features(inputs) if function in OF_FEATURES else frozenset()
        # C++ kernels of composite ops would ask for numbers; the dispatcher of Python has sizes.
        with (
            mode,
            _guards(mode.shape_env, features) as guards,
            torch.no_grad(),
            enable_python_dispatcher(),
        ):
            given = _apart([x.meta["val"] for x in inputs])
            traced = make_fx(call, decomposition_table=dict(rules))(*given)
            if any(map(_is_mutable, traced.graph.nodes)):
                traced = _without_writes(traced, rules, given)
    except UnsupportedError as error:
        raise UnsupportedError(f"{where(node)}: {error}") from error
    except _FOREIGN as error:
        said = f"{where(node)}: PyTorch's decomposition of it fails: {error}"
        raise UnsupportedError(said) from error
    return traced, guards


def _apart(values: Sequence[Any]) -> list[Any]:
    """`values`, a new one for one that is there before: a trace tells tensors by their identity.

    Nodes that are traced once have the same values.
    """
    seen: set[int] = set()
    found = []
    for value in values:
        is_again = isinstance(value, torch.Tensor) and id(value) in seen
        found.append(value.detach() if is_again else value)
        seen.add(id(value))
    return found


def _without_writes(
    traced: torch.fx.GraphModule, rules: Mapping[Any, Decomposition], given: Sequence[Any]
) -> torch.fx.GraphModule:
    """`traced`, whose arguments are like `given`, with new tensors for those that it writes.

    Raises UnsupportedError for a graph that writes its arguments.
    """
    for _ in range(_LEVELS):  # ops without writes may be decomposed into ops with them
        for node in traced.graph.nodes:
            node.target = _VIEWS_OF_PRIMS.get(node.target, node.target)
        traced.recompile()
        function = torch.func.functionalize(traced, remove="mutations")
        traced = make_fx(function, decomposition_table=dict(rules))(*given)
        if not any(map(_is_mutable, traced.graph.nodes)):
            return traced
    raise UnsupportedError("PyTorch's decomposition of it writes its operands")


_VIEWS_OF_PRIMS = {torch.ops.prims.squeeze.default: aten.squeeze.dims}
"""Views of :func:`table` that `functionalize` refuses -> those it takes."""

_LEVELS = 4
"""How often the decomposition of an op may have ops that are decomposed into writing ones."""


def _is_mutable(node: torch.fx.Node) -> bool:
    """True for an op that writes an operand, as those of some decompositions do."""
    is_op = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return is_op and bool(node.target._schema.is_mutable)


def _features(inputs: Sequence[torch.fx.Node]) -> frozenset[str]:
    """The symbols of last dimensions, which weights determine."""
    values = [node.meta["val"] for node in inputs]
    sizes = [v.shape[-1] for v in values if isinstance(v, torch.Tensor) and v.dim()]
    return frozenset(expression(size).name for size in sizes if is_plain_symbol(size))


@contextlib.contextmanager
def _guards(env: Any, known: frozenset[str] = frozenset()) -> Iterator[list[Any]]:
    """What is asked of sizes inside: an exported program's environment would forget it.

    Questions whether a size is 0 or 1 are answered as for any other size. Symbols that are `known`
    may be required to be numbers.
    """
    found: list[Any] = []
    if env is None:
        yield found
        return
    before, frozen, replacements = len(env.guards), env.frozen, dict(env.replacements)
    ranges = dict(env.var_to_range)
    env.frozen = False
    try:
        with fx_config.patch(backed_size_oblivious=True):
            yield found
    finally:
        env.frozen = frozen
        found += [guard.expr for guard in env.guards[before:]]
        del env.guards[before:]
        new = {s: e for s, e in env.replacements.items() if s not in replacements}
        # Of a number, the program would be one for this size alone; two symbols are a condition.
        fixed = any(not e.free_symbols and s.name not in known for s, e in new.items())
        if new:
            env.replacements.clear()
            env.replacements.update(replacements)
            env.var_to_range.update(ranges)
            env._replacements_version_counter += 1  # of what numbers remember of their terms
            env._update_version_counter()
    if fixed:
        raise UnsupportedError("PyTorch decomposes it for numbers only, not for sizes")


def _fakes(module: torch.fx.GraphModule) -> list[Any]:
    """Values from which the fake mode can be told, for a node without tensor operands."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def inline(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    traced: torch.fx.GraphModule,
    inputs: Sequence[Any],
) -> None:
    """Put the nodes of `traced`, a graph of these `inputs`, in the place of `node` in `module`."""
    graph = module.graph
    known: dict[torch.fx.Node, Any] = {}
    known.update(zip(traced.graph.find_nodes(op="placeholder"), inputs, strict=True))
    with graph.inserting_before(node):
        result: Any = graph.graph_copy(traced.graph, known)
    for inner, new in list(known.items())[len(inputs) :]:
        if inner.op == "get_attr":
            # Named anew: the graphs of two nodes may have constants of one name.
            new.target = _unused(module, f"{node.name}_{inner.target}")
            setattr(module, new.target, getattr(traced, inner.target))
        new.meta = {**origin(node), **inner.meta}
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):  # getitem
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _unused(module: torch.fx.GraphModule, name: str) -> str:
    name = name.replace(".", "_")
    while hasattr(module, name):
        name += "_"
    return name
