"""Kernel plans in the host program: in place, or as functions that equal plans share.

    call @plan0(%ctx, %buffers, %sizes, %workspace, %packs, %site, %kernels)

The layers of a model have equal plans, or plans that differ in the names of sizes. The text of such
a plan is written once, over sizes `s0`, `s1` ...; a call passes what these are. It also passes
where the plan's kernels are in the kernel table. So the code of the function is kept on disk like
that of a kernel, and other programs find it there. What a loop runs is written
in place, where LLVM can keep addresses and sizes in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shlo_disc.base import flags
from shlo_disc.base.later import Later
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr, renaming
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.host.foreign import emit_fft, emit_foreign
from shlo_disc.lower.host.frame import Frame
from shlo_disc.lower.host.launches import PlanWriter, Tables, addresses
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.plans import Kept
from shlo_disc.lower.host.record import Mark, Parts, PlanFunction, Site
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.plan import (
    Buffer,
    Call,
    FftCall,
    If,
    Input,
    Kernel,
    KernelPlan,
    KernelText,
    Launch,
    Output,
    Pack,
    Packed,
    Part,
    Step,
    Workspace,
    any_copies,
    chosen_kernels,
    every,
    holds_at,
    rewritten,
    with_sizes,
)
from shlo_disc.lower.values.typed import Pointer, Register

_OFTEN = 3
"""Steps of a loop whose first one makes packed copies. A copy costs as much as a use without it."""


About = tuple[KernelPlan, int, tuple[tuple[str, int | None], ...]]
"""All that the text of a function depends on.

