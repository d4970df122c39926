"""The `disc` dialect: what the passes add to StableHLO.

========================  ====================================================================
`disc.shape`              a shape operand as symbolic sizes: `{dims = ["b", "2*t"]}` -> 1-D tensor
`disc.dim`                one symbolic size as a rank-0 tensor: `{dim = "b*t"}`
`disc.fusion`             a cluster of StableHLO ops that becomes one kernel plan; its region's
                          block arguments are its operands, `disc.yield` gives its results;
                          `kind` names the emitter in `lower/` ("loop", "row", "dense", ...)
`disc.yield`              terminator of a fusion
`disc.guard`              a condition on symbolic sizes checked before a call runs:
                          `{lhs = "b", op = "==", rhs = "4", message = "..."}`
========================  ====================================================================
"""


from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

__all__ = ["Dim", "Disc", "Fusion", "Guard", "Shape", "Yield", "dim", "load", "shape"]


class Disc(ext.Dialect, name="disc"):
    """The dialect object; see the module's table for its operations."""


class Shape(Disc.Operation, name="shape", traits=[ext.Pure]):
    """A 1-D integer tensor of symbolic sizes."""

    result: ext.Result[Any]
    dims: ir.ArrayAttr


class Dim(Disc.Operation, name="dim", traits=[ext.Pure]):
    """A rank-0 integer tensor that holds one symbolic size."""

    result: ext.Result[Any]
    dim: ir.StringAttr


class Fusion(Disc.Operation, name="fusion", traits=[ext.Pure]):
    """A cluster that becomes one kernel plan."""

    inputs: Sequence[ext.Operand[Any]]
    outputs: Sequence[ext.Result[Any]]
    kind: ir.StringAttr
    body: ext.Region


class Yield(Disc.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """Terminator of a fusion: the values it gives."""

    values: Sequence[ext.Operand[Any]]


class Guard(Disc.Operation, name="guard"):
    """A condition on symbolic sizes, checked before a call runs."""

    lhs: ir.StringAttr
    op: ir.StringAttr
    rhs: ir.StringAttr
    message: ir.StringAttr


def load(context: ir.Context) -> None:
    """Register the dialect in `context`; nothing happens the second time."""
    with context, ir.Location.unknown():
        if not context.is_dialect_loaded(Disc.DIALECT_NAMESPACE):
            Disc.load()


def shape(dims: Sequence[object], element: ir.Type) -> ir.Value:
    """A new `disc.shape` at the insertion point: `tensor<len(dims) x element>`."""
    attr = ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in dims])
    return Shape(ir.RankedTensorType.get([len(dims)], element), dims=attr).result


def dim(size: object, element: ir.Type) -> ir.Value:
    """A new `disc.dim` at the insertion point: `tensor<element>`."""
    return Dim(ir.RankedTensorType.get([], element), dim=ir.StringAttr.get(str(size))).result
