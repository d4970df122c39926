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
from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ir.mlir import ir
from shlo_disc.torch.bodies.call import BodyCall

_LSTM = 2
"""`mode` of an LSTM, as oneDNN numbers kinds of recurrence."""

_WORKSPACE = 3
"""The result that only the gradient takes."""


def lstm_layer(call: BodyCall) -> list[Array]:
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
    x = call["input"]
    gates = x.dot(call["weight0"], 2, 1, element=ir.F32Type.get())
    if call["has_biases"]:
        gates = gates + (call["weight2"].to("f32") + call["weight3"].to("f32")).spread([2], gates)
    h, c = (call[name].to("f32") for name in ("hx_", "cx_"))
    h, c = (value.reshape(value.sizes[1:]) for value in (h, c))
    cell = _lstm_cell(call["weight1"], None, keeps_cells=False)
    h, c, y = _loop([gates], [h, c], cell, [_width(h)], backwards=call["reverse"])
    h, c = (value.reshape([1, *value.sizes]) for value in (h, c))
    empty = ir.RankedTensorType(call.results[3])
    found = [value.to(x.element) for value in (y, h, c)]
    return [*found, Array.constant(0, empty.element_type, empty.shape)]


def lstm(call: BodyCall) -> list[Array]:
    """`shlo_disc.lstm`: y, the last c, and c after every step where they are kept."""
    kind = call["gates"].element
    gates, h, c = _wide(call, "gates", "h", "c")
    keeps = call["keeps_cells"]
    cell = _lstm_cell(call["weight"], call["projection"], keeps_cells=keeps)
    widths = [_width(h), *([_width(c)] if keeps else [])]
    _, c, y, *cells = _loop([gates], [h, c], cell, widths, backwards=call["reverse"])
    return [value.to(kind) for value in (y, c, *(cells or [Array.constant(0, kind, [0])]))]


def gru(call: BodyCall) -> list[Array]:
    """`shlo_disc.gru`: y."""
    gates, h = _wide(call, "gates", "h")
    (bias,) = [None] if call["bias"] is None else _wide(call, "bias")

    def cell(entries: Sequence[Array], states: Sequence[Array]) -> _Step:
        (given,), (h,) = entries, states
        own = _times(h, call["weight"], 1)
        if bias is not None:
            own = own + bias.spread([1], own)
        of_given, of_own = _split(given, 3), _split(own, 3)
        reset, kept = (_logistic(of_given[k] + of_own[k]) for k in (0, 1))
        new = _tanh(of_given[2] + reset * of_own[2])
        h = (h - new) * kept + new
        return [h], [h]

    _, y = _loop([gates], [h], cell, [_width(h)], backwards=call["reverse"])
    return [y.to(call.element)]


def rnn(call: BodyCall) -> list[Array]:
    """`shlo_disc.rnn`: y."""
    gates, h = _wide(call, "gates", "h")

    def cell(entries: Sequence[Array], states: Sequence[Array]) -> _Step:
        total = entries[0] + _times(states[0], call["weight"], 1)
        h = total.maximum(0) if call["relu"] else _tanh(total)
        return [h], [h]

    _, y = _loop([gates], [h], cell, [_width(h)], backwards=call["reverse"])
    return [y.to(call.element)]


def lstm_gradient(call: BodyCall) -> list[Array]:
    """`shlo_disc.lstm_gradient`: gradients of every h and c, and of the first ones."""
    *inputs, of_c = _wide(call, "grad", "factors", "through", "kept", "cell_grad")
    weight, projection = call["weight"], call["projection"]

    def step(entries: Sequence[Array], states: Sequence[Array]) -> _Step:
        (grad, factors, through, kept), (of_h, of_c) = entries, states
        of_h = grad + of_h
        of_out = of_h if projection is None else _times(of_h, projection, 0)
        of_c = of_c + of_out * through
        of_gates = Array.join([of_c, of_c, of_c, of_out], 1) * factors
        return [_times(of_gates, weight, 0), of_c * kept], [of_h, of_c]

    widths = [_width(inputs[0]), _width(inputs[3])]
    found = _loop(inputs, [_no_state(inputs[0]), of_c], step, widths, backwards=not call["reverse"])
    of_h, of_c, every_h, every_c = (value.to(call.element) for value in found)
    return [every_h, every_c, of_h, of_c]


