"""Kind `attention` on NVIDIA's GPUs: both products and the softmax between them in one launch.

For 16-bit floats, and for f32 that the program lets round to tf32. Scores are in registers
(`online_softmax.py`). The planner makes no others (`passes/match_softmax.py`): they are two
products and the rows between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.cuda.attention_parts import MOST_ROWS, by_parts, bytes_of_parts
from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_tiles import tile_of
from shlo_disc.lower.cuda.attention_warpgroups import ROWS, WarpgroupWriter
from shlo_disc.lower.cuda.attention_warpgroups import WIDEST as WIDEST_OF_WARPGROUPS
from shlo_disc.lower.cuda.attention_warps import WarpWriter
from shlo_disc.lower.cuda.machine import WITH_WARPGROUPS
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.model import MODEL
from shlo_disc.lower.plan import All, Condition, If, KernelPlan, Step, Workspace
from shlo_disc.lower.schedule.attention import take_apart
from shlo_disc.passes.machine_model import AttentionKernels, MachineModel
from shlo_disc.passes.match_attention import AttentionRecord
from shlo_disc.passes.records import Planned

WIDEST = 256
"""The largest head size: results of 16 rows have 128 registers of each thread then."""

LEAST_KEYS = 256
"""Keys above which blocks share them: a block is through with fewer as soon as with a launch."""

_WITHOUT = ("sm_75",)
"""Architectures without `mma.sync` of 16-bit floats by 16 along K, or `cp.async`."""


def model(machine: Machine) -> MachineModel:
    """The planner's numbers for `machine`."""
    if machine.architecture in _WITHOUT:
        return MODEL
    kernels = AttentionKernels(frozenset({"bf16", "f16", "f32"}), WIDEST, frozenset({"f32"}))
    return replace(MODEL, capabilities=replace(MODEL.capabilities, attention=kernels))


def emit_attention(fusion: Planned[AttentionRecord], machine: Machine) -> KernelPlan:
    """The plan of an `attention` fusion.

    Raises UnsupportedError for an element type no rule covers.
    """
    first, *others = (
        AttentionPlan(problem, fusion.block, fusion.shapes, machine)
        for problem in take_apart(fusion.record, fusion.shapes)
    )
    asked = first.asked_by_chunks()
    slow = _by_warps(first, by_chunks=False)
    if asked is None:
        return KernelPlan(slow)
    if fusion.shapes.constraints.equal(first.p.rows, first.p.depth):
        # Few rows have few keys then.
        return KernelPlan(_where(asked, _many_rows(first), slow, first))
    few, workspaces = _few_rows(first, others)
    is_few = (
        Condition(first.p.rows, "<=", Expr.const(MOST_ROWS)),
        Condition(first.p.depth, ">", Expr.const(LEAST_KEYS)),
    )
    steps = _where(is_few, few, _many_rows(first), first)
    return KernelPlan(_where(asked, steps, slow, first), workspaces)


def _few_rows(
    plan: AttentionPlan, others: Sequence[AttentionPlan]
) -> tuple[tuple[Step, ...], tuple[Expr, ...]]:
    """The launches for few rows, and their workspaces.

    Positions are the rows, or heads that share keys where these are more: keys are read once for
    all rows of a batch entry.
    """
    sums, states = Workspace(0), Workspace(1)
    steps, sizes = by_parts(plan, sums, states), bytes_of_parts(plan)
    for heads in others[:1]:
        is_few = Condition(heads.p.rows, "<=", Expr.const(MOST_ROWS))
        more = Condition(heads.p.rows, ">=", plan.p.rows)
        many = _by_warps(heads, by_chunks=True)
        shared = _where([is_few], by_parts(heads, sums, states), many, heads)
        steps = _where([more], shared, steps, heads)
        a, b = (Expr.max(x, y) for x, y in zip(sizes, bytes_of_parts(heads), strict=True))
        sizes = a, b
    return steps, sizes


def _many_rows(plan: AttentionPlan) -> tuple[Step, ...]:
    few = _by_warps(plan, by_chunks=True)
    if plan.machine.architecture not in WITH_WARPGROUPS or plan.p.a.bytes != 2:
        return few
    if max(plan.heads.depth, plan.heads.width) > WIDEST_OF_WARPGROUPS:
        return few
    enough = Condition(plan.p.rows, ">", Expr.const(ROWS // 2))
    return _where([enough], (WarpgroupWriter(plan).launch(),), few, plan)


def _by_warps(plan: AttentionPlan, *, by_chunks: bool) -> tuple[Step, ...]:
    return (WarpWriter(plan, tile_of(plan.heads), by_chunks=by_chunks).launch(),)


def _where(
    asked: Sequence[Condition],
    then: tuple[Step, ...],
    otherwise: tuple[Step, ...],
    plan: AttentionPlan,
) -> tuple[Step, ...]:
    """`then` where all of `asked` holds, as far as that is not known."""
    open_ = []
    for condition in asked:
        known = plan.known(condition)
        if known is False:
            return otherwise
        if known is None:
            open_.append(condition)
    if not open_:
        return then
    return (If(open_[0] if len(open_) == 1 else All(tuple(open_)), then, otherwise),)
