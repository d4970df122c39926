"""What passes that rewrite a module ask of it, found once for each generation of the module."""

from __future__ import annotations

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.ir.mlir import ir, walk

_SILENT = "a pass has changed operations and has not said so"


class KnownShapes:
    """What :func:`analyze` finds of a module; made when asked for, kept until the module changes.

    Whoever makes, moves or erases operations calls `changed`, or says of which value each new one
    is a copy. Attributes that planning writes change no shape. With `SHLO_DISC_SPEC=1` what is kept
    is compared with a new analysis.
    """

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._known: ShapeAnalysis | None = None
        self._names: set[str] = set()

    @property
    def names(self) -> set[str]:
        """The names of all operations, but of `disc` ones that planning makes. Some may be gone."""
        if not self._names:
            self._names = self._names_now()
        elif flags.spec_checks():
            new = self._names_now() - self._names
            if any(not name.startswith("disc.") for name in new):
                raise InternalError(_SILENT)
        return self._names

    def _names_now(self) -> set[str]:
        found: set[str] = set()
        walk(self._module, lambda op: found.add(op.name))
        return found

    def now(self) -> ShapeAnalysis:
        """The analysis of the module as it is.

        Raises what :func:`analyze` raises.
        """
        if self._known is None:
            self._known = analyze(self._module)
        elif flags.spec_checks() and not self._known.agrees_with(analyze(self._module)):
            raise InternalError(_SILENT)
        return self._known

    def changed(self) -> None:
        """The module has other operations now than those analysed."""
        self._known, self._names = None, set()
