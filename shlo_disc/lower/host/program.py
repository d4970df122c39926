"""The host program: sizes, guards, arena, control flow and launches as two native functions.

`prepare` and `run` are described in `ral/include/disc_ral.h`. Both are emitted as MLIR text
(`func`, `arith`, `scf`, `llvm`) and compiled like the kernels, without optimising hard: they
are straight-line code that runs once per call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.errors import UnsupportedError
from shlo_disc.locations import source_line
from shlo_disc.lower.host.addresses import Addresses
from shlo_disc.lower.host.constants import constant_bytes
from shlo_disc.lower.host.foreign import can_fail, emit_fft, emit_foreign, unless_failed
from shlo_disc.lower.host.prepare import prepare
from shlo_disc.lower.host.scalars import emit_scalars, read_flag
from shlo_disc.lower.host.updates import stored_update, update_address
from shlo_disc.lower.host.uses import KernelUse, Site, UseRecorder
from shlo_disc.lower.host.writer import (
    CONSTANTS,
    KERNELS,
    PACKED,
    PACKED_DONE,
    HostWriter,
)
from shlo_disc.lower.plan import (
    All,
    Buffer,
    Call,
    Condition,
    FfiCall,
    FftCall,
    If,
    Input,
    Kernel,
    KernelPlan,
    Launch,
    Output,
    Pack,
    Packed,
    Part,
    Step,
    Workspace,
    sizes_of,
)
from shlo_disc.lower.refused import Refused
from shlo_disc.lower.speculate import Likely, Speculation
from shlo_disc.lower.target import Target
from shlo_disc.mlir import ir
from shlo_disc.passes.op_classes import RESHAPES
from shlo_disc.passes.places import At, Mode, Place, carries_of, places_of, reuses_of

__all__ = ["HostProgram", "emit_host"]

_Places = Mapping[Buffer, str]
"""The addresses of a plan's temporary blocks and packed copies."""


@dataclass
class HostProgram:
    """Native host code as text, and what it refers to by index."""

    text: str
    kernels: list[Kernel]
    constants: list[npt.NDArray[np.uint8]]
    pack_keys: list[str]
    packed_arguments: set[int]
    """Main arguments some kernel wants packed."""
    unread_arguments: tuple[int, ...]
    """Main arguments whose memory the program does not touch; it may ask for their sizes."""
    uses: list[KernelUse]
    sites: list[Site]
    """Every launch in the text, in order of its comments `// launch N` and `// launched N`."""
    arena: tuple[Expr, ...]
    """Bytes of every slot."""
    workspaces: tuple[tuple[Expr, ...], ...]
    """Bytes of the temporary blocks of a kernel, for every kernel that has some."""
    reuses: tuple[tuple[int, int], ...]
    """(donated argument, result): the result may be in the argument's memory."""
    foreign: list[tuple[FfiCall, str]] = field(default_factory=list)
    """Calls of FFI handlers, each with its source line."""


def emit_host(
    func: ir.Operation,
    shapes: ShapeAnalysis,
    program: ShapeProgram,
    target: Target,
    likely: Likely | None = None,
    written: Callable[[Kernel], object] | None = None,
) -> HostProgram:
    """The host program of `func`, a `main` annotated by plan-buffers.

    `likely`: values of symbols to have kernels for (see `lower.speculate`). `written` is given each
    kernel as soon as its text is known. Raises Refused with the fusions no kernel could be written
    for, ValueError when `likely` names no symbol of the program.
    """
    speculation = Speculation(shapes, likely or {})
    run = _Run(func, shapes, program, target, speculation, written)
    run_text = run.emit()
    if run.refused:
        raise Refused(run.refused)
    prepare_text = prepare(program, run.slot_sizes, list(run.workspaces))
    return HostProgram(
        prepare_text + run_text,
        list(run.kernels.values()),
        run.constants,
        list(run.pack_slots),
        run.packed_arguments,
        run.unread(),
        run.record.uses,
        run.sites,
        tuple(run.slot_sizes),
        tuple(run.workspaces),
        tuple(run.reuses),
        run.foreign,
    )


