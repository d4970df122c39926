"""What the fusion planner may do with an op, found by its name. One row per op.

The classes are facts about the op's semantics, not about a target; a test holds them against
what the emitters in `lower/` accept.
"""

from __future__ import annotations

from shlo_disc.mlir import ir

__all__ = [
    "CONTROL",
    "DENSE_KINDS",
    "ELEMENTWISE",
    "EXPENSIVE",
    "FREE",
    "GATHERS",
    "HARD_OPERANDS",
    "HOST",
    "HOST_SCALARS",
    "INDEX_MOVING",
    "IN_PLACE_KINDS",
    "LONG_SUM",
    "LOOP_BEARING",
    "OPAQUE_KIND",
    "RESULT_SHAPE_OPERAND",
    "TALL_COLUMNS",
    "is_host_scalar",
    "is_integer_scalar",
    "is_splat_constant",
    "own_kind",
    "size_operands",
]

ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in [
        "abs",
        "add",
        "and",
        "atan2",
        "bitcast_convert",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "convert",
        "cosine",
        "count_leading_zeros",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "reduce_precision",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
    ]
) | {"chlo.erf", "chlo.erfc", "chlo.erf_inv"}
"""Result element i depends on operand elements i only (rank-0 operands of select, clamp aside)."""

INDEX_MOVING = frozenset(
    f"stablehlo.{name}"
    for name in [
        "concatenate",
        "dynamic_gather",
        "dynamic_pad",
        "dynamic_slice",
        "gather",
        "pad",
        "real_dynamic_slice",
        "reverse",
        "slice",
        "transpose",
    ]
)
"""Result element i is one operand element at another index (or a padding value)."""

FREE = frozenset(
    {
        "disc.dim",
        "disc.sizes",
        "stablehlo.broadcast_in_dim",
        "stablehlo.dynamic_broadcast_in_dim",
        "stablehlo.dynamic_iota",
        "stablehlo.dynamic_reshape",
        "stablehlo.iota",
        "stablehlo.reshape",
    }
)
"""Cost nothing inside a kernel: cloned into every consumer, never computed for their own sake
(splat constants too, see `is_splat_constant`)."""

GATHERS = frozenset({"stablehlo.dynamic_gather", "stablehlo.gather"})
"""Operand 1 tells where operand 0 is read."""

RESHAPES = frozenset({"stablehlo.reshape", "stablehlo.dynamic_reshape"})
"""Outside a kernel these are aliases of their operand."""

LONG_SUM = 4096
"""Products from which a sum is worth cutting into parts that run side by side: two launches cost
about as much as 4096 of them for a tile of results."""

TALL_COLUMNS = 8192
"""Rows from which columns that are reduced in one sweep are worth cutting into pieces."""

LOOP_BEARING = frozenset({"stablehlo.reduce", "stablehlo.reduce_window"})
"""A result element needs a loop over operand elements."""

HARD_OPERANDS: dict[str, tuple[int, ...]] = {
    "stablehlo.convolution": (0, 1),
    "stablehlo.dot_general": (0, 1),
    "stablehlo.dynamic_conv": (0, 1, 2),
    "stablehlo.dynamic_gather": (0, 2),
    "stablehlo.dynamic_update_slice": (0,),
    "stablehlo.gather": (0,),
    "stablehlo.reduce_window": (0,),
    "stablehlo.scatter": (0, 1),
}
"""Operands read at arbitrary or repeated indices: never computed inside the consumer."""

RESULT_SHAPE_OPERAND: dict[str, int] = {
    "stablehlo.dynamic_broadcast_in_dim": 1,
    "stablehlo.dynamic_iota": 0,
    "stablehlo.dynamic_reshape": 1,
}
"""Ops with an operand that is the shape of their result, and its position."""

SIZE_OPERANDS: dict[str, tuple[int, ...]] = {
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.real_dynamic_slice": (1, 2, 3),
    "stablehlo.rng": (2,),
}
"""Other operands that kernels get as terms where they are computed from sizes."""

SIZE_OPERANDS_OF_CALLS: dict[str, tuple[int, ...]] = {
    "stablehlo.dynamic_rng_bit_generator": (1,),
    "stablehlo.dynamic_top_k": (1,),
}
"""Likewise for `stablehlo.custom_call`, by target."""


