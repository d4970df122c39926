"""Layers of LSTM: one product for all steps before a loop, one product in each step.

    x: [T, B, I], h and c: [B, H], weights: [4 H, I] and [4 H, H]
    i, f, g, o = split(x[t] @ weight0^T + h @ weight1^T + bias)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = y[t] = sigmoid(o) * tanh(c)

Source  PyTorch's documentation of `nn.LSTM`.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.builders import compare, create
from shlo_disc.errors import UnsupportedError
from shlo_disc.ingest.size_values import binary, extent, vector
from shlo_disc.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, constant, converted, element_of, spread

__all__ = ["lstm_layer"]

_LSTM = 2
"""`mode` of an LSTM, as oneDNN numbers kinds of recurrence."""

_WORKSPACE = 3
"""The result that only the gradient takes."""


def lstm_layer(call: BodyCall) -> list[ir.Value]:
    """`aten.mkldnn_rnn_layer` of one direction: y, the last h and c, and an empty workspace.

    Raises UnsupportedError for other kinds of recurrence, packed sequences and a layer that keeps
    a workspace for its gradient.
    """
    if call["mode"] != _LSTM or call["batch_sizes"] or call["num_layers"] != 1:
        raise UnsupportedError("of one layer of LSTM only, on sequences that are not packed")
    if call["bidirectional"] or call["batch_first"]:
        raise UnsupportedError("of one direction only, with the steps in front")
    if call["train"] or any(user.args[1] == _WORKSPACE for user in call.node.users):
        raise UnsupportedError("its gradient is not covered")
    x, inner, recurrent = (call[name] for name in ("input", "weight0", "weight1"))
    f32 = ir.F32Type.get()
    gates = _product(x, inner, f32)
    if call["has_biases"]:
        bias = binary("add", *(converted(call[name], f32) for name in ("weight2", "weight3")))
        gates = binary("add", gates, spread(bias, [2], gates))
    h, c = (_without_first(converted(call[name], f32)) for name in ("hx_", "cx_"))
    y, h, c = _loop(gates, h, c, recurrent, backwards=call["reverse"])
    h, c = (_with_first(value) for value in (h, c))
    found = [converted(value, element_of(x)) for value in (y, h, c)]
    empty = ir.RankedTensorType(call.results[3])
    return [*found, constant(0, empty.shape, empty.element_type)]


def _loop(
    gates: ir.Value, h: ir.Value, c: ir.Value, weight: ir.Value, *, backwards: bool
) -> list[ir.Value]:
    """y, h and c after a step for each entry of `gates`: [T, B, 4 H]."""
    steps = extent(gates, 0)
    kind = ir.RankedTensorType(gates.type)
    width = ir.RankedTensorType(h.type).shape[1]
    results = ir.RankedTensorType.get([*kind.shape[:2], width], kind.element_type)
    zero, one = constant(0, [], "i64"), constant(1, [], "i64")
    empty = create(
        "stablehlo.dynamic_broadcast_in_dim",
        [
            constant(0, [], kind.element_type),
            vector([steps, extent(gates, 1), constant(width, [], "i64")]),
        ],
        results,
        broadcast_dimensions=ir.DenseI64ArrayAttr.get([]),
    )
    initial = [zero, h, c, empty]
    kinds = [value.type for value in initial]
    loop = ir.Operation.create("stablehlo.while", results=kinds, operands=initial, regions=2)
    condition, body = (region.blocks.append(*kinds) for region in loop.regions)
    with ir.InsertionPoint(condition):
        truth = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))
        is_less = compare("LT", condition.arguments[0], steps, truth)
        ir.Operation.create("stablehlo.return", operands=[is_less])
    with ir.InsertionPoint(body):
        step, h, c, y = body.arguments
        place = step
        if backwards:
            place = binary("subtract", binary("subtract", steps, one), step)
        h, c = _cell(_entry(gates, place), h, c, weight)
        entry = _with_first(h)
        y = create("stablehlo.dynamic_update_slice", [y, entry, place, zero, zero], y.type)
        ir.Operation.create("stablehlo.return", operands=[binary("add", step, one), h, c, y])
    _, h, c, y = loop.results
    return [y, h, c]


def _cell(given: ir.Value, h: ir.Value, c: ir.Value, weight: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The next h and c: [B, H]; `given` is what the step adds to the four gates: [B, 4 H]."""
    width = ir.RankedTensorType(h.type).shape[1]
    own = _product(converted(h, element_of(weight)), weight, element_of(given))
    gates = binary("add", given, own)
    taken, kept, new, out = (_columns(gates, k * width, width) for k in range(4))
    taken, kept, out = (create("stablehlo.logistic", [v], v.type) for v in (taken, kept, out))
    new = create("stablehlo.tanh", [new], new.type)
    c = binary("add", binary("multiply", kept, c), binary("multiply", taken, new))
    return binary("multiply", out, create("stablehlo.tanh", [c], c.type)), c


