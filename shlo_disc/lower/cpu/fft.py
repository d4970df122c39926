"""Kind `fft`: one dimension, transformed by the runtime (`ral/src/core/fft.h`)."""

from __future__ import annotations

from shlo_disc.dynamic.expr import Expr
from shlo_disc.ir import attributes as attr
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir
from shlo_disc.lower.cpu.machine import Machine
from shlo_disc.lower.kernels.single_op import SingleOp
from shlo_disc.lower.plan import FftCall, Input, KernelPlan
from shlo_disc.passes.match_single_op import SingleOpRecord
from shlo_disc.passes.records import Planned

KINDS = {"FFT": 0, "IFFT": 1, "RFFT": 2, "IRFFT": 3}
DOUBLE = 4
PAIRS_IN = 8
PAIRS_OUT = 16
VECTOR_SHIFT = 5
"""The bits of `FftCall.options`, as `ral/src/core/fft.h` has them."""


def emit_fft(fusion: Planned[SingleOpRecord], machine: Machine) -> KernelPlan:
    """The plan of a `disc.fft`: one call of the runtime, with vectors of `machine`."""
    single = SingleOp.of(fusion, machine)
    op = single.op
    kind = attr.text(op, "kind")
    inputs = list(fusion.block.arguments)
    operands = [Input(inputs.index(value)) for value in list(op.operands)[:2]]
    results, workspaces = single.places(list(op.results))
    real = op.results[0] if kind == "IRFFT" else op.operands[0]
    pairs_in, pairs_out = dialect.fft_pairs(op)
    sizes = single.shape(real)[: -1 if pairs_in else None]
    axis = dialect.fft_dimension(op)
    options = KINDS[kind] | machine.vector_bytes << VECTOR_SHIFT
    if isinstance(ir.RankedTensorType(real.type).element_type, ir.F64Type):
        options |= DOUBLE
    options |= (PAIRS_IN if pairs_in else 0) | (PAIRS_OUT if pairs_out else 0)
    outer, inner = (Expr.product(part) for part in (sizes[:axis], sizes[axis + 1 :]))
    call = FftCall(options, outer, sizes[axis], inner, (*operands, *results))
    return KernelPlan((call,), workspaces)
