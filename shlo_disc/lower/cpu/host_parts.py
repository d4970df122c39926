"""Cuts long host functions into parts, so that the time LLVM takes is linear in the program.

    func.func @run(%ctx, ...) {          func.func @run(%ctx, ...) {
      %a = ...                             %frame = llvm.alloca ...
      ... 20 000 operations        ==>     llvm.store %ctx, %frame[0]
    }                                      call @run_part0(%frame)
                                           call @run_part1(%frame) ...
                                         }

Why     Passes of LLVM are quadratic in the length of a block (the SLP vectorizer and the register
        allocator). 15 000 lines took 23 s when optimised; in parts they take less than one.
Needs   A module of `func`, `arith`, `scf` and `llvm`, before it is lowered.
Keeps   The order of all operations with effects, and every value.
Cost    O(operations). A value that one part computes and another reads goes through `%frame`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from shlo_disc.base.errors import InternalError
from shlo_disc.base.records import dataclass
from shlo_disc.ir.mlir import ir, ops_of, producer


class Limits(NamedTuple):
    """How long functions may be."""

    whole_ops: int
    """Functions of at most so many operations stay whole."""
    part_ops: int
    """Operations of a part of a longer one."""


OPTIMISED = Limits(2000, 200)
"""A decoder step has 900 operations. With parts of 200, 15 000 of them compile in 1.1 s. Parts of
1 000 take 2.9 s, of 3 000 8.3 s (2-core Xeon, 2026-11)."""

UNOPTIMISED = Limits(10_000, 1000)
"""Of 25 000 operations, the whole takes 1.5 s, parts of 1 000 1.7 s; of 100 000 16 s and 8 s."""

_CONSTANTS = frozenset({"arith.constant", "llvm.mlir.constant", "llvm.mlir.zero"})
"""Operations that every part has its own copy of."""

_NAME = "_part"


def may_be_long(text: str, limits: Limits) -> bool:
    """False if no function of `text`, with an operation a line, is cut."""
    return text.count("\n") > limits.whole_ops


def cut_long_functions(module: ir.Module, limits: Limits) -> None:
    """Every function that is longer than `limits` say calls parts of about their length each."""
    for view in list(module.body.operations):
        function = view.operation
        if function.name == "func.func" and _size(function) > limits.whole_ops:
            _Cutter(function, limits.part_ops).run()


def keep_parts(module: ir.Module) -> None:
    """LLVM inlines no part into its caller; `module` is in the LLVM dialect."""
    for view in module.body.operations:
        function = view.operation
        if function.name == "llvm.func" and _NAME in str(function.attributes["sym_name"]):
            function.attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get("noinline")])


def _size(op: ir.Operation) -> int:
    """Operations in `op`, itself included."""
    return 1 + sum(
        _size(inner.operation)
        for region in op.regions
        for block in region.blocks
        for inner in block.operations
    )


@dataclass
class _Place:
    """A function that operations are in: how they reach values of other parts."""

    frame: ir.Value
    loads: ir.Operation
    """Loads and copies of constants go in front of it."""
    known: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Values of other parts as this one has them."""


