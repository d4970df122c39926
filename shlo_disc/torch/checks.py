"""Checks of what eager mode raises for.

Indices and labels out of range, integer division by zero, negative numbers of repeats, and numbers
of repeats whose sum is not the stated one.

    %y = aten.embedding(%w, %i)      ==>      %y = aten.embedding(%w, %i)
                                              %o = (%i < 0 | %i >= 1000).any()

The flags of all ops are one more result: the number of the first op that failed, or 0. A call reads
it. Maxima of no elements are conditions on sizes.

Ops are those of the given graph: what decompositions index is in range. A backward graph has the
indices of the forward one, which has checked them. Branches and loops have checks of their own
(:mod:`shlo_disc.torch.graph_checks`), as not all of them run.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from shlo_disc.base.errors import IndexRangeError
from shlo_disc.base.records import dataclass
from shlo_disc.torch.graph_checks import Code, code_of_graphs, shifted
from shlo_disc.torch.importer import is_control, schema_arguments
from shlo_disc.torch.nodes import made, origin
from shlo_disc.torch.places import where
from shlo_disc.torch.results import Assertion
from shlo_disc.torch.sizes import expression

aten = torch.ops.aten


@dataclass(frozen=True)
class _Range:
    """What an op requires of the elements of a tensor of integers."""

    index: torch.fx.Node
    holder: torch.fx.Node | None
    """The tensor that is indexed; None where there is no upper bound."""
    axis: int | None
    """Its dimension; None: all of its elements in a row."""
    wraps: bool = False
    """Negative numbers count from behind."""
    ignored: int | None = None
    """A number that stands for no index."""


# -- what ops require ---------------------------------------------------------------------------

_Rule = Callable[[dict[str, Any]], list[_Range]]


def _rank(node: torch.fx.Node) -> int:
    return int(node.meta["val"].dim())


def _along(of: str, index: str, *, wraps: bool = False) -> _Rule:
    """Indices into dimension `dim`, or into the first one of an op without that argument."""

    def rule(given: dict[str, Any]) -> list[_Range]:
        holder = given[of]
        axis = given.get("dim", 0) % max(_rank(holder), 1)
        return [_Range(given[index], holder, axis, wraps)]

    return rule


def _flat(given: dict[str, Any]) -> list[_Range]:
    return [_Range(given["index"], given["self"], None, wraps=True)]


def _each(given: dict[str, Any]) -> list[_Range]:
    """Indices of some dimensions; truth values are masks."""
    return [
        _Range(one, given["self"], axis, wraps=True)
        for axis, one in enumerate(given["indices"])
        if one is not None and one.meta["val"].dtype not in (torch.bool, torch.uint8)
    ]


def _labels(given: dict[str, Any]) -> list[_Range]:
    """Labels of classes; floats are probabilities of all of them."""
    if given["target"].meta["val"].is_floating_point():
        return []
    axis = 0 if _rank(given["self"]) == 1 else 1
    return [_Range(given["target"], given["self"], axis, ignored=given["ignore_index"])]


def _counted(given: dict[str, Any]) -> list[_Range]:
    return [_Range(given["self"], None, None)]


_IN_RANGE: dict[Any, _Rule] = {
    **dict.fromkeys(
        (aten._embedding_bag.default, aten._embedding_bag_forward_only.default,
         aten.embedding.default, aten.embedding_bag.default, aten.embedding_bag.padding_idx),
        _along("weight", "indices"),
    ),
    **dict.fromkeys(
        (aten.gather.default, aten.index_add.default, aten.index_copy.default,
         aten.index_reduce.default, aten.index_select.default, aten.scatter.reduce,
         aten.scatter.src, aten.scatter.value, aten.scatter.value_reduce,
         aten.scatter_add.default, aten.scatter_reduce.two),
        _along("self", "index"),
    ),
    **dict.fromkeys(
        (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor),
        _along("self", "index", wraps=True),
    ),
    **dict.fromkeys((aten.put.default, aten.take.default), _flat),
    **dict.fromkeys((aten.index.Tensor, aten.index_put.default), _each),
    **dict.fromkeys(
        (aten.cross_entropy_loss.default, aten.nll_loss.default, aten.nll_loss2d.default,
         aten.nll_loss2d_forward.default, aten.nll_loss_forward.default,
         aten.nll_loss_nd.default),
        _labels,
    ),
    aten.bincount.default: _counted,
}  # fmt: skip

_DIVISIONS = {
    aten.div.Tensor_mode: "other", aten.floor_divide.default: "other", aten.fmod.Tensor: "other",
    aten.remainder.Scalar_Tensor: "other", aten.remainder.Tensor: "other",
}  # fmt: skip
"""Ops that PyTorch's kernels raise for, where integers are divided by 0."""

