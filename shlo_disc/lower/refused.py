"""Fusions no kernel could be written for: how that is told, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from shlo_disc.base.errors import InternalError, ShloDiscError
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir


class Refused(Exception):
    """No kernels could be written for these fusions."""

    def __init__(self, fusions: Sequence[tuple[ir.Operation, Exception]]) -> None:
        super().__init__(f"{len(fusions)} fusions")
        self.fusions = list(fusions)


class KernelsRefused(InternalError):
    """Kernel texts, each with the error of the code generator."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        first = next(iter(errors.values()))
        super().__init__(f"a kernel does not compile: {type(first).__name__}: {first}")
        self.errors = errors


def lines_of(fusion: ir.Operation) -> tuple[str, ...]:
    """The source lines of what a fusion computes, without repetition.

    Those of constants only where there is nothing else: equal constants are one, of any line.
    """
    ops = [view.operation for view in fusion.regions[0].blocks[0].operations]
    ops = [op for op in ops if not op.name.startswith("disc.")]
    computed = [op for op in ops if op.name != "stablehlo.constant"]
    lines = dict.fromkeys(map(source_line, computed or ops))
    lines.pop("unknown location", None)
    return tuple(lines) or (source_line(fusion),)


def raise_told(fusion: ir.Operation, error: Exception) -> NoReturn:
    """Raise `error` itself where it is one of ours, else InternalError with the fusion's name."""
    if isinstance(error, ShloDiscError):
        raise error
    kind = ir.StringAttr(fusion.attributes["kind"]).value
    name = ir.StringAttr(fusion.attributes["name"]).value
    raise InternalError(
        f"no kernel could be written for {name} of kind {kind} (at {lines_of(fusion)[0]}): "
        f"{reason_of(error)}\nThis is a mistake in shlo_disc."
    ) from error


def reason_of(error: Exception) -> str:
    """The first line of an error, shortened, with its class where that tells more."""
    text = str(error).strip().partition("\n")[0][:200]
    return text if isinstance(error, ShloDiscError) else f"{type(error).__name__}: {text}"
