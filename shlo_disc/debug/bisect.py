"""Running the files of a dump one after the other: after which pass do results change?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.base.errors import ShapeMismatchError, ShloDiscError
from shlo_disc.base.records import dataclass
from shlo_disc.debug import reference
from shlo_disc.debug.arrays import as_complex, as_pairs
from shlo_disc.debug.compare import Difference, compare
from shlo_disc.debug.interpreter import Interpreter, NoReferenceError
from shlo_disc.debug.stage import Stage, load
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.executables.executable import Executable
from shlo_disc.ir.dialect import complex_results
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir, terminator

Array = npt.NDArray[Any]

ENGINES = ("compiled", "as-is", "reference")
"""How a file is run: after all passes that are left, after those only that lowering needs, or by
the StableHLO interpreter."""


@dataclass(frozen=True)
class Outcome:
    """What one file gave."""

    path: Path
    differences: tuple[Difference, ...]
    """Of each result from that of the first file that ran."""
    not_run: str = ""
    """Why it could not be run."""

    @property
    def is_equal(self) -> bool:
        """True if no result differs by more than the tolerance."""
        return all(difference.is_equal for difference in self.differences)


def bisect(
    files: Sequence[Path],
    arguments: Callable[[Executable], Sequence[Array]],
    *,
    engine: str = "as-is",
    rtol: float | None = None,
    limit_s: float = 60.0,
    told: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run every file on the same arguments and compare with the first one.

    `engine`: one of ENGINES. `rtol`: the relative error allowed, by default that of the type.
    `limit_s`: of the interpreter, for one file. `told` hears of each file at once. A file that
    cannot be run has the reason in its outcome.

    Raises what compiling the first file, for its arguments, raises, ShapeMismatchError, and
    ValueError if no file can be run.
    """
    given = [np.asarray(a) for a in arguments(load(files[0]).compiled())]
    first: list[Array] | None = None
    outcomes = []
    with Interpreter(limit_s) as interpreter:
        for path in files:
            try:
                results = results_of(load(path), given, engine, interpreter)
            except ShapeMismatchError:
                raise  # the arguments are wrong, not the file
            except (ShloDiscError, NoReferenceError) as error:
                outcome = Outcome(path, (), str(error).partition("\n")[0])
            else:
                first = first or results
                pairs = zip(results, first, strict=True)
                outcome = Outcome(path, tuple(compare(a, b, rtol) for a, b in pairs))
            outcomes.append(outcome)
            told(outcome)
    if first is None:
        raise ValueError(f"no file can be run: {outcomes[0].path.name}: {outcomes[0].not_run}")
    return outcomes


def first_change(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The first file whose results differ."""
    return next((outcome for outcome in outcomes if not outcome.is_equal), None)


def results_of(
    stage: Stage,
    arguments: Sequence[Array],
    engine: str,
    interpreter: Interpreter,
    likely: Mapping[str, Sequence[int]] | None = None,
) -> list[Array]:
    """The results of a module, by one of ENGINES.

    Raises what compiling and calling raise, and NoReferenceError.
    """
    if engine == "reference":
        return _by_reference(stage, arguments, interpreter)
    executable = stage.as_it_is() if engine == "as-is" else stage.compiled(likely)
    return executable.run_numpy([array.copy() for array in arguments])


def _by_reference(
    stage: Stage, arguments: Sequence[Array], interpreter: Interpreter
) -> list[Array]:
    main = main_function(stage.module)
    with stage.module.context, ir.Location.unknown():
        program = shape_program(main, analyze(stage.module))
        elements = [
            int(arguments[step.argument].reshape(-1)[step.axis])
            for step in program.steps
            if step.is_element
        ]
        sizes, _ = program.evaluate([a.shape for a in arguments], elements)
        block = main.regions[0].blocks[0]
        last = terminator(block)
        dtypes = [element_type(v.type.element_type).dtype for v in last.operands]
        given = complex_results(main)
        reference.of_module(stage.module, sizes)
        results = interpreter.run(stage.module, [as_pairs(a) for a in arguments], dtypes)
        return [as_complex(r) if k in given else r for k, r in enumerate(results)]
