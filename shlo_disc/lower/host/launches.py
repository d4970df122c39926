"""Steps of kernel plans in a host function: launches, variants, packed copies."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.packs import Origin
from shlo_disc.lower.host.record import Mark, PlanFunction, Site
from shlo_disc.lower.host.writer import (
    ADDRESS,
    INLINED,
    KERNEL,
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
    If,
    Kernel,
    KernelText,
    Launch,
    Pack,
    Packed,
    Step,
    named,
)
from shlo_disc.lower.values.typed import Mask, Pointer, Register

_ARGUMENTS = 64
"""Addresses an array for a launch has room for; of more there are arrays of powers of two."""

_COPIED_LINES = 500
"""Of a kernel that a host program has a copy of, such as one with a sine; longer ones take longer
than a launch."""

_ALL_COPIED_LINES = 1500
"""Of all kernels that a host program has copies of: they are compiled once more."""


_NONE, _FILLED, _WAITS = 0, 2, 3
"""What `disc_context::packed` answers (`ral/include/disc_ral.h`)."""


class Tables:
    """What a host program refers to by index.

    `written` is given each kernel as soon as it is known, and whether the first call needs it. A
    kernel that a later place makes needed is given once more. It is given functions of plans, too.
    """

    def __init__(self, written: Callable[[Kernel | PlanFunction, bool], object] | None) -> None:
        self._written = written
        self.kernels: dict[KernelText, Kernel] = {}
        self._kernel_index: dict[KernelText, int] = {}
        self._wanted: set[KernelText] = set()
        """Those of kernels that the first call needs."""
        self.unasked: set[int] = set()
        """Kernels that the host program calls without asking for them first."""
        self.asked_before: set[KernelText] = set()
        """Those of kernels that it asks for before a loop."""
        self.launches_in_loops = self.copies_in_loops = 0
        self.pack_slots: dict[str, int] = {}
        self.packed_arguments: set[int] = set()
        self._entries: dict[object, int] = {}
        self.table: list[int] = []
        """A kernel by index, or `~` of a plan's function, for every entry of the kernel table."""
        self.packing: dict[int, None] = {}
        """Kernels that calls like the first one run once copies are packed, and those that pack."""
        self.sites: list[Site] = []
        self.foreign: list[tuple[FfiCall, str]] = []
        self._copies: dict[str, str] = {}
        """Texts of kernels to the functions of the host program that are copies of them."""
        self._copied_lines = 0

    def kernel(self, kernel: Kernel, *, wanted: bool) -> int:
        """The index of `kernel`, which is compiled once for equal texts."""
        source = kernel.source
        is_new = source not in self.kernels
        if is_new:
            self._kernel_index[source] = len(self.kernels)
            self.kernels[source] = kernel
        if self._written is not None and (is_new or (wanted and source not in self._wanted)):
            self._written(kernel, wanted)
        if wanted:
            self._wanted.add(source)
        return self._kernel_index[source]

    def index(self, source: KernelText) -> int:
        """The index of a kernel that there is."""
        return self._kernel_index[source]

    def function(self, function: PlanFunction) -> None:
        """The program has the function of a plan."""
        if self._written is not None:
            self._written(function, True)

    def entry(self, index: int) -> int:
        """Where the kernel of `index` is in the kernel table, or `~` of a plan's function."""
        return self.entries((index,))

    def entries(self, indices: tuple[int, ...]) -> int:
        """Where the first of such kernels is in the kernel table; the others follow."""
        if indices not in self._entries:
            self._entries[indices] = len(self.table)
            self.table += indices
        return self._entries[indices]

    def numbers(self) -> tuple[int, ...]:
        """What every entry of the kernel table is: functions count on behind all kernels."""
        return tuple(index if index >= 0 else len(self.kernels) + ~index for index in self.table)

    def pack(self, origin: Origin, key: str) -> tuple[int, int]:
        """The argument or constant that is packed, and the slot of its copy."""
        if origin.index >= 0:
            self.packed_arguments.add(origin.index)
        return origin.index, self.pack_slots.setdefault(key, len(self.pack_slots))

    def copy(self, kernel: Kernel) -> str | None:
        """The function that is a copy of `kernel`; None where there is no room for one."""
        if kernel.text not in self._copies:
            lines = kernel.text.count("\n")
            if lines > min(_COPIED_LINES, _ALL_COPIED_LINES - self._copied_lines):
                return None
            self._copied_lines += lines
            self._copies[kernel.text] = f"{INLINED}{len(self._copies)}"
        return self._copies[kernel.text]

    def copies(self) -> str:
        """The functions that :meth:`copy` names."""
        return "".join(f"{named(text, name)}\n" for text, name in self._copies.items())


