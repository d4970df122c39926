"""Quantized tensors become integers: their storage, and arithmetic on floats around it.

    %y = reverse %x                      ==>  %s = bitcast_convert %x     (to the storage type)
                                              %y = bitcast_convert (reverse %s)
    %y = tanh %x                         ==>  %f = (%s - zero point) * scale
                                              %y = round(clamp(tanh %f / scale + zero point))

Ops that move values of a quantized type, or compare values of one type, act on the storage. Regions
and control flow carry the storage. Every other op computes what the specification says: it
dequantizes, computes in the expressed type and quantizes.

Upstream's `stablehlo-legalize-quant-to-math` computes sums and products of common types in
integers. It also turns the types of arguments and results into those of their storage.

Source: the StableHLO specification, sections "Quantized types", `dequantize_op_quantize`,
`uniform_quantize` and `uniform_dequantize`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import set_signature
from shlo_disc.ingest.present import is_quantized
from shlo_disc.ir.builders import (
    broadcast,
    convert,
    create,
    integer,
    scalar,
    shape_of,
    with_element,
)
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of, quant, replace, run_pipeline, terminator, walk
from shlo_disc.ir.ops import names
from shlo_disc.ir.ops.row import Role

_MOVES = names(lambda row: row.role is Role.MOVING or row.is_broadcast) | {
    f"stablehlo.{name}"
    for name in (
        "all_gather", "all_to_all", "broadcast", "collective_broadcast", "collective_permute",
        "dynamic_update_slice", "get_dimension_size", "get_tuple_element", "optimization_barrier",
        "select", "set_dimension_size", "torch_index_select",
    )
}  # fmt: skip
"""Every element of the result is one of an operand, or a size."""

_COMPARING = {f"stablehlo.{name}" for name in ("clamp", "compare", "maximum", "minimum")}
"""On the storage where all operands are of one type: scales are positive."""

_LEFT = {"func.return", "stablehlo.bitcast_convert"}
"""Upstream's pass changes the types of these only."""


def expand_quantized_types(module: ir.Module) -> int:
    """No quantized type is left; the number of ops that had one.

    Raises UnsupportedError for an op without a meaning on quantized types, with its line.
    """
    _make_storage_unsigned(module)
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        arguments = (a for region in op.regions for block in region for a in block.arguments)
        touched = any(is_quantized(v.type) for v in (*op.operands, *op.results, *arguments))
        if touched and op.name not in (*_LEFT, "func.func", "stablehlo.return"):
            found.append(op)

    walk(module, visit)
    left = []
    for op in found:
        with at(op):
            if not _expand(op):
                left.append(f"{source_line(op)}: {op.name}")
    try:
        run_pipeline(module, "func.func(stablehlo-legalize-quant-to-math)")
    except ir.MLIRError:
        raise UnsupportedError(
            f"{' or '.join(left[:3])} of quantized types of this form is not compiled; dequantize "
            "its operands"
        ) from None
    for op in ops_of(module, "stablehlo.bitcast_convert"):
        if op.operands[0].type == op.results[0].type:
            replace(op, op.operands[0])
    return len(found)


def _expand(op: ir.Operation) -> bool:
    """Rewrite `op` unless upstream's pass does; False if that does."""
    kinds = [v.type for v in (*op.operands, *op.results) if is_quantized(v.type)]
    if len(op.regions):
        _carry_storage(op)
    elif op.name in _MOVES or (op.name in _COMPARING and len({_element(k) for k in kinds}) == 1):
        _on_storage(op)
    elif op.name == "stablehlo.uniform_quantize":
        value = op.operands[0]
        x = _dequantized(value) if is_quantized(value.type) else value
        replace(op, _quantize(x, op.results[0].type))
    elif op.name == "stablehlo.constant":
        value = op.attributes["value"]
        integers = create(op.name, [], value.type, value=value)
        replace(op, _as_quantized(integers, op.results[0].type))
    elif op.name == "stablehlo.uniform_dequantize":
        replace(op, _dequantized(op.operands[0]))
    elif op.name == "stablehlo.custom_call":
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        raise UnsupportedError(
            f"{source_line(op)}: custom_call @{target} of quantized types is not compiled; "
            "dequantize its operands"
        )
    elif _is_upstreams(op, kinds):
        if op.name != "stablehlo.add":
            _sum_in_integers(op)
        return False
    else:
        _on_floats(op)
    return True


def _make_storage_unsigned(module: ir.Module) -> None:
    """Storage written `u8` is signless with a flag, and upstream's pass forgets the flag: `ui8`."""

    def fix(value: ir.Value) -> None:
        if is_quantized(value.type):
            element = _with_unsigned_storage(_element(value.type))
            value.set_type(with_element(value.type, element))

    def visit(op: ir.Operation) -> None:
        for result in op.results:
            fix(result)
        for region in op.regions:
            for block in region:
                for argument in block.arguments:
                    fix(argument)

    walk(module, visit)
    for function in module.body.operations:
        block = function.regions[0].blocks[0]
        set_signature(
            function,
            [a.type for a in block.arguments],
            [v.type for v in terminator(block).operands],
        )


