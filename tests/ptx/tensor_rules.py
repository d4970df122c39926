"""Rules of the assembler: asynchronous copies and matrix instructions."""

from __future__ import annotations

import re

from tests.ptx.assembler import ALIGNED, ALONE, SPACES, Assembler, parts_of, rule
from tests.ptx.parser import Instruction

__all__: list[str] = []

_ELEMENTS = {"f16": 0, "bf16": 1, "tf32": 2, "f64": 3, "s8": 4, "u8": 5, "f32": 6, "s32": 7}
"""`Element` of matrix.cpp."""


@rule("cp")
def _copy(a: Assembler, i: Instruction) -> None:
    if i.mods[:2] == ("async", "bulk"):
        _bulk(a, i)
        return
    kind = i.mods[1]
    if kind in ("commit_group", "wait_group", "wait_all"):
        count = int(i.operands[0], 0) if i.operands else 0
        a.emit(f"cp.async.{kind}", [], [count])
        return
    if kind not in ("ca", "cg"):
        raise NotImplementedError(i.text)
    to, source, size, *given = i.operands
    bytes_ = int(size, 0)
    if bytes_ not in ((16,) if kind == "cg" else (4, 8, 16)):
        raise NotImplementedError(f"{i.text}: {bytes_} bytes")
    a.touches_shared(SPACES["shared"], bytes_)
    (base, offset), (from_base, from_offset) = a.address(to), a.address(source)
    operands = [base, from_base, a.value(given[0]) if given else a.constant(bytes_)]
    a.emit("cp.async", operands, [offset, from_offset, bytes_])


@rule("ldmatrix", "stmatrix")
def _matrix_access(a: Assembler, i: Instruction) -> None:
    """Registers and a row's address; imm: offset, matrices, whether transposed."""
    if "m8n8" not in i.mods or i.types != ("b16",):
        raise NotImplementedError(i.text)
    is_load = i.name == "ldmatrix"
    place, values = reversed(i.operands) if is_load else i.operands
    base, offset = a.address(place)
    registers = a.results(values)
    a.touches_shared(SPACES["shared"], 16)
    if len(registers) != int(next(m[1:] for m in i.mods if re.fullmatch(r"x\d", m))):
        raise NotImplementedError(i.text)
    imm = [offset, len(registers), "trans" in i.mods]
    a.emit(i.name, [*registers, base], imm, ALIGNED)


@rule("mma")
def _mma(a: Assembler, i: Instruction) -> None:
    """Registers of d, a, b, c; imm: m | n << 8 | k << 16, elements, registers of each, sat."""
    shape = next(m for m in i.mods if re.fullmatch(r"m\d+n\d+k\d+", m))
    m, n, k = map(int, re.findall(r"\d+", shape))
    if "row" not in i.mods or "col" not in i.mods or "sp" in i.mods:
        raise NotImplementedError(i.text)
    types = [_ELEMENTS[t] for t in i.types]
    d, *sources = i.operands
    groups = [a.results(d), *map(a.parts, sources)]
    counts = [len(group) for group in groups]
    imm = [m | n << 8 | k << 16, _packed(types), _packed(counts), "satfinite" in i.mods]
    a.emit("mma", [r for group in groups for r in group], imm, ALIGNED)


def _packed(numbers: list[int]) -> int:
    return sum(number << 8 * k for k, number in enumerate(numbers))


def _bulk(a: Assembler, i: Instruction) -> None:
    raise NotImplementedError(i.text)


_ = ALONE, parts_of
