"""Kernel builders of the CPU.

`CpuBuilder` adds what depends on the machine, and what kernels need that call other kernels and
count with other threads. `SizedBuilder` has named sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.kernels.sized import Sized
from shlo_disc.lower.plan import FUNCTION_TYPE, ONCE, PARAMETERS, SIGNATURE, KernelText, text_of
from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.text import V, indented
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Pointer,
    Register,
    Value,
    lanes_of,
)

if TYPE_CHECKING:
    from shlo_disc.lower.cpu.machine import Machine

COLD = "_cold"
"""In the names of functions that are hardly ever called."""
SCALAR = "noimplicitfloat"
"""LLVM's attribute of functions in which it joins no scalars to vectors."""
EITHER = "disc-either"
"""The attribute of a function that may have :data:`SCALAR` or not."""

_HIDDEN = {"x86-64": "=v,0", "aarch64": "=w,0"}
"""What inline assembly calls a vector register that it takes and gives, by instruction set."""

_YIELD = 1
"""The number of Arm's hint that this thread waits. Source: Arm ARM, C6.2, HINT."""

_REGISTER_BYTES = 64
_WHOLE_REGISTER_BITS = 512
"""Masked stores of at least so many bits are AVX-512's, which are as fast as whole ones. Elsewhere
these are several vectors, of which the last one has a mask."""


