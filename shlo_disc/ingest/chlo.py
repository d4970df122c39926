"""CHLO and composites: keep the few ops our emitters know, expand the rest.

    stablehlo.composite "chlo.erf" %x     ==>  chlo.erf %x           (a kept op)
    stablehlo.composite "chlo.sinh" %x    ==>  its decomposition     (any other)
    chlo.sinh %x                          ==>  StableHLO             (upstream's expansion)

`chlo-legalize-to-stablehlo` expands every CHLO op at once, so kept ops sit it out as custom calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.builders import create, dimension, vector
from shlo_disc.mlir import at, ir, ops_of, run_pipeline, walk
from shlo_disc.ops import Role, names

__all__ = ["KEPT_CHLO", "PARKED", "expand_chlo", "expand_composites", "unpark"]

KEPT_CHLO = names(lambda row: row.name.startswith("chlo.") and row.role is not Role.EXPANDED)
"""CHLO ops that stay: `lower/` computes them, faster and more exactly than their expansion."""

PARKED = "shlo_disc.parked."
"""In front of a kept op's name: a custom call that stands for it where it would be expanded."""


def expand_composites(module: ir.Module, composites: Sequence[ir.Operation]) -> int:
    """None of `composites` is left: kept ops become themselves, others calls; how many."""
    for op in composites:
        name = ir.StringAttr(op.attributes["name"]).value
        if name in KEPT_CHLO:
            _unwrap(op, name)
    if composites:
        run_pipeline(module, "func.func(stablehlo-legalize-composite-to-call)")
    return len(composites)


def _unwrap(op: ir.Operation, name: str) -> None:
    """Replace the composite by the CHLO op it stands for, when that op verifies."""
    attributes = {}
    if "composite_attributes" in op.attributes:
        attributes = {a.name: a.attr for a in ir.DictAttr(op.attributes["composite_attributes"])}
    if name == "chlo.top_k":
        attributes = {"k": attributes["k"]} if "k" in attributes else attributes
    results = [r.type for r in op.results]
    with at(op):
        try:
            new = ir.Operation.create(
                name, results=results, operands=list(op.operands), attributes=attributes
            )
            verified = new.operation.verify()
        except ir.MLIRError:
            return  # another version of the op: its decomposition says what it means
        if not verified:
            new.operation.erase()
            return
    for old, value in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(value)
    op.erase()


def expand_chlo(module: ir.Module) -> int:
    """Only CHLO ops in KEPT_CHLO are left; how many others there were."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        if op.name.startswith("chlo."):
            found.append(op)

    walk(module, visit)
    others = [op for op in found if op.name not in KEPT_CHLO]
    if not others:
        return 0
    for op in found:
        if op.name in KEPT_CHLO:
            _park(op)
    _broadcast_operands(module)
    # Broadcasting CHLO ops expand to shape dialect arithmetic, which the second pass takes back.
    run_pipeline(
        module,
        "func.func(chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo),reconcile-unrealized-casts",
    )
    unpark(module)
    return len(others)


_BINARY = frozenset(
    f"chlo.broadcast_{name}"
    for name in [
        "add", "and", "atan2", "divide", "maximum", "minimum", "multiply", "or", "power",
        "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract",
        "xor",
    ]
)  # fmt: skip


def _broadcast_operands(module: ir.Module) -> None:
    """A binary op becomes one of StableHLO if an operand is a scalar, or both have one rank.

    Sizes of 1 in a type are broadcast. Two run-time sizes must be equal: each call checks those
    that are not proved so. Upstream's expansion computes the common shape at run time, with ops
    that nothing expands.
    """
    for op in ops_of(module, *sorted(_BINARY)):
        kinds = [ir.RankedTensorType(value.type) for value in op.operands]
        if kinds[0].rank != kinds[1].rank and min(k.rank for k in kinds) > 0:
            continue
        with at(op):
            a, b = op.operands
            operands = [_broadcast_to(a, b), _broadcast_to(b, a)]
            name = op.name.replace("chlo.broadcast_", "stablehlo.")
            new = create(name, operands, op.results[0].type)
        op.results[0].replace_all_uses_with(new)
        op.erase()


def _broadcast_to(value: ir.Value, other: ir.Value) -> ir.Value:
    """`value`, a scalar or of the rank of `other`, with the sizes of `other` for its own 1s."""
    kind, wide = ir.RankedTensorType(value.type), ir.RankedTensorType(other.type)
    if not wide.rank:
        return value
    if kind.rank:
        sizes = [n if m == 1 else m for m, n in zip(kind.shape, wide.shape, strict=True)]
        if sizes == list(kind.shape):
            return value
        source = [other if m == 1 else value for m in kind.shape]
        dims = list(range(kind.rank))
    else:
        sizes, dims = list(wide.shape), []
        source = [other] * wide.rank
    result = ir.RankedTensorType.get(sizes, kind.element_type)
    attribute = ir.DenseI64ArrayAttr.get(dims)
    if result.has_static_shape and kind.has_static_shape:
        return create("stablehlo.broadcast_in_dim", [value], result, broadcast_dimensions=attribute)
    shape = vector([dimension(v, d) for d, v in enumerate(source)])
    return create(
        "stablehlo.dynamic_broadcast_in_dim",
        [value, shape],
        result,
        broadcast_dimensions=attribute,
    )


def unpark(module: ir.Module) -> int:
    """Parked ops become themselves again; how many there were."""
    parked = 0
    for op in ops_of(module, "stablehlo.custom_call"):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if target.startswith(PARKED):
            _unpark(op, target.removeprefix(PARKED))
            parked += 1
    return parked


def _park(op: ir.Operation) -> None:
    attributes = dict(op.attributes.items())
    with at(op):
        parked = ir.Operation.create(
            "stablehlo.custom_call",
            results=[r.type for r in op.results],
            operands=list(op.operands),
            attributes={
                "call_target_name": ir.StringAttr.get(PARKED + op.name),
                "shlo_disc.attributes": ir.DictAttr.get(attributes),
            },
        )
    for old, new in zip(op.results, parked.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _unpark(op: ir.Operation, name: str) -> None:
    given = "shlo_disc.attributes" in op.attributes
    kept = ir.DictAttr(op.attributes["shlo_disc.attributes"]) if given else ()
    with at(op):
        new = ir.Operation.create(
            name,
            results=[r.type for r in op.results],
            operands=list(op.operands),
            attributes={a.name: a.attr for a in kept},
        )
    for old, value in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(value)
    op.erase()