_MAXIMA = frozenset({
    aten.amax, aten.amin, aten.aminmax, aten.argmax, aten.argmin, aten.kthvalue, aten.max,
    aten.median, aten.min, aten.mode, aten.nanmedian,
})  # fmt: skip
"""Packets whose results are elements, or places of elements."""

_OF_NOTHING = frozenset({aten.median.default, aten.nanmedian.default})
"""Such ops that are NaN without an element."""


_ARRANGED = frozenset({
    aten.alias, aten.clone, aten.contiguous, aten.detach, aten.flatten, aten.permute, aten.reshape,
    aten.squeeze, aten.t, aten.transpose, aten.unsqueeze, aten.view, aten._unsafe_view,
})  # fmt: skip
"""Packets whose results have the elements of the first operand, in another order."""

_EXPANDED = frozenset({aten.broadcast_to, aten.expand, aten.expand_as})
"""Packets whose results have the elements of the first operand several times, or not at all."""


def _same_elements(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor that `node` has all elements of, with fewer of them: cheaper to read."""
    while True:
        packet = getattr(node.target, "overloadpacket", None)
        is_repeated = packet in _EXPANDED and _is_repeated(node)
        if not (packet in _ARRANGED or is_repeated or _is_whole_slice(node)):
            return node
        node = node.args[0]


def _is_whole_slice(node: torch.fx.Node) -> bool:
    """True for `x[:]`, which `x[:, None]` has in its graph."""
    if node.target is not aten.slice.Tensor:
        return False
    given = schema_arguments(node)
    end = given["end"]
    is_whole = end is None or (isinstance(end, int) and end == sys.maxsize)
    return is_whole and given["start"] in (None, 0) and given["step"] == 1


def _is_repeated(node: torch.fx.Node) -> bool:
    """True for an expanded tensor whose new sizes are numbers other than 0."""
    new, own = (list(x.meta["val"].shape) for x in (node, node.args[0]))
    pairs = zip(new, [1] * (len(new) - len(own)) + own, strict=True)
    return all((isinstance(n, int) and n > 0) or expression(n) == expression(m) for n, m in pairs)


# -- indices that are in range ------------------------------------------------------------------

_MOVES = _ARRANGED | _EXPANDED | {aten.repeat, aten.select, aten.slice}
"""Packets whose results have elements of the first operand alone."""


def _is_in_range(one: _Range) -> bool:
    """True for places that an op has found in a dimension of the same size, and for a range."""
    if one.holder is None or one.axis is None:
        return False
    node = one.index
    while getattr(node.target, "overloadpacket", None) in _MOVES:
        node = node.args[0]
    size = expression(_size(one))
    if node.target in (aten.arange.default, aten.arange.start, aten.arange.start_step):
        given = schema_arguments(node)
        start, step = given.get("start", 0), given.get("step", 1)
        end = given["end"].meta["val"] if isinstance(given["end"], torch.fx.Node) else given["end"]
        is_plain = isinstance(start, int) and start >= 0 and step == 1
        return is_plain and not isinstance(end, float) and expression(end) == size
    is_place = node.target is operator.getitem and node.args[1] == 1
    maker = node.args[0] if is_place else node
    packet = getattr(maker.target, "overloadpacket", None)
    if packet not in (_FINDERS if is_place else (aten.argmax, aten.argmin, aten.argsort)):
        return False
    x, dim = maker.args[0].meta["val"], schema_arguments(maker).get("dim")
    return x.dim() > 0 and isinstance(dim, int) and expression(x.shape[dim]) == size


_FINDERS = (aten.kthvalue, aten.max, aten.median, aten.min, aten.sort, aten.topk)


def _size(one: _Range) -> Any:
    """The upper bound of one that has any."""
    assert one.holder is not None
    x = one.holder.meta["val"]
    if one.axis is None:
        return x.numel()
    return x.shape[one.axis] if x.dim() else 1


# -- the check ----------------------------------------------------------------------------------


def check_indices(graph: torch.fx.Graph) -> list[Assertion]:
    """Add nodes that find ops of `graph` whose indices, labels or divisors eager mode refuses.

    Each is checked where it is used first. The assertion raises IndexRangeError with the source
    line of such an op, or RuntimeError for a division.
    """
    found = _code(graph)
    if found is None:
        return []
    code, errors = found
    return [Assertion(code, functools.partial(_raise_first, errors), is_flag=True)]


def _code(graph: torch.fx.Graph) -> Code | None:
    """Add the code of what fails in `graph`, if anything can."""
    ranges: dict[Any, tuple[torch.fx.Node, _Range]] = {}
    others: dict[Any, _Flag] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if is_control(node):
            if (found := code_of_graphs(node, _code)) is not None:
                others[node] = _Flag(node, *found, is_code=True)
        elif node.target in _IN_RANGE:
            for one in _IN_RANGE[node.target](schema_arguments(node)):
                one = dataclasses.replace(one, index=_same_elements(one.index))
                if not _is_in_range(one) and not _is_empty(one.index):
                    ranges.setdefault((one.index, *_limits(one)), (node, one))
        elif (divisor := _divisor(node)) is not None:
            error = RuntimeError(f"{where(node)}: ZeroDivisionError")
            others.setdefault(
                divisor, _Flag(node, _call(node, aten.eq.Scalar, divisor, 0), [error])
            )
        elif node.target is aten.repeat_interleave.Tensor:
            error = RuntimeError(f"{where(node)}: {_WRONG_REPEATS}")
            others[node] = _Flag(node, _wrong_repeats(node), [error])
    places = {node: place for place, node in enumerate(graph.nodes)}
    flags = [
        *(_Flag(at, _outside(at, one), [_range_error(at, one)]) for at, one in ranges.values()),
        *others.values(),
    ]
    flags.sort(key=lambda flag: places[flag.at])
    errors = [error for flag in flags for error in flag.errors]
    return (_joined(flags), errors) if flags else None


@dataclass(frozen=True)
class _Flag:
    """What is checked of one tensor."""

    at: torch.fx.Node
    """The op that it is checked for."""
    fails: torch.fx.Node
    """True for elements that the op refuses; or a code."""
    errors: Sequence[Exception]
    """What is raised; of several, as coded."""
    is_code: bool = False


def _limits(one: _Range) -> tuple[Any, ...]:
    """Equal for those that require the same of an element."""
    bound = None if one.holder is None else expression(_size(one))
    return bound, one.wraps, one.ignored


def _is_empty(node: torch.fx.Node) -> bool:
    """True for a tensor that never has elements."""
    return any(isinstance(size, int) and size == 0 for size in node.meta["val"].shape)


def _divisor(node: torch.fx.Node) -> torch.fx.Node | None:
    """What an op divides integers by, if that is a tensor."""
    if node.target not in _DIVISIONS or node.meta["val"].is_floating_point():
        return None
    divisor = schema_arguments(node)[_DIVISIONS[node.target]]
    is_tensor = isinstance(divisor, torch.fx.Node)
    return divisor if is_tensor and isinstance(divisor.meta["val"], torch.Tensor) else None


_WRONG_REPEATS = "the repeats are negative, or their sum is not the size that is required"


def _wrong_repeats(node: torch.fx.Node) -> torch.fx.Node:
    """True where the numbers of `repeat_interleave` are no numbers of repeats."""
    given = schema_arguments(node)
    negative = _call(node, aten.lt.Scalar, given["repeats"], 0)
    if given["output_size"] is None:
        return negative
    total = _call(node, aten.sum.default, given["repeats"])
    other = _call(node, aten.ne.Scalar, total, given["output_size"])
    return _call(node, aten.logical_or.default, negative, other)


def _outside(at: torch.fx.Node, one: _Range) -> torch.fx.Node:
    """True for elements that are out of the range, in 64 bits: `x < 0 | x >= n`."""
    x = one.index
    if x.meta["val"].dtype is not torch.int64:
        x = _call(at, aten._to_copy.default, x, dtype=torch.int64)
    if one.holder is None:
        return _call(at, aten.lt.Scalar, x, 0)
    size: Any = _size(one)
    if not isinstance(size, int):
        size = _stated(at, one)
    low = _call(at, aten.add.Scalar, x, size) if one.wraps else x
    below, above = _call(at, aten.lt.Scalar, low, 0), _call(at, aten.ge.Scalar, x, size)
    outside = _call(at, aten.bitwise_or.Tensor, below, above)
    if one.ignored is not None:
        counts = _call(at, aten.ne.Scalar, one.index, one.ignored)
        outside = _call(at, aten.bitwise_and.Tensor, outside, counts)
    return outside


def _stated(at: torch.fx.Node, one: _Range) -> torch.fx.Node:
    """The bound, which is not a number, as a node."""
    axes = range(_rank(one.holder)) if one.axis is None else [one.axis]
    sizes = [_call(at, aten.sym_size.int, one.holder, axis) for axis in axes]
    return functools.reduce(functools.partial(_call, at, operator.mul), sizes)


def _joined(flags: Sequence[_Flag]) -> torch.fx.Node:
    """0, or a number that is the larger, the earlier the first error comes that is to be raised.

    Each has a reduction of its own, which kernels that read the indices do on the way.
    """
    total = sum(len(flag.errors) for flag in flags)
    if len(flags) == 1 and (total == 1 or flags[0].is_code):
        return flags[0].fails if flags[0].is_code else _any(flags[0])
    code: Any = None
    weight = total
    for flag in flags:
        call = functools.partial(_call, flag.at)
        if flag.is_code:
            own = shifted(call, flag.fails, weight - len(flag.errors))
        else:
            number = call(aten._to_copy.default, _any(flag), dtype=torch.int32)
            own = call(aten.mul.Scalar, number, weight)
        weight -= len(flag.errors)
        code = own if code is None else call(aten.maximum.default, code, own)
    found: torch.fx.Node = code
    return found


def _any(flag: _Flag) -> torch.fx.Node:
    """Whether an element fails."""
    return _call(flag.at, aten.any.default, flag.fails)


def _call(at: torch.fx.Node, op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A node of `op` behind all that is there for `at`, with its source line."""
    end = at
    while end.next.meta.get("check_of") is at:
        end = end.next
    with at.graph.inserting_after(end):
        node = made(at.graph, op, *args, **kwargs)
    node.meta |= {**origin(at), "check_of": at}
    return node


def _range_error(node: torch.fx.Node, one: _Range) -> IndexRangeError:
    if one.holder is None:
        return IndexRangeError(f"{where(node)}: an element is negative")
    size = _size(one)
    least, most = ("-n", "n - 1") if one.wraps else ("0", "n - 1")
    if isinstance(size, int):
        least, most = str(-size if one.wraps else 0), str(size - 1)
    what = "the number of elements" if one.axis is None else f"the size of dimension {one.axis}"
    told = "" if isinstance(size, int) else f", where n is {what}"
    return IndexRangeError(
        f"{where(node)}: an index is out of range: not from {least} to {most}{told}"
    )


def _raise_first(errors: Sequence[Exception], code: int | torch.Tensor) -> None:
    """Raise the error of the first op that failed."""
    if number := int(code):  # no less than 1: the number of ops from there on
        error = errors[len(errors) - number]
        raise type(error)(*error.args)  # a new one: others may hold tracebacks


def sizes_of_maxima(graph: torch.fx.Graph) -> list[Any]:
    """The conditions that no op of `graph` looks for the largest of no elements.

    Unevaluated: PyTorch takes sizes to be positive while it traces.
    """
    found = []
    for node in graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet not in _MAXIMA or node.target in _OF_NOTHING:
            continue
        given = schema_arguments(node)
        if packet in (aten.max, aten.min) and "other" in given:  # of two tensors
            continue
        x, dim = given["self"].meta["val"], given.get("dim")
        dims = [dim] if isinstance(dim, int) else dim
        for axis in dims or range(x.dim()):
            size = x.shape[axis] if x.dim() else 1
            if not isinstance(size, int):
                found.append(sympy.Ge(expression(size), 1, evaluate=False))
    return found
