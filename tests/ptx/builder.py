"""Kernel builder of PTX: scalars only, one thread for one task.

A kernel is called as `KERNEL(args, params, tasks)`: the pointers and sizes of `plan.Kernel`, and
the number of tasks. Thread i computes task i, so `lo` is i and `hi` is i + 1; threads behind the
last task have an empty range.
"""

from __future__ import annotations

from shlo_disc.lower.values.builder import KernelBuilder

__all__ = ["PtxBuilder"]


def _special(name: str) -> str:
    return f'%{name} = llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.{name}.x"() : () -> i32'


class PtxBuilder(KernelBuilder):
    """Builds a kernel in which a thread computes at most one task."""

    def head(self) -> list[str]:
        """See `KernelBuilder.head`: the range of tasks is that of the thread. No scratch memory."""
        return [
            "func.func @KERNEL(%args: !llvm.ptr, %params: !llvm.ptr, %tasks: i64) {",
            *map(_special, ("ctaid", "ntid", "tid")),
            "%block = arith.extui %ctaid : i32 to i64",
            "%threads = arith.extui %ntid : i32 to i64",
            "%thread = arith.extui %tid : i32 to i64",
            "%before = arith.muli %block, %threads : i64",
            "%lo = arith.addi %before, %thread : i64",
            "%one_task = arith.constant 1 : i64",
            "%next_task = arith.addi %lo, %one_task : i64",
            "%hi = arith.minsi %next_task, %tasks : i64",
            "%scratch = llvm.mlir.poison : !llvm.ptr",
        ]
