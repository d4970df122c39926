"""A device for tests: memory the host cannot reach, and a stream that runs behind the host program.

Addresses a host program is given are FAR away from where the bytes are, so that a load or a store
of its own would fault. Operations are noted in order and done when a value is read, or at the end.
Scalars by value are taken when a launch is noted, as drivers do. The kernels are the CPU's.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shlo_disc.base import flags
from shlo_disc.driver.replan import Replanning
from shlo_disc.driver.stages import main_function
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.program import ShapeProgram
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.executables.signature import dtype_of
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context, ops_of, producer, terminator
from shlo_disc.ir.pipeline import PassLog
from shlo_disc.lower.cpu import codegen
from shlo_disc.lower.cpu.model import MODEL
from shlo_disc.lower.gpu.host_memory import GpuMemory
from shlo_disc.lower.host.memory import HostMemory
from shlo_disc.lower.host.program import emit_host
from shlo_disc.lower.host.record import HostProgram
from shlo_disc.lower.host.writer import (
    FAILED,
    FOREIGN,
    GPU_COPY,
    GPU_LAUNCH,
    GPU_READ,
    GPU_WRITE,
    GPU_ZERO,
)
from shlo_disc.lower.plan import Kernel
from shlo_disc.lower.refused import Refused
from shlo_disc.lower.target import Emitter, Target, parse
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP, planning
from tests.lower.helpers import launches

FAR = 1 << 56
FIELDS = 32
MOST_AFTER_FAILURE = 100
"""Operations after which a read no longer gives 0: a loop that waits for another number ends."""
WITH_SCRATCH = 16
"""Field of the test's context for launches that no GPU has, behind those of `disc_context`."""

FAR_MODEL = replace(MODEL, capabilities=replace(MODEL.capabilities, shares_memory=False))
"""Of a machine with the CPU's kernels and a memory of its own."""

OPERANDS = {WITH_SCRATCH: 8, GPU_LAUNCH: 5, GPU_COPY: 4, GPU_ZERO: 3, GPU_READ: 3, GPU_WRITE: 4}


class StreamMemory(GpuMemory):
    """That of a GPU, whose kernels may call others and have scratch memory."""

    def launch(self, w, launch, kernel, arguments, sizes):
        if not launch.called and launch.scratch_bytes == 0:
            super().launch(w, launch, kernel, arguments, sizes)
            return
        kernels = sum(isinstance(arg, Kernel) << k for k, arg in enumerate(launch.args))
        counts = [w.const(n) for n in (kernels, len(launch.args), len(launch.params))]
        rest = w.size(launch.extent), w.size(launch.scratch_bytes)
        w.call(w.context(WITH_SCRATCH), kernel, arguments, *counts[:2], sizes, counts[2], *rest)


@dataclass
class Emitted:
    """A host program of a StableHLO text, for some memory."""

    host: HostProgram
    program: ShapeProgram
    dtypes: list[np.dtype[Any]]
    """Of the results."""


def emitted(
    text: str,
    memory: HostMemory | None = None,
    emitters: Mapping[str, Emitter] | None = None,
) -> Emitted:
    """The host program of `text` for `memory` (None: the CPU's) and the kernels of the CPU, or of
    other `emitters`: what these refuse is planned again.
    """
    target: Target = parse("cpu")
    model = MODEL if memory is None else FAR_MODEL
    target = replace(
        target, memory=memory or target.memory, emitters=emitters or target.emitters, model=model
    )
    module = ingest(text, new_context())
    with module.context, ir.Location.unknown(), flags.overridden(spec=1, split=1):
        known = KnownShapes(module)
        log = PassLog()
        Pipeline([*CLEANUP, *planning(model)]).run(module, known, log)
        main = main_function(module)
        block = main.regions[0].blocks[0]
        names = [f"args[{k}]" for k in range(len(block.arguments))]
        replanning = Replanning(module, main, model, log)
        while True:
            shapes = known.now()
            program = shape_program(main, shapes, names)
            try:
                host = emit_host(main, shapes, program, target)
                break
            except Refused as refused:
                replanning.split(refused, known)
        last = block.operations[len(block.operations) - 1].operation
        kinds = [ir.RankedTensorType(value.type) for value in last.operands]
        return Emitted(host, program, [dtype_of(str(kind.element_type)) for kind in kinds])


