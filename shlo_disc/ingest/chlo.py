"""CHLO and composites: keep the few ops our emitters know, expand the rest.

    stablehlo.composite "chlo.erf" %x     ==>  chlo.erf %x           (a kept op)
    stablehlo.composite "chlo.sinh" %x    ==>  its decomposition     (any other)
    chlo.sinh %x                          ==>  StableHLO             (upstream's expansion)

`chlo-legalize-to-stablehlo` expands every CHLO op at once, so kept ops sit it out as custom calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shlo_disc.base.later import imported_later
from shlo_disc.ingest.present import CHLO_CALLS, INTERNAL, target_of
from shlo_disc.ir.builders import convert, create, with_element
from shlo_disc.ir.element_types import known_element_type
from shlo_disc.ir.mlir import at, ir, ops_of, replace, run_pipeline, walk
from shlo_disc.ir.ops import Role, names

broadcast_operands = imported_later("shlo_disc.ingest.chlo_broadcasts", "broadcast_operands")
expand_next_after = imported_later("shlo_disc.ingest.next_after", "expand_next_after")

KEPT_CHLO = names(lambda row: row.name.startswith("chlo.") and row.role is not Role.EXPANDED)
"""CHLO ops that stay: `lower/` computes them, faster and more exactly than their expansion. Those
of complex numbers are expanded."""


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
    found = _of_chlo(module)
    if any(op.name.startswith("chlo.broadcast_") for op in found):
        broadcast_operands(module)
        found = _of_chlo(module)
    has_next_after = any(op.name == "chlo.next_after" for op in found)
    kept = [op for op in found if op.name in KEPT_CHLO and not any(map(_is_complex, op.operands))]
    if len(kept) == len(found):
        return 0
    for op in kept:
        _park(op)
    _widen_functions(module)
    if has_next_after:
        expand_next_after(module)
    # Sizes in an expansion are of the shape dialect, which the second pass takes back.
    run_pipeline(
        module,
        "func.func(chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo),reconcile-unrealized-casts",
    )
    _unpark(module)
    return len(found) - len(kept)


def _of_chlo(module: ir.Module) -> list[ir.Operation]:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        if op.name.startswith("chlo."):
            found.append(op)

    walk(module, visit)
    return found


def _is_complex(value: ir.Value) -> bool:
    return isinstance(ir.ShapedType(value.type).element_type, ir.ComplexType)


_IN_F32 = names(lambda row: row.in_f32)


def _widen_functions(module: ir.Module) -> None:
    """Functions of floats of less than 32 bits are computed in f32 and rounded once.

    Upstream has no series for most of these types, and rounds after every step for others. It
    compares with an infinity that some of them do not have.
    """
    single = ir.F32Type.get()
    for op in ops_of(module, *_IN_F32):
        given, kind = op.operands[0].type, op.results[0].type
        row = known_element_type(ir.RankedTensorType(given).element_type)
        if row is None or row.kind != "f" or row.bits >= 32:
            continue
        rounds = ir.RankedTensorType(given).element_type == ir.RankedTensorType(kind).element_type
        with at(op):
            operands = [convert(v, with_element(v.type, single)) for v in op.operands]
            wide = create(op.name, operands, with_element(kind, single) if rounds else kind)
            replace(op, convert(wide, kind) if rounds else wide)


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
