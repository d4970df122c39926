"""PTX text as instructions: what LLVM prints, and what inline assembly adds.

Source: PTX ISA 8.x, chapters 4 (syntax), 5 (state spaces), 9 (instructions).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

TYPE = re.compile(r"pred|[bsuf](8|16|32|64|128)|(bf16|f16|f32|[su]16)x2|bf16|tf32")
_STATEMENT = re.compile(r"\s*(?:(\{)|(\})|([\w$%]+):(?!:)|([^;{}]*(?:\{[^}]*\}[^;{}]*)*);)")
_INSTRUCTION = re.compile(r"(?:@(!?)([\w$%]+)\s+)?([\w.:]+)(?:\s+(.*))?", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+")
_VARIABLE = re.compile(
    r"\.(global|const|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)"
    r"((?:\[\d*\])*)(?:\s*=\s*(\{[^}]*\}|\S+))?"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\b.*?)?([\w$]+)(?:\[(\d+)\])?\s*$", re.S
)
_ENTRY = re.compile(r"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?([^{};]*)\{")
_NAME = re.compile(r"[$%]?\w[\w$]*")


@dataclass(frozen=True)
class Variable:
    """An array in `global`, `const`, `shared` or `local` memory."""

    space: str
    bytes: int
    align: int
    initial: bytes = b""
    """Its first bytes; the others are 0, or of the fill pattern in shared and local memory."""
    is_dynamic: bool = False
    """The launch tells the size."""


@dataclass(frozen=True)
class Parameter:
    """Of a kernel: its place among the bytes of all parameters."""

    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Instruction:
    """`@guard name.mods.types operands`; braces and brackets are part of an operand's text."""

    text: str
    name: str
    mods: tuple[str, ...]
    types: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    unless: bool = False
    """The instruction runs where the guard is false."""


@dataclass
class Kernel:
    """One `.entry`."""

    name: str
    parameters: list[Parameter]
    registers: dict[str, str] = field(default_factory=dict)
    """Name to type. Names of inner scopes have the number of the scope behind an @."""
    variables: dict[str, Variable] = field(default_factory=dict)
    """Those of the module, too."""
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """Name to the number of the instruction behind it."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists of labels, for brx.idx."""


@dataclass
class Module:
    """A PTX module."""

    kernels: dict[str, Kernel]


def bytes_of(type_: str) -> int:
    """The size of a value of a PTX type."""
    return (
        1
        if type_ == "pred"
        else int(re.sub(r"\D", "", type_.removesuffix("x2")))
        // 8
        * (2 if type_.endswith("x2") else 1)
    )


def parse(text: str) -> Module:
    """The kernels of a module. Raises ValueError for what it cannot read."""
    text = re.sub(r"//.*|/\*.*?\*/|^\s*\.(?:loc|file)\b.*$", "", text, flags=re.M)
    kernels, outside, at = {}, [], 0
    while found := _ENTRY.search(text, at):
        outside.append(text[at : found.start()])
        at = _end_of_body(text, found.end())
        if found[1] == "entry":
            kernels[found[2]] = (found[3] or "", text[found.end() : at - 1])
    outside.append(text[at:])
    variables = {}
    for statement in "".join(outside).split(";"):
        variables.update(_variables(statement))
    return Module({name: _kernel(name, *parts, variables) for name, parts in kernels.items()})


def _end_of_body(text: str, at: int) -> int:
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    raise ValueError("a body without an end")


def _variables(statement: str) -> dict[str, Variable]:
    found = _VARIABLE.search(statement)
    if found is None:
        return {}
    space, align, type_, name, sizes, initial = found.groups()
    count = 1
    for size in re.findall(r"\d+", sizes):
        count *= int(size)
    is_dynamic = sizes.startswith("[]") and not initial
    values = re.findall(r"[^{},\s]+", initial or "")
    content = b"".join(_bytes(value, type_) for value in values)
    size = 0 if is_dynamic else count * bytes_of(type_)
    if sizes.startswith("[]") and initial:
        size = len(content)
    return {name: Variable(space, size, int(align or bytes_of(type_)), content, is_dynamic)}


