"""Recurrent layers: one product for all steps before a loop, one product in each step.

    x: [T, B, I], h and c: [B, H], weights: [4 H, I] and [4 H, H]
    i, f, g, o = split(x[t] @ weight0^T + h @ weight1^T + bias)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = y[t] = sigmoid(o) * tanh(c)

Source  PyTorch's documentation of `nn.LSTM`, `nn.GRU` and `nn.RNN`; `shlo_disc/torch/recurrent.py`
        has the ops and their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, joined, sliced, windowed
from shlo_disc.ingest.size_arithmetic import reshaped, shape_vector, size_of, sizes_of
from shlo_disc.ingest.size_values import binary, extent
from shlo_disc.ir.builders import compare, create, element_of, while_loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall, spread

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
    cell = _lstm_cell(recurrent, None, keeps_cells=False)
    h, c, y = _loop([gates], [h, c], cell, [_width(h)], backwards=call["reverse"])
    h, c = (with_first(value) for value in (h, c))
    found = [converted(value, element_of(x)) for value in (y, h, c)]
    empty = ir.RankedTensorType(call.results[3])
    return [*found, constant(0, empty.element_type, empty.shape)]


def lstm(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.lstm`: y, the last c, and c after every step where they are kept."""
    kind = element_of(call["gates"])
    gates, h, c = (_wide(call[name]) for name in ("gates", "h", "c"))
    keeps = call["keeps_cells"]
    cell = _lstm_cell(call["weight"], call["projection"], keeps_cells=keeps)
    widths = [_width(h), *([_width(c)] if keeps else [])]
    _, c, y, *cells = _loop([gates], [h, c], cell, widths, backwards=call["reverse"])
    cells = cells or [constant(0, kind, [0])]
    return [converted(value, kind) for value in (y, c, *cells)]


