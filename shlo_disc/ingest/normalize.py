"""Turn a verified module into the normal form of docs/architecture.md section 1, in place."""

from __future__ import annotations

from collections.abc import Sequence
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
    APPROX_TOP_K,
    CHLO_CALLS,
    CONFIGURATION,
    DYNAMIC_REDUCE_WINDOW,
    EXPANDED,
    IDENTITY_CALLS,
    calls_of,
    has_bounds,
    has_mixture,
    has_tuples,
    is_quantized,
    is_token,
    target_of,
)
from shlo_disc.ingest.resources import read_resources
from shlo_disc.ingest.rewrite import Ingestion, Known, Rewrite
from shlo_disc.ingest.sizes import constrain, describe, solve_sizes
from shlo_disc.ingest.slices import gather_slices, saturate_starts
from shlo_disc.ir.locations import argument_name, source_line
from shlo_disc.ir.mlir import at, ir, ops_of, replace, run_pipeline, walk
from shlo_disc.ir.pipeline import PassLog

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


def _fix_platform(module: ir.Module, known: Known) -> None:
    """Make the platform index a constant."""
    main, platforms, platform = _entry(module), known.platforms, known.platform
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


def _take_known_branches(module: ir.Module, _: Known) -> None:
    """Replace each `case` that has no choice by the branch it takes.

    JAX chooses the platform this way; the other branches may hold what only a GPU can do.
    """
    while True:
        cases = ops_of(module, "stablehlo.case")
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


def _drop_no_ops(module: ir.Module) -> None:
    """Remove XLA's annotations; barriers stay before single arrays that may be computed again.

    They are fences of `jax.checkpoint` (see `passes/drop_barriers.py`). Of several operands each
    gets one of its own: what is invariant in a loop can leave the loop without the others.
    """
    for op in ops_of(module, "stablehlo.optimization_barrier"):
        with at(op):
            replace(op, *(_behind_barrier(value) for value in op.operands))
    for op in ops_of(module, "stablehlo.custom_call"):
        if target_of(op) in IDENTITY_CALLS and [v.type for v in op.operands] == [
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


def _drop_hints(module: ir.Module, known: Known) -> None:
    """Drop the attributes of XLA's partitioner; the names of all ops are noted on the way."""

    def visit(op: ir.Operation) -> None:
        known.note(op)
        for name in [n for n in op.attributes if n.startswith(("mhlo.", "sdy."))]:
            if name != CONFIGURATION:
                del op.attributes[name]
        internal = [n for n in op.attributes if n.startswith("disc.")]
        if internal and op.name != "func.func":
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: attribute {internal[0]} is one that only passes of "
                "shlo_disc may set; remove it"
            )

    walk(module, visit)


# --- the passes -------------------------------------------------------------------------------


def _take_mixture(module: ir.Module, _: Known) -> None:
    take_mixture(module)
    _flatten(module)  # equal sizes, which every rule makes anew, become one


def _flatten_tuples(module: ir.Module, known: Known) -> None:
    known.names = flatten_tuples(_entry(module), known.names)


def _drop_bounds(module: ir.Module, known: Known) -> None:
    drop_bounds(module, _entry(module))
    known.is_bounded = True


def _state_sizes(module: ir.Module, known: Known) -> None:
    main = _entry(module)
    describe(main, known.shapes, known.names)
    solve_sizes(main, known.own, known.sizes)
    bounds = bounds_of_arguments(main) if known.is_bounded else ()
    constrain(main, [*known.constraints, *bounds])
    if known.seen is not None:
        i64 = ir.IntegerType.get_signless(64)
        numbers = {name: ir.IntegerAttr.get(i64, value) for name, value in known.seen.items()}
        main.operation.attributes["disc.seen"] = ir.DictAttr.get(numbers)


def _expand_foreign_calls(module: ir.Module, known: Known) -> int:
    count: int = expand_foreign_calls(module, known.platform, extern=known.extern)
    if count:
        order_effects(_entry(module).operation)
    return count


def _ops(*found: str) -> frozenset[str]:
    return frozenset(f"stablehlo.{name}" for name in found)


