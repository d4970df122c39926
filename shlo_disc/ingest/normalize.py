"""Turn a verified module into the normal form of docs/architecture.md section 1, in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from shlo_disc.base.errors import InternalError, InvalidModuleError, UnsupportedError
from shlo_disc.base.later import imported_later
from shlo_disc.ingest.accumulators import promote_accumulators
from shlo_disc.ingest.arguments import constant, erase_arguments, global_name
from shlo_disc.ingest.branches import BRANCHES, select_in_regions
from shlo_disc.ingest.check import check_attributes, check_calls, check_normal_form, functions_of
from shlo_disc.ingest.chlo import expand_chlo, expand_composites, take_calls
from shlo_disc.ingest.complex_numbers.planes import is_complex
from shlo_disc.ingest.equal_calls import share_equal_calls
from shlo_disc.ingest.present import (
    CONFIGURATION,
    EXPANDED,
    has_bounds,
    has_mixture,
    has_tuples,
    is_quantized,
    is_token,
)
from shlo_disc.ingest.resources import read_resources
from shlo_disc.ingest.sizes import Shapes, constrain, describe, solve_sizes
from shlo_disc.ingest.slices import gather_slices, saturate_starts
from shlo_disc.ir.locations import argument_name, source_line
from shlo_disc.ir.mlir import at, ir, ops_of, replace, run_pipeline, walk
from shlo_disc.ir.ops import names

bounds_of_arguments = imported_later("shlo_disc.ingest.bounds", "bounds_of_arguments")
call_lapack = imported_later("shlo_disc.ingest.linear_algebra", "call_lapack")
check_custom_calls = imported_later("shlo_disc.ingest.custom_calls", "check_custom_calls")
drop_bounds = imported_later("shlo_disc.ingest.bounds", "drop_bounds")
expand_approx_top_k = imported_later("shlo_disc.ingest.approx_top_k", "expand_approx_top_k")
expand_foreign_calls = imported_later("shlo_disc.ingest.foreign_calls", "expand_foreign_calls")
expand_ops = imported_later("shlo_disc.ingest.expand_ops", "expand_ops")
expand_quantized_types = imported_later("shlo_disc.ingest.quantized", "expand_quantized_types")
expand_windows = imported_later("shlo_disc.ingest.windows", "expand_windows")
flatten_tuples = imported_later("shlo_disc.ingest.tuples", "flatten_tuples")
order_effects = imported_later("shlo_disc.ingest.effects", "order_effects")
split_complex_numbers = imported_later(
    "shlo_disc.ingest.complex_numbers.split", "split_complex_numbers"
)
split_concatenations = imported_later("shlo_disc.ingest.concatenations", "split_concatenations")
take_mixture = imported_later("shlo_disc.ingest.mixed.take", "take_mixture")

_PLATFORM_INDEX = "_platform_index"


def normalize(
    module: ir.Module,
    *,
    shapes: Shapes | None = None,
    names: Sequence[str | None] | None = None,
    platforms: Sequence[str] = (),
    platform: str,
    constraints: Sequence[str] = (),
    own: Shapes | None = None,
    sizes: Mapping[str, str] = MappingProxyType({}),
    seen: Mapping[str, int] | None = None,
) -> None:
    """Rewrite `module` into normal form.

    `shapes` and `names` describe the array arguments of `main`: size arguments, tokens and the
    platform index are not counted. Of `platforms`, those of a multi-platform export in order,
    `platform` is compiled.
    `constraints` are relations of the sizes that every call must satisfy. The module itself may
    have other symbols: `own` are the shapes in these, `sizes` their values in those of `shapes`.
    `seen`: see `dynamic/seen.py`.

    Raises InvalidModuleError or UnsupportedError.
    """
    main = _entry(module)
    check_attributes(module)
    check_calls(module)
    argument_names = _argument_names(module, main) if names is None else names
    early = ("stablehlo.composite", "stablehlo.constant", "stablehlo.real_dynamic_slice")
    present_early = ops_of(module, *early)
    composites, constants, slices = (
        [op for op in present_early if op.name == name] for name in early
    )
    read_resources(constants)
    saturate_starts(slices)
    expand_composites(module, composites)
    _flatten(module)
    present = _forget_hints(module)  # a walk costs 3 ms on BERT: only look for what is there
    if has_mixture(functions_of(module), present):
        take_mixture(module)
        _flatten(module)  # equal sizes, which every rule makes anew, become one
        present = _forget_hints(module)
    if has_tuples(_entry(module), present):
        argument_names = flatten_tuples(_entry(module), argument_names)
    if "stablehlo.custom_call" in present:
        check_custom_calls(module)
    kinds = _source_types(module)
    if any(map(is_quantized, kinds)):
        expand_quantized_types(module)
        present = _forget_hints(module)
    has_bounded_types = has_bounds(functions_of(module), present)
    if has_bounded_types:
        drop_bounds(module, _entry(module))
    promote_accumulators(module, present)
    if not present.isdisjoint(EXPANDED):
        expand_ops(module, present)
        present = _forget_hints(module)
    if "stablehlo.custom_call" in present:
        take_calls(module)
    if present & {"stablehlo.custom_call", "stablehlo.dynamic_conv"}:
        expand_windows(module)
        expand_approx_top_k(module)
    if "stablehlo.real_dynamic_slice" in present:
        gather_slices(module)
    if "stablehlo.concatenate" in present:
        split_concatenations(module)
    main = _entry(module)
    _fix_platform(main, platforms, platform)
    if "stablehlo.case" in present:
        _take_known_branches(main)
    if not present.isdisjoint(BRANCHES):
        select_in_regions(main)
    describe(main, shapes, argument_names)
    solve_sizes(main, own, sizes)
    constrain(main, [*constraints, *(bounds_of_arguments(main) if has_bounded_types else ())])
    if seen is not None:
        i64 = ir.IntegerType.get_signless(64)
        numbers = {name: ir.IntegerAttr.get(i64, value) for name, value in seen.items()}
        main.operation.attributes["disc.seen"] = ir.DictAttr.get(numbers)
    if present & {"stablehlo.custom_call", "stablehlo.optimization_barrier"}:
        _drop_no_ops(module)
    lapack = present & {"stablehlo.cholesky", "stablehlo.triangular_solve"}
    if lapack:
        call_lapack(module)
    has_calls = lapack or "stablehlo.custom_call" in present
    if has_calls and expand_foreign_calls(module, platform):
        order_effects(main.operation)
    if any(name.startswith("chlo.") for name in present):
        expand_chlo(module)
    if any(map(is_complex, kinds)) or present & {"stablehlo.real", "stablehlo.imag"}:
        split_complex_numbers(main)
    try:
        module.operation.verify()
    except ir.MLIRError as error:  # the program was verified when it was read
        raise InternalError(f"ingest made a module that does not verify: {error}") from None
    check_normal_form(module)


def _source_types(module: ir.Module) -> set[ir.Type]:
    """The types of arguments and of what is made from no value or one of another element type.

    A value has a quantized or complex type only if one of these has.
    """
    kinds = {a.type for function in functions_of(module) for a in function.arguments}

    def visit(op: ir.Operation) -> None:
        if op.name in _MAKERS:
            kinds.update(r.type for r in op.results)

    walk(module, visit)
    return kinds


_MAKERS = names(lambda row: row.makes_types)


# --- functions --------------------------------------------------------------------------------


def _is_private(function: Any) -> bool:
    attributes = function.operation.attributes
    return (
        "sym_visibility" in attributes
        and ir.StringAttr(attributes["sym_visibility"]).value == "private"
    )


def _entry(module: ir.Module) -> Any:
    """The function to compile, named @main from here on, public, the only public one."""
    functions = [f for f in functions_of(module) if not f.is_external]
    external = [f.name.value for f in functions_of(module) if f.is_external]
    if external:
        raise UnsupportedError(f"function @{external[0]} has no body; give its definition")
    found = [f for f in functions if f.name.value == "main"]
    found = found or [f for f in functions if not _is_private(f)]
    if len(found) != 1:
        names = ", ".join("@" + f.name.value for f in functions) or "none"
        raise InvalidModuleError(f"the module needs one public function @main; functions: {names}")
    main = found[0]
    if len(main.operation.regions[0].blocks) != 1:
        raise UnsupportedError(
            f"{source_line(main.operation)}: @{main.name.value} has branches between blocks; use "
            "stablehlo.if, case and while"
        )
    main.operation.attributes["sym_name"] = ir.StringAttr.get("main")
    main.operation.attributes["sym_visibility"] = ir.StringAttr.get("public")
    for other in functions:
        if other != main:
            other.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return main


def _flatten(module: ir.Module) -> None:
    """Inline every call and drop the functions nobody calls."""
    # The default inliner also canonicalises, whose folders are not ours to trust here.
    # cse: two thirds of the ops are repeated constants and sizes, and every walk gets shorter.
    # trivial-dce: cse leaves what only a dead op read, and later stages compile what is there.
    # symbol-dce again: cse drops unused custom calls, and nobody calls their reducers any more.
    share_equal_calls(module)
    run_pipeline(module, "inline{default-pipeline=},symbol-dce,cse,trivial-dce,symbol-dce")


def _argument_names(module: ir.Module, main: Any) -> list[str | None]:
    """Argument paths as JAX keeps them, of `main` or of the function `main` wraps."""
    arguments = list(main.arguments)
    names = [argument_name(a) for a in arguments]
    if any(names):
        return [
            n for n, a in zip(names, arguments, strict=True) if not _is_extra(main, a.arg_number)
        ]
    wrapped = [f for f in functions_of(module) if f.name.value == "_wrapped_jax_export_main"]
    if not wrapped:
        return []
    inner = wrapped[0]
    return [argument_name(a) for a in inner.arguments if not _is_extra(inner, a.arg_number)]


def _is_extra(function: Any, index: int) -> bool:
    """True for an argument that is no array of the user's: a size, the platform index, a token."""
    return global_name(function, index) is not None or is_token(function.arguments[index].type)