@dataclass(frozen=True)
class _Origin:
    """Where a value comes from that the runtime may pack."""

    index: int
    """An argument, or -1 - the number of a constant."""
    sizes: tuple[Expr, ...]
    """Of that argument or constant: copies are kept beside it, so they may depend on no others."""
    computed: str = ""
    """A digest of what was computed from it; part of the key under which copies are kept."""

    def tells(self, size: Expr) -> bool:
        """True if the sizes of the argument or constant determine `size`."""
        known = {symbol for own in self.sizes for symbol in own.symbols() if _is_injective(own)}
        return size in self.sizes or size.symbols() <= known


@dataclass
class _Run:
    func: ir.Operation
    shapes: ShapeAnalysis
    program: ShapeProgram
    target: Target
    speculation: Speculation
    written: Callable[[Kernel], object] | None
    kernels: dict[str, Kernel] = field(default_factory=dict)
    kernel_index: dict[str, int] = field(default_factory=dict)
    constants: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    pack_slots: dict[str, int] = field(default_factory=dict)
    packed_arguments: set[int] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    plans: dict[object, tuple[KernelPlan, tuple[str, ...]]] = field(default_factory=dict)
    workspaces: dict[tuple[Expr, ...], None] = field(default_factory=dict)
    foreign: list[tuple[FfiCall, str]] = field(default_factory=list)
    refused: list[tuple[ir.Operation, Exception]] = field(default_factory=list)
    """Fusions no kernel could be written for; the text is of no use then."""

    def __post_init__(self) -> None:
        self.w = HostWriter("%symbols", self.program.symbol_names)
        self.memory = self.target.memory
        self.pointers = Addresses()
        self.origin: dict[ir.Value, _Origin] = {}
        """Values the runtime may pack."""
        self.next: dict[int, str] = {}
        self.record = UseRecorder(self.shapes)
        self.can_fail = can_fail(self.func)
        self.reuses = reuses_of(self.func)
        slots = ir.ArrayAttr(self.func.attributes["disc.arena"])
        self.slot_sizes = [Expr.parse(ir.StringAttr(s).value) for s in slots]

    def emit(self) -> str:
        """The text of `run`; fills the tables."""
        block = self.func.regions[0].blocks[0]
        self._slot_pointers()
        for index, argument in enumerate(block.arguments):
            self.pointers.argument(argument, index, self.w.pointer("%args", index))
            self.origin[argument] = _Origin(index, self.shapes.shape(argument))
            self.record.argument(argument, index)
        self._block(block)
        last = block.operations[len(block.operations) - 1].operation
        for index, value in enumerate(last.operands):
            self._copy(self._result(index), value)
        return self.w.function(
            "func.func @run(%ctx: !llvm.ptr, %args: !llvm.ptr, %results: !llvm.ptr, "
            "%symbols: !llvm.ptr, %arena: !llvm.ptr)"
        )

    def unread(self) -> tuple[int, ...]:
        """The arguments whose memory neither the text of `run` nor the runtime uses."""
        used = self.pointers.used | self.packed_arguments | {*self.program.size_arguments}
        return tuple(k for k in range(len(self.program.arguments)) if k not in used)

    # -- memory ---------------------------------------------------------------------------------

    def _slot_pointers(self) -> None:
        w = self.w
        offset = w.const(0)
        self.slots: list[str] = []
        for size in self.slot_sizes:
            self.slots.append(w.offset("%arena", offset))
            offset = w.once(f"arith.addi {offset}, {w.aligned(size)} : i64")
        self.workspace_base = offset

    def _result(self, index: int) -> str:
        return self.w.pointer("%results", index)

    def _put_results(self, op: ir.Operation) -> None:
        """Results of `op` are where plan-buffers says."""
        for result, place in zip(op.results, places_of(op), strict=True):
            if place.at == At.INPLACE:
                self.pointers.same(result, op.operands[place.number])
            elif place.at == At.UPDATE:
                update = stored_update(result, self.shapes)
                address = update_address(self.w, self.memory, update, self.pointers, self.shapes)
                self.pointers.put(result, address)
            else:
                self.pointers.put(result, self._place(place))

    def _place(self, place: Place) -> str:
        """The address of a place that no operand has."""
        if place.at == At.SLOT:
            return self.slots[place.number]
        if place.at == At.NEXT:
            return self.next[place.number]
        assert place.at == At.RESULT, place
        return self._result(place.number)

    def _copy(self, destination: str, value: ir.Value) -> None:
        source = self.pointers[value]
        if source != destination:
            self.memory.copy(self.w, destination, source, value_bytes(value, self.shapes))

    # -- ops ------------------------------------------------------------------------------------

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "disc.fusion":
                self._fusion(op)
            elif op.name in RESHAPES:
                self.pointers.same(op.results[0], op.operands[0])
                self.record.same(op.results[0], op.operands[0])
                if op.operands[0] in self.origin:
                    self.origin[op.results[0]] = self.origin[op.operands[0]]
            elif op.name == "stablehlo.constant":
                self._constant(op)
            elif op.name == "disc.empty":
                if places_of(op):  # else nobody reads it
                    self._put_results(op)
            elif op.name == "stablehlo.while":
                self._while(op)
            elif op.name in ("stablehlo.case", "stablehlo.if"):
                self._case(op)
            elif not op.name.endswith(".return") and op.name not in ("disc.shape", "disc.guard"):
                raise UnsupportedError(f"{op.name} cannot run on the host (at {op.location})")

    def _constant(self, op: ir.Operation) -> None:
        index = len(self.constants)
        self.constants.append(constant_bytes(op))
        self.pointers.put(op.results[0], self.w.pointer(self.w.context(CONSTANTS), index))
        self.origin[op.results[0]] = _Origin(-1 - index, self.shapes.shape(op.results[0]))
        self.record.constant(op.results[0], index)

    def _fusion(self, op: ir.Operation) -> None:
        kind = ir.StringAttr(op.attributes["kind"]).value
        self._put_results(op)
        if kind == "host" or "disc.stored" in op.attributes:
            if kind == "host":
                emit_scalars(self.w, self.memory, op, self.pointers)
            self.record.fusion(op, "host", KernelPlan(()), ())
            return
        try:
            plan, decisions = self._plan(op, kind)
        except MemoryError:
            raise
        except Exception as error:  # whatever it is, the fusion may be planned again
            self.refused.append((op, error))
            return
        plan = replace(plan, steps=self._possible(plan.steps, op))
        self.record.fusion(op, kind, plan, decisions)
        steps = plan.steps
        blocks = self._places(plan.workspaces)
        copied_to = places_of(op)[0].at if plan.copies_operand else None
        if copied_to == At.INPLACE:
            steps = steps[1:]
        elif copied_to == At.RESULT and self.reuses:
            # A donated argument may be where the result is: then there is nothing to copy.
            here, there = self.pointers[op.operands[0]], self.pointers[op.results[0]]
            differ = self.w.fresh("differ")
            self.w.line(f'{differ} = llvm.icmp "ne" {here}, {there} : !llvm.ptr')
            self.w.line(f"scf.if {differ} {{")
            self._steps(steps[:1], op, blocks)
            self.w.line("}")
            steps = steps[1:]
        self._steps(steps, op, blocks)
        self._derive(op, kind, plan)

    def _derive(self, op: ir.Operation, kind: str, plan: KernelPlan) -> None:
        """Results of one packable value alone (a slice of a weight) may be packed beside it."""
        origin = self.origin.get(op.operands[0]) if len(op.operands) == 1 else None
        if origin is None or kind not in ("column", "loop", "row"):
            return
        sizes = [size for value in (*op.operands, *op.results) for size in self.shapes.shape(value)]
        if not all(map(origin.tells, (*sizes, *sizes_of(plan.steps)))):
            return
        # The plan holds the texts of its kernels, so it determines every bit of the results.
        digest = hashlib.sha256(repr((origin.computed, plan)).encode()).hexdigest()
        for number, result in enumerate(op.results):
            computed = f"{digest} {number}"
            self.origin[result] = replace(origin, computed=computed)

    def _key(self, part: Part, value: ir.Value, origin: _Origin) -> str | None:
        """What tells the packed copy from others beside the same buffer, in this program and in
        others; None where sizes of the call that the buffer does not have decide what is in it.
        """
        sizes = self.shapes.shape(value)
        needed = (*sizes, part.bytes, part.elements, part.fill.extent, *part.fill.params)
        if not all(map(origin.tells, needed)):
            return None
        # Names of symbols mean something beside the sizes of the buffer only.
        shapes = tuple(map(str, origin.sizes)), tuple(map(str, sizes))
        return repr((part.key, *shapes, origin.computed))

    def _plan(self, op: ir.Operation, kind: str) -> tuple[KernelPlan, tuple[str, ...]]:
        """The emitter's plan, and what was decided of its variants; equal fusions on equal shapes
        share one.

        Emitters read starts and paddings from operands with known elements, which the key holds.
        """
        shapes = [(self.shapes.shape(v), self.shapes.entries(v)) for v in op.operands]
        key = (_structure(op), *shapes)
        found = self.plans.get(key)
        if found is None:
            emitter = self.target.emitters.get(kind)
            if emitter is None:
                raise UnsupportedError(
                    f"target {self.target.name} has no kernel for {kind} (at {op.location}); "
                    "keep it outside shlo_disc.jit"
                )
            found = self.plans[key] = self.speculation.plan(
                op, lambda shapes: emitter(op, shapes, self.target.machine)
            )
        return found

    def _places(self, sizes: tuple[Expr, ...]) -> _Places:
        """The addresses of a plan's temporary blocks, of these sizes in bytes."""
        if sizes:
            self.workspaces[sizes] = None
        w = self.w
        offset = self.workspace_base
        places: dict[Buffer, str] = {}
        for index, size in enumerate(sizes):
            places[Workspace(index)] = w.offset("%arena", offset)
            offset = w.once(f"arith.addi {offset}, {w.aligned(size)} : i64")
        return places

    # -- kernel plans ---------------------------------------------------------------------------

    def _possible(self, steps: tuple[Step, ...], op: ir.Operation) -> tuple[Step, ...]:
        """`steps` with `never` in place of the packs that operands of `op` cannot have."""
        out: list[Step] = []
        for step in steps:
            if isinstance(step, Pack) and self._packable(step, op) is None:
                out += self._possible(step.never, op)
            elif isinstance(step, Launch | Call):
                out.append(step)
            else:
                then = self._possible(step.then, op)
                out.append(replace(step, then=then, otherwise=self._possible(step.otherwise, op)))
        return tuple(out)

    def _packable(self, pack: Pack, op: ir.Operation) -> list[tuple[_Origin, str]] | None:
        """Origin and key of every packed operand; None where one can have no copy."""
        found: list[tuple[_Origin, str]] = []
        for part in pack.parts:
            value = op.operands[part.operand]
            origin = self.origin.get(value)
            key = self._key(part, value, origin) if origin is not None else None
            if origin is None or key is None:
                return None
            found.append((origin, key))
        return found

    def _steps(self, steps: tuple[Step, ...], op: ir.Operation, places: _Places) -> None:
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step, op, places)
            elif isinstance(step, FfiCall):
                self._foreign(step, op, places)
            elif isinstance(step, FftCall):
                self._fft(step, op, places)
            elif isinstance(step, If):
                self.w.line(f"scf.if {self._condition(step.condition)} {{")
                self._steps(step.then, op, places)
                self.w.line("} else {")
                self._steps(step.otherwise, op, places)
                self.w.line("}")
            else:
                self._pack(step, op, places)

    def _condition(self, condition: Condition | All) -> str:
        w = self.w
        if isinstance(condition, All):
            first, *others = (self._condition(one) for one in condition.conditions)
            for other in others:
                first = w.once(f"arith.andi {first}, {other} : i1")
            return first
        return w.compare(w.size(condition.lhs), condition.op, w.size(condition.rhs))

    def _launch(
        self, launch: Launch, op: ir.Operation, places: _Places, packs: bool = False
    ) -> None:
        w = self.w
        site = len(self.sites)
        self.sites.append(Site(len(self.record.uses) - 1, launch.kernel.name, packs))
        w.line(f"// launch {site}")
        kernel, *called = (self._kernel(k) for k in (launch.kernel, *launch.calls))
        given = [*called, *(self._buffer(buffer, op, places) for buffer in launch.args)]
        room = max(_ARGUMENTS, 1 << (len(given) - 1).bit_length())
        arguments = w.array(room, "!llvm.ptr", "arguments")
        for position, address in enumerate(given):
            w.store(address, arguments, position, "!llvm.ptr")
        if launch.zeroed is not None:
            buffer, count = launch.zeroed
            self.memory.zero(w, self._buffer(buffer, op, places), count)
        sizes = w.sizes_array(launch.params)
        self.memory.launch(w, launch, kernel, arguments, sizes)
        w.line(f"// launched {site}")

    def _foreign(self, call: FfiCall, op: ir.Operation, places: _Places) -> None:
        site = len(self.sites)
        self.sites.append(Site(len(self.record.uses) - 1, f"@{call.target}", packs=False))
        self.w.line(f"// launch {site}")
        operands = [self._buffer(buffer, op, places) for buffer in call.operands]
        results = [self._buffer(buffer, op, places) for buffer in call.results]
        emit_foreign(self.w, self.memory, len(self.foreign), call, operands, results)
        self.foreign.append((call, source_line(op)))
        self.w.line(f"// launched {site}")

    def _fft(self, call: FftCall, op: ir.Operation, places: _Places) -> None:
        site = len(self.sites)
        self.sites.append(Site(len(self.record.uses) - 1, "fft", packs=False))
        self.w.line(f"// launch {site}")
        emit_fft(self.w, call, [self._buffer(buffer, op, places) for buffer in call.buffers])
        self.w.line(f"// launched {site}")

    def _kernel(self, kernel: Kernel) -> str:
        """The address of a kernel, which is compiled once for equal texts."""
        if kernel.text not in self.kernels:
            self.kernel_index[kernel.text] = len(self.kernels)
            self.kernels[kernel.text] = kernel
            if self.written is not None:
                self.written(kernel)
        return self.w.pointer(self.w.context(KERNELS), self.kernel_index[kernel.text])

    def _buffer(self, buffer: Buffer, op: ir.Operation, places: _Places) -> str:
        if isinstance(buffer, Input):
            return self.pointers[op.operands[buffer.index]]
        if isinstance(buffer, Output):
            return self.pointers[op.results[buffer.index]]
        return places[buffer]

    def _pack(self, pack: Pack, op: ir.Operation, places: _Places) -> None:
        sources = self._packable(pack, op)
        assert sources is not None
        w = self.w
        copies: dict[Buffer, str] = {}
        missing = ""
        zero, two = w.once("arith.constant 0 : i32"), w.once("arith.constant 2 : i32")
        for part, (origin, key) in zip(pack.parts, sources, strict=True):
            if origin.index >= 0:
                self.packed_arguments.add(origin.index)
            slot = self.pack_slots.setdefault(key, len(self.pack_slots))
            arg, slot_name = w.const(origin.index), w.const(slot)
            found = w.array(1, "!llvm.ptr", "packed")
            state, here, none, fill = (w.fresh(x) for x in ("state", "kept", "none", "fill"))
            w.line(
                f"{state} = llvm.call {w.context(PACKED)}(%ctx, {arg}, {slot_name}, "
                f"{w.size(part.bytes)}, {found}) : !llvm.ptr, "
                "(!llvm.ptr, i64, i64, i64, !llvm.ptr) -> i32"
            )
            w.line(f"{here} = llvm.load {found} : !llvm.ptr -> !llvm.ptr")
            w.line(f"{fill} = arith.cmpi eq, {state}, {two} : i32")
            w.line(f"scf.if {fill} {{")
            self._launch(part.fill, op, {Packed(part.operand): here}, packs=True)
            w.line(
                f"llvm.call {w.context(PACKED_DONE)}(%ctx, {arg}, {slot_name}, {here}) : "
                "!llvm.ptr, (!llvm.ptr, i64, i64, !llvm.ptr) -> ()"
            )
            w.line("}")
            w.line(f"{none} = arith.cmpi eq, {state}, {zero} : i32")
            if missing:
                both = w.fresh("none")
                w.line(f"{both} = arith.ori {missing}, {none} : i1")
                none = both
            copies[Packed(part.operand)] = here
            missing = none
        w.line(f"scf.if {missing} {{")
        self._steps(pack.otherwise, op, places)
        w.line("} else {")
        self._steps(pack.then, op, {**places, **copies})
        w.line("}")

    # -- control flow ---------------------------------------------------------------------------

    def _while(self, op: ir.Operation) -> None:
        w = self.w
        condition, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
        self.record.enter(op)
        swaps: dict[int, tuple[int, int]] = {}
        stored: list[int] = []
        for index, carry in enumerate(carries_of(op)):
            if carry.slots is not None:
                swaps[index] = carry.slots
                continue
            if carry.mode == Mode.STORED:
                stored.append(index)
                continue
            carried = (condition.arguments[index], body.arguments[index], op.results[index])
            if carry.buffer is not None:
                start = self._place(carry.buffer)
                if op.operands[index] in self.pointers:  # a `disc.empty` has nothing to copy
                    self._copy(start, op.operands[index])
                for value in carried:
                    self.pointers.put(value, start)
            else:
                for value in carried:
                    self.pointers.same(value, op.operands[index])
            origin = self.origin.get(op.operands[index])
            if carry.mode == Mode.SAME and origin is not None:
                self.origin[body.arguments[index]] = self.origin[op.results[index]] = origin
                self.origin[condition.arguments[index]] = origin
        result = w.fresh("loop")
        inits, names = [], []
        for index, (first, second) in swaps.items():
            inits += [self.pointers[op.operands[index]], self.slots[first], self.slots[second]]
            names += [w.fresh("now"), w.fresh("next"), w.fresh("other")]
        inits += [self.pointers[op.operands[index]] for index in stored]
        names += [w.fresh("now") for _ in stored]
        moving = [3 * k for k in range(len(swaps))]
        moving += range(3 * len(swaps), len(names))
        types = ", ".join(["!llvm.ptr"] * len(inits))
        heads = ", ".join(f"{n} = {i}" for n, i in zip(names, inits, strict=True))
        into = f"{result}:{len(inits)} = " if inits else ""
        w.line(f"{into}scf.while ({heads}) : ({types}) -> ({types}) {{")
        for k, index in zip(moving, (*swaps, *stored), strict=True):
            self.pointers.put(condition.arguments[index], names[k])
        self._block(condition)
        flag = condition.operations[len(condition.operations) - 1].operation.operands[0]
        go = self._load_flag(flag)
        if self.can_fail:
            go = unless_failed(w, go)
        tail = f" {', '.join(names)} : {types}" if names else ""
        w.line(f"scf.condition({go}){tail}")
        w.line("} do {")
        inner = [w.fresh("b") for _ in names]
        w.line("^bb0(" + ", ".join(f"{n}: !llvm.ptr" for n in inner) + "):")
        outer_next = self.next
        self.next = {}
        for k, index in zip(moving, (*swaps, *stored), strict=True):
            self.pointers.put(body.arguments[index], inner[k])
        for k, index in enumerate(swaps):
            self.next[index] = inner[3 * k + 1]
        self._block(body)
        last = body.operations[len(body.operations) - 1].operation
        yields = []
        for k, index in enumerate(swaps):
            self._copy(self.next[index], last.operands[index])
            _, following, other = inner[3 * k : 3 * k + 3]
            yields += [following, other, following]
        yields += [self.pointers[last.operands[index]] for index in stored]
        self.next = outer_next
        w.line(f"scf.yield {', '.join(yields)} : {types}" if yields else "scf.yield")
        w.line("}")
        for k, index in zip(moving, (*swaps, *stored), strict=True):
            self.pointers.put(op.results[index], f"{result}#{k}")
        self.record.leave(op)

    def _load_flag(self, value: ir.Value) -> str:
        return read_flag(self.w, self.memory, self.pointers[value])

    def _case(self, op: ir.Operation) -> None:
        w = self.w
        self._put_results(op)
        self.record.enter(op)
        if op.name == "stablehlo.if":
            w.line(f"scf.if {self._load_flag(op.operands[0])} {{")
            self._branch(op, 0)
            w.line("} else {")
            self._branch(op, 1)
            w.line("}")
            self.record.leave(op)
            return
        number = self.memory.read(w, self.pointers[op.operands[0]], "i32", "number")
        index = w.fresh("branch")
        w.line(f"{index} = arith.index_cast {number} : i32 to index")
        w.line(f"scf.index_switch {index}")
        for branch in range(len(op.regions) - 1):
            w.line(f"case {branch} {{")
            self._branch(op, branch)
            w.line("scf.yield")
            w.line("}")
        w.line("default {")
        self._branch(op, len(op.regions) - 1)
        w.line("scf.yield")
        w.line("}")
        self.record.leave(op)

    def _branch(self, op: ir.Operation, number: int) -> None:
        block = op.regions[number].blocks[0]
        self._block(block)
        last = block.operations[len(block.operations) - 1].operation
        for result, value in zip(op.results, last.operands, strict=True):
            self._copy(self.pointers[result], value)


