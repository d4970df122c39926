"""Turn a verified module into the normal form of docs/architecture.md section 1, in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from shlo_disc.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.check import check_calls, check_normal_form
from shlo_disc.ingest.chlo import expand_chlo, expand_composites, unpark
from shlo_disc.ingest.concatenations import split_concatenations
from shlo_disc.ingest.slices import gather_slices, saturate_starts
from shlo_disc.ingest.windows import expand_windows
from shlo_disc.locations import argument_name, source_line
from shlo_disc.mlir import at, ir, ops_of, replace, run_pipeline, walk

__all__ = ["OTHERS", "PLATFORM", "normalize"]

PLATFORM = "cpu"
"""The entry of a multi-platform export's platforms that is compiled."""

OTHERS = "..."
"""At the end of a given shape: the other sizes are as the type says."""

_GLOBAL = "jax.global_constant"
_PLATFORM_INDEX = "_platform_index"


def normalize(
    module: ir.Module,
    *,
    shapes: Sequence[Sequence[str] | None] | None = None,
    names: Sequence[str | None] | None = None,
    platforms: Sequence[str] = (),
) -> None:
    """Rewrite `module` into normal form.

    `shapes` and `names` describe the array arguments of `main` (size arguments, tokens and the
    platform index not counted); `platforms` are those of a multi-platform export, in order.

    Raises InvalidModuleError or UnsupportedError.
    """
    main = _entry(module)
    check_calls(module)
    argument_names = _argument_names(module, main) if names is None else names
    early = ops_of(module, "stablehlo.composite", "stablehlo.real_dynamic_slice")
    saturate_starts([op for op in early if op.name == "stablehlo.real_dynamic_slice"])
    expand_composites(module, [op for op in early if op.name == "stablehlo.composite"])
    _flatten(module)
    present = _forget_hints(module)  # a walk costs 3 ms on BERT: only look for what is there
    if "stablehlo.custom_call" in present:
        unpark(module)
    if present & {"stablehlo.custom_call", "stablehlo.dynamic_conv"}:
        expand_windows(module)
    if "stablehlo.real_dynamic_slice" in present:
        gather_slices(module)
    if "stablehlo.concatenate" in present:
        split_concatenations(module)
    main = _entry(module)
    _drop_tokens(main, present)
    _fix_platform(main, platforms)
    if "stablehlo.case" in present:
        _take_known_branches(main)
    _describe(main, shapes, argument_names)
    _solve_sizes(main)
    if present & {"stablehlo.custom_call", "stablehlo.optimization_barrier"}:
        _drop_no_ops(module)
    if any(name.startswith("chlo.") for name in present):
        expand_chlo(module)
    module.operation.verify()
    check_normal_form(module)


# --- functions --------------------------------------------------------------------------------


def _functions(module: ir.Module) -> list[Any]:
    return [op for op in module.body.operations if op.operation.name == "func.func"]


def _is_private(function: Any) -> bool:
    attributes = function.operation.attributes
    return (
        "sym_visibility" in attributes
        and ir.StringAttr(attributes["sym_visibility"]).value == "private"
    )


def _entry(module: ir.Module) -> Any:
    """The function to compile, named @main from here on, public, the only public one."""
    functions = [f for f in _functions(module) if not f.is_external]
    external = [f.name.value for f in _functions(module) if f.is_external]
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
    # symbol-dce again: cse drops unused custom calls, and nobody calls their reducers any more.
    run_pipeline(module, "inline{default-pipeline=},symbol-dce,cse,symbol-dce")


def _argument_names(module: ir.Module, main: Any) -> list[str | None]:
    """Argument paths as JAX keeps them, of `main` or of the function `main` wraps."""
    arguments = list(main.arguments)
    names = [argument_name(a) for a in arguments]
    if any(names):
        return [
            n for n, a in zip(names, arguments, strict=True) if not _is_extra(main, a.arg_number)
        ]
    wrapped = [f for f in _functions(module) if f.name.value == "_wrapped_jax_export_main"]
    if not wrapped:
        return []
    inner = wrapped[0]
    return [argument_name(a) for a in inner.arguments if not _is_extra(inner, a.arg_number)]


def _argument_attributes(function: Any, index: int) -> dict[str, ir.Attribute]:
    if "arg_attrs" not in function.operation.attributes:
        return {}
    return {a.name: a.attr for a in ir.DictAttr(function.arg_attrs[index])}


