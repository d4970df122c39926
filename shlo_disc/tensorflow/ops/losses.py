"""Losses and norms."""

from __future__ import annotations

import math

from shlo_disc.ingest.arrays import broadcast_to, constant, converted, iota
from shlo_disc.ingest.size_arithmetic import Size, reshaped, sizes_of
from shlo_disc.ingest.size_values import Sizes, binary
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import compare, create, element_of, reduced
from shlo_disc.ir.builders import summed as total_of
from shlo_disc.ir.mlir import ir
from shlo_disc.tensorflow.ops.values import known_integers

Values = list[ir.Value]


def sigmoid_gradient(sizes: Sizes, op: ir.Operation) -> Values:
    """`SigmoidGrad(y, dy)`: `dy * y * (1 - y)`, of one shape."""
    y, given = op.operands
    own = sizes_of(y)
    gradient = converted(reshaped(given, own), element_of(y))
    rest = binary("subtract", broadcast_to(constant(1, element_of(y)), [], own), y)
    return [binary("multiply", binary("multiply", gradient, y), rest)]


def sparse_softmax_loss(sizes: Sizes, op: ir.Operation) -> Values:
    """`SparseSoftmaxCrossEntropyWithLogits(features, labels)`: the loss, and its gradient.

    Both are NaN for a label that is no class, as TensorFlow's documentation says for GPUs and as
    XLA has it. TensorFlow's kernel for CPUs raises an error.
    """
    logits, labels = op.operands
    own = sizes_of(logits)
    rows = own[0]
    column: list[Size] = [rows, 1]
    largest = reduced(logits, [1], "maximum", constant(-math.inf, element_of(logits)))
    shifted = binary("subtract", logits, broadcast_to(largest, [0], own))
    powers = create("stablehlo.exponential", [shifted], logits.type)
    total = total_of(powers, [1])
    number = iota(own, 1, element_of(labels))
    is_label = compare("EQ", number, broadcast_to(labels, [0], own))
    none = constant(0, element_of(logits))
    chosen = create(
        "stablehlo.select", [is_label, shifted, broadcast_to(none, [], own)], logits.type
    )
    loss = binary("subtract", create("stablehlo.log", [total], total.type), total_of(chosen, [1]))
    hot = converted(is_label, element_of(logits))
    gradient = binary("subtract", binary("divide", powers, broadcast_to(total, [0], own)), hot)
    # NaN where no entry of the row is the label.
    found = total_of(hot, [1])
    is_class = compare("NE", found, broadcast_to(none, [], [rows]))
    nan = constant(math.nan, element_of(logits))
    loss = create("stablehlo.select", [is_class, loss, broadcast_to(nan, [], [rows])], loss.type)
    wide = broadcast_to(reshaped(is_class, column), [0, 1], own)
    gradient = create(
        "stablehlo.select", [wide, gradient, broadcast_to(nan, [], own)], gradient.type
    )
    return [loss, gradient]


def euclidean_norm(sizes: Sizes, op: ir.Operation) -> Values:
    """`EuclideanNorm(input, reduction_indices)`."""
    array = op.operands[0]
    rank = ir.RankedTensorType(array.type).rank
    axes = sorted({axis % rank for axis in known_integers(op.operands[1], "the axes")})
    total = total_of(binary("multiply", array, array), axes)
    root = create("stablehlo.sqrt", [total], total.type)
    if not flag(op, "keep_dims"):
        return [root]
    return [reshaped(root, [1 if k in axes else n for k, n in enumerate(sizes_of(array))])]