PASSES: tuple[Rewrite, ...] = (
    Rewrite(
        "read-resources", lambda _, known: read_resources(known.collected("stablehlo.constant"))
    ),
    # Before equal values are merged: the program may convert the same index itself.
    Rewrite(
        "saturate-starts",
        lambda _, known: saturate_starts(known.collected("stablehlo.real_dynamic_slice")),
    ),
    # Before inlining: their bodies become calls.
    Rewrite(
        "expand-composites",
        lambda module, known: expand_composites(module, known.collected("stablehlo.composite")),
    ),
    Rewrite("flatten", lambda module, _: _flatten(module), keeps_known=False),
    Rewrite("drop-hints", _drop_hints),
    # Before all rules for StableHLO: what other dialects say is in it from here on.
    Rewrite(
        "take-mixture",
        _take_mixture,
        lambda known: has_mixture(functions_of(known.module), known.present),
        keeps_known=False,
    ),
    # Before types are looked at: values in tuples have some.
    Rewrite(
        "flatten-tuples",
        _flatten_tuples,
        lambda known: has_tuples(_entry(known.module), known.present),
    ),
    # Before any custom call is rewritten: it refuses names of ours.
    Rewrite("check-custom-calls", lambda m, _: check_custom_calls(m), _ops("custom_call")),
    # Before rules that ask for element types.
    Rewrite(
        "expand-quantized-types",
        lambda module, _: expand_quantized_types(module),
        lambda known: any(map(is_quantized, known.kinds)),
        keeps_known=False,
    ),
    # Before rules that make types from others.
    Rewrite(
        "drop-bounds",
        _drop_bounds,
        lambda known: has_bounds(functions_of(known.module), known.present),
    ),
    Rewrite(
        "promote-accumulators", lambda module, known: promote_accumulators(module, known.present)
    ),
    Rewrite(
        "expand-ops",
        lambda module, known: expand_ops(module, known.present),
        EXPANDED,
        keeps_known=False,
    ),
    Rewrite("take-calls", lambda module, _: take_calls(module), calls_of(*CHLO_CALLS)),
    Rewrite(
        "expand-dynamic-windows",
        lambda m, _: expand_windows(m),
        _ops("dynamic_conv") | calls_of(DYNAMIC_REDUCE_WINDOW),
    ),
    Rewrite("expand-approx-top-k", lambda m, _: expand_approx_top_k(m), calls_of(*APPROX_TOP_K)),
    Rewrite("gather-slices", lambda m, _: gather_slices(m), _ops("real_dynamic_slice")),
    Rewrite("split-concatenations", lambda m, _: split_concatenations(m), _ops("concatenate")),
    Rewrite("fix-platform", _fix_platform),
    # After the platform: JAX chooses by it, and other branches hold what only a GPU can do.
    Rewrite("take-known-branches", _take_known_branches, _ops("case")),
    Rewrite("select-in-regions", lambda m, _: select_in_regions(_entry(m)), frozenset(BRANCHES)),
    # After tuples, bounds and the platform: the arguments are those of calls.
    Rewrite("state-sizes", _state_sizes, raises=(ValueError,)),
    Rewrite(
        "drop-no-ops",
        lambda m, _: _drop_no_ops(m),
        _ops("optimization_barrier") | calls_of(*IDENTITY_CALLS),
    ),
    Rewrite("call-lapack", lambda m, _: call_lapack(m), _ops("cholesky", "triangular_solve")),
    # After LAPACK, whose functions are such calls.
    Rewrite(
        "expand-foreign-calls",
        _expand_foreign_calls,
        _ops("custom_call", "cholesky", "triangular_solve"),
    ),
    Rewrite(
        "expand-chlo",
        lambda module, _: expand_chlo(module),
        lambda known: any(name.startswith("chlo.") for name in known.present),
    ),
    # Last: the rules before make complex numbers, too.
    Rewrite(
        "split-complex-numbers",
        lambda module, _: split_complex_numbers(_entry(module)),
        lambda known: (
            any(map(is_complex, known.kinds)) or not known.present.isdisjoint(_ops("real", "imag"))
        ),
    ),
)
"""The passes of `ingest`, in order, with the reason for a place where there is one."""


def normalize(
    module: ir.Module, known: Known, names: Sequence[str | None] | None, log: PassLog
) -> None:
    """Rewrite `module` into normal form, by :data:`PASSES`.

    `names` are the paths of array arguments, by default those that JAX writes into a module.
    Raises InvalidModuleError or UnsupportedError.
    """
    main = _entry(module)
    check_attributes(module)
    check_calls(module)
    known.names = _argument_names(module, main) if names is None else names
    Ingestion(PASSES).run(module, known, log)
    try:
        module.operation.verify()
    except ir.MLIRError as error:  # the program was verified when it was read
        raise InternalError(f"ingest made a module that does not verify: {error}") from None
    check_normal_form(module)