class CpuBuilder(KernelBuilder):
    """Builds a kernel for one machine."""

    predicts_branches: ClassVar[bool] = True

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.saturates = machine.instruction_set != "x86-64"
        self._cold: dict[str, _Function] = {}
        """The functions of `outlined`, by symbol."""

    def has_ldexp(self, type_: str) -> bool:
        """See `KernelBuilder.has_ldexp`: `vscalef` of AVX-512."""
        return bool(lanes_of(type_)) and {"avx512f", "avx512dq"} <= self.machine.features

    def unchosen(self, value: Register) -> Register:
        """See `TextBuilder.unchosen`: without AVX-512 a masked store is slow."""
        bits = value.lanes * value.element_bits
        if bits != 8 * self.machine.vector_bytes or bits >= _WHOLE_REGISTER_BITS:
            return value
        return self._hidden(value)

    def _hidden(self, value: V) -> V:
        """The register `value`, of which LLVM does not know how it is computed."""
        registers = _HIDDEN[self.machine.instruction_set]
        right = f'llvm.inline_asm "", "{registers}" {value} : ({value.type}) -> {value.type}'
        return self.define(type(value), right, value.type, [value])

    def shuffle(self, a: V, b: V, lanes: Sequence[int]) -> V:
        """`vector.shuffle`: lanes of a, then of b."""
        # LLVM moves arithmetic before a shuffle of 64 bytes or more and behind it again, for ever:
        # hide the bytes of every register.
        loops = a.element_bits == 8 and "avx512vbmi" in self.machine.features
        if not loops or len(lanes) < _REGISTER_BYTES:
            return super().shuffle(a, b, lanes)
        whole: V | None = None
        for first in range(0, len(lanes), _REGISTER_BYTES):
            part = self._hidden(super().shuffle(a, b, lanes[first : first + _REGISTER_BYTES]))
            if whole is None:
                whole = part
            else:
                whole = super().shuffle(whole, part, range(first + part.lanes))
        assert whole is not None, "there is a lane"
        return whole

    def masked_load(
        self, memory: MemRef, index: IndexLike, mask: Mask, other: Register, readonly: bool = True
    ) -> Register:
        """See `KernelBuilder.masked_load`, and `masked_store` for lanes that are known."""
        runs = self._runs(other, mask)
        if runs is None:
            return super().masked_load(memory, index, mask, other, readonly)
        index, found = self.index(index), other
        for first, count in runs:
            on = range(first, first + count)
            if count == 1:
                run = self.broadcast(memory.load(index + first, readonly), other.lanes)
            else:
                part = self.vector_load(memory, index + first, count, readonly)
                run = self.shuffle(part, part, [k % count for k in range(other.lanes)])
            order = [k + other.lanes if k in on else k for k in range(other.lanes)]
            found = self.shuffle(found, run, order)
        return found

    def masked_store(self, value: Register, memory: MemRef, index: IndexLike, mask: Mask) -> None:
        """Write consecutive elements where `mask`.

        Without AVX-512 a masked store is slow (vmaskmov: 18 uops on Zen, 16-bit lanes one by one),
        so all lanes on, which is what most masks are, gets a store of its own. Lanes that are known
        to be the first ones are stored in runs of powers of two. Unlike what a mask stores, the
        next step of a loop finds these before they are in memory.
        """
        index, runs = self.index(index), self._runs(value, mask)
        for first, count in runs or ():
            lanes = range(first, first + count)
            if count == 1:
                memory.store(self.extract(value, first), index + first)
            else:
                self.vector_store(self.shuffle(value, value, lanes), memory, index + first)
        if runs is not None:
            return
        if _is_wide(value):
            super().masked_store(value, memory, index, mask)
            return
        masked = super().masked_store
        self.either(
            mask.all(),
            lambda: self.vector_store(value, memory, index),
            lambda: masked(value, memory, index, mask),
        )

    def gather(
        self,
        memory: MemRef,
        index: IndexLike,
        offsets: IndexValue | Register,
        mask: Mask,
        other: Register,
        readonly: bool = True,
    ) -> Register:
        """See `KernelBuilder.gather`; without AVX-512, lanes at constant offsets are scalar loads.

        LLVM writes a gather as scalar loads there as well, but extracts each address from a vector.
        """
        places = offsets.constant_lanes
        everywhere = mask.constant_lanes is not None and all(mask.constant_lanes)
        if places is None or not everywhere or "avx512f" in self.machine.features:
            return super().gather(memory, index, offsets, mask, other, readonly)
        first, found = self.index(index), other
        for lane, place in enumerate(places):
            one = memory.load(first + int(place), readonly)
            found = self.insert(one, found, self.index(lane))
        return found

    def _runs(self, value: Register, mask: Mask) -> list[tuple[int, int]] | None:
        """The runs of `value` to load or store one by one; None: by `mask`."""
        return None if _is_wide(value) and self.machine.vector_bytes == 64 else _runs_of(mask)

    # ---------------------------------------------------------------- kernels and threads

    def call(
        self, kernel: Pointer | str, args: Pointer, params: Pointer, lo: IndexValue, hi: IndexValue
    ) -> None:
        """Run tasks `lo` to `hi` of another kernel, with this worker's scratch memory.

        `kernel`: its address, or its symbol if it is a function of the same text.
        """
        first, last = (self.cast("arith.index_cast", at, "i64") for at in (lo, hi))
        operands = f"({args}, {params}, {first}, {last}, {self._scratch})"
        if isinstance(kernel, Pointer):
            self.emit(f"llvm.call {kernel}{operands} : !llvm.ptr, {FUNCTION_TYPE}")
        else:
            self.emit(f"func.call @{kernel}{operands} : {FUNCTION_TYPE}")

    def call_with(
        self, kernel: Pointer, args: Pointer, params: Pointer, values: Sequence[IndexValue]
    ) -> None:
        """Run a kernel that takes `values`, too, with the tasks and scratch memory of this one."""
        given = [self.cast("arith.index_cast", value, "i64") for value in values]
        operands = ", ".join(map(str, (args, params, "%lo", "%hi", "%scratch", *given)))
        kinds = FUNCTION_TYPE.replace(") ->", ", i64" * len(given) + ") ->")
        self.emit(f"llvm.call {kernel}({operands}) : !llvm.ptr, {kinds}")

    def fetch_add(self, counter: Pointer) -> IndexValue:
        """Add 1 to an i64 that threads share (acquire and release); returns what was there."""
        by = self.constant(1, "i64")
        right = f"llvm.atomicrmw add {counter}, {by} acq_rel : !llvm.ptr, i64"
        before = self.define(Register, right, "i64", [], pure=False)
        return self.to_index("arith.index_cast", before)

    def load_acquire(self, counter: Pointer) -> IndexValue:
        """Read an i64 that threads share, and see what was written before it was changed."""
        right = f"llvm.load {counter} atomic acquire {{alignment = 8 : i64}} : !llvm.ptr -> i64"
        there = self.define(Register, right, "i64", [], pure=False)
        return self.to_index("arith.index_cast", there)

    def outlined(
        self, name: str, function: Callable[[Register], tuple[Register, ...]], value: Register
    ) -> tuple[Register, ...]:
        """See `TextBuilder.outlined`: a function of the same text that LLVM does not inline.

        LLVM moves what has no effect in front of branches. 60 operations that one run in a million
        needs took half of the time of a sine.
        """
        symbol = f"KERNEL{COLD}_{name}_{value.type}"
        inner = self._cold.get(symbol)
        if inner is None:
            inner = self._cold[symbol] = _Function(self.machine)
            inner.write(symbol, function, value)
        types = inner.types
        right = f"func.call @{symbol}({value}) : ({value.type}) -> ({', '.join(types)})"
        left, results = self._results("cold", [Register(self, "", t, 0) for t in types])
        self.emit(f"{left}{right}")
        return tuple(results)

    def tell(self, attribute: str) -> None:
        """Tell LLVM :data:`SCALAR` or :data:`EITHER` of the function."""
        self.attributes = f' attributes {{llvm.passthrough = ["{attribute}"]}}'

    def make_once(self) -> None:
        """Tell that LLVM's passes would not make the function faster: see `plan.ONCE`."""
        self.attributes = f" attributes {{{ONCE}}}"

    def source(self, body: str) -> KernelText:
        """See `KernelBuilder.source`; outlined functions follow the kernel."""
        kernel = text_of(super().source(body))
        return kernel + "".join(inner.text for inner in self._cold.values())

    def perform(self, intrinsic: str, *operands: Value) -> None:
        """Call an intrinsic of LLVM that gives nothing, at this place among loads and stores."""
        names, types = (
            ", ".join(each) for each in (map(str, operands), [x.type for x in operands])
        )
        self.emit(f'llvm.call_intrinsic "{intrinsic}"({names}) : ({types}) -> ()')

    def pause(self) -> None:
        """Tell the core that this thread waits for another one, where it has a way to."""
        if self.machine.instruction_set == "aarch64":
            hint = self.constant(_YIELD, "i32")
            self.perform("llvm.aarch64.hint", hint)
        elif "sse2" in self.machine.features:
            self.perform("llvm.x86.sse2.pause")