A plan with numbers in place of kernels, how many operands it has, and its sizes with their lower
bounds."""


Shape = tuple[Expr, ...]


class PlanCalls:
    """Writes plans into the host program of `frame`."""

    def __init__(self, frame: Frame, tables: Tables, kept: Kept | None) -> None:
        self.frame, self.tables, self._kept = frame, tables, kept
        self.workspaces: dict[tuple[Expr, ...], None] = {}
        """Bytes of the temporary blocks of a plan, for every plan that has some."""
        self._called: dict[object, tuple[int, list[str]]] = {}
        self._numbers: dict[About, int] = {}
        self.functions: list[PlanFunction] = []
        """Of equal plans; their texts have no kernels, but numbers of theirs."""

    def write(self, plan: KernelPlan, op: ir.Operation) -> None:
        """Write the plan of `op`."""
        frame = self.frame
        if plan.workspaces:
            self.workspaces[plan.workspaces] = None
        if not frame.memory.calls_kernels:
            self._in_place(plan, op)
            return
        sizes = frame.shapes.at_call
        if frame.loops:
            self._in_place(plan, op)
            for kernel in chosen_kernels(plan.steps, sizes, any_copies):
                if kernel.source in self.tables.asked_before:  # others have copies, or are wanted
                    self.tables.kernel(kernel, wanted=True)
            return
        with_copies = dict.fromkeys(chosen_kernels(plan.steps, sizes, _copied))
        without = dict.fromkeys(
            chosen_kernels(plan.steps, sizes, lambda pack: self._lacks(pack, op))
        )
        for kernel in without if flags.compile_ahead() else with_copies:
            self.tables.kernel(kernel, wanted=True)
        if any(isinstance(step, If | Pack) for step in plan.steps):
            self._call(plan, op)
        else:
            self._in_place(plan, op)
        for kernel in with_copies:
            if kernel not in without:
                self.tables.packing[self.tables.kernel(kernel, wanted=False)] = None

    # ---------------------------------------------------------------- in place

    def _in_place(self, plan: KernelPlan, op: ir.Operation) -> None:
        frame, w = self.frame, self.frame.w
        blocks, _ = w.blocks(frame.arena, frame.workspace_base, plan.workspaces)

        def buffer(of: Buffer) -> Pointer:
            return blocks[of.index] if isinstance(of, Workspace) else self._buffer(of, op)

        steps = frame.steps if frame.memory.calls_kernels else None

        def packed(pack: Pack) -> list[tuple[Register, ...]]:
            rows = [tuple(map(w.const, row)) for row in self._packed(pack, op)]
            if steps is None:
                return rows
            often = w.compare(w.size(steps), ">=", w.const(_OFTEN))
            return [(*place, w.select(often, w.const(-2), wait)) for *place, wait in rows]

        def site(name: str, packs: bool) -> Mark:
            self.tables.sites.append(Site(len(frame.record.uses) - 1, name, packs))
            return Mark(len(self.tables.sites) - 1)

        writer = PlanWriter(
            self.tables,
            w,
            frame.memory,
            buffer=buffer,
            packed=packed,
            site=site,
            in_loop=frame.loops > 0,
            copies_at_once=steps is not None,
            call=lambda step: self._runtime(step, op, buffer),
        )
        writer.steps(plan.steps)

    def _runtime(self, step: Call, op: ir.Operation, address: Callable[[Buffer], Pointer]) -> None:
        w = self.frame.w
        if isinstance(step, FftCall):
            emit_fft(w, step, [*map(address, step.buffers)])
            return
        operands, results = [*map(address, step.operands)], [*map(address, step.results)]
        foreign = self.tables.foreign
        emit_foreign(w, self.frame.memory, len(foreign), step, operands, results)
        foreign.append((step, source_line(op)))

    def _buffer(self, buffer: Buffer, op: ir.Operation) -> Pointer:
        assert isinstance(buffer, Input | Output), buffer
        values = op.operands if isinstance(buffer, Input) else op.results
        return self.frame.pointers[values[buffer.index]]

    def _packed(self, pack: Pack, op: ir.Operation) -> list[tuple[int, int, int]]:
        """Of every part: the argument or constant, the slot, and the parameters of its launch, -1
        if it cannot be filled after the call.
        """
        can_wait = self._can_wait(pack, op)
        sources = self.frame.origins.packable(pack, op)
        assert sources is not None
        return [
            (*self.tables.pack(origin, key), len(part.fill.params) if can_wait else -1)
            for part, (origin, key) in zip(pack.parts, sources, strict=True)
        ]

    def _can_wait(self, pack: Pack, op: ir.Operation) -> bool:
        """True if copies can be filled after the call: from memory that outlives it."""
        sources = self.frame.origins.packable(pack, op)
        assert sources is not None
        return not self.frame.loops and not any(origin.computed for origin, _ in sources)

    def _lacks(self, pack: Pack, op: ir.Operation) -> bool | None:
        """Whether the first call does without the copies; None where that is unknown."""
        sizes = self.frame.shapes.at_call
        if pack.may_wait is None or not self._can_wait(pack, op):
            return False
        return None if sizes is None else holds_at(pack.may_wait, sizes)

    # ---------------------------------------------------------------- by a function

    def _call(self, plan: KernelPlan, op: ir.Operation) -> None:
        frame, w = self.frame, self.frame.w
        launches = [*_launches(plan.steps)]
        places = self._places(launches)
        shapes = tuple(tuple(frame.shapes.shape(value)) for value in op.operands)
        key = plan.steps, plan.workspaces, shapes
        if key not in self._called:
            self._called[key] = self._function_of(_written(plan, places), shapes)
        function, symbols = self._called[key]
        use, first = len(frame.record.uses) - 1, len(self.tables.sites)
        self.tables.sites += [Site(use, one.launch.kernel.name, one.packs) for one in launches]
        used = _buffers(plan)
        inputs = [Input(number) for number in range(len(op.operands))]
        outputs = [Output(number) for number in range(len(op.results))]
        given = [self._buffer(b, op) if b in used else w.null() for b in (*inputs, *outputs)]
        packs = [
            Expr.const(number)
            for pack in _packs(plan)
            for place in self._packed(pack, op)
            for number in place
        ]
        w.call_plan(
            function,
            self.tables.entry(~function),
            w.the_context,
            addresses(w, given),
            w.sizes_array([*map(Expr.symbol, symbols)]),
            w.offset(frame.arena, frame.workspace_base),
            w.sizes_array(packs),
            w.const(first),
            w.const(self.tables.entries(tuple(map(self.tables.index, places)))),
        )

    def _places(self, launches: Sequence[_Launched]) -> dict[KernelText, int]:
        """The kernels of a plan, which the program has now, and their numbers in it."""
        places: dict[KernelText, int] = {}
        for launch, _, is_late in launches:
            for kernel in launch.kernels:
                index = self.tables.kernel(kernel, wanted=not is_late)
                if not is_late:
                    self.tables.unasked.add(index)
                places.setdefault(kernel.source, len(places))
        return places

    def _function_of(self, plan: KernelPlan, shapes: Sequence[Shape]) -> tuple[int, list[str]]:
        """The function for operands of such `shapes`, and what it takes as sizes."""
        symbols = _symbols(plan, shapes)
        names = [f"s{number}" for number in range(len(symbols))]
        renamed = with_sizes(plan, renaming(symbols, names))
        lows = tuple(map(self._low, symbols))
        about = (renamed, len(shapes), tuple(zip(names, lows, strict=True)))
        if about not in self._numbers:
            self._numbers[about] = len(self.functions)
            self.functions.append(self._function(about))
        return self._numbers[about], symbols

    def _low(self, symbol: str) -> int | None:
        """A lower bound of `symbol`, 0 or 1: more is of no use. None: it may be negative."""
        low, _ = self.frame.shapes.constraints.bounds(Expr.symbol(symbol))
        return None if low is None or low < 0 else min(low, 1)

    def _function(self, about: About) -> PlanFunction:
        function = None if self._kept is None else self._kept.found_function(about)
        if function is None:
            function = PlanFunction(Later.of(_parts(self.frame.memory, *about)))
            if self._kept is not None:
                self._kept.keep_function(about, function)
        self.tables.function(function)
        return function


def _symbols(plan: KernelPlan, shapes: Sequence[Shape]) -> list[str]:
    """The symbols of the plan, in an order that does not depend on their names if it can."""
    used = {symbol for size in _sizes(plan) for symbol in size.symbols()}
    plain = [s for shape in shapes for size in shape for s in size.symbols()
             if s in used and size == Expr.symbol(s)]  # fmt: skip
    return [*dict.fromkeys([*plain, *sorted(used)])]


def _parts(
    memory: HostMemory, plan: KernelPlan, operands: int, sizes: tuple[tuple[str, int | None], ...]
) -> Parts:
    """The text of the function of a plan, of which this is all that it depends on."""
    facts = Constraints()
    for name, low in sizes:
        if low is None:
            facts.add_signed(name)
        else:
            facts.add_lower(Expr.symbol(name), low)
    w = HostWriter("sizes", [name for name, _ in sizes], facts.is_natural)
    blocks, _ = w.blocks(w.argument("workspace"), w.const(0), plan.workspaces)
    packs = _packs(plan)
    firsts = itertools.accumulate((3 * len(pack.parts) for pack in packs), initial=0)
    numbers = dict(zip(packs, firsts, strict=False))
    sites = itertools.count()

    def buffer(of: Buffer) -> Pointer:
        if isinstance(of, Workspace):
            return blocks[of.index]
        assert not isinstance(of, Packed), of
        index = of.index if isinstance(of, Input) else operands + of.index
        return w.pointer(w.argument("buffers"), index)

    def packed(pack: Pack) -> list[tuple[Register, ...]]:
        given = w.argument("packs")
        first = numbers[pack]
        at = [w.element_address(given, first + k, "i64") for k in range(3 * len(pack.parts))]
        found = [*map(w.loaded_size, at)]
        return [*zip(found[::3], found[1::3], found[2::3], strict=True)]

    writer = PlanWriter(
        Tables(None),
        w,
        memory,
        buffer=buffer,
        packed=packed,
        site=lambda _, __: Mark(next(sites), first="%site"),
        numbered=lambda kernel, _: w.number("kernels") + int(kernel.name),
    )
    writer.steps(plan.steps)
    return tuple(
        w.parts(
            "func.func @KERNEL(%ctx: !llvm.ptr, %buffers: !llvm.ptr, %sizes: !llvm.ptr, "
            "%workspace: !llvm.ptr, %packs: !llvm.ptr, %site: i64, %kernels: i64)"
        )
    )


class _Launched(NamedTuple):
    """A launch of a plan."""

    launch: Launch
    packs: bool
    """True if it fills a packed copy."""
    is_late: bool
    """Some calls do without it."""


def _launches(steps: tuple[Step, ...], is_late: bool = False) -> Iterator[_Launched]:
    """Every launch, in the order of the text."""
    for step in steps:
        if isinstance(step, Launch):
            yield _Launched(step, False, is_late)
        elif isinstance(step, If):
            yield from _launches((*step.then, *step.otherwise), True)
        elif isinstance(step, Pack):
            yield from (_Launched(part.fill, True, True) for part in step.parts)
            yield from _launches((*step.otherwise, *step.then), True)


def _written(plan: KernelPlan, places: Mapping[KernelText, int]) -> KernelPlan:
    """What the text of a plan depends on: kernels are their numbers."""

    def put(kernel: Kernel) -> Kernel:
        return Kernel(str(places[kernel.source]), "")

    steps = _plain(plan.steps, itertools.count())
    put_all = rewritten(steps, lambda step: step.with_kernels(put))
    return KernelPlan(put_all, plan.workspaces)


def _plain(steps: tuple[Step, ...], numbers: Iterator[int]) -> tuple[Step, ...]:
    """The steps without reasons, and with numbers in place of the keys of packed copies."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Launch | Call):
            out.append(step)
            continue
        parts: tuple[Part, ...] = ()
        if isinstance(step, Pack):
            parts = tuple(replace(part, key=str(next(numbers)), layout=()) for part in step.parts)
        then, otherwise = _plain(step.then, numbers), _plain(step.otherwise, numbers)
        if isinstance(step, Pack):
            out.append(Pack(parts, then, otherwise, (), step.may_wait))
        else:
            out.append(If(step.condition, then, otherwise))
    return tuple(out)


def _sizes(plan: KernelPlan) -> set[Expr]:
    found: set[Expr] = set()

    def note(size: Expr) -> Expr:
        found.add(size)
        return size

    with_sizes(plan, note)
    return found


def _buffers(plan: KernelPlan) -> set[Buffer]:
    found: set[Buffer] = set()

    def note(step: Launch) -> Launch:
        found.update(arg for arg in step.args if not isinstance(arg, Kernel))
        found.update(buffer for buffer, _ in step.zeroed)
        return step

    rewritten(plan.steps, note)
    return found


def _packs(plan: KernelPlan) -> list[Pack]:
    """Every pack, in order."""
    return [step for step in every(plan.steps) if isinstance(step, Pack)]


def _copied(_: Pack) -> bool:
    """Of calls that find all copies, or make them."""
    return False
