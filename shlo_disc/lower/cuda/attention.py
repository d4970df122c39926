"""Kind `attention` on NVIDIA's GPUs: both products and the softmax between them in one launch.

For 16-bit floats, with scores in registers (`online_softmax.py`). The planner makes no others
(`passes/match_softmax.py`): they are two products and the rows between them.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_warpgroups import ROWS, WarpgroupWriter
from shlo_disc.lower.cuda.attention_warps import TILE, WarpWriter
from shlo_disc.lower.cuda.machine import WITH_WARPGROUPS
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.model import MODEL
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step
from shlo_disc.lower.schedule.attention import take_apart
from shlo_disc.passes.machine_model import AttentionKernels, MachineModel
from shlo_disc.passes.match_attention import AttentionRecord
from shlo_disc.passes.records import Planned

__all__ = ["emit_attention", "model"]

WIDEST = 128
"""The largest head size: results of 16 rows have 64 registers of each thread then."""

_WITHOUT = ("sm_75",)
"""Architectures without `mma.sync` of 16-bit floats by 16 along K, or `cp.async`."""


def model(machine: Machine) -> MachineModel:
    """The planner's numbers for `machine`."""
    if machine.architecture in _WITHOUT:
        return MODEL
    kernels = AttentionKernels(frozenset({"bf16", "f16"}), WIDEST)
    return replace(MODEL, capabilities=replace(MODEL.capabilities, attention=kernels))


def emit_attention(fusion: Planned[AttentionRecord], machine: Machine) -> KernelPlan:
    """The plan of an `attention` fusion.

    Raises UnsupportedError for an element type no rule covers.
    """
    problem, *_ = take_apart(fusion.record, fusion.shapes)
    plan = AttentionPlan(problem, fusion.block, fusion.shapes, machine)
    return KernelPlan(_by_layout(plan))


def _by_layout(plan: AttentionPlan) -> tuple[Step, ...]:
    """The kernel that strides and sizes allow."""
    asked = plan.asked_by_chunks()
    if asked is None:
        return _by_warps(plan, by_chunks=False)
    return _where(asked, _by_rows(plan), _by_warps(plan, by_chunks=False))


def _by_rows(plan: AttentionPlan) -> tuple[Step, ...]:
    """The kernel for so many rows."""
    few = _by_warps(plan, by_chunks=True)
    if plan.machine.architecture not in WITH_WARPGROUPS:
        return few
    enough = Condition(plan.p.rows, ">", Expr.const(ROWS // 2))
    return _where([enough], (WarpgroupWriter(plan).launch(),), few)


def _by_warps(plan: AttentionPlan, *, by_chunks: bool) -> tuple[Step, ...]:
    return (WarpWriter(plan, TILE, by_chunks=by_chunks).launch(),)


def _where(
    asked: list[Condition], then: tuple[Step, ...], otherwise: tuple[Step, ...]
) -> tuple[Step, ...]:
    """`then` where all of `asked` holds."""
    if not asked:
        return then
    return (If(asked[0] if len(asked) == 1 else All(tuple(asked)), then, otherwise),)
