"""hoist-projections: the product of a loop's input and its weights is one product before the loop.

    while i < n { %x = dynamic_slice %xs, i;  %y = dot_general %x, %w }
    ==>
    %ys = dot_general %xs, %w
    while i < n { %y = dynamic_slice %ys, i }

Why     A recurrent layer multiplies one step's few rows by a weight at a time. All steps together
        are one large product at the speed of large products, and the loop has one kernel less.
Needs   `hoist-invariants` (the weight stands before the loop), `resolve-shapes`.
Keeps   every result up to the order in which a dot_general adds. The loop must run once for every
        entry of `%xs`, so that nothing is computed in vain. So `i` counts from 0 in steps of 1 up
        to the size of `%xs`, as in `lax.scan`. Where the loop reads does not matter. A product of
        unknown sizes stays where its input's slice or reshape has sizes that are numbers.
Cost    O(ops in loops).
Source  Appleyard et al., "Optimizing performance of recurrent neural networks on GPUs" (2016).
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.loops import counted
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir import dialect
from shlo_disc.ir.contractions import dot_numbers, dot_sides
from shlo_disc.ir.indexing import gather_numbers
from shlo_disc.ir.mlir import at, ir, ops_of, producer
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import RESHAPES


@dataclass(frozen=True)
class HoistProjections(Pass):
    """See the module."""

    name: ClassVar[str] = "hoist-projections"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of products that left a loop."""
        loops = [op for op in ops_of(module, "stablehlo.while") if _candidates(op)]
        if not loops:
            return 0
        known = shapes.now()
        return sum(_hoist(loop, known) for loop in loops)


@dataclass
class _Candidate:
    """`dot` of what `slice_` reads from an array of before the loop."""

    dot: ir.Operation
    reshape: ir.Operation
    slice_: ir.Operation


def _candidates(loop: ir.Operation) -> list[_Candidate]:
    body = loop.regions[1].blocks[0]
    inside: set[ir.Value] = set(body.arguments)
    for view in body.operations:
        inside.update(view.operation.results)
    found: list[_Candidate] = []
    for view in body.operations:
        dot = view.operation
        if dot.name != "stablehlo.dot_general" or dot.operands[1] in inside:
            continue
        reshape = producer(dot.operands[0])
        if reshape is None or reshape.name not in RESHAPES:
            continue
        slice_ = producer(reshape.operands[0])
        if slice_ is None or not _is_slice(slice_) or slice_.operands[0] in inside:
            continue
        static = slice_.name == "stablehlo.dynamic_slice" or reshape.name == "stablehlo.reshape"
        if static and not ir.ShapedType(dot.results[0].type).has_static_shape:
            continue  # these ops have sizes that are numbers
        if slice_.results[0] in inside and _is_projection(dot):
            found.append(_Candidate(dot, reshape, slice_))
    return found


def _is_slice(op: ir.Operation) -> bool:
    """A dynamic_slice, or the gather that is one where sizes are symbolic."""
    if op.name == "stablehlo.dynamic_slice":
        return True
    if op.name != "stablehlo.dynamic_gather":
        return False
    numbers = gather_numbers(op)
    whole = tuple(range(ir.ShapedType(op.operands[0].type).rank))
    return numbers.window_dims == whole and numbers.indexed_dims == whole


def _is_projection(dot: ir.Operation) -> bool:
    """True if `dot` contracts the last dimension of its left operand with a matrix."""
    left, right = dot_sides(dot)
    last = len(left.free)
    return not left.batch and left.contracting == (last,) and len(right.free) == 1


def _hoist(loop: ir.Operation, shapes: ShapeAnalysis) -> int:
    loop_counts = counted(loop, shapes)
    if loop_counts is None:
        return 0
    count = loop_counts.steps
    made = 0
    products: dict[tuple[ir.Value, ir.Value, tuple[int, ...]], ir.Value] = {}
    for candidate in _candidates(loop):
        dot, reshape, slice_ = candidate.dot, candidate.reshape, candidate.slice_
        array, weight = slice_.operands[0], dot.operands[1]
        if not _takes_one_of(shapes.shape(array), shapes.shape(slice_.results[0]), count, shapes):
            continue
        if len(shapes.shape(reshape.results[0])) != len(shapes.shape(array)) - 1:
            continue
        key = (array, weight, dot_sides(dot)[1].contracting)
        if key not in products:
            products[key] = _product(loop, dot, array, weight)
        _read_back(candidate, products[key], shapes)
        made += 1
    return made


def _takes_one_of(
    whole: tuple[Expr, ...], part: tuple[Expr, ...], count: Expr, shapes: ShapeAnalysis
) -> bool:
    """True if `part` is one entry of the `count` along the first dimension of `whole`."""
    equal = shapes.constraints.equal
    if not (part[0].is_const and part[0].value == 1 and equal(whole[0], count)):
        return False
    return all(equal(a, b) for a, b in zip(whole[1:], part[1:], strict=True))


def _sizes(type_: ir.Type) -> list[int]:
    """As a type has them: unknown ones are a number below 0."""
    return list(ir.RankedTensorType(type_).shape)


def _product(loop: ir.Operation, dot: ir.Operation, array: ir.Value, weight: ir.Value) -> ir.Value:
    """The product of all entries of `array`, in front of `loop`."""
    _, right = dot_sides(dot)
    element = ir.RankedTensorType(dot.results[0].type).element_type
    sizes = [*_sizes(array.type)[:-1], _sizes(dot.results[0].type)[-1]]
    attributes = dict(dot.attributes.items())
    attributes["dot_dimension_numbers"] = dot_numbers(
        ((), ()), ((len(sizes) - 1,), right.contracting)
    )
    with ir.InsertionPoint(loop), dot.location:
        return ir.Operation.create(
            "stablehlo.dot_general",
            results=[ir.RankedTensorType.get(sizes, element)],
            operands=[array, weight],
            attributes=attributes,
        ).results[0]


def _read_back(candidate: _Candidate, product: ir.Value, shapes: ShapeAnalysis) -> None:
    """The entry of `product` in place of the dot."""
    dot, reshape, slice_ = candidate.dot, candidate.reshape, candidate.slice_
    result = shapes.shape(dot.results[0])
    one = Expr.const(1)
    element = ir.RankedTensorType(product.type).element_type
    kind = ir.RankedTensorType.get([1, *_sizes(product.type)[1:]], element)
    attributes = dict(slice_.attributes.items())
    operands = [product, *list(slice_.operands)[1:]]
    with at(dot):
        if slice_.name == "stablehlo.dynamic_slice":
            attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(_sizes(kind))
        else:
            index = ir.RankedTensorType(slice_.operands[2].type).element_type
            operands[2] = dialect.shape([one, *result], index)
        entry = ir.Operation.create(
            slice_.name, results=[kind], operands=operands, attributes=attributes
        ).results[0]
        operands = [entry]
        if reshape.name == "stablehlo.dynamic_reshape":
            index = ir.RankedTensorType(reshape.operands[1].type).element_type
            operands.append(dialect.shape(result, index))
        new = ir.Operation.create(
            reshape.name, results=[dot.results[0].type], operands=operands
        ).results[0]
    dot.results[0].replace_all_uses_with(new)
    for op in (dot, reshape, slice_):
        if not list(op.results[0].uses):
            op.erase()


register(HoistProjections())
