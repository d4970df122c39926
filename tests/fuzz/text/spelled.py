"""Ops in other words, for oracles that do not know them: deprecated ones, collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tests.fuzz.program import Step


def _einsum(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """A `dot_general` and a transpose."""
    found = re.search(r'"(\w*),(\w*)->(\w*)"', attributes)
    assert found is not None
    left, right, kept = found.groups()
    batch = [c for c in left if c in right and c in kept]
    gone = [c for c in left if c in right and c not in kept]
    order = [*batch, *(c for c in left if c not in right), *(c for c in right if c not in left)]
    yield from _product(step, kinds, left, right, batch, gone, [order.index(c) for c in kept])


def _dot(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    left, right = ("ab"[-rank:] for rank in map(_rank, kinds[:2]))
    right = "bc"[: len(right)]
    yield from _product(step, kinds, left, right, [], ["b"], None)


def _product(
    step: Step, kinds: Sequence[str], left: str, right: str, batch: Sequence[str],
    gone: Sequence[str], order: list[int] | None,
) -> Iterator[str]:  # fmt: skip
    (result,) = step.results
    lists = [[side.index(c) for c in names] for names in (batch, gone) for side in (left, right)]
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {lists[0]}, rhs_batching_dimensions = "
        f"{lists[1]}, lhs_contracting_dimensions = {lists[2]}, rhs_contracting_dimensions = "
        f"{lists[3]}>"
    )
    middle = kinds[2]
    if order is not None:
        sizes = _sizes(kinds[2])
        straight = [sizes[order.index(k)] for k in range(len(order))]
        element = re.sub(r"^(\d+x)*", "", kinds[2].removeprefix("tensor<"))
        middle = f"tensor<{'x'.join([*straight, element])}"
    name = f"%{result}" if order is None else f"%{result}_p"
    a, b = step.operands
    yield (
        f'{name} = "stablehlo.dot_general"(%{a}, %{b}) {{dot_dimension_numbers = {numbers}}} : '
        f"({kinds[0]}, {kinds[1]}) -> {middle}"
    )
    if order is not None:
        text = f"array<i64: {', '.join(map(str, order))}>" if order else "array<i64>"
        yield (
            f'%{result} = "stablehlo.transpose"(%{result}_p) {{permutation = {text}}} : '
            f"({middle}) -> {kinds[2]}"
        )


def _broadcast(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    rank, more = _rank(kinds[0]), _rank(kinds[1])
    places = ", ".join(str(more - rank + k) for k in range(rank))
    text = f"array<i64: {places}>" if places else "array<i64>"
    yield (
        f'%{step.results[0]} = "stablehlo.broadcast_in_dim"(%{step.operands[0]}) '
        f"{{broadcast_dimensions = {text}}} : ({kinds[0]}) -> {kinds[1]}"
    )


def _unary_einsum(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """A `reduce` and a transpose."""
    found = re.search(r'"(\w*)->(\w*)"', attributes)
    assert found is not None
    given, kept = found.groups()
    gone = [k for k, c in enumerate(given) if c not in kept]
    left = [c for c in given if c in kept]
    sizes = [_sizes(kinds[0])[given.index(c)] for c in left]
    element = re.sub(r"^(\d+x)*", "", kinds[1].removeprefix("tensor<")).removesuffix(">")
    if element.startswith("complex"):
        zero = "(0.0, 0.0)"
    else:
        zero = "false" if element == "i1" else "0.0" if "f" in element else "0"
    one, middle = f"tensor<{element}>", f"tensor<{'x'.join([*sizes, element])}>"
    name = step.results[0]
    axes = ", ".join(map(str, gone))
    yield f"%{name}_z = stablehlo.constant dense<{zero}> : {one}"
    yield (
        f"%{name}_s = stablehlo.reduce(%{step.operands[0]} init: %{name}_z) applies stablehlo.add "
        f"across dimensions = [{axes}] : ({kinds[0]}, {one}) -> {middle}"
    )
    order = ", ".join(str(left.index(c)) for c in kept)
    text = f"array<i64: {order}>" if order else "array<i64>"
    yield (
        f'%{name} = "stablehlo.transpose"(%{name}_s) {{permutation = {text}}} : '
        f"({middle}) -> {kinds[1]}"
    )


def _torch_index_select(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """A gather whose indices have one dimension behind their batch."""
    batch, axis = (int(found) for found in re.findall(r"= (\d+) : i64", attributes))
    rank, batched = _rank(kinds[0]), list(range(batch))
    offsets = [d for d in range(rank) if batch <= d != axis]
    sizes = ["1" if d < batch or d == axis else s for d, s in enumerate(_sizes(kinds[0]))]
    numbers = (
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [{axis}], "
        f"operand_batching_dims = {batched}, start_indices_batching_dims = {batched}, "
        f"start_index_map = [{axis}], index_vector_dim = {batch + 1}>"
    )
    x, index = step.operands
    yield (
        f'%{step.results[0]} = "stablehlo.gather"(%{x}, %{index}) {{dimension_numbers = {numbers}, '
        f"slice_sizes = array<i64: {', '.join(sizes)}>}} : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}"
    )


def _same(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """A collective of one device gives what it takes; a size that is the size it has, too."""
    yield f"%{step.results[0]} = stablehlo.optimization_barrier %{step.operands[0]} : {kinds[0]}"


def _zero(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """The number of the only device."""
    yield f"%{step.results[0]} = stablehlo.constant dense<0> : {kinds[0]}"


def _sizes(kind: str) -> list[str]:
    return re.findall(r"(\d+)x", kind.removeprefix("tensor<").partition("!")[0])


def _rank(kind: str) -> int:
    return len(_sizes(kind))


SPELLED: dict[str, Callable[[Step, Sequence[str], str], Iterator[str]]] = {
    "stablehlo.broadcast": _broadcast,
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.unary_einsum": _unary_einsum,
    "stablehlo.partition_id": _zero,
    "stablehlo.replica_id": _zero,
    **dict.fromkeys(
        (
            "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all",
            "stablehlo.collective_broadcast", "stablehlo.collective_permute",
            "stablehlo.reduce_scatter", "stablehlo.set_dimension_size",
        ),
        _same,
    ),
}  # fmt: skip
