"""A parsed kernel as the native part runs it: registers and constants by number.

Most instructions are looked up by their name, less what changes no value (`rn`, cache hints). The
others have a rule here, which says what the native handler is and what its immediates are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.ptx.native import CODE, Program, handlers
from tests.ptx.parser import Instruction, Kernel, Parameter

WINDOW = 1 << 60
SPACES = {"generic": 0, "global": 1, "shared": 2, "local": 3, "param": 4, "const": 1}
"""`Space` of machine.h: constants of a module are global arrays that may only be read."""
MODULE_ARRAYS = 1 << 56
"""Where the arrays of a module are: no address of the host's is as high."""

ALONE, NAMED, ALIGNED = range(3)
"""`Together` of machine.h: which lanes run an instruction at the same time."""


class PtxFault(Exception):
    """A thread does what the PTX ISA forbids or leaves undefined."""


@dataclass(frozen=True)
class Assembled:
    """A kernel, ready for launches."""

    program: Program
    texts: list[str]
    """Of every encoded instruction."""
    parameters: list[Parameter]
    shared: list[tuple[int, int]]
    """Offset and bytes of the static arrays."""
    dynamic: int | None
    """Offset of the dynamic shared memory."""
    local: list[tuple[int, int]]
    arrays: list[tuple[int, np.ndarray, bool]]
    """Address, initial bytes, and whether they may be written, of a module's arrays."""
    granule: int
    """Bytes of the smallest access to shared memory."""
    global_granule: int
    """Bytes of the smallest access to global memory."""


def assemble(kernel: Kernel) -> Assembled:
    """Raises NotImplementedError for an instruction that neither a rule nor a handler knows."""
    a = Assembler(kernel)
    for number, instruction in enumerate(kernel.code):
        a.starts.append(len(a.code))
        a.add(number, instruction)
    a.starts.append(len(a.code))
    a.text = "the end of the kernel"
    a.guard = -1
    a.emit("exit", [])
    code = np.zeros(len(a.code), CODE)
    for k, (op, guard, first, count, together, imm, target) in enumerate(a.code):
        if target is not None:
            imm = (a.starts[kernel.labels[target]], *imm[1:])
        code[k] = (op, guard, first, count, together, 0, imm)
    constants = np.array([bits if isinstance(bits, int) else a.starts[kernel.labels[bits]]
                          for bits in a.constants], np.uint64)  # fmt: skip
    operands = np.array(a.operands, np.int32)
    program = Program(code, operands, constants, len(a.registers))
    return Assembled(
        program, a.texts, kernel.parameters, a.shared, a.dynamic, a.local, a.arrays,
        a.granule, a.global_granule,
    )  # fmt: skip


