"""When no kernel can be written for a fusion: it is planned again as smaller ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from shlo_disc.base import flags
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.later import imported_later
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.lower.host.record import HostProgram, Unfused
from shlo_disc.lower.plan import kernels_of
from shlo_disc.lower.refused import KernelsRefused, Refused, lines_of, raise_told, reason_of
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.machine_model import MachineModel
from shlo_disc.passes.pipeline import placing
from shlo_disc.passes.place_scalars import forget_scalars
from shlo_disc.passes.plan_buffers import forget_buffers

split_fusion = imported_later("shlo_disc.passes.split_fusion", "split_fusion")

_log = logging.getLogger("shlo_disc")

_ORIGIN = "origin"
"""On a part of a fusion: its number in `Replanning`."""


class Replanning:
    """Splits the fusions of one program and keeps what was split."""

    def __init__(
        self,
        module: ir.Module,
        main: ir.Operation,
        machine: MachineModel,
        log: PassLog,
    ) -> None:
        """`log`: of this compilation."""
        self._log = log
        self._module, self._main, self._machine = module, main, machine
        self._origins: list[tuple[str, str, tuple[str, ...], str]] = []

    def split(self, refused: Refused, shapes: KnownShapes) -> None:
        """Smaller fusions in the place of each refused one, and buffers for them.

        Raises the error of the first one where the flag `SHLO_DISC_SPLIT` says so, else of one that
        computes one op only.
        """
        known = shapes.now()
        for fusion, error in refused.fusions:
            if not flags.split():
                raise_told(fusion, error)
            # An op that is not supported shows at once which one it is.
            number = self._number(fusion, error)
            parts = split_fusion(
                fusion, known, self._machine, singly=isinstance(error, UnsupportedError)
            )
            if not parts:
                raise_told(fusion, error)
            i64 = ir.IntegerType.get_signless(64)
            for part in parts:
                part.attributes[_ORIGIN] = ir.IntegerAttr.get(i64, number)
                part.attributes["why"] = ir.ArrayAttr.get([*self._why(part, number)])
        shapes.changed()
        forget_buffers(self._module)
        forget_scalars(self._module)
        Pipeline(placing(self._machine), to_the_end=True).run(self._module, shapes, self._log)

    def done(self, name: str) -> tuple[Unfused, ...]:
        """What was split in the end; logged, a line for each that differs."""
        counts = [0] * len(self._origins)
        for fusion in fusions_of(self._main):
            if _ORIGIN in fusion.attributes:
                counts[ir.IntegerAttr(fusion.attributes[_ORIGIN]).value] += 1
        found = [Unfused(*what, n) for what, n in zip(self._origins, counts, strict=True)]
        for text in dict.fromkeys(map(str, found)):
            _log.warning("%s: a mistake in shlo_disc costs speed, please report it: %s", name, text)
        return tuple(found)

    def _number(self, fusion: ir.Operation, error: Exception) -> int:
        if _ORIGIN in fusion.attributes:
            return int(ir.IntegerAttr(fusion.attributes[_ORIGIN]).value)
        name, kind = (str(ir.StringAttr(fusion.attributes[a]).value) for a in ("name", "kind"))
        self._origins.append((name, kind, lines_of(fusion), reason_of(error)))
        return len(self._origins) - 1

    def _why(self, part: ir.Operation, number: int) -> Iterator[ir.Attribute]:
        if "why" in part.attributes:
            yield from ir.ArrayAttr(part.attributes["why"])
        name, kind, _, reason = self._origins[number]
        yield ir.StringAttr.get(f"part of {name} of kind {kind}, which has no kernel: {reason}")


def refused_by(host: HostProgram, main: ir.Operation, refused: KernelsRefused) -> Refused:
    """The fusions whose kernels did not compile."""
    found: list[tuple[ir.Operation, Exception]] = []
    for fusion, use in zip(fusions_of(main), host.uses, strict=True):
        texts = (kernel.text for kernel in kernels_of(use.plan.steps))
        error = next((refused.errors[t] for t in texts if t in refused.errors), None)
        if error is not None:
            found.append((fusion, error))
    if not found:
        raise refused
    return Refused(found)


def fusions_of(op: ir.Operation) -> Sequence[ir.Operation]:
    """Every fusion below `op`, in the order of the host program."""
    found: list[ir.Operation] = []
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                inner = view.operation
                found += [inner] if inner.name == "disc.fusion" else fusions_of(inner)
    return found
