"""PTX text as instructions: what LLVM prints for one kernel.

Source: PTX ISA 8.x, chapters 4 (syntax) and 9 (instructions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Instruction", "Kernel", "Variable", "parse"]

TYPE = re.compile(r"pred|[bsuf](8|16|32|64)")
ARRAY = re.compile(
    r"\.(global|const|local)(?: \.align \d+)? \.b8\s+([\w$]+)\[(\d+)\](?:\s*=\s*\{(.*)\})?", re.S
)


@dataclass(frozen=True)
class Variable:
    """An array of bytes in `global`, `const` or `local` memory."""

    space: str
    bytes: int
    initial: tuple[int, ...] = ()
    """Its first bytes; the others are 0."""


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
    parameters: list[tuple[str, int]]
    """Name and bytes."""
    registers: dict[str, int] = field(default_factory=dict)
    """Name to bits; 1 of predicates."""
    variables: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """Name to the number of the instruction behind it."""


def parse(text: str) -> Kernel:
    """The one kernel of a module. Raises ValueError for what it does not know."""
    text = re.sub(r"//.*", "", text)
    if text.count(".entry") != 1 or ".func" in text:
        raise ValueError("expected a module of one kernel without functions")
    found = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)[^{]*\{(.*)\}", text, re.S)
    assert found is not None
    parameters = []
    for item in found[2].split(","):
        *words, name = item.split()
        bits = next(int(w[2:]) for w in words if TYPE.fullmatch(w[1:]))
        parameters.append((name, bits // 8))
    kernel = Kernel(found[1], parameters)
    for statement in text[: found.start()].split(";")[:-1]:
        _declaration(kernel, statement[statement.rindex("\n.") :] if "\n." in statement else "")
    for statement in re.split(r";|(?<=:)\n", found[3]):
        _statement(kernel, " ".join(statement.split()).lstrip("{} "))
    return kernel


def _statement(kernel: Kernel, text: str) -> None:
    if not text:
        return
    if text.startswith("."):
        _declaration(kernel, text)
        return
    if label := re.fullmatch(r"([$\w]+):", text):
        kernel.labels[label[1]] = len(kernel.code)
        return
    found = re.fullmatch(r"(?:@(!?)(%\w+) )?([\w.:]+)(?: (.*))?", text)
    if found is None:
        raise ValueError(f"cannot read {text!r}")
    name, *parts = found[3].split(".")
    types = tuple(part for part in parts if TYPE.fullmatch(part))
    mods = tuple(part for part in parts if not TYPE.fullmatch(part))
    operands = tuple(re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s|]+", found[4] or ""))
    kernel.code.append(
        Instruction(text, name, mods, types, operands, found[2] or "", found[1] == "!")
    )


def _declaration(kernel: Kernel, text: str) -> None:
    text = text.strip()
    if text.startswith(".reg"):
        type_, names = re.fullmatch(r"\.reg \.(\w+) (.*)", text).groups()
        bits = 1 if type_ == "pred" else int(type_[1:])
        for name in names.split(", "):
            many = re.fullmatch(r"(.*)<(\d+)>", name)
            every = [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name]
            kernel.registers.update(dict.fromkeys(every, bits))
    elif found := re.search(
        r"\.(global|const|local)(?: \.align \d+)? \.b8\s+([\w$]+)\[(\d+)\](?:\s*=\s*\{(.*)\})?",
        text,
    ):
        initial = tuple(int(v) for v in (found[4] or "").split(",") if v.strip())
        kernel.variables[found[2]] = Variable(found[1], int(found[3]), initial)
    elif text and not text.startswith((".version", ".pragma")):
        raise ValueError(f"cannot read the declaration {text!r}")
