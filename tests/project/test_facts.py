"""Facts about our kernels and host programs travel as values: nobody reads them from a text.

What knows a fact puts it beside the text: `KernelSignature`, `Mark`, `vector_type`, `known`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shlo_disc.base.errors import InternalError
from shlo_disc.lower.values.typed import element_type, lanes_of, vector_type

PACKAGE = Path(__file__).parents[2] / "shlo_disc"
ROOMS = ("lower", "executables", "report")

READERS = {
    "count", "endswith", "find", "findall", "finditer", "fullmatch", "index", "match", "partition",
    "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "search", "split",
    "splitlines", "startswith",
}  # fmt: skip
"""Methods of texts and of regular expressions that find something in a text."""
TEXTS = re.compile(r"(^|_)(asm|body|entry|head|host|lines?|mlir|ptx|texts?|text_of)$")
"""Names of texts: of a variable, an attribute, or what gives one."""

MANY = ("lines", "texts")
"""What is asked for a whole text."""

ALLOWED = {
    "executables/codec.py": "source lines in texts of all kinds: other processes have others",
    "executables/lines.py": "MLIR prints a program with the lines of its source",
    "lower/cpu/code_key.py": "a wheel's list of files",
    "lower/cpu/host_parts.py": "the length of a text",
    "lower/cpu/machine.py": "/proc/cpuinfo",
    "lower/cpu/object_code.py": "a text may come from the store, alone: which passes it needs, "
    "whether it has loops, and tiles. A pass too many changes nothing",
    "lower/cuda/assembler.py": "what the assemblers of NVIDIA say, and names in their code",
    "lower/cuda/overlap.py": "PTX as LLVM wrote it, which has no way to put an instruction first",
    "lower/llvm/llvm_text.py": "LLVM IR as one release wrote it, for an older one",
    "lower/host/launches.py": "the length of a text",
    "lower/identity.py": "whether MLIR prints elements or a name of them, at any depth",
}
"""Modules that may read texts, and what these are."""


def name_of(node: ast.expr) -> str:
    """The last name of an expression: `text` of `launch.kernel.text` and of `text[0]`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript | ast.Starred):
        return name_of(node.value)
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def reads(source: str) -> Iterator[str]:
    """Where Python `source` reads a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names):
            yield f"line {node.lineno}: regular expressions"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_reader = node.func.attr in READERS
            if is_reader and TEXTS.search(name_of(node.func.value)):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            texts = name_of(node.comparators[0])
            if TEXTS.search(texts) and texts not in MANY:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_fact_is_read_from_a_text(room: str) -> None:
    found = {}
    for path in sorted((PACKAGE / room).rglob("*.py")):
        lines = [*reads(path.read_text(encoding="utf-8"))]
        if lines:
            found[str(path.relative_to(PACKAGE))] = lines
    new = [f"{name}, {line}" for name, lines in found.items() if name not in ALLOWED
           for line in lines]  # fmt: skip
    assert not new, "a fact is read from a text; it should come as a value:\n" + "\n".join(new)
    gone = {name for name in ALLOWED if name.startswith(f"{room}/")} - found.keys()
    assert not gone, f"no longer needs to be allowed: {gone}"


@pytest.mark.parametrize(
    "line",
    [
        "import re",
        "if MEMORY not in launch.kernel.text: pass",
        "needed = [passes for word, passes in CONVERSIONS if word in text]",
        "return text.startswith(NARROW)",
        "front = [a for a in text_of(kernel).split(',')]",
        "own = kernel.text.count('func.func')",
        "entry = [line for line in self._entry if ' = arith.constant ' in line]",
    ],
)
def test_what_reading_a_text_looks_like(line: str) -> None:
    assert [*reads(line)]


def test_values_are_no_texts() -> None:
    assert not [*reads("if step.kernel in self.kernels: names.index(name)")]


def test_types_of_lanes_come_from_one_function() -> None:
    assert (element_type(vector_type(4, "f32")), lanes_of(vector_type(4, "f32"))) == ("f32", 4)
    assert (element_type("i8"), lanes_of("i8")) == ("i8", 0)
    with pytest.raises(InternalError, match="vector_type"):
        lanes_of("vector<5xf64>")
