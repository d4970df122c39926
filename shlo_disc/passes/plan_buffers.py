"""plan-buffers: say where every tensor of the host program lives.

    %1 = "disc.fusion"(%0) ...      ==>      %1 = "disc.fusion"(%0) ... {disc.buffers = ["slot:0"]}

Why     One arena per call with symbolic offsets: nothing is allocated while kernels run. The
        memory of dead tensors is used again; results are written where the caller reads them.
Needs   `plan-fusion`.   Keeps  every result.   Cost  O(values).
Source  Linear-scan over live intervals (Poletto and Sarkar, 1999), sizes compared symbolically.

What it writes:

====================  ====================================================================
`disc.arena`          on `main`: the size in bytes of every slot, symbolic
`disc.buffers`        on a fusion, `case` or `if`, per result: `slot:N` (arena), `result:N`
                      (the caller's result), `host:N` (a scalar of the host program, see
                      `place_scalars.py`), `next:N` (the next value of loop carry N),
                      `inplace` (the buffer of operand 0, which dies here; `inplace:K`: of
                      operand K; on a `case` or `if`: of what branch K changes in place),
                      `update:N` (its place in the array that the `dynamic_update_slice`
                      stored as N changes)
`disc.stored`         on a `dynamic_update_slice`: its N. There is nothing left to do
`disc.carries`        on a `while`, per carried value: `same` (never changes), `swap:A,B`
                      (alternates between two slots, `swap:host:A,B` of the host program's
                      scalars), `inplace:PLACE` (one buffer,
                      initialised by a copy), `inplace:init` (the initial value's own buffer),
                      `stored` (where the step before stored it as `update`)
`disc.scalars`        on `main`: how many scalars the host program has room for, if any
`disc.reuses`         on `main` with donated arguments (`disc.donated` in `arg_attrs`):
                      `ARGUMENT:RESULT`, results that may be written into the argument's buffer
====================  ====================================================================

Reshapes share their operand's buffer and get no attribute.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from typing import ClassVar

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.loops import unchanged
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, reads, terminator, walk
from shlo_disc.ir.ops import ffi
from shlo_disc.passes.arena import Arena
from shlo_disc.passes.base import Pass
from shlo_disc.passes.donation import donated_reuses
from shlo_disc.passes.homes import has_far_memory, is_on_host
from shlo_disc.passes.op_classes import CONTROL, RESHAPES, is_flag
from shlo_disc.passes.place import At, Place
from shlo_disc.passes.places import Carry, Mode, set_carries, set_places, set_reuses, set_scalars
from shlo_disc.passes.plan_updates import place_updates
from shlo_disc.passes.records import ffi_call_of, update_of


@dataclass(frozen=True)
class PlanBuffers(Pass):
    """See the module."""

    name: ClassVar[str] = "plan-buffers"
    keeps_known: ClassVar[bool] = True

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Annotate `main`; returns the number of arena slots."""
        known = shapes.now()
        with module.context:
            return sum(
                _Planner(func.operation, known).run()
                for func in module.body.operations
                if func.operation.name == "func.func"
            )


_WRITTEN = (
    "disc.arena", "disc.buffers", "disc.carries", "disc.reuses", "disc.scalars", "disc.stored",
)  # fmt: skip


def forget_buffers(module: ir.Module) -> None:
    """Remove what this pass wrote: the module is to be planned again."""

    def visit(op: ir.Operation) -> None:
        for name in _WRITTEN:
            if name in op.attributes:
                del op.attributes[name]

    walk(module, visit)


@dataclass
class _Interval:
    """A need for arena memory from the start of one op to the end of another."""

    start: int
    end: int
    size: Expr
    owner: ir.Operation
    key: int
    """Result index, or 2 * carry + (0 | 1) for the two buffers of a loop carry."""
    at: At
    """Whose memory: the arena's, or the host program's."""


_SCALAR = Expr.const(8)
"""Bytes of a slot for a scalar of the host program."""


@dataclass(frozen=True)
class _Step:
    """`result` can be in the buffer of `source`."""

    result: ir.Value
    source: ir.Value
    branch: int = 0
    """Of a result of branches: the first one that changes the buffer."""
    in_branches: tuple[list[_Step], ...] = ()


_Slots = dict[tuple[ir.Value, int], Place]
"""The slot of an interval, by the first result of its owner and by `_Interval.key`."""


