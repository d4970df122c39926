"""What a program must satisfy before and after normalisation; errors say where it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.chlo import KEPT_CHLO
from shlo_disc.ir.element_types import COMPLEX_TYPES, ELEMENT_TYPES, known_element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, quant, walk
from shlo_disc.ir.ops import OPS, Role, refusal
from shlo_disc.ir.weights import resource_name

MAX_OPS = 1_000_000
"""After inlining. BERT-base has 6500; a million take minutes in every pass."""

MAX_CALLS = 1_000
"""Calls in calls. JAX programs nest below a hundred; inlining 5 000 took 18 s and 1 GB."""

MAX_RANK = 32
"""More dimensions than any array library offers (NumPy: 64, XLA and JAX programs: below 12)."""

MAX_ELEMENTS = 2**48
"""Of a type with static sizes: byte offsets stay far inside 64 bits."""


def check_calls(module: ir.Module) -> None:
    """Every call has a callee, no function calls itself, and inlining all stays under MAX_OPS."""
    functions = {f.name.value: f for f in functions_of(module)}
    calls: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for name, function in functions.items():
        calls[name], sizes[name] = _calls_and_size(function, functions)
    _check_inlined_sizes(functions, calls, sizes)


def _check_inlined_sizes(
    functions: Mapping[str, Any], calls: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> None:
    """Refuse functions that call themselves, or are too large with their calls inlined."""
    total: dict[str, int] = {}
    path: dict[str, None] = {}
    """The function looked at and its callers; a stack of our own, since chains may be long."""
    waiting = [*functions][::-1]
    while waiting:
        name = waiting[-1]
        if name in total:
            waiting.pop()
        elif name not in path:
            path[name] = None
            if len(path) > MAX_CALLS:
                raise UnsupportedError(
                    f"{source_line(functions[name].operation)}: the call of function @{name} is "
                    f"nested in {len(path) - 1} others; the limit is {MAX_CALLS}. Inline some"
                )
            for callee in reversed(calls[name]):
                if callee in path:
                    _refuse_cycle(functions[callee], [*path], callee)
                if callee not in total:
                    waiting.append(callee)
        else:
            waiting.pop()
            del path[name]
            total[name] = sizes[name] + sum(total[callee] for callee in calls[name])
            if total[name] > MAX_OPS:
                raise InvalidModuleError(
                    f"{source_line(functions[name].operation)}: function @{name} has "
                    f"{total[name]} operations with its calls inlined; the limit is {MAX_OPS}"
                )


def _refuse_cycle(function: Any, path: list[str], name: str) -> None:
    cycle = " -> ".join((*path[path.index(name) :], name))
    raise UnsupportedError(
        f"{source_line(function.operation)}: function @{name} calls itself "
        f"({cycle}); use stablehlo.while"
    )


def check_readable(module: ir.Module) -> None:
    """The bindings can read every type, and every attribute but the values of constants.

    They raise TypeError for numbers that Python does not have, such as complex ones, and for
    locations. Read from the entry of a dictionary, these end the process. MLIR reads negative sizes
    from bytecode, but makes no other type of such a size. Raises UnsupportedError and
    InvalidModuleError.
    """
    seen: set[ir.Type] = set()

    def check(kind: ir.Type, op: ir.Operation) -> None:
        if kind in seen:
            return
        seen.add(kind)
        sizes = kind.shape if isinstance(kind, ir.RankedTensorType) else ()
        if any(n < 0 and not kind.is_dynamic_dim(k) for k, n in enumerate(sizes)):
            raise InvalidModuleError(f"{source_line(op)}: {op.name}: {kind} has a size below 0")

    def visit(op: ir.Operation) -> None:
        for value in (*op.results, *(a for r in op.regions for b in r for a in b.arguments)):
            check(value.type, op)
        for name in op.attributes:
            if name == "value" and op.name in ("stablehlo.constant", "chlo.constant"):
                continue
            try:
                _read(op.attributes[name])
            except TypeError:
                raise UnsupportedError(
                    f"{source_line(op)}: {op.name}: attribute {name} holds a location, or numbers "
                    "that only a constant may hold, such as complex ones; remove it"
                ) from None

    walk(module, visit)


def _read(value: ir.Attribute) -> None:
    """Read all that is in `value`."""
    if isinstance(value, ir.DictAttr):
        for name in [entry.name for entry in value]:
            _read(value[name])
    elif isinstance(value, ir.ArrayAttr):
        for inner in value:
            _read(inner)


def functions_of(module: ir.Module) -> list[Any]:
    """The functions of a module."""
    return [op for op in module.body.operations if op.operation.name == "func.func"]


def check_attributes(module: ir.Module) -> None:
    """Attributes of functions and arguments that ingest reads are of the documented types.

    Raises InvalidModuleError for others, and for those of our passes.
    """
    for function in functions_of(module):
        attributes = function.operation.attributes
        own = [(name, attributes[name], "") for name in attributes]
        for kind, role in (("arg_attrs", "argument"), ("res_attrs", "result")):
            for index, given in enumerate(attributes.get(kind, ())):
                own += [(a.name, a.attr, f" of {role} {index}") for a in ir.DictAttr(given)]
        for name, value, place in own:
            what = None if " of result " in place else _OURS.get(name)
            if what is None and not name.startswith("disc."):
                continue
            where = f"{source_line(function.operation)}: attribute {name}{place}"
            if what is None:
                raise InvalidModuleError(
                    f"{where} is one that only passes of shlo_disc may set; remove it"
                    + (" and pass `donated` to compile" if name == "disc.donated" else "")
                )
            if not what[0](value):
                raise InvalidModuleError(f"{where} is {str(value)[:80]}; it must be {what[1]}")


def _is_string(value: ir.Attribute) -> bool:
    return isinstance(value, ir.StringAttr)


def _is_strings(value: ir.Attribute) -> bool:
    return isinstance(value, ir.ArrayAttr) and all(isinstance(v, ir.StringAttr) for v in value)


def _are_sizes(value: ir.Attribute) -> bool:
    if not isinstance(value, ir.DictAttr):
        return False
    i64 = ir.IntegerType.get_signless(64, value.context)
    return all(isinstance(x.attr, ir.IntegerAttr) and x.attr.type == i64 for x in value)


_OURS = {
    "disc.constraints": (_is_strings, "an array of strings"),
    "disc.name": (_is_string, "a string"),
    "disc.seen": (_are_sizes, "a dictionary of sizes, i64"),
    "disc.shape": (_is_strings, "an array of strings"),
    "jax.global_constant": (_is_string, "a string"),
}
"""Attributes that ingest reads (docs/architecture.md section 1): their types, in words too."""


def _calls_and_size(function: Any, known: dict[str, Any]) -> tuple[list[str], int]:
    callees: list[str] = []
    count = 0

    def visit(op: ir.Operation) -> None:
        nonlocal count
        count += 1
        attribute = {"func.call": "callee", "stablehlo.composite": "decomposition"}.get(op.name)
        if attribute is None:
            return
        callee = ir.FlatSymbolRefAttr(op.attributes[attribute]).value
        if callee not in known:
            raise InvalidModuleError(
                f"{source_line(op)}: {op.name}: there is no function @{callee}"
            )
        callees.append(callee)

    walk(function, visit)
    return callees, count


def check_normal_form(module: ir.Module) -> None:
    """One function of StableHLO and the CHLO ops that stay; every value a ranked dense tensor.

    Raises UnsupportedError for what is valid but not that, InvalidModuleError beyond a limit.
    """
    seen: set[ir.Type] = set()

    def check(kind: ir.Type, op: ir.Operation) -> None:
        if kind not in seen:
            _check_type(kind, f"{source_line(op)}: {op.name}")
            seen.add(kind)

    # First: what the user passes says more than the first operation that reads it.
    for main in functions_of(module):
        for index, argument in enumerate(main.arguments):
            _check_type(argument.type, f"argument {_described(main, index)}")
            seen.add(argument.type)

    def visit(op: ir.Operation) -> None:
        _check_dialect(op)
        for result in op.results:  # first: the bindings cannot read constants of other types
            check(result.type, op)
        _check_op(op)
        for region in op.regions:
            for block in region:
                for argument in block.arguments:
                    check(argument.type, op)

    walk(module, visit)
    if len(module.body.operations) != 1:
        names = [op.operation.name for op in module.body.operations]
        raise UnsupportedError(f"a module must hold one function; this one holds {names}")


def _described(main: Any, index: int) -> str:
    """`0 ('x')`, or the number alone."""
    if "arg_attrs" not in main.attributes:
        return str(index)
    attributes = ir.DictAttr(ir.ArrayAttr(main.attributes["arg_attrs"])[index])
    if "disc.name" not in attributes:
        return str(index)
    return f"{index} ('{ir.StringAttr(attributes['disc.name']).value}')"


def _check_op(op: ir.Operation) -> None:
    name = op.name
    if name == "stablehlo.custom_call" and len(_called_computations(op)):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        raise UnsupportedError(
            f"{source_line(op)}: custom_call @{target} with a computation of its own is not "
            "known to shlo_disc; compute this part outside"
        )
    if name == "stablehlo.constant":
        value = op.attributes["value"]
        if not isinstance(value, ir.DenseElementsAttr) and resource_name(value) is None:
            raise UnsupportedError(
                f"{source_line(op)}: {name} has a value that is not dense: {str(value)[:80]}; "
                "write its elements out"
            )
    row = OPS.get(name)
    if row is not None and row.role is Role.UNSUPPORTED and name != "stablehlo.custom_call":
        raise refusal(op)


def _check_dialect(op: ir.Operation) -> None:
    """Only ops of StableHLO, and those of CHLO that stay."""
    name = op.name
    if name.startswith(("stablehlo.", "disc.")) or name in _FRAME or name in KEPT_CHLO:
        return
    if name == "func.call":
        raise UnsupportedError(f"{source_line(op)}: func.call could not be inlined")
    raise foreign(op)


def foreign(op: ir.Operation) -> UnsupportedError:
    """The error for an op of another dialect that nothing rewrites."""
    return UnsupportedError(
        f"{source_line(op)}: {op.name} is not a StableHLO operation; lower the module to "
        "StableHLO before giving it to shlo_disc"
    )


def _called_computations(op: ir.Operation) -> ir.ArrayAttr:
    if "called_computations" not in op.attributes:
        return ir.ArrayAttr.get([])
    return ir.ArrayAttr(op.attributes["called_computations"])


def _check_type(kind: ir.Type, where: str) -> None:
    if not isinstance(kind, ir.RankedTensorType):
        what = "an unranked tensor" if isinstance(kind, ir.UnrankedTensorType) else "no array"
        raise UnsupportedError(
            f"{where}: type {kind} is {what}; shlo_disc compiles arrays of known rank"
        )
    if kind.encoding is not None:
        raise UnsupportedError(f"{where}: type {kind} has an encoding; use a plain dense tensor")
    if isinstance(kind.element_type, quant.QuantizedType):
        raise UnsupportedError(
            f"{where}: quantized type {kind.element_type}; dequantize in the program (integers "
            "with explicit scales) or run `stablehlo-legalize-quant-to-math` first"
        )
    if known_element_type(kind.element_type) is None:
        raise UnsupportedError(
            f"{where}: element type {kind.element_type} is not compiled (these are: "
            f"{', '.join(sorted((*ELEMENT_TYPES, *COMPLEX_TYPES)))}); convert it first"
        )
    if kind.rank > MAX_RANK:
        raise InvalidModuleError(f"{where}: rank {kind.rank} is above the limit of {MAX_RANK}")
    elements = 1
    for axis in range(kind.rank):
        if not kind.is_dynamic_dim(axis):
            elements *= max(1, int(kind.get_dim_size(axis)))
    if elements > MAX_ELEMENTS:
        raise InvalidModuleError(
            f"{where}: {kind} has {elements} elements; the limit is {MAX_ELEMENTS}"
        )


_FRAME = frozenset({"builtin.module", "func.func", "func.return"})
