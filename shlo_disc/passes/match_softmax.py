"""The softmax in the row work of an attention: kernels that see a part of a row at a time need one.

    weights = exp(s - r(max s)) * f        or        exp(s - r(max s)) / f

`s` are the scores behind element-wise work. `r` and `f` have one element a row. `r` is computed
from the maximum of the row, `f` from it and from the sum of the exponentials. Conversions between
floats may stand anywhere: the kernels compute all this in f32.

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.contractions import dot_sides, may_round
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.mlir import ir, producer
from shlo_disc.passes.match_attention import AttentionRecord
from shlo_disc.passes.op_classes import (
    BROADCASTS,
    DATA_MOVEMENT,
    ELEMENTWISE,
    FREE,
    RESHAPES,
    is_row_reduction,
    is_splat_constant,
)

_SAFE = ELEMENTWISE | DATA_MOVEMENT | FREE | {"disc.shape", "stablehlo.constant"}
"""What may stand between the scores and their maximum, and between values of a row."""


@dataclass(frozen=True)
class Softmax:
    """The weights of an attention as exponentials of scores."""

    scores: ir.Value
    """What the exponentials are of, and the maximum."""
    maximum: ir.Operation
    """The reduction that finds the maximum of a row; likewise `total`, the sum."""
    total: ir.Operation
    reference: ir.Value
    """What is subtracted from the scores: one element a row."""
    factor: ir.Value
    """What the exponentials are multiplied with, or divided by: one element a row."""
    divides: bool


def match_softmax(record: AttentionRecord, shapes: ShapeAnalysis) -> Softmax | str:
    """The softmax that computes the weights of `record`; or why it is none."""
    rows, raw = record.rows, record.score.total
    reductions = [op for sweep in rows.sweeps for op in sweep]
    if len(reductions) != 2:
        return f"a softmax has two reductions, the rows have {len(reductions)}"
    last = _source(record.weights)
    if last is None or last.name not in ("stablehlo.divide", "stablehlo.multiply"):
        return "the weights are no softmax: no exponentials by a number of the row"
    divides = last.name == "stablehlo.divide"
    pairs = [(0, 1)] if divides else [(0, 1), (1, 0)]
    for one, other in pairs:
        exponential = _source(last.operands[one])
        factor = _repeated(last.operands[other], rows.lines, shapes)
        if exponential is not None and exponential.name == "stablehlo.exponential" and factor:
            return _of(exponential, factor, divides, reductions, raw, rows.lines, shapes)
    return "the weights are no softmax: no exponentials by a number of the row"


def _of(
    exponential: ir.Operation,
    factor: ir.Value,
    divides: bool,
    reductions: Sequence[ir.Operation],
    raw: ir.Value,
    lines: Sequence[Expr],
    shapes: ShapeAnalysis,
) -> Softmax | str:
    difference = _source(exponential.operands[0])
    if difference is None or difference.name != "stablehlo.subtract":
        return "the weights are no softmax: nothing is subtracted from the scores"
    scores = difference.operands[0]
    reference = _repeated(difference.operands[1], lines, shapes)
    if reference is None:
        return "the weights are no softmax: what is subtracted is not a number of the row"
    maximum, total = reductions
    if not _reduces(maximum, "stablehlo.maximum", float("-inf")):
        return "the weights are no softmax: no maximum is subtracted from the scores"
    if not _reduces(total, "stablehlo.add", 0.0):
        return "the weights are no softmax: the exponentials are not added up"
    if _through(maximum.operands[0]) != _through(scores):
        return "the weights are no softmax: the maximum is that of other scores"
    if _through(total.operands[0]) != exponential.results[0]:
        return "the weights are no softmax: the sum is that of other exponentials"
    results = {maximum.results[0], total.results[0]}
    if not (
        _is_made_of(reference, {maximum.results[0]}, {raw})
        and _is_made_of(factor, results, {raw})
        and _is_made_of(scores, {raw}, results)
    ):
        return "the row work reads scores at several places"
    return Softmax(_through(scores), maximum, total, reference, factor, divides)


def _is_float_convert(op: ir.Operation) -> bool:
    return op.name == "stablehlo.convert" and all(
        element_type(ir.ShapedType(v.type).element_type).is_float
        for v in (op.operands[0], op.results[0])
    )


def _through(value: ir.Value) -> ir.Value:
    """`value` in front of conversions between floats, and of reshapes."""
    op = producer(value)
    while op is not None and (op.name in RESHAPES or _is_float_convert(op)):
        value = op.operands[0]
        op = producer(value)
    return value


def _source(value: ir.Value) -> ir.Operation | None:
    """What computes `value` but for conversions and reshapes."""
    return producer(_through(value))


def _repeated(value: ir.Value, lines: Sequence[Expr], shapes: ShapeAnalysis) -> ir.Value | None:
    """The value with one element a row that `value` repeats along the rows; else None."""
    op = _source(value)
    if op is None or op.name not in BROADCASTS:
        return None
    found: ir.Value = op.operands[0]
    same = shapes.constraints.product_equal(shapes.shape(found), list(lines))
    return found if same else None


def _reduces(op: ir.Operation, body: str, start: float) -> bool:
    """True if `op` reduces floats by the op `body`, from `start` on."""
    block = op.regions[0].blocks[0]
    ops = [view.operation for view in block.operations]
    init = producer(op.operands[1])
    if len(op.results) != 1 or len(ops) != 2 or ops[0].name != body:
        return False
    if set(ops[0].operands) != set(block.arguments) or ops[1].operands[0] != ops[0].results[0]:
        return False
    if init is None or init.name != "stablehlo.constant" or not is_splat_constant(init):
        return False
    splat = ir.DenseElementsAttr(init.attributes["value"]).get_splat_value()
    return isinstance(splat, ir.FloatAttr) and splat.value == start


def _is_made_of(value: ir.Value, given: Container[ir.Value], never: Container[ir.Value]) -> bool:
    """True if `value` is computed from `given` and inputs, each element by itself."""
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        top = waiting.pop()
        if top in seen or top in given:
            continue
        seen.add(top)
        op = producer(top)
        if top in never or (op is not None and (op.name not in _SAFE or is_row_reduction(op))):
            return False
        waiting += op.operands if op is not None else ()
    return True


def why_not_online(
    record: AttentionRecord, widest: int, rounded: Container[str], shapes: ShapeAnalysis
) -> str | None:
    """Why scores of `record` cannot stay in the registers of a kernel; None: they can.

    `widest`: the largest head size that a kernel has room for. `rounded`: see
    `machine_model.AttentionKernels`.
    """
    softmax = match_softmax(record, shapes)
    if isinstance(softmax, str):
        return softmax
    score, mix = record.score.op, record.mix.op
    (depth,) = dot_sides(score)[record.key_side].contracting
    heads = [record.keys.sizes[depth]]
    heads += [record.values.sizes[d] for d in dot_sides(mix)[1 - record.weight_side].free]
    if not all(size.is_const for size in heads):
        return "its head size is not known before a call"
    if any(size.value > widest for size in heads):
        return f"its head size is more than {widest}"
    read = {_name(value) for value in (*score.operands, *mix.operands)}
    if len(read) != 1:
        return "queries, keys, weights and values have different element types"
    if not {_name(score.results[0]), _name(mix.results[0])} <= {"f32", *read}:
        return "the scores or the result have another element type than f32 and the keys'"
    (element,) = read
    if element in rounded and not (may_round(score) and may_round(mix)):
        return (
            f"its products keep more digits of {element} than attention in one launch does: "
            "precision or algorithm asks for them"
        )
    return None


def _name(value: ir.Value) -> str:
    return element_type(ir.ShapedType(value.type).element_type).name
