"""StableHLO ops at the insertion point, for the stages that write some: sizes and vectors of them.

Sizes are rank-0 tensors of i32, as JAX has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shlo_disc.ir.mlir import ir, producer


def create(name: str, operands: Sequence[ir.Value], kind: ir.Type, **attributes: Any) -> ir.Value:
    """A new op with one result. An attribute may be a bool, an i64, or a sequence of i64."""
    given = {name: attribute(value) for name, value in attributes.items()}
    return ir.Operation.create(
        name, results=[kind], operands=list(operands), attributes=given
    ).results[0]


def attribute(value: bool | int | Iterable[int] | ir.Attribute) -> ir.Attribute:
    """`value` as an attribute: a bool, an i64, or an array of i64."""
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    return ir.DenseI64ArrayAttr.get(list(value))


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """`a` where `condition` holds, else `b`."""
    return create("stablehlo.select", [condition, a, b], a.type)


def integer(number: int, kind: ir.Type) -> ir.Value:
    """A constant of type `kind`: `number` everywhere."""
    element = ir.RankedTensorType(kind).element_type
    value = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, number))
    return create("stablehlo.constant", [], kind, value=value)


def scalar(number: complex, element: ir.Type) -> ir.Value:
    """A rank-0 constant of a float type, which takes the real part, or of a complex type."""
    kind = ir.RankedTensorType.get([], element)
    if isinstance(element, ir.ComplexType):
        # The bindings have no class for attributes of complex numbers, and raise.
        part = ir.ComplexType(element).element_type
        parts = [scalar(n, part) for n in (complex(number).real, complex(number).imag)]
        return create("stablehlo.complex", parts, kind)
    value = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(element, complex(number).real))
    return create("stablehlo.constant", [], kind, value=value)


def with_element(kind: ir.Type, element: ir.Type) -> ir.RankedTensorType:
    """The tensor type `kind` with elements of another type."""
    tensor = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get(tensor.shape, element, tensor.encoding)


def rank_of(value: ir.Value) -> int:
    """The number of dimensions of a tensor."""
    return int(ir.RankedTensorType(value.type).rank)


def element_of(value: ir.Value) -> ir.Type:
    """The element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def zero(element: ir.Type) -> ir.Value:
    """A rank-0 zero of an integer, float or complex type."""
    if isinstance(element, ir.IntegerType):
        return integer(0, ir.RankedTensorType.get([], element))
    return scalar(0.0, element)


def broadcast_like(value: ir.Value, dims: Sequence[int], like: ir.Value) -> ir.Value:
    """`value` broadcast along `dims` to the shape of `like`."""
    element = ir.RankedTensorType(value.type).element_type
    kind = ir.RankedTensorType.get(ir.RankedTensorType(like.type).shape, element)
    return broadcast(value, dims, kind, lambda: shape_of(like))


def broadcast(
    value: ir.Value, dims: Sequence[int], kind: ir.RankedTensorType, shape: Callable[[], ir.Value]
) -> ir.Value:
    """`value` broadcast along `dims` to `kind`, whose sizes `shape` gives where the type does not.

    Dimension k of `value` is dimension `dims[k]` of the result.
    """
    if kind.has_static_shape and ir.RankedTensorType(value.type).has_static_shape:
        return create("stablehlo.broadcast_in_dim", [value], kind, broadcast_dimensions=dims)
    return create(
        "stablehlo.dynamic_broadcast_in_dim",
        [value, shape()],
        kind,
        broadcast_dimensions=dims,
    )


