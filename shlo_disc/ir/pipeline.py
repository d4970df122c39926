"""What a pass is, and the pipeline that runs passes in order with times, dumps and verification."""

from __future__ import annotations

import difflib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import ClassVar, Generic, Protocol, TextIO, TypeVar

from shlo_disc.base import flags
from shlo_disc.base.errors import InternalError, ShloDiscError
from shlo_disc.base.records import dataclass
from shlo_disc.ir.dump import PASSES_LEFT, DumpFolder
from shlo_disc.ir.mlir import ir, walk
from shlo_disc.ir.pass_record import PassRecord
from shlo_disc.ir.verify import verify_operands


class Known(Protocol):
    """What a pipeline knows of a module while passes rewrite it."""

    def changed(self) -> None:
        """The module has other operations now."""


K = TypeVar("K", bound=Known)


class Pass(ABC, Generic[K]):
    """One named rewrite of a module: valid IR in, valid IR out, invalid at most in between."""

    name: ClassVar[str]
    """kebab-case: the name in pipelines, dumps, error messages and test files."""

    keeps_known: ClassVar[bool] = False
    """What was known of the module before the pass holds of the module that it leaves."""

    raises: ClassVar[tuple[type[BaseException], ...]] = ()
    """Errors of what the caller says, beside those of shlo_disc."""

    def is_needed(self, known: K) -> bool:
        """Whether the module may have something for the pass; otherwise it does not run."""
        return True

    @abstractmethod
    def run(self, module: ir.Module, known: K) -> int:
        """Rewrite `module` in place; return how many ops changed (0: untouched)."""


@dataclass
class PassLog:
    """What the passes of one compilation do: records in order, and where dumps and texts go."""

    name: str | None = None
    """Of the program, for the folder of dumps; None: the module says it."""
    print_after: frozenset[str] = frozenset()
    """Names of passes after which the module is printed; "all": after each."""
    stream: TextIO | None = None
    """Where that goes; by default to stderr."""
    records: list[PassRecord] = field(default_factory=list)
    _folders: list[DumpFolder | None] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def numbers(self, stage: str, count: int) -> range:
        """The numbers of the next `count` dumps of `stage`."""
        first = self._numbers.get(stage, 0)
        self._numbers[stage] = first + count
        return range(first, first + count)

    def folder(self, module: ir.Module) -> DumpFolder | None:
        """The folder of dumps, made on the first call; None where `SHLO_DISC_DUMP` is not set.

        Raises OSError, with the flag's value in its message, where it cannot be made.
        """
        if not self._folders:
            self._folders.append(DumpFolder.new(self.name or module_name(module)))
        return self._folders[0]


def module_name(module: ir.Module) -> str:
    """The name of `module`; that of a program without one is `main`."""
    attributes = module.operation.attributes
    if "sym_name" in attributes:
        return str(ir.StringAttr(attributes["sym_name"]).value)
    return "main"


