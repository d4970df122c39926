"""An interpreter of PTX: the threads of a launch are lanes of NumPy arrays.

Threads that have diverged wait for those at earlier instructions (LLVM lays out joins behind what
they join). Every access is checked: bounds, alignment, and writes to what may only be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tests.ptx.arithmetic import COMPARISONS, FUNCTIONS, converted, dtype_of, multiplied
from tests.ptx.parser import Instruction, Kernel, parse

__all__ = ["PtxFault", "launch"]

BLOCK = 32
"""Threads of a block."""
_SHIFT = 40
"""Every array lies at a multiple of 2^40, so no access of one can reach another."""
_ROUNDINGS = {"rn", "uni"}
_CARRIES = {"addc", "subc", "madc"}


class PtxFault(Exception):
    """A thread reads or writes what is not its own."""


class _Memory:
    """Arrays at addresses."""

    def __init__(self) -> None:
        self._bytes: list[np.ndarray] = []
        self._sizes: list[int] = []
        self._writable: list[bool] = []

    def place(self, content: np.ndarray, writable: bool) -> int:
        """The address of a copy of `content`."""
        raw = np.frombuffer(np.ascontiguousarray(content).tobytes(), np.uint8)
        self._bytes.append(np.concatenate([raw, np.zeros(-len(raw) % 8, np.uint8)]))
        self._sizes.append(len(raw))
        self._writable.append(writable)
        return len(self._bytes) << _SHIFT

    def content(self, address: int, size: int) -> bytes:
        """The first `size` bytes of an array."""
        return self._bytes[(address >> _SHIFT) - 1][:size].tobytes()

    def _find(self, address: np.ndarray, size: int) -> tuple[int, np.ndarray]:
        """The array that all addresses are in, and the numbers of its elements of `size` bytes."""
        number = int(address[0] >> np.uint64(_SHIFT)) - 1
        if not 0 <= number < len(self._bytes):
            raise PtxFault(f"an access at {int(address[0]):#x}, where nothing is")
        offset = address - np.uint64((number + 1) << _SHIFT)
        if (offset + np.uint64(size) > self._sizes[number]).any():
            raise PtxFault(f"an access behind the {self._sizes[number]} bytes of an array")
        if (offset % np.uint64(size)).any():
            raise PtxFault(f"an access of {size} bytes that is not aligned")
        return number, (offset // np.uint64(size)).astype(np.int64)

    def load(self, address: np.ndarray, size: int) -> np.ndarray:
        """An unsigned integer of `size` bytes from every address."""
        out = np.empty(len(address), f"u{size}")
        arrays = address >> np.uint64(_SHIFT)
        for one in np.unique(arrays):
            lanes = arrays == one
            number, at = self._find(address[lanes], size)
            out[lanes] = self._bytes[number].view(f"u{size}")[at]
        return out

    def store(self, address: np.ndarray, value: np.ndarray) -> None:
        """Write an unsigned integer to every address."""
        arrays = address >> np.uint64(_SHIFT)
        for one in np.unique(arrays):
            lanes = arrays == one
            number, at = self._find(address[lanes], value.itemsize)
            if not self._writable[number]:
                raise PtxFault("a write to an array that may only be read")
            self._bytes[number].view(value.dtype)[at] = value[lanes]


def launch(
    text: str,
    tasks: int,
    arguments: Sequence[np.ndarray],
    writable: Sequence[bool],
    params: Sequence[int],
) -> list[np.ndarray]:
    """The contents of `arguments` after a launch of the kernel in `text`, one thread a task.

    The kernel is called as `PtxBuilder` says. Raises PtxFault, and NotImplementedError for an
    instruction that the interpreter does not know.
    """
    memory = _Memory()
    places = [memory.place(a, w) for a, w in zip(arguments, writable, strict=True)]
    # A task's guard must hold where a thread has no task: there is always a thread too many.
    threads = (tasks // BLOCK + 1) * BLOCK
    # One element more: a load for all lanes of a mask that is off reads any valid address.
    pointers = memory.place(np.array([*places, 0], np.uint64), writable=False)
    sizes = memory.place(np.array([*params, 0], np.int64), writable=False)
    kernel = parse(text)
    with np.errstate(all="ignore"):
        _Threads(kernel, threads, memory, [pointers, sizes, tasks]).run()
    return [
        np.frombuffer(memory.content(place, a.nbytes), a.dtype).reshape(a.shape)
        for place, a in zip(places, arguments, strict=True)
    ]


class _Threads:
    """The state of all threads of a launch."""

    def __init__(self, kernel: Kernel, count: int, memory: _Memory, values: Sequence[int]) -> None:
        self.kernel, self.count, self.memory = kernel, count, memory
        self.registers = {
            name: np.zeros(count, bool if bits == 1 else f"u{bits // 8}")
            for name, bits in kernel.registers.items()
        }
        self.at = np.zeros(count, np.int64)
        """The next instruction of every thread."""
        self.carry = np.zeros(count, bool)
        self.lanes: np.ndarray | slice = slice(None)
        """The threads that run the current instruction."""
        number = np.arange(count, dtype=np.uint32)
        self.special = {
            "%tid.x": number % BLOCK,
            "%ctaid.x": number // BLOCK,
            "%ntid.x": np.full(count, BLOCK, np.uint32),
        }
        self.parameters = {
            name: np.full(count, value, f"u{size}")
            for (name, size), value in zip(kernel.parameters, values, strict=True)
        }
        self.symbols = {}
        for name, variable in kernel.variables.items():
            content = np.zeros(variable.bytes, np.uint8)
            content[: len(variable.initial)] = variable.initial
            if variable.space == "local":
                first = memory.place(np.tile(content, count), writable=True)
                step = np.arange(count, dtype=np.uint64) * np.uint64(variable.bytes)
                self.symbols[name] = np.uint64(first) + step
            else:
                first = memory.place(content, writable=False)
                self.symbols[name] = np.full(count, first, np.uint64)

    def run(self) -> None:
        """Run every thread to its end."""
        end = len(self.kernel.code)
        joins = sorted({*self.kernel.labels.values(), end})
        while (here := int(self.at.min())) < end:
            running = np.flatnonzero(self.at == here)
            # Threads that wait further on are joined where a label is, never in between.
            stop = next(join for join in joins if join > here)
            self._run_block(running, here, stop)

    def _run_block(self, running: np.ndarray, here: int, stop: int) -> None:
        for number in range(here, stop):
            instruction = self.kernel.code[number]
            chosen = running
            if instruction.guard:
                on = self.registers[instruction.guard][running] ^ instruction.unless
                chosen = running[on]
            if instruction.name in ("bra", "ret"):
                is_ret = instruction.name == "ret"
                to = len(self.kernel.code) if is_ret else self._label(instruction)
                self.at[chosen] = to
                running = np.setdiff1d(running, chosen, assume_unique=True)
                if not len(running):
                    return
            elif len(chosen):
                self.lanes = slice(None) if len(chosen) == self.count else chosen
                self._execute(instruction)
        self.at[running] = stop

    def _label(self, instruction: Instruction) -> int:
        return self.kernel.labels[instruction.operands[-1]]

    # ---------------------------------------------------------------- operands

    def _value(self, text: str, type_: str) -> np.ndarray:
        """An operand as an array of the PTX type `type_`."""
        dtype = dtype_of(type_)
        if text in self.registers:
            raw = self.registers[text][self.lanes]
        elif text in self.special:
            raw = self.special[text][self.lanes]
        elif text in self.symbols:
            raw = self.symbols[text][self.lanes]
        else:
            return np.full(self._active(), _literal(text, dtype), dtype)
        if dtype.kind == "b":
            return raw.astype(bool)
        return raw.astype(f"u{dtype.itemsize}").view(dtype)

    def _active(self) -> int:
        return self.count if isinstance(self.lanes, slice) else len(self.lanes)

    def _set(self, name: str, value: np.ndarray) -> None:
        """Write a register; a narrower integer is extended as its sign says."""
        register = self.registers[name]
        if value.dtype.kind == "f":
            value = value.view(f"u{value.itemsize}")
        register[self.lanes] = value.astype(register.dtype)

    # ---------------------------------------------------------------- instructions

    def _execute(self, i: Instruction) -> None:
        mods = [mod for mod in i.mods if mod not in _ROUNDINGS]
        if i.name in ("ld", "st"):
            self._access(i)
        elif i.name == "setp":
            (compare,) = mods
            args = [self._value(o, i.types[0]) for o in i.operands[1:]]
            self._set(i.operands[0], COMPARISONS[compare](*args))
        elif i.name == "cvt":
            to, source = i.types
            self._set(i.operands[0], converted(self._value(i.operands[1], source), to, i.mods))
        elif i.name == "mov" and "{" in i.text:
            self._move_parts(i)
        elif "cc" in mods or i.name in _CARRIES:
            self._with_carry(i, mods)
        elif i.name in ("mul", "mad") and i.types[0][0] != "f":
            (form,) = mods
            x, y = (self._value(o, i.types[0]) for o in i.operands[1:3])
            product = multiplied(x, y, form)
            if i.name == "mad":
                kind = i.types[0][0] + str(8 * product.itemsize)
                product = product + self._value(i.operands[3], kind)
            self._set(i.operands[0], product)
        else:
            self._function(i, mods)

    def _function(self, i: Instruction, mods: list[str]) -> None:
        (type_,) = i.types
        name = i.name
        if name == "cvta":  # all spaces share one range of addresses
            mods = []
        function = FUNCTIONS.get(".".join([name, *mods]))
        if function is None:
            raise NotImplementedError(i.text)
        if type_[0] == "f" and name in _MUST_ROUND and "rn" not in i.mods:
            raise NotImplementedError(f"{i.text}: rounded as the assembler likes")
        kinds = [type_] * (len(i.operands) - 1)
        if name in ("shl", "shr"):
            kinds[1] = "u32"
        elif name == "selp":
            kinds[2] = "pred"
        elif name == "bfe":
            kinds[1:] = ["u32", "u32"]
        args = [self._value(o, kind) for o, kind in zip(i.operands[1:], kinds, strict=True)]
        self._set(i.operands[0], function(*args))

    def _with_carry(self, i: Instruction, mods: list[str]) -> None:
        """Chains of additions or subtractions of unsigned words."""
        (type_,) = i.types
        bits = int(type_[1:])
        args = [self._value(o, f"u{bits}").astype(object) for o in i.operands[1:]]
        carry = self.carry[self.lanes].astype(int).astype(object)
        if i.name not in _CARRIES:
            carry = carry * 0
        if i.name in ("mad", "madc"):
            form = "hi" if "hi" in mods else "lo"
            if form == "hi" and type_[0] == "s":
                raise NotImplementedError(i.text)
            whole = args[0] * args[1]
            part = whole >> bits if form == "hi" else whole % (1 << bits)
            total = part + args[2] + carry
        elif i.name in ("add", "addc"):
            total = args[0] + args[1] + carry
        else:
            total = args[0] - args[1] - carry
        if "cc" in mods:
            self.carry[self.lanes] = (total < 0) | (total >= 1 << bits)
        self._set(i.operands[0], (total % (1 << bits)).astype(f"u{bits // 8}"))

    def _move_parts(self, i: Instruction) -> None:
        """`mov.b64 {low, high}, x` and back."""
        (type_,) = i.types
        to, source = i.operands
        names = _parts(to) or _parts(source)
        bits = int(type_[1:]) // len(names)
        whole = np.zeros(self._active(), f"u{int(type_[1:]) // 8}")
        if _parts(source):
            for k, name in enumerate(names):
                part = self._value(name, f"b{bits}").astype(whole.dtype)
                whole |= part << np.array(k * bits, whole.dtype)
            self._set(to, whole)
            return
        whole = self._value(source, type_)
        for k, name in enumerate(names):
            if name != "_":
                part = whole >> np.array(k * bits, whole.dtype)
                self._set(name, part.astype(f"u{bits // 8}"))

    def _access(self, i: Instruction) -> None:
        (type_,) = i.types
        is_load = i.name == "ld"
        place, values = i.operands if not is_load else reversed(i.operands)
        base, offset = re.fullmatch(r"\[([%\w$.]+)(?:\+(-?\d+))?\]", place).groups()
        if "param" in i.mods:
            self._set(values, self.parameters[base][self.lanes])
            return
        size = int(type_[1:]) // 8
        first = self._value(base, "u64") + np.uint64(int(offset or 0) % (1 << 64))
        names = _parts(values) or [values]
        if len(names) > 1 and (first % np.uint64(size * len(names))).any():
            raise PtxFault("a vector access that is not aligned")
        for k, name in enumerate(names):
            address = first + np.uint64(k * size)
            if is_load:
                loaded = self.memory.load(address, size)
                self._set(name, loaded.view(dtype_of(type_)))
            else:
                self.memory.store(address, self._value(name, f"b{8 * size}"))


_MUST_ROUND = {"add", "sub", "mul", "fma", "div", "rcp", "sqrt"}


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text[1:-1].split(",")] if text[0] == "{" else []


def _literal(text: str, dtype: np.dtype) -> object:
    """A number as PTX writes it; hexadecimal floats are bits."""
    if text.startswith(("0f", "0d")):
        raw = np.array(int(text[2:], 16), np.uint32 if text[1] == "f" else np.uint64)
        value = raw.view(f"f{raw.itemsize}")
        return value if dtype.kind == "f" else raw
    if dtype.kind == "b":
        return text not in ("0", "false")
    if dtype.kind == "f":
        raise NotImplementedError(f"a literal {text} of a float")
    return np.array(int(text, 0) % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)
