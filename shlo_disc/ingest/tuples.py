"""Tuples become their elements, and tokens nothing: every value is an array from here on.

    main(%t: tuple<f32[?], token>)             main(%x: f32[?])
      %x = get_tuple_element %t[0]
      while (%a = %x, %k = %token) ...   ==>     while (%a = %x) ...

`main` takes and gives an array for each element of a tuple, in order.

Why     No later stage knows these types. Tokens order effects, and no effect is supported.
Needs   calls inlined.
Keeps   every result.
Cost    O(ops + elements of tuples).
Source  StableHLO spec, "Types", `tuple`, `get_tuple_element`, `after_all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.ingest.arguments import (
    argument_attributes,
    global_name,
    set_argument_attributes,
    set_signature,
)
from shlo_disc.ingest.present import TUPLE_OPS, is_compound, is_token
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import at, ir, terminator

_CARRYING = frozenset(
    f"stablehlo.{name}" for name in ("case", "if", "optimization_barrier", "while")
)
"""Ops whose operands and results may be tuples and tokens."""


def flatten_tuples(main: Any, names: Sequence[str | None]) -> list[str | None]:
    """No value in `main` is a tuple or a token; the names of its array arguments from now on.

    `names` are those of the arguments before that are neither sizes nor tokens.
    Raises UnsupportedError for an op that needs such a value.
    """
    rewriter = _Rewriter()
    block = main.operation.regions[0].blocks[0]
    known = iter(names)
    flat_names: list[str | None] = []
    attributes: list[dict[str, ir.Attribute]] = []
    for index, argument in enumerate(block.arguments):
        own, paths = argument_attributes(main, index), _paths(argument.type)
        is_tuple = isinstance(argument.type, ir.TupleType)
        if is_tuple and "disc.shape" in own:
            raise InvalidModuleError(
                f"{source_line(main.operation)}: attribute disc.shape of argument {index}, which "
                "is a tuple; give the sizes of its elements as `shapes`"
            )
        if global_name(main, index) is None and not is_token(argument.type):
            name = next(known, None)
            flat_names += [None if name is None else name + path for path in paths]
        attributes += [own] * len(paths)
    rewriter.block(block)
    rewriter.finish()
    returned = terminator(block)
    set_signature(main, [a.type for a in block.arguments], [v.type for v in returned.operands])
    set_argument_attributes(main, attributes)
    if "res_attrs" in main.operation.attributes:
        main.operation.attributes["res_attrs"] = ir.ArrayAttr.get(
            [main.result_attrs[k] for k in rewriter.returned]
        )
    return flat_names


def _elements(kind: ir.Type) -> list[ir.Type]:
    if not isinstance(kind, ir.TupleType):
        return []
    return [kind.get_type(k) for k in range(kind.num_types)]


def _flat(kind: ir.Type) -> list[ir.Type]:
    """The types of the arrays in a value of this type."""
    if not is_compound(kind):
        return [kind]
    return [leaf for element in _elements(kind) for leaf in _flat(element)]


def _paths(kind: ir.Type) -> list[str]:
    """Where these arrays are: `[0][1]`; nothing for an array itself."""
    if not is_compound(kind):
        return [""]
    return [f"[{k}]{path}" for k, inner in enumerate(_elements(kind)) for path in _paths(inner)]


class _Rewriter:
    def __init__(self) -> None:
        self._arrays: dict[ir.Value, list[ir.Value]] = {}
        """Of every tuple and token."""
        self._done: list[ir.Operation] = []
        """Ops that go when nothing reads them any more."""
        self._blocks: list[tuple[ir.Block, int]] = []
        """How many arguments in front of its own each block has still."""
        self.returned: list[int] = []
        """The operand of the last terminator that each of its operands now was, or was in."""

    def finish(self) -> None:
        """Erase what the arrays have replaced."""
        for op in reversed(self._done):
            op.erase()
        for block, count in self._blocks:
            for _ in range(count):
                block.erase_argument(0)

    def block(self, block: ir.Block) -> None:
        """Arguments, operations and terminator of `block`, which is rewritten in place."""
        compound = any(is_compound(argument.type) for argument in block.arguments)
        old = list(block.arguments) if compound else []
        for argument in old:
            made = [block.add_argument(kind, argument.location) for kind in _flat(argument.type)]
            self._replace(argument, made)
        operations = [view.operation for view in block.operations]
        for op in operations:
            self._operation(op)
        self._blocks.append((block, len(old)))

    def _replace(self, old: ir.Value, arrays: list[ir.Value]) -> None:
        if is_compound(old.type):
            self._arrays[old] = arrays
        else:
            old.replace_all_uses_with(arrays[0])

    def _flattened(self, values: Iterable[ir.Value]) -> list[ir.Value]:
        return [array for value in values for array in self._arrays.get(value, [value])]

    def _operation(self, op: ir.Operation) -> None:
        kinds = [value.type for value in (*op.operands, *op.results)]
        is_concerned = any(map(is_compound, kinds))
        if op.name in TUPLE_OPS:
            self._tuple_op(op)
        elif op.name in ("stablehlo.return", "func.return"):
            self.returned = [k for k, v in enumerate(op.operands) for _ in self._flattened([v])]
            if is_concerned:
                with at(op):
                    ir.Operation.create(op.name, operands=self._flattened(op.operands))
                op.erase()
        elif is_concerned and op.name in _CARRYING:
            self._carrying(op)
        elif is_concerned:
            self._refuse(op)
        else:
            for region in op.regions:
                for block in region:
                    self.block(block)

    def _tuple_op(self, op: ir.Operation) -> None:
        arrays = self._flattened(op.operands)
        if op.name == "stablehlo.get_tuple_element":
            index = int(ir.IntegerAttr(op.attributes["index"]).value)
            counts = [len(_flat(kind)) for kind in _elements(op.operands[0].type)]
            first = sum(counts[:index])
            arrays = arrays[first : first + counts[index]]
        self._replace(op.results[0], arrays)
        self._done.append(op)

    def _carrying(self, op: ir.Operation) -> None:
        with at(op):
            new = ir.Operation.create(
                op.name,
                results=[kind for result in op.results for kind in _flat(result.type)],
                operands=self._flattened(op.operands),
                attributes=dict(op.attributes.items()),
                regions=len(op.regions),
            )
        for old, region in zip(op.regions, new.regions, strict=True):
            old.blocks[0].append_to(region)
            self.block(region.blocks[0])
        made = iter(new.results)
        for result in op.results:
            self._replace(result, [next(made) for _ in _flat(result.type)])
        self._done.append(op)

    def _refuse(self, op: ir.Operation) -> None:
        if any(is_token(value.type) for value in (*op.operands, *op.results)):
            raise UnsupportedError(
                f"{source_line(op)}: {op.name} orders a side effect by a token; shlo_disc compiles "
                "pure functions (remove ordered callbacks, debug prints and I/O)"
            )
        raise UnsupportedError(
            f"{source_line(op)}: {op.name} takes or gives a tuple; give its elements one by one"
        )
