"""Kernel builders of GPUs: `gpu.func` in a `gpu.module`, with threads in blocks.

    @KERNEL(pointers..., i64 params..., i64 tasks)

Threads of a block are along x. Block number b is `y * 2**21 + x` of the grid. `GpuBuilder` gives a
task to each thread, `BlockBuilder` to a whole block. No task has memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from shlo_disc.artifacts.manifest import TensorMap
from shlo_disc.base.errors import InternalError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.gpu.floats import FloatBuilder
from shlo_disc.lower.images import DESCRIPTOR, GpuText, KernelSignature
from shlo_disc.lower.kernels.sized import Sized
from shlo_disc.lower.values.text import V
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Pointer,
    Register,
    Value,
    element_type,
)

if TYPE_CHECKING:
    from shlo_disc.lower.gpu.machine import Machine

THREADS = 256
"""Threads of a block, where nothing else is said: eight warps, or four waves."""

BLOCKS_ALONG_X = 1 << 21
"""Blocks of a grid along x, as in `gpu_call.cpp` of `ral`: AMD counts threads there, in 32 bits."""

_LARGE = 10**9
"""Constants among indices from here on are no sizes, but such as mean "nowhere"."""

ACCESS_BYTES = 16
"""Bytes that one load or store of a thread takes at most."""

_INTRINSICS = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.floor": "llvm.floor",
    "math.round": "llvm.round",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}
"""Operations that `convert-gpu-to-nvvm` would make calls of a device library, as intrinsics that
every code generator of LLVM selects by itself."""


class GpuBuilder(FloatBuilder):
    """Builds a kernel in which a thread computes its own tasks."""

    def __init__(self, machine: Machine, threads: int = THREADS) -> None:
        self.threads = threads
        self._fits_32_bits = True
        """See `KernelSignature.fits_32_bits`."""
        self._maps: list[TensorMap] = []
        self._shared: Pointer | None = None
        self._shared_base: Register | None = None
        self.shared_bytes = 0
        """Bytes of shared memory that the kernel has so far."""
        self._barriers = 0
        self.shared_alignment = 16
        """Shared memory begins at a multiple of so many bytes."""
        super().__init__(machine)
        self.thread = self._enter(IndexValue, "thread", "gpu.thread_id x", "index")
        """The number of the thread in its block."""

    @property
    def tasks_a_block(self) -> int:
        """Tasks that a block of threads computes."""
        return self.threads

    @property
    def param_count(self) -> int:
        """Sizes that the kernel takes so far."""
        return len(self._params)

    # ---------------------------------------------------------------- memory

    descriptor: ClassVar[str] = DESCRIPTOR

    def _raw_constant(self, value: int) -> Register:
        """See `GpuText`: 0 or 1, in as many bits as indices have."""
        return Register(self, f"%_{value}", "i64", 0)

    def pointer(self, arg: int) -> Pointer:
        """The data pointer of launch argument `arg`."""
        return self._pointers.setdefault(arg, Pointer(self, f"%a{arg}", "!llvm.ptr", 0))

    @property
    def tasks(self) -> IndexValue:
        """Tasks of the launch."""
        self._fits_32_bits = False
        right = "arith.index_cast %tasks : i64 to index"
        return self._enter(IndexValue, "tasks_", right, "index")

    def tensor_map(self, described: TensorMap) -> Pointer:
        """The argument that is a tensor map, in memory of the kernel's parameters."""
        self._maps.append(described)
        return Pointer(self, f"%m{described.argument}", "!llvm.ptr", 0)

    def _load_param(self, number: int) -> IndexValue:
        right = f"arith.index_cast %p{number} : i64 to index"
        return self._enter(IndexValue, "n", right, "index")

    def load_if(self, mask: Mask, memory: MemRef, index: IndexValue, size: int) -> Register:
        """One element where the scalar `mask`, else 0."""
        return self.only_if(mask, lambda: self.load(memory, index), memory.element)

    def again(self, value: Register) -> Register:
        """The same number (i32), which the compiler does not know to be the same.

        So the compiler computes again what it would keep in registers, such as the answers of many
        comparisons with constants.
        """
        nothing = self.cast("arith.index_cast", self.param(0, opaque=True), "i32")
        return value + nothing

    def only_if(self, mask: Mask, made: Callable[[], Register], type_: str) -> Register:
        """What `made` writes where the scalar `mask`, else 0."""
        zero = self.constant(0, type_)
        return self.either(mask, lambda: [made()], lambda: [zero])[0]

    def alignment(self, lanes: int, element: str) -> str:
        """See `KernelBuilder.alignment`: one access may take several elements then."""
        size = lanes * -(-int(element.lstrip("bfi")) // 8)
        return f" {{alignment = {min(size, ACCESS_BYTES)} : i64}}" if size & (size - 1) == 0 else ""

    def masked_load(
        self, memory: MemRef, index: IndexLike, mask: Mask, other: Register, readonly: bool = True
    ) -> Register:
        """See `KernelBuilder.masked_load`; lanes of a constant mask are loaded one by one.

        LLVM 22 takes such a load for a whole access where it finds the alignment. It then fails an
        assertion, because the other lanes are not undefined.
        """
        on = mask.constant_lanes
        if on is None:
            return super().masked_load(memory, index, mask, other, readonly)
        found, first = other, self.index(index)
        for lane in (lane for lane, is_on in enumerate(on) if is_on):
            one = self.load(memory, first + lane, readonly)
            found = self.insert(one, found, self.index(lane))
        return found

    def masked_store(self, value: Register, memory: MemRef, index: IndexLike, mask: Mask) -> None:
        """See `KernelBuilder.masked_store`; lanes of a constant mask as in :meth:`masked_load`."""
        on = mask.constant_lanes
        if on is None:
            super().masked_store(value, memory, index, mask)
            return
        first = self.index(index)
        for lane in (lane for lane, is_on in enumerate(on) if is_on):
            self.store(self.extract(value, lane), memory, first + lane)

    def prefetch(self, memory: MemRef, index: IndexLike) -> None:
        """Other threads hide what memory takes: nothing is written."""

    def scratch(self, element: str, offset_bytes: IndexLike = 0) -> MemRef:
        """No thread of a GPU owns memory beside its registers; raises InternalError."""
        raise InternalError(f"a kernel of a GPU wants scratch memory of {element}")

    # ---------------------------------------------------------------- operations

    def to_index(self, name: str, operand: Register) -> IndexValue:
        """See `TextBuilder.to_index`: what has at most 32 bits and a sign fits 32 bits."""
        self._fits_32_bits &= operand.element_bits < (33 if name == "arith.index_cast" else 32)
        return super().to_index(name, operand)

    def _constant(self, value: float | bool, type_: str) -> Value:
        self._note_size(value, element_type(type_))
        return super()._constant(value, type_)

    def _dense(self, values: Sequence[float | bool], element: str) -> Value:
        self._note_size(max(map(abs, values)), element)
        return super()._dense(values, element)

    def _note_size(self, value: float | bool, element: str) -> None:
        self._fits_32_bits &= element != "index" or abs(value) < _LARGE

    def op(self, name: str, *operands: V, type_: str = "", attrs: str = "") -> V:
        """As `TextBuilder.op`; some functions are written as intrinsics."""
        if name == "math.copysign":
            return type(operands[0]).of(self.copysign(*map(Register.of, operands)))
        intrinsic = _INTRINSICS.get(name)
        if intrinsic is None:
            return super().op(name, *operands, type_=type_, attrs=attrs)
        first = operands[0]
        suffix = f"v{first.lanes}{first.element}" if first.lanes else first.element
        given = ", ".join(value.name for value in operands)
        types = ", ".join(value.type for value in operands)
        right = f'llvm.call_intrinsic "{intrinsic}.{suffix}"({given}) : ({types}) -> {first.type}'
        return self.define(type(first), right, first.type, operands)

    def extract(self, vector: V, lane: IndexLike) -> V:
        """See `TextBuilder.extract`; a lane known at run time is chosen from all of them.

        Registers have no addresses. Memory instead would be reserved for every thread of the GPU.
        """
        if isinstance(lane, IndexValue) and lane.known is not None:
            lane = lane.known
        if isinstance(lane, int):
            return super().extract(vector, lane)
        found = super().extract(vector, 0)
        for k in range(1, vector.lanes):
            found = self.select(lane.equals(k), super().extract(vector, k), found)
        return found

    def insert(self, value: V, vector: V, lane: IndexValue) -> V:
        """See `TextBuilder.insert`; likewise."""
        if lane.known is not None:
            return super().insert(value, vector, lane)
        for k in range(vector.lanes):
            one = self.select(lane.equals(k), value, super().extract(vector, k))
            vector = super().insert(one, vector, self.index(k))
        return vector

    # ---------------------------------------------------------------- the end

    def opening(self) -> list[str]:
        """See `KernelBuilder.opening`: the number %_task of the thread's task, and its tasks."""
        return [
            "%_x = gpu.block_id x",
            "%_y = gpu.block_id y",
            f"%_along_x = arith.constant {BLOCKS_ALONG_X} : index",
            "%_before = arith.muli %_y, %_along_x : index",
            "%_block = arith.addi %_before, %_x : index",
            *self._task_of_block(),
            *self._one_task(),
        ]

    def source(self, body: str) -> GpuText:
        """See `KernelBuilder.source`."""
        dynamic = self.shared_bytes if self.shared_bytes > self.machine.shared_bytes else 0
        signature = KernelSignature(
            threads=self.threads,
            tasks=self.tasks_a_block,
            arrays=len(self._pointers) + len(self._maps),
            sizes=self.param_count,
            maps=tuple(self._maps),
            has_shared=self._shared is not None,
            shared_bytes=dynamic,
            fits_32_bits=self._fits_32_bits,
        )
        linkage, size = ("external", 0) if dynamic else ("internal", self.shared_bytes)
        shared = (
            f"llvm.mlir.global {linkage} @shared() "
            f"{{addr_space = 3 : i32, alignment = {self.shared_alignment} : i64}} "
            f": !llvm.array<{size} x i8>\n"
            if self._shared is not None
            else ""
        )
        return GpuText(signature, self._flags() + shared, f"{body}\n")

    def _flags(self) -> str:
        """The line with the flags of the module, if there are any."""
        flags = [
            f'#llvm.mlir.module_flag<error, "{name}", {value} : i32>'
            for name, value in self.machine.flags
        ]
        return f"llvm.module_flags [{', '.join(flags)}]\n" if flags else ""

    def _task_of_block(self) -> list[str]:
        return [
            f"%_threads = arith.constant {self.threads} : index",
            "%_first_thread = arith.muli %_block, %_threads : index",
            "%_own = gpu.thread_id x",
            "%_task = arith.addi %_first_thread, %_own : index",
        ]

    def _one_task(self) -> list[str]:
        """Task %_task is that of the thread, if it is one of `%tasks`: from %lo to %hi."""
        return [
            "%lo = arith.index_cast %_task : index to i64",
            "%_one_task = arith.constant 1 : i64",
            "%_next_task = arith.addi %lo, %_one_task : i64",
            "%hi = arith.minsi %_next_task, %tasks : i64",
        ]

    # ---------------------------------------------------------------- threads of a block

    def shared(self, element: str, count: int) -> MemRef:
        """Shared memory of the block for `count` elements, apart from all other such memory."""
        offset = self.shared_offset(count * -(-int(element.lstrip("bfi")) // 8))
        assert self._shared is not None
        return self.memref_at(self.place(self._shared, offset, "i8"), element)

    def shared_at(self, element: str, offset: int, count: int) -> MemRef:
        """Shared memory for `count` elements that others have, too, from `offset` bytes on."""
        self.shared_bytes = max(
            self.shared_bytes, offset + count * -(-int(element.lstrip("bfi")) // 8)
        )
        assert self._shared is not None, "no shared memory was asked for"
        return self.memref_at(self.place(self._shared, offset, "i8"), element)

    def shared_offset(self, size: int) -> int:
        """Where `size` bytes of shared memory begin that nothing else has; a multiple of 16."""
        offset, self.shared_bytes = self.shared_bytes, -(-(self.shared_bytes + size) // 16) * 16
        if self._shared is None:
            right = "llvm.mlir.addressof @shared : !llvm.ptr<3>"
            first = self._enter(Pointer, "shared", right, "!llvm.ptr<3>")
            right = f"llvm.addrspacecast {first} : !llvm.ptr<3> to !llvm.ptr"
            self._shared = self._enter(Pointer, "shared", right, "!llvm.ptr")
            right = f"llvm.ptrtoint {first} : !llvm.ptr<3> to i32"
            self._shared_base = self._enter(Register, "shared", right, "i32")
        return offset

    @property
    def shared_base(self) -> Register:
        """Where shared memory begins, in its own address space (i32)."""
        assert self._shared_base is not None, "no shared memory was asked for"
        return self._shared_base

    def store_shared(self, value: Register, address: Register) -> None:
        """Store an element at an address of shared memory (i32)."""
        right = f"llvm.inttoptr {address} : i32 to !llvm.ptr<3>"
        pointer = self.define(Pointer, right, "!llvm.ptr<3>", [address])
        self.emit(f"llvm.store {value}, {pointer} : {value.type}, !llvm.ptr<3>")

    def element_pointer(self, memory: MemRef, index: IndexValue) -> Pointer:
        """Where an element is."""
        self._fits_32_bits = False
        right = f"memref.extract_aligned_pointer_as_index {memory} : {memory.type} -> index"
        whole = self.define(IndexValue, right, "index", [memory])
        address = whole + index * (memory.element_bits // 8)
        raw = self.cast("arith.index_cast", address, "i64")
        return self.define(Pointer, f"llvm.inttoptr {raw} : i64 to !llvm.ptr", "!llvm.ptr", [raw])

    def atomic(self, name: str, memory: MemRef, index: IndexValue, value: Register) -> None:
        """Change an integer by the operation `name` of `llvm.atomicrmw`, in one piece."""
        pointer = self.element_pointer(memory, index)
        right = f"llvm.atomicrmw {name} {pointer}, {value} monotonic : !llvm.ptr, {value.type}"
        self.define(Register, right, value.type, [pointer, value], hint="old", pure=False)

    def add_shared(self, value: Register, address: Register) -> None:
        """Add to an integer at an address of shared memory (i32), in one piece."""
        space = "!llvm.ptr<3>"
        pointer = self.define(
            Pointer, f"llvm.inttoptr {address} : i32 to {space}", space, [address]
        )
        right = f"llvm.atomicrmw add {pointer}, {value} monotonic : {space}, {value.type}"
        self.define(Register, right, value.type, [pointer, value], hint="old", pure=False)

    def join(self) -> None:
        """Have the threads of a warp come together here, after work that some of them had not.

        Nothing is executed. LLVM moves no barrier over it. Threads without work would get a loop of
        their own.
        """
        self.emit('llvm.inline_asm has_side_effects asm_dialect = att "", "" : () -> ()')

    def barrier_of_block(self) -> None:
        """Wait for all threads of the block; they see what each wrote to shared memory."""
        # Numbers keep MLIR from making one of two barriers, in front of a loop and at its end. LLVM
        # takes such a loop apart by threads that have work and others; waves of AMD count barriers.
        self._barriers += 1
        fence = "memfence [#gpu.address_space<workgroup>]"
        self.emit(f"gpu.barrier {fence} {{disc.number = {self._barriers} : i64}}")

    def barrier_of_warp(self) -> None:
        """Wait for all threads of the warp; they see what each wrote to shared memory.

        A wave of AMD runs in step, and its accesses to shared memory keep their order. Nothing is
        executed there, but the compiler moves no access over the barrier.
        """
        for line in self.machine.warp_barrier:
            self.emit(line.format(all_threads=self.constant(-1, "i32")))

    def ballot(self, mask: Mask) -> Register:
        """The bits of `mask` of all threads of the warp: an integer of a bit for each."""
        type_ = f"i{self.machine.warp}"
        return self.define(Register, f"gpu.ballot {mask} : {type_}", type_, [mask], pure=False)

    def from_lane(self, value: Register, distance: int) -> Register:
        """`value` of the thread of this warp whose number differs in the bit `distance`."""
        if value.lanes:
            found = value
            for lane in range(value.lanes):
                other = self.from_lane(self.extract(value, lane), distance)
                found = self.insert(other, found, self.index(lane))
            return found
        bits = 1 if value.element == "i1" else value.element_bits
        if bits == 64:
            whole = value.bits() if value.is_float else value
            halves = [x.cast("arith.trunci", "i32") for x in (whole, whole >> 32)]
            low, high = (self.from_lane(x, distance).cast("arith.extui", "i64") for x in halves)
            joined = low | (high << 32)
            return joined.floats() if value.is_float else joined
        word = value
        if value.is_float and bits < 32:
            word = self.bitcast(value, f"i{bits}")
        if bits < 32:
            word = word.cast("arith.extui", "i32")
        right = (
            f"gpu.shuffle xor {word}, {self.constant(distance, 'i32')}, "
            f"{self.constant(self.machine.warp, 'i32')} : {word.type}"
        )
        stem = self.fresh(Register, "lane", word.type)
        self.emit(f"{stem.name}:2 = {right}")
        found = Register(self, f"{stem.name}#0", word.type, stem.depth)
        if bits == 32:
            return found
        found = found.cast("arith.trunci", f"i{bits}")
        return self.bitcast(found, value.type) if value.is_float else found


class GroupBuilder(GpuBuilder):
    """Builds a kernel in which a group of threads computes a task: some of a warp, or a block.

    All threads of a group run the same tasks, so that they may wait for each other. All threads of
    a warp shuffle. A group that is a part of a warp and has no task computes the last one, and must
    not store results (:attr:`has_task`).
    """

    one_task: ClassVar[bool] = True

    def __init__(self, machine: Machine, group: int, threads: int = THREADS) -> None:
        self.group = group
        super().__init__(machine, threads)
        self.member = self.thread if group == threads else self._in_group()
        """The number of the thread in its group."""
        self.has_task: Mask | None = None
        """True if the task is the group's own; None: always."""
        if group < machine.warp:
            self.has_task = self._enter(Mask, "own", "arith.cmpi slt, %_number, %tasks : i64", "i1")

    def _in_group(self) -> IndexValue:
        size = self.index(self.group)
        right = f"arith.remui {self.thread}, {size} : index"
        return self._enter(IndexValue, "member", right, "index")

    @property
    def tasks_a_block(self) -> int:
        """Tasks that a block of threads computes."""
        return self.threads // self.group

    def offset_of_groups(self, size: int) -> int:
        """Where shared memory begins that has `size` bytes for each group."""
        return self.shared_offset(_whole_accesses(size) * self.tasks_a_block)

    def shared_of_group(self, offset: int, element: str, size: int) -> MemRef:
        """The `size` bytes of this group; `offset` is of :meth:`offset_of_groups`."""
        assert self._shared is not None, "no shared memory was asked for"
        at = self.thread // self.group * _whole_accesses(size) + offset
        return self.memref_at(self.place(self._shared, at, "i8"), element)

    def _one_task(self) -> list[str]:
        """See `GpuBuilder`; parts of a warp that have none take the last task."""
        if self.group >= self.machine.warp:
            return super()._one_task()
        return [
            "%_number = arith.index_cast %_task : index to i64",
            "%_one_task = arith.constant 1 : i64",
            "%_last_task = arith.subi %tasks, %_one_task : i64",
            "%lo = arith.minsi %_number, %_last_task : i64",
            "%_next_task = arith.addi %lo, %_one_task : i64",
            f"%_first_mask = arith.constant {-(self.machine.warp // self.group)} : i64",
            "%_first_of_warp = arith.andi %_number, %_first_mask : i64",
            "%_is_warp = arith.cmpi slt, %_first_of_warp, %tasks : i64",
            "%hi = arith.select %_is_warp, %_next_task, %lo : i64",
        ]

    def _task_of_block(self) -> list[str]:
        if self.group == self.threads:
            return [
                "%_zero = arith.constant 0 : index",
                "%_task = arith.addi %_block, %_zero : index",
            ]
        return [
            f"%_groups = arith.constant {self.tasks_a_block} : index",
            f"%_group = arith.constant {self.group} : index",
            "%_first = arith.muli %_block, %_groups : index",
            "%_thread = gpu.thread_id x",
            "%_own = arith.divui %_thread, %_group : index",
            "%_task = arith.addi %_first, %_own : index",
        ]


def _whole_accesses(size: int) -> int:
    """`size` bytes, rounded up to whole accesses."""
    return -(-size // ACCESS_BYTES) * ACCESS_BYTES


class SizedGpuBuilder(Sized, GpuBuilder):
    """A `GpuBuilder` with named sizes."""

    def __init__(self, machine: Machine, sizes: Mapping[str, Expr]) -> None:
        super().__init__(machine)
        self.name_sizes(sizes)
