"""Running a planned program one fusion after the other, each with memory of its own.

Every value of the program is an array here, inside control flow too. What the program does
differently is where values lie (`plan-buffers`) and the host program that goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.records import dataclass
from shlo_disc.debug.arrays import as_complex, as_pairs
from shlo_disc.debug.launch import run_plan
from shlo_disc.debug.memory import FILL
from shlo_disc.driver.replan import fusions_of
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.executables.executable import Executable
from shlo_disc.ir.dialect import complex_results
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.constants import constant_bytes
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.record import KernelUse
from shlo_disc.lower.host.scalars import emit_scalars
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.plan import SIGNATURE, Input, Kernel, KernelPlan, Launch, Output
from shlo_disc.lower.target import Function
from shlo_disc.passes.kinds import kind_of
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.records import planned

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Ran:
    """One run of a fusion."""

    fusion: ir.Operation
    use: KernelUse
    iterations: tuple[int, ...]
    """Of the loops around it, outermost first, counted from 0."""
    inputs: list[Array]
    outputs: list[Array]


class Walk:
    """Runs the program of an executable on arrays.

    `module` is the one the executable was compiled from, planned by now. `seed` decides the order
    of independent tasks.
    """

    def __init__(self, executable: Executable, module: ir.Module, seed: int = 0) -> None:
        self.executable, self.seed = executable, seed
        self._main = main_function(module)
        self.shapes: ShapeAnalysis = analyze(module)
        self.sizes: dict[str, int] = {}
        """The values of all symbols in the run."""
        self._uses: dict[ir.Operation, KernelUse] = dict(
            zip(fusions_of(self._main), executable.host.uses, strict=True)
        )
        self._plans: dict[ir.Operation, KernelPlan] = {}
        self._values: dict[ir.Value, Array] = {}
        self._iterations: tuple[int, ...] = ()

    def run(self, arguments: Sequence[Array], ran: Callable[[Ran], None]) -> list[Array]:
        """The results of `main`; `ran` is told of each fusion that has run.

        Raises ShapeMismatchError as a call does, and KernelFault.
        """
        program = self.executable.program
        elements = [
            int(arguments[step.argument].reshape(-1)[step.axis])
            for step in program.steps
            if step.is_element
        ]
        self.sizes, _ = program.evaluate([a.shape for a in arguments], elements)
        block = self._main.regions[0].blocks[0]
        self._ran = ran
        self._values = dict(zip(block.arguments, map(as_pairs, arguments), strict=True))
        given = complex_results(self._main)
        return [as_complex(r) if k in given else r for k, r in enumerate(self._block(block))]

    def _block(self, block: ir.Block) -> list[Array]:
        """The operands of the terminator."""
        for view in block.operations:
            op = view.operation
            if op.name.endswith(".return"):
                return [self._values[value] for value in op.operands]
            if op.name in _RULES:
                results = _RULES[op.name](self, op)
                self._values.update(zip(op.results, results, strict=True))
        raise AssertionError("a block ends in a return")

    def _shape(self, value: ir.Value) -> tuple[int, ...]:
        return tuple(size.evaluate(self.sizes) for size in self.shapes.shape(value))

    def _kinds(self, op: ir.Operation) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each result."""
        return [(self._shape(result), _dtype(result)) for result in op.results]

    def _fusion(self, op: ir.Operation) -> list[Array]:
        inputs = [self._values[value] for value in op.operands]
        plan = self._plans.get(op)
        if plan is None:
            plan = self._plans[op] = self._plan(op)
        outputs = run_plan(plan, self.sizes, inputs, self._kinds(op), self._code, self.seed)
        self._ran(Ran(op, self._uses[op], self._iterations, inputs, outputs))
        return outputs

    def _plan(self, op: ir.Operation) -> KernelPlan:
        """The plan the program has; where the buffers make it needless, the emitter's."""
        target, kind = self.executable.target, kind_of(op)
        if kind.on_host:
            return _scalars(op, self.executable.program.symbol_names, target.memory)
        if "disc.stored" in op.attributes:
            return target.emitters[kind.name](planned(op, self.shapes), target.machine)
        return self._uses[op].plan

    def _code(self, texts: Sequence[str]) -> Sequence[Function]:
        with self.executable.target.generator() as builder:
            return builder.functions(texts)

    def _reshape(self, op: ir.Operation) -> list[Array]:
        return [self._values[op.operands[0]].reshape(self._shape(op.results[0]))]

    def _constant(self, op: ir.Operation) -> list[Array]:
        ((shape, dtype),) = self._kinds(op)
        return [constant_bytes(op).view(dtype).reshape(shape)]

    def _empty(self, op: ir.Operation) -> list[Array]:
        """Bytes that nobody may depend on; a boolean must be 0 or 1 in memory."""
        ((shape, dtype),) = self._kinds(op)
        fill = 1 if dtype == np.bool_ else FILL
        count = int(np.prod(shape, dtype=np.int64))
        return [np.full(count * dtype.itemsize, fill, np.uint8).view(dtype).reshape(shape)]

    def _while(self, op: ir.Operation) -> list[Array]:
        condition, body = (region.blocks[0] for region in op.regions)
        carried = [self._values[value] for value in op.operands]
        outer, count = self._iterations, 0
        while True:
            self._iterations = (*outer, count)
            self._values.update(zip(condition.arguments, carried, strict=True))
            (goes_on,) = self._block(condition)
            if not goes_on:
                self._iterations = outer
                return carried
            self._values.update(zip(body.arguments, carried, strict=True))
            carried = self._block(body)
            count += 1

    def _case(self, op: ir.Operation) -> list[Array]:
        index = int(self._values[op.operands[0]])
        if op.name == "stablehlo.if":
            index = 1 - index
        last = len(op.regions) - 1
        branch = op.regions[index if 0 <= index < last else last]
        return self._block(branch.blocks[0])


_RULES: dict[str, Callable[[Walk, ir.Operation], list[Array]]] = {
    "disc.empty": Walk._empty,
    "disc.fusion": Walk._fusion,
    "stablehlo.case": Walk._case,
    "stablehlo.constant": Walk._constant,
    "stablehlo.if": Walk._case,
    "stablehlo.while": Walk._while,
    **dict.fromkeys(RESHAPES, Walk._reshape),
}
"""All others (`disc.shape`, `disc.guard`) compute nothing."""


def _dtype(value: ir.Value) -> np.dtype[Any]:
    return element_type(ir.RankedTensorType(value.type).element_type).dtype


def _scalars(op: ir.Operation, symbols: Sequence[str], memory: HostMemory) -> KernelPlan:
    """What the host program computes for a fusion of kind `host`, as a kernel of one task."""
    writer = HostWriter("params", symbols)
    values = [*op.operands, *op.results]
    pointers = {
        value: writer.pointer(writer.argument("args"), index) for index, value in enumerate(values)
    }
    emit_scalars(writer, memory, op, pointers)
    text = writer.function(SIGNATURE)
    inputs = tuple(Input(k) for k in range(len(op.operands)))
    outputs = tuple(Output(k) for k in range(len(op.results)))
    params = tuple(Expr.symbol(name) for name in symbols)
    one = Expr.const(1)
    return KernelPlan((Launch(Kernel("host", text), (*inputs, *outputs), params, one, one),))