def _with_unsigned_storage(element: quant.QuantizedType) -> quant.QuantizedType:
    storage = ir.IntegerType(element.storage_type)
    if element.is_signed or storage.is_unsigned:
        return element
    given = [
        element.flags,
        ir.IntegerType.get_unsigned(storage.width),
        element.expressed_type,
    ]
    limits = [element.storage_type_min, element.storage_type_max]
    axis, scales, zero_points = _parameters(element)
    if axis is None:
        return quant.UniformQuantizedType.get(*given, scales[0], zero_points[0], *limits)
    return quant.UniformQuantizedPerAxisType.get(*given, scales, zero_points, axis, *limits)


# --- on the storage -------------------------------------------------------------------------------


def _element(kind: ir.Type) -> quant.QuantizedType:
    return ir.RankedTensorType(kind).element_type


def _storage_type(kind: ir.Type) -> ir.RankedTensorType:
    """The type of the integers of a quantized tensor."""
    tensor, element = ir.RankedTensorType(kind), _element(kind)
    width = element.storage_type_integral_width
    make = ir.IntegerType.get_signless if element.is_signed else ir.IntegerType.get_unsigned
    return ir.RankedTensorType.get(tensor.shape, make(width), tensor.encoding)


def _as_quantized(integers: ir.Value, kind: ir.Type) -> ir.Value:
    return create("stablehlo.bitcast_convert", [integers], kind)


def _stored(value: ir.Value) -> ir.Value:
    """The integers of `value`, in front of the insertion point."""
    return create("stablehlo.bitcast_convert", [value], _storage_type(value.type))


def _on_storage(op: ir.Operation) -> None:
    """`op` takes and gives integers."""
    for k, value in enumerate(op.operands):
        if is_quantized(value.type):
            op.operands[k] = _stored(value)
    if "compare_type" in op.attributes:
        del op.attributes["compare_type"]  # that of the integers follows from their type
    _give_storage(op.results, ir.InsertionPoint.after(op))


def _carry_storage(op: ir.Operation) -> None:
    """`op` takes and gives integers, and so do its regions."""
    _refuse_other_scalars(op)
    _on_storage(op)
    for region in op.regions:
        for block in region:
            with op.location:
                _give_storage(block.arguments, ir.InsertionPoint.at_block_begin(block))
            last = terminator(block)
            with at(last):
                for k, value in enumerate(last.operands):
                    if is_quantized(value.type):
                        last.operands[k] = _stored(value)


def _refuse_other_scalars(op: ir.Operation) -> None:
    """Raise UnsupportedError for a region that computes in another quantized type."""
    if op.name in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
        return
    given = {_element(v.type) for v in op.operands if is_quantized(v.type)}
    values = [a for region in op.regions for a in region.blocks[0].arguments]
    values += list(op.results)
    if any(is_quantized(v.type) and _element(v.type) not in given for v in values):
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} whose computation has another quantized type than its "
            "operands; requantize these first"
        )


def _give_storage(values: Iterable[ir.Value], place: ir.InsertionPoint) -> None:
    """`values` are integers from here on; their users read them as quantized."""
    for value in values:
        if is_quantized(value.type):
            _retype(value, _storage_type(value.type), place, _as_quantized)


def _retype(
    value: ir.Value,
    new: ir.Type,
    place: ir.InsertionPoint,
    again: Callable[[ir.Value, ir.Type], ir.Value],
) -> None:
    """`value` is of type `new`; its users get `again(value, old type)`, made at `place`."""
    old, uses = value.type, list(value.uses)
    value.set_type(new)
    with place:
        known = again(value, old)
    for use in uses:
        use.owner.operands[use.operand_number] = known


# --- on floats ------------------------------------------------------------------------------------


def _is_upstreams(op: ir.Operation, kinds: Sequence[ir.Type]) -> bool:
    """True if upstream's pass computes `op` in integers, without rounding.

    Upstream's pass knows f32 as the expressed type, and parameters of an axis where all sizes are
    static. Its sums are 32 bits wide: of products of 8 bits.
    """
    elements = [_element(kind) for kind in kinds]
    if len(elements) < 3 or not all(
        isinstance(element.expressed_type, ir.F32Type) for element in elements
    ):
        return False
    per_tensor = [isinstance(element, quant.UniformQuantizedType) for element in elements]
    widths = [element.storage_type_integral_width for element in elements]
    if op.name == "stablehlo.add":
        return all(per_tensor) and len(set(elements)) == 1 and widths[0] <= 16
    if op.name not in ("stablehlo.dot_general", "stablehlo.convolution"):
        return False
    if max(widths[:2]) > 8 or not per_tensor[0]:
        return False
    static = all(ir.RankedTensorType(v.type).has_static_shape for v in (*op.operands, *op.results))
    return all(per_tensor) or (static and per_tensor[1] == per_tensor[2])