def _is_extra(function: Any, index: int) -> bool:
    """Is this no array of the user's: a size, the platform index or a token?"""
    if _GLOBAL in _argument_attributes(function, index):
        return True
    return _is_token(function.arguments[index].type)


def _is_token(kind: ir.Type) -> bool:
    return str(kind) == "!stablehlo.token"


# --- arguments that are not arrays ------------------------------------------------------------


def _erase_arguments(main: Any, replacements: dict[int, Callable[[], ir.Value]]) -> None:
    """Replace arguments by values built at the start of the body."""
    block = main.operation.regions[0].blocks[0]
    attributes = [_argument_attributes(main, i) for i in range(len(main.arguments))]
    for index, build in replacements.items():
        with ir.InsertionPoint.at_block_begin(block), main.operation.location:
            value = build()
        main.arguments[index].replace_all_uses_with(value)
    for index in sorted(replacements, reverse=True):
        block.erase_argument(index)
        del attributes[index]
    _set_signature(main, [a.type for a in block.arguments], main.type.results)
    main.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [ir.DictAttr.get(a) for a in attributes]
    )


def _set_signature(main: Any, inputs: Sequence[ir.Type], results: Sequence[ir.Type]) -> None:
    kind = ir.FunctionType.get(list(inputs), list(results))
    main.operation.attributes["function_type"] = ir.TypeAttr.get(kind)


def _drop_tokens(main: Any, present: set[str]) -> None:
    """Remove token arguments and results: they order effects, and no effect is supported."""
    tokens = [i for i, a in enumerate(main.arguments) if _is_token(a.type)]

    def token() -> ir.Value:
        kind = ir.Type.parse("!stablehlo.token")
        return ir.Operation.create("stablehlo.after_all", results=[kind], operands=[]).results[0]

    if tokens:
        _erase_arguments(main, dict.fromkeys(tokens, token))
    block = main.operation.regions[0].blocks[0]
    returned = block.operations[len(block.operations) - 1]
    kept = [i for i, v in enumerate(returned.operands) if not _is_token(v.type)]
    if len(kept) != len(returned.operands):
        values = [returned.operands[i] for i in kept]
        attributes = None
        if "res_attrs" in main.operation.attributes:
            attributes = [main.result_attrs[i] for i in kept]
        with at(returned):
            ir.Operation.create("func.return", operands=values)
        returned.operation.erase()
        _set_signature(main, [a.type for a in block.arguments], [v.type for v in values])
        if attributes is not None:
            main.operation.attributes["res_attrs"] = ir.ArrayAttr.get(attributes)
    if tokens or present & _TOKENS:
        _erase_dead_tokens(main)


_TOKENS = {"stablehlo.after_all", "stablehlo.create_token"}


def _erase_dead_tokens(main: Any) -> None:
    for op in reversed(ops_of(main, *_TOKENS)):
        if not any(True for _ in op.results[0].uses):
            op.erase()
            continue
        user = next(iter(op.results[0].uses)).owner
        raise UnsupportedError(
            f"{source_line(user)}: {user.operation.name} orders a side effect by a token; "
            "shlo_disc compiles pure functions (remove ordered callbacks, debug prints and I/O)"
        )


def _fix_platform(main: Any, platforms: Sequence[str]) -> None:
    """Make the platform index a constant."""
    index = next(
        (i for i in range(len(main.arguments)) if _global_name(main, i) == _PLATFORM_INDEX),
        None,
    )
    if index is None:
        return
    kind = main.arguments[index].type
    if PLATFORM not in platforms:
        raise UnsupportedError(
            "the module was exported for several platforms"
            + (f" ({', '.join(platforms)}), none of them {PLATFORM}" if platforms else "")
            + f"; export it with platforms=('{PLATFORM}',) or pass the jax.export.Exported itself"
        )
    chosen = list(platforms).index(PLATFORM)

    def constant() -> ir.Value:
        return _constant(chosen, kind)

    _erase_arguments(main, {index: constant})


def _constant(number: int, kind: ir.Type) -> ir.Value:
    element = ir.RankedTensorType(kind).element_type
    value = ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, number))
    return ir.Operation.create(
        "stablehlo.constant", results=[kind], attributes={"value": value}
    ).results[0]


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


def _global_name(main: Any, index: int) -> str | None:
    attribute = _argument_attributes(main, index).get(_GLOBAL)
    return None if attribute is None else str(ir.StringAttr(attribute).value)


