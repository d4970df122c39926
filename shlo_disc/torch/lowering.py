"""From the torch dialect to StableHLO and CHLO, and the bodies of carried ops.

torch-mlir's own pipeline expands CHLO (a gelu becomes a polynomial) and checks a contract that has
no CHLO and no calls. So it is taken up to that check, without the expansion.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.mlir import PassManager, ir, ops_of
from shlo_disc.torch.bodies import write_body
from shlo_disc.torch.importer import Carried

__all__ = ["lower"]

_SIMPLIFY = "builtin.module(torchdynamo-export-to-torch-backend-pipeline{extra-library=})"
_BACKEND = "builtin.module(torch-backend-to-stablehlo-backend-pipeline{allow-non-finites=true})"


def lower(module: ir.Module, carried: Sequence[Carried]) -> None:
    """Rewrite `module`, in the torch dialect, into StableHLO, CHLO and arithmetic of sizes.

    Raises UnsupportedError with the op and its source line where torch-mlir has no lowering.
    """
    with module.context:
        _run(module, _SIMPLIFY)
        for op in ops_of(module, "torch.runtime.assert"):
            op.erase()  # the front end states them as constraints
        _run(module, _pipeline())
        for one in carried:
            write_body(module, one)


@functools.cache
def _cut(printed: str) -> str:
    """The pipeline `printed` without the expansion of CHLO and the check at its end."""
    text = printed.replace("func.func(chlo-legalize-to-stablehlo),", "")
    head, found, _ = text.partition(",torch-verify-stablehlo-backend-contract")
    if not found:
        raise AssertionError(f"torch-mlir has another pipeline than was tested: {printed}")
    return f"{head})"


def _pipeline() -> str:
    return _cut(str(PassManager.parse(_BACKEND)))


def _run(module: ir.Module, pipeline: str) -> None:
    """Raises UnsupportedError for what a pass reports."""
    try:
        PassManager.parse(pipeline).run(module.operation)
    except ir.MLIRError as error:
        raise UnsupportedError(_reported(error)) from None


_ILLEGAL = re.compile(
    r"failed to legalize (?:unresolved materialization|operation '([\w.]+)')"
    r'(?:.*?<\{name = "([\w.]+)"\}>)?',
    re.DOTALL,
)


def _reported(error: ir.MLIRError) -> str:
    """What was reported, each with its place, without the IR that torch-mlir prints behind it."""
    lines = []
    for diagnostic in error.error_diagnostics:
        said = diagnostic.message
        if (found := _ILLEGAL.match(said)) and (name := found[2] or found[1]):
            said = f"{name.removeprefix('torch.')} has no lowering for these types"
        lines.append(f"{source_line(diagnostic.location)}: {said}")
    return "\n".join(dict.fromkeys(lines))