def _is_wide(value: Register) -> bool:
    return value.lanes * value.element_bits >= _WHOLE_REGISTER_BITS


def _runs_of(mask: Mask) -> list[tuple[int, int]] | None:
    """Where runs of powers of two begin, and their lengths, if `mask` has the first lanes on."""
    lanes = mask.constant_lanes
    if lanes is None or list(lanes) != sorted(lanes, reverse=True):
        return None
    total = sum(map(bool, lanes))
    lengths = [1 << bit for bit in reversed(range(total.bit_length())) if total >> bit & 1]
    return list(zip(itertools.accumulate(lengths, initial=0), lengths, strict=False))


class _Function(CpuBuilder):
    """Builds a function of one scalar that returns scalars."""

    types: tuple[str, ...] = ()
    text: str = ""

    def write(
        self, symbol: str, function: Callable[[Register], tuple[Register, ...]], like: Register
    ) -> None:
        """The text of `function`, for arguments with the type of `like`."""
        self._entry.clear()  # it has no tasks
        results = function(Register(self, "%x", like.type, 0))
        self.types = tuple(value.type for value in results)
        kinds = ", ".join(self.types)
        lines = [
            *self._entry,
            *self._regions[0].lines,
            f"return {', '.join(map(str, results))} : {kinds}",
        ]
        body = "".join(f"{line}\n" for line in indented(lines))
        self.text = f"func.func @{symbol}(%x: {like.type}) -> ({kinds}) {{\n{body}}}\n"


