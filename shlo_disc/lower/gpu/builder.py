"""Kernel builders of GPUs: `gpu.func` in a `gpu.module`, with threads in blocks.

    @KERNEL(pointers..., i64 params..., i64 tasks)

Threads of a block are along x. Block number b is `y * 2**30 + x` of the grid. `GpuBuilder` gives a
task to each thread, or a run of tasks where tasks need scratch memory of their own
(:meth:`GpuBuilder.scratch`). `BlockBuilder` gives a task to a whole block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shlo_disc.lower.values.builder import KernelBuilder
from shlo_disc.lower.values.text import V
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Pointer,
    Register,
)

if TYPE_CHECKING:
    from shlo_disc.lower.gpu.machine import Machine

__all__ = ["BLOCKS_ALONG_X", "THREADS", "GpuBuilder"]

THREADS = 256
"""Threads of a block, where nothing else is said: eight warps, or four waves."""

BLOCKS_ALONG_X = 1 << 30

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


class GpuBuilder(KernelBuilder):
    """Builds a kernel in which a thread computes its own tasks."""

    threads_a_task: ClassVar[int] = 1

    def __init__(self, machine: Machine, threads: int = THREADS) -> None:
        self.machine, self.threads = machine, threads
        self._has_scratch = False
        super().__init__()
        self.thread = self._enter(IndexValue, "thread", "gpu.thread_id x", "index")
        """The number of the thread in its block."""

    @property
    def tasks_a_block(self) -> int:
        """Tasks that a block of threads computes."""
        return self.threads // self.threads_a_task

    # ---------------------------------------------------------------- memory

    def pointer(self, arg: int) -> Pointer:
        """The data pointer of launch argument `arg`."""
        return self._pointers.setdefault(arg, Pointer(self, f"%a{arg}", "!llvm.ptr", 0))

    def _load_param(self, number: int) -> IndexValue:
        right = f"arith.index_cast %p{number} : i64 to index"
        return self._enter(IndexValue, "n", right, "index")

    def load_if(self, mask: Mask, memory: MemRef, index: IndexValue, size: int) -> Register:
        """One element where the scalar `mask`, else 0."""
        zero = self.constant(0, memory.element)
        with self.if_(mask) as branch:
            branch.yield_(self.load(memory, index))
            with branch.otherwise():
                branch.yield_(zero)
        return branch.results[0]

    def prefetch(self, memory: MemRef, index: IndexLike) -> None:
        """Other threads hide what memory takes: nothing is written."""

    def scratch(self, element: str, offset_bytes: IndexLike = 0) -> MemRef:
        """Memory of the thread alone from `offset_bytes` on, as `memref<?xELEMENT>`."""
        self._has_scratch = True
        return super().scratch(element, offset_bytes)

    # ---------------------------------------------------------------- operations

    def op(self, name: str, *operands: V, type_: str = "", attrs: str = "") -> V:
        """As `TextBuilder.op`; some functions are written as intrinsics."""
        intrinsic = _INTRINSICS.get(name)
        if intrinsic is None:
            return super().op(name, *operands, type_=type_, attrs=attrs)
        (value,) = operands
        suffix = f"v{value.lanes}{value.element}" if value.lanes else value.element
        right = (
            f'llvm.call_intrinsic "{intrinsic}.{suffix}"({value}) : ({value.type}) -> {value.type}'
        )
        return self.define(type(value), right, value.type, operands)

    # ---------------------------------------------------------------- the end

    def head(self) -> list[str]:
        """See `KernelBuilder.head`."""
        pointers = [f"%a{k}: !llvm.ptr" for k in range(len(self._pointers))]
        params = [f"%p{k}: i64" for k in range(len(self._params))]
        if self._has_scratch:
            pointers.append("%memory: !llvm.ptr")
            params += ["%bytes: i64", "%all: i64"]
        arguments = ", ".join([*pointers, *params, "%tasks: i64"])
        return [
            "gpu.module @kernels {\n"
            f"gpu.func @KERNEL({arguments}) kernel attributes {{\n"
            f"    known_block_size = array<i32: {self.threads}, 1, 1>,\n"
            f"    disc.tasks = {self.tasks_a_block} : i64}} {{",
            *self._numbers(),
            *(self._runs() if self._has_scratch else self._one_task()),
        ]

    def _numbers(self) -> list[str]:
        """The number %_task of the task of this thread among `%tasks`, as index."""
        return [
            "%_x = gpu.block_id x",
            "%_y = gpu.block_id y",
            f"%_along_x = arith.constant {BLOCKS_ALONG_X} : index",
            "%_before = arith.muli %_y, %_along_x : index",
            "%_block = arith.addi %_before, %_x : index",
            *self._task_of_block(),
        ]

    def _task_of_block(self) -> list[str]:
        return [
            f"%_threads = arith.constant {self.threads} : index",
            "%_first_thread = arith.muli %_block, %_threads : index",
            "%_own = gpu.thread_id x",
            "%_task = arith.addi %_first_thread, %_own : index",
        ]

    @staticmethod
    def _one_task() -> list[str]:
        return [
            "%lo = arith.index_cast %_task : index to i64",
            "%_one_task = arith.constant 1 : i64",
            "%_next_task = arith.addi %lo, %_one_task : i64",
            "%hi = arith.minsi %_next_task, %tasks : i64",
        ]

    @staticmethod
    def _runs() -> list[str]:
        """A run of tasks for each of `%tasks` threads, `%all` in total, and its memory."""
        return [
            "%_number = arith.index_cast %_task : index to i64",
            "%_one_thread = arith.constant 1 : i64",
            "%_more = arith.addi %all, %tasks : i64",
            "%_rounded = arith.subi %_more, %_one_thread : i64",
            "%_run = arith.divui %_rounded, %tasks : i64",
            "%lo = arith.muli %_number, %_run : i64",
            "%_end = arith.addi %lo, %_run : i64",
            "%_cut = arith.minsi %_end, %all : i64",
            "%_is_thread = arith.cmpi slt, %_number, %tasks : i64",
            "%hi = arith.select %_is_thread, %_cut, %lo : i64",
            "%_place = arith.muli %_number, %bytes : i64",
            "%scratch = llvm.getelementptr %memory[%_place] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
        ]

    def tail(self) -> list[str]:
        """The lines that close the function and its module."""
        return ["  gpu.return", "}", "}"]
