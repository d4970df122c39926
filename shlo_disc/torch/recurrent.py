"""Recurrent layers in graphs of Dynamo: ops of our own, with gradients, for every length.

    torch.lstm(%x, (%h, %c), ...)    ==>    %g = linear(%x, W, b)
                                            %y, %last, %cells = shlo_disc.lstm(%g, %h, %c, U)

PyTorch's decompositions unroll the steps where a gradient is needed. Here a layer is one loop
forward and one loop backward; all products of inputs are outside the loops. Dynamo itself fixes
the number of steps of a GRU or RNN, and of an LSTM whose input needs a gradient or which projects.

    gates: [T, B, k H], h: [B, H], U: [k H, H], y: [T, B, H], with k = 4 (LSTM), 3 (GRU), 1 (RNN)

Source  PyTorch's documentation of `nn.LSTM`, `nn.GRU` and `nn.RNN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_OPS = torch.library.Library("shlo_disc", "FRAGMENT")
_OPS.define(
    "lstm(Tensor gates, Tensor h, Tensor c, Tensor weight, Tensor? projection, bool reverse, "
    "bool keeps_cells) -> (Tensor, Tensor, Tensor)"
)
_OPS.define("gru(Tensor gates, Tensor h, Tensor weight, Tensor? bias, bool reverse) -> Tensor")
_OPS.define("rnn(Tensor gates, Tensor h, Tensor weight, bool relu, bool reverse) -> Tensor")
_OPS.define(
    "lstm_gradient(Tensor grad, Tensor cell_grad, Tensor factors, Tensor through, Tensor kept, "
    "Tensor weight, Tensor? projection, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)"
)
_OPS.define(
    "recurrence_gradient(Tensor grad, Tensor factors, Tensor? kept, Tensor weight, bool reverse) "
    "-> (Tensor, Tensor)"
)
ops: Any = torch.ops.shlo_disc
"""Recurrences of gates that are computed, and the loops of their gradients."""


def _places(steps: int, *, reverse: bool) -> Sequence[int]:
    """The steps in the order of the recurrence."""
    return range(steps - 1, -1, -1) if reverse else range(steps)


# -- what PyTorch runs where a graph is not compiled whole ---------------------------------------


def _lstm(
    gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, projection: Tensor | None, reverse: bool,
    keeps_cells: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    hs, cs = [gates.new_empty(0)] * len(gates), [gates.new_empty(0)] * len(gates)
    for t in _places(len(gates), reverse=reverse):
        taken, kept, new, out = (gates[t] + F.linear(h, weight)).chunk(4, -1)
        c = torch.sigmoid(kept) * c + torch.sigmoid(taken) * torch.tanh(new)
        h = torch.sigmoid(out) * torch.tanh(c)
        h = h if projection is None else F.linear(h, projection)
        hs[t], cs[t] = h, c
    return torch.stack(hs), c.clone(), torch.stack(cs) if keeps_cells else c.new_empty(0)


def _gru(gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool) -> Tensor:
    hs = [gates.new_empty(0)] * len(gates)
    for t in _places(len(gates), reverse=reverse):
        own, given = F.linear(h, weight, bias).chunk(3, -1), gates[t].chunk(3, -1)
        reset, kept = (torch.sigmoid(given[k] + own[k]) for k in (0, 1))
        new = torch.tanh(given[2] + reset * own[2])
        hs[t] = h = (h - new) * kept + new
    return torch.stack(hs)


def _rnn(gates: Tensor, h: Tensor, weight: Tensor, relu: bool, reverse: bool) -> Tensor:
    hs = [gates.new_empty(0)] * len(gates)
    for t in _places(len(gates), reverse=reverse):
        h = gates[t] + F.linear(h, weight)
        hs[t] = h = torch.relu(h) if relu else torch.tanh(h)
    return torch.stack(hs)


def _lstm_gradient(
    grad: Tensor, cell_grad: Tensor, factors: Tensor, through: Tensor, kept: Tensor,
    weight: Tensor, projection: Tensor | None, reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    of_h, of_c = torch.zeros_like(grad[0]), cell_grad
    hs, cs = torch.empty_like(grad), torch.empty_like(kept)
    for t in _places(len(grad), reverse=not reverse):
        hs[t] = of_h = grad[t] + of_h
        of_out = of_h if projection is None else of_h @ projection
        cs[t] = of_c = of_c + of_out * through[t]
        of_h = (torch.cat([of_c, of_c, of_c, of_out], -1) * factors[t]) @ weight
        of_c = of_c * kept[t]
    return hs, cs, of_h, of_c.clone()


def _recurrence_gradient(
    grad: Tensor, factors: Tensor, kept: Tensor | None, weight: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    of_h, hs = torch.zeros_like(grad[0]), torch.empty_like(grad)
    times = factors.shape[-1] // grad.shape[-1]
    for t in _places(len(grad), reverse=not reverse):
        hs[t] = before = grad[t] + of_h
        of_h = (torch.cat([before] * times, -1) * factors[t]) @ weight
        of_h = of_h if kept is None else of_h + before * kept[t]
    return hs, of_h


# -- shapes --------------------------------------------------------------------------------------


def _lstm_shapes(
    gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, projection: Tensor | None, reverse: bool,
    keeps_cells: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    cells = [*gates.shape[:2], c.shape[1]] if keeps_cells else [0]
    y = gates.new_empty([*gates.shape[:2], h.shape[1]])
    return y, gates.new_empty(c.shape), gates.new_empty(cells)


def _states(gates: Tensor, h: Tensor, *others: Any) -> Tensor:
    return gates.new_empty([*gates.shape[:2], h.shape[1]])


def _lstm_gradient_shapes(
    grad: Tensor, cell: Tensor, factors: Tensor, through: Tensor, kept: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    like = torch.empty_like
    return like(grad), like(kept), grad.new_empty(grad.shape[1:]), like(cell)


def _gradient_shapes(grad: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(grad), grad.new_empty(grad.shape[1:])


for _name, _function, _shapes in (
    ("lstm", _lstm, _lstm_shapes), ("gru", _gru, _states), ("rnn", _rnn, _states),
    ("lstm_gradient", _lstm_gradient, _lstm_gradient_shapes),
    ("recurrence_gradient", _recurrence_gradient, _gradient_shapes),
):  # fmt: skip
    _OPS.impl(_name, _function, "CPU")
    _OPS.impl(_name, _shapes, "Meta")


# -- gradients -----------------------------------------------------------------------------------


def _before(states: Tensor, first: Tensor, *, reverse: bool) -> Tensor:
    """The state in front of each step. No size is one less than another: it could be 1."""
    first, steps = first.unsqueeze(0), states.shape[0]
    if reverse:
        return torch.cat([states, first]).narrow(0, 1, steps)
    return torch.cat([first, states]).narrow(0, 0, steps)


def _of_weight(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of a weight W: [O, I] from those of x W^T: [T, B, O], and x: [T, B, I]."""
    return grad.flatten(0, 1).t() @ x.flatten(0, 1)


