"""forward-carried: a loop carries only what it changes.

    %r:2 = while(%i = %zero, %w = %weights) ... { ... return %j, %w }
    ==>
    %r = while(%i = %zero) ... { ... %weights ... return %j }

Why     `lax.scan` carries its constants. As carried values, weights look new in every iteration:
        they cannot be packed once, and what is computed from them cannot leave the loop.
Needs   nothing.   Keeps  every result.
Cost    O(loops x carried values), inner loops first.
Source  StableHLO spec, while: regions may read values from outside.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.loops import unchanged
from shlo_disc.ir.mlir import at, ir, ops_of, terminator
from shlo_disc.passes.base import Pass, register


@dataclass(frozen=True)
class ForwardCarried(Pass):
    """See the module."""

    name: ClassVar[str] = "forward-carried"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of values no longer carried."""
        return sum(_forward(loop) for loop in ops_of(module, "stablehlo.while"))


def _forward(loop: ir.Operation) -> int:
    condition, body = (region.blocks[0] for region in loop.regions)
    same = unchanged(loop)
    kept: list[int] = []
    for k, initial in enumerate(loop.operands):
        inside = body.arguments[k]
        if k in same:
            inside.replace_all_uses_with(initial)
            condition.arguments[k].replace_all_uses_with(initial)
            loop.results[k].replace_all_uses_with(initial)
        elif (
            _is_unread(loop.results[k])
            and _is_unread(condition.arguments[k])
            and _is_unread(inside)
        ):
            # Written in every iteration and read by none, nor by anything after the loop.
            continue
        else:
            kept.append(k)
    if len(kept) == len(loop.operands):
        return 0
    removed = len(loop.operands) - len(kept)
    _rebuild(loop, kept)
    return removed


def _is_unread(value: ir.Value) -> bool:
    return not any(True for _ in value.uses)


def _rebuild(loop: ir.Operation, kept: list[int]) -> None:
    """The same loop, carrying only the values in `kept`."""
    gone = sorted(set(range(len(loop.operands))) - set(kept), reverse=True)
    body = loop.regions[1].blocks[0]
    returned = terminator(body)
    values = [returned.operands[k] for k in kept]
    with at(returned):
        ir.Operation.create("stablehlo.return", operands=values)
    returned.erase()
    with at(loop):
        new = ir.Operation.create(
            "stablehlo.while",
            results=[loop.results[k].type for k in kept],
            operands=[loop.operands[k] for k in kept],
            attributes=dict(loop.attributes.items()),
            regions=2,
        )
    for old_region, region in zip(loop.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        for k in gone:
            block.erase_argument(k)
        block.append_to(region)
    for result, k in zip(new.results, kept, strict=True):
        loop.results[k].replace_all_uses_with(result)
    loop.erase()


register(ForwardCarried())
