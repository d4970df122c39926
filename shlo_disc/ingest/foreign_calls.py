"""Calls of XLA FFI targets, with the memory order of their operands spelled out as transposes.

    custom_call @lapack_spotrf_ffi(%x) {mhlo.backend_config = {uplo = 76 : ui8},
        operand_layouts = [dense<[1, 2, 0]>], result_layouts = [dense<[1, 2, 0]>, dense<0>], ...}
    ==>
    %t = transpose %x, dims = [0, 2, 1]
    %r:2 = custom_call @lapack_spotrf_ffi(%t) {disc.ffi = {uplo = 76 : ui8},
        disc.operand_orders = [array<i64: 0, 2, 1>], disc.result_orders = [..., array<i64: 0>], ...}
    %y = transpose %r#0, dims = [0, 2, 1]

Arrays are row-major everywhere in shlo_disc. LAPACK wants columns: its operands and results are
transposed. The passes fuse those transposes with what is around them, or cancel them between two
calls. The handler is still told the logical sizes, as XLA tells it. An *order* lists the logical
dimensions from the slowest to the fastest in memory: a layout of XLA reversed.

Source: XLA's FFI (xla/ffi/api/c_api.h); custom_call in the StableHLO specification.
"""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.base.callbacks import is_callback
from shlo_disc.base.errors import ELSEWHERE, InvalidModuleError, UnsupportedError
from shlo_disc.ffi.targets import ffi_target
from shlo_disc.ingest.present import CONFIGURATION, target_of
from shlo_disc.ir.builders import permuted, transposed
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, ops_of
from shlo_disc.ir.ops import ffi
from shlo_disc.ir.ops.ffi import is_ffi_call

_TYPED = 4
"""`api_version` of FFI calls, where there is one."""

_OF_STABLEHLO = ("chlo.", "mhlo.", "stablehlo.")
"""Operations of these dialects that JAX writes as custom calls; some have a dictionary, too."""


def expand_foreign_calls(module: ir.Module, platform: str, *, extern: bool = False) -> int:
    """Every FFI call of `module` is in the form above; how many there are.

    Raises UnsupportedError for a target that is registered neither for `platform` nor for the CPU,
    unless `extern`, and for one that only XLA can call.
    """
    found = [op for op in ops_of(module, "stablehlo.custom_call") if _is_foreign(op)]
    for op in found:
        _expand(op, platform, extern)
    return len(found)


def _is_foreign(op: ir.Operation) -> bool:
    if is_ffi_call(op) or target_of(op).startswith(_OF_STABLEHLO):
        return False
    if CONFIGURATION in op.attributes:
        return isinstance(op.attributes[CONFIGURATION], ir.DictAttr)
    version = op.attributes.get("api_version", None)
    return version is not None and ir.IntegerAttr(version).value == _TYPED


def _expand(op: ir.Operation, platform: str, extern: bool) -> None:
    target = target_of(op)
    if ffi.has_effect(op) and not is_callback(target):
        raise UnsupportedError(
            f"{source_line(op)}: custom_call @{target} has a side effect, which shlo_disc does not "
            f"order; {ELSEWHERE}"
        )
    ffi_target(target, source_line(op), platform, extern=extern)
    sizes: list[int] = []
    if "indices_of_shape_operands" in op.attributes:
        indices = ir.DenseIntElementsAttr(op.attributes["indices_of_shape_operands"])
        sizes = [int(i) for i in indices]
    layouts = _layouts(op, "operand_layouts", list(op.operands))
    orders = [order for k, order in enumerate(layouts) if k not in sizes]
    result_orders = _layouts(op, "result_layouts", list(op.results))
    with at(op):
        operands = [
            value if k in sizes else transposed(value, layouts[k])
            for k, value in enumerate(op.operands)
        ]
        types = [permuted(r.type, o) for r, o in zip(op.results, result_orders, strict=True)]
        attributes = {
            "call_target_name": op.attributes["call_target_name"],
            ffi.CONFIGURATION: _configuration(op),
            "disc.operand_orders": _arrays(orders),
            "disc.result_orders": _arrays(result_orders),
        }
        for name in (ffi.SIZE_ATTRIBUTES, "indices_of_shape_operands", "output_operand_aliases"):
            if name in op.attributes:
                attributes[name] = op.attributes[name]
        call = ir.Operation.create(
            "stablehlo.custom_call", results=types, operands=operands, attributes=attributes
        )
        for old, new, order in zip(op.results, call.results, result_orders, strict=True):
            back = [order.index(axis) for axis in range(len(order))]
            old.replace_all_uses_with(transposed(new, back, old.type))
    op.erase()


def _configuration(op: ir.Operation) -> ir.Attribute:
    for name in (CONFIGURATION, "backend_config"):
        if name in op.attributes and isinstance(op.attributes[name], ir.DictAttr):
            return op.attributes[name]
    return ir.DictAttr.get({})


def _layouts(op: ir.Operation, name: str, values: Sequence[ir.Value]) -> list[list[int]]:
    """The order of every value in memory; rows first where nothing is said."""
    ranks = [ir.RankedTensorType(value.type).rank for value in values]
    if name not in op.attributes:
        return [list(range(rank)) for rank in ranks]
    layouts = [
        [int(i) for i in ir.DenseIntElementsAttr(a)] for a in ir.ArrayAttr(op.attributes[name])
    ]
    if [sorted(layout) for layout in layouts] != [list(range(rank)) for rank in ranks]:
        raise InvalidModuleError(
            f"{source_line(op)}: {name} of custom_call @{target_of(op)} does not give every "
            "dimension once"
        )
    return [layout[::-1] for layout in layouts]


def _arrays(orders: Sequence[Sequence[int]]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(list(order)) for order in orders])