class Assembler:
    """Encodes the instructions of one kernel; what rules call is public."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.registers = {name: number for number, name in enumerate(kernel.registers)}
        self.constants: dict[int | str, int] = {}
        self.operands: list[int] = []
        self.code: list[tuple[int, int, int, int, int, tuple[int, ...], str | None]] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.guard = -1
        self.text = ""
        self.granule = self.global_granule = 16
        self.symbols = {p.name: p.offset for p in kernel.parameters}
        self.shared: list[tuple[int, int]] = []
        self.local: list[tuple[int, int]] = []
        self.arrays: list[tuple[int, np.ndarray, bool]] = []
        self.dynamic: int | None = None
        self._place()

    def _place(self) -> None:
        """Give every array its address: no better aligned than declared, with a gap before it."""
        ends = {"shared": 0, "local": 0, "global": MODULE_ARRAYS}
        every = self.kernel.variables.items()
        for name, v in sorted(every, key=lambda item: item[1].is_dynamic):
            space = "global" if v.space == "const" else v.space
            if v.is_dynamic and self.dynamic is not None:
                self.symbols[name] = self.dynamic
                continue
            first = ends[space] + 16
            first += -first % v.align
            first += v.align if first // v.align % 2 == 0 else 0
            self.symbols[name] = first
            ends[space] = first + v.bytes
            if v.is_dynamic:
                self.dynamic = first
            elif space == "global":
                content = np.zeros(-(-v.bytes // 16) * 16, np.uint8)
                content[: len(v.initial)] = np.frombuffer(v.initial, np.uint8)
                self.arrays.append((first, content[: v.bytes], v.space == "global"))
            else:
                (self.shared if space == "shared" else self.local).append((first, v.bytes))

    # ---------------------------------------------------------------- what rules call

    def emit(
        self,
        handler: str,
        operands: Sequence[int],
        imm: Sequence[int] = (),
        together: int = ALONE,
        target: str | None = None,
    ) -> None:
        """Append an instruction. `target`: the label whose place becomes the first immediate."""
        number = handlers().get(handler)
        if number is None:
            raise NotImplementedError(f"{self.text} ({handler})")
        four = (*imm, *[0] * (4 - len(imm)))
        row = (number, self.guard, len(self.operands), len(operands), together, four, target)
        self.code.append(row)
        self.operands.extend(operands)
        self.texts.append(self.text)

    def register(self, name: str = "") -> int:
        """A register by name; without one a new one that nothing else knows."""
        if name in ("", "_"):
            name = f"new {len(self.registers)}"
            self.registers[name] = len(self.registers)
        return self.registers[name]

    def constant(self, bits: int | str) -> int:
        """The operand of a constant of 64 bits, or of the place of a label."""
        key = bits % (1 << 64) if isinstance(bits, int) else bits
        return ~self.constants.setdefault(key, len(self.constants))

    def value(self, text: str, type_: str = "b64") -> int:
        """An operand: a register, special register, address of an array, or number."""
        if (number := self.registers.get(text)) is not None:
            return number
        if text in self.symbols:
            return self.constant(self.symbols[text])
        if text == "WARP_SZ":
            return self.constant(32)
        bits = _literal(text, type_)
        return self.constant(int(bits != 0) if type_ == "pred" else bits)

    def address(self, text: str) -> tuple[int, int]:
        """`[base+offset]` as an operand and a number."""
        found = re.fullmatch(r"\[\s*([%\w$.@]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
        if found is None:
            raise NotImplementedError(f"{self.text}: the address {text}")
        return self.value(found[1]), int(found[2] or "0", 0)

    def parts(self, text: str, type_: str = "b64") -> list[int]:
        """The values of `{a, b}` or `a`."""
        return [self.value(name, type_) for name in parts_of(text)]

    def results(self, text: str) -> list[int]:
        """The registers of `{a, b}` or `a`."""
        return [self.register(name) for name in parts_of(text)]

    def touches(self, space: int, size: int) -> None:
        """Note the size of an access."""
        if space in (SPACES["shared"], SPACES["generic"]):
            self.granule = min(self.granule, size)
        if space in (SPACES["global"], SPACES["generic"]):
            self.global_granule = min(self.global_granule, size)

    def add(self, number: int, i: Instruction) -> None:
        """Encode instruction `number` of the kernel."""
        self.text = i.text
        self.guard = 2 * self.registers[i.guard] + i.unless if i.guard else -1
        rule = RULES.get(i.name)
        if rule is not None:
            rule(self, i)
        else:
            self.plain(i)

    def plain(self, i: Instruction) -> None:
        """An instruction whose handler has its name: one result, then operands."""
        mods = [m for m in i.mods if m not in _NO_CHANGE]
        if not i.types:
            raise NotImplementedError(f"{i.text}: has a type that no handler knows")
        is_float = i.types[0].lstrip("b")[0] == "f"
        if i.name in _ROUNDED and is_float and not {"rn", "approx", "full"} & set(i.mods):
            raise NotImplementedError(f"{i.text}: rounded as the assembler likes")
        mods.sort(key=lambda m: m == "ftz")
        kinds = list(i.types[-1:]) * len(i.operands)
        to, *args = i.operands
        operands = [self.value(o, kind) for o, kind in zip(args, kinds, strict=False)]
        self.emit(".".join([i.name, *mods, *i.types]), [self.register(to), *operands])


_NO_CHANGE = {"rn", "uni"}
_ROUNDED = {"add", "sub", "mul", "fma", "div", "rcp", "sqrt"}


def parts_of(text: str) -> list[str]:
    return [p.strip() for p in text[1:-1].split(",")] if text[0] == "{" else [text]


def _literal(text: str, type_: str) -> int:
    """The bits of a number as PTX writes it."""
    lower = text.lower()
    if lower.startswith(("0f", "0d")):
        is_wide = type_.endswith("64") and type_[0] != "b"
        if is_wide != (lower[1] == "d") and type_[0] == "f":
            raise NotImplementedError(f"the literal {text} of {type_}")
        return int(text[2:], 16)
    if type_ in ("f32", "f64") or not re.fullmatch(r"-?(0x[0-9a-f]+|\d+)u?", lower):
        raise NotImplementedError(f"the literal {text} of {type_}")
    return int(lower.rstrip("u"), 0)


Rule = Callable[[Assembler, Instruction], None]
RULES: dict[str, Rule] = {}
"""By the name of an instruction; rules.py and tensor_rules.py fill it."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for instructions of these names."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return add


def space_of(i: Instruction) -> int:
    """The memory space that an instruction names; generic if it names none."""
    return SPACES[next((b for m in i.mods if (b := m.partition("::")[0]) in SPACES), "generic")]
