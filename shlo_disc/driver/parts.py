"""Programs of several parts in turn, and those for calls that break a guard of a region."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.kept_plans import kept_plans
from shlo_disc.driver.options import check_donated, check_symbols, check_weak_results
from shlo_disc.driver.request import Options, Request, Stated
from shlo_disc.driver.stages import (
    Apart,
    Code,
    code_of_module,
    compile_module,
    ingested,
    main_function,
)
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms
from shlo_disc.executables.data_sized import DataSizedExecutable, made_of
from shlo_disc.executables.executable import Executable
from shlo_disc.executables.record import (
    BranchesRecord,
    GuardedRecord,
    ImpossibleRecord,
    LoopRecord,
    PartsRecord,
    ProgramRecord,
    Record,
)
from shlo_disc.ingest.fixed_arguments import fix_arguments
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.pipeline import PassLog, module_name
from shlo_disc.lower.target import Target, parse
from shlo_disc.passes.split_programs import (
    Control,
    copied,
    has_regions_with_sizes,
    split_programs,
)

_log = logging.getLogger("shlo_disc")


@lets_others_run
def compile_apart(request: Request, name: str) -> Executable | DataSizedExecutable:
    """The program `name` of `request`, whose guards in regions count only if these run.

    It is the whole, or one of those that it runs in turn.
    """
    stated, options = request.stated, request.options
    target = parse(options.target)
    module = ingested(stated, target, PassLog(request.name))
    whole = request.name or module_name(module)
    if name == whole:
        apart = apart_of(module, options)
    else:
        apart = _Executables(target, options.likely).apart_of(module, whole, options, name)
    assert apart is not None, name
    return apart(name)


def compile_several(stated: Stated, options: Options, name: str | None) -> DataSizedExecutable:
    """Several programs in turn; each knows the sizes that those before it computed."""
    target = parse(options.target)
    module = ingested(stated, target, PassLog(name))
    main = main_function(module)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    check_donated(options.donated, len(kind.inputs))
    check_weak_results(options.weak_results, len(kind.results))
    parts = _Executables(target, options.likely)
    made = parts.executable(module, name or module_name(module), options)
    assert isinstance(made, DataSizedExecutable)
    check_symbols(made.name, "likely", options.likely, made.symbols)
    _log.info("%s: sizes from data, computed by %d programs", made.name, len(made.programs))
    return made


@lets_others_run
def compile_code(
    request: Request,
    target: Target,
    fixed: Mapping[int, npt.NDArray[Any]],
    *,
    extern: bool = False,
) -> tuple[Record, Mapping[str, Code]]:
    """What `request` asks for, compiled for `target` in place of its own, and its programs by name.

    Arguments with an array in `fixed` become constants. With `extern` FFI targets may be called
    that are not registered. Raises what :func:`compile` raises.
    """
    donated = [k - sum(j < k for j in fixed) for k in request.options.donated if k not in fixed]
    options = replace(request.options, donated=donated)

    def module(log: PassLog) -> ir.Module:
        made = ingested(request.stated, target, log, extern=extern)
        if fixed:
            with made.context, ir.Location.unknown():
                fix_arguments(main_function(made).opview, fixed)
        return made

    log = PassLog(request.name)
    first = module(log)
    name = request.name or module_name(first)
    parts = _Codes(target, options.likely, {name: log})
    try:
        return parts.compiled(first, name, options, with_regions_apart=True), parts.made
    except NeedsSeveralPrograms:
        return parts.of(module(PassLog(name)), name, options), parts.made


class _Parts(ABC):
    """Compiles programs that may be several in turn, and those in their regions."""

    def __init__(self, target: Target, likely: Mapping[str, Sequence[int]]) -> None:
        self.target, self.likely = target, likely

    def of(
        self, module: ir.Module, name: str, options: Options | None, *, apart: bool = False
    ) -> ProgramRecord | GuardedRecord | PartsRecord:
        """The program of `module`; `options`: for its results and arguments, if it is no region.

        Raises what :func:`compile` raises.
        """
        arguments = len(main_function(module).regions[0].blocks[0].arguments)
        with module.context, ir.Location.unknown():
            parts = split_programs(module, apart=apart)
        if len(parts) == 1 and isinstance(parts[0], ir.Module):
            return self._program(parts[0], name, options, with_regions_apart=not apart)
        steps: list[Record | BranchesRecord | LoopRecord] = []
        for number, part in enumerate(parts, 1):
            own = f"{name}_{number}"
            if isinstance(part, Control):
                steps.append(self._step(part, own))
            else:
                of_last = options if number == len(parts) else None
                steps.append(self._program(part, own, of_last, with_regions_apart=not apart))
        return PartsRecord(name, tuple(steps), arguments)

    def apart_of(
        self, module: ir.Module, name: str, options: Options | None, wanted: str
    ) -> Apart | None:
        """What `of` would make the program `wanted` of, with its regions; None if it is not there.

        `name` and `options` as of :meth:`of`.
        """
        with module.context, ir.Location.unknown():
            parts = split_programs(module)
        if len(parts) == 1 and isinstance(parts[0], ir.Module):
            return apart_of(parts[0], options or self._plain) if name == wanted else None
        rows: list[tuple[ir.Module, str, Options | None]] = []
        for number, part in enumerate(parts, 1):
            own = f"{name}_{number}"
            if isinstance(part, Control):
                regions = enumerate(part.regions, 1)
                rows += [(region, f"{own}_{place}", None) for place, region in regions]
            elif own == wanted:
                return apart_of(part, (options if number == len(parts) else None) or self._plain)
        for row in rows:
            if wanted.startswith(row[1]) and (found := self.apart_of(*row, wanted)) is not None:
                return found
        return None

    @property
    def _plain(self) -> Options:
        """Those of a program that is not the last."""
        return Options(self.target.name, (), self.likely, ())

    def _step(self, control: Control, name: str) -> BranchesRecord | LoopRecord:
        programs = tuple(
            self._region(module, f"{name}_{number}")
            for number, module in enumerate(control.regions, 1)
        )
        if control.name == "while":
            return LoopRecord(control.operands, *programs)
        # The first region of an `if` is for true, of a `case` for 0.
        in_order = programs[::-1] if control.name == "if" else programs
        return BranchesRecord(control.operands[0], in_order)

    def _region(self, module: ir.Module, name: str) -> Record:
        try:
            return self.of(module, name, None)
        except InvalidModuleError as error:  # it is valid not to run it
            return ImpossibleRecord(name, str(error))

    def _program(
        self,
        module: ir.Module,
        name: str,
        options: Options | None,
        *,
        with_regions_apart: bool,
    ) -> ProgramRecord | GuardedRecord:
        own: set[str] = set()
        if self.likely:
            with module.context, ir.Location.unknown():
                own = {*self.likely} & {*analyze(module).symbols}
        likely = {symbol: sizes for symbol, sizes in self.likely.items() if symbol in own}
        stated = replace(options or self._plain, likely=likely)
        return self.compiled(module, name, stated, with_regions_apart=with_regions_apart)

    @abstractmethod
    def compiled(
        self, module: ir.Module, name: str, options: Options, *, with_regions_apart: bool
    ) -> ProgramRecord | GuardedRecord:
        """The record of one program; with its regions apart, if calls may need these."""


class _Executables(_Parts):
    """Makes executables."""

    def __init__(self, target: Target, likely: Mapping[str, Sequence[int]]) -> None:
        super().__init__(target, likely)
        self.made: dict[str, Executable] = {}

    def executable(
        self, module: ir.Module, name: str, options: Options | None, *, apart: bool = False
    ) -> Executable | DataSizedExecutable:
        """As :meth:`of`."""
        record = self.of(module, name, options, apart=apart)
        made = made_of(record, lambda program: self.made[program.name])
        assert isinstance(made, Executable | DataSizedExecutable)
        return made

    def compiled(
        self, module: ir.Module, name: str, options: Options, *, with_regions_apart: bool
    ) -> ProgramRecord:
        of_apart = replace(options, likely=self.likely)
        made = self.made[name] = compile_module(
            module,
            target=self.target,
            log=PassLog(name),
            weak_results=options.weak_results,
            likely=options.likely,
            donated=options.donated,
            apart=apart_of(module, of_apart) if with_regions_apart else None,
            kept=kept_plans(self.target),
        )
        return made.record


class _Codes(_Parts):
    """Makes code for artifacts; `logs`: by name, of programs that passes have run on before."""

    def __init__(
        self, target: Target, likely: Mapping[str, Sequence[int]], logs: Mapping[str, PassLog]
    ) -> None:
        super().__init__(target, likely)
        self.logs = logs
        self.made: dict[str, Code] = {}

    def compiled(
        self, module: ir.Module, name: str, options: Options, *, with_regions_apart: bool
    ) -> ProgramRecord | GuardedRecord:
        kept = None
        if with_regions_apart:
            with module.context, ir.Location.unknown():
                kept = copied(module) if has_regions_with_sizes(module) else None
        code = self.made[name] = code_of_module(
            module,
            self.target,
            self.logs.get(name) or PassLog(name),
            options,
            has_apart=kept is not None,
        )
        record = code.record
        if kept is None or not any(check.in_region for check in record.program.checks):
            return record
        apart = self.of(kept, f"{name}_apart", options, apart=True)
        if not isinstance(apart, PartsRecord):
            apart = PartsRecord(apart.name, (apart,), len(record.arguments))
        return GuardedRecord(record, apart)


def apart_of(module: ir.Module, options: Options) -> Apart | None:
    """Compiles a copy of `module`, before any pass, for calls that break a guard of a region.

    The guards of its regions count only if these run. None if no call can need it.
    """
    with module.context, ir.Location.unknown():
        if not has_regions_with_sizes(module):
            return None
        kept = copied(module)

    @lets_others_run
    def compiled(name: str) -> Executable | DataSizedExecutable:
        parts = _Executables(parse(options.target), options.likely)
        with kept.context, ir.Location.unknown():
            again = copied(kept)
        return parts.executable(again, name, options, apart=True)

    return compiled
