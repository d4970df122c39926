"""What is known of the sizes of the arguments of `main`; its size arguments are solved.

    main(%b: i32 {jax.global_constant = "b"}, %x: f32[?x4])
    ==>
    main(%x: f32[?x4] {disc.shape = ["b", "4"]}) {disc.constraints = ["b >= 2"]}
      %b = get_dimension_size %x, dim = 0

The attributes are described in docs/architecture.md section 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shlo_disc.ingest.arguments import (
    argument_attributes,
    constant,
    erase_arguments,
    global_name,
    set_argument_attributes,
)
from shlo_disc.ir import dialect
from shlo_disc.ir.mlir import ir

OTHERS = "..."
"""At the end of a given shape: the other sizes are as the type says."""

Shapes = Sequence[Sequence[str] | None]
"""The sizes of every array argument in `jax.export` notation; None: as its type says."""


def describe(main: Any, shapes: Shapes | None, names: Sequence[str | None]) -> None:
    """Attach `disc.shape` and `disc.name` to the array arguments."""
    arrays = _arrays(main)
    attributes = [argument_attributes(main, i) for i in range(len(main.arguments))]
    for index in range(len(attributes)):
        if symbol := global_name(main, index):
            attributes[index]["disc.name"] = ir.StringAttr.get(symbol)
    if shapes is not None and len(shapes) != len(arrays):
        raise ValueError(f"{len(shapes)} shapes were given for {len(arrays)} array arguments")
    if len(names) > len(arrays):
        raise ValueError(f"{len(names)} names were given for {len(arrays)} array arguments")
    for position, index in enumerate(arrays):
        own = attributes[index]
        if shapes is not None and (shape := shapes[position]) is not None:
            kind = main.arguments[index].type
            if len(shape) and shape[-1] == OTHERS:
                others = range(len(shape) - 1, kind.rank)
                shape = [*shape[:-1], *(_of_type(kind, position, axis) for axis in others)]
            if len(shape) != kind.rank:
                raise ValueError(f"shape {tuple(shape)} was given for argument {position}: {kind}")
            own["disc.shape"] = ir.ArrayAttr.get([ir.StringAttr.get(str(s)) for s in shape])
        if position < len(names) and (name := names[position]):
            own["disc.name"] = ir.StringAttr.get(name)
    if attributes:
        set_argument_attributes(main, attributes)


def _of_type(kind: Any, position: int, axis: int) -> str:
    """A size as the type says: one that is dynamic has the symbol the analysis gives it."""
    return f"d{position}_{axis}" if kind.is_dynamic_dim(axis) else str(kind.get_dim_size(axis))


def constrain(main: Any, constraints: Sequence[str]) -> None:
    """Add relations of the sizes, such as "t >= 2", to what every call must satisfy."""
    if constraints:
        known = main.operation.attributes
        before = list(known["disc.constraints"]) if "disc.constraints" in known else []
        more = [ir.StringAttr.get(text) for text in constraints]
        known["disc.constraints"] = ir.ArrayAttr.get([*before, *more])


def _arrays(main: Any) -> list[int]:
    return [i for i in range(len(main.arguments)) if global_name(main, i) is None]


_LINEAR = re.compile(r"(?:(?P<k>\d+)\*)?(?P<s>[A-Za-z_]\w*)(?: (?P<sign>[+-]) (?P<c>\d+))?")


def solve_sizes(main: Any, own: Shapes | None, sizes: Mapping[str, str]) -> None:
    """Replace leading size arguments (`jax.global_constant`) by sizes of the array arguments.

    A size argument is found as `s`, `k*s` or `k*s + c` in some shape: of `own`, or in a
    `disc.shape` without it. One that is not has its value in `sizes`, in the symbols of
    `disc.shape`, or it stays an argument, which a call passes.
    """
    wanted = {
        i: name for i in range(len(main.arguments)) if (name := global_name(main, i)) is not None
    }
    if not wanted:
        return
    places = _size_places(main, own)
    replacements: dict[int, Callable[[], ir.Value]] = {}
    for index, symbol in wanted.items():
        kind = main.arguments[index].type
        if symbol in places:
            replacements[index] = _read(main, *places[symbol], kind)
        elif symbol in sizes:
            replacements[index] = _stated(sizes[symbol], kind)
    if replacements:
        erase_arguments(main, replacements)


def _read(
    main: Any, argument: int, axis: int, factor: int, offset: int, kind: ir.Type
) -> Callable[[], ir.Value]:
    value = main.arguments[argument]
    return lambda: _size(value, axis, factor, offset, kind)


def _stated(size: str, kind: ir.Type) -> Callable[[], ir.Value]:
    return lambda: dialect.dim(size, ir.RankedTensorType(kind).element_type)


def _size_places(main: Any, own: Shapes | None) -> dict[str, tuple[int, int, int, int]]:
    """Symbol -> (argument, axis, factor, offset) where that size is factor * symbol + offset."""
    places: dict[str, tuple[int, int, int, int]] = {}
    for position, index in enumerate(_arrays(main)):
        for axis, text in enumerate(_written(main, index) if own is None else own[position] or ()):
            found = _LINEAR.fullmatch(text)
            if found is None:
                continue
            factor = int(found["k"] or 1)
            offset = int(found["c"] or 0) * (-1 if found["sign"] == "-" else 1)
            place = (index, axis, factor, offset)
            best = places.get(found["s"])
            if best is None or (factor, abs(offset)) < (best[2], abs(best[3])):
                places[found["s"]] = place
    return places


def _written(main: Any, index: int) -> list[str]:
    shape = argument_attributes(main, index).get("disc.shape")
    return [ir.StringAttr(text).value for text in ir.ArrayAttr(shape)] if shape is not None else []


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
            "stablehlo.subtract", results=[kind], operands=[size, constant(offset, kind)]
        ).results[0]
    if factor != 1:
        size = ir.Operation.create(
            "stablehlo.divide", results=[kind], operands=[size, constant(factor, kind)]
        ).results[0]
    return size
