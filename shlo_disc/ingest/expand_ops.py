"""Ops that others say in full: rewritten when a program is taken in, one rule a name.

    "stablehlo.dot"(%x, %y)                 ==>  dot_general %x, %y, contracting_dims = [1] x [0]
    "stablehlo.batch_norm_inference"(...)   ==>  (x - mean) * rsqrt(variance + eps) * scale + offset
    "stablehlo.all_reduce"(%x) of one device ==>  %x

Source: the StableHLO specification, section by op name; the ops it has dropped since (`dot`,
`einsum`, `torch_index_select`, ...) as the XLA operation semantics define them.
"""

from __future__ import annotations

from collections.abc import Callable

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.branches import select_in_regions
from shlo_disc.ingest.computations import inlined
from shlo_disc.ingest.einsums import dot_general, einsum
from shlo_disc.ingest.scans import expand_scan
from shlo_disc.ingest.size_values import binary, scalar_type
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.builders import (
    broadcast,
    broadcast_like,
    convert,
    create,
    dimension,
    integer,
    scalar,
    summed,
    vector,
    with_element,
    zero,
)
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of, producer
from shlo_disc.ir.scalar_regions import on_arrays

Values = list[ir.Value]
Rule = Callable[[ir.Operation], Values]

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def expand_ops(module: ir.Module, present: set[str]) -> None:
    """None of the ops in :data:`RULES` is left; `present` names the ops that the module has."""
    for name in (name for name in RULES if name in present):
        for op in ops_of(module, name):
            with at(op):
                new = RULES[name](op)
            for result, value in zip(op.results, new, strict=True):
                result.replace_all_uses_with(value)
            op.erase()


# --- what rules are built from ------------------------------------------------------------------


def _type(value: ir.Value) -> ir.RankedTensorType:
    return ir.RankedTensorType(value.type)


# --- products -----------------------------------------------------------------------------------


def _dot(op: ir.Operation) -> Values:
    lhs, rhs = op.operands
    last = _type(lhs).rank - 1
    return [dot_general(lhs, rhs, op.results[0].type, ([], []), ([last], [0]), op)]


def _einsum(op: ir.Operation) -> Values:
    text = ir.StringAttr(op.attributes["einsum_config"]).value.replace(" ", "")
    value = einsum(op, list(op.operands), text)
    if value.type != op.results[0].type:
        raise InvalidModuleError(
            f"{source_line(op)}: {op.name} of {text!r} has type {value.type}, not the declared one"
        )
    return [value]


# --- batch norm ---------------------------------------------------------------------------------


def _moments(op: ir.Operation) -> tuple[ir.Value, int, list[int], ir.Value]:
    """(operand, feature dimension, the others, number of elements of a feature as float)."""
    x, feature = op.operands[0], attr.integer(op, "feature_index")
    others = [d for d in range(_type(x).rank) if d != feature]
    count = integer(1, scalar_type(32))
    for d in others:
        count = binary("multiply", count, dimension(x, d))
    scalar = ir.RankedTensorType.get([], _type(x).element_type)
    number = create("stablehlo.convert", [count], scalar)
    return x, feature, others, number


def _deviation(variance: ir.Value, op: ir.Operation) -> ir.Value:
    """The square root of the variance and epsilon."""
    epsilon = scalar(
        float(ir.FloatAttr(op.attributes["epsilon"]).value), _type(variance).element_type
    )
    total = binary("add", variance, broadcast_like(epsilon, [], variance))
    return create("stablehlo.sqrt", [total], total.type)


def _normalized(
    x: ir.Value,
    scale: ir.Value,
    offset: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    op: ir.Operation,
) -> ir.Value:
    feature = [attr.integer(op, "feature_index")]
    centered = binary("subtract", x, broadcast_like(mean, feature, x))
    normal = binary("divide", centered, broadcast_like(_deviation(variance, op), feature, x))
    scaled = binary("multiply", broadcast_like(scale, feature, x), normal)
    return binary("add", scaled, broadcast_like(offset, feature, x))


