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
from tests.ptx.parser import Instruction, Kernel, Parameter, bytes_of

__all__ = ["Assembled", "PtxFault", "assemble"]

WINDOW = 1 << 60
SPACES = {"generic": 0, "global": 1, "shared": 2, "local": 3, "param": 4, "const": 1}
"""`Space` of machine.h: constants of a module are global arrays that may only be read."""
MODULE_ARRAYS = 1 << 56
"""Where the arrays of a module are: no address of the host's is as high."""

_NO_TOGETHER, _NAMED, _ALIGNED = range(3)


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


def assemble(kernel: Kernel) -> Assembled:
    """Raises NotImplementedError for an instruction that neither a rule nor a handler knows."""
    a = _Assembler(kernel)
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
        program, a.texts, kernel.parameters, a.shared, a.dynamic, a.local, a.arrays, a.granule
    )


class _Assembler:
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
        self.granule = 16
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
        together: int = _NO_TOGETHER,
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
        if text in _SPECIAL:
            made, guard = self.register(), self.guard
            self.guard = -1
            self.emit("special", [made], [_SPECIAL[text]])
            self.guard = guard
            return made
        if text in self.symbols:
            return self.constant(self.symbols[text])
        if text == "WARP_SZ":
            return self.constant(32)
        return self.constant(_literal(text, type_))

    def address(self, text: str) -> tuple[int, int]:
        """`[base+offset]` as an operand and a number."""
        found = re.fullmatch(r"\[\s*([%\w$.@]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
        if found is None:
            raise NotImplementedError(f"{self.text}: the address {text}")
        return self.value(found[1]), int(found[2] or "0", 0)

    def parts(self, text: str, type_: str = "b64") -> list[int]:
        """The values of `{a, b}` or `a`."""
        return [self.value(name, type_) for name in _parts(text)]

    def results(self, text: str) -> list[int]:
        """The registers of `{a, b}` or `a`."""
        return [self.register(name) for name in _parts(text)]

    def touches_shared(self, space: int, size: int) -> None:
        """Note the size of an access that may be to shared memory."""
        if space in (SPACES["shared"], SPACES["generic"]):
            self.granule = min(self.granule, size)

    def add(self, number: int, i: Instruction) -> None:
        """Encode instruction `number` of the kernel."""
        self.text = i.text
        self.guard = 2 * self.registers[i.guard] + i.unless if i.guard else -1
        rule = _RULES.get(i.name)
        if rule is not None:
            rule(self, i)
        else:
            self.plain(i)

    def plain(self, i: Instruction) -> None:
        """An instruction whose handler has its name: one result, then operands."""
        mods = [m for m in i.mods if m not in _NO_CHANGE]
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
_SPECIAL = {
    **{f"%{name}.{axis}": 3 * k + j for k, name in enumerate(("tid", "ntid", "ctaid", "nctaid"))
       for j, axis in enumerate("xyz")},
    **{f"%{name}": 12 + k for k, name in enumerate(
        ("laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le",
         "lanemask_gt", "lanemask_ge"))},
}  # fmt: skip
"""As warp.cpp numbers them."""


def _parts(text: str) -> list[str]:
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


# -------------------------------------------------------------------- rules

Rule = Callable[[_Assembler, Instruction], None]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


@_rule("mov")
def _mov(a: _Assembler, i: Instruction) -> None:
    to, source = i.operands
    (type_,) = i.types
    if to[0] == "{":
        bits = 8 * bytes_of(type_) // len(_parts(to))
        a.emit("unpack", [*a.results(to), a.value(source, type_)], [bits])
    elif source[0] == "{":
        bits = 8 * bytes_of(type_) // len(_parts(source))
        a.emit("pack", [a.register(to), *a.parts(source, f"b{bits}")], [bits])
    else:
        a.plain(i)


@_rule("setp")
def _setp(a: _Assembler, i: Instruction) -> None:
    """One or two results; `setp.lt.and.s32 p, x, y, q` combines the comparison with q."""
    compare, *others = i.mods
    has_second = "|" in i.text
    to, *args = i.operands
    second = args.pop(0) if has_second else ""
    (type_,) = i.types
    made = a.register(to)
    if type_.endswith("x2"):
        _setp_of_halves(a, f"setp.{compare}.{type_.removesuffix('x2')}", [to, second], args)
        return
    name = ".".join(["setp", compare, *(m for m in others if m not in _LOGIC), type_])
    joined = [m for m in others if m in _LOGIC]
    raw = a.register() if joined else made
    a.emit(name, [raw, *(a.value(o, type_) for o in args[:2])])
    if joined:
        other = a.value(args[2], "pred")
        if has_second:
            opposite = a.register()
            a.emit("not.pred", [opposite, raw])
            a.emit(f"{joined[0]}.pred", [a.register(second), opposite, other])
        a.emit(f"{joined[0]}.pred", [made, raw, other])
    elif has_second:
        a.emit("not.pred", [a.register(second), made])


def _setp_of_halves(a: _Assembler, name: str, results: Sequence[str], args: Sequence[str]) -> None:
    """The lower halves give the first result, the upper ones the second."""
    halves = [[a.register(), a.register()] for _ in args]
    for pair, arg in zip(halves, args, strict=True):
        a.emit("unpack", [*pair, a.value(arg, "b32")], [16])
    for k, result in enumerate(results):
        a.emit(name, [a.register(result), *(pair[k] for pair in halves)])


_LOGIC = {"and", "or", "xor"}


@_rule("selp")
def _selp(a: _Assembler, i: Instruction) -> None:
    to, x, y, p = i.operands
    (type_,) = i.types
    operands = [a.value(x, type_), a.value(y, type_), a.value(p, "pred")]
    a.emit(f"selp.{type_}", [a.register(to), *operands])


@_rule("add", "sub", "mad", "addc", "subc", "madc")
def _with_carry(a: _Assembler, i: Instruction) -> None:
    if "cc" not in i.mods and i.name[-1] != "c":
        a.plain(i)
        return
    (type_,) = i.types
    form = [m for m in i.mods if m in ("lo", "hi")]
    if form == ["hi"] and type_[0] == "s":
        raise NotImplementedError(i.text)
    to, *args = i.operands
    reads = i.name[-1] == "c"
    handler = ".".join(["carry", i.name[:3], *form, type_[1:]])
    operands = [a.value(o, type_) for o in args]
    a.emit(handler, [a.register(to), *operands], [reads + 2 * ("cc" in i.mods)])


_TYPES = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64", "tf32")
_ROUNDINGS = ("", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")
_FLAGS = {"sat": 1, "relu": 2, "satfinite": 4, "ftz": 8}


@_rule("cvt")
def _cvt(a: _Assembler, i: Instruction) -> None:
    to, source = (t.replace("b", "u") if t[0] == "b" and t[1] != "f" else t for t in i.types)
    is_pair = to.endswith("x2")
    how = [m for m in i.mods if m in _ROUNDINGS]
    flags = sum(_FLAGS[m] for m in i.mods if m in _FLAGS)
    if len(how) > 1 or set(i.mods) - set(how) - set(_FLAGS):
        raise NotImplementedError(i.text)
    rounding = _ROUNDINGS.index(how[0]) if how else 0
    narrows = to[-2:] != "64" and bytes_of(to) < bytes_of(source)
    if to.lstrip("bt")[0] == "f" and source.lstrip("b")[0] == "f" and narrows and not how:
        raise NotImplementedError(f"{i.text}: a narrower float without a rounding")
    kinds = _TYPES.index(to.removesuffix("x2")) | _TYPES.index(source) << 8
    made, *args = i.operands
    operands = [a.register(made), *(a.value(o, source) for o in args)]
    a.emit("cvt.pair" if is_pair else "cvt", operands, [kinds, rounding, flags])


@_rule("cvta")
def _cvta(a: _Assembler, i: Instruction) -> None:
    (space,) = (m for m in i.mods if m in SPACES)
    base = max(SPACES[space] - 1, 0) * WINDOW
    operands = [a.register(i.operands[0]), a.value(i.operands[1])]
    a.emit("cvta", operands, [-base if "to" in i.mods else base])


@_rule("isspacep")
def _isspacep(a: _Assembler, i: Instruction) -> None:
    operands = [a.register(i.operands[0]), a.value(i.operands[1])]
    a.emit("isspacep", operands, [SPACES[i.mods[0]]])


def _space(i: Instruction) -> int:
    return SPACES[next((m for m in map(_base, i.mods) if m in SPACES), "generic")]


def _base(mod: str) -> str:
    return mod.split("::", maxsplit=1)[0]


@_rule("ld", "ldu", "st")
def _access(a: _Assembler, i: Instruction) -> None:
    (type_,) = i.types
    size = bytes_of(type_)
    count = next((int(m[1:]) for m in i.mods if re.fullmatch(r"v\d", m)), 1)
    space = _space(i)
    a.touches_shared(space, size)
    is_strong = bool({"volatile", "relaxed", "acquire", "release"} & set(i.mods))
    is_load = i.name != "st"
    place, values = i.operands if not is_load else reversed(i.operands)
    base, offset = a.address(place)
    flags = (type_[0] == "s") | 2 * is_strong
    imm = [offset, space, size | count << 8 | flags << 16]
    if is_load:
        operands = [*a.results(values), base]
        a.emit("ld", operands, imm)
    else:
        a.emit("st", [base, *a.parts(values, type_)], imm)


@_rule("atom", "red")
def _atomic(a: _Assembler, i: Instruction) -> None:
    (type_,) = i.types
    operation = next(m for m in i.mods if m in _ATOMIC)
    space = _space(i)
    size = bytes_of(type_)
    a.touches_shared(space, size)
    operands = list(i.operands)
    to = operands.pop(0) if i.name == "atom" else "_"
    base, offset = a.address(operands.pop(0))
    parts = [operation, *(["noftz"] if "noftz" in i.mods else []), type_]
    values = [a.value(o, type_) for o in operands]
    a.emit(f"atom.{'.'.join(parts)}", [a.register(to), base, *values], [offset, space])


_ATOMIC = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}


@_rule("bra")
def _bra(a: _Assembler, i: Instruction) -> None:
    a.emit("bra", [], target=i.operands[-1])


@_rule("brx")
def _brx(a: _Assembler, i: Instruction) -> None:
    index, table = i.operands
    targets = [a.constant(label) for label in a.kernel.tables[table]]
    a.emit("brx.idx", [a.value(index), *targets])


@_rule("ret", "exit", "trap")
def _leave(a: _Assembler, i: Instruction) -> None:
    a.emit(i.name, [])


@_rule("bar", "barrier")
def _barrier(a: _Assembler, i: Instruction) -> None:
    mods = [m for m in i.mods if m != "cta"]
    if mods[0] == "warp":
        a.emit("bar.warp.sync", [a.value(i.operands[0])], [0, 0, 0, 0], _NAMED)
        return
    if mods[0] not in ("sync", "arrive"):
        raise NotImplementedError(i.text)
    is_aligned = i.name == "bar" or "aligned" in mods
    operands = [a.value(o) for o in i.operands]
    together = _ALIGNED if is_aligned else _NO_TOGETHER
    a.emit("bar", operands, [len(operands) == 2, mods[0] == "sync"], together)


@_rule("shfl")
def _shfl(a: _Assembler, i: Instruction) -> None:
    to, *args = i.operands
    valid = args.pop(0) if "|" in i.text else "_"
    operands = [a.register(to), a.register(valid), *(a.value(o) for o in args)]
    a.emit(".".join([i.name, *i.mods, *i.types]), operands, [0, 0, 0, 5], _NAMED)


@_rule("vote", "redux", "match", "elect")
def _collective(a: _Assembler, i: Instruction) -> None:
    results = 2 if "|" in i.text else 1
    operands = [a.register(o) for o in i.operands[:results]]
    if i.mods[0] == "all" and results == 1:
        operands.append(a.register())
    for text in i.operands[results:]:
        if text.startswith("!"):
            operands.append(a.register())
            a.emit("not.pred", [operands[-1], a.value(text[1:])])
        else:
            operands.append(a.value(text))
    imm = [0, 0, 0, len(operands) - 1]
    a.emit(".".join([i.name, *i.mods, *i.types]), operands, imm, _NAMED)


@_rule("membar", "fence", "nop", "griddepcontrol", "setmaxnreg", "nanosleep", "prefetch",
       "prefetchu", "discard", "applypriority", "pmevent")  # fmt: skip
def _nothing(a: _Assembler, i: Instruction) -> None:
    a.emit("nop", [])