def _bytes(value: str, type_: str) -> bytes:
    if value[:2] in ("0f", "0F", "0d", "0D"):
        raw = int(value[2:], 16)
    elif type_[0] == "f":
        return struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[type_], float(value))
    else:
        raw = int(value, 0)
    size = bytes_of(type_)
    return (raw % (1 << 8 * size)).to_bytes(size, "little")


def _parameters(text: str) -> list[Parameter]:
    parameters, offset = [], 0
    for item in filter(None, map(str.strip, text.split(","))):
        found = _PARAMETER.search(item)
        if found is None:
            raise ValueError(f"cannot read the parameter {item!r}")
        align, type_, name, count = found.groups()
        size = bytes_of(type_) * int(count or 1)
        offset += -offset % int(align or bytes_of(type_))
        parameters.append(Parameter(name, offset, size))
        offset += size
    return parameters


def _kernel(name: str, parameters: str, body: str, variables: dict[str, Variable]) -> Kernel:
    kernel = Kernel(name, _parameters(parameters), variables=dict(variables))
    scopes: list[dict[str, str]] = [{}]  # what a name of an inner scope is called
    inner: list[tuple[int, tuple[dict[str, str], ...]]] = []
    number, at, label = 0, 0, ""
    body = body.rstrip()
    while at < len(body):
        found = _STATEMENT.match(body, at)
        if found is None:
            raise ValueError(f"cannot read {body[at : at + 60]!r}")
        at = found.end()
        if found[1]:
            number += 1
            scopes.append({"": f"@{number}"})
        elif found[2]:
            scopes.pop()
        elif found[3]:
            label = _declared(scopes, found[3])
            kernel.labels[label] = len(kernel.code)
        elif (text := " ".join(found[4].split())).startswith(".branchtargets"):
            kernel.tables[label] = tuple(re.findall(r"[$\w]+", text)[1:])
        elif text.startswith("."):
            _declaration(kernel, scopes, text)
        elif text:
            if len(scopes) > 1:
                inner.append((len(kernel.code), tuple(scopes)))
            kernel.code.append(_instruction(text))
    for k, chain in inner:
        kernel.code[k] = _renamed(kernel.code[k], chain)
    return kernel


def _declared(scopes: Sequence[dict[str, str]], name: str) -> str:
    """What a name that the innermost scope declares is called."""
    suffix = scopes[-1].get("", "")
    scopes[-1][name] = name + suffix
    return name + suffix


def _renamed(i: Instruction, chain: Sequence[dict[str, str]]) -> Instruction:
    def rename(text: str) -> str:
        def one(match: re.Match[str]) -> str:
            return next((s[match[0]] for s in reversed(chain) if match[0] in s), match[0])

        return _NAME.sub(one, text)

    operands = tuple(map(rename, i.operands))
    return Instruction(i.text, i.name, i.mods, i.types, operands, rename(i.guard), i.unless)


def _instruction(text: str) -> Instruction:
    found = _INSTRUCTION.fullmatch(text)
    if found is None:
        raise ValueError(f"cannot read {text!r}")
    operands = tuple(_OPERAND.findall(found[4] or ""))
    return Instruction(text, *_opcode(found[3]), operands, found[2] or "", found[1] == "!")


@functools.lru_cache(maxsize=4096)
def _opcode(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Name, modifiers and types of an instruction."""
    name, *parts = text.split(".")
    types = tuple(part for part in parts if TYPE.fullmatch(part))
    return name, tuple(part for part in parts if not TYPE.fullmatch(part)), types


def _declaration(kernel: Kernel, scopes: Sequence[dict[str, str]], text: str) -> None:
    if found := re.match(r"\.reg\s+\.(\w+)\s+(.*)", text):
        for name in found[2].split(","):
            many = re.fullmatch(r"(.*)<(\d+)>", name.strip())
            every = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name.strip()]
            for one in every:
                kernel.registers[_declared(scopes, one)] = found[1]
    elif made := _variables(text):
        ((name, variable),) = made.items()
        kernel.variables[_declared(scopes, name)] = variable
    elif not text.startswith(".pragma"):
        raise ValueError(f"cannot read the declaration {text!r}")