def recurrence_gradient(call: BodyCall) -> list[Array]:
    """`shlo_disc.recurrence_gradient`: gradients of every h, and of the first one."""
    inputs = _wide(call, "grad", "factors", *([] if call["kept"] is None else ["kept"]))
    grad = inputs[0]
    times = _width(inputs[1]) // _width(grad)

    def step(entries: Sequence[Array], states: Sequence[Array]) -> _Step:
        grad, factors, *kept = entries
        of_h = grad + states[0]
        many = of_h if times == 1 else Array.join([of_h] * times, 1)
        before = _times(many * factors, call["weight"], 0)
        return [before + of_h * kept[0] if kept else before], [of_h]

    first = _no_state(grad)
    found = _loop(inputs, [first], step, [_width(grad)], backwards=not call["reverse"])
    of_h, every_h = (value.to(call.element) for value in found)
    return [every_h, of_h]


_Step = tuple[list[Array], list[Array]]
"""The states after a step, and what is written at its place."""


def _loop(
    inputs: Sequence[Array],
    states: Sequence[Array],
    step: Callable[[Sequence[Array], Sequence[Array]], _Step],
    widths: Sequence[int],
    *,
    backwards: bool,
) -> list[Any]:
    """The last states, and [T, B, width] of what `step` writes, for each of `widths`.

    `inputs`: [T, B, n]. `step` takes their entries and the states: [B, m].
    """
    first = inputs[0]
    steps, nothing = first.extent(0), Array.constant(0, first.element)
    empty = [nothing.expand([*first.sizes[:2], width]) for width in widths]

    def counted(number: Array, *values: Array) -> list[ir.Value]:
        place = steps - 1 - number if backwards else number
        before, written = values[: len(states)], values[len(states) :]
        after, entries = step([x.entry(place) for x in inputs], before)
        return [
            number + 1,
            *(BodyCall.cast(value, b.type) for value, b in zip(after, before, strict=True)),
            *(y.written(entry, place) for y, entry in zip(written, entries, strict=True)),
        ]

    return loop([Array.size(0), *states, *empty], lambda k, *_: k < steps, counted)[1:]


def _no_state(x: Array) -> Array:
    """Zeros in the shape of an entry of x: [T, B, n]."""
    return x.entry(Array.size(0)).full(0)


def _lstm_cell(
    weight: Array, projection: Array | None, *, keeps_cells: bool
) -> Callable[[Sequence[Array], Sequence[Array]], _Step]:
    """A step; the gates of an entry, [B, 4 H], are what it adds to those of h."""

    def step(entries: Sequence[Array], states: Sequence[Array]) -> _Step:
        h, c = states
        taken, kept, new, out = _split(entries[0] + _times(h, weight, 1), 4)
        c = _logistic(kept) * c + _logistic(taken) * _tanh(new)
        h = _logistic(out) * _tanh(c)
        if projection is not None:
            h = _times(h, projection, 1)
        return [h, c], [h, c] if keeps_cells else [h]

    return step


def _width(x: Array) -> int:
    """The size of the last dimension, which is a number."""
    return x.shape[-1]


def _wide(call: BodyCall, *names: str) -> list[Array]:
    """Arguments in the type that steps are computed in: f32, or f64 as given."""
    given = (call[name] for name in names)
    return [x if isinstance(x.element, ir.F64Type) else x.to("f32") for x in given]


def _logistic(x: Array) -> Array:
    return x.apply("logistic")


def _tanh(x: Array) -> Array:
    return x.apply("tanh")


def _times(x: Array, weight: Array, axis: int) -> Array:
    """x: [B, m] times a weight, summed over its dimension `axis`, in the type of x."""
    return x.to(weight.element).dot(weight, 1, axis, element=x.element)


def _split(x: Array, count: int) -> list[Array]:
    """Columns of a matrix, in so many parts."""
    rows, width = x.sizes[0], _width(x) // count
    return [x.slice([0, k * width], [rows, (k + 1) * width]) for k in range(count)]
