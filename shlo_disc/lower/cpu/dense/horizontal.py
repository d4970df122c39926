"""Horizontal fusion of products: q, k, v of an attention, of one size, in one launch.

Their kernels have one text and one set of parameters, and differ in their buffers. A wrapper around
that text takes the arguments of all products, one after the other. Every range of tasks gets those
of its product. There is one fork and join instead of several, and no core waits between products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cpu.builder import SizedBuilder
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.kernels.sized import Written
from shlo_disc.lower.plan import (
    If,
    Kernel,
    KernelText,
    LateText,
    Launch,
    Pack,
    Step,
    text_of,
)

_ONE = "KERNEL_one"


def fused_horizontally(
    plans: Sequence[tuple[Step, ...]], machine: Machine
) -> tuple[Step, ...] | None:
    """The plans run as one, launch by launch; None where they differ in more than buffers."""
    if len({len(plan) for plan in plans}) != 1:
        return None
    merged: list[Step] = []
    for steps in zip(*plans, strict=True):
        step = _merge(steps, machine)
        if step is None:
            return None
        merged.append(step)
    return tuple(merged)


def _merge(steps: tuple[Step, ...], machine: Machine) -> Step | None:
    launches = [step for step in steps if isinstance(step, Launch)]
    choices = [step for step in steps if isinstance(step, If)]
    packs = [step for step in steps if isinstance(step, Pack)]
    if len(launches) == len(steps):
        return _launch(launches, machine)
    if len(choices) == len(steps):
        then = fused_horizontally([choice.then for choice in choices], machine)
        otherwise = fused_horizontally([choice.otherwise for choice in choices], machine)
        same = len({choice.condition for choice in choices}) == 1
        if not same or then is None or otherwise is None:
            return None
        return If(choices[0].condition, then, otherwise)
    if len(packs) == len(steps):
        then = fused_horizontally([pack.then for pack in packs], machine)
        otherwise = fused_horizontally([pack.otherwise for pack in packs], machine)
        never = fused_horizontally([pack.never for pack in packs], machine)
        if then is None or otherwise is None or never is None:
            return None
        parts = tuple(part for pack in packs for part in pack.parts)
        return Pack(parts, then, otherwise, never, packs[0].may_wait)
    return None


def _launch(launches: Sequence[Launch], machine: Machine) -> Launch | None:
    first = launches[0]
    alike = {(x.kernel.source, x.params, x.extent, x.scratch_bytes, len(x.args)) for x in launches}
    if len(alike) != 1:
        return None
    merged = LateText(_merged, (machine, len(first.args), first.kernel.source), ())
    return replace(
        first,
        kernel=Kernel(f"{first.kernel.name}_x{len(launches)}", merged),
        args=tuple(buffer for launch in launches for buffer in launch.args),
        params=(first.extent, *first.params),
        extent=first.extent * len(launches),
    )


def _merged(of: tuple[Machine, int, KernelText], sizes: Mapping[str, Expr]) -> Written:
    """The kernel of several launches of one text, for a machine and so many arguments of each."""
    machine, arg_count, one = of
    return _each_in_turn(machine, arg_count) + text_of(one).replace("@KERNEL(", f"@{_ONE}(", 1), ()


def _each_in_turn(machine: Machine, arg_count: int) -> str:
    """A kernel that gives every range of tasks those of its product, the function `_ONE`.

    It takes the `arg_count` arguments of every product, one product after the other, and as sizes
    the tasks of one product, then the product's own.
    """
    b = SizedBuilder(machine, {"each": Expr.symbol("each")})
    b.make_once()
    each = b.size("each")
    own_params = b.place(b.params, 1, "i64")
    with b.loop(b.lo // each, (b.hi - 1) // each + 1, hint="member") as member:
        begin = member.index * each
        own_args = b.place(b.args, member.index * arg_count, "!llvm.ptr")
        b.call(_ONE, own_args, own_params, b.max(b.lo - begin, 0), b.min(b.hi - begin, each))
    text, _ = b.finish()
    return text_of(text)