class _Cutter:
    """Cuts one function."""

    def __init__(self, function: ir.Operation, part_ops: int) -> None:
        self._function = function
        self._part_ops = part_ops
        self._name = ir.StringAttr(function.attributes["sym_name"]).value
        self._last = function
        self._parts = 0
        self._slots: dict[ir.Value, int] = {}
        self._frames: dict[str, ir.Value] = {}
        """Of every function that operations are in, by name."""
        self._staying: set[ir.Operation] = set()
        """Stores of values that no part computes."""
        self._attached: set[ir.Operation] = set()
        """Stores that stay in the part of the operation in front of them."""
        self._pointer = ir.Type.parse("!llvm.ptr")
        self._i64 = ir.IntegerType.get_signless(64)

    def run(self) -> None:
        """Cut the function; the frame is on its stack."""
        block = self._function.regions[0].blocks[0]
        self._pin_allocas(block)
        with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
            count = self._create("arith.constant", [], self._i64, value=self._number(1))
            frame = self._create(
                "llvm.alloca",
                [count.results[0]],
                self._pointer,
                alignment=self._number(8),
                elem_type=ir.TypeAttr.get(self._i64),
            )
        self._frames[self._name] = frame.results[0]
        self._cut(block)
        count.attributes["value"] = self._number(max(len(self._slots), 1))

    def _number(self, value: int) -> ir.Attribute:
        return ir.IntegerAttr.get(self._i64, value)

    @staticmethod
    def _create(
        name: str, operands: list[ir.Value], result: ir.Type | None, **attributes: ir.Attribute
    ) -> ir.Operation:
        results = [] if result is None else [result]
        return ir.Operation.create(name, results=results, operands=operands, attributes=attributes)

    def _pin_allocas(self, block: ir.Block) -> None:
        """Stack memory belongs to the function, not to a part: its allocation comes first."""
        first = block.operations[0].operation
        for op in ops_of(self._function, "llvm.alloca"):
            count = producer(op.operands[0])
            if count is None or count.name not in _CONSTANTS:
                raise InternalError(f"the host program allocates stack of unknown size: {op}")
            with ir.Location.unknown():
                op.operands[0] = count.clone(ip=ir.InsertionPoint(first)).results[0]
            op.move_before(first)

    def _cut(self, block: ir.Block) -> int:
        """Cut the blocks in `block`, then itself if it is long; the operations left."""
        sizes = {}
        for view in block.operations:
            op = view.operation
            sizes[op] = 1 + sum(self._cut(b) for region in op.regions for b in region.blocks)
        total = sum(sizes.values())
        if total <= self._part_ops:
            return total
        left = 0
        moved: set[ir.Value] = set()
        group: list[ir.Operation] = []
        room = self._part_ops
        *inner, last = [view.operation for view in block.operations]  # with stores by now
        for op in inner:
            if op.name in _CONSTANTS or op.name == "llvm.alloca" or op in self._staying:
                left += 1
                continue
            size = sizes.get(op, 1)
            if group and size > room and op not in self._attached:
                left += self._outline(group)
                group, room = [], self._part_ops
            group.append(op)
            moved.update(op.results)
            room -= size
        if group:
            left += self._outline(group)
        place = _Place(self._frames[self._name], last)
        for index, value in enumerate(last.operands):
            if value in moved:
                last.operands[index] = self._reached(value, place)
        return left + 1

    def _outline(self, group: list[ir.Operation]) -> int:
        """Put `group`, which follow each other in a block, in a function; 1, for the call."""
        name = f"{self._name}{_NAME}{self._parts}"
        self._parts += 1
        with ir.Location.unknown():
            with ir.InsertionPoint.after(self._last):
                kind = ir.TypeAttr.get(ir.FunctionType.get([self._pointer], []))
                part = ir.Operation.create(
                    "func.func",
                    attributes={"sym_name": ir.StringAttr.get(name), "function_type": kind},
                    regions=1,
                )
            self._last = part
            block = part.regions[0].blocks.append(self._pointer)
            with ir.InsertionPoint(block):
                last = self._create("func.return", [], None)
            with ir.InsertionPoint(group[0]):
                callee = ir.FlatSymbolRefAttr.get(name)
                self._create("func.call", [self._frames[self._name]], None, callee=callee)
        self._frames[name] = block.arguments[0]
        for op in group:
            op.move_before(last)
        self._reach(group, _Place(block.arguments[0], group[0]), set())
        return 1

    def _reach(self, ops: Iterable[ir.Operation], place: _Place, inside: set[ir.Value]) -> None:
        """Every operand of `ops` is a value of their function; `inside`: those that are."""
        for op in ops:
            for index, value in enumerate(op.operands):
                if value not in inside:
                    op.operands[index] = self._reached(value, place)
            for region in op.regions:
                for block in region.blocks:
                    inside.update(block.arguments)
                    self._reach([view.operation for view in block.operations], place, inside)
            inside.update(op.results)

    def _reached(self, value: ir.Value, place: _Place) -> ir.Value:
        """`value` of another function, in the function of `place`."""
        if value == self._frames[self._name]:
            return place.frame
        known = place.known.get(value)
        if known is not None:
            return known
        origin = producer(value)
        with ir.InsertionPoint(place.loads), ir.Location.unknown():
            if origin is not None and origin.name in _CONSTANTS:
                here = origin.clone(ip=ir.InsertionPoint(place.loads)).results[0]
            else:
                address = self._address(place.frame, self._slot(value))
                here = self._create("llvm.load", [address], self._stored_type(value)).results[0]
                here = self._cast(here, value.type)
        place.known[value] = here
        return here

    def _slot(self, value: ir.Value) -> int:
        """The place of `value` in the frame, where it is stored as soon as it is known."""
        if value in self._slots:
            return self._slots[value]
        slot = self._slots[value] = len(self._slots)
        owner = value.owner
        if isinstance(owner, ir.Block):
            frame = self._frame_of(owner.owner.operation)
            made = producer(frame)  # among the first operations of the function, if not a part
            if made is not None and made.block == owner:
                point = ir.InsertionPoint.after(made)
            else:
                point = ir.InsertionPoint.at_block_begin(owner)
        else:
            frame = self._frame_of(owner.operation)
            point = ir.InsertionPoint.after(owner.operation)
        with point, ir.Location.unknown():
            stored = self._cast(value, self._stored_type(value))
            address = self._address(frame, slot)
            store = self._create("llvm.store", [stored, address], None)
        stays = isinstance(owner, ir.Block) or owner.operation.name == "llvm.alloca"
        made = (producer(stored), producer(address), store)
        (self._staying if stays else self._attached).update(
            op for op in made if op is not None and value not in op.results
        )
        return slot

    def _stored_type(self, value: ir.Value) -> ir.Type:
        return self._i64 if isinstance(value.type, ir.IndexType) else value.type

    def _cast(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        """`value` as an i64 or an index, where it is the other."""
        if value.type == kind:
            return value
        return self._create("arith.index_cast", [value], kind).results[0]

    def _frame_of(self, op: ir.Operation) -> ir.Value:
        """The frame in the function that `op` is in."""
        while op.name != "func.func":
            op = op.parent.operation
        return self._frames[ir.StringAttr(op.attributes["sym_name"]).value]

    def _address(self, frame: ir.Value, slot: int) -> ir.Value:
        return self._create(
            "llvm.getelementptr",
            [frame],
            self._pointer,
            elem_type=ir.TypeAttr.get(self._i64),
            rawConstantIndices=ir.DenseI32ArrayAttr.get([slot]),
        ).results[0]