def reached(text: str) -> list[str]:
    """The operations of a host program that themselves touch memory of values.

    The host's own memory: what `run` is given but the arena, arrays on the stack, and the tables
    in the context.
    """
    found = []
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        for run in ops_of(module, "func.func"):
            for op in ops_of(run, *_ADDRESSES):
                addresses = (op.operands[k] for k in _ADDRESSES[op.name])
                if not all(_is_own(address, run) for address in addresses):
                    found.append(str(op))
    return found


_ADDRESSES = {
    "llvm.intr.memcpy": (0, 1),
    "llvm.intr.memset": (0,),
    "llvm.load": (0,),
    "llvm.store": (1,),
}
"""Operations that touch memory, and which operands are addresses."""


def _is_own(address: ir.Value, run: ir.Operation) -> bool:
    op = producer(address)
    if op is None or op.name == "scf.while":
        return _is_own_in_loop(address, run)
    if op.name == "llvm.getelementptr":
        return _is_own(op.operands[0], run)
    if op.name == "llvm.load":
        base = producer(op.operands[0])
        return base is not None and base.operands[0] == run.regions[0].blocks[0].arguments[0]
    return op.name == "llvm.alloca"


def _is_own_in_loop(address: ir.Value, run: ir.Operation) -> bool:
    """The same of a value that loops carry: every value it may be."""
    waiting, seen = [address], {address}
    while waiting:
        value = waiting.pop()
        op = producer(value)
        if op is None:
            around = value.owner.owner.operation
            if around == run:
                given = list(run.regions[0].blocks[0].arguments)
                arena = given[4:] if run.attributes["sym_name"].value == "run" else []
                if value in arena:
                    return False
                continue
            number = ir.BlockArgument(value).arg_number
            if value.owner == around.regions[0].blocks[0]:
                sources = [around.operands[number], _last(around, 1).operands[number]]
            else:
                sources = [_last(around, 0).operands[1 + number]]
        elif op.name == "scf.while":
            sources = [_last(op, 0).operands[1 + ir.OpResult(value).result_number]]
        elif not _is_own(value, run):
            return False
        else:
            continue
        waiting += [source for source in sources if source not in seen]
        seen.update(sources)
    return True


def _last(loop: ir.Operation, region: int) -> ir.Operation:
    return terminator(loop.regions[region].blocks[0])


