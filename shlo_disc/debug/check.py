"""Every fusion of a program beside the StableHLO interpreter, at the inputs it has there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.records import dataclass
from shlo_disc.debug import reference
from shlo_disc.debug.compare import Difference, compare, tolerance
from shlo_disc.debug.interpreter import Interpreter, NoReferenceError
from shlo_disc.debug.stage import Stage
from shlo_disc.debug.walk import Ran, Walk
from shlo_disc.executables.executable import Executable
from shlo_disc.ir.mlir import ir, walk
from shlo_disc.ir.ops import names
from shlo_disc.passes.kinds import kind_of

Array = npt.NDArray[Any]

_EXACT = names(lambda row: row.exact_bits)
"""A fusion of such operations must equal."""


@dataclass(frozen=True)
class Checked:
    """One run of a fusion, held beside the reference."""

    number: int
    """Of the fusion in the program, from 0."""
    name: str
    kind: str
    where: tuple[str, ...]
    iterations: tuple[int, ...]
    differences: tuple[Difference, ...]
    """Of each result; none where there is no reference."""
    rtol: float
    no_reference: str = ""
    """Why the interpreter did not run it."""

    @property
    def is_equal(self) -> bool:
        """True if no result differs by more than the tolerance."""
        return all(difference.is_equal for difference in self.differences)


@dataclass
class Report:
    """What :func:`check` found."""

    checked: list[Checked] = field(default_factory=list)
    """Every run that was held beside the reference, in the order of the program."""
    runs: int = 0
    """Of fusions, all of them."""
    whole: tuple[Difference, ...] = ()
    """The results of the program beside those of its fusions run one by one: bits must agree."""

    @property
    def first_wrong(self) -> Checked | None:
        """The first run that differs: what follows got wrong inputs from it."""
        return next((c for c in self.checked if not c.is_equal), None)

    @property
    def is_equal(self) -> bool:
        """True if nothing differs."""
        return self.first_wrong is None and all(d.is_equal for d in self.whole)


def check(
    stage: Stage,
    arguments: Callable[[Executable], Sequence[Array]],
    *,
    iterations: int = 2,
    rtol: float | None = None,
    limit_s: float = 60.0,
    told: Callable[[Checked], None] = lambda _: None,
) -> Report:
    """Run the program of `stage` fusion by fusion, each beside the reference at its own inputs.

    `iterations`: how many of each loop are held beside the reference; all of them run. `rtol`: the
    relative error allowed, by default that of the type, and 0 where IEEE 754 defines every bit.
    `limit_s`: of the reference, for one fusion. `told` hears of each run at once.

    Raises what compiling and calling raise, and KernelFault where a kernel breaks its contract.
    """
    executable = stage.compiled()
    given = [np.asarray(array) for array in arguments(executable)]
    program = executable.run_numpy([array.copy() for array in given])
    report = Report()
    walker = Walk(executable, stage.module)
    numbers = {use: number for number, use in enumerate(map(id, executable.host.uses))}

    with Interpreter(limit_s) as interpreter, stage.module.context:

        def ran(run: Ran) -> None:
            report.runs += 1
            if all(k < iterations for k in run.iterations):
                found = _beside(run, numbers[id(run.use)], walker, interpreter, rtol)
                report.checked.append(found)
                told(found)

        alone = walker.run(given, ran)
    report.whole = tuple(compare(a, b, rtol=0.0) for a, b in zip(program, alone, strict=True))
    return report


def _beside(
    run: Ran, number: int, walker: Walk, interpreter: Interpreter, rtol: float | None
) -> Checked:
    dtypes = [array.dtype for array in run.outputs]
    allowed = rtol
    if allowed is None:
        allowed = 0.0 if _is_exact(run.fusion) else max(map(tolerance, dtypes), default=0.0)

    def checked(differences: Sequence[Difference], no_reference: str = "") -> Checked:
        return Checked(
            number,
            run.use.name,
            kind_of(run.fusion).name,
            run.use.where,
            run.iterations,
            tuple(differences),
            allowed,
            no_reference,
        )

    module = reference.of_fusion(run.fusion, walker.shapes, walker.sizes)
    try:
        wanted = interpreter.run(module, run.inputs, dtypes)
    except NoReferenceError as error:
        return checked((), str(error))
    differences = [
        compare(got, want, rtol if rtol is not None or allowed else 0.0)
        for got, want in zip(run.outputs, wanted, strict=True)
    ]
    return checked(differences)


def _is_exact(fusion: ir.Operation) -> bool:
    names: set[str] = set()
    walk(fusion, lambda op: names.add(op.name))
    return names - {"disc.fusion"} <= _EXACT
