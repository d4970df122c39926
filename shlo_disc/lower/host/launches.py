"""Kernel plans in the host program: launches, variants, packed copies, calls of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from shlo_disc.dynamic.expr import Expr
from shlo_disc.locations import source_line
from shlo_disc.lower.host.foreign import emit_fft, emit_foreign
from shlo_disc.lower.host.frame import Frame
from shlo_disc.lower.host.uses import Site
from shlo_disc.lower.host.writer import ADDRESS, INLINED, KERNELS, PACKED, PACKED_DONE
from shlo_disc.lower.plan import (
    All,
    Buffer,
    Condition,
    FfiCall,
    FftCall,
    If,
    Input,
    Kernel,
    Launch,
    Output,
    Pack,
    Packed,
    Step,
    Workspace,
)
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.mlir import ir

__all__ = ["Launches"]

_Places = Mapping[Buffer, Pointer]
"""The addresses of a plan's temporary blocks and packed copies."""

_ARGUMENTS = 64
"""Addresses an array for a launch has room for; of more there are arrays of powers of two."""

_COPIED_LINES = 500
"""Of a kernel that a host program has a copy of, such as one with a sine; longer ones take longer
than a launch."""

_ALL_COPIED_LINES = 1500
"""Of all kernels that a host program has copies of: they are compiled once more."""


