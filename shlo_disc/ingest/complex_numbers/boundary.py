"""Where complex numbers enter and leave: constants, and the arguments and results of `main`.

    main(%z: complex<f32>[?])    ==>    main(%z: f32[?x2] {disc.complex})

`disc.complex` on an argument or a result says that callers see complex numbers of one dimension
less in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arguments import (
    argument_attributes,
    set_argument_attributes,
    set_signature,
)
from shlo_disc.ingest.complex_numbers.planes import (
    Planes,
    is_complex,
    pairs_of,
    pairs_type,
    plane_type,
    planes_of,
)
from shlo_disc.ingest.complex_numbers.rewriter import New, Rewriter
from shlo_disc.ir.builders import create
from shlo_disc.ir.dense_elements import complex_elements_of
from shlo_disc.ir.dialect import COMPLEX
from shlo_disc.ir.element_types import element_type
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, terminator


def replace_arguments(rewriter: Rewriter, main: Any) -> list[int]:
    """Complex arguments of `main` become arrays of pairs; the indices of these.

    The old arguments are still there, in front of the new ones.
    """
    block = main.operation.regions[0].blocks[0]
    attributes = [argument_attributes(main, k) for k in range(len(main.arguments))]
    old, found = list(block.arguments), []
    for index, argument in enumerate(old):
        own = attributes[index]
        if not is_complex(argument.type):
            argument.replace_all_uses_with(block.add_argument(argument.type, argument.location))
            continue
        found.append(index)
        pairs = block.add_argument(pairs_type(argument.type), argument.location)
        with ir.InsertionPoint.at_block_begin(block), main.operation.location:
            rewriter.define(argument, planes_of(pairs))
        own[COMPLEX] = ir.UnitAttr.get()
        if "disc.shape" in own:
            sizes = [*ir.ArrayAttr(own["disc.shape"]), ir.StringAttr.get("2")]
            own["disc.shape"] = ir.ArrayAttr.get(sizes)
    if found:
        set_argument_attributes(main, attributes)
    return found


def mark_signature(main: Any, complex_results: Sequence[int]) -> None:
    """The old arguments are gone from `main`, and its type says what it takes and gives."""
    block = main.operation.regions[0].blocks[0]
    count = len(block.arguments) // 2
    for index in reversed(range(count)):
        block.erase_argument(index)
    returned = terminator(block)
    set_signature(main, [a.type for a in block.arguments], [v.type for v in returned.operands])
    if not complex_results:
        return
    known = main.operation.attributes
    own = [
        {a.name: a.attr for a in ir.DictAttr(given)} if given is not None else {}
        for given in (
            ir.ArrayAttr(known["res_attrs"])
            if "res_attrs" in known
            else [None] * len(returned.operands)
        )
    ]
    for index in complex_results:
        own[index][COMPLEX] = ir.UnitAttr.get()
    known["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in own])


def results_of_main(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Complex results leave as arrays of pairs."""
    values = [pairs_of(rewriter.planes(v)) if is_complex(v.type) else v for v in op.operands]
    ir.Operation.create("func.return", operands=values)
    return []


def constant(rewriter: Rewriter, op: ir.Operation) -> Sequence[New]:
    """Two constants."""
    kind = plane_type(op.results[0].type)
    pairs = complex_elements_of(op, element_type(kind.element_type))
    if pairs is None:
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} has a value that is not dense; write its elements out"
        )
    planes = []
    for part in pairs.T:
        if part.size <= 1:
            number = ir.FloatAttr.get(kind.element_type, float(part[0]) if part.size else 0.0)
            value = ir.DenseElementsAttr.get_splat(kind, number)
        else:
            value = ir.DenseElementsAttr.get(np.ascontiguousarray(part.reshape(kind.shape)))
        planes.append(create("stablehlo.constant", [], kind, value=value))
    return [Planes(*planes)]