def _keep_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gates, h, c, weight, projection, ctx.reverse, _ = inputs
    ctx.save_for_backward(gates, h, c, weight, projection, output[0], output[2])


def _of_lstm(ctx: Any, grad: Tensor, of_last: Tensor, _: Any) -> tuple[Any, ...]:
    gates, h, c, weight, projection, y, cells = ctx.saved_tensors
    h_before, c_before = (
        _before(states, first, reverse=ctx.reverse) for states, first in ((y, h), (cells, c))
    )
    taken, kept, new, out = (gates + F.linear(h_before, weight)).chunk(4, -1)
    taken, kept, out = torch.sigmoid(taken), torch.sigmoid(kept), torch.sigmoid(out)
    new, cell = torch.tanh(new), torch.tanh(cells)
    factors = [
        new * taken * (1 - taken),
        c_before * kept * (1 - kept),
        taken * (1 - new * new),
        cell * out * (1 - out),
    ]
    of_states, of_cells, of_h, of_c = ops.lstm_gradient(
        grad, of_last, torch.cat(factors, -1), out * (1 - cell * cell), kept, weight, projection,
        ctx.reverse,
    )  # fmt: skip
    of_out, of_projection = of_states, None
    if projection is not None:
        of_out = of_states @ projection
        of_projection = _of_weight(of_states, out * cell)
    of_parts = [of_cells, of_cells, of_cells, of_out]
    of_gates = torch.cat([a * b for a, b in zip(of_parts, factors, strict=True)], -1)
    return of_gates, of_h, of_c, _of_weight(of_gates, h_before), of_projection, None, None


def _keep_gru(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, output)


def _of_gru(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    gates, h, weight, bias, y = ctx.saved_tensors
    before = _before(y, h, reverse=ctx.reverse)
    own, given = F.linear(before, weight, bias).chunk(3, -1), gates.chunk(3, -1)
    reset, kept = (torch.sigmoid(given[k] + own[k]) for k in (0, 1))
    new = torch.tanh(given[2] + reset * own[2])
    of_new = (1 - kept) * (1 - new * new)
    of_reset = of_new * own[2] * reset * (1 - reset)
    of_kept = (before - new) * kept * (1 - kept)
    factors = torch.cat([of_reset, of_kept, of_new * reset], -1)
    of_states, of_h = ops.recurrence_gradient(grad, factors, kept, weight, ctx.reverse)
    of_own = of_states.repeat(1, 1, 3) * factors
    of_gates = torch.cat([of_states * part for part in (of_reset, of_kept, of_new)], -1)
    of_bias = None if bias is None else of_own.sum([0, 1])
    return of_gates, of_h, _of_weight(of_own, before), of_bias, None


def _keep_rnn(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, h, weight, ctx.relu, ctx.reverse = inputs
    ctx.save_for_backward(h, weight, output)


def _of_rnn(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    h, weight, y = ctx.saved_tensors
    factors = (y > 0).to(y.dtype) if ctx.relu else 1 - y * y
    of_states, of_h = ops.recurrence_gradient(grad, factors, None, weight, ctx.reverse)
    of_gates = of_states * factors
    before = _before(y, h, reverse=ctx.reverse)
    return of_gates, of_h, _of_weight(of_gates, before), None, None


torch.library.register_autograd("shlo_disc::lstm", _of_lstm, setup_context=_keep_lstm)
torch.library.register_autograd("shlo_disc::gru", _of_gru, setup_context=_keep_gru)
torch.library.register_autograd("shlo_disc::rnn", _of_rnn, setup_context=_keep_rnn)


# -- layers --------------------------------------------------------------------------------------

_Layer = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], bool, bool], list[Tensor]]
"""(x: [T, B, I], states, weights, has_biases, reverse) to y: [T, B, H] and the last states."""


