"""Attention of JAX functions as plans of a GPU: the one fusion that a function becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export

from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.target import parse
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP, planning
from shlo_disc.passes.records import planned
from tests.gpu.run import MACHINE, run_gpu
from tests.lower.helpers import Emitted


@dataclass(frozen=True)
class Planned:
    """The plan of a fusion, and which arguments of the function its operands are."""

    emitted: Emitted
    order: tuple[int, ...]
    machine: Machine

    def run(self, arrays: Sequence[np.ndarray], seed: int = 0) -> np.ndarray:
        """The result for the arguments of the function."""
        inputs = [arrays[k] for k in self.order]
        (found,) = run_gpu(self.emitted, inputs, seed=seed, machine=self.machine)
        return found


def fusions_of(
    function: Callable[..., Any], arguments: Sequence[tuple[str, str]], machine: Machine = MACHINE
) -> ir.Module:
    """The module of `function`, its fusions planned for `machine`.

    `arguments`: shape, in symbols, and dtype of each.
    """
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype)
        for shape, dtype in arguments
    ]
    module = ingest(export.export(jax.jit(function))(*specs), new_context())
    with module.context, ir.Location.unknown():
        Pipeline([*CLEANUP, *planning(parse(machine.name).model)]).run(module)
    return module


def plan_attention(
    function: Callable[..., Any], arguments: Sequence[tuple[str, str]], machine: Machine = MACHINE
) -> Planned:
    """The plan of `function`, which must become one attention and nothing else."""
    module = fusions_of(function, arguments, machine)
    with module.context, ir.Location.unknown():
        shapes = analyze(module)
        fusions = ops_of(module, "disc.fusion")
        kinds = [ir.StringAttr(fusion.attributes["kind"]).value for fusion in fusions]
        assert kinds == ["attention"], module
        (fusion,) = fusions
        plan = parse(machine.name).emitters["attention"](planned(fusion, shapes), machine)
        order = tuple(_argument(value) for value in fusion.operands)
        results = [
            (tuple(shapes.shape(value)), str(ir.ShapedType(value.type).element_type))
            for value in fusion.results
        ]
        symbols = [tuple(shapes.shape(value)) for value in fusion.operands]
        return Planned(Emitted(plan, results, symbols), order, machine)


def _argument(value: ir.Value) -> int:
    """The argument of the function that `value` is, perhaps in another shape."""
    while not isinstance(value.owner, ir.Block):
        value = value.owner.operands[0]
    return int(ir.BlockArgument(value).arg_number)
