"""Kernel texts to LLVM IR: MLIR's passes, and the differences between two releases of LLVM."""

from __future__ import annotations

from shlo_disc.base.errors import InternalError
from shlo_disc.ir.mlir import ir, kernel_context, ops_of, run_pipeline, walk
from shlo_disc.ir.mlir_libraries import translate_module_to_llvmir
from shlo_disc.lower.gpu.machine import Machine
from shlo_disc.lower.images import GpuText
from shlo_disc.lower.llvm.llvm_text import for_older_llvm
from shlo_disc.lower.plan import named


def pipeline(machine: Machine, index_bits: int) -> str:
    """The passes from a `gpu.module` to the LLVM dialect with what is special to `machine`.

    Mathematical functions are written out (`values/math`), so none becomes a call of a library.
    The pass for vectors takes indices for 64 bits; that of the machine converts the rest of them.
    """
    vectors = "convert-vector-to-llvm," if index_bits == 64 else ""
    passes = (
        f"canonicalize,cse,convert-scf-to-cf,convert-math-to-llvm,{vectors}"
        f"{machine.conversion.format(index_bits=index_bits)},reconcile-unrealized-casts"
    )
    return f"gpu.module({passes})"


def lower_to_llvm(source: GpuText, name: str, machine: Machine, context: ir.Context) -> ir.Module:
    """The module of a kernel, called `name`, in the LLVM dialect, in `context`.

    Raises MLIRError for a text that is not valid, and InternalError for an operation that is left.
    The translation to LLVM IR would end the process on that one.
    """
    with context, ir.Location.unknown():
        module = ir.Module.parse(named(source.text, name))
        run_pipeline(module, pipeline(machine, source.signature.index_bits))
        for kernel in ops_of(module, "llvm.func"):
            _pass_maps_by_value(kernel, [x.argument for x in source.signature.maps])
        walk(module, _expect_translatable)
        return module


def llvm_text(source: GpuText, name: str, machine: Machine) -> str:
    """LLVM IR of a kernel, called `name`, as the LLVM of llvmlite reads it."""
    module = lower_to_llvm(source, name, machine, kernel_context())
    with module.context:
        (kernels,) = ops_of(module, "gpu.module")
        return for_older_llvm(translate_module_to_llvmir(kernels))


def _pass_maps_by_value(kernel: ir.Operation, maps: list[int]) -> None:
    """Parameters `maps` are 128 bytes in constant memory; MLIR drops what a `gpu.func` says."""
    if not maps:
        return
    by_value = "llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant"
    count = len(kernel.regions[0].blocks[0].arguments)
    each = [f"{{{by_value if k in maps else ''}}}" for k in range(count)]
    kernel.attributes["arg_attrs"] = ir.Attribute.parse(f"[{', '.join(each)}]")


_TRANSLATED = ("llvm.", "nvvm.", "rocdl.", "gpu.module", "builtin.module")


def _expect_translatable(op: ir.Operation) -> None:
    if not op.name.startswith(_TRANSLATED):
        raise InternalError(f"{op.name} was left in a kernel after lowering to LLVM:\n{op}")
