"""What a fusion asks of the machine, as formulas: operations, bytes read, bytes written.

The floor in `explain()` and `profile()` comes from these, so they count what any implementation
must do: a value passed between two ops of one fusion costs no bytes, an operand is read once, and a
gather reads the rows it takes. Operations are counted as in XLA's HloCostAnalysis: one per element
of an element-wise result, two per multiply-add of a product, transcendentals apart.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.contractions import dot_sides
from shlo_disc.ir.convolutions import comes_in_phases, conv_numbers, window_numbers
from shlo_disc.ir.mlir import ir
from shlo_disc.ir.ops import Flops, row_of
from shlo_disc.lower.host.record import Work
from shlo_disc.passes.records import update_of


def work_of(fusion: ir.Operation, shapes: ShapeAnalysis) -> Work:
    """The work of a `disc.fusion`."""
    block = fusion.regions[0].blocks[0]
    zero = Expr.const(0)
    flops, transcendentals = zero, zero
    for view in block.operations:
        op = view.operation
        if not len(op.results) or op.name.startswith("disc."):
            continue
        count = row_of(op).flops
        if count is Flops.TRANSCENDENTAL:
            transcendentals = transcendentals + _elements(op.results[0], shapes)
        elif count is Flops.ELEMENTS:
            flops = flops + _elements(op.results[0], shapes)
        elif count is Flops.OWN:
            flops = flops + FLOPS[op.name](op, shapes)
    reads, writes = zero, zero
    for operand, argument in zip(fusion.operands, block.arguments, strict=True):
        reads = reads + _bytes_read(operand, argument, shapes)
    # What is changed in place is written where it is changed.
    changed = _changed_in_place(fusion)
    for result in fusion.results:
        writes = writes + value_bytes(changed or result, shapes)
    if changed is not None:
        reads = reads - _bytes_read(fusion.operands[0], block.arguments[0], shapes)
    return Work(reads, writes, flops, transcendentals)


def _elements(value: ir.Value, shapes: ShapeAnalysis) -> Expr:
    return Expr.product(shapes.shape(value))


def _bytes_read(operand: ir.Value, argument: ir.Value, shapes: ShapeAnalysis) -> Expr:
    whole = value_bytes(operand, shapes)
    parts = Expr.const(0)
    for use in argument.uses:
        user = use.owner.operation
        if not row_of(user).reads_part or use.operand_number != 0:
            return whole
        parts = parts + value_bytes(user.results[0], shapes)
    return parts if parts == whole else Expr.min(whole, parts)


def _changed_in_place(fusion: ir.Operation) -> ir.Value | None:
    """The update of a fusion that writes a slice of its operand 0."""
    op = update_of(fusion)
    if op is None or op.name != "stablehlo.dynamic_update_slice":
        return None
    update: ir.Value = op.operands[1]
    return update if op.operands[0] == fusion.regions[0].blocks[0].arguments[0] else None


def _body(op: ir.Operation) -> int:
    """Ops in the region that combines elements."""
    return max(1, sum(1 for _ in op.regions[0].blocks[0].operations) - 1)


def _dot(op: ir.Operation, shapes: ShapeAnalysis) -> Expr:
    lhs = shapes.shape(op.operands[0])
    summed = Expr.product(lhs[axis] for axis in dot_sides(op)[0].contracting)
    return _elements(op.results[0], shapes) * summed * 2


def _convolution(op: ir.Operation, shapes: ShapeAnalysis) -> Expr:
    """Every tap of the kernel for every result element; taps in the padding are counted too.

    Those on zeros between the elements of a dilated input are not, where phases leave them out.
    """
    sizes = shapes.shape(op.operands[1])
    outputs = conv_numbers(op).kernel_output_feature
    taps = Expr.product(size for axis, size in enumerate(sizes) if axis != outputs)
    left_out = prod(window_numbers(op, "lhs_dilation")) if comes_in_phases(op) else 1
    return _elements(op.results[0], shapes) * taps * 2 // left_out


def _reduce(op: ir.Operation, shapes: ShapeAnalysis) -> Expr:
    return _elements(op.operands[0], shapes) * _body(op)


def _reduce_window(op: ir.Operation, shapes: ShapeAnalysis) -> Expr:
    window = 1
    for size in ir.DenseI64ArrayAttr(op.attributes["window_dimensions"]):
        window *= int(size)
    return _elements(op.results[0], shapes) * window * _body(op)


def _scatter(op: ir.Operation, shapes: ShapeAnalysis) -> Expr:
    return _elements(op.operands[len(op.operands) - 1], shapes) * _body(op)


FLOPS: dict[str, Callable[[ir.Operation, ShapeAnalysis], Expr]] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _scatter,
}
"""Operations of ops whose row says `Flops.OWN`. The comparisons of a sort are no polynomial of
sizes; they count nothing."""
