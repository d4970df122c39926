"""From a program to an executable: every stage by name, in order."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

from shlo_disc.base import flags
from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.later import Later, imported_later
from shlo_disc.base.records import dataclass
from shlo_disc.base.threads import Workers, lets_others_run
from shlo_disc.driver.kept_plans import KeptPlans, kept_plans
from shlo_disc.driver.options import check_donated, check_weak_results
from shlo_disc.driver.replan import Replanning, refused_by
from shlo_disc.driver.request import Options, Request, Stated
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable, warn_of_donated
from shlo_disc.executables.record import ProgramRecord, Type
from shlo_disc.ingest import ingest
from shlo_disc.ir.dialect import complex_arguments, complex_results
from shlo_disc.ir.dump import DumpFolder
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.ir.pipeline import PassLog, module_name
from shlo_disc.lower.host.program import emit_host
from shlo_disc.lower.host.record import CodeNames, HostProgram, PlanFunction, texts_of
from shlo_disc.lower.plan import Kernel, named
from shlo_disc.lower.refused import KernelsRefused, Refused
from shlo_disc.lower.target import CodeGenerator, Function, Target, parse
from shlo_disc.passes.base import Pass, Pipeline
from shlo_disc.passes.pipeline import CLEANUP, planning

apart_of = imported_later("shlo_disc.driver.parts", "apart_of")
compile_several = imported_later("shlo_disc.driver.parts", "compile_several")

Apart = Callable[[str], Executable | DataSizedExecutable]
"""Compiles a program, by its name, for calls that break a guard of a region."""

_log = logging.getLogger("shlo_disc")


@dataclass
class StageTimes:
    """Milliseconds of each stage of one compilation."""

    ms: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def done(self, stage: str) -> None:
        """The time since the previous stage was spent on `stage`."""
        now = time.perf_counter()
        self.ms[stage] = self.ms.get(stage, 0.0) + (now - self._last) * 1e3
        self._last = now

    def __str__(self) -> str:
        parts = ", ".join(f"{stage} {ms:.0f}" for stage, ms in self.ms.items())
        return f"{sum(self.ms.values()):.0f} ms ({parts})"


@lets_others_run
def compile_request(request: Request) -> Executable | DataSizedExecutable:
    """What `request` asks for, compiled. Raises what :func:`shlo_disc.compile` raises."""
    stated, options, name = request.stated, request.options, request.name
    if not request.may_be_several:
        return _compile_one(stated, options, name)
    try:
        return _compile_one(stated, options, name, with_regions_apart=True)
    except NeedsSeveralPrograms:
        made: DataSizedExecutable = compile_several(stated, options, name)
        return made


def ingested(stated: Stated, target: Target, log: PassLog, *, extern: bool = False) -> ir.Module:
    """A new module for `target`, in a context of its own; `extern`: see :func:`ingest`."""
    return ingest(
        stated.source,
        new_context(),
        shapes=stated.shapes,
        names=stated.names,
        constraints=stated.constraints,
        platform=target.platform,
        seen=stated.seen,
        log=log,
        extern=extern,
    )


def _compile_one(
    stated: Stated, options: Options, name: str | None, *, with_regions_apart: bool = False
) -> Executable:
    target = parse(options.target)
    times, log = StageTimes(), PassLog(name)
    module = ingested(stated, target, log)
    times.done("ingest")
    return compile_module(
        module,
        target=target,
        log=log,
        times=times,
        weak_results=options.weak_results,
        likely=options.likely,
        donated=options.donated,
        apart=apart_of(module, options) if with_regions_apart else None,
        kept=kept_plans(target),
    )


@lets_others_run
def compile_module(
    module: ir.Module,
    *,
    target: Target | None = None,
    log: PassLog | None = None,
    times: StageTimes | None = None,
    weak_results: Sequence[bool] = (),
    likely: Mapping[str, Sequence[int]] | None = None,
    donated: Sequence[int] = (),
    passes: Sequence[Pass] | None = None,
    apart: Apart | None = None,
    kept: KeptPlans | None = None,
) -> Executable:
    """The executable of an ingested module, which is rewritten in place.

    `passes`: those that run on it, by default all. A module that some of them have rewritten
    before needs the others only. `log` has the program's name. `apart`: compiles the
    program for calls that break a guard of a region; without it they are refused. `kept`: plans on
    disk.
    """
    target, log, times = target or parse("cpu"), log or PassLog(), times or StageTimes()
    code = _compiled(
        module, target, log, times, weak_results, likely, donated, passes, apart is not None, kept
    )
    executable = Executable(
        code.record,
        target=Later.of(target),
        kernels=code.kernels,
        plans=code.plans,
        entry_points=code.entry_points,
        apart=None if apart is None else partial(apart, code.record.name),
    )
    warn_of_donated(executable)
    if flags.debug_level() >= 1:
        _log.warning("compiled %s in %s", executable.name, times)
    else:
        _log.info("compiled %s in %s", executable.name, times)
    if flags.debug_level() >= _CODE:
        _print_code(executable)
    return executable


class Code(NamedTuple):
    """A compiled program as data, and its functions."""

    record: ProgramRecord
    kernels: Sequence[Function]
    """In the order of their indices."""
    plans: Sequence[Function]
    """The functions of plans."""
    entry_points: tuple[Function, Function]
    """`prepare` and `run`."""


def code_of_module(
    module: ir.Module, target: Target, log: PassLog, options: Options, *, has_apart: bool
) -> Code:
    """As :func:`compile_module`, of code alone; `has_apart`: calls may need its regions apart."""
    return _compiled(
        module, target, log, StageTimes(), options.weak_results, options.likely, options.donated,
        None, has_apart, None,
    )  # fmt: skip


def _compiled(
    module: ir.Module,
    target: Target,
    log: PassLog,
    times: StageTimes,
    weak_results: Sequence[bool],
    likely: Mapping[str, Sequence[int]] | None,
    donated: Sequence[int],
    passes: Sequence[Pass] | None,
    has_apart: bool,
    kept: KeptPlans | None,
) -> Code:
    """As :func:`compile_module`."""
    context = module.context
    with context, ir.Location.unknown(), target.generator() as builder:
        stablehlo = _asm(module)
        arguments, results = _types(main_function(module))
        check_donated(donated, len(arguments))
        check_weak_results(weak_results, len(results))
        _mark_donated(main_function(module), donated)
        name = log.name or module_name(module)
        if passes is None:
            passes = [*CLEANUP, *planning(target.model)]
        known = KnownShapes(module)
        Pipeline(passes, to_the_end=True).run(module, known, log)
        times.done("passes")
        main = main_function(module)
        dumps = log.folder(module)
        replanning = Replanning(module, main, target.model, log)
        while True:
            shapes = known.now()
            program = shape_program(main, shapes, _argument_names(main))
            times.done("shapes")
            try:
                native = _native(
                    module, shapes, program, target, builder, likely, times, dumps, kept
                )
                break
            except Refused as refused:
                replanning.split(refused, known)
                times.done("passes")
        unfused = replanning.done(name)
    taken, given = _types(main)
    record = ProgramRecord(
        name=name,
        target=target.name,
        program=program,
        host=native.host,
        arguments=taken,
        results=given,
        weak_results=tuple(map(bool, weak_results)) or (False,) * len(given),
        donated=tuple(donated),
        unfused=unfused,
        passes=tuple(log.records),
        stage_ms=tuple(times.ms.items()),
        texts=Later.of((("stablehlo", stablehlo), ("disc", native.disc))),
        code=None if target.code_names is None else Later(partial(_code, target, native.host)),
        has_apart=has_apart,
    )
    return Code(record, native.kernels, native.plans, native.entry_points)


_CODE = 5
"""Level of `SHLO_DISC_DEBUG` that shows the code of kernels."""


def _print_code(executable: Executable) -> None:
    """LLVM IR and assembly of every kernel, to stderr."""
    if not executable.host.kernels:
        return
    for stage in executable.target.views:
        try:
            text = executable.as_text(stage)
        except UnsupportedError as error:  # without binutils there is no assembly
            text = str(error)
        print(f"// {executable.name}: {stage}\n{text}", file=sys.stderr)


@lets_others_run
def examine(source: Any, *, raise_refused: bool = False, target: str = "cpu") -> None:
    """Raise what :func:`compile` raises for a program it does not cover; no code is generated.

    With `raise_refused`, also what an emitter raises for one fusion, where `compile` would plan
    smaller kernels.
    """
    machine = parse(target)
    log = PassLog()
    module = ingest(source, new_context(), platform=machine.platform, log=log)
    with module.context, ir.Location.unknown():
        passes = [*CLEANUP, *planning(machine.model)]
        known = KnownShapes(module)
        Pipeline(passes, to_the_end=True).run(module, known, log)
        main = main_function(module)
        shapes = known.now()
        program = shape_program(main, shapes, _argument_names(main))
        try:
            emit_host(main, shapes, program, machine, None, lambda *_: None)
        except Refused as refused:
            for fusion, error in refused.fusions:
                has_emitter = ir.StringAttr(fusion.attributes["kind"]).value in machine.emitters
                if raise_refused or not has_emitter:
                    raise error from refused


def _code(target: Target, host: HostProgram) -> CodeNames:
    """Where the store has the machine code. All texts are written for it."""
    assert target.code_names is not None
    return target.code_names(*texts_of(host))


@dataclass(frozen=True)
class _Native:
    """A program as machine code."""

    host: HostProgram
    kernels: list[Function]
    plans: list[Function]
    entry_points: tuple[Function, Function]
    disc: str
    """The text of the module that it was made of."""


def _native(
    module: ir.Module,
    shapes: ShapeAnalysis,
    program: ShapeProgram,
    target: Target,
    builder: CodeGenerator,
    likely: Mapping[str, Sequence[int]] | None,
    times: StageTimes,
    dumps: DumpFolder | None,
    kept: KeptPlans | None,
) -> _Native:
    """Raises Refused with the fusions that have no kernel or one that does not compile.

    Texts are written to `dumps`, those that do not compile below the error.
    """
    main = main_function(module)

    def written(kernel: Kernel | PlanFunction, wanted: bool) -> None:
        if dumps is not None and isinstance(kernel, Kernel):  # first: LLVM may crash on it
            symbol = target.function_name(kernel.text)
            dumps.write_kernel(kernel.name, symbol, named(kernel.text, symbol))
        builder.add(kernel.source, wanted=wanted)

    host = emit_host(main, shapes, program, target, likely, written, kept)
    if dumps is not None:
        dumps.write_host(host.whole())
    times.done("emit")
    with Workers(2) as workers:
        entries = workers.begin(target.compile_host, host.text)
        disc = workers.begin(_asm, module)  # while the last kernels are compiled
        try:
            kernels = list(builder.functions([kernel.source for kernel in host.kernels]))
        except KernelsRefused as refused:
            if dumps is not None:
                for text, error in refused.errors.items():
                    dumps.write_refused(target.function_name(text), text, error)
            raise refused_by(host, main, refused) from refused
        plans = list(builder.functions([function.source for function in host.functions]))
        times.done("kernels")  # what they take beyond their emission
        try:
            entry_points = entries.result()
        except Exception as error:
            if dumps is not None:
                dumps.write_refused("host", host.text, error)
            raise
        times.done("host")  # what it takes beyond the kernels
    return _Native(host, kernels, plans, entry_points, disc.result())


def main_function(module: ir.Module) -> ir.Operation:
    """The public `main` of a module in normal form."""
    for op in module.body.operations:
        if op.operation.name == "func.func":
            return op.operation
    raise AssertionError("a module in normal form has one function")


def _mark_donated(main: ir.Operation, donated: Sequence[int]) -> None:
    if not donated:
        return
    count = len(main.regions[0].blocks[0].arguments)
    given = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else None
    out = []
    for index in range(count):
        known = {a.name: a.attr for a in ir.DictAttr(given[index])} if given is not None else {}
        if index in donated:
            known["disc.donated"] = ir.UnitAttr.get()
        out.append(ir.DictAttr.get(known))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(out)


def _asm(module: ir.Module) -> str:
    return str(module.operation.get_asm(large_elements_limit=16))


def _argument_names(main: ir.Operation) -> list[str]:
    names = []
    count = len(main.regions[0].blocks[0].arguments)
    given = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else None
    for index in range(count):
        attributes = ir.DictAttr(given[index]) if given is not None else {}
        known = "disc.name" in attributes
        names.append(ir.StringAttr(attributes["disc.name"]).value if known else f"args[{index}]")
    return names


def _types(main: ir.Operation) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """Every argument and result."""
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def describe(type_: ir.Type, is_complex: bool) -> Type:
        tensor = ir.RankedTensorType(type_)
        sizes = tuple(
            -1 if tensor.is_dynamic_dim(k) else tensor.get_dim_size(k) for k in range(tensor.rank)
        )
        element = element_type(tensor.element_type).name
        return Type(f"complex<{element}>", sizes[:-1]) if is_complex else Type(element, sizes)

    taken, given = complex_arguments(main), complex_results(main)
    return (
        tuple(describe(t, k in taken) for k, t in enumerate(kind.inputs)),
        tuple(describe(t, k in given) for k, t in enumerate(kind.results)),
    )