class Stream:
    """Runs a program on a device; `done` counts its operations.

    `handler` is what calls of FFI handlers do, with addresses. After `operations` of them all fail.
    """

    def __init__(
        self, handler: Callable[[list[int]], object] | None = None, operations: int | None = None
    ) -> None:
        self.done: Counter[str] = Counter()
        self._handler = handler
        self._left = operations
        self._waiting: list[Callable[[], object]] = []
        self._kept: list[Any] = []

    def run(self, made: Emitted, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of the program on `arguments`."""
        self._made = made
        assert reached(made.host.text) == []
        prepare, run = codegen.compile_host(made.host.text)
        kernels = codegen.compile_functions([kernel.text for kernel in made.host.kernels])
        texts = {
            kernel.text: code.address
            for kernel, code in zip(made.host.kernels, kernels, strict=True)
        }
        self._counts = {
            texts[step.kernel.text]: (len(step.args), len(step.params))
            for use in made.host.uses
            for step in launches(use.plan.steps)
            if step.kernel.text in texts  # a copy that the buffer planner saved is not
        }
        sizes, shapes = made.program.evaluate([a.shape for a in arguments], [])
        symbols = self._words(sizes[name] for name in made.program.symbol_names)
        given = self._words(size for a in arguments for size in a.shape)
        result_sizes = self._words([0] * sum(map(len, shapes)))
        bytes_ = self._words([0])
        call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)(prepare.address)
        assert call(*map(ctypes.addressof, (given, symbols, result_sizes, bytes_))) == 0
        results = [np.empty(s, d) for s, d in zip(shapes, made.dtypes, strict=True)]
        context = self._words(
            [0] * 4
            + [self._table(kernel.address for kernel in kernels)]
            + [self._table(self._far(constant) for constant in made.host.constants)]
            + [0] * (FIELDS - 6)
        )
        self._context = context
        self._offer(context)
        tables = [self._table(map(self._far, some)) for some in (arguments, results)]
        arena = np.full(bytes_[0] + 64, 0xA5, np.uint8)
        start = -arena.ctypes.data % 64
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(run.address)
        call(
            ctypes.addressof(context),
            *tables,
            ctypes.addressof(symbols),
            self._far(arena[start:]),
        )
        self._wait()
        return results

    def _words(self, values: Any) -> Any:
        values = list(values)
        array = (ctypes.c_int64 * max(1, len(values)))(*values)
        self._kept.append(array)
        return array

    def _table(self, values: Any) -> int:
        return ctypes.addressof(self._words(values))

    def _far(self, array: np.ndarray) -> int:
        self._kept.append(array)
        return array.ctypes.data + FAR

    def _wait(self) -> None:
        for operation in self._waiting:
            operation()
        self._waiting.clear()

    def _offer(self, context: Any) -> None:
        functions = {
            WITH_SCRATCH: self._launch,
            GPU_LAUNCH: self._launch_plainly,
            GPU_COPY: self._copy,
            GPU_ZERO: self._zero,
            GPU_READ: self._read,
            GPU_WRITE: self._write,
        }
        for field, function in functions.items():
            result = ctypes.c_int64 if field == GPU_READ else None
            made = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * OPERANDS[field])(function)
            self._kept.append(made)
            context[field] = ctypes.cast(made, ctypes.c_void_p).value
        packed = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 6)(self._packed)
        done = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(lambda *_: None)
        foreign = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self._foreign)
        self._kept += [packed, done, foreign]
        context[2], context[3], context[FOREIGN] = (
            ctypes.cast(f, ctypes.c_void_p).value for f in (packed, done, foreign)
        )

    def _goes_on(self) -> bool:
        """True if the next operation is done: no earlier one failed."""
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._context[FAILED] = 1
                self.done["after a failure"] += 1
        return not self._context[FAILED]

    def _note(self, name: str, operation: Callable[[], object]) -> None:
        if self._goes_on():
            self.done[name] += 1
            self._waiting.append(operation)

    def _foreign(self, context: int, call: int, buffers: int, sizes: int) -> None:
        assert self._handler is not None
        count = len(self._made.host.foreign[call][0].elements)
        words = [*(ctypes.c_int64 * count).from_address(buffers)]
        handler = self._handler
        self._note("call", lambda: handler([word - FAR for word in words]))

    def _launch_plainly(
        self, context: int, kernel: int, arguments: int, sizes: int, tasks: int
    ) -> None:
        count, params = self._counts[kernel]
        self._launch(kernel, arguments, 0, count, sizes, params, tasks, 0)

    def _launch(
        self,
        kernel: int,
        arguments: int,
        kernels: int,
        count: int,
        sizes: int,
        params: int,
        extent: int,
        scratch: int,
    ) -> None:
        words = (ctypes.c_int64 * count).from_address(arguments)
        near = [w if kernels >> k & 1 else self._argument(w) for k, w in enumerate(words)]
        given, room = self._table(near), np.empty(scratch + 64, np.uint8)
        own = self._table((ctypes.c_int64 * params).from_address(sizes))
        self._kept.append(room)
        start = room.ctypes.data + -room.ctypes.data % 64
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        function = ctypes.CFUNCTYPE(None, *types)(kernel)
        self._note("launch", lambda: extent > 0 and function(given, own, 0, extent, start))

    def _argument(self, address: int) -> int:
        """Where a kernel finds an argument: a scalar by value is as it is now."""
        if address >= FAR:
            return address - FAR
        self.done["by value"] += 1
        return self._table([ctypes.c_int64.from_address(address).value])

    def _copy(self, context: int, destination: int, source: int, count: int) -> None:
        self._note("copy", lambda: ctypes.memmove(destination - FAR, source - FAR, count))

    def _zero(self, context: int, address: int, count: int) -> None:
        self._note("zero", lambda: ctypes.memset(address - FAR, 0, count))

    def _read(self, context: int, address: int, count: int) -> int:
        if not self._goes_on():
            return 0 if self.done["after a failure"] < MOST_AFTER_FAILURE else -1
        self.done["read"] += 1
        self._wait()
        return int.from_bytes(ctypes.string_at(address - FAR, count), "little")

    def _write(self, context: int, address: int, value: int, count: int) -> None:
        data = value.to_bytes(8, "little", signed=True)
        self._note("write", lambda: ctypes.memmove(address - FAR, data, count))

    def _packed(
        self, context: int, argument: int, slot: int, count: int, params: int, out: int
    ) -> int:
        """A copy that the caller fills, on every call."""
        self.done["pack"] += 1
        room = np.empty(count + 64, np.uint8)
        self._kept.append(room)
        address = room.ctypes.data + -room.ctypes.data % 64 + FAR
        ctypes.c_int64.from_address(out).value = address
        return 2