_ARGUMENTS = 64
"""Addresses an array for a launch has room for; of more there are arrays of powers of two."""


def _is_injective(size: Expr) -> bool:
    """True if `size` determines its one symbol (`4*k`)."""
    factors = [factor for monomial, _ in size.terms for factor in monomial]
    return len(factors) == 1 and all(not atom.op and power == 1 for atom, power in factors)


def _structure(fusion: ir.Operation) -> tuple[object, ...]:
    """A hashable form of what determines a fusion's kernel: equal for equal computations."""
    reduced, given = (fusion.attributes.get(name, None) for name in ("reduced", "given"))
    return fusion.attributes["kind"], reduced, given, _form(fusion.regions[0].blocks[0], {})


def _form(block: ir.Block, numbers: dict[ir.Value, int]) -> tuple[object, ...]:
    """The same of a block; values have numbers in the order in which they are made."""
    for argument in block.arguments:
        numbers[argument] = len(numbers)
    found: list[object] = [tuple(argument.type for argument in block.arguments)]
    for view in block.operations:
        op = view.operation
        operands = tuple(numbers[value] for value in op.operands)
        regions = tuple(_form(inner, numbers) for region in op.regions for inner in region.blocks)
        for result in op.results:
            numbers[result] = len(numbers)
        attributes = tuple((name, op.attributes[name]) for name in op.attributes)
        types = tuple(result.type for result in op.results)
        found.append((op.name, operands, attributes, types, regions))
    return tuple(found)