def _product(x: ir.Value, weight: ir.Value, element: ir.Type) -> ir.Value:
    """x: [..., I] times the transpose of weight: [O, I]."""
    rank = ir.RankedTensorType(x.type).rank
    shape = [*ir.RankedTensorType(x.type).shape[:-1], ir.RankedTensorType(weight.type).shape[0]]
    numbers = ir.Attribute.parse(
        f"#stablehlo.dot<lhs_contracting_dimensions = [{rank - 1}], "
        "rhs_contracting_dimensions = [1]>"
    )
    kind = ir.RankedTensorType.get(shape, element)
    return create("stablehlo.dot_general", [x, weight], kind, dot_dimension_numbers=numbers)


def _entry(x: ir.Value, place: ir.Value) -> ir.Value:
    """The entry of a place of the first dimension."""
    kind = ir.RankedTensorType(x.type)
    zero, one = constant(0, [], "i64"), constant(1, [], "i64")
    starts = vector([place] + [zero] * (kind.rank - 1))
    sizes = vector([one, *(extent(x, k) for k in range(1, kind.rank))])
    wanted = ir.RankedTensorType.get([1, *kind.shape[1:]], kind.element_type)
    axes = list(range(kind.rank))
    numbers = ir.Attribute.parse(
        f"#stablehlo.gather<offset_dims = {axes}, start_index_map = {axes}>"
    )
    return _without_first(
        create("stablehlo.dynamic_gather", [x, starts, sizes], wanted, dimension_numbers=numbers)
    )


def _columns(x: ir.Value, start: int, count: int) -> ir.Value:
    """So many columns of a matrix from `start` on."""
    kind = ir.RankedTensorType(x.type)
    rows, zero, one = extent(x, 0), constant(0, [], "i64"), constant(1, [], "i64")
    starts, ends = (
        vector([row, constant(column, [], "i64")])
        for row, column in ((zero, start), (rows, start + count))
    )
    wanted = ir.RankedTensorType.get([kind.shape[0], count], kind.element_type)
    return create("stablehlo.real_dynamic_slice", [x, starts, ends, vector([one, one])], wanted)


def _without_first(x: ir.Value) -> ir.Value:
    """`x` without its first dimension, of size 1."""
    return _reshaped(x, list(range(1, ir.RankedTensorType(x.type).rank)))


def _with_first(x: ir.Value) -> ir.Value:
    """`x` behind a first dimension of size 1."""
    return _reshaped(x, [None, *range(ir.RankedTensorType(x.type).rank)])


def _reshaped(x: ir.Value, axes: Sequence[int | None]) -> ir.Value:
    """The dimensions `axes` of `x`; None is a new one of size 1."""
    kind = ir.RankedTensorType(x.type)
    shape = [1 if axis is None else kind.shape[axis] for axis in axes]
    result = ir.RankedTensorType.get(shape, kind.element_type)
    if kind.has_static_shape:
        return create("stablehlo.reshape", [x], result)
    sizes = [constant(1, [], "i64") if axis is None else extent(x, axis) for axis in axes]
    return create("stablehlo.dynamic_reshape", [x, vector(sizes)], result)