def _batch_norm_inference(op: ir.Operation) -> Values:
    x, scale, offset, mean, variance = op.operands
    return [_normalized(x, scale, offset, mean, variance, op)]


def _batch_norm_training(op: ir.Operation) -> Values:
    x, feature, others, count = _moments(op)
    _, scale, offset = op.operands
    total = summed(x, others)
    mean = binary("divide", total, broadcast_like(count, [], total))
    centered = binary("subtract", x, broadcast_like(mean, [feature], x))
    squares = summed(binary("multiply", centered, centered), others)
    variance = binary("divide", squares, broadcast_like(count, [], squares))
    return [_normalized(x, scale, offset, mean, variance, op), mean, variance]


def _batch_norm_grad(op: ir.Operation) -> Values:
    """Source: the specification of `batch_norm_grad`, its Python definition line by line."""
    x, feature, others, count = _moments(op)
    _, scale, mean, variance, gradient = op.operands

    def wide(value: ir.Value) -> ir.Value:
        return broadcast_like(value, [feature], x)

    centered = binary("subtract", x, wide(mean))
    deviation = _deviation(variance, op)
    number = broadcast_like(count, [], x)
    i1 = binary("multiply", gradient, number)
    i2 = wide(summed(gradient, others))
    i3 = wide(summed(binary("multiply", gradient, centered), others))
    i4 = binary("multiply", i3, centered)
    square = binary("multiply", wide(deviation), wide(deviation))
    i5 = binary("divide", i4, square)
    i6 = binary("subtract", binary("subtract", i1, i2), i5)
    factor = binary("divide", binary("divide", wide(scale), wide(deviation)), number)
    grad_operand = binary("multiply", factor, i6)
    normal = binary("divide", centered, wide(deviation))
    grad_scale = summed(binary("multiply", gradient, normal), others)
    return [grad_operand, grad_scale, summed(gradient, others)]


# --- data movement ------------------------------------------------------------------------------


def _broadcast_op(op: ir.Operation) -> Values:
    (x,) = op.operands
    front = attr.integers(op, "broadcast_sizes")
    rank = _type(x).rank
    dims = list(range(len(front), len(front) + rank))

    def shape() -> ir.Value:
        return vector(
            [integer(n, scalar_type(32)) for n in front] + [dimension(x, k) for k in range(rank)]
        )

    return [broadcast(x, dims, _type(op.results[0]), shape)]


def _torch_index_select(op: ir.Operation) -> Values:
    x, index = op.operands
    rank, dim, batch = _type(x).rank, attr.integer(op, "dim"), attr.integer(op, "batch_dims")
    count = _type(index).rank
    common = list(range(batch))
    # Of the result: the operand's dimensions in front of `dim`, the index's, the operand's rest.
    offsets = [*range(batch, dim), *range(dim + count - batch, rank + count - batch - 1)]
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [{dim}], "
        f"operand_batching_dims = {common}, start_indices_batching_dims = {common}, "
        f"start_index_map = [{dim}], index_vector_dim = {count}>"
    )
    whole = [d for d in range(rank) if d != dim and d >= batch]
    attributes = {"dimension_numbers": numbers}
    if all(_type(x).shape[d] != _DYNAMIC for d in whole):
        sizes = [int(_type(x).shape[d]) if d in whole else 1 for d in range(rank)]
        attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get(sizes)
        return [create("stablehlo.gather", [x, index], op.results[0].type, **attributes)]
    one = integer(1, scalar_type(32))
    lengths = vector([dimension(x, d) if d in whole else one for d in range(rank)])
    kind = op.results[0].type
    return [create("stablehlo.dynamic_gather", [x, index, lengths], kind, **attributes)]


# --- regions of scalars -------------------------------------------------------------------------


def _map(op: ir.Operation) -> Values:
    """The ops of the region, on arrays."""
    select_in_regions(op)
    like = op.operands[0]
    return on_arrays(op, list(op.operands), lambda value: broadcast_like(value, [], like))


