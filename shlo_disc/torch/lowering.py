"""From the torch dialect to StableHLO and CHLO, and the bodies of carried ops.

torch-mlir's own pipeline expands CHLO (a gelu becomes a polynomial) and checks a contract that has
no CHLO and no calls. So it is taken up to that check, without the expansion.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import PassManager, ir, ops_of, walk
from shlo_disc.torch.bodies import write_body
from shlo_disc.torch.importer import Carried

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
        raise UnsupportedError(_reported(error, module)) from None
    except MemoryError as error:  # some lowerings take a dynamic size for a number
        raise UnsupportedError(f"torch-mlir cannot lower the program: {error}") from None


_ILLEGAL = re.compile(
    r"failed to legalize (?:unresolved materialization|operation '([\w.]+)')"
    r'(?:.*?<\{name = "([\w.]+)"\}>)?',
    re.DOTALL,
)


def _reported(error: ir.MLIRError, module: ir.Module) -> str:
    """What was reported, each with its place, without the IR that torch-mlir prints behind it.

    A pass reports constants too, the operands of an op that it left as it was. The op is told.
    """
    lines = []
    for diagnostic in error.error_diagnostics:
        said, where = diagnostic.message, source_line(diagnostic.location)
        if (found := _ILLEGAL.match(said)) and (name := found[2] or found[1]):
            name = name.removeprefix("torch.")
            if _is_operand(name):
                users = _users(module, diagnostic.location)
                lines += [
                    f"{source_line(op.location)}: {op.name.removeprefix('torch.')} has no lowering "
                    "for these types"
                    for op in users
                ]
                if users:
                    continue
            said = f"{name} has no lowering for these types"
        lines.append(f"{where}: {said}")
    return "\n".join(dict.fromkeys(lines))


_OPERANDS = ("constant.", "prim.ListConstruct", "vtensor.literal")
"""Ops that never fail by themselves."""


def _users(module: ir.Module, location: ir.Location) -> list[ir.Operation]:
    """The ops of PyTorch left in `module` that use constants of `location`; all without such."""
    left: list[ir.Operation] = []
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        if not op.name.startswith("torch.") or _is_operand(op.name) or op.name in _SHELLS:
            return
        left.append(op)
        if any(location in _locations(operand) for operand in op.operands):
            found.append(op)

    walk(module, visit)
    return found or left


_SHELLS = frozenset({"torch.runtime.assert", "torch_c.from_builtin_tensor"})


def _is_operand(name: str) -> bool:
    return name.removeprefix("torch.").startswith(_OPERANDS)


def _locations(value: ir.Value) -> list[ir.Location]:
    """Of the constant that `value` is, or of a list and the constants in it."""
    owner = value.owner
    if isinstance(owner, ir.Block) or not _is_operand(owner.name):
        return []
    own = [owner.location]
    return own + [place for operand in owner.operands for place in _locations(operand)]
