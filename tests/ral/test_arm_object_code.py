"""The loader on object files of AArch64: every relocation, damage, and random mutations."""

from __future__ import annotations

import functools
import random
import re
import struct
from pathlib import Path

import pytest

from shlo_disc.lower.cpu.foreign_code import object_code
from shlo_disc.ral import LoadedCode, ObjectCodeError, check_object_code
from tests.emulator import needs_emulator
from tests.ral import test_object_code as x86
from tests.ral.test_object_code import HUGE, mutated, patched, symbol, table
from tools.emulated import told

FIRST = """
llvm.func @first(%n: i64) -> i64 attributes {passthrough = ["noinline"]} {
  %c = llvm.mlir.constant(3 : i64) : i64
  %m = llvm.mul %n, %c : i64
  llvm.return %m : i64
}"""


def element(bits: int, size: int = 4, index: int = 2) -> str:
    """Reads an element of a table of odd numbers that stays in memory."""
    type_ = f"i{bits}"
    wide = "%x" if bits == 64 else "%w"
    widened = "" if bits == 64 else f"%w = llvm.zext %x : {type_} to i64"
    return f"""
llvm.mlir.global private constant @t(dense<{[*range(3, 3 + 2 * size, 2)]}> : tensor<{size}x{type_}>) : !llvm.array<{size} x {type_}>
llvm.func @function(%n: i64) -> i64 {{
  %p = llvm.mlir.addressof @t : !llvm.ptr
  %q = llvm.getelementptr %p[{index}] : (!llvm.ptr) -> !llvm.ptr, {type_}
  %x = llvm.load volatile %q : !llvm.ptr -> {type_}
  {widened}
  %s = llvm.add {wide}, %n : i64
  llvm.return %s : i64
}}"""  # noqa: E501


def apart(bits: int) -> str:
    """Calls a function by its distance to a place in memory."""
    narrow = "%d = llvm.trunc %w : i64 to i32" if bits == 32 else ""
    wide = "%e = llvm.sext %d : i32 to i64" if bits == 32 else ""
    return f"""{FIRST}
llvm.mlir.global internal constant @t() : i{bits} {{
  %a = llvm.mlir.addressof @first : !llvm.ptr
  %t = llvm.mlir.addressof @t : !llvm.ptr
  %x = llvm.ptrtoint %a : !llvm.ptr to i64
  %y = llvm.ptrtoint %t : !llvm.ptr to i64
  %w = llvm.sub %x, %y : i64
  {narrow}
  llvm.return {"%d" if bits == 32 else "%w"} : i{bits}
}}
llvm.func @function(%n: i64) -> i64 {{
  %t = llvm.mlir.addressof @t : !llvm.ptr
  %d = llvm.load volatile %t : !llvm.ptr -> i{bits}
  {wide}
  %f = llvm.getelementptr %t[{"%e" if bits == 32 else "%d"}] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  %r = llvm.call %f(%n) : !llvm.ptr, (i64) -> i64
  llvm.return %r : i64
}}"""