# --- arguments that are not arrays ------------------------------------------------------------


def _fix_platform(main: Any, platforms: Sequence[str], platform: str) -> None:
    """Make the platform index a constant."""
    index = next(
        (i for i in range(len(main.arguments)) if global_name(main, i) == _PLATFORM_INDEX),
        None,
    )
    if index is None:
        return
    kind = main.arguments[index].type
    if platform not in platforms:
        raise UnsupportedError(
            "the module was exported for several platforms"
            + (f" ({', '.join(platforms)}), none of them {platform}" if platforms else "")
            + f"; export it with platforms=('{platform}',) or pass the jax.export.Exported itself"
        )
    chosen = list(platforms).index(platform)

    erase_arguments(main, {index: lambda: constant(chosen, kind)})


def _take_known_branches(main: Any) -> None:
    """Replace each `case` that has no choice by the branch it takes.

    JAX chooses the platform this way; the other branches may hold what only a GPU can do.
    """
    while True:
        cases = ops_of(main, "stablehlo.case")
        known = [(op, i) for op in cases if (i := _case_index(op)) is not None]
        if not known:
            return
        op, index = known[-1]  # the outermost of nested ones comes last
        branch = op.regions[index if 0 <= index < len(op.regions) else len(op.regions) - 1]
        inner = list(branch.blocks[0].operations)
        values = list(inner[-1].operands)
        for moved in inner[:-1]:
            moved.operation.move_before(op)
        replace(op, *values)


