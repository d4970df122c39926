"""CHLO and composites: keep the few ops our emitters know, expand the rest.

    stablehlo.composite "chlo.erf" %x     ==>  chlo.erf %x           (a kept op)
    stablehlo.composite "chlo.sinh" %x    ==>  its decomposition     (any other)
    chlo.sinh %x                          ==>  StableHLO             (upstream's expansion)

`chlo-legalize-to-stablehlo` expands every CHLO op at once, so kept ops sit it out as custom calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shlo_disc.builders import broadcast, create, dimension, vector
from shlo_disc.ingest.custom_calls import CHLO_CALLS, INTERNAL, target_of
from shlo_disc.mlir import at, ir, ops_of, replace, run_pipeline, walk
from shlo_disc.ops import OPS, Role, names

__all__ = ["KEPT_CHLO", "expand_chlo", "expand_composites", "take_calls"]

KEPT_CHLO = names(lambda row: row.name.startswith("chlo.") and row.role is not Role.EXPANDED)
"""CHLO ops that stay: `lower/` computes them, faster and more exactly than their expansion."""


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
    _unpark(module)
    return len(others)


_BROADCASTING = names(lambda row: row.name.startswith("chlo.broadcast_"))


def _broadcast_operands(module: ir.Module) -> None:
    """Each op that broadcasts its operands becomes broadcasts and the op itself.

    Sizes of 1 in a type are broadcast. Two run-time sizes must be equal: each call checks those
    that are not proved so. Upstream's expansion computes the common shape at run time, with ops
    that nothing expands.
    """
    for op in ops_of(module, *sorted(_BROADCASTING)):
        base = op.name.removeprefix("chlo.broadcast_")
        name = f"chlo.{base}" if f"chlo.{base}" in OPS else f"stablehlo.{base}"
        attributes = {a: _of_stablehlo(v) for a, v in op.attributes.items() if a != _DIMENSIONS}
        with at(op):
            replace(op, create(name, _broadcast(op), op.results[0].type, **attributes))


_DIMENSIONS = "broadcast_dimensions"


def _of_stablehlo(attribute: ir.Attribute) -> ir.Attribute:
    """The enumeration of StableHLO with the same word; CHLO's have no class in the bindings."""
    text = str(attribute)
    if not text.startswith("#chlo<comparison_"):
        return attribute
    return ir.Attribute.parse(text.replace("#chlo<", "#stablehlo<", 1))


def _broadcast(op: ir.Operation) -> list[ir.Value]:
    """The operands of `op`, each in the common shape; scalars and trailing dimensions alone.

    `broadcast_dimensions` says which dimensions an operand of lower rank has.
    """
    kinds = [ir.RankedTensorType(value.type) for value in op.operands]
    rank = max(kind.rank for kind in kinds)
    given = ir.DenseI64ArrayAttr(op.attributes[_DIMENSIONS]) if _DIMENSIONS in op.attributes else ()
    dims_of = [
        list(given) if given and kind.rank < rank else list(range(rank - kind.rank, rank))
        for kind in kinds
    ]
    sizes, sources = [1] * rank, [(0, 0)] * rank
    for k, (kind, dims) in enumerate(zip(kinds, dims_of, strict=True)):
        for axis, d in enumerate(dims):
            if sizes[d] == 1 or (sizes[d] < 0 and kind.shape[axis] != 1):
                sizes[d], sources[d] = kind.shape[axis], (k, axis)

    def shape() -> ir.Value:
        return vector([dimension(op.operands[k], axis) for k, axis in sources])

    return [
        value
        if [1 if n == 1 else 0 for n in kind.shape] == [1 if n == 1 else 0 for n in sizes]
        else broadcast(value, dims, ir.RankedTensorType.get(sizes, kind.element_type), shape)
        for value, kind, dims in zip(op.operands, kinds, dims_of, strict=True)
    ]


def take_calls(module: ir.Module) -> int:
    """Custom calls of :data:`CHLO_CALLS` become the ops they name; how many there were."""
    return _replace_calls(module, {name: name for name in CHLO_CALLS})


def _unpark(module: ir.Module) -> None:
    """Parked ops become themselves again."""
    _replace_calls(module, {INTERNAL + name: name for name in KEPT_CHLO})


def _replace_calls(module: ir.Module, names: Mapping[str, str]) -> int:
    """Custom calls become ops, by target; how many."""
    found = [op for op in ops_of(module, "stablehlo.custom_call") if target_of(op) in names]
    for op in found:
        target = target_of(op)
        is_ours = target.startswith(INTERNAL)
        kept = ir.DictAttr(op.attributes[_ATTRIBUTES]) if is_ours else ()
        with at(op):
            new = ir.Operation.create(
                names[target],
                results=[r.type for r in op.results],
                operands=list(op.operands),
                attributes={a.name: a.attr for a in kept},
            )
            replace(op, *new.results)
    return len(found)


def _park(op: ir.Operation) -> None:
    """A custom call in the place of `op`."""
    attributes = dict(op.attributes.items())
    with at(op):
        parked = ir.Operation.create(
            "stablehlo.custom_call",
            results=[r.type for r in op.results],
            operands=list(op.operands),
            attributes={
                "call_target_name": ir.StringAttr.get(INTERNAL + op.name),
                _ATTRIBUTES: ir.DictAttr.get(attributes),
            },
        )
        replace(op, *parked.results)


_ATTRIBUTES = "shlo_disc.attributes"
"""Of a parked op: its own attributes."""
