"""A pass over a module in normal form, the table of passes by name, and their pipeline."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from typing import TypeVar

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir import dialect, pipeline
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, ops_of, run_pipeline
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.ir.pipeline import PassLog, refusing
from shlo_disc.passes.op_classes import size_operands


class Pass(pipeline.Pass[KnownShapes]):
    """One named rewrite of a module in normal form.

    `keeps_known`: it changes attributes that no shape depends on, or says of which value each new
    one is a copy (`ShapeAnalysis.carry`).
    """

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
        before = pipeline.op_count(module)
        if not self.only_erases:
            shapes.changed()
        run_pipeline(module, self.pipeline)
        return abs(before - pipeline.op_count(module))


@dataclass(frozen=True)
class Late(Pass):
    """A pass of a module of its own, which is imported for programs that have an op of `ops`."""

    name: str  # type: ignore[misc]
    ops: tuple[str, ...]

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Run the pass, if it may have something to do."""
        return 0 if shapes.names.isdisjoint(self.ops) else self.own.run(module, shapes)

    @property
    def own(self) -> Pass:
        """The pass: `fold-gathers` is `FoldGathers` of `fold_gathers.py`."""
        home = importlib.import_module(f"{__package__}.{self.name.replace('-', '_')}")
        made: Pass = getattr(home, self.name.title().replace("-", ""))()
        return made


class Pipeline(pipeline.Pipeline[KnownShapes]):
    """Passes that follow `ingest`."""

    def run(
        self, module: ir.Module, known: KnownShapes | None = None, log: PassLog | None = None
    ) -> list[PassRecord]:
        """Run every pass; what each did, in order.

        `known`: shapes of `module`, for who asks for them before or behind this pipeline. Raises
        the error of a pass, and InternalError.
        """
        if flags.spec_checks():
            self.verify(module, "the stage before the passes")
        return super().run(module, known or KnownShapes(module), log or PassLog("module"))

    def verify(self, module: ir.Module, maker: str) -> None:
        """Raise InternalError, which names `maker`, for an invalid module."""
        super().verify(module, maker)
        with refusing(maker):
            dialect.verify(module)
            _verify_shapes(module)


def _verify_shapes(module: ir.Module) -> None:
    """Raise ValueError, naming op and operand, where a `disc.shape` is used as data.

    It never lies in memory: such an op could not be run.
    """
    wrong = [
        f"{use.owner.name} at {source_line(use.owner.operation)}: operand {use.operand_number} is "
        "a disc.shape, which is no data; use disc.sizes"
        for op in ops_of(module, "disc.shape")
        for use in op.results[0].uses
        if use.operand_number not in size_operands(use.owner.operation)
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
