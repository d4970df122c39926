"""Modules and fusions as plain StableHLO of static shapes, which the StableHLO interpreter runs.

Every size is known here: the shape analysis gives each value a term, and the sizes of a call give
each term a number. What `disc` adds to StableHLO becomes StableHLO again, and nothing is optimised.

Sums are computed in f64, so that the order of additions does not count as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import ShapeAnalysis, analyze
from shlo_disc.ingest.complex_numbers.planes import joined, planes_of
from shlo_disc.ir.builders import convert, create
from shlo_disc.ir.dialect import fft_dimension, fft_pairs
from shlo_disc.ir.mlir import at, ir, replace, terminator, walk

Sizes = Mapping[str, int]


def of_module(module: ir.Module, sizes: Sizes) -> None:
    """Rewrite a module of any stage, in place, for the interpreter.

    `sizes`: the values of all symbols of `main`. Raises what the shape analysis raises.
    """
    shapes = analyze(module)
    main = main_function(module)
    for op in _ops(main):
        _note_windows(op, op, shapes, sizes)
    static = [(value, _static(value, shapes, sizes)) for value in _values(main)]
    for value, kind in static:
        value.set_type(kind)
    block = main.regions[0].blocks[0]
    _set_function_type(main, block)
    _finish(module, main, sizes)


def of_fusion(fusion: ir.Operation, shapes: ShapeAnalysis, sizes: Sizes) -> ir.Module:
    """A module whose `main` is the body of a fusion, in the context of the fusion."""
    body = fusion.regions[0].blocks[0]
    with fusion.context, ir.Location.unknown():
        kinds = [_static(a, shapes, sizes) for a in body.arguments]
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            type_ = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
            name = ir.StringAttr.get("main")
            attributes = {"sym_name": name, "function_type": type_}
            main = ir.Operation.create("func.func", attributes=attributes, regions=1)
        block = main.regions[0].blocks.append(*kinds)
        known: dict[ir.Value, ir.Value] = dict(zip(body.arguments, block.arguments, strict=True))
        for view in body.operations:
            op = view.operation
            operands = [known[value] for value in op.operands]
            if op.name == "disc.yield":
                with ir.InsertionPoint(block):
                    ir.Operation.create("func.return", operands=operands)
                continue
            made = op.clone(ir.InsertionPoint(block))
            for index, value in enumerate(operands):
                made.operands[index] = value
            _note_windows(op, made, shapes, sizes)
            for result, old in zip(made.results, op.results, strict=True):
                result.set_type(_static(old, shapes, sizes))
                known[old] = result
        _set_function_type(main, block)
        _finish(module, main, sizes)
    return module


# --- static types --------------------------------------------------------------------------------


def _ops(root: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []
    walk(root, found.append)
    return found


def _values(main: ir.Operation) -> Iterable[ir.Value]:
    for op in _ops(main):
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments


def _static(value: ir.Value, shapes: ShapeAnalysis, sizes: Sizes) -> ir.Type:
    if not isinstance(value.type, ir.RankedTensorType):
        return value.type
    kind = ir.RankedTensorType(value.type)
    if kind.has_static_shape:
        return kind
    numbers = [size.evaluate(sizes) for size in shapes.shape(value)]
    return ir.RankedTensorType.get(numbers, kind.element_type)


def _set_function_type(main: ir.Operation, block: ir.Block) -> None:
    last = terminator(block)
    kind = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in last.operands])
    main.attributes["function_type"] = ir.TypeAttr.get(kind)


# --- what is not StableHLO -----------------------------------------------------------------------

_WINDOW = "window"
"""On a `disc.reduce_window`: the numbers that its last three operands hold."""


def _note_windows(op: ir.Operation, on: ir.Operation, shapes: ShapeAnalysis, sizes: Sizes) -> None:
    if op.name != "disc.reduce_window":
        return
    terms = [shapes.scalar(value) for value in list(op.operands)[-3:]]
    numbers = [term.evaluate(sizes) for term in terms if term is not None]
    on.attributes[_WINDOW] = ir.DenseI64ArrayAttr.get(numbers)


def _finish(module: ir.Module, main: ir.Operation, sizes: Sizes) -> None:
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    for op in _ops(main):
        rewrite = _REWRITES.get(op.name)
        if rewrite is not None:
            with at(op):
                rewrite(op, sizes)
    for op in _ops(main):
        if op.name in _SUMS:
            with at(op):
                _widen(op)
    for name in [n for n in main.attributes if n.startswith("disc.")]:
        del main.attributes[name]
    _pass_bits(main)
    module.operation.verify()


def _constant(array: npt.NDArray[Any], kind: ir.Type) -> ir.Value:
    tensor = ir.RankedTensorType(kind)
    element = tensor.element_type
    value = ir.DenseElementsAttr.get(
        np.ascontiguousarray(array), type=element, shape=list(tensor.shape)
    )
    return create("stablehlo.constant", [], kind, value=value)


def _sizes_as_data(op: ir.Operation, sizes: Sizes) -> None:
    kind = ir.RankedTensorType(op.results[0].type)
    attribute = op.attributes["dim" if op.name == "disc.dim" else "dims"]
    terms = [attribute] if op.name == "disc.dim" else list(ir.ArrayAttr(attribute))
    numbers = [Expr.parse(ir.StringAttr(term).value).evaluate(sizes) for term in terms]
    width, unsigned = _integer(kind.element_type)
    dtype = np.dtype(f"{'u' if unsigned else ''}int{width}")
    array = np.array(numbers, np.int64).astype(dtype).reshape(list(kind.shape))
    replace(op, _constant(array, kind))


def _integer(element: ir.Type) -> tuple[int, bool]:
    kind = ir.IntegerType(element)
    return kind.width, kind.is_unsigned


def _nothing(op: ir.Operation, sizes: Sizes) -> None:
    """What reads a `disc.empty` does not depend on its elements: zeros will do."""
    kind = ir.RankedTensorType(op.results[0].type)
    element = kind.element_type
    is_float = not isinstance(element, ir.IntegerType)
    zero = ir.FloatAttr.get(element, 0.0) if is_float else ir.IntegerAttr.get(element, 0)
    splat = ir.DenseElementsAttr.get_splat(kind, zero)
    replace(op, create("stablehlo.constant", [], kind, value=splat))


def _inline(op: ir.Operation, sizes: Sizes) -> None:
    block = op.regions[0].blocks[0]
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *ops, last = [view.operation for view in block.operations]
    for inner in ops:
        inner.move_before(op)
    replace(op, *last.operands)


def _erase(op: ir.Operation, sizes: Sizes) -> None:
    op.erase()


def _call(op: ir.Operation, sizes: Sizes) -> None:
    """The call has checked its sizes before."""
    if ir.StringAttr(op.attributes["call_target_name"]).value == "shape_assertion":
        op.erase()


def _scan(op: ir.Operation, sizes: Sizes) -> None:
    axis = int(ir.IntegerAttr(op.attributes["dimension"]).value)
    count = ir.RankedTensorType(op.operands[0].type).get_dim_size(axis)
    before, behind = (
        (0, count - 1) if ir.BoolAttr(op.attributes["reverse"]).value else (count - 1, 0)
    )
    _windows(op, axis, count, before, behind)


def _window(op: ir.Operation, sizes: Sizes) -> None:
    window, low, high = list(ir.DenseI64ArrayAttr(op.attributes[_WINDOW]))
    _windows(op, int(ir.IntegerAttr(op.attributes["dimension"]).value), window, low, high)


def _windows(op: ir.Operation, axis: int, window: int, low: int, high: int) -> None:
    """`op` as a `stablehlo.reduce_window` along one dimension."""
    count = len(op.results)
    inputs = list(op.operands)[: 2 * count]
    if window == 0 or 0 in ir.RankedTensorType(inputs[0].type).shape:
        replace(op, *inputs[:count])  # without elements
        return
    rank = ir.RankedTensorType(inputs[0].type).rank
    sizes = [window if d == axis else 1 for d in range(rank)]
    padding = np.array([[low, high] if d == axis else [0, 0] for d in range(rank)], np.int64)
    made = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[r.type for r in op.results],
        operands=inputs,
        attributes={
            "window_dimensions": ir.DenseI64ArrayAttr.get(sizes),
            "padding": ir.DenseElementsAttr.get(padding),
        },
        regions=1,
    )
    op.regions[0].blocks[0].append_to(made.regions[0])
    replace(op, *made.results)


def _fft(op: ir.Operation, sizes: Sizes) -> None:
    """Products with matrices of cosines and sines, in f64 and rounded once."""
    kind = ir.StringAttr(op.attributes["kind"]).value
    planes = list(op.operands)[:2]
    types = [result.type for result in op.results]
    pairs_in, pairs_out = fft_pairs(op)
    if pairs_in:
        z = planes_of(planes[0])
        planes = [z.re, z.im]
    if pairs_out:
        types = [plane.type for plane in planes]
    real = ir.RankedTensorType(types[0] if kind == "IRFFT" else planes[0].type)
    axis = fft_dimension(op)
    matrices = _dft(kind, real.shape[axis])
    f64 = ir.F64Type.get()
    wide = [convert(p, ir.RankedTensorType.get(p.type.shape, f64)) for p in planes]
    found = []
    for type_, row in zip(types, matrices, strict=True):
        to = ir.RankedTensorType.get(type_.shape, f64)
        # The dimension comes last in the product.
        order = [d for d in range(to.rank) if d != axis] + [axis]
        product = ir.RankedTensorType.get([to.shape[d] for d in order], f64)
        numbers = ir.Attribute.parse(
            f"#stablehlo.dot<lhs_contracting_dimensions = [{axis}], "
            "rhs_contracting_dimensions = [0]>"
        )
        total = None
        for plane, matrix in zip(wide, row, strict=True):
            m = _constant(matrix, ir.RankedTensorType.get(matrix.shape, f64))
            term = create(
                "stablehlo.dot_general", [plane, m], product, dot_dimension_numbers=numbers
            )
            total = term if total is None else create("stablehlo.add", [total, term], product)
        assert total is not None
        back = ir.DenseI64ArrayAttr.get([order.index(d) for d in range(to.rank)])
        found.append(convert(create("stablehlo.transpose", [total], to, permutation=back), type_))
    replace(op, *([joined(found[0], found[1], real.rank)] if pairs_out else found))


def _dft(kind: str, n: int) -> list[list[npt.NDArray[np.float64]]]:
    """For each plane of the results the matrix with which each plane of the operands counts.

    Source: the definition, X[k] = sum over j of x[j] (cos - i sin)(2 pi j k / n).
    """
    turns = np.outer(np.arange(n), np.arange(n)) % max(n, 1) / max(n, 1)
    c, s = np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    half = n // 2 + 1
    if kind == "FFT":
        return [[c, s], [-s, c]]
    if kind == "RFFT":
        return [[c[:, :half]], [-s[:, :half]]]
    c, s = c / max(n, 1), s / max(n, 1)
    if kind == "IFFT":
        return [[c, -s], [s, c]]
    times = np.full((half, 1), 2.0)  # a result and its conjugate
    times[0] = 1
    ends = [0]
    if n % 2 == 0:
        times[-1] = 1
        ends.append(half - 1)
    s = s[:half].copy()
    s[ends] = 0
    return [[times * c[:half], -times * s]]


_REWRITES: dict[str, Callable[[ir.Operation, Sizes], None]] = {
    "disc.dim": _sizes_as_data,
    "disc.empty": _nothing,
    "disc.fft": _fft,
    "disc.fusion": _inline,
    "disc.guard": _erase,
    "disc.reduce_window": _window,
    "disc.scan": _scan,
    "disc.shape": _sizes_as_data,
    "disc.sizes": _sizes_as_data,
    "stablehlo.custom_call": _call,
}

# --- sums in f64 ---------------------------------------------------------------------------------

_SUMS = frozenset(
    f"stablehlo.{name}" for name in ("convolution", "dot_general", "reduce", "reduce_window")
)
_REDUCERS = frozenset(
    f"stablehlo.{name}"
    for name in (
        "add",
        "and",
        "compare",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "return",
        "select",
    )
)
"""Operations that mean the same in f64."""


def _widen(op: ir.Operation) -> None:
    inner = [view.operation for r in op.regions for b in r.blocks for view in b.operations]
    if any(view.name not in _REDUCERS for view in inner):
        return
    for index, value in enumerate(op.operands):
        op.operands[index] = convert(value, _wide(value.type))
    before = [result.type for result in op.results]
    blocks = [block for region in op.regions for block in region.blocks]
    values = [a for block in blocks for a in block.arguments]
    values += [result for view in inner for result in view.results]
    for value in (*values, *op.results):
        value.set_type(_wide(value.type))
    for result, kind in zip(op.results, before, strict=True):
        if result.type == kind:
            continue
        uses = list(result.uses)
        with ir.InsertionPoint.after(op), op.location:
            narrow = convert(result, kind)
        for use in uses:
            use.owner.operands[use.operand_number] = narrow


def _wide(kind: ir.Type) -> ir.Type:
    tensor = ir.RankedTensorType(kind)
    if isinstance(tensor.element_type, ir.IntegerType):
        return kind
    return ir.RankedTensorType.get(tensor.shape, ir.F64Type.get())


# --- bfloat16 in and out -------------------------------------------------------------------------


def _pass_bits(main: ir.Operation) -> None:
    """Arrays of bf16 enter and leave as ui16: Python's buffers have no bf16."""
    block = main.regions[0].blocks[0]
    first, last = block.operations[0], terminator(block)
    with ir.Location.unknown(main.context):
        for argument in block.arguments:
            kind = argument.type
            if not _is_bf16(kind):
                continue
            uses = list(argument.uses)
            argument.set_type(_bits(kind))
            with ir.InsertionPoint(first):
                value = create("stablehlo.bitcast_convert", [argument], kind)
            for use in uses:
                use.owner.operands[use.operand_number] = value
        for index, value in enumerate(last.operands):
            if _is_bf16(value.type):
                with ir.InsertionPoint(last):
                    bits = create("stablehlo.bitcast_convert", [value], _bits(value.type))
                last.operands[index] = bits
    _set_function_type(main, block)


def _is_bf16(kind: ir.Type) -> bool:
    return isinstance(ir.RankedTensorType(kind).element_type, ir.BF16Type)


def _bits(kind: ir.Type) -> ir.Type:
    shape: Sequence[int] = ir.RankedTensorType(kind).shape
    return ir.RankedTensorType.get(shape, ir.IntegerType.get_unsigned(16))