def gru(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.gru`: y."""
    kind = element_of(call["gates"])
    gates, h = _wide(call["gates"]), _wide(call["h"])
    bias = None if call["bias"] is None else _wide(call["bias"])
    width = _width(h)

    def cell(entries: Sequence[ir.Value], states: Sequence[ir.Value]) -> _Step:
        (given,), (h,) = entries, states
        own = _recurrent(h, call["weight"])
        if bias is not None:
            own = binary("add", own, spread(bias, [1], own))
        of_given, of_own = (_split(x, [width] * 3) for x in (given, own))
        reset, kept = (_logistic(binary("add", of_given[k], of_own[k])) for k in (0, 1))
        new = _tanh(binary("add", of_given[2], binary("multiply", reset, of_own[2])))
        h = binary("add", binary("multiply", binary("subtract", h, new), kept), new)
        return [h], [h]

    _, y = _loop([gates], [h], cell, [width], backwards=call["reverse"])
    return [converted(y, kind)]


def rnn(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.rnn`: y."""
    kind = element_of(call["gates"])
    gates, h = _wide(call["gates"]), _wide(call["h"])

    def cell(entries: Sequence[ir.Value], states: Sequence[ir.Value]) -> _Step:
        total = binary("add", entries[0], _recurrent(states[0], call["weight"]))
        zero = spread(constant(0, element_of(total)), [], total)
        h = binary("maximum", total, zero) if call["relu"] else _tanh(total)
        return [h], [h]

    _, y = _loop([gates], [h], cell, [_width(h)], backwards=call["reverse"])
    return [converted(y, kind)]


def lstm_gradient(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.lstm_gradient`: gradients of every h and c, and of the first ones."""
    kind = element_of(call["grad"])
    names = ("grad", "factors", "through", "kept")
    grad, factors, through, kept = (_wide(call[name]) for name in names)
    of_c = _wide(call["cell_grad"])
    weight, projection = call["weight"], call["projection"]

    def step(entries: Sequence[ir.Value], states: Sequence[ir.Value]) -> _Step:
        (grad, factors, through, kept), (of_h, of_c) = entries, states
        of_h = binary("add", grad, of_h)
        of_out = of_h if projection is None else _times(of_h, projection)
        of_c = binary("add", of_c, binary("multiply", of_out, through))
        of_gates = binary("multiply", _joined([of_c, of_c, of_c, of_out]), factors)
        return [_times(of_gates, weight), binary("multiply", of_c, kept)], [of_h, of_c]

    first = spread(constant(0, element_of(grad)), [], entry(grad, constant(0, "i64")))
    widths = [_width(grad), _width(kept)]
    found = _loop(
        [grad, factors, through, kept], [first, of_c], step, widths, backwards=not call["reverse"]
    )
    of_h, of_c, every_h, every_c = (converted(value, kind) for value in found)
    return [every_h, every_c, of_h, of_c]


def recurrence_gradient(call: BodyCall) -> list[ir.Value]:
    """`shlo_disc.recurrence_gradient`: gradients of every h, and of the first one."""
    kind = element_of(call["grad"])
    grad, factors = _wide(call["grad"]), _wide(call["factors"])
    kept = [] if call["kept"] is None else [_wide(call["kept"])]
    times = _width(factors) // _width(grad)

    def step(entries: Sequence[ir.Value], states: Sequence[ir.Value]) -> _Step:
        grad, factors, *kept = entries
        of_h = binary("add", grad, states[0])
        of_gates = binary("multiply", _joined([of_h] * times), factors)
        before = _times(of_gates, call["weight"])
        if kept:
            before = binary("add", before, binary("multiply", of_h, kept[0]))
        return [before], [of_h]

    first = spread(constant(0, element_of(grad)), [], entry(grad, constant(0, "i64")))
    found = _loop(
        [grad, factors, *kept], [first], step, [_width(grad)], backwards=not call["reverse"]
    )
    of_h, every_h = (converted(value, kind) for value in found)
    return [every_h, of_h]


_Step = tuple[list[ir.Value], list[ir.Value]]
"""The states after a step, and what is written at its place."""


def _loop(
    inputs: Sequence[ir.Value],
    states: Sequence[ir.Value],
    step: Callable[[Sequence[ir.Value], Sequence[ir.Value]], _Step],
    widths: Sequence[int],
    *,
    backwards: bool,
) -> list[Any]:
    """The last states, and [T, B, width] of what `step` writes, for each of `widths`.

    `inputs`: [T, B, n]. `step` takes their entries and the states: [B, m].
    """
    steps = extent(inputs[0], 0)
    zero, one = constant(0, "i64"), constant(1, "i64")
    nothing = constant(0, element_of(inputs[0]))
    empty = [broadcast_to(nothing, [], [*sizes_of(inputs[0])[:2], width]) for width in widths]
    initial = [zero, *states, *empty]

    def is_left(number: ir.Value, *_: ir.Value) -> ir.Value:
        return compare("LT", number, steps)

    def counted(number: ir.Value, *values: ir.Value) -> list[ir.Value]:
        place = number
        if backwards:
            place = binary("subtract", binary("subtract", steps, one), number)
        before, written = values[: len(states)], values[len(states) :]
        after, entries = step([entry(x, place) for x in inputs], before)
        after = [BodyCall.cast(value, b.type) for value, b in zip(after, before, strict=True)]
        places = [place, zero, zero]
        new = [
            create("stablehlo.dynamic_update_slice", [y, with_first(entry), *places], y.type)
            for y, entry in zip(written, entries, strict=True)
        ]
        return [binary("add", number, one), *after, *new]

    return while_loop(initial, is_left, counted)[1:]


def _lstm_cell(
    weight: ir.Value, projection: ir.Value | None, *, keeps_cells: bool
) -> Callable[[Sequence[ir.Value], Sequence[ir.Value]], _Step]:
    """A step; the gates of an entry, [B, 4 H], are what it adds to those of h."""

    def step(entries: Sequence[ir.Value], states: Sequence[ir.Value]) -> _Step:
        h, c = states
        gates = binary("add", entries[0], _recurrent(h, weight))
        taken, kept, new, out = _split(gates, [_width(c)] * 4)
        taken, kept, out = (_logistic(v) for v in (taken, kept, out))
        c = binary("add", binary("multiply", kept, c), binary("multiply", taken, _tanh(new)))
        h = binary("multiply", out, _tanh(c))
        if projection is not None:
            h = _recurrent(h, projection)
        return [h, c], [h, c] if keeps_cells else [h]

    return step


def _width(x: ir.Value) -> int:
    """The size of the last dimension, which is a number."""
    return int(ir.RankedTensorType(x.type).shape[-1])


def _wide(x: ir.Value) -> ir.Value:
    """`x` in the type that steps are computed in: f32, or f64 as given."""
    is_f64 = isinstance(element_of(x), ir.F64Type)
    return x if is_f64 else converted(x, ir.F32Type.get())


def _logistic(x: ir.Value) -> ir.Value:
    return create("stablehlo.logistic", [x], x.type)


def _tanh(x: ir.Value) -> ir.Value:
    return create("stablehlo.tanh", [x], x.type)


def _recurrent(h: ir.Value, weight: ir.Value) -> ir.Value:
    """The state h times the transpose of a weight, in the type of h."""
    return _product(converted(h, element_of(weight)), weight, element_of(h))


def _times(x: ir.Value, weight: ir.Value) -> ir.Value:
    """x: [B, O] times weight: [O, I], in the type of x."""
    return _product(converted(x, element_of(weight)), weight, element_of(x), contracted=0)


def _split(x: ir.Value, widths: Sequence[int]) -> list[ir.Value]:
    """Columns of a matrix, in parts of these widths."""
    starts = [sum(widths[:k]) for k in range(len(widths))]
    return [_columns(x, start, width) for start, width in zip(starts, widths, strict=True)]


def _joined(parts: Sequence[ir.Value]) -> ir.Value:
    """Matrices side by side."""
    return parts[0] if len(parts) == 1 else joined(parts, 1)


def _product(x: ir.Value, weight: ir.Value, element: ir.Type, *, contracted: int = 1) -> ir.Value:
    """x: [..., I] times the transpose of weight: [O, I]; or weight: [I, O] if contracted in 0."""
    rank = ir.RankedTensorType(x.type).rank
    sizes = ir.RankedTensorType(weight.type).shape
    shape = [*ir.RankedTensorType(x.type).shape[:-1], sizes[1 - contracted]]
    numbers = ir.Attribute.parse(
        f"#stablehlo.dot<lhs_contracting_dimensions = [{rank - 1}], "
        f"rhs_contracting_dimensions = [{contracted}]>"
    )
    kind = ir.RankedTensorType.get(shape, element)
    return create("stablehlo.dot_general", [x, weight], kind, dot_dimension_numbers=numbers)


def entry(x: ir.Value, place: ir.Value) -> ir.Value:
    """The entry of a place of the first dimension."""
    sizes = sizes_of(x)[1:]
    starts = shape_vector([place, *[0] * len(sizes)])
    return _without_first(windowed(x, starts, [1, *sizes]))


def _columns(x: ir.Value, start: int, count: int) -> ir.Value:
    """So many columns of a matrix from `start` on."""
    return sliced(x, [0, start], [size_of(x, 0), start + count])


def _without_first(x: ir.Value) -> ir.Value:
    """`x` without its first dimension, of size 1."""
    return reshaped(x, sizes_of(x)[1:])


def with_first(x: ir.Value) -> ir.Value:
    """`x` behind a first dimension of size 1."""
    return reshaped(x, [1, *sizes_of(x)])