class Launches:
    """Writes the steps of plans, and lists what they refer to by index.

    `written` is given each kernel as soon as its text is known.
    """

    def __init__(self, frame: Frame, written: Callable[[Kernel], object] | None) -> None:
        self.frame = frame
        self.w = frame.w
        self.written = written
        self.kernels: dict[str, Kernel] = {}
        self.kernel_index: dict[str, int] = {}
        self.pack_slots: dict[str, int] = {}
        self.packed_arguments: set[int] = set()
        self.sites: list[Site] = []
        self.workspaces: dict[tuple[Expr, ...], None] = {}
        self.foreign: list[tuple[FfiCall, str]] = []
        self._copies: dict[str, str] = {}
        """Texts of kernels to the functions of the host program that are copies of them."""
        self._copied_lines = 0

    def places(self, sizes: tuple[Expr, ...]) -> _Places:
        """The addresses of a plan's temporary blocks, of these sizes in bytes."""
        if sizes:
            self.workspaces[sizes] = None
        addresses, _ = self.w.blocks(self.frame.arena, self.frame.workspace_base, sizes)
        return {Workspace(index): address for index, address in enumerate(addresses)}

    def steps(self, steps: tuple[Step, ...], op: ir.Operation, places: _Places) -> None:
        """Write the steps of the plan of `op`."""
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step, op, places)
            elif isinstance(step, FfiCall):
                self._foreign(step, op, places)
            elif isinstance(step, FftCall):
                self._fft(step, op, places)
            elif isinstance(step, If):
                with self.w.if_(self._condition(step.condition)) as branch:
                    self.steps(step.then, op, places)
                    with branch.otherwise():
                        self.steps(step.otherwise, op, places)
            else:
                self._pack(step, op, places)

    def _condition(self, condition: Condition | All) -> Mask:
        w = self.w
        if isinstance(condition, All):
            first, *others = (self._condition(one) for one in condition.conditions)
            for other in others:
                first = first & other
            return first
        return w.compare(w.size(condition.lhs), condition.op, w.size(condition.rhs))

    def _launch(
        self, launch: Launch, op: ir.Operation, places: _Places, packs: bool = False
    ) -> None:
        w = self.w
        with self._site(launch.kernel.name, packs=packs):
            if launch.zeroed is not None:
                buffer, count = launch.zeroed
                self.frame.memory.zero(w, self._buffer(buffer, op, places), count)
            given = [self._buffer(buffer, op, places) for buffer in launch.args]
            in_loop = self.frame.loops > 0 and self.frame.memory.calls_kernels
            alone = in_loop and not launch.calls and self.frame.memory.is_alone(w, launch)
            if alone is True and self._has_copy(launch.kernel):
                self._call_copy(launch, given)
                return
            kernel, *called = (self._kernel(k) for k in (launch.kernel, *launch.calls))
            given = [*called, *given]
            room = max(_ARGUMENTS, 1 << (len(given) - 1).bit_length())
            arguments = w.array(room, ADDRESS, "arguments")
            for position, address in enumerate(given):
                w.store_element(address, arguments, position)
            sizes = w.sizes_array(launch.params)
            if isinstance(alone, Mask):
                with w.if_(alone) as branch:
                    w.call(kernel, arguments, sizes, *self._tasks(launch), w.null())
                    with branch.otherwise():
                        self.frame.memory.launch(w, launch, kernel, arguments, sizes)
            elif alone:
                w.call(kernel, arguments, sizes, *self._tasks(launch), w.null())
            else:
                self.frame.memory.launch(w, launch, kernel, arguments, sizes)

    def _tasks(self, launch: Launch) -> tuple[Register, Register]:
        """The first of all tasks, and the end."""
        return self.w.const(0), self.w.size(launch.extent)

    def _has_copy(self, kernel: Kernel) -> bool:
        """Whether there is room for a copy of `kernel` in the host program."""
        if kernel.text not in self._copies:
            lines = kernel.text.count("\n")
            alone = kernel.text.count("func.func") == 1  # names of others may be taken
            room = min(_COPIED_LINES, _ALL_COPIED_LINES - self._copied_lines)
            if not alone or lines > room:
                return False
            self._copied_lines += lines
            self._copies[kernel.text] = f"{INLINED}{len(self._copies)}"
        return True

    def _call_copy(self, launch: Launch, given: list[Pointer]) -> None:
        """Call a copy of the kernel, which LLVM inlines: addresses and sizes are in registers."""
        w, site = self.w, len(self.sites)
        self._kernel(launch.kernel)
        arguments = w.array(len(given), ADDRESS, f"arguments {site}")
        for position, address in enumerate(given):
            w.store_element(address, arguments, position)
        sizes = w.sizes_array(launch.params, f"sizes {site}: ")
        name = self._copies[launch.kernel.text]
        w.call_symbol(name, arguments, sizes, *self._tasks(launch), w.null())

    def copies(self) -> str:
        """The functions that `_call_copy` calls."""
        return "".join(
            text.replace("@KERNEL", f"@{name}") + "\n" for text, name in self._copies.items()
        )

    def _foreign(self, call: FfiCall, op: ir.Operation, places: _Places) -> None:
        with self._site(f"@{call.target}"):
            operands = [self._buffer(buffer, op, places) for buffer in call.operands]
            results = [self._buffer(buffer, op, places) for buffer in call.results]
            emit_foreign(self.w, self.frame.memory, len(self.foreign), call, operands, results)
            self.foreign.append((call, source_line(op)))

    def _fft(self, call: FftCall, op: ir.Operation, places: _Places) -> None:
        with self._site("fft"):
            emit_fft(self.w, call, [self._buffer(buffer, op, places) for buffer in call.buffers])

    @contextmanager
    def _site(self, name: str, *, packs: bool = False) -> Iterator[None]:
        """Mark what is written inside as the launch of `name`, which `profile()` times."""
        site = len(self.sites)
        self.sites.append(Site(len(self.frame.record.uses) - 1, name, packs))
        self.w.comment(f"launch {site}")
        yield
        self.w.comment(f"launched {site}")

    def _kernel(self, kernel: Kernel) -> Pointer:
        """The address of a kernel, which is compiled once for equal texts."""
        if kernel.text not in self.kernels:
            self.kernel_index[kernel.text] = len(self.kernels)
            self.kernels[kernel.text] = kernel
            if self.written is not None:
                self.written(kernel)
        return self.w.pointer(self.w.context(KERNELS), self.kernel_index[kernel.text])

    def _buffer(self, buffer: Buffer, op: ir.Operation, places: _Places) -> Pointer:
        if isinstance(buffer, Input):
            return self.frame.pointers[op.operands[buffer.index]]
        if isinstance(buffer, Output):
            return self.frame.pointers[op.results[buffer.index]]
        return places[buffer]

    def _pack(self, pack: Pack, op: ir.Operation, places: _Places) -> None:
        sources = self.frame.origins.packable(pack, op)
        assert sources is not None
        w = self.w
        copies: dict[Buffer, Pointer] = {}
        missing: Mask | None = None
        for part, (origin, key) in zip(pack.parts, sources, strict=True):
            if origin.index >= 0:
                self.packed_arguments.add(origin.index)
            slot = self.pack_slots.setdefault(key, len(self.pack_slots))
            place = w.const(origin.index), w.const(slot)
            found, keeper = w.array(1, ADDRESS, "packed"), w.context(PACKED)
            given = w.the_context, *place, w.size(part.bytes), found
            state = w.call_for(32, keeper, *given, hint="state")
            here = w.load_address(found, "kept")
            with w.if_(state.equals(2)):
                self._launch(part.fill, op, {Packed(part.operand): here}, packs=True)
                w.call(w.context(PACKED_DONE), w.the_context, *place, here)
            none = state.equals(0)
            copies[Packed(part.operand)] = here
            missing = none if missing is None else missing | none
        assert missing is not None, "a pack without parts"
        with w.if_(missing) as branch:
            self.steps(pack.otherwise, op, places)
            with branch.otherwise():
                self.steps(pack.then, op, {**places, **copies})