class SizedBuilder(Sized, CpuBuilder):
    """A builder with named sizes."""

    def __init__(
        self, machine: Machine, sizes: Mapping[str, Expr], *, in_order: bool = False
    ) -> None:
        """See `Sized.name_sizes`."""
        super().__init__(machine)
        self.name_sizes(sizes, in_order=in_order)
        self._parts: dict[str, str] = {}
        self.called = 0
        """Kernels that it calls: their addresses stand in front of its arguments."""

    def pointer(self, arg: int) -> Pointer:
        """See `KernelBuilder.pointer`; those in front of the arguments have negative numbers."""
        return super().pointer(self.called + arg)

    def part(
        self, name: str, text: str, memory: Sequence[MemRef], values: Sequence[IndexValue]
    ) -> None:
        """Call a function of :meth:`part_text` with `memory` and `values`; `text` has it."""
        self._parts[name] = text
        given = [*(self._starts[one.name] for one in memory), *values]
        kinds = FUNCTION_TYPE.replace(") ->", "".join(f", {x.type}" for x in given) + ") ->")
        operands = ", ".join([*PARAMETERS, *map(str, given)])
        self.emit(f"func.call @KERNEL_{name}({operands}) : {kinds}")

    def part_text(
        self,
        name: str,
        elements: Sequence[str],
        values: int,
        write: Callable[[SizedBuilder, list[MemRef], list[IndexValue]], None],
    ) -> str:
        """A function that :meth:`part` calls with memory of `elements` and so many values.

        `write` writes it, over the same arguments, sizes and scratch memory as the kernel. Without
        a name it is a kernel of its own, for :meth:`call_with`.

        LLVM keeps the constants of a loop in registers around all loops that it is in. Those of a
        long epilogue pushed sums of the loop along K out of registers: 2 to 8 times its time.
        """
        symbol = f"KERNEL_{name}" if name else "KERNEL"
        return _Part(self).written(symbol, elements, values, write)

    @property
    def params_in_order(self) -> tuple[Expr, ...]:
        """The sizes that are params so far."""
        return tuple(self._order)

    def source(self, body: str) -> KernelText:
        """See `KernelBuilder.source`; the functions of :meth:`part` follow the kernel."""
        return text_of(super().source(body)) + "".join(self._parts.values())


class _Part(SizedBuilder):
    """Builds a function of :meth:`SizedBuilder.part`."""

    def __init__(self, of: SizedBuilder) -> None:
        super().__init__(of.machine, {})
        self._named, self._places, self._order = of._named, of._places, of._order
        self.attributes, self.called = of.attributes, of.called

    def written(
        self,
        symbol: str,
        elements: Sequence[str],
        values: int,
        write: Callable[[SizedBuilder, list[MemRef], list[IndexValue]], None],
    ) -> str:
        """The text, for memory of `elements` and so many values."""
        starts = [Pointer(self, f"%memory{i}", "!llvm.ptr", 0) for i in range(len(elements))]
        numbers = [IndexValue(self, f"%number{i}", "index", 0) for i in range(values)]
        more = "".join(f", {given}: {given.type}" for given in (*starts, *numbers))
        self.signature = SIGNATURE.replace("@KERNEL", f"@{symbol}").replace(")", f"{more})")
        here = [self.memref_at(s, element) for s, element in zip(starts, elements, strict=True)]
        write(self, here, numbers)
        return text_of(self.finish()[0])