# --- what is known of the arguments -----------------------------------------------------------


def _describe(
    main: Any,
    shapes: Sequence[Sequence[str] | None] | None,
    names: Sequence[str | None],
) -> None:
    """Attach `disc.shape` and `disc.name` to the array arguments."""
    arrays = [i for i in range(len(main.arguments)) if _global_name(main, i) is None]
    attributes = [_argument_attributes(main, i) for i in range(len(main.arguments))]
    for index in range(len(attributes)):
        if symbol := _global_name(main, index):
            attributes[index]["disc.name"] = ir.StringAttr.get(symbol)
    if shapes is not None and len(shapes) != len(arrays):
        raise ValueError(f"{len(shapes)} shapes were given for {len(arrays)} array arguments")
    for position, index in enumerate(arrays):
        own = attributes[index]
        if shapes is not None and (shape := shapes[position]) is not None:
            kind = main.arguments[index].type
            if len(shape) and shape[-1] == OTHERS:
                shape = [*shape[:-1], *(str(n) for n in kind.shape[len(shape) - 1 :])]
            if len(shape) != kind.rank:
                raise ValueError(f"shape {tuple(shape)} was given for argument {position}: {kind}")
            own["disc.shape"] = ir.ArrayAttr.get([ir.StringAttr.get(str(s)) for s in shape])
        if position < len(names) and (name := names[position]):
            own["disc.name"] = ir.StringAttr.get(name)
    if attributes:
        main.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get(a) for a in attributes]
        )


_LINEAR = re.compile(r"(?:(?P<k>\d+)\*)?(?P<s>[A-Za-z_]\w*)(?: (?P<sign>[+-]) (?P<c>\d+))?")


def _solve_sizes(main: Any) -> None:
    """Replace leading size arguments (`jax.global_constant`) by sizes of the array arguments.

    A size argument is found as `s`, `k*s` or `k*s + c` in some `disc.shape`. One that is not stays
    an argument, which a call passes.
    """
    wanted = {
        i: name for i in range(len(main.arguments)) if (name := _global_name(main, i)) is not None
    }
    if not wanted:
        return
    places = _size_places(main)
    replacements: dict[int, Callable[[], ir.Value]] = {}
    for index, symbol in wanted.items():
        if symbol not in places:
            continue
        argument, axis, factor, offset = places[symbol]
        kind = main.arguments[index].type

        def build(
            value: ir.Value = main.arguments[argument],
            axis: int = axis,
            factor: int = factor,
            offset: int = offset,
            kind: ir.Type = kind,
        ) -> ir.Value:
            return _size(value, axis, factor, offset, kind)

        replacements[index] = build
    if replacements:
        _erase_arguments(main, replacements)


def _size_places(main: Any) -> dict[str, tuple[int, int, int, int]]:
    """Symbol -> (argument, axis, factor, offset) where that size is factor * symbol + offset."""
    places: dict[str, tuple[int, int, int, int]] = {}
    for index in range(len(main.arguments)):
        shape = _argument_attributes(main, index).get("disc.shape")
        for axis, text in enumerate(ir.ArrayAttr(shape) if shape is not None else ()):
            found = _LINEAR.fullmatch(ir.StringAttr(text).value)
            if found is None:
                continue
            factor = int(found["k"] or 1)
            offset = int(found["c"] or 0) * (-1 if found["sign"] == "-" else 1)
            place = (index, axis, factor, offset)
            best = places.get(found["s"])
            if best is None or (factor, abs(offset)) < (best[2], abs(best[3])):
                places[found["s"]] = place
    return places


def _size(value: ir.Value, axis: int, factor: int, offset: int, kind: ir.Type) -> ir.Value:
    i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    size = ir.Operation.create(
        "stablehlo.get_dimension_size",
        results=[i32],
        operands=[value],
        attributes={"dimension": dimension},
    ).results[0]
    if kind != i32:
        size = ir.Operation.create("stablehlo.convert", results=[kind], operands=[size]).results[0]
    if offset:
        size = ir.Operation.create(
            "stablehlo.subtract", results=[kind], operands=[size, _constant(offset, kind)]
        ).results[0]
    if factor != 1:
        size = ir.Operation.create(
            "stablehlo.divide", results=[kind], operands=[size, _constant(factor, kind)]
        ).results[0]
    return size


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
            del op.attributes[name]

    walk(module, forget)
    return names
