"""A program that one executable cannot run, as programs whose sizes their arguments give.

    %n = reduce %x                      first:   main(%x) { %n = reduce %x; return %n }
    %s = sort %x                 ==>    second:  main(%x, %n) { %s = sort %x
    %r = real_dynamic_slice %s, %n                            %r = real_dynamic_slice %s, %n ... }

    %a = tanh %x                        first:   main(%x) { %a = tanh %x; return %a }
    %w = while(%i = %p) {        ==>    a loop:  main(%x, %a, %i) { the condition }
      real_dynamic_slice %a, %i ... }            main(%x, %a, %i) { the body }
    %r = add %w, %a                     second:  main(%x, %a, %w) { %r = add %w, %a; return %r }

Every program takes the arguments of `main`, then the results of all parts before it, in order.
Regions also take the values that a loop carries. A small integer among the arguments is a size
argument, whose elements the runtime reads.

Why     The sizes of buffers are known when a program starts. A size that is data is known when the
        program that computes it has ended. A region's sizes and guards count only if it runs.
Needs   The normal form of `ingest`, before any pass.
Keeps   Every value, and what is known of sizes. Later programs repeat operations on sizes alone;
        `disc.constraints` states the shapes of values that come from earlier programs.
Cost    O(operations) for each program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shape_values import MAX_ELEMENTS, SHAPE_VALUES
from shlo_disc.dynamic.shapes import COMPUTED, CONSTRAINTS, ShapeAnalysis, analyze
from shlo_disc.dynamic.size_sources import NeedsSeveralPrograms, SizeFromData, control_around
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, producer, walk
from shlo_disc.ir.ops import names
from shlo_disc.passes.op_classes import CONTROL

_PICKING = names(lambda row: row.picks)
"""Each operand is a size where the result is one."""

assert SHAPE_VALUES.keys() >= _PICKING

_APART = "disc.apart"
"""On the operation that is to become a part of its own, until it is found again."""


@dataclass(frozen=True)
class Control:
    """A `case`, `if` or `while` whose regions are programs."""

    name: str
    operands: tuple[int, ...]
    """Of all values so far: arguments of `main`, then results of the parts before this one."""
    regions: tuple[ir.Module, ...]


def split_programs(module: ir.Module, *, apart: bool = False) -> list[ir.Module | Control]:
    """The parts that compute in turn what `module` does; it alone if one executable can.

    `apart`: every region with sizes of its own is a program, so that its guards count only if it
    runs. Raises what :func:`analyze` raises of each part but the regions.
    """
    parts: list[ir.Module | Control] = []
    while True:
        holder = None
        try:
            shapes = analyze(module)
        except NeedsSeveralPrograms as error:
            places = (
                _places_of_data(module, error.operand) if isinstance(error, SizeFromData) else []
            )
            if places:
                first, module = _cut(module, places)
                parts.append(first)
                continue
            holder = control_around(error.operation)
            if holder is None or not len(holder.results):
                raise
        else:
            if apart:
                holder = next((op for op in _body(module) if _has_sizes(op, shapes)), None)
            if holder is None:
                return [*parts, module]
        before, control, module = _taken_out(module, holder)
        parts += [*before, control]


def has_regions_with_sizes(module: ir.Module) -> bool:
    """True if guards may count only where a `case`, `if` or `while` of main runs.

    An operation in one reads or makes an array of a size not known yet: `x[i]` of static size, too.
    """
    return any(_computes_sizes(op, or_reads=True) for op in _body(module))


def _has_sizes(op: ir.Operation, shapes: ShapeAnalysis) -> bool:
    return op in shapes.holders or _computes_sizes(op)


def _computes_sizes(op: ir.Operation, *, or_reads: bool = False) -> bool:
    if op.name not in CONTROL or not len(op.results):
        return False
    found: list[ir.Value] = []

    def visit(inner: ir.Operation) -> None:
        values = [*inner.results, *(inner.operands if or_reads else ())]
        found.extend(value for value in values if _is_dynamic(value.type))

    walk(op, visit)
    return bool(found)


def _is_dynamic(kind: ir.Type) -> bool:
    return isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape


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


def _taken_out(
    module: ir.Module, holder: ir.Operation
) -> tuple[list[ir.Module], Control, ir.Module]:
    """What computes what `holder` reads, if anything does; `holder`; the rest of the program."""
    numbers = {op: number for number, op in enumerate(_body(module))}
    operands, captured = set[_Place](), set[_Place]()
    for found, values in ((operands, list(holder.operands)), (captured, [*_read_by(holder)])):
        for value in values:
            if (number := numbers.get(producer(value))) is not None:
                found.add(_Place(number, ir.OpResult(value).result_number))
    holder.attributes[_APART] = ir.UnitAttr.get()
    before = []
    if operands | captured:
        first, module = _cut(module, sorted(operands), sorted(captured - operands))
        if _returned(first):
            before.append(first)
    (holder,) = (op for op in _body(module) if _APART in op.attributes)
    count = len(_main(module).regions[0].blocks[0].arguments)
    control = Control(
        holder.name.removeprefix("stablehlo."),
        tuple(ir.BlockArgument(value).arg_number for value in holder.operands),
        tuple(_region_program(module, index) for index in range(len(holder.regions))),
    )
    body = _body(module)
    number = body.index(holder)
    _take(module, body, [_Place(number, index) for index in range(len(holder.results))])
    assert len(_main(module).regions[0].blocks[0].arguments) == count + len(holder.results)
    _keep_needed(module)
    return before, control, module


def _region_program(module: ir.Module, index: int) -> ir.Module:
    """The region `index` of the marked operation, whose operands are arguments of `main`."""
    made = _copy(module)
    (holder,) = (op for op in _body(made) if _APART in op.attributes)
    block = holder.regions[index].blocks[0]
    _add_arguments(made, list(block.arguments), holder)
    *inner, last = [view.operation for view in block.operations]
    for op in inner:
        op.move_before(holder)
    values = list(last.operands)
    body = _body(made)
    after = body[body.index(holder) :]
    _return(made, values)
    _erase(after[:-1], range(len(after) - 1))  # `_return` has erased the last one
    _keep_needed(made, inner)
    return made


def _keep_needed(module: ir.Module, effects: Sequence[ir.Operation] | None = None) -> None:
    """Erase what neither the results nor `effects` need, by default all without results."""
    body = _body(module)
    last = len(body) - 1
    kept = set(body if effects is None else effects)
    roots = {n for n, op in enumerate(body) if not len(op.results) and op in kept}
    _erase(body, set(range(last)) - _needed(body, {*roots, last}))


def _cut(
    module: ir.Module, places: Sequence[_Place], also: Sequence[_Place] = ()
) -> tuple[ir.Module, ir.Module]:
    """What computes the values at `places`, and the rest, which takes them as arguments.

    `also`: values that the rest takes as well, unless it can repeat their operations.
    """
    first, second = _copy(module), _copy(module)
    early, late = _body(first), _body(second)
    needed = _needed(early, {place.operation for place in (*places, *also)})
    last = len(early) - 1
    _return(first, [])
    _erase(early, set(range(last)) - needed)
    shapes = analyze(first)
    again = {number for number in needed if _is_repeated(early[number], shapes)}
    taken = {*places, *(place for place in also if place.operation not in again)}
    crossing = sorted({*taken, *_read_later(late, needed - again)})
    values = [early[place.operation].results[place.result] for place in crossing]
    shapes_known = _stated_shapes(shapes, values)
    _return(first, values)
    _take(second, late, crossing, again)
    _keep_needed(second)
    _state(second, shapes_known)
    return first, second


def copied(module: ir.Module) -> ir.Module:
    """A copy of `module`, which passes may rewrite."""
    return _copy(module)


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
    """Results of the operations `early` that what the operations without results need reads."""
    numbers = {op: number for number, op in enumerate(late)}
    found = {number for number, op in enumerate(late) if not len(op.results)}
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


def _returned(module: ir.Module) -> list[ir.Value]:
    return list(_body(module)[-1].operands)


def _take(
    module: ir.Module,
    late: Sequence[ir.Operation],
    places: Sequence[_Place],
    again: Iterable[int] = (),
) -> None:
    """The values at `places` are arguments of `main`, behind its own.

    Of operations in `again` only the operands of the marked operation are replaced: what else
    reads their results is to know the sizes they hold.
    """
    for place in places:
        value = late[place.operation].results[place.result]
        holders = [op for op in late if _APART in op.attributes]
        (argument,) = _add_arguments(module, [value], late[place.operation], replace=False)
        if place.operation not in again or not holders:
            value.replace_all_uses_with(argument)
            continue
        for holder in holders:
            for index, operand in enumerate(holder.operands):
                if operand == value:
                    holder.operands[index] = argument


def _add_arguments(
    module: ir.Module, values: Sequence[ir.Value], op: ir.Operation, *, replace: bool = True
) -> list[ir.Value]:
    """New arguments of `main` for `values`, which `op` gives or has in a region."""
    main = _main(module)
    block = main.regions[0].blocks[0]
    own = (
        list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        if "arg_attrs" in main.attributes
        else [ir.DictAttr.get({})] * len(block.arguments)
    )
    name = ir.StringAttr.get(f"{op.name} at {source_line(op)}")
    made = []
    for value in values:
        made.append(block.add_argument(value.type, op.location))
        if replace:
            value.replace_all_uses_with(made[-1])
        own.append(ir.DictAttr.get({"disc.name": name, COMPUTED: ir.UnitAttr.get()}))
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    kind = ir.FunctionType.get([a.type for a in block.arguments], kind.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(own)
    return made


def _stated_shapes(shapes: ShapeAnalysis, values: Sequence[ir.Value]) -> list[str]:
    """Relations of the sizes of `values`, which will be arguments behind those of `main`.

    None if regions have guards: a call may break them, and then the sizes are others.
    """
    if shapes.holders:
        return []
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