_Uses = dict[ir.Block, list[int]]
"""Positions in each block that has a use; an op with regions uses what these read."""


def _no_uses() -> _Uses:
    return defaultdict(list)


@dataclass
class _Planner:
    func: ir.Operation
    shapes: ShapeAnalysis
    span: dict[ir.Value, tuple[int, int]] = field(default_factory=dict)
    """First result of an op -> (position where it starts, position where it ends)."""
    terminator_span: dict[ir.Block, int] = field(default_factory=dict)
    alias: dict[ir.Value, ir.Value] = field(default_factory=dict)
    uses: dict[ir.Value, _Uses] = field(default_factory=lambda: defaultdict(_no_uses))
    """Root value -> where the ops that use it end, in its own block and in inner ones, in order."""
    held: dict[ir.Value, list[ir.Value]] = field(default_factory=lambda: defaultdict(list))
    """Root value -> results of loops that may be in its buffer, such as after no iteration."""
    place: dict[ir.Value, Place] = field(default_factory=dict)
    """Values with a place of their own, which is no slot of the arena."""
    case_claims: dict[ir.Value, tuple[ir.Operation, int]] = field(default_factory=dict)
    stored: list[ir.Operation] = field(default_factory=list)
    """Updates whose values are computed at their places, by their numbers."""
    intervals: list[_Interval] = field(default_factory=list)
    carries: dict[ir.Value, list[Mode]] = field(default_factory=dict)
    inherited: set[ir.Value] = field(default_factory=set)
    """Results of loops in the buffer of what a loop around them carries in place."""
    last: dict[ir.Value, int] = field(default_factory=dict)
    """Root value -> its last use, once nothing changes places any more."""

    @property
    def is_far(self) -> bool:
        """True if memory of the target is not the host's own."""
        return has_far_memory(self.func)

    def run(self) -> int:
        body = self.func.regions[0].blocks[0]
        self._number(body, 0)
        self._find_aliases(body)
        self._collect_uses(body)
        self._plan_in_place(body)
        self._plan_updates(body)
        self._claim_results(body)
        self._request(body)
        sizes, scalars, slot_of = self._allocate()
        self._annotate(body, slot_of)
        reuses = donated_reuses(self.func, self.shapes, self)
        if reuses:
            set_reuses(self.func, reuses)
        texts = [ir.StringAttr.get(str(size)) for size in sizes]
        self.func.attributes["disc.arena"] = ir.ArrayAttr.get(texts)
        if scalars:
            set_scalars(self.func, scalars)
        return len(sizes)

    # -- facts ----------------------------------------------------------------------------------

    def _number(self, block: ir.Block, position: int) -> int:
        for view in block.operations:
            op = view.operation
            start = position = position + 1
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        position = self._number(inner, position)
                position += 1
            if len(op.results):
                self.span[op.results[0]] = (start, position)
            elif op.name.endswith("return"):
                self.terminator_span[block] = position
        return position

    def start(self, op: ir.Operation) -> int:
        return self.span[op.results[0]][0]

    def _find_aliases(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name in RESHAPES:
                self.alias[op.results[0]] = op.operands[0]
            elif op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self._find_aliases(inner)
                if op.name == "stablehlo.while":
                    for index in unchanged(op, self.root):
                        self.alias[op.results[index]] = op.operands[index]

    def root(self, value: ir.Value) -> ir.Value:
        """The value whose buffer `value` is."""
        end = value
        while end in self.alias:
            end = self.alias[end]
        while value != end:  # thousands of updates may follow each other
            following, self.alias[value] = self.alias[value], end
            value = following
        return end

    def _collect_uses(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            for value in op.operands:
                root, user = self.root(value), op
                insort(self.uses[root][user.block], self._end(user))
                while user.block != _home(root):
                    user = user.block.owner.operation
                    insort(self.uses[root][user.block], self._end(user))
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self._collect_uses(inner)

    def _end(self, op: ir.Operation) -> int:
        if len(op.results):
            return self.span[op.results[0]][1]
        return self.terminator_span.get(op.block, 0)

    def _own_end(self, root: ir.Value) -> int:
        if isinstance(root.owner, ir.Block):
            return 0
        return self._end(root.owner.operation)

    def changes_operand(self, op: ir.Operation) -> bool:
        """True if the fusion changes a copy of its operand 0, and reads it for nothing else."""
        return _in_place_candidate(op)

    # -- in place -------------------------------------------------------------------------------

    def _plan_in_place(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if _in_place_candidate(op):
                self._try_in_place(op)
            elif (call := ffi_call_of(op)) is not None:
                self._share_aliases(op, call)
            elif op.name in CONTROL:
                if op.name == "stablehlo.while":
                    self._plan_carries(op)
                else:
                    self._try_branches(op)
                for region in op.regions:
                    for inner in region.blocks:
                        self._plan_in_place(inner)

    def _try_in_place(self, op: ir.Operation) -> None:
        """Outside of loop carries: the operand is a fusion's result that dies here."""
        result = op.results[0]
        if result in self.place:
            return
        root = self.root(op.operands[0])
        if self._is_made_by_fusion(root, op.block) and self._dies_at(root, op):
            self._share(result, root)

    def _try_branches(self, op: ir.Operation) -> None:
        """As `_try_in_place`, where branches change the operand."""
        for result in op.results:
            step = None if result in self.place else self._updated_by_branches(result, op)
            if step is not None and self._is_made_by_fusion(step.source, op.block):
                self._share_all([step])

    def _share_aliases(self, op: ir.Operation, call: ir.Operation) -> None:
        """Operands of an FFI call that its handler changes, and that die here: no copies."""
        arguments, given = list(op.regions[0].blocks[0].arguments), region_results(op)
        for operand, number in ffi.aliases(call):
            if call.results[number] not in given or call.operands[operand] not in arguments:
                continue
            result = op.results[given.index(call.results[number])]
            position = arguments.index(call.operands[operand])
            root = self.root(op.operands[position])
            if result in self.place or not self._is_made_by_fusion(root, op.block):
                continue
            if self._dies_at(root, op):
                self._share(result, root, position)

    def _dies_at(self, root: ir.Value, op: ir.Operation) -> bool:
        start = self.start(op)
        return (
            self.is_dead_after(root, start, op.block)
            and sum(self.root(value) == root for value in op.operands) == 1
        )

    def _share(self, result: ir.Value, root: ir.Value, operand: int = 0) -> None:
        self.place[result] = Place(At.INPLACE, operand)
        self._join(result, root)

    def _join(self, value: ir.Value, root: ir.Value) -> None:
        """`value` is in the buffer of `root`, so its uses are uses of that."""
        self.alias[value] = root
        self.held[root] += self.held.pop(value, [])
        for block, added in self.uses.pop(value, {}).items():
            joined = self.uses[root][block]
            joined += added
            joined.sort()  # two runs, which take linear time; mostly in order

    def _plan_carries(self, loop: ir.Operation) -> None:
        body = loop.regions[1].blocks[0]
        same = unchanged(loop, self.root)
        modes: list[Mode] = []
        claimed: set[ir.Value] = set()
        for index, yielded in enumerate(terminator(body).operands):
            argument = body.arguments[index]
            if index in same:
                modes.append(Mode.SAME)
            elif self._carry_in_place(yielded, argument):
                init = self.root(loop.operands[index])
                own = loop.results[index] in self.inherited or self._owned(init, loop)
                modes.append(Mode.INITIAL if own else Mode.COPIED)
            else:
                root = self.root(yielded)
                if self._is_made_by_fusion(root, body) and root not in claimed:
                    claimed.add(root)
                    if root not in self.place:
                        self.place[root] = Place(At.NEXT, index)
                modes.append(Mode.SWAP)
        self.carries[loop.results[0]] = modes
        for index, mode in enumerate(modes):
            if mode == Mode.INITIAL and loop.results[index] not in self.inherited:
                # The loop's result is the initial value's buffer.
                self._join(loop.results[index], self.root(loop.operands[index]))
            elif mode == Mode.SWAP:
                # No iteration: the result is the initial value.
                self.held[self.root(loop.operands[index])].append(loop.results[index])

    def _ends(self, root: ir.Value, block: ir.Block | None = None) -> Iterator[list[int]]:
        """Where the uses of a buffer end: of its value, and of loop results that may be in it.

        After no iteration the result of a loop is its initial value, from loop to loop. Each list
        is in order. They are positions in the block of the value, or in an inner `block`.
        """
        waiting = [root]
        while waiting:  # hundreds of loops may follow each other
            value = waiting.pop()
            where = block or _home(value)
            yield self.uses[value][where]
            for held in self._held(value, where):
                if isinstance(held, int):
                    yield [held]
                else:
                    waiting.append(held)

    def _held(self, root: ir.Value, block: ir.Block) -> Iterator[ir.Value | int]:
        """The buffers of loop results that may be in that of `root`, of loops in `block`; positions
        for those in inner ones.
        """
        for result in self.held[root]:
            loop = result.owner.operation
            if loop.block == block:
                yield self.root(result)
            elif (position := self._position_in(block, loop)) is not None:
                yield position

    def _position_in(self, block: ir.Block, op: ir.Operation) -> int | None:
        """Where the ancestor of `op` in `block` ends, if it has one."""
        while op.block != block:
            op = op.block.owner.operation
            if op == self.func:
                return None
        return self._end(op)

    def is_dead_after(self, root: ir.Value, position: int, block: ir.Block | None = None) -> bool:
        """True if no use of the buffer ends after `position`: in the block of `root`, or in an
        inner `block`.
        """
        return all(not ends or ends[-1] <= position for ends in self._ends(root, block))

    def uses_between(
        self, root: ir.Value, begin: int, end: int, block: ir.Block | None = None
    ) -> int:
        """How many uses of the buffer end at `begin` or later, and before `end`, in the block of
        `root` or in an inner `block`.
        """
        every = self._ends(root, block)
        return sum(bisect_left(ends, end) - bisect_left(ends, begin) for ends in every)

    def last_use(self, root: ir.Value) -> int | None:
        """Where the last use of the buffer ends, as it is planned by now; None without uses."""
        return max((ends[-1] for ends in self._ends(root) if ends), default=None)

    def _final_end(self, root: ir.Value) -> int:
        """As `last_use`, when all is planned: buffers that hold each other are walked once."""
        waiting = [root]
        while waiting:
            value = waiting[-1]
            held = list(self._held(value, _home(value)))
            if missing := [v for v in held if not isinstance(v, int) and v not in self.last]:
                waiting += missing
                continue
            waiting.pop()
            ends = [v if isinstance(v, int) else self.last[v] for v in held]
            ends += self.uses[value][_home(value)][-1:]
            self.last[value] = max([self._own_end(value), *ends])
        return self.last[root]

    def _local(self, root: ir.Value, block: ir.Block) -> bool:
        return not isinstance(root.owner, ir.Block) and root.owner.operation.block == block

    def _is_made_by_fusion(self, root: ir.Value, block: ir.Block) -> bool:
        return self._local(root, block) and root.owner.operation.name == "disc.fusion"

    def _owned(self, init: ir.Value, loop: ir.Operation) -> bool:
        """True if the loop may overwrite its initial value."""
        return (
            self._is_made_by_fusion(init, loop.block)
            and not (init in self.place and self.place[init].at == At.NEXT)
            and self.is_dead_after(init, self._end(loop))
            and sum(self.root(value) == init for value in loop.operands) == 1
            and not self._captured(init, loop)
        )

    def _captured(self, root: ir.Value, loop: ir.Operation) -> bool:
        end = self._end(loop)
        return self.uses_between(root, end, end + 1, loop.block) > 1

    def _carry_in_place(self, yielded: ir.Value, argument: ir.Value) -> bool:
        """True if `yielded` is the carry after updates, each of which finds it dead elsewhere."""
        steps = self._updates(yielded, _home(argument))
        if not steps or steps[-1].source != argument:
            return False
        self._share_all(steps)
        return True

    def _share_all(self, steps: list[_Step]) -> None:
        for step in reversed(steps):
            for inner in step.in_branches:
                self._share_all(inner)
            if step.result.owner.operation.name == "stablehlo.while":
                self.inherited.add(step.result)
                self._join(step.result, self.root(step.source))
            else:
                self._share(step.result, self.root(step.source), step.branch)

    def _updates(self, yielded: ir.Value, block: ir.Block) -> list[_Step]:
        """The updates in `block` that make `yielded`, the last one first, as far as they are in
        place. A loop that updates what it carries is one, and so are branches.
        """
        steps: list[_Step] = []
        value = self.root(yielded)
        while self._local(value, block) and value not in self.place:
            op = value.owner.operation
            if op.name == "stablehlo.while":
                source = self._updated_by_loop(value, op)
                found = None if source is None else _Step(value, source)
            elif op.name in CONTROL:
                found = self._updated_by_branches(value, op)
            elif _in_place_candidate(op) and self._dies_at(self.root(op.operands[0]), op):
                found = _Step(value, self.root(op.operands[0]))
            else:
                found = None
            if found is None:
                break
            steps.append(found)
            value = found.source
        return steps

    def _updated_by_branches(self, value: ir.Value, op: ir.Operation) -> _Step | None:
        """The update that `value`, a result of branches, is where they change in place one array
        that dies here. Some may leave it as it is, or copy another one there.
        """
        index = list(op.results).index(value)
        blocks = [region.blocks[0] for region in op.regions]
        every = [self._updates(terminator(b).operands[index], b) for b in blocks]
        changing = [k for k, steps in enumerate(every) if steps]
        if not changing:
            return None
        source = every[changing[0]][-1].source
        if any(every[k][-1].source != source for k in changing) or any(
            self._local(source, block) for block in blocks
        ):
            return None
        for block, steps in zip(blocks, every, strict=True):
            given = [self.root(v) for v in terminator(block).operands]
            if not steps and given[index] != source and source in given:
                return None  # it is overwritten before it is copied
        if not self.is_dead_after(source, self._end(op), op.block):
            return None
        return _Step(value, source, changing[0], tuple(every[k] for k in changing))

    def _updated_by_loop(self, value: ir.Value, loop: ir.Operation) -> ir.Value | None:
        """What `value`, a result of `loop`, is at first, if the loop changes that in place."""
        index = list(loop.results).index(value)
        body = loop.regions[1].blocks[0]
        source, last = self.root(loop.operands[index]), terminator(body)
        if sum(self.root(v) == source for v in loop.operands) > 1 or self._captured(source, loop):
            return None
        yielded = self.root(last.operands[index])
        if sum(self.root(v) == yielded for v in last.operands) > 1:
            return None  # another carry may claim its buffer
        if not self.is_dead_after(source, self._end(loop), loop.block):
            return None
        steps = self._updates(yielded, body)
        return source if steps and steps[-1].source == body.arguments[index] else None

    def _plan_updates(self, block: ir.Block, loop: ir.Operation | None = None) -> None:
        place_updates(block, loop, self)
        for view in block.operations:
            op = view.operation
            for region in op.regions if op.name in CONTROL else ():
                for inner in region.blocks:
                    is_body = op.name == "stablehlo.while" and inner == op.regions[1].blocks[0]
                    self._plan_updates(inner, op if is_body else None)

    # -- results --------------------------------------------------------------------------------

    def _claim_results(self, block: ir.Block) -> None:
        last = terminator(block)
        for index, value in enumerate(last.operands):
            root = self.root(value)
            if root in self.place:
                continue
            if self._is_made_by_fusion(root, block):
                self.place[root] = Place(At.RESULT, index)
            elif self._local(root, block) and root.owner.operation.name in CONTROL:
                self.place.setdefault(root, Place(At.RESULT, index))
        self._claim_branches(block)

    def _claim_branches(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name not in CONTROL:
                continue
            for region in op.regions:
                for inner in region.blocks:
                    if op.name != "stablehlo.while":
                        last = terminator(inner)
                        for index, value in enumerate(last.operands):
                            root = self.root(value)
                            is_free = self.place.get(op.results[index]) is None or (
                                self.place[op.results[index]].at != At.INPLACE
                            )
                            local = self._is_made_by_fusion(root, inner)
                            if (
                                is_free
                                and local
                                and root not in self.place
                                and root not in self.case_claims
                            ):
                                self.case_claims[root] = (op, index)
                    self._claim_branches(inner)

    # -- arena ----------------------------------------------------------------------------------

    def _request(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "stablehlo.while":
                self._request_carries(op)
            elif op.name == "disc.empty" and not self._only_filled(op):
                self._need(op, 0, op.results[0], self.start(op))
            elif op.name == "disc.fusion" or op.name in CONTROL:
                for index, result in enumerate(op.results):
                    placed = result in self.place or result in self.case_claims
                    if not placed and self.root(result) == result:
                        start, _ = self.span[op.results[0]]
                        self._need(op, index, result, start)
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self._request(inner)

    def _only_filled(self, op: ir.Operation) -> bool:
        """True if the empty array only starts arrays that loops fill in place."""
        users = [use.owner.operation for use in op.results[0].uses]
        return all(
            user.name == "stablehlo.while" and self.carries[user.results[0]][k] == Mode.COPIED
            for user in users
            for k, value in enumerate(user.operands)
            if value == op.results[0]
        )

    def _request_carries(self, loop: ir.Operation) -> None:
        start, _ = self.span[loop.results[0]]
        for index, mode in enumerate(self.carries[loop.results[0]]):
            result = loop.results[index]
            if mode == Mode.SWAP:
                self._need(loop, 2 * index, result, start)
                self._need(loop, 2 * index + 1, result, start)
            elif mode == Mode.COPIED and result not in self.place:
                self._need(loop, 2 * index, result, start)

    def _need(self, op: ir.Operation, key: int, value: ir.Value, start: int) -> None:
        root = self.root(value)
        end = self.last[root] if root in self.last else self._final_end(root)
        on_host = is_on_host(value)
        size = _SCALAR if on_host else value_bytes(value, self.shapes)
        at = At.HOST if on_host else At.SLOT
        self.intervals.append(_Interval(start, end, size, op, key, at))

    def _allocate(self) -> tuple[list[Expr], int, _Slots]:
        """The sizes of the arena's slots, the number of scalars, and the slot of every interval."""
        arenas = {at: Arena(self.shapes.constraints) for at in (At.SLOT, At.HOST)}
        slot_of = {
            (need.owner.results[0], need.key): Place(
                need.at, arenas[need.at].slot(need.start, need.end, need.size)
            )
            for need in sorted(self.intervals, key=lambda i: (i.start, i.key))
        }
        return arenas[At.SLOT].sizes, len(arenas[At.HOST].sizes), slot_of

    # -- output ---------------------------------------------------------------------------------

    def _annotate(self, block: ir.Block, slot_of: _Slots) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "stablehlo.while":
                modes = enumerate(self.carries[op.results[0]])
                set_carries(op, [self._carry(op, k, mode, slot_of) for k, mode in modes])
            elif (op.results[0], 0) in slot_of if op.name == "disc.empty" else False:
                set_places(op, [slot_of[op.results[0], 0]])
            elif op.name == "disc.fusion" or op.name in CONTROL:
                set_places(op, [self._place(op, k, slot_of) for k in range(len(op.results))])
            if op.name in CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self._annotate(inner, slot_of)

    def _carry(self, loop: ir.Operation, index: int, mode: Mode, slot_of: _Slots) -> Carry:
        key = loop.results[0], 2 * index
        if mode == Mode.SWAP:
            return Carry(mode, slots=(slot_of[key], slot_of[loop.results[0], 2 * index + 1]))
        if mode == Mode.COPIED:
            own = self.place.get(loop.results[index])
            return Carry(mode, buffer=slot_of[key] if own is None else own)
        return Carry(mode)

    def _place(self, op: ir.Operation, index: int, slot_of: _Slots) -> Place:
        result = op.results[index]
        if result in self.place:
            return self.place[result]
        if result in self.case_claims:
            branch, position = self.case_claims[result]
            return self._place(branch, position, slot_of)
        return slot_of[op.results[0], index]


def _in_place_candidate(op: ir.Operation) -> bool:
    """True if the fusion changes a copy of its operand 0, and reads it for nothing else."""
    if op.name != "disc.fusion" or not len(op.operands):
        return False
    flags = region_results(op)[1:]
    if not all(is_flag(value.owner.operation) for value in flags):
        return False
    update = update_of(op)
    if update is None:
        return False
    block = op.regions[0].blocks[0]
    changed = block.arguments[0]
    # Also the update or the indices: they would be read after parts of them were overwritten.
    count = sum(value == changed for view in block.operations for value in reads(view.operation))
    return bool(count == 1 and update.operands[0] == changed)


def region_results(fusion: ir.Operation) -> list[ir.Value]:
    """What the region of a fusion gives out, in the order of its results."""
    return list(terminator(fusion.regions[0].blocks[0]).operands)


def _home(value: ir.Value) -> ir.Block:
    """The block that `value` is an argument of, or computed in."""
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block
