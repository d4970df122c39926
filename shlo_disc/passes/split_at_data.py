"""A program whose sizes come from data, as a chain of programs whose sizes come from arguments.

    %n = reduce %x                      first:   main(%x) { %n = reduce %x; return %n }
    %s = sort %x                 ==>    second:  main(%x, %n) { %s = sort %x
    %r = real_dynamic_slice %s, %n                            %r = real_dynamic_slice %s, %n ... }

Every program takes the arguments of `main`, then the results of all programs before it, in order.
A small integer among these is a size argument, whose elements the runtime reads.

Why     The sizes of buffers are known when a call starts. A size that is data is known when the
        program that computes it has ended.
Needs   The normal form of `ingest`, before any pass.
Keeps   Every value, and what is known of sizes. Later programs repeat operations on sizes alone;
        `disc.constraints` states the shapes of values that come from earlier programs.
Cost    O(operations) for each program of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shape_values import MAX_ELEMENTS, SHAPE_VALUES
from shlo_disc.dynamic.shapes import COMPUTED, CONSTRAINTS, ShapeAnalysis, analyze
from shlo_disc.dynamic.size_sources import SizeFromData
from shlo_disc.locations import source_line
from shlo_disc.mlir import at, ir, producer
from shlo_disc.ops import names

__all__ = ["split_at_data"]

_PICKING = names(lambda row: row.picks)
"""Each operand is a size where the result is one."""

assert SHAPE_VALUES.keys() >= _PICKING


def split_at_data(module: ir.Module) -> list[ir.Module]:
    """The chain of programs that compute what `module` does; it alone if no size is data.

    Raises what :func:`analyze` raises of each; SizeFromData for a size computed inside a region.
    """
    chain = []
    while True:
        try:
            analyze(module)
        except SizeFromData as error:
            places = _places_of_data(module, error.operand)
            if not places:
                holder = _control_around(error.operation)
                if holder is None:
                    raise
                raise error.inside(holder) from None
            first, module = _cut(module, places)
            chain.append(first)
            continue
        return [*chain, module]


def _control_around(op: ir.Operation) -> ir.Operation | None:
    """The outermost op of main whose regions contain `op`; None if `op` is in main itself."""
    holder = None
    while (parent := op.parent) is not None and parent.name != "func.func":
        holder = op = parent
    return holder


@dataclass(frozen=True, order=True)
class _Place:
    """A result of an operation of `main`'s body."""

    operation: int
    result: int


def _places_of_data(module: ir.Module, operand: ir.Value) -> list[_Place]:
    """Where the elements of a size operand come from data; none if one is inside a region."""
    numbers = {op: number for number, op in enumerate(_body(module))}
    found: set[_Place] = set()
    waiting, seen = [operand], {operand}
    while waiting:
        value = waiting.pop()
        op = producer(value)
        if op is None:
            if ir.BlockArgument(value).owner.owner.operation.name != "func.func":
                return []
            continue  # an argument of main that is a size is read by the runtime
        if _is_size_arithmetic(op):
            continue
        if op.name in _PICKING and all(_is_small_integer(v) for v in op.operands):
            more = [v for v in op.operands if v not in seen]
            seen.update(more)
            waiting += more
            continue
        if op not in numbers:
            return []
        found.add(_Place(numbers[op], ir.OpResult(value).result_number))
    return sorted(found)


def _is_size_arithmetic(op: ir.Operation) -> bool:
    return not len(op.operands) or op.name == "stablehlo.get_dimension_size"


def _is_small_integer(value: ir.Value) -> bool:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False
    elements = 1
    for size in kind.shape:
        elements *= size
    element = kind.element_type
    return isinstance(element, ir.IntegerType) and element.width > 1 and elements <= MAX_ELEMENTS


def _cut(module: ir.Module, places: Sequence[_Place]) -> tuple[ir.Module, ir.Module]:
    """What computes the values at `places`, and the rest, which takes them as arguments."""
    first, second = _copy(module), _copy(module)
    early, late = _body(first), _body(second)
    needed = _needed(early, {place.operation for place in places})
    last = len(early) - 1
    _return(first, [])
    _erase(early, set(range(last)) - needed)
    shapes = analyze(first)
    again = {number for number in needed if _is_repeated(early[number], shapes)}
    crossing = sorted({*places, *_read_later(late, needed - again)})
    values = [early[place.operation].results[place.result] for place in crossing]
    shapes_known = _stated_shapes(shapes, values)
    _return(first, values)
    _take(second, late, crossing)
    _erase(late, set(range(last)) - _needed(late, {last}))
    _state(second, shapes_known)
    return first, second


