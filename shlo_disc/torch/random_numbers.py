"""Random numbers of a graph: PyTorch draws them before the program runs.

    %m, %y = aten.native_dropout(%x, 0.1, True)    ==>    %m = a placeholder, as large as %x
                                                          %y = %x * %m * (1 / 0.9)

Such numbers depend on sizes alone. A call has PyTorch's own operations draw them, in the order of
the graph, and passes them to the program. So they are those that eager mode draws from the same
state of the generator.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointPolicy

from shlo_disc.torch.importer import schema_arguments
from shlo_disc.torch.nodes import made, origin
from shlo_disc.torch.places import place_of
from shlo_disc.torch.sizes import Sizes, expression, symbols_of

aten = torch.ops.aten

_AS_LARGE_AS = frozenset({
    aten.bernoulli.p, aten.cauchy.default, aten.exponential.default, aten.geometric.default,
    aten.log_normal.default, aten.normal_functional.default, aten.rand_like.default,
    aten.randint_like.default, aten.randint_like.low_dtype, aten.randn_like.default,
    aten.random.default, aten.random.to, getattr(aten.random, "from"), aten.uniform.default,
})  # fmt: skip
"""Random ops that read the sizes, strides and type of a tensor, and none of its elements."""

_DROPOUTS = frozenset({aten.dropout.default, aten.native_dropout.default})

_COMPOSED = frozenset({
    aten.alpha_dropout.default, aten.feature_alpha_dropout.default, aten.feature_dropout.default,
})  # fmt: skip


class _Like(NamedTuple):
    """A tensor of which sizes, strides and type count."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype


class _Draw(NamedTuple):
    """A call of a random op; sizes in it are SymPy expressions."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Draws:
    """The random numbers of a program; a call with its inputs draws them anew, in order."""

    def __init__(
        self, draws: Sequence[_Draw], names: Sequence[str], places: Sequence[str], sizes: Sizes
    ) -> None:
        self.names = list(names)
        """Of the arguments that take the numbers."""
        self.places = list(places)
        """The ops that draw them, each with its source line."""
        self._draws = list(draws)
        self._sizes = sizes
        self._symbols = sorted(_symbols(self._draws))
        self._at = functools.lru_cache(maxsize=64)(self._stated)

    def __call__(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The numbers of a call with these inputs of the graph, from PyTorch's generator."""
        if not self._draws:
            return []
        values = tuple(self._sizes.symbol(name, inputs) for name in self._symbols)
        return [op(*map(_made, args), **kwargs) for op, args, kwargs in self._at(values)]

    def _stated(self, values: tuple[int, ...]) -> Any:
        """Every call of an op, with the sizes at these values of the symbols."""
        known = dict(zip(self._symbols, values, strict=True))

        def at(size: Any) -> int:
            return self._sizes.at(size, known)

        return _mapped(self._draws, at)


def _made(value: Any) -> Any:
    """A tensor for what only its sizes, strides and type count of."""
    if isinstance(value, _Like):
        return torch.empty_strided(value.sizes, value.strides, dtype=value.dtype)
    return value


def _mapped(value: Any, function: Any) -> Any:
    """`value` with `function` of the SymPy expressions in it."""
    return pytree.tree_map(lambda x: function(x) if hasattr(x, "free_symbols") else x, value)


def _symbols(draws: Sequence[_Draw]) -> set[str]:
    used: set[str] = set()
    _mapped(draws, lambda size: used.update(symbols_of(size)))
    return used


def is_random(node: torch.fx.Node) -> bool:
    """True for a call of an op whose results come from a generator."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and schema_arguments(node).get("dropout_p") != 0  # of attention
    )


def is_dropout_within(node: torch.fx.Node) -> bool:
    """True for a call of an op that PyTorch composes of others, one of which is random."""
    if node.target is aten.scaled_dot_product_attention.default:
        return bool(schema_arguments(node)["dropout_p"] != 0)
    return node.target in _COMPOSED and bool(node.args[2])


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention with dropout of its weights; source: `_scaled_dot_product_attention_math`."""
    if dropout_p == 0:
        return NotImplemented
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    factor = float(q.shape[-1]) ** -0.5 if scale is None else scale
    scores = (q * factor) @ k.transpose(-2, -1)
    if is_causal:
        rows, columns = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
        attn_mask = columns <= rows.unsqueeze(-1)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, -torch.inf)
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        weights = aten._safe_softmax.default(scores + attn_mask, -1)
    return aten.native_dropout.default(weights, dropout_p, True)[0] @ v


TAKEN_APART = {aten.scaled_dot_product_attention.default: _attention}
"""Decompositions beside those that PyTorch always makes where it retraces an export."""


