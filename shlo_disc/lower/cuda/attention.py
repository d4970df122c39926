"""Kind `attention` on NVIDIA's GPUs: both products and the softmax between them in one launch.

For 16-bit floats, with scores in registers (`online_softmax.py`). The planner makes no others
(`passes/match_softmax.py`): they are two products and the rows between them.
"""

from __future__ import annotations

from dataclasses import replace

from shlo_disc.lower.cuda.attention_plan import AttentionPlan
from shlo_disc.lower.cuda.attention_writer import TILE, WarpWriter
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.gpu.model import MODEL
from shlo_disc.lower.plan import All, If, KernelPlan, Step
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
    asked = plan.asked_by_chunks()

    def launch(by_chunks: bool) -> tuple[Step, ...]:
        return (WarpWriter(plan, TILE, by_chunks=by_chunks).launch(),)

    if asked is None:
        return launch(False)
    if not asked:
        return launch(True)
    condition = asked[0] if len(asked) == 1 else All(tuple(asked))
    return (If(condition, launch(True), launch(False)),)
