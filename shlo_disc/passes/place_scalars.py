"""place-scalars: the scalars that the host program asks for are at home in its own memory.

    while(%i = %zero, %x = %a) {              while(%i = %zero, %x = %a) {disc.on_host = [0]}
      %p = "disc.fusion"(%i) {host}             %p = "disc.fusion"(%i) {host, disc.on_host = [0]}
      return %p                                 return %p
    } do {                            ==>     } do {
      %y = "disc.fusion"(%x, %i) {loop}         %y = "disc.fusion"(%x, %i) {loop,
                                                                            disc.by_value = [1]}
      %j = "disc.fusion"(%i) {host}             %j = "disc.fusion"(%i) {host, disc.on_host = [0]}
      return %j, %y }                           return %j, %y }

Why     The host program runs ahead of a GPU. It waits where it reads memory of the target, so
        counters and conditions must not go through that memory.
Needs   `plan-fusion`, whose kind `host` is integer arithmetic on scalars.   Keeps  every result.
        Where memory of the target is the host's own, nothing changes, unless `disc.far_memory`
        on `main` says that it is not.
Cost    O(values + uses x depth of control flow).

A value is *asked for* if it is a condition, or if a condition is computed from it in integers.

A value is at home on the host if it is asked for, or if all its sources are. Sources are operands
of `host` fusions and of reshapes, what branches give, and values before and after a loop's step.

Results of kernels and arguments of `main` are on the target. One that is asked for is read once,
where the block that defines it first needs it: the fusion `read`, for which the program waits.

A `host` fusion that would wait for data, and that nobody asks for, becomes a kernel (kind `loop`).
What a kernel computes in integers of values on the host, and somebody asks for, becomes a `host`
fusion, too.

Kernels get a value of the host by value. It is written to the target once (the fusion `write`) if
it is a result of `main`, or if the runtime is given its address. A constant is on both sides.
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.later import imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import ir, walk
from shlo_disc.passes.base import Pass
from shlo_disc.passes.homes import TRANSFER, forget_homes, has_far_memory
from shlo_disc.passes.machine_model import MachineModel

place = imported_later("shlo_disc.passes.scalar_homes", "place")


@dataclass(frozen=True)
class PlaceScalars(Pass):
    """See the module."""

    name: ClassVar[str] = "place-scalars"
    machine: MachineModel
    """Says whose memory the target's is."""

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Give the scalars of `main` their homes; returns how many values are on the host."""
        shared = self.machine.capabilities.shares_memory
        with module.context:
            functions = [
                op
                for view in module.body.operations
                if (op := view.operation).name == "func.func" and (has_far_memory(op) or not shared)
            ]
            if functions:
                shapes.changed()  # values are moved even where none has its home on the host
            return sum(place(op) for op in functions)


def forget_scalars(module: ir.Module) -> None:
    """Remove what this pass wrote: the module is to be planned again."""
    transfers: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        forget_homes(op)
        if TRANSFER in op.attributes:
            transfers.append(op)

    walk(module, visit)
    for op in transfers:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
