"""Kind `conv`: as in `lower/products/conv.py`, by the dense kernel."""

from __future__ import annotations

from shlo_disc.lower.cpu.dense import Planner
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.plan import KernelPlan
from shlo_disc.lower.products import conv
from shlo_disc.passes.match_dense import ConvRecord
from shlo_disc.passes.records import Planned


def emit_conv(fusion: Planned[ConvRecord], machine: Machine) -> KernelPlan:
    """The plan of a `conv` fusion.

    Raises UnsupportedError for an element type that is not compiled.
    """
    return conv.emit_conv(fusion, machine, Planner)