def _sum_in_integers(op: ir.Operation) -> None:
    """A product gives its exact sums, in units of the product of scales; then these are quantized.

    Upstream's pass rounds before it adds a zero point, which the specification does after.
    """
    (result,) = op.results
    left, right = (_element(v.type) for v in op.operands)
    i32 = ir.IntegerType.get_signless(32)
    limits = [-(1 << 31), (1 << 31) - 1]
    _, scales, _ = _parameters(right)
    units = [left.scale * scale for scale in scales]
    given = [quant.QuantizedType.FLAG_SIGNED, i32, left.expressed_type]
    if isinstance(right, quant.UniformQuantizedType):
        exact = quant.UniformQuantizedType.get(*given, units[0], 0, *limits)
    else:
        axis = _element(result.type).quantized_dimension
        zeros = [0] * len(units)
        exact = quant.UniformQuantizedPerAxisType.get(*given, units, zeros, axis, *limits)
    if _element(result.type) != exact:
        _retype(
            result,
            with_element(result.type, exact),
            ir.InsertionPoint.after(op),
            lambda sums, kind: _quantize(_dequantized(sums), kind),
        )


def _on_floats(op: ir.Operation) -> None:
    """Dequantize, compute, quantize: `op` between the expressed types."""
    for k, value in enumerate(op.operands):
        if is_quantized(value.type):
            op.operands[k] = _dequantized(value)
    if "compare_type" in op.attributes:
        del op.attributes["compare_type"]
    place = ir.InsertionPoint.after(op)
    for result in op.results:
        if is_quantized(result.type):
            expressed = with_element(result.type, _element(result.type).expressed_type)
            _retype(result, expressed, place, _quantize)


def _dequantized(value: ir.Value) -> ir.Value:
    """(storage - zero point) * scale; the difference is exact."""
    element = _element(value.type)
    axis, scales, zero_points = _parameters(element)
    number = _stored(value)
    if any(zero_points):
        bits = 32 if element.storage_type_integral_width < 32 else 64
        wide = with_element(value.type, ir.IntegerType.get_signless(bits))
        number = convert(number, wide)
        zeros = _spread(zero_points, axis, wide.element_type, number)
        number = create("stablehlo.subtract", [number, zeros], wide)
    expressed = with_element(value.type, element.expressed_type)
    number = convert(number, expressed)
    factor = _spread(scales, axis, element.expressed_type, number)
    return create("stablehlo.multiply", [number, factor], expressed)


def _quantize(x: ir.Value, kind: ir.Type) -> ir.Value:
    """round(clamp(x / scale + zero point)) as a value of type `kind`."""
    element = _element(kind)
    expressed = with_element(kind, element.expressed_type)
    x = convert(x, expressed)
    axis, scales, zero_points = _parameters(element)
    x = create("stablehlo.divide", [x, _spread(scales, axis, element.expressed_type, x)], expressed)
    zeros = _spread(zero_points, axis, element.expressed_type, x)
    x = create("stablehlo.add", [x, zeros], expressed)
    low, high = (
        scalar(n, element.expressed_type)
        for n in (element.storage_type_min, element.storage_type_max)
    )
    x = create("stablehlo.clamp", [low, x, high], expressed)
    x = create("stablehlo.round_nearest_even", [x], expressed)
    return _as_quantized(convert(x, _storage_type(kind)), kind)


def _parameters(element: quant.QuantizedType) -> tuple[int | None, list[float], list[int]]:
    """(axis, scales, zero points); without an axis there is one of each."""
    if isinstance(element, quant.UniformQuantizedType):
        return None, [element.scale], [element.zero_point]
    if isinstance(element, quant.UniformQuantizedPerAxisType):
        return element.quantized_dimension, list(element.scales), list(element.zero_points)
    raise UnsupportedError(
        f"quantized type {element}: only parameters of a tensor or of one axis are compiled"
    )


def _spread(
    numbers: Sequence[float], axis: int | None, element: ir.Type, like: ir.Value
) -> ir.Value:
    """A constant in the shape of `like`: one number, or one an index of `axis`."""
    kind = with_element(like.type, element)
    if axis is not None:
        return broadcast(_vector(numbers, element), [axis], kind, lambda: shape_of(like))
    number = ir.RankedTensorType.get([], element)
    is_integer = isinstance(element, ir.IntegerType)
    value = integer(int(numbers[0]), number) if is_integer else scalar(numbers[0], element)
    return broadcast(value, [], kind, lambda: shape_of(like)) if kind.rank else value


def _vector(numbers: Sequence[float], element: ir.Type) -> ir.Value:
    """A rank-1 constant; the bindings have buffers of wide types only, which are converted."""
    is_integer = isinstance(element, ir.IntegerType)
    array = np.array(numbers, np.int64 if is_integer else np.float64)
    value = ir.DenseElementsAttr.get(array)
    constant = create("stablehlo.constant", [], value.type, value=value)
    return convert(constant, ir.RankedTensorType.get([len(numbers)], element))
