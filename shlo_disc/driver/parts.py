"""Programs of several parts in turn, and those for calls that break a guard of a region."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from shlo_disc.base.errors import InvalidModuleError
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import lets_others_run
from shlo_disc.driver.kept_plans import kept_plans
from shlo_disc.driver.options import check_donated, check_symbols, check_weak_results
from shlo_disc.driver.request import Options, Request, Stated
from shlo_disc.driver.stages import Apart, compile_module, ingested, main_function
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.executables.data_sized import (
    Branches,
    DataSizedExecutable,
    Impossible,
    Loop,
    Program,
    Step,
)
from shlo_disc.executables.executable import Executable
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
        apart = _Parts(target, options.likely).apart_of(module, whole, options, name)
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
    made = _Parts(target, options.likely).of(module, name or module_name(module), options)
    assert isinstance(made, DataSizedExecutable)
    check_symbols(made.name, "likely", options.likely, made.symbols)
    _log.info("%s: sizes from data, computed by %d programs", made.name, len(made.programs))
    return made


@dataclass(frozen=True)
class _Parts:
    """Compiles programs that may be several in turn, and those in their regions."""

    target: Target
    likely: Mapping[str, Sequence[int]]

    def of(
        self, module: ir.Module, name: str, options: Options | None, *, apart: bool = False
    ) -> Executable | DataSizedExecutable:
        """The program of `module`; `options`: for its results and arguments, if it is no region.

        Raises what :func:`compile` raises.
        """
        arguments = len(main_function(module).regions[0].blocks[0].arguments)
        with module.context, ir.Location.unknown():
            parts = split_programs(module, apart=apart)
        if len(parts) == 1 and isinstance(parts[0], ir.Module):
            return self._executable(parts[0], name, options, with_regions_apart=not apart)
        steps: list[Step] = []
        for number, part in enumerate(parts, 1):
            own = f"{name}_{number}"
            if isinstance(part, Control):
                steps.append(self._step(part, own))
            else:
                is_last = number == len(parts)
                steps.append(
                    self._executable(
                        part, own, options if is_last else None, with_regions_apart=not apart
                    )
                )
        return DataSizedExecutable(name, steps, arguments)

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

    def _step(self, control: Control, name: str) -> Branches | Loop:
        programs = tuple(
            self._region(module, f"{name}_{number}")
            for number, module in enumerate(control.regions, 1)
        )
        if control.name == "while":
            return Loop(control.operands, *programs)
        # The first region of an `if` is for true, of a `case` for 0.
        return Branches(control.operands[0], programs[::-1] if control.name == "if" else programs)

    def _region(self, module: ir.Module, name: str) -> Program:
        try:
            return self.of(module, name, None)
        except InvalidModuleError as error:  # it is valid not to run it
            return Impossible(name, error)

    def _executable(
        self,
        module: ir.Module,
        name: str,
        options: Options | None,
        *,
        with_regions_apart: bool,
    ) -> Executable:
        own: set[str] = set()
        if self.likely:
            with module.context, ir.Location.unknown():
                own = {*self.likely} & {*analyze(module).symbols}
        return compile_module(
            module,
            target=self.target,
            log=PassLog(name),
            weak_results=() if options is None else options.weak_results,
            likely={symbol: sizes for symbol, sizes in self.likely.items() if symbol in own},
            donated=() if options is None else options.donated,
            apart=apart_of(module, options or self._plain) if with_regions_apart else None,
            kept=kept_plans(self.target),
        )


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
        parts = _Parts(parse(options.target), options.likely)
        with kept.context, ir.Location.unknown():
            again = copied(kept)
        return parts.of(again, name, options, apart=True)

    return compiled
