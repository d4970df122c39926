"""PTX of a kernel text: MLIR -> LLVM dialect -> LLVM IR text -> llvmlite's NVPTX back end."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm
from torch_mlir._mlir_libs._mlirDialectsLLVM import translate_module_to_llvmir

from shlo_disc.mlir import ir, new_context, run_pipeline, walk
from tests.ptx.llvm_text import for_older_llvm

__all__ = ["ptx_of"]

PIPELINE = (
    "canonicalize,cse,convert-scf-to-cf,convert-math-to-llvm,convert-vector-to-llvm,"
    "finalize-memref-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"
    "convert-func-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts"
)
"""Upstream passes only; none of them knows a machine."""

TRIPLE, CHIP, FEATURES = "nvptx64-nvidia-cuda", "sm_80", "+ptx70"


@functools.cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=CHIP, features=FEATURES, opt=2)


@functools.lru_cache(maxsize=64)
def ptx_of(text: str) -> str:
    """The PTX of the kernel `KERNEL` in a text of `PtxBuilder`."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        run_pipeline(module, PIPELINE)
        walk(module, _expect_llvm)
        for view in module.body.operations:
            if view.operation.name == "llvm.func" and len(view.regions[0].blocks):
                convention = ir.Attribute.parse("#llvm.cconv<ptx_kernelcc>")
                view.operation.attributes["CConv"] = convention
        lowered = translate_module_to_llvmir(module.operation)
    machine = _machine()
    made = llvm.parse_assembly(for_older_llvm(lowered))
    made.triple, made.data_layout = TRIPLE, str(machine.target_data)
    made.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(made, builder)
    ptx: str = machine.emit_assembly(made)
    return ptx


def _expect_llvm(op: ir.Operation) -> None:
    """Translation crashes the process on an op it does not know."""
    assert op.name.startswith(("llvm.", "builtin.module")), f"{op} was not lowered to LLVM"