def _case_index(op: ir.Operation) -> int | None:
    if len(op.regions) == 1:
        return 0
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.constant":
        return None
    splat = ir.DenseElementsAttr(owner.attributes["value"]).get_splat_value()
    return int(ir.IntegerAttr(splat).value)


# --- ops without an effect here ---------------------------------------------------------------

_IDENTITY_CALLS = frozenset({"Sharding", "annotate_device_placement", "MoveToHost", "MoveToDevice"})
"""Custom calls that return their operand: hints to XLA's partitioner and memory spaces."""


def _drop_no_ops(module: ir.Module) -> None:
    """Remove XLA's annotations; barriers stay before single arrays that may be computed again.

    They are fences of `jax.checkpoint` (see `passes/drop_barriers.py`). Of several operands each
    gets one of its own: what is invariant in a loop can leave the loop without the others.
    """
    for op in ops_of(module, "stablehlo.optimization_barrier"):
        with at(op):
            replace(op, *(_behind_barrier(value) for value in op.operands))
    for op in ops_of(module, "stablehlo.custom_call"):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if target in _IDENTITY_CALLS and [v.type for v in op.operands] == [
            v.type for v in op.results
        ]:
            replace(op, *op.operands)


def _behind_barrier(value: ir.Value) -> ir.Value:
    """The value behind a barrier; what may be a size itself, which must stay in sight."""
    type_ = ir.RankedTensorType(value.type)
    element = type_.element_type
    if type_.rank == 0 or (type_.rank == 1 and getattr(element, "is_signless", False)):
        return value
    barrier = ir.Operation.create(
        "stablehlo.optimization_barrier", results=[value.type], operands=[value]
    )
    return barrier.results[0]


def _forget_hints(module: ir.Module) -> set[str]:
    """Drop the attributes of XLA's partitioner; the names of all ops, on the way."""
    names: set[str] = set()

    def forget(op: ir.Operation) -> None:
        names.add(op.name)
        for name in [n for n in op.attributes if n.startswith(("mhlo.", "sdy."))]:
            if name != CONFIGURATION:
                del op.attributes[name]
        internal = [n for n in op.attributes if n.startswith("disc.")]
        if internal and op.name != "func.func":
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: attribute {internal[0]} is one that only passes of "
                "shlo_disc may set; remove it"
            )

    walk(module, forget)
    return names