@dataclass(frozen=True)
class Pipeline(Generic[K]):
    """Passes in order, with timing, IR printing, dumps and verification between them.

    The flags `SHLO_DISC_DEBUG`, `SHLO_DISC_DUMP` and `SHLO_DISC_SPEC` are read at the start of
    `run`.
    """

    passes: Sequence[Pass[K]]
    to_the_end: bool = False
    """Nothing but lowering follows: dumps say which passes are left (`disc.passes_left`)."""

    stage: ClassVar[str] = ""
    """In front of the names of dumps."""
    reproduce: ClassVar[str] = "`disc-opt --pass-pipeline={name} FILE`"
    """How to repeat the run of one pass on its input."""

    def run(self, module: ir.Module, known: K, log: PassLog) -> list[PassRecord]:
        """Run every pass that is needed on `module`, in place; what each did, which `log` has, too.

        Raises the error of a pass as it is when it is a :class:`ShloDiscError`, else
        :class:`InternalError` that names the pass.
        """
        flags.check()  # at once, and not where a pass happens to ask
        debug, spec = flags.debug_level(), flags.spec_checks()
        dump, out = log.folder(module), log.stream or sys.stderr
        if self.passes and PASSES_LEFT in module.operation.attributes:
            del module.operation.attributes[PASSES_LEFT]  # of the dump it was read from
        records: list[PassRecord] = []
        start, *numbers = log.numbers(self.stage, len(self.passes) + 1)
        if dump is not None:
            dump.write(f"{self.stage}{start:02}-input", module, self._left(0))
        for done, (number, a_pass) in enumerate(zip(numbers, self.passes, strict=True), 1):
            if not a_pass.is_needed(known):
                continue
            before = _text(module) if debug == _DIFF else ""
            ops = op_count(module) if debug >= _LINES else 0
            began = time.perf_counter()
            with self._blame(a_pass):
                changed = a_pass.run(module, known)
            if changed and not a_pass.keeps_known:
                known.changed()
            time_ms = (time.perf_counter() - began) * 1e3
            # A pass that counts its changes wrong is found by the next verification.
            if spec and (changed or a_pass is self.passes[-1]):
                self.verify(module, f"pass {a_pass.name}")
            records.append(PassRecord(a_pass.name, changed, time_ms))
            if dump is not None:
                dump.write(f"{self.stage}{number:02}-{a_pass.name}", module, self._left(done))
            if debug >= _LINES:
                print(
                    f"{self.stage}{number:02} {a_pass.name:24} {changed:5} changed  "
                    f"{ops} -> {op_count(module)} ops  {time_ms:.1f} ms",
                    file=out,
                )
            if not log.print_after.isdisjoint({a_pass.name, "all"}) or debug >= _WHOLE:
                print(f"// after {a_pass.name}\n{_text(module)}", file=out)
            elif debug == _DIFF:
                out.writelines(_diff(before, _text(module), a_pass.name))
        log.records += records
        return records

    def verify(self, module: ir.Module, maker: str) -> None:
        """Raise InternalError, which names `maker`, for an invalid module."""
        with refusing(maker):
            # First: MLIR's verifier follows operands, perhaps into freed memory.
            verify_operands(module)
            module.operation.verify()

    def _left(self, done: int) -> list[str] | None:
        """The names of the passes after the first `done`; None if they are not all there are."""
        return [p.name for p in self.passes[done:]] if self.to_the_end else None

    @contextmanager
    def _blame(self, a_pass: Pass[K]) -> Iterator[None]:
        try:
            yield
        except (ShloDiscError, KeyboardInterrupt, MemoryError):
            raise
        except a_pass.raises:
            raise
        except Exception as error:
            raise InternalError(
                f"pass {a_pass.name} failed: {type(error).__name__}: {error}\n"
                "This is a mistake in shlo_disc. Set SHLO_DISC_DUMP=DIR and run again: "
                f"{self.reproduce.format(name=a_pass.name)} on the last file of the newest folder "
                "in DIR reproduces it."
            ) from error


_LINES, _DIFF, _WHOLE = 2, 3, 4
"""Levels of `SHLO_DISC_DEBUG`."""


@contextmanager
def refusing(maker: str) -> Iterator[None]:
    """Raise InternalError, which names `maker` of a module, for errors of a verifier."""
    try:
        yield
    except (ir.MLIRError, ValueError) as error:
        raise InternalError(f"{maker} made an invalid module:\n{error}") from error


def op_count(module: ir.Module) -> int:
    """How many operations `module` has, in all regions."""
    count = 0

    def visit(_: ir.Operation) -> None:
        nonlocal count
        count += 1

    walk(module, visit)
    return count


def _text(module: ir.Module) -> str:
    # Big constants would drown everything else.
    return str(module.operation.get_asm(large_elements_limit=64))


def _diff(before: str, after: str, name: str) -> Iterable[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"before {name}", f"after {name}", lineterm=""
    )
    return (line + "\n" for line in lines)
