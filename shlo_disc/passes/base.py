"""What a pass is, the table of passes by name, and the pipeline that runs them."""

from __future__ import annotations

import difflib
import importlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TextIO, TypeVar

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, ShloDiscError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir, ops_of, run_pipeline, walk
from shlo_disc.passes.dump import PASSES_LEFT, DumpFolder
from shlo_disc.passes.pass_record import PassRecord
from shlo_disc.passes.verify import verify_operands, verify_shapes


class Pass(ABC):
    """One named rewrite of a module: valid IR in, valid IR out, invalid at most in between."""

    name: ClassVar[str]
    """kebab-case: the name in pipelines, dumps, error messages and test files."""

    keeps_shapes: ClassVar[bool] = False
    """The shapes it was given are those of the module that it leaves. It changes attributes that no
    shape depends on, or says of which value each new one is a copy (`ShapeAnalysis.carry`)."""

    @abstractmethod
    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module` in place; return how many ops changed (0: untouched).

        `shapes` are those of `module`. Who asks for them after a rewrite says `shapes.changed()`
        before, and so does who makes or erases ops and returns 0 all the same.
        """


_registry: dict[str, Pass] = {}

P = TypeVar("P", bound=Pass)


def register(a_pass: P) -> P:
    """Make `a_pass` (with its options as they are) available by its name; returns it."""
    if a_pass.name in _registry:
        raise InternalError(f"two passes are named {a_pass.name!r}")
    _registry[a_pass.name] = a_pass
    return a_pass


def registry() -> dict[str, Pass]:
    """Every registered pass by name, sorted; a copy."""
    return dict(sorted(_registry.items()))


def named(name: str) -> Pass:
    """The registered pass `name`; raises ValueError with the names there are."""
    if name not in _registry:
        raise ValueError(f"no pass is named {name!r}; passes: {', '.join(registry())}")
    return _registry[name]


@dataclass(frozen=True)
class Upstream(Pass):
    """A pass pipeline of MLIR or StableHLO under one of our names."""

    # A dataclass field on purpose: instances differ in their names, unlike our own passes.
    name: str  # type: ignore[misc]
    pipeline: str
    """Text between the parentheses of `builtin.module(...)`."""
    only_erases: bool = False
    """As many ops as before are the same ones."""

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Run the pipeline; the ops it does not say it changed are counted by their number."""
        before = _op_count(module)
        if not self.only_erases:
            shapes.changed()
        run_pipeline(module, self.pipeline)
        return abs(before - _op_count(module))


@dataclass(frozen=True)
class Late(Pass):
    """A pass of a module of its own, which is imported for programs that have an op of `ops`."""

    name: str  # type: ignore[misc]
    ops: tuple[str, ...]

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Run the pass, if it may have something to do."""
        return self.own.run(module, shapes) if ops_of(module, *self.ops) else 0

    @property
    def own(self) -> Pass:
        """The pass: `fold-gathers` is `FoldGathers` of `fold_gathers.py`."""
        home = importlib.import_module(f"{__package__}.{self.name.replace('-', '_')}")
        made: Pass = getattr(home, self.name.title().replace("-", ""))()
        return made


def _op_count(module: ir.Module) -> int:
    count = 0

    def visit(_: ir.Operation) -> None:
        nonlocal count
        count += 1

    walk(module, visit)
    return count


@dataclass(frozen=True)
class Pipeline:
    """Passes in order, with timing, IR printing, dumps and verification between them.

    `print_after` names passes whose result goes to `stream`. The flags `SHLO_DISC_DEBUG`,
    `SHLO_DISC_DUMP` and `SHLO_DISC_SPEC` are read at the start of `run`.
    """

    passes: Sequence[Pass]
    print_after: frozenset[str] = frozenset()
    stream: TextIO | None = None
    first_number: int = 0
    """Number of the first dump file, so that stages can share one folder."""
    dumps: DumpFolder | None = None
    """The folder of this compilation; without one a run makes its own if the flag asks for it."""
    to_the_end: bool = False
    """Nothing but lowering follows: dumps say which passes are left (`disc.passes_left`)."""

    def run(self, module: ir.Module, shapes: KnownShapes | None = None) -> list[PassRecord]:
        """Run every pass on `module`, in place; what each did, in order.

        `shapes`: of `module`, for who asks for them before or behind this pipeline.
        Raises the error of a pass as it is when it is a :class:`ShloDiscError`, else
        :class:`InternalError` that names the pass.
        """
        shapes = shapes or KnownShapes(module)
        flags.check()  # at once, and not where a pass happens to ask
        debug, spec = flags.debug_level(), flags.spec_checks()
        dump = self.dumps or DumpFolder.new("module")
        out = self.stream or sys.stderr
        records = []
        if self.passes and PASSES_LEFT in module.operation.attributes:
            del module.operation.attributes[PASSES_LEFT]  # of the dump it was read from
        if spec:
            _verify(module, "the stage before the passes")
        if dump is not None:
            dump.write(self.first_number, "input", module, self._left(0))
        for number, a_pass in enumerate(self.passes, self.first_number + 1):
            before = _text(module) if debug == _DIFF else ""
            ops = _op_count(module) if debug >= _LINES else 0
            start = time.perf_counter()
            with _blame(a_pass):
                changed = a_pass.run(module, shapes)
            if changed and not a_pass.keeps_shapes:
                shapes.changed()
            time_ms = (time.perf_counter() - start) * 1e3
            # A pass that counts its changes wrong is found by the next verification.
            if spec and (changed or a_pass is self.passes[-1]):
                _verify(module, f"pass {a_pass.name}")
            records.append(PassRecord(a_pass.name, changed, time_ms))
            if dump is not None:
                dump.write(number, a_pass.name, module, self._left(number - self.first_number))
            if debug >= _LINES:
                print(
                    f"{number:02} {a_pass.name:24} {changed:5} changed  "
                    f"{ops} -> {_op_count(module)} ops  {time_ms:.1f} ms",
                    file=out,
                )
            if a_pass.name in self.print_after or debug >= _WHOLE:
                print(f"// after {a_pass.name}\n{_text(module)}", file=out)
            elif debug == _DIFF:
                out.writelines(_diff(before, _text(module), a_pass.name))
        return records

    def _left(self, done: int) -> list[str] | None:
        """The names of the passes after the first `done`; None if they are not all there are."""
        return [p.name for p in self.passes[done:]] if self.to_the_end else None


_LINES, _DIFF, _WHOLE = 2, 3, 4
"""Levels of `SHLO_DISC_DEBUG`."""


@contextmanager
def _blame(a_pass: Pass) -> Iterator[None]:
    try:
        yield
    except (ShloDiscError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise InternalError(
            f"pass {a_pass.name} failed: {type(error).__name__}: {error}\n"
            "This is a mistake in shlo_disc. Set SHLO_DISC_DUMP=DIR and run again: "
            f"`disc-opt --pass-pipeline={a_pass.name} FILE` on the last file of the newest folder "
            "in DIR reproduces it."
        ) from error


def _verify(module: ir.Module, maker: str) -> None:
    try:
        # First: MLIR's verifier follows operands, and would read the memory of an op that is gone.
        verify_operands(module)
        module.operation.verify()
        dialect.verify(module)
        verify_shapes(module)
    except (ir.MLIRError, ValueError) as error:
        raise InternalError(f"{maker} made an invalid module:\n{error}") from error


def _text(module: ir.Module) -> str:
    # Big constants would drown everything else.
    return str(module.operation.get_asm(large_elements_limit=64))


def _diff(before: str, after: str, name: str) -> Iterable[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"before {name}", f"after {name}", lineterm=""
    )
    return (line + "\n" for line in lines)
