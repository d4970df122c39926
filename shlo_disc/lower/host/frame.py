"""What all writers of one host function share: its text, the addresses of values, the arena."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_disc.dynamic.expr import Expr, ceil_div
from shlo_disc.dynamic.memory import value_bytes
from shlo_disc.dynamic.shapes import ShapeAnalysis
from shlo_disc.ir.mlir import ir, ops_of, producer, terminator
from shlo_disc.lower.constants import constant_bytes
from shlo_disc.lower.host.addresses import Addresses
from shlo_disc.lower.host.memory import HostMemory, memory_of
from shlo_disc.lower.host.packs import Origins
from shlo_disc.lower.host.scalars import read_flag
from shlo_disc.lower.host.updates import stored_updates, update_address
from shlo_disc.lower.host.uses import UseRecorder
from shlo_disc.lower.host.writer import HostWriter
from shlo_disc.lower.values.typed import Mask, Pointer, Register
from shlo_disc.passes.op_classes import CONTROL, RESHAPES
from shlo_disc.passes.place import At, Place
from shlo_disc.passes.places import places_of

_SMALL_BYTES = 16
_SMALL_SLOTS = 64
"""Of a program that has loops, so many slots of at most so many bytes are on the stack. LLVM does
not keep longer ones in registers, which kernels read under masks; there, copies take longer."""


def _is_small(size: Expr) -> bool:
    return size.is_const and size.value <= _SMALL_BYTES


def _changed(op: ir.Operation, index: int, place: Place) -> ir.Value:
    """The value in whose buffer result `index` of `op` is; for branches, one from outside."""
    if op.name not in CONTROL:
        return op.operands[place.number]
    block = op.regions[place.number].blocks[0]
    value = terminator(block).operands[index]
    while (source := producer(value)) is not None and source.block == block:
        if source.name in RESHAPES or source.name == "stablehlo.while":
            value = source.operands[list(source.results).index(value)]
        else:
            k = list(source.results).index(value)
            value = _changed(source, k, places_of(source)[k])
    return value


class Frame:
    """The function `run` of a host program while it is written.

    `main`: what it runs. `symbols`: the names in the array of symbols, in order. `slots`: bytes
    of the arena's slots. `scalars`: how many scalars are at home on the host.
    """

    def __init__(
        self,
        main: ir.Operation,
        shapes: ShapeAnalysis,
        memory: HostMemory,
        symbols: Sequence[str],
        slots: Sequence[Expr],
        scalars: int,
    ) -> None:
        self.shapes = shapes
        self.memory = memory
        self.w = w = HostWriter("symbols", symbols, shapes.constraints.is_natural)
        self.pointers = Addresses()
        self.origins = Origins(shapes)
        self.record = UseRecorder(shapes)
        self.next: dict[int, Pointer] = {}
        """Addresses for the next values of the innermost loop, by carry."""
        self.loops = 0
        """Loops around what is written now."""
        self.steps: Expr | None = None
        """How often the innermost loop runs what is written now, if that is known before it."""
        self.arena = w.argument("arena")
        """The memory that a call may use."""
        has_loops = any(ops_of(main, "stablehlo.while"))
        self._small = self._small_slots(slots) if memory.calls_kernels and has_loops else {}
        """Slots on the stack, which LLVM makes registers where no launch is given their address."""
        self.arena_sizes = [
            Expr.const(0) if number in self._small else size for number, size in enumerate(slots)
        ]
        """Bytes of every slot in the arena."""
        self.slots, self.workspace_base = w.blocks(self.arena, w.const(0), self.arena_sizes)
        """The addresses of slots in the arena, and where temporary blocks of kernels begin."""
        self._stored = stored_updates(main)
        self._scalars = w.array(scalars, "i64", "scalars") if scalars else None

    def _small_slots(self, slots: Sequence[Expr]) -> dict[int, Pointer]:
        small = [number for number, size in enumerate(slots) if _is_small(size)]
        return {
            number: self.w.array(ceil_div(slots[number].value, 8), "i64", f"slot {number}")
            for number in small[:_SMALL_SLOTS]
        }

    def is_small(self, place: Place) -> bool:
        """True for a slot on the stack: it is copied, rather than another one used in its turn."""
        return place.at == At.SLOT and place.number in self._small

    def result(self, index: int) -> Pointer:
        """The address of the caller's memory for result `index`."""
        return self.w.pointer(self.w.argument("results"), index)

    def put_results(self, op: ir.Operation) -> None:
        """Results of `op` are where plan-buffers says."""
        for index, (result, place) in enumerate(zip(op.results, places_of(op), strict=True)):
            if place.at == At.INPLACE:
                self.pointers.same(result, _changed(op, index, place))
            elif place.at == At.UPDATE:
                update = self._stored[place.number]
                address = update_address(self.w, self.memory, update, self.pointers, self.shapes)
                self.pointers.put(result, address)
            else:
                self.pointers.put(result, self.place(place))

    def place(self, place: Place) -> Pointer:
        """The address of a place that no operand has."""
        if place.at == At.SLOT:
            return self._small.get(place.number) or self.slots[place.number]
        if place.at == At.HOST:
            assert self._scalars is not None, place
            return self.w.element_address(self._scalars, place.number, "i64")
        if place.at == At.NEXT:
            return self.next[place.number]
        assert place.at == At.RESULT, place
        return self.result(place.number)

    def constant(self, number: int) -> Pointer:
        """Where the host has a constant of at most 64 bits."""
        signed = number - (1 << 64) if number >> 63 else number
        return self.w.sizes_array([Expr.const(signed)])

    def copy(self, destination: Pointer, value: ir.Value) -> None:
        """Copy `value` to `destination`, unless it is there: both are on the host, or neither."""
        source = self.pointers[value]
        if source == destination:
            return
        memory = memory_of(value, self.memory)
        number = self._immediate(value)
        if number is not None:
            memory.write(self.w, number, destination)
        else:
            memory.copy(self.w, destination, source, value_bytes(value, self.shapes))

    def _immediate(self, value: ir.Value) -> Register | None:
        """A small constant as a number: LLVM then knows where a loop begins."""
        op = producer(value)
        while op is not None and op.name in RESHAPES:
            op = producer(op.operands[0])
        if op is None or op.name != "stablehlo.constant" or not self.memory.calls_kernels:
            return None
        data = constant_bytes(op).tobytes()
        if len(data) not in (1, 2, 4, 8):
            return None
        return self.w.const(int.from_bytes(data, "little", signed=True), 8 * len(data))

    def flag(self, value: ir.Value) -> Mask:
        """What `value`, a boolean scalar, is."""
        return read_flag(self.w, memory_of(value, self.memory), self.pointers[value])

    def number(self, value: ir.Value) -> Register:
        """What `value`, an i32 scalar, is."""
        return memory_of(value, self.memory).read(self.w, self.pointers[value], 32, "number")