TEXTS = {
    "memset": x86.TEXTS["memset"].replace("@memset_", "@function"),
    "table": re.sub(r".*inline_asm.*\n", "", x86.TEXTS["table"]).replace("@table", "@function"),
    "vector": """
func.func @function(%n: i64) -> i64 {
  %v = arith.constant dense<[1.5, 2.25, -3.0, 7.75]> : vector<4xf32>
  %k = arith.index_cast %n : i64 to index
  %x = vector.extract %v[%k] : f32 from vector<4xf32>
  %i = arith.fptosi %x : f32 to i64
  return %i : i64
}""",
    "tail": FIRST + """
llvm.func @function(%n: i64) -> i64 {
  %r = llvm.call @first(%n) : (i64) -> i64
  llvm.return %r : i64
}""",
    "pointers": FIRST + """
llvm.mlir.global internal constant @p() : !llvm.array<1 x ptr> {
  %u = llvm.mlir.undef : !llvm.array<1 x ptr>
  %a = llvm.mlir.addressof @first : !llvm.ptr
  %v = llvm.insertvalue %a, %u[0] : !llvm.array<1 x ptr>
  llvm.return %v : !llvm.array<1 x ptr>
}
llvm.func @function(%n: i64) -> i64 {
  %p = llvm.mlir.addressof @p : !llvm.ptr
  %f = llvm.load volatile %p : !llvm.ptr -> !llvm.ptr
  %r = llvm.call %f(%n) : !llvm.ptr, (i64) -> i64
  llvm.return %r : i64
}""",
    **{f"element{bits}": element(bits) for bits in (8, 16, 32, 64)},
    **{f"page{page}": element(64, 3000, 512 * page) for page in (1, 2, 3, 4, 5)},
    **{f"apart{bits}": apart(bits) for bits in (32, 64)},
}  # fmt: skip
WANTED = {
    "memset": lambda n: 0x0101010101010101 if n >= 3 else None,
    "table": x86.WANTED["table"],
    "vector": lambda n: (1, 2, -3, 7)[n] if n < 4 else None,
    **{f"element{bits}": lambda n: 7 + n for bits in (8, 16, 32, 64)},
    **{f"page{k}": lambda n, k=k: 3 + 1024 * k + n for k in (1, 2, 3, 4, 5)},
    **{name: lambda n: 3 * n for name in ("tail", "pointers", "apart32", "apart64")},
}
ADRP, ADD, BRANCH, CALL = 275, 277, 282, 283
KNOWN = {257, 260, 261, ADRP, ADD, 278, BRANCH, CALL, 284, 285, 286, 299}
"""ABS64, PREL64, PREL32; a page, its rest in an addition, in loads of 1 to 16 bytes; calls."""


@functools.cache
def object_of(kind: str) -> bytes:
    return object_code(TEXTS[kind], "aarch64")


def relocations(file: bytes) -> dict[int, int]:
    """Type to where the record of such a relocation is."""
    found = {}
    for at in x86.sections(file):
        row = x86.SECTION.unpack_from(file, at)
        if row[1] == 4:
            for record in range(row[4], row[4] + row[5], 24):
                found[struct.unpack_from("<I", file, record + 8)[0]] = record
    return found


def check(file: bytes) -> None:
    check_object_code(file, "aarch64")


@pytest.mark.parametrize("kind", TEXTS)
def test_it_is_taken_on_its_machine_alone(kind):
    check(object_of(kind))
    for refuse in (check_object_code, LoadedCode):
        with pytest.raises(ObjectCodeError, match="code of another machine"):
            refuse(object_of(kind))
    with pytest.raises(ObjectCodeError, match="code of another machine"):
        check(x86.object_of("constants"))


def test_every_relocation_that_is_known_is_tried():
    assert {type_ for kind in TEXTS for type_ in relocations(object_of(kind))} == KNOWN


@needs_emulator
@pytest.mark.parametrize("kind", TEXTS)
def test_it_runs(kind, arm_runner, tmp_path):
    path = tmp_path / "object.o"
    path.write_bytes(object_of(kind))
    numbers = [n for n in (0, 1, 3, 4, 29) if WANTED[kind](n) is not None]
    lines = told(arm_runner, "function", str(path), "function", *map(str, numbers))
    assert [*map(int, lines)] == [WANTED[kind](n) for n in numbers]


def code_at(file: bytes, record: int) -> int:
    """Where the bytes are that the relocation at `record` changes; they are code."""
    begin, _ = table(file, 1)
    return begin + struct.unpack_from("<Q", file, record)[0]


def at_relocation(kind: str, type_: int, offset: int, form: str, value: int) -> bytes:
    """An object with another value at `offset` in the record of a relocation."""
    file = object_of(kind)
    return patched(file, relocations(file)[type_] + offset, form, value)


def with_code(kind: str, type_: int, code: int) -> bytes:
    """An object with another instruction where a relocation is."""
    file = object_of(kind)
    return patched(file, code_at(file, relocations(file)[type_]), "I", code)