def _last(y: Tensor, *, reverse: bool) -> Tensor:
    return y[0] if reverse else y[-1]


def _lstm_layer(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], has_biases: bool, reverse: bool
) -> list[Tensor]:
    bias = weights[2] + weights[3] if has_biases else None
    gates = F.linear(x, weights[0], bias)
    projection = weights[-1] if len(weights) % 2 else None
    h, c, weight = (t.to(gates.dtype) for t in (*states, weights[1]))
    tensors = [gates, h, c, weight, *([] if projection is None else [projection])]
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if projection is not None:
        projection = projection.to(gates.dtype)
    y, c, _ = ops.lstm(gates, h, c, weight, projection, reverse, keeps)
    return [y, _last(y, reverse=reverse), c]


def _gru_layer(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], has_biases: bool, reverse: bool
) -> list[Tensor]:
    gates = F.linear(x, weights[0], weights[2] if has_biases else None)
    (h,), weight, bias = states, weights[1], weights[3] if has_biases else None
    h, weight = h.to(gates.dtype), weight.to(gates.dtype)
    y = ops.gru(gates, h, weight, None if bias is None else bias.to(gates.dtype), reverse)
    return [y, _last(y, reverse=reverse)]


def _rnn_layer(relu: bool) -> _Layer:
    def layer(
        x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], has_biases: bool,
        reverse: bool,
    ) -> list[Tensor]:  # fmt: skip
        gates = F.linear(x, weights[0], weights[2] + weights[3] if has_biases else None)
        (h,) = states
        y = ops.rnn(gates, h.to(gates.dtype), weights[1].to(gates.dtype), relu, reverse)
        return [y, _last(y, reverse=reverse)]

    return layer


def _layers(layer: _Layer, is_lstm: bool) -> Callable[..., tuple[Tensor, ...]]:
    """The function that takes the arguments of `torch.lstm` or `torch.gru`."""

    def function(
        x: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        states = list(zip(*(s.unbind(0) for s in (hx if is_lstm else (hx,))), strict=True))
        directions = 2 if bidirectional else 1
        each = len(params) // (num_layers * directions)
        x = x.transpose(0, 1) if batch_first else x
        last = []
        for number in range(num_layers):
            found = []
            for way in range(directions):
                place = number * directions + way
                weights = params[place * each : (place + 1) * each]
                y, *ends = layer(x, states[place], weights, has_biases, way == 1)
                found.append(y)
                last.append(ends)
            x = torch.cat(found, -1) if bidirectional else found[0]
            if train and number < num_layers - 1 and dropout:
                x = torch.dropout(x, dropout, train=True)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack(ends) for ends in zip(*last, strict=True)))

    return function


_FUNCTIONS = {
    torch.lstm: _layers(_lstm_layer, is_lstm=True),
    torch.gru: _layers(_gru_layer, is_lstm=False),
    torch.rnn_tanh: _layers(_rnn_layer(relu=False), is_lstm=False),
    torch.rnn_relu: _layers(_rnn_layer(relu=True), is_lstm=False),
}
_ARGUMENTS = 9
"""Of a layer of padded sequences. Packed ones state the sizes of batches in a second tensor."""


def take_recurrent_layers(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`graph`, of Dynamo, whose layers of padded sequences call ops of this module instead.

    A graph without such a layer is returned as it is; others are copied.
    """
    if not any(map(_is_layer, graph.graph.nodes)):
        return graph
    copy = torch.fx.GraphModule(graph, torch.fx.Graph())
    copy.graph.output(copy.graph.graph_copy(graph.graph, {}))
    copy.meta = dict(graph.meta)
    for node in copy.graph.nodes:
        if _is_layer(node):
            node.target = _FUNCTIONS[node.target]
    copy.recompile()
    return copy


def _is_layer(node: torch.fx.Node) -> bool:
    is_one = node.op == "call_function" and node.target in _FUNCTIONS
    return is_one and len(node.args) == _ARGUMENTS and isinstance(node.args[3], bool)
