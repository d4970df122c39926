"""What a compiled program does, as text: kernels, choices left to run time, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.lower.host import HostProgram
from shlo_disc.lower.kernel import If, Launch, Step

__all__ = ["explain", "memory_formula"]


def explain(
    name: str,
    host: HostProgram,
    program: ShapeProgram,
    stage_ms: Mapping[str, float],
    sizes: Mapping[str, int] | None = None,
) -> str:
    """Kernels in order with kind, source line, variants and why they read what they read.

    `sizes` gives values of symbols; memory is then a number of bytes. Raises KeyError for a
    symbol that has none.
    """
    stages = ", ".join(f"{stage} {ms:.0f}" for stage, ms in stage_ms.items())
    lines = [
        f"{name}: {len(host.uses)} kernels, {len(host.kernels)} different; compiled in "
        f"{sum(stage_ms.values()):.0f} ms ({stages})"
    ]
    memory = memory_formula(host)
    lines.append(f"temporary memory: {memory} bytes")
    if sizes is not None:
        values = dict(sizes)
        lines[-1] += f" = {memory.evaluate(values):,} at {_given(values)}"
    if program.checks:
        lines.append("checked at every call:")
        lines += [f"  {check.message}" for check in program.checks]
    lines.append("kernels:")
    width = max((len(use.name) for use in host.uses), default=0)
    for number, use in enumerate(host.uses, 1):
        lines.append(
            f"{number:4} {use.kind:10} {use.name:{width}} {use.where}: {_variants(use.plan.steps)}"
        )
        lines += [f"       not fused with {reason}" for reason in use.not_fused]
    return "\n".join(lines)


def memory_formula(host: HostProgram) -> Expr:
    """Bytes of the arena of a call: buffers that share a slot by liveness, and the largest
    workspace of one kernel. Results and packed weights come on top.
    """
    total = Expr.const(0)
    for slot in host.arena:
        total = total + _aligned(slot)
    largest = Expr.const(0)
    for workspaces in host.workspaces:
        block = Expr.const(0)
        for size in workspaces:
            block = block + _aligned(size)
        largest = Expr.max(largest, block)
    return total + largest


def _aligned(size: Expr) -> Expr:
    return (size + 63) // 64 * 64


def _given(values: Mapping[str, int]) -> str:
    return ", ".join(f"{symbol} = {value}" for symbol, value in sorted(values.items()))


def _variants(steps: Sequence[Step]) -> str:
    """`a, then b`; `a if b*t <= 32, else c`; `a where B is packed, else ...`."""
    return ", then ".join(_variant(step) for step in steps)


def _variant(step: Step) -> str:
    if isinstance(step, Launch):
        return step.kernel.name
    if isinstance(step, If):
        condition = f"{step.condition.lhs} {step.condition.op} {step.condition.rhs}"
        return f"({_variants(step.then)} if {condition}, else {_variants(step.otherwise)})"
    operands = ", ".join(str(part.operand) for part in step.parts)
    then, otherwise = _variants(step.then), _variants(step.otherwise)
    return f"({then} where operand {operands} is kept packed, else {otherwise})"