def draw_before(graph: torch.fx.Graph, sizes: Sizes) -> tuple[list[torch.fx.Node], Draws]:
    """Replace random ops of `graph` by new placeholders, behind the given ones.

    The placeholders, and what draws the numbers. `sizes` tells the values of symbols in a call. An
    op stays whose numbers depend on data, on a number that is no size, or on sizes from data.
    """
    found: list[torch.fx.Node] = []
    draws, places = [], []
    for node in list(graph.nodes):
        if node.op != "call_function" or not is_random(node):
            continue
        draw = _drawn(node, sizes)
        if draw is None:
            continue
        with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
            new = graph.placeholder(f"{node.name}_drawn")
        places.append(place_of(node))
        _replace(node, new)
        found.append(new)
        draws.append(draw)
    return found, Draws(draws, [node.name for node in found], places, sizes)


def save_draws(graph: torch.fx.Graph) -> None:
    """Have the backward program of a joint `graph` use the random numbers of the forward one.

    `torch.utils.checkpoint` asks to compute all again. Of a dropout only the mask is kept.
    """
    for node in list(graph.nodes):
        if "recompute" not in node.meta or not is_random(node):
            continue
        kept = [node, *(user for user in node.users if user.target is operator.getitem)]
        if node.target is aten.native_dropout.default and _is_dropout(*node.args[1:]):
            x, p, _ = node.args
            with graph.inserting_before(node):
                like = _call(node, aten.empty_like.default, x, dtype=torch.bool)
                mask = _call(node, aten.bernoulli.p, like, 1 - p)
            _replace(node, mask)
            kept = [mask]
        for one in kept:
            one.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _is_dropout(p: Any, train: Any) -> bool:
    """True for a dropout with random numbers, which depend on sizes alone."""
    return bool(train) and isinstance(p, float | int) and 0 < p < 1


def _drawn(node: torch.fx.Node, sizes: Sizes) -> _Draw | None:
    """How a call draws the numbers of a random op; None where it cannot."""
    op, args, kwargs = node.target, node.args, node.kwargs
    if op in _DROPOUTS:
        x, p, train = args
        if not _is_dropout(p, train):
            return None
        with x.meta["val"].fake_mode:  # dense, also of an expanded tensor
            like = _like(torch.empty_like(x.meta["val"], dtype=torch.bool))
        # In place, as PyTorch does: generators fill memory in its own order.
        return _of_sizes(_Draw(aten.bernoulli_.float, (like, 1 - p), {}), sizes)
    if op in _AS_LARGE_AS:
        args = (_like(args[0].meta["val"]), *args[1:])
    unknown = False

    def stated(used: torch.fx.Node) -> Any:
        nonlocal unknown
        value = used.meta.get("val")
        unknown |= not isinstance(value, torch.SymInt | int)
        return used if unknown else expression(value)

    args, kwargs = torch.fx.map_arg((args, kwargs), stated)
    return None if unknown else _of_sizes(_Draw(op, args, kwargs), sizes)


def _of_sizes(draw: _Draw, sizes: Sizes) -> _Draw | None:
    """`draw`, unless a symbol in it is the size of no input."""
    return draw if _symbols([draw]) <= sizes.places.keys() else None


def _like(value: Tensor) -> _Like:
    """As much of a fake tensor as its symbols tell."""
    shape, strides = (tuple(map(expression, each)) for each in (value.shape, value.stride()))
    return _Like(shape, strides, value.dtype)


def _replace(node: torch.fx.Node, new: torch.fx.Node) -> None:
    """Put the placeholder `new` in the place of a random node; it is the mask of a dropout."""
    new.meta = _place(node)
    if node.target not in _DROPOUTS:
        new.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)
        return
    x, p, _ = node.args
    with x.meta["val"].fake_mode:
        new.meta["val"] = torch.empty_like(x.meta["val"], dtype=torch.bool)
    with node.graph.inserting_before(node):
        numbers = _call(node, aten._to_copy.default, new, dtype=x.meta["val"].dtype)
        kept = _call(node, aten.mul.Tensor, x, numbers)
        result = _call(node, aten.mul.Scalar, kept, 1 / (1 - p))
    if node.target is aten.dropout.default:
        node.replace_all_uses_with(result)
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with((result, new)[user.args[1]])
        node.graph.erase_node(user)
    node.graph.erase_node(node)


def _place(node: torch.fx.Node) -> dict[str, Any]:
    """What tells where `node` comes from, and whether it is computed again."""
    more = {key: node.meta[key] for key in ("recompute", "ac_graph_id") if key in node.meta}
    return {**origin(node), **more}


def _call(at: torch.fx.Node, op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A node of `op`, with the source line of `at`."""
    node = made(at.graph, op, *args, **kwargs)
    node.meta |= _place(at)
    return node
