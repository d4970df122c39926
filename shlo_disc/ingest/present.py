"""What a module has. Rewrites that it does not need are not even imported."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from shlo_disc.ir.mlir import ir, quant, stablehlo
from shlo_disc.ir.ops import names

EXPANDED = names(lambda row: row.note.startswith("ingest: expand_ops"))
"""Ops that have a rule in `expand_ops.py`."""

# --- custom calls -------------------------------------------------------------------------------

CONFIGURATION = "mhlo.backend_config"
"""Where JAX puts the attributes of an FFI call; a dictionary makes a custom call one."""

INTERNAL = "shlo_disc.parked."
"""In front of targets that our passes write for themselves."""

CHLO_CALLS = ("chlo.erfc", "chlo.erf_inv")
"""CHLO ops that JAX programs have as custom calls: portable artifacts hold no CHLO."""

DYNAMIC_REDUCE_WINDOW = "stablehlo.dynamic_reduce_window"

APPROX_TOP_K = ("ApproxTopK", "stablehlo.dynamic_approx_top_k")

IDENTITY_CALLS = frozenset({"Sharding", "annotate_device_placement", "MoveToHost", "MoveToDevice"})
"""Custom calls that return their operand: hints to XLA's partitioner and memory spaces."""


def calls_of(*targets: str) -> frozenset[str]:
    """Custom calls of these targets, as the names of what a module has tell them."""
    return frozenset(f"@{target}" for target in targets)


def target_of(op: ir.Operation) -> str:
    """The target of a custom call."""
    return str(ir.StringAttr(op.attributes["call_target_name"]).value)


# --- types --------------------------------------------------------------------------------------

TUPLE_OPS = frozenset(
    f"stablehlo.{name}" for name in ("after_all", "create_token", "get_tuple_element", "tuple")
)
"""Ops of which `flatten_tuples` leaves none."""

_MIXED = ("arith.", "math.", "shape.", "tensor.")


def has_tuples(main: Any, present: Collection[str]) -> bool:
    """Whether `main` may have a tuple or a token; `present` names the ops of the module."""
    return not TUPLE_OPS.isdisjoint(present) or any(is_compound(a.type) for a in main.arguments)


def is_compound(kind: ir.Type) -> bool:
    """True for a tuple or a token."""
    return isinstance(kind, ir.TupleType) or is_token(kind)


def is_token(kind: ir.Type) -> bool:
    """True for a token."""
    return bool(stablehlo.TokenType.isinstance(kind))


def has_bounds(functions: Sequence[Any], present: Collection[str]) -> bool:
    """Whether a value may have a bounded type: an argument, a result, or what comes from one."""
    return "stablehlo.set_dimension_size" in present or any(
        bounds_of(kind) is not None for f in functions for kind in _signature(f)
    )


def bounds_of(kind: ir.Type) -> list[int] | None:
    """The bounds of the dimensions of `kind`; None of a type without."""
    if not isinstance(kind, ir.RankedTensorType) or kind.encoding is None:
        return None
    if not stablehlo.TypeExtensions.isinstance(kind.encoding):
        return None
    return list(stablehlo.TypeExtensions(kind.encoding).bounds)


def has_mixture(functions: Sequence[Any], present: Collection[str]) -> bool:
    """Whether there is something of other dialects to rewrite, or a number that is no tensor."""
    return any(name.startswith(_MIXED) for name in present) or any(
        converted(kind) != kind for f in functions for kind in _signature(f)
    )


def converted(kind: ir.Type) -> ir.Type:
    """The type that a value of `kind` of a mixed module has as a tensor."""
    inner, sizes = kind, []
    if isinstance(kind, ir.RankedTensorType):
        inner, sizes = kind.element_type, kind.shape
        if not isinstance(inner, ir.IndexType):
            return kind
    if isinstance(inner, ir.IndexType):
        inner = ir.IntegerType.get_signless(64)
    elif not isinstance(inner, ir.IntegerType | ir.FloatType | ir.ComplexType):
        return kind
    return ir.RankedTensorType.get(sizes, inner)


def is_quantized(kind: ir.Type) -> bool:
    """True for a tensor of a quantized type."""
    return isinstance(kind, ir.ShapedType) and isinstance(kind.element_type, quant.QuantizedType)


def _signature(function: Any) -> tuple[ir.Type, ...]:
    return (*(argument.type for argument in function.arguments), *function.type.results)