# --- sizes --------------------------------------------------------------------------------------


def _set_dimension_size(op: ir.Operation) -> Values:
    """The first elements of the dimension; the size is at most the operand's."""
    value, size = op.operands
    axis = attr.integer(op, "dimension")
    limits = [dimension(value, k) for k in range(_type(value).rank)]
    limits[axis] = size
    kind = op.results[0].type
    ones = [integer(1, scalar_type(32)) for _ in limits]
    starts = [integer(0, scalar_type(32)) for _ in limits]
    sliced = create(
        "stablehlo.real_dynamic_slice", [value, *map(vector, (starts, limits, ones))], kind
    )
    return [sliced]


# --- one device ---------------------------------------------------------------------------------


def _devices(op: ir.Operation) -> set[int]:
    """The devices that an attribute of a collective names; -1 stands for none.

    Raises UnsupportedError if there are others than the one that runs the program.
    """
    name = "source_target_pairs" if op.name.endswith("permute") else "replica_groups"
    named = {int(n) for n in ir.DenseIntElementsAttr(op.attributes[name])} - {-1}
    if named - {0}:
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} between several devices; compile the program of one, "
            "or use shlo_disc.jit inside jax.shard_map"
        )
    return named


def _collective(op: ir.Operation) -> Values:
    """Of one device, which gives what it has; a `collective_reduce` may be given a root, too."""
    _devices(op)
    given = []
    for value, result in zip(op.operands, op.results, strict=False):
        element = _type(result).element_type
        value = convert(value, with_element(value.type, element))  # of the computation
        if value.type != result.type:
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name} of one device has type {value.type}, not the "
                "declared one"
            )
        given.append(value)
    return given


def _received(op: ir.Operation) -> Values:
    """What one device sends to itself; zeros if no group and no pair names it."""
    if _devices(op):
        return _collective(op)
    (value,) = op.operands
    return [broadcast_like(zero(_type(value).element_type), [], value)]


def _done(op: ir.Operation) -> Values:
    """What the region of the `async_start` computes, here: nothing runs beside the program."""
    start = producer(op.operands[0])
    if start is None or start.name != "stablehlo.async_start":
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} of a future that is an argument or a result of control "
            "flow; start what it waits for beside it"
        )
    return inlined(start.regions[0].blocks[0], list(start.operands))


def _start(op: ir.Operation) -> Values:
    if any(True for _ in op.results[0].uses):
        raise UnsupportedError(
            f"{source_line(op)}: {op.name}: the future leaves the function or enters control flow; "
            "wait for it with async_done"
        )
    return list(op.results)


def _device_id(op: ir.Operation) -> Values:
    return [integer(0, op.results[0].type)]


RULES: dict[str, Rule] = {
    "chlo.scan": expand_scan,
    "stablehlo.all_gather": _collective,
    "stablehlo.all_reduce": _collective,
    "stablehlo.all_to_all": _collective,
    "stablehlo.async_done": _done,
    "stablehlo.async_start": _start,
    "stablehlo.batch_norm_grad": _batch_norm_grad,
    "stablehlo.batch_norm_inference": _batch_norm_inference,
    "stablehlo.batch_norm_training": _batch_norm_training,
    "stablehlo.broadcast": _broadcast_op,
    "stablehlo.collective_broadcast": _received,
    "stablehlo.collective_permute": _received,
    "stablehlo.collective_reduce": _collective,
    "stablehlo.cross-replica-sum": _collective,
    "stablehlo.dot": _dot,
    "stablehlo.einsum": _einsum,
    "stablehlo.map": _map,
    "stablehlo.partition_id": _device_id,
    "stablehlo.reduce_scatter": _collective,
    "stablehlo.replica_id": _device_id,
    "stablehlo.set_dimension_size": _set_dimension_size,
    "stablehlo.torch_index_select": _torch_index_select,
    "stablehlo.unary_einsum": _einsum,
}
"""Values for the results of an op, built in front of the op. `async_start` comes after
what reads its result."""