def compare(direction: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """A comparison (`EQ`, `LT`, ...) of two values of one type, as i1."""
    attribute = ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")
    kind = with_element(a.type, ir.IntegerType.get_signless(1))
    return create("stablehlo.compare", [a, b], kind, comparison_direction=attribute)


def assert_sizes(condition: ir.Value, text: str, sizes: Sequence[ir.Value]) -> None:
    """Every call checks `condition`, a rank-0 i1; `{0}`, `{1}`, ... in `text` are `sizes`."""
    ir.Operation.create(
        "stablehlo.custom_call",
        results=[],
        operands=[condition, *sizes],
        attributes={
            "call_target_name": ir.StringAttr.get("shape_assertion"),
            "error_message": ir.StringAttr.get(text),
            "has_side_effect": ir.BoolAttr.get(True),
        },
    )


def no_sizes() -> ir.Value:
    """The shape of a number, as a vector of i32."""
    none = ir.Attribute.parse("dense<> : tensor<0xi32>")
    return create("stablehlo.constant", [], none.type, value=none)


def convert(value: ir.Value, kind: ir.Type) -> ir.Value:
    """`value` as `kind`; itself where it is that already."""
    return value if value.type == kind else create("stablehlo.convert", [value], kind)


def dimension(value: ir.Value, axis: int) -> ir.Value:
    """The size of one dimension."""
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    return create("stablehlo.get_dimension_size", [value], i32, dimension=axis)


def shape_of(value: ir.Value) -> ir.Value:
    """All sizes, as a vector."""
    return vector([dimension(value, k) for k in range(ir.RankedTensorType(value.type).rank)])


def iota_like(like: ir.Value, axis: int) -> ir.Value:
    """The index along `axis`, in the shape of `like`, as i32."""
    kind = with_element(like.type, ir.IntegerType.get_signless(32))
    if kind.has_static_shape:
        return create("stablehlo.iota", [], kind, iota_dimension=axis)
    return create("stablehlo.dynamic_iota", [shape_of(like)], kind, iota_dimension=axis)


def vector(scalars: Sequence[ir.Value]) -> ir.Value:
    """A rank-1 tensor of i32 that holds these rank-0 values."""
    i32 = ir.IntegerType.get_signless(32)
    one = ir.RankedTensorType.get([1], i32)
    scalar = ir.RankedTensorType.get([], i32)
    parts = [create("stablehlo.reshape", [convert(s, scalar)], one) for s in scalars]
    kind = ir.RankedTensorType.get([len(parts)], i32)
    return create("stablehlo.concatenate", parts, kind, dimension=0)


def write_region(
    region: ir.Region, kinds: Sequence[ir.Type], made: Callable[..., Sequence[ir.Value]]
) -> None:
    """Give `region` its block: it returns what `made` writes for arguments of these types."""
    block = region.blocks.append(*kinds)
    with ir.InsertionPoint(block):
        ir.Operation.create("stablehlo.return", operands=list(made(*block.arguments)))


def while_loop(
    states: Sequence[ir.Value],
    condition: Callable[..., ir.Value],
    step: Callable[..., Sequence[ir.Value]],
) -> list[ir.Value]:
    """`states` after `step(*states)` as often as `condition(*states)` holds: `stablehlo.while`.

    `condition` gives a rank-0 truth value. `step` gives states of the types of `states`.
    """
    kinds = [value.type for value in states]
    loop = ir.Operation.create("stablehlo.while", results=kinds, operands=list(states), regions=2)
    again, body = loop.regions
    write_region(again, kinds, lambda *now: [condition(*now)])
    write_region(body, kinds, step)
    return list(loop.results)


def pad(
    x: ir.Value,
    value: ir.Value,
    low: Sequence[ir.Value],
    high: Sequence[ir.Value],
    interior: Sequence[ir.Value],
) -> ir.Value:
    """`x` padded by sizes known at run time; `x` itself where they are all known to be 0."""
    if all(number_of(v) == 0 for v in (*low, *high, *interior)):
        return x
    kind = ir.RankedTensorType(x.type)
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [
        n if all(number_of(v) == 0 for v in added) else dynamic
        for n, *added in zip(kind.shape, low, high, interior, strict=True)
    ]
    return create(
        "stablehlo.dynamic_pad",
        [x, value, vector(low), vector(high), vector(interior)],
        ir.RankedTensorType.get(sizes, kind.element_type),
    )


def permuted(kind: ir.Type, order: Sequence[int]) -> ir.RankedTensorType:
    """The type `kind` with its dimensions in this order."""
    given = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get([given.shape[d] for d in order], given.element_type)


def transposed(value: ir.Value, order: Sequence[int], kind: ir.Type | None = None) -> ir.Value:
    """`value` with its dimensions in this order; `value` itself if that is the order they have.

    `kind`: the type of the result, where that is known to have other sizes.
    """
    if list(order) == list(range(len(order))):
        return value
    result = kind or permuted(value.type, order)
    return create("stablehlo.transpose", [value], result, permutation=order)


def reduced(value: ir.Value, dims: Sequence[int], name: str, start: ir.Value) -> ir.Value:
    """The elements along `dims` joined by `stablehlo.NAME`, from the rank-0 `start`."""
    kind = ir.RankedTensorType(value.type)
    kept = [n for d, n in enumerate(kind.shape) if d not in dims]
    op = ir.Operation.create(
        "stablehlo.reduce",
        results=[ir.RankedTensorType.get(kept, kind.element_type)],
        operands=[value, start],
        attributes={"dimensions": ir.DenseI64ArrayAttr.get(sorted(dims))},
        regions=1,
    )
    pair = [start.type] * 2
    write_region(op.regions[0], pair, lambda *both: [create(f"stablehlo.{name}", both, start.type)])
    return op.results[0]


def scattered(
    x: ir.Value,
    places: ir.Value,
    updates: ir.Value,
    join: str | None,
    windows: Sequence[int] = (),
    axes: Sequence[int] | None = None,
) -> ir.Value:
    """`x` with `updates` at `places`, joined with what is there; None: in its stead.

    `places` has an index for each of the `axes` of `x`, by default all, in its last dimension. That
    may be left out where `x` has rank 1. The dimensions before it are those of `updates` but the
    `windows`, which go over the other dimensions of `x`. Updates out of bounds are dropped.
    """
    axes = list(range(ir.RankedTensorType(x.type).rank)) if axes is None else list(axes)
    lead = ir.RankedTensorType(updates.type).rank - len(windows)
    numbers = ir.Attribute.parse(
        f"#stablehlo.scatter<update_window_dims = {list(windows)}, inserted_window_dims = {axes}, "
        f"scatter_dims_to_operand_dims = {axes}, index_vector_dim = {lead}>"
    )
    op = ir.Operation.create(
        "stablehlo.scatter",
        results=[x.type],
        operands=[x, places, updates],
        attributes={
            "scatter_dimension_numbers": numbers,
            "indices_are_sorted": ir.BoolAttr.get(False),
            "unique_indices": ir.BoolAttr.get(False),
        },
        regions=1,
    )
    element = ir.RankedTensorType.get([], ir.RankedTensorType(x.type).element_type)

    def joined(old: ir.Value, new: ir.Value) -> list[ir.Value]:
        return [new if join is None else create(f"stablehlo.{join}", [old, new], element)]

    write_region(op.regions[0], [element] * 2, joined)
    return op.results[0]


def summed(value: ir.Value, dims: Sequence[int]) -> ir.Value:
    """The sum over the dimensions `dims`; `value` itself if there are none."""
    if not dims:
        return value
    return reduced(value, dims, "add", zero(ir.RankedTensorType(value.type).element_type))


def number_of(value: ir.Value) -> int | None:
    """The integer a rank-0 value is known to be here, after every conversion on the way to it."""
    types = [_integer_type(value)]
    op = producer(value)
    while op is not None and op.name in ("stablehlo.convert", "stablehlo.reshape"):
        types.append(_integer_type(op.operands[0]))
        op = producer(op.operands[0])
    if op is None or op.name != "stablehlo.constant" or not op.attributes["value"].is_splat:
        return None
    known = [kind for kind in types if kind is not None]
    if len(known) < len(types):
        return None  # a float or a truth value is on the way
    number = int(op.attributes["value"].get_splat_value().value)
    for kind in reversed(known):
        number = _fitted(number, kind)
    return number


def _integer_type(value: ir.Value) -> ir.IntegerType | None:
    element = ir.RankedTensorType(value.type).element_type
    if not isinstance(element, ir.IntegerType) or element.width == 1:
        return None
    return ir.IntegerType(element)


def _fitted(number: int, kind: ir.IntegerType) -> int:
    """`number` in the bits of `kind`."""
    number %= 1 << kind.width
    signed = not kind.is_unsigned and number >> (kind.width - 1)
    return number - (1 << kind.width) if signed else number
