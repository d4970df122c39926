"""A pass of `ingest`, and what is known of the program while these passes run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from shlo_disc.base.records import dataclass
from shlo_disc.ingest.check import functions_of
from shlo_disc.ingest.present import calls_of, target_of
from shlo_disc.ingest.sizes import Shapes
from shlo_disc.ir import pipeline
from shlo_disc.ir.mlir import ir, walk
from shlo_disc.ir.ops import names

COLLECTED = ("stablehlo.composite", "stablehlo.constant", "stablehlo.real_dynamic_slice")
"""Ops that passes before the first inlining rewrite: one walk finds those of all."""

_MAKERS = names(lambda row: row.makes_types)


@dataclass
class Known:
    """A program on its way to normal form: what the caller says of it, and what it has."""

    module: ir.Module
    platform: str
    """Of an export for several platforms, the one to compile."""
    platforms: Sequence[str]
    """Those of the export, in order."""
    shapes: Shapes | None
    """Sizes of the array arguments."""
    constraints: Sequence[str]
    """Relations of the sizes."""
    own: Shapes | None
    """`shapes` in the symbols of the module."""
    sizes: Mapping[str, str]
    """Each symbol of the module in those of `shapes`."""
    seen: Mapping[str, int] | None
    """See `dynamic/seen.py`."""
    names: Sequence[str | None] = ()
    """Paths of the array arguments."""
    is_bounded: bool = False
    """Types had bounds, which are attributes of the arguments."""
    extern: bool = False
    """FFI targets may be called that are not registered in this process."""
    _present: set[str] = field(default_factory=set)
    _collected: dict[str, list[ir.Operation]] = field(default_factory=dict)
    _kinds: set[ir.Type] = field(default_factory=set)

    def changed(self) -> None:
        """The module may have operations of other names now."""
        self._present, self._collected = set(), {}

    @property
    def present(self) -> set[str]:
        """The names of all operations, and :func:`calls_of` custom calls.

        It may have some that are gone.
        """
        if not self._present:
            walk(self.module, self.note)
        return self._present

    def note(self, op: ir.Operation) -> None:
        """Count `op` among what the module has."""
        self._present.add(op.name)
        if op.name == "stablehlo.custom_call":
            self._present |= calls_of(target_of(op))
        if op.name in COLLECTED:
            self._collected.setdefault(op.name, []).append(op)

    def collected(self, name: str) -> list[ir.Operation]:
        """The operations of a name of :data:`COLLECTED`."""
        return self._collected.get(name, []) if self.present else []

    @property
    def kinds(self) -> set[ir.Type]:
        """The types of arguments and of values that operations make anew, when first asked.

        A value has a quantized or complex type only if one of these has.
        """
        if not self._kinds:
            self._kinds = {a.type for f in functions_of(self.module) for a in f.arguments}
            walk(self.module, self._note_kind)
        return self._kinds

    def _note_kind(self, op: ir.Operation) -> None:
        if op.name in _MAKERS:
            self._kinds.update(result.type for result in op.results)


@dataclass(frozen=True)
class Rewrite(pipeline.Pass[Known]):
    """A pass that is one function."""

    name: str  # type: ignore[misc]
    rule: Callable[[ir.Module, Known], int | None]
    """It returns how many ops changed; None if it does not count."""
    when: frozenset[str] | Callable[[Known], bool] | None = None
    """Names of ops of which the module has one, or what must hold; None: always."""
    keeps_known: bool = True  # type: ignore[misc]
    """It makes no op of another name that a later pass asks for."""

    raises: tuple[type[Exception], ...] = ()  # type: ignore[misc]

    def is_needed(self, known: Known) -> bool:
        """Whether `when` holds."""
        if isinstance(self.when, frozenset):
            return not self.when.isdisjoint(known.present)
        return self.when is None or self.when(known)

    def run(self, module: ir.Module, known: Known) -> int:
        """Apply the rule; 1 for one that does not count."""
        changed = self.rule(module, known)
        return 1 if changed is None else int(changed)


class Ingestion(pipeline.Pipeline[Known]):
    """Passes that make a program one module in normal form."""

    stage = "ingest-"
    reproduce = "`disc-opt --pass-pipeline=ingest FILE`"