def _copy(module: ir.Module) -> ir.Module:
    made = ir.Module.create()
    for attribute in module.operation.attributes:
        made.operation.attributes[attribute] = module.operation.attributes[attribute]
    _main(module).clone(ip=ir.InsertionPoint(made.body))
    return made


def _main(module: ir.Module) -> ir.Operation:
    (main,) = (view.operation for view in module.body.operations)
    return main


def _body(module: ir.Module) -> list[ir.Operation]:
    return [view.operation for view in _main(module).regions[0].blocks[0].operations]


def _needed(body: Sequence[ir.Operation], roots: Iterable[int]) -> set[int]:
    """The operations that `roots` compute from, and these themselves."""
    numbers = {op: number for number, op in enumerate(body)}
    found = set(roots)
    waiting = list(found)
    while waiting:
        for value in _read_by(body[waiting.pop()]):
            number = numbers.get(producer(value))
            if number is not None and number not in found:
                found.add(number)
                waiting.append(number)
    return found


def _read_by(op: ir.Operation) -> Iterator[ir.Value]:
    """Operands of `op` and of all operations in it."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from _read_by(view.operation)


def _read_later(late: Sequence[ir.Operation], early: set[int]) -> Iterator[_Place]:
    """Results of the operations `early` that what the last operation needs reads."""
    numbers = {op: number for number, op in enumerate(late)}
    found = {len(late) - 1}
    waiting = list(found)
    while waiting:
        for value in _read_by(late[waiting.pop()]):
            op = producer(value)
            number = numbers.get(op)
            if op is None or number is None:
                continue
            if number in early:
                yield _Place(number, ir.OpResult(value).result_number)
            elif number not in found:
                found.add(number)
                waiting.append(number)


def _is_repeated(op: ir.Operation, shapes: ShapeAnalysis) -> bool:
    """Whether an operation costs nothing: it has no operands, or computes with sizes alone."""
    if not len(op.operands) and not len(op.regions):
        return True
    return all(shapes.elements(result) is not None for result in op.results)


def _erase(body: Sequence[ir.Operation], numbers: Iterable[int]) -> None:
    for number in sorted(numbers, reverse=True):
        body[number].erase()


def _return(module: ir.Module, values: Sequence[ir.Value]) -> None:
    """`main` returns `values`."""
    main = _main(module)
    returned = _body(module)[-1]
    with at(returned):
        ir.Operation.create("func.return", operands=list(values))
    returned.erase()
    inputs = [a.type for a in main.regions[0].blocks[0].arguments]
    kind = ir.FunctionType.get(inputs, [v.type for v in values])
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]


def _take(module: ir.Module, late: Sequence[ir.Operation], places: Sequence[_Place]) -> None:
    """The values at `places` are arguments of `main`, behind its own."""
    main = _main(module)
    block = main.regions[0].blocks[0]
    count = len(block.arguments)
    own = (
        list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        if "arg_attrs" in main.attributes
        else [ir.DictAttr.get({})] * count
    )
    for place in places:
        value = late[place.operation].results[place.result]
        argument = block.add_argument(value.type, late[place.operation].location)
        value.replace_all_uses_with(argument)
        name = f"{late[place.operation].name} at {source_line(late[place.operation])}"
        own.append(
            ir.DictAttr.get({"disc.name": ir.StringAttr.get(name), COMPUTED: ir.UnitAttr.get()})
        )
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    kind = ir.FunctionType.get([a.type for a in block.arguments], kind.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(own)


def _stated_shapes(shapes: ShapeAnalysis, values: Sequence[ir.Value]) -> list[str]:
    """Relations of the sizes of `values`, which will be arguments behind those of `main`."""
    given = {name for shape in shapes.arguments for size in shape for name in size.symbols()}
    known: dict[Expr, str] = {}
    found = []
    for index, value in enumerate(values, len(shapes.arguments)):
        for axis, size in enumerate(shapes.shape(value)):
            if not ir.RankedTensorType(value.type).is_dynamic_dim(axis):
                continue
            name = f"d{index}_{axis}"  # as the analysis calls it
            if size.symbols() <= given:
                found.append(f"{name} == {size}")
            elif size in known:
                found.append(f"{name} == {known[size]}")
            else:
                known[size] = name
    return found


def _state(module: ir.Module, relations: Sequence[str]) -> None:
    main = _main(module)
    before = (
        list(ir.ArrayAttr(main.attributes[CONSTRAINTS])) if CONSTRAINTS in main.attributes else []
    )
    texts = [*before, *map(ir.StringAttr.get, relations)]
    if texts:
        main.attributes[CONSTRAINTS] = ir.ArrayAttr.get(texts)
