"""Products of one size with one left operand (q, k, v of an attention) as one launch.

Their kernels have one text and one set of parameters, and differ in their buffers. A wrapper around
that text takes the arguments of all of them, one after the other, and gives every range of tasks
those of its product. One fork and join instead of several, and no core waits between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.lower.plan import If, Kernel, Launch, Pack, Step

__all__ = ["side_by_side"]

_WRAPPER = """\
func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %lo: i64, %hi: i64, %scratch: !llvm.ptr) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %count = arith.constant COUNT : i64
  %place = llvm.getelementptr %params[PLACE] : (!llvm.ptr) -> !llvm.ptr, i64
  %each = llvm.load %place : !llvm.ptr -> i64
  %first = arith.divui %lo, %each : i64
  %most = arith.subi %hi, %one : i64
  %last = arith.divui %most, %each : i64
  %end = arith.addi %last, %one : i64
  scf.for %member = %first to %end step %one : i64 {
    %begin = arith.muli %member, %each : i64
    %from = arith.subi %lo, %begin : i64
    %l = arith.maxsi %from, %zero : i64
    %to = arith.subi %hi, %begin : i64
    %h = arith.minsi %to, %each : i64
    %at = arith.muli %member, %count : i64
    %own = llvm.getelementptr %args[%at] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
    func.call @KERNEL_one(%own, %params, %l, %h, %scratch)
        : (!llvm.ptr, !llvm.ptr, i64, i64, !llvm.ptr) -> ()
  }
  return
}
"""


def side_by_side(plans: Sequence[tuple[Step, ...]]) -> tuple[Step, ...] | None:
    """The plans run as one, launch by launch; None where they differ in more than buffers."""
    if len({len(plan) for plan in plans}) != 1:
        return None
    merged: list[Step] = []
    for steps in zip(*plans, strict=True):
        step = _merge(steps)
        if step is None:
            return None
        merged.append(step)
    return tuple(merged)


def _merge(steps: tuple[Step, ...]) -> Step | None:
    launches = [step for step in steps if isinstance(step, Launch)]
    choices = [step for step in steps if isinstance(step, If)]
    packs = [step for step in steps if isinstance(step, Pack)]
    if len(launches) == len(steps):
        return _launch(launches)
    if len(choices) == len(steps):
        then = side_by_side([choice.then for choice in choices])
        otherwise = side_by_side([choice.otherwise for choice in choices])
        same = len({choice.condition for choice in choices}) == 1
        if not same or then is None or otherwise is None:
            return None
        return If(choices[0].condition, then, otherwise)
    if len(packs) == len(steps):
        then = side_by_side([pack.then for pack in packs])
        otherwise = side_by_side([pack.otherwise for pack in packs])
        never = side_by_side([pack.never for pack in packs])
        if then is None or otherwise is None or never is None:
            return None
        parts = tuple(part for pack in packs for part in pack.parts)
        return Pack(parts, then, otherwise, never)
    return None


def _launch(launches: Sequence[Launch]) -> Launch | None:
    first = launches[0]
    alike = {(x.kernel.text, x.params, x.extent, x.scratch_bytes, len(x.args)) for x in launches}
    if len(alike) != 1:
        return None
    wrapper = _WRAPPER.replace("COUNT", str(len(first.args)))
    wrapper = wrapper.replace("PLACE", str(len(first.params)))
    one = first.kernel.text.replace("@KERNEL(", "@KERNEL_one(", 1)
    return replace(
        first,
        kernel=Kernel(f"{first.kernel.name}_x{len(launches)}", wrapper + one),
        args=tuple(buffer for launch in launches for buffer in launch.args),
        params=(*first.params, first.extent),
        extent=first.extent * len(launches),
    )
