"""Rules of the assembler: asynchronous copies and matrix instructions."""

from __future__ import annotations

import re

from tests.ptx.assembler import ALIGNED, SPACES, Assembler, rule
from tests.ptx.parser import Instruction

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
    if kind == "mbarrier":
        base, offset = a.address(i.operands[0])
        a.touches(SPACES["shared"], 8)
        a.emit("cp.async.mbarrier.arrive", [base], [offset, "noinc" in i.mods])
        return
    to, source, size, *given = i.operands
    is_predicate = given and a.kernel.registers.get(given[0]) == "pred"
    if kind not in ("ca", "cg") or "L2::cache_hint" in i.mods or is_predicate:
        raise NotImplementedError(i.text)
    bytes_ = int(size, 0)
    if bytes_ not in ((16,) if kind == "cg" else (4, 8, 16)):
        raise NotImplementedError(f"{i.text}: {bytes_} bytes")
    a.touches(SPACES["shared"], bytes_)
    a.touches(SPACES["global"], bytes_)
    (base, offset), (from_base, from_offset) = a.address(to), a.address(source)
    operands = [base, from_base, a.value(given[0]) if given else a.constant(bytes_)]
    a.emit("cp.async", operands, [offset, from_offset, bytes_])


@rule("ldmatrix", "stmatrix")
def _matrix_access(a: Assembler, i: Instruction) -> None:
    """Registers and a row's address; imm: offset, matrices, whether transposed."""
    known = r"sync|aligned|m8n8|x[124]|trans|shared(::cta)?"
    is_known = all(re.fullmatch(known, m) for m in i.mods)
    if "m8n8" not in i.mods or i.types != ("b16",) or not is_known:
        raise NotImplementedError(i.text)
    is_load = i.name == "ldmatrix"
    place, values = reversed(i.operands) if is_load else i.operands
    base, offset = a.address(place)
    registers = a.results(values)
    a.touches(SPACES["shared"], 16)
    if len(registers) != int(next(m[1:] for m in i.mods if re.fullmatch(r"x\d", m))):
        raise NotImplementedError(i.text)
    imm = [offset, len(registers), "trans" in i.mods]
    a.emit(i.name, [*registers, base], imm, ALIGNED)


@rule("mma")
def _mma(a: Assembler, i: Instruction) -> None:
    """Registers of d, a, b, c; imm: m | n << 8 | k << 16, elements, registers of each, sat."""
    shape = next(m for m in i.mods if re.fullmatch(r"m\d+n\d+k\d+", m))
    m, n, k = map(int, re.findall(r"\d+", shape))
    is_known = set(i.mods) <= {"sync", "aligned", shape, "row", "col", "satfinite"}
    if not is_known or i.mods.index("row") > i.mods.index("col"):
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
    """`cp.async.bulk`, with `.tensor` or of a row of bytes, and its groups."""
    mods = set(i.mods)
    if mods & {"commit_group", "wait_group"}:
        count = int(i.operands[0], 0) if i.operands else 0
        a.emit(f"bulk.{'commit' if 'commit_group' in mods else 'wait'}_group", [], [count])
        return
    spaces = [m for m in i.mods if m.partition("::")[0] in ("shared", "global")]
    is_load = spaces[0] != "global"
    if {"im2col", "multicast::cluster", "prefetch", "reduce"} & mods or len(spaces) != 2:
        raise NotImplementedError(i.text)
    a.touches(SPACES["shared"], 16)
    a.touches(SPACES["global"], 1 if "tensor" in mods and not is_load else 16)
    if "tensor" not in mods:
        to, source, count, *barrier = i.operands
        (base, offset), (from_base, from_offset) = a.address(to), a.address(source)
        operands = [base, from_base, a.value(count)]
        at, at_offset = a.address(barrier[0]) if is_load else (a.constant(0), 0)
        a.emit(
            "bulk.load" if is_load else "bulk.store",
            [*operands, at] if is_load else operands,
            [offset, from_offset, at_offset],
        )
        return
    shared, described = i.operands[:2] if is_load else reversed(i.operands[:2])
    found = re.fullmatch(r"\[\s*([%\w$.@]+)\s*,\s*(\{[^}]*\})\s*\]", described)
    if found is None:
        raise NotImplementedError(i.text)
    base, offset = a.address(shared)
    operands = [a.value(found[1]), *a.parts(found[2]), base]
    if is_load:
        at, at_offset = a.address(i.operands[2])
        a.emit("bulk.tensor", [*operands, at], [offset, 1, at_offset])
    else:
        a.emit("bulk.tensor", operands, [offset, 0])


@rule("mbarrier")
def _mbarrier(a: Assembler, i: Instruction) -> None:
    kind = i.mods[0]
    a.touches(SPACES["shared"], 8)
    if any(m == "shared::cluster" for m in i.mods) or kind not in _PHASES:
        raise NotImplementedError(i.text)
    handler, has_result = _PHASES[kind]
    operands = list(i.operands)
    result = [a.register(operands.pop(0))] if has_result and operands[0][0] != "[" else []
    base, offset = a.address(operands.pop(0))
    if handler in ("init", "inval"):
        a.emit(f"mbarrier.{handler}", [base, *map(a.value, operands)], [offset])
        return
    if handler == "wait":
        a.emit("mbarrier.wait", [*result, base, a.value(operands[0])], [offset, "parity" in i.mods])
        return
    given = a.value(operands[0]) if operands else a.constant(1)
    is_bytes = "expect_tx" in i.mods
    count, bytes_ = (a.constant(1), given) if is_bytes else (given, a.constant(0))
    imm = [offset, kind != "expect_tx", kind == "arrive_drop"]
    a.emit("mbarrier.arrive", [*(result or [a.register()]), base, count, bytes_], imm)


_PHASES = {
    "init": ("init", False),
    "inval": ("inval", False),
    "arrive": ("arrive", True),
    "arrive_drop": ("arrive", True),
    "expect_tx": ("arrive", False),
    "test_wait": ("wait", True),
    "try_wait": ("wait", True),
}
"""Handler of an instruction, and whether it has a result."""


@rule("wgmma")
def _wgmma(a: Assembler, i: Instruction) -> None:
    kind = i.mods[0]
    if kind != "mma_async":
        count = int(i.operands[0], 0) if i.operands else 0
        a.emit(f"wgmma.{kind}", [], [count], ALIGNED)
        return
    shape = next(m for m in i.mods if re.fullmatch(r"m\d+n\d+k\d+", m))
    m, n, k = map(int, re.findall(r"\d+", shape))
    is_known = set(i.mods) == {"mma_async", "sync", "aligned", shape}
    if m != 64 or not is_known or i.types[1] != i.types[2]:
        raise NotImplementedError(i.text)
    d, first, second, scale, *numbers = i.operands
    results, left = a.results(d), a.parts(first)
    signs = [int(x, 0) for x in numbers]
    transposes = signs[2:] if len(left) == 1 else [0, *signs[2:]]
    flags = (
        [x == -1 for x in signs[:2]] + [False] * (2 - len(signs[:2])) + [t == 1 for t in transposes]
    )
    a.touches(SPACES["shared"], 16)
    imm = [
        n | k << 16,
        _packed([_ELEMENTS[t] for t in i.types[:2]]),
        len(results) | len(left) << 8,
        sum(flag << bit for bit, flag in enumerate(flags)),
    ]
    operands = [*results, *left, a.value(second), a.value(scale, "pred")]
    a.emit("wgmma.mma_async", operands, imm, ALIGNED)
