"""The text of one kernel while it is written: `TextBuilder` with sizes and memory.

Emitters handle typed values (`typed.py`); only this module, `text.py` and `typed.py` know MLIR's
syntax. Equal kernels have equal texts and are compiled once.

    b = KernelBuilder()
    x, y, n = b.memref(0, "f32"), b.memref(1, "f32"), b.param(size)
    with b.loop(b.lo, b.hi) as task:
        with b.loop(0, n, 1, init=[zero], hint="j") as col:
            col.yield_(col.args[0] + x.load(task.index * n + col.index))
        y.store(col.results[0], task.index)
    text, params = b.finish()
"""

from __future__ import annotations

from typing import ClassVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.plan import SIGNATURE, KernelText
from shlo_disc.lower.values.text import TextBuilder, indented
from shlo_disc.lower.values.typed import (
    IndexLike,
    IndexValue,
    Mask,
    MemRef,
    Pointer,
    Register,
    Value,
    memref_type,
    vector_type,
)


class KernelBuilder(TextBuilder):
    """A kernel function under construction; see the module's example."""

    one_task: ClassVar[bool] = False
    """A call of the function computes at most one task, the first one."""
    descriptor: ClassVar[str] = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"
    """The type that a memref is lowered to: pointers, then an offset, a size and a stride."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes = ""
        """What MLIR's text has behind the signature of the function."""
        self._params: dict[Expr, IndexValue] = {}
        self._pointers: dict[int, Pointer] = {}
        self._starts: dict[str, Pointer] = {}
        """Where memory begins, by the name of its memref."""
        self.args = Pointer(self, "%args", "!llvm.ptr", 0)
        """The array of pointers to the kernel's arrays."""
        self.params = Pointer(self, "%params", "!llvm.ptr", 0)
        """The array of sizes, i64."""
        self._scratch = Pointer(self, "%scratch", "!llvm.ptr", 0)
        self.signature = SIGNATURE
        """The type of the function, its name `KERNEL` and those of its parameters."""
        self.lo = self._enter(IndexValue, "lo_", "arith.index_cast %lo : i64 to index", "index")
        """The first task, as index."""
        self.hi = self._enter(IndexValue, "hi_", "arith.index_cast %hi : i64 to index", "index")
        """One past the last task, as index."""

    # ---------------------------------------------------------------- memory

    def param(self, size: Expr | int, opaque: bool = False) -> IndexValue:
        """A symbolic size as index: a kernel parameter, or a constant when it is one.

        `opaque` makes a constant a parameter too: as the bound of a loop it would be unrolled
        fully, which costs more compile time than it saves.
        """
        if isinstance(size, int):
            size = Expr.const(size)
        if size.is_const and not opaque:
            return self.index(size.value)
        if size not in self._params:
            self._params[size] = self._load_param(len(self._params))
        return self._params[size]

    def _load_param(self, number: int) -> IndexValue:
        right = f"llvm.getelementptr %params[{number}] : (!llvm.ptr) -> !llvm.ptr, i64"
        at = self._enter(Pointer, "p", right, "!llvm.ptr")
        raw = self._enter(Register, "n", f"llvm.load {at} : !llvm.ptr -> i64", "i64")
        return self._enter(IndexValue, "n", f"arith.index_cast {raw} : i64 to index", "index")

    def pointer(self, arg: int) -> Pointer:
        """The data pointer of launch argument `arg`."""
        if arg not in self._pointers:
            at = self.args
            if arg:
                right = f"llvm.getelementptr %args[{arg}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
                at = self._enter(Pointer, "p", right, "!llvm.ptr")
            right = f"llvm.load {at} : !llvm.ptr -> !llvm.ptr"
            self._pointers[arg] = self._enter(Pointer, "p", right, "!llvm.ptr")
        return self._pointers[arg]

    def memref(self, arg: int, element: str) -> MemRef:
        """Launch argument `arg` as `memref<?xELEMENT>`."""
        return self.memref_at(self.pointer(arg), element)

    def scratch(self, element: str, offset_bytes: IndexLike = 0) -> MemRef:
        """The worker's scratch memory from `offset_bytes` on, as `memref<?xELEMENT>`."""
        offset = self.index(offset_bytes)
        if offset.known == 0:
            return self.memref_at(self._scratch, element)
        return self.memref_at(self.place(self._scratch, offset, "i8"), element)

    def place(self, array: Pointer, index: IndexLike, element: str) -> Pointer:
        """Where element `index` of `array` is; `element` is the LLVM type of its elements."""
        raw = self.cast("arith.index_cast", self.index(index), "i64")
        right = f"llvm.getelementptr {array}[{raw}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}"
        return self.define(Pointer, right, "!llvm.ptr", [array, raw])

    def memref_at(self, pointer: Pointer, element: str) -> MemRef:
        """The memory from `pointer` on as `memref<?xELEMENT>` (its size is never asked for)."""
        type_ = memref_type(element)
        struct, one = self.descriptor, self._raw_constant(1)
        value = self.define(Value, f"llvm.mlir.poison : {struct}", struct, [])
        fields: list[tuple[str, Value]] = [
            ("0", pointer), ("1", pointer), ("2", self._raw_constant(0)), ("3, 0", one),
        ]  # fmt: skip
        for place, part in [*fields, ("4, 0", one)]:
            right = f"llvm.insertvalue {part}, {value}[{place}] : {struct}"
            value = self.define(Value, right, struct, [part, value])
        right = f"builtin.unrealized_conversion_cast {value} : {struct} to {type_}"
        memory = self.define(MemRef, right, type_, [value], hint="m")
        self._starts[memory.name] = pointer
        return memory

    def _raw_constant(self, value: int) -> Register:
        return self.define(Register, f"llvm.mlir.constant({value} : i64) : i64", "i64", [])

    def load(self, memory: MemRef, index: IndexLike, readonly: bool = True) -> Register:
        """One element. `readonly`: nothing in this kernel writes it, so the load may move."""
        index = self.index(index)
        right = f"memref.load {memory}[{index}] : {memory.type}"
        return self.define(Register, right, memory.element, [memory, index], pure=readonly)

    def place_in(self, memory: MemRef, index: IndexLike) -> Pointer:
        """Where an element of `memory` is.

        Loops that read rows from there on keep one address a row, without any arithmetic. LLVM does
        not know how it is computed: looking for better sums took a third of the time to compile
        such a loop.
        """
        start = self.place(self._starts[memory.name], index, memory.element)
        return self.define(Pointer, f"llvm.freeze {start} : {start.type}", start.type, [start])

    def load_at(
        self, place: Pointer, index: IndexLike, element: str, lanes: int = 0, readonly: bool = True
    ) -> Register:
        """Element `index` of those from `place` on, as :meth:`load`, or a vector of `lanes`."""
        at = self.place(place, index, element)
        type_, told = element, ""
        if lanes:
            whole = max(1, Register(self, "", element, 0).element_bits // 8)
            type_, told = vector_type(lanes, element), f" {{alignment = {whole} : i64}}"
        right = f"llvm.load {at}{told} : !llvm.ptr -> {type_}"
        return self.define(Register, right, type_, [at], pure=readonly)

    def load_if(self, mask: Mask, memory: MemRef, index: IndexValue, size: int) -> Register:
        """One element of `size` bytes where the scalar `mask`, else anything; the load may move.

        Memory is not touched where `mask` is false: the arguments of the kernel are read there.
        """
        right = f"memref.extract_aligned_pointer_as_index {memory} : {memory.type} -> index"
        whole = self.define(IndexValue, right, "index", [memory])
        address = whole + index * size
        right = "llvm.ptrtoint %args : !llvm.ptr to i64"
        spare = self.define(Register, right, "i64", [self.args])
        raw = self.select(mask, self.cast("arith.index_cast", address, "i64"), spare)
        right = f"llvm.inttoptr {raw} : i64 to !llvm.ptr"
        pointer = self.define(Pointer, right, "!llvm.ptr", [raw])
        right = f"llvm.load {pointer} : !llvm.ptr -> {memory.element}"
        return self.define(Register, right, memory.element, [pointer])

    def store(self, value: Register, memory: MemRef, index: IndexLike) -> None:
        """Write one element."""
        self.emit(f"memref.store {value}, {memory}[{self.index(index)}] : {memory.type}")

    def alignment(self, lanes: int, element: str) -> str:
        """What tells MLIR that a vector lies at a multiple of its size; nothing where that is not
        worth a word.
        """
        return ""

    def vector_load(
        self,
        memory: MemRef,
        index: IndexLike,
        lanes: int,
        readonly: bool = True,
        aligned: bool = False,
    ) -> Register:
        """`lanes` consecutive elements; `aligned`: the index is a multiple of `lanes`, of an array
        that begins at a multiple of 16 bytes.
        """
        index, vector = self.index(index), vector_type(lanes, memory.element)
        told = self.alignment(lanes, memory.element) if aligned else ""
        right = f"vector.load {memory}[{index}]{told} : {memory.type}, {vector}"
        return self.define(Register, right, vector, [memory, index], pure=readonly)

    def vector_store(
        self, value: Register, memory: MemRef, index: IndexLike, aligned: bool = False
    ) -> None:
        """Write consecutive elements; `aligned`: see :meth:`vector_load`."""
        types = f"{memory.type}, {value.type}"
        told = self.alignment(value.lanes, memory.element) if aligned else ""
        self.emit(f"vector.store {value}, {memory}[{self.index(index)}]{told} : {types}")

    def prefetch(self, memory: MemRef, index: IndexLike) -> None:
        """Ask for an element's cache line in L2; the index may be out of bounds."""
        at = f"{memory}[{self.index(index)}]"
        self.emit(f"memref.prefetch {at}, read, locality<2>, data : {memory.type}")

    def masked_load(
        self, memory: MemRef, index: IndexLike, mask: Mask, other: Register, readonly: bool = True
    ) -> Register:
        """Consecutive elements where `mask`, lanes of `other` elsewhere (memory not touched)."""
        index, vector = self.index(index), other.type
        right = (
            f"vector.maskedload {memory}[{index}], {mask}, {other} : "
            f"{memory.type}, {mask.type}, {vector} into {vector}"
        )
        operands = [memory, index, mask, other]
        return self.define(Register, right, vector, operands, pure=readonly)

    def masked_store(self, value: Register, memory: MemRef, index: IndexLike, mask: Mask) -> None:
        """Write consecutive elements where `mask`."""
        types = f"{memory.type}, {mask.type}, {value.type}"
        self.emit(f"vector.maskedstore {memory}[{self.index(index)}], {mask}, {value} : {types}")

    def gather(
        self,
        memory: MemRef,
        index: IndexLike,
        offsets: IndexValue | Register,
        mask: Mask,
        other: Register,
        readonly: bool = True,
    ) -> Register:
        """Elements at `index + offsets` (lanes of index or iN) where `mask`, else `other`."""
        index, vector = self.index(index), other.type
        right = (
            f"vector.gather {memory}[{index}] [{offsets}], {mask}, {other} : "
            f"{memory.type}, {offsets.type}, {mask.type}, {vector} into {vector}"
        )
        operands = [memory, index, offsets, mask, other]
        return self.define(Register, right, vector, operands, pure=readonly)

    def scatter(
        self, value: Register, memory: MemRef, index: IndexLike, offsets: IndexValue, mask: Mask
    ) -> None:
        """Write lanes at `index + offsets` where `mask`, in lane order."""
        types = f"{memory.type}, {offsets.type}, {mask.type}, {value.type}"
        at = f"{memory}[{self.index(index)}] [{offsets}]"
        self.emit(f"vector.scatter {at}, {mask}, {value} : {types}")

    def mask(self, count: IndexLike, lanes: int) -> Mask:
        """True in the first `count` lanes."""
        count = self.index(count)
        if count.known is not None:
            return self.dense_mask([lane < count.known for lane in range(lanes)])
        # Not `vector.create_mask`, which needs a pass that looks at everything else, too.
        number = self.cast("arith.index_cast", self.min(count, lanes), "i32")
        return self.dense(range(lanes), "i32") < self.broadcast(number, lanes)

    def iota(self, lanes: int) -> IndexValue:
        """0, 1, 2, ... lane by lane."""
        return self.dense_index(range(lanes))

    # ---------------------------------------------------------------- the end

    def finish(self) -> tuple[KernelText, tuple[Expr, ...]]:
        """The text of the function, and the sizes it expects as params, in order. Nothing can be
        written afterwards.
        """
        if len(self._regions) != 1:
            raise ValueError("a region is still open")
        lines = [*self.opening(), *self._entry, *self._regions[0].lines]
        self.forget()
        return self.source("\n".join(indented(lines))), tuple(self._params)

    def opening(self) -> list[str]:
        """The lines that define what the parameters of the function do not: of %args, %params, %lo,
        %hi and %scratch.
        """
        return []

    def source(self, body: str) -> KernelText:
        """The function with the lines `body`.

        A target whose kernels are called otherwise (see `plan.Kernel`) overrides this.
        """
        return f"{self.signature}{self.attributes} {{\n{body}\n  return\n}}\n"