class PlanWriter:
    """Writes the steps of a plan into a host function.

    `buffer` gives the address of a buffer that is no packed copy. `packed` gives three numbers of
    every part of a pack: the argument or constant, the slot, and the parameters of the launch that
    fills it. The last is -1 for what cannot wait. `site` gives the mark of a launch.

    `numbered` gives the entry of a kernel in the kernel table, and is told whether only some calls
    need it. By default a new kernel gets an entry.

    `copies_at_once`: the first step of the loop around makes packed copies if more steps follow. So
    few calls need the kernels that read none. A step asks for them; a failure ends the loop.
    """

    def __init__(
        self,
        tables: Tables,
        w: HostWriter,
        memory: HostMemory,
        *,
        buffer: Callable[[Buffer], Pointer],
        packed: Callable[[Pack], Sequence[tuple[Register, ...]]],
        site: Callable[[str, bool], Mark],
        in_loop: bool = False,
        copies_at_once: bool = False,
        call: Callable[[Call], None] | None = None,
        numbered: Callable[[Kernel, bool], int | Register] | None = None,
    ) -> None:
        self.tables, self.w, self.memory = tables, w, memory
        self._numbered = numbered
        self._address, self._packed, self._mark = buffer, packed, site
        self._in_loop, self._call = in_loop, call
        self._copies_at_once, self._is_rare = copies_at_once, False
        self._copies: dict[Buffer, Pointer] = {}
        """The addresses of packed copies."""
        self._choices: list[tuple[Mask, bool] | None] = []
        """Those around what is written now: a condition on sizes and whether it holds, or None for
        what only the runtime knows."""

    def steps(self, steps: tuple[Step, ...]) -> None:
        """Write `steps`."""
        for step in steps:
            if isinstance(step, Launch):
                self._launch(step)
            elif isinstance(step, If):
                condition = self._condition(step.condition)
                with self.w.if_(condition) as branch:
                    with self._choice((condition, True)):
                        self.steps(step.then)
                    with branch.otherwise(), self._choice((condition, False)):
                        self.steps(step.otherwise)
            elif isinstance(step, Pack):
                self._pack(step)
            else:
                assert self._call is not None, step
                with self._site(f"@{step.target}" if isinstance(step, FfiCall) else "fft"):
                    self._call(step)

    @contextmanager
    def _choice(self, choice: tuple[Mask, bool] | None) -> Iterator[None]:
        self._choices.append(choice)
        yield
        self._choices.pop()

    def _condition(self, condition: Condition | All) -> Mask:
        w = self.w
        if isinstance(condition, All):
            first, *others = (self._condition(one) for one in condition.conditions)
            for other in others:
                first = first & other
            return first
        return w.compare(w.size(condition.lhs), condition.op, w.size(condition.rhs))

    def _address_of(self, arg: Buffer | Kernel) -> Pointer:
        return self._kernel(arg) if isinstance(arg, Kernel) else self._buffer(arg)

    def _buffer(self, buffer: Buffer) -> Pointer:
        return self._copies[buffer] if isinstance(buffer, Packed) else self._address(buffer)

    def _launch(self, launch: Launch, packs: bool = False) -> None:
        w, memory = self.w, self.memory
        with self._site(launch.kernel.name, packs=packs):
            for buffer, count in launch.zeroed:
                memory.zero(w, self._buffer(buffer), count)
            given = [self._address_of(arg) for arg in launch.args]
            in_loop = self._in_loop and memory.calls_kernels
            self.tables.launches_in_loops += in_loop
            alone = in_loop and not launch.called and memory.is_alone(w, launch)
            if alone is True and (copy := self.tables.copy(launch.kernel)) is not None:
                self.tables.copies_in_loops += 1
                self._call_copy(launch, copy, given)
                return
            kernel, arguments = self._kernel(launch.kernel), addresses(w, given)
            sizes = w.sizes_array(launch.params)
            if isinstance(alone, Mask):
                with w.if_(alone) as branch:
                    w.call(kernel, arguments, sizes, *self._tasks(launch), w.null())
                    with branch.otherwise():
                        memory.launch(w, launch, kernel, arguments, sizes)
            elif alone:
                w.call(kernel, arguments, sizes, *self._tasks(launch), w.null())
            else:
                memory.launch(w, launch, kernel, arguments, sizes)

    def _tasks(self, launch: Launch) -> tuple[Register, Register]:
        """The first of all tasks, and the end."""
        return self.w.const(0), self.w.size(launch.extent)

    def _call_copy(self, launch: Launch, copy: str, given: list[Pointer]) -> None:
        """Call a copy of the kernel, which LLVM inlines: addresses and sizes are in registers."""
        w, site = self.w, len(self.tables.sites)
        self.tables.kernel(launch.kernel, wanted=False)
        arguments = w.array(len(given), ADDRESS, f"arguments {site}")
        for position, address in enumerate(given):
            w.store_element(address, arguments, position)
        sizes = w.sizes_array(launch.params, site)
        w.call_symbol(copy, arguments, sizes, *self._tasks(launch), w.null())

    @contextmanager
    def _site(self, name: str, *, packs: bool = False) -> Iterator[None]:
        """Mark what is written inside as the launch of `name`, which `profile()` times."""
        begins = self._mark(name, packs)
        self.w.mark(begins)
        yield
        self.w.mark(replace(begins, ends=True))

    def _kernel(self, kernel: Kernel) -> Pointer:
        """The address of a kernel."""
        w = self.w
        is_late = bool(self._choices) and self.memory.calls_kernels
        entry = (self._numbered or self._own)(kernel, is_late)
        if is_late and (self._is_rare or not self._in_loop):
            number = w.const(entry) if isinstance(entry, int) else entry
            return w.call_for_address(w.context(KERNEL), w.the_context, number, hint="k")
        if is_late:
            assert isinstance(entry, int)
            # Before the loop: after a failure it would go on for ever.
            by_size = [choice for choice in self._choices if choice is not None]
            known = [condition if holds else ~condition for condition, holds in by_size]
            self.tables.asked_before.add(kernel.source)
            w.ask(entry, functools.reduce(operator.and_, known) if known else None)
        found = w.pointer(w.context(KERNELS), entry)
        return w.load_address(found, "k") if self.memory.calls_kernels else found

    def _own(self, kernel: Kernel, is_late: bool) -> int:
        """The entry of a kernel of the program."""
        index = self.tables.kernel(kernel, wanted=not is_late)
        if not is_late:
            self.tables.unasked.add(index)
        return self.tables.entry(index)

    def _pack(self, pack: Pack) -> None:
        w = self.w
        outside = self._copies
        copies: dict[Buffer, Pointer] = {}
        missing: Mask | None = None
        for part, (*place, params) in zip(pack.parts, self._packed(pack), strict=True):
            if pack.may_wait is not None and not self._in_loop:
                params = w.select(self._condition(pack.may_wait), params, w.const(-1))
            found, keeper = w.array(1, ADDRESS, "packed"), w.context(PACKED)
            given = w.the_context, *place, w.size(part.bytes), params, found
            state = w.call_for(32, keeper, *given, hint="state")
            here = w.load_address(found, "kept")
            waits = state.equals(_WAITS)
            with w.if_(state.equals(_FILLED) | waits), self._choice(None):
                self._copies = {Packed(part.operand): here}
                self._launch(part.fill, packs=True)
                w.call(w.context(PACKED_DONE), w.the_context, *place, here)
            none = state.equals(_NONE) | waits
            copies[Packed(part.operand)] = here
            missing = none if missing is None else missing | none
        assert missing is not None, "a pack without parts"
        self._copies = outside
        with w.if_(missing) as branch, self._choice(None):
            self._is_rare = self._copies_at_once
            self.steps(pack.otherwise)
            self._is_rare = False
            with branch.otherwise():
                self._copies = {**outside, **copies}
                self.steps(pack.then)
                self._copies = outside


def addresses(w: HostWriter, given: Sequence[Pointer]) -> Pointer:
    """An array of these addresses, which the next such array may overwrite."""
    room = max(_ARGUMENTS, 1 << (len(given) - 1).bit_length()) if given else 1
    array = w.array(room, ADDRESS, "arguments")
    for position, address in enumerate(given):
        w.store_element(address, array, position)
    return array
