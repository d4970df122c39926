"""Deprecated ops in other words, for the interpreter, which does not know them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tests.fuzz.program import Step

__all__ = ["SPELLED"]


def _einsum(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    """A `dot_general` and a transpose."""
    found = re.search(r'"(\w*),(\w*)->(\w*)"', attributes)
    assert found is not None
    left, right, kept = found.groups()
    batch = [l for l in left if l in right and l in kept]
    gone = [l for l in left if l in right and l not in kept]
    order = [*batch, *(l for l in left if l not in right), *(l for l in right if l not in left)]
    yield from _product(step, kinds, left, right, batch, gone, [order.index(l) for l in kept])


def _dot(step: Step, kinds: Sequence[str], attributes: str) -> Iterator[str]:
    left, right = ("ab"[-rank:] for rank in map(_rank, kinds[:2]))
    right = "bc"[: len(right)]
    yield from _product(step, kinds, left, right, [], ["b"], None)


def _product(
    step: Step, kinds: Sequence[str], left: str, right: str, batch: Sequence[str],
    gone: Sequence[str], order: list[int] | None,
) -> Iterator[str]:  # fmt: skip
    (result,) = step.results
    lists = [[side.index(l) for l in names] for names in (batch, gone) for side in (left, right)]
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


def _sizes(kind: str) -> list[str]:
    return re.findall(r"(\d+)x", kind.removeprefix("tensor<").partition("!")[0])


def _rank(kind: str) -> int:
    return len(_sizes(kind))


SPELLED: dict[str, Callable[[Step, Sequence[str], str], Iterator[str]]] = {
    "stablehlo.broadcast": _broadcast,
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
}