NOP, RETURN = 0xD503201F, 0xD65F03C0
DAMAGE = {
    "x86-64": lambda: patched(object_of("memset"), 18, "H", 62),
    "flags": lambda: patched(object_of("memset"), 48, "I", 1),
    "unwinding of x86-64": lambda: x86.with_section(
        object_of("memset"), x86.is_code, type=0x70000001
    ),
    "an unknown relocation": lambda: at_relocation("memset", CALL, 8, "I", 311),
    "a relocation of x86-64": lambda: at_relocation("memset", CALL, 8, "I", 1),
    "a place that wraps": lambda: at_relocation("memset", CALL, 0, "Q", HUGE),
    "a place behind the code": lambda: at_relocation("memset", CALL, 0, "Q", 4096),
    "half an instruction": lambda: at_relocation("table", ADRP, 0, "Q", 10),
    "no branch": lambda: with_code("memset", CALL, NOP),
    "a jump for a call": lambda: with_code("memset", CALL, 0x14000000),
    "no page": lambda: with_code("table", ADRP, NOP),
    "a place for a page": lambda: with_code("table", ADRP, 0x10000008),
    "no addition": lambda: with_code("table", ADD, RETURN),
    "no load of 16 bytes": lambda: with_code("vector", 299, 0xF9400100),
    "no load of 8 bytes": lambda: with_code("element64", 286, 0xB9400100),
    "an unaligned load": lambda: at_relocation("vector", 299, 16, "q", 8),
    "a page in front of all": lambda: at_relocation("table", ADRP, 16, "q", -(2**40)),
    "a page behind all": lambda: at_relocation("table", ADRP, 16, "q", 2**40),
    "a page that wraps": lambda: at_relocation("table", ADRP, 16, "q", -(2**63)),
    "a call in front of all": lambda: at_relocation("tail", BRANCH, 16, "q", -8),
    "a call into a function outside": lambda: at_relocation("memset", CALL, 16, "q", 4),
    "half an instruction's jump": lambda: at_relocation("tail", BRANCH, 16, "q", 2),
    "a symbol's number": lambda: at_relocation("memset", CALL, 12, "I", 0x7FFFFFFF),
    "an address of a function outside": lambda: at_relocation("memset", CALL, 8, "I", ADRP),
    "another library function": lambda: object_of("memset").replace(b"\0memset\0", b"\0system\0"),
    "code that is data": lambda: x86.with_section(object_of("memset"), x86.is_code, flags=2),
    "writable code": lambda: x86.with_section(object_of("memset"), x86.is_code, flags=7),
    "an indirect function": lambda: patched(
        object_of("memset"), symbol(object_of("memset"), b"function") + 4, "B", 0x1A
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(name):
    damaged = DAMAGE[name]()
    assert damaged not in map(object_of, TEXTS)
    with pytest.raises(ObjectCodeError):
        check(damaged)


@pytest.mark.parametrize("kind", ["memset", "vector", "apart32"])
def test_no_part_of_a_file_is_taken_for_it(kind):
    file = object_of(kind)
    for length in range(len(file)):
        with pytest.raises(ObjectCodeError):
            check(file[:length])


def accepted(count: int, seed: int) -> list[bytes]:
    """Those of `count` random mutations that are taken."""
    random_ = random.Random(seed)
    files, taken = [*map(object_of, TEXTS)], []
    for _ in range(count):
        file = mutated(random_.choice(files), random_)
        try:
            check(file)
        except ObjectCodeError:
            continue
        taken.append(file)
    return taken


def loaded(files: list[bytes], runner: Path, folder: Path) -> int:
    """How many of `files` the runtime for AArch64 loads, in one process."""
    path = folder / "objects"
    path.write_bytes(b"".join(struct.pack("<Q", len(file)) + file for file in files))
    return int(told(runner, "load", str(path))[0].split()[0])


@needs_emulator
def test_mutations(arm_runner, tmp_path):
    taken = accepted(4000, 0)
    assert 0.05 < len(taken) / 4000 < 0.9  # instructions may be anything; headers may not
    refused = [DAMAGE[name]() for name in DAMAGE]
    assert loaded([*taken, *refused], arm_runner, tmp_path) == len(taken)


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_mutations(arm_runner, tmp_path, seed):
    taken = accepted(10_000, seed)
    assert 0.05 < len(taken) / 10_000 < 0.9
    assert loaded(taken, arm_runner, tmp_path) == len(taken)