def size_operands(op: ir.Operation) -> tuple[int, ...]:
    """The positions of operands that are read as sizes, not as data: a `disc.shape` may be there
    and nowhere else.
    """
    if op.name in RESULT_SHAPE_OPERAND:
        return (RESULT_SHAPE_OPERAND[op.name],)
    if op.name != "stablehlo.custom_call":
        return SIZE_OPERANDS.get(op.name, ())
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    return SIZE_OPERANDS_OF_CALLS.get(target, ())


OPAQUE_KIND = {
    "chlo.top_k": "top_k",
    "disc.scan": "scan",
    "stablehlo.convolution": "conv",
    "stablehlo.dot_general": "dense",
    "stablehlo.dynamic_conv": "conv",
    "stablehlo.dynamic_update_slice": "dynamic_update_slice",
    "stablehlo.rng_bit_generator": "rng",
    "stablehlo.scatter": "scatter",
    "stablehlo.select_and_scatter": "select_and_scatter",
    "stablehlo.sort": "sort",
}
"""Ops with an emitter of their own: the kind of their fusion."""

IN_PLACE_KINDS = frozenset({"dynamic_update_slice", "scatter"})
"""Fusions that copy operand 0 and then change some of it: without the copy when it dies here."""

DENSE_KINDS = frozenset({"attention", "conv", "dense"})
"""Kinds of fusions around contractions: they take in element-wise work behind them."""

CUSTOM_CALL_KIND = {
    "stablehlo.dynamic_rng_bit_generator": "rng",
    "stablehlo.dynamic_top_k": "top_k",
}
"""Likewise for `stablehlo.custom_call`, by its target."""


def own_kind(op: ir.Operation) -> str | None:
    """The kind of a fusion around `op`, where it has an emitter of its own."""
    if op.name != "stablehlo.custom_call":
        return OPAQUE_KIND.get(op.name)
    return CUSTOM_CALL_KIND.get(ir.StringAttr(op.attributes["call_target_name"]).value)


HOST_SCALARS = frozenset(
    f"stablehlo.{name}"
    for name in [
        "add",
        "and",
        "broadcast_in_dim",
        "compare",
        "constant",
        "convert",
        "dynamic_broadcast_in_dim",
        "dynamic_reshape",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "reshape",
        "select",
        "subtract",
        "xor",
    ]
) | {"disc.dim", "disc.shape"}
"""What the host program computes itself on integer scalars (`lower/host/scalars.py`)."""


def is_integer_scalar(value: ir.Value) -> bool:
    """An integer tensor of rank 0."""
    kind = ir.RankedTensorType(value.type)
    return not kind.rank and isinstance(kind.element_type, ir.IntegerType)


def is_host_scalar(op: ir.Operation) -> bool:
    """Can the host program compute the results of `op`, integer scalars, from its operands?"""
    if op.name not in HOST_SCALARS or not all(map(is_integer_scalar, op.results)):
        return False
    if op.name == "stablehlo.convert":
        to_flag = ir.RankedTensorType(op.results[0].type).element_type.width == 1
        return is_integer_scalar(op.operands[0]) and not to_flag
    return op.name != "stablehlo.compare" or is_integer_scalar(op.operands[0])


CONTROL = frozenset({"stablehlo.case", "stablehlo.if", "stablehlo.while"})

HOST = frozenset({"disc.empty", "disc.guard", "disc.shape"})
"""Read by the host program only."""

TRANSCENDENTAL = frozenset(
    f"stablehlo.{name}"
    for name in [
        "atan2",
        "cbrt",
        "cosine",
        "exponential",
        "exponential_minus_one",
        "log",
        "log_plus_one",
        "logistic",
        "power",
        "rsqrt",
        "sine",
        "sqrt",
        "tan",
        "tanh",
    ]
) | {"chlo.erf", "chlo.erfc", "chlo.erf_inv"}
"""Roots, powers and functions no finite number of basic operations gives."""

EXPENSIVE = TRANSCENDENTAL | {"stablehlo.divide", "stablehlo.remainder"}
"""Worth storing rather than recomputing per consumer element."""


def is_splat_constant(op: ir.Operation) -> bool:
    """True for a `stablehlo.constant` of one repeated element (rank 0 included)."""
    if op.name != "stablehlo.constant":
        return False
    value = op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and bool(value.is_splat)
