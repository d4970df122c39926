"""Reading a module of any stage, and which passes its compilation still has.

A dump says so itself (`disc.passes_left`, written by `SHLO_DISC_DUMP`). For any other module the IR
decides: a module with an arena is planned, one with fusions needs buffers, and all others get every
pass. That is safe, since passes accept what later ones made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shlo_disc.base import flags
from shlo_disc.base.records import dataclass
from shlo_disc.driver.stages import compile_module, main_function
from shlo_disc.executables.executable import Executable
from shlo_disc.ingest import ingest
from shlo_disc.ingest.source import read
from shlo_disc.ir.dump import PASSES_LEFT
from shlo_disc.ir.mlir import ir, new_context, walk
from shlo_disc.lower.target import parse
from shlo_disc.passes.base import Pass, Pipeline
from shlo_disc.passes.table import NEEDED, pipeline_of


@dataclass(frozen=True)
class Stage:
    """A module somewhere between `ingest` and lowering."""

    module: ir.Module
    left: tuple[Pass, ...]
    """The passes it still needs, in order."""

    def advance(self, name: str) -> Stage:
        """Run the passes up to the first one called `name`; the module is rewritten in place.

        Raises ValueError, with the names there are, if no such pass is left.
        """
        names = [p.name for p in self.left]
        if name not in names:
            known = ", ".join(names) or "none"
            raise ValueError(f"the pass {name!r} is not left for this module; left: {known}")
        count = names.index(name) + 1
        with self.module.context, ir.Location.unknown():
            Pipeline(self.left[:count]).run(self.module)
        return Stage(self.module, self.left[count:])

    def compiled(self, likely: Mapping[str, Sequence[int]] | None = None) -> Executable:
        """The executable, after all passes left; the module is rewritten in place."""
        return self._compiled(self.left, likely)

    def as_it_is(self) -> Executable:
        """The executable with no pass but those that lowering needs.

        Operations that are not in a fusion yet get a kernel each. The module is rewritten in place.
        """
        with flags.overridden(fusion=0):
            return self._compiled([p for p in self.left if p.name in NEEDED], None)

    def _compiled(
        self, passes: Sequence[Pass], likely: Mapping[str, Sequence[int]] | None
    ) -> Executable:
        donated = _donated(main_function(self.module))
        return compile_module(self.module, passes=passes, likely=likely, donated=donated)


def load(path: Path) -> Stage:
    """The module in a file: one of our dumps, or a program in any form that `ingest` takes.

    Raises InvalidModuleError, UnsupportedError and OSError as `ingest` does; ValueError if the
    module names a pass that does not exist.
    """
    context = new_context()
    module = read(path.read_bytes(), context, own=True)
    left = _left(module)
    if left is None:
        return Stage(ingest(path, context), _passes("cleanup,planning"))
    if PASSES_LEFT in module.operation.attributes:
        del module.operation.attributes[PASSES_LEFT]
    return Stage(module, left)


def stage_files(folder: Path) -> list[Path]:
    """The modules in a folder of `SHLO_DISC_DUMP`, in the order they were written.

    Raises ValueError if there are none.
    """
    found = sorted(folder.glob("[0-9][0-9]*-*.mlir"), key=lambda p: int(p.name.partition("-")[0]))
    if not found:
        raise ValueError(f"{folder} has no files NN-PASS.mlir; SHLO_DISC_DUMP=DIR writes them")
    return found


def _left(module: ir.Module) -> tuple[Pass, ...] | None:
    """The passes that a module of ours still needs; None for a module from elsewhere."""
    attributes = module.operation.attributes
    if PASSES_LEFT in attributes:
        names = ir.ArrayAttr(attributes[PASSES_LEFT])
        return _passes(",".join(str(ir.StringAttr(name).value) for name in names))
    found: set[str] = set()

    def visit(op: ir.Operation) -> None:
        if op.name.startswith("disc."):
            found.add(op.name)
        if "disc.arena" in op.attributes:
            found.add("disc.arena")

    walk(module, visit)
    if "disc.arena" in found:
        return ()
    if "disc.fusion" in found:
        return _passes("plan-buffers")
    return _passes("cleanup,planning") if found else None


def _passes(names: str) -> tuple[Pass, ...]:
    """The passes of a pipeline, for this machine."""
    return tuple(pipeline_of(names, parse("cpu").model))


def _donated(main: ir.Operation) -> list[int]:
    if "arg_attrs" not in main.attributes:
        return []
    given = ir.ArrayAttr(main.attributes["arg_attrs"])
    return [k for k, attributes in enumerate(given) if "disc.donated" in ir.DictAttr(attributes)]
