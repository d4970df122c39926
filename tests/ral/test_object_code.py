"""The loader: what LLVM writes runs, and nothing damaged is mapped or crashes the process."""

from __future__ import annotations

import ctypes
import functools
import random
import struct
from pathlib import Path

import pytest

from shlo_disc.lower.cpu import object_code
from shlo_disc.ral import LoadedCode, ObjectCodeError, check_object_code
from tests.children import python

NUMBERS = "dense<[7, 11, 13, 17]> : vector<4xi64>"
TEXTS = {
    "constants": f"""
func.func @constants(%n: i64) -> i64 {{
  %v = arith.constant {NUMBERS}
  %b = vector.broadcast %n : i64 to vector<4xi64>
  %m = arith.muli %v, %b : vector<4xi64>
  %s = vector.reduction <add>, %m : vector<4xi64> into i64
  return %s : i64
}}""",
    "memset": """
func.func @memset_(%n: i64) -> i64 {
  %one = arith.constant 1 : i64
  %byte = arith.constant 1 : i8
  %count = arith.constant 512 : i64
  %p = llvm.alloca %count x i64 : (i64) -> !llvm.ptr
  %bytes = arith.muli %n, %n : i64
  "llvm.intr.memset"(%p, %byte, %bytes) <{isVolatile = true}> : (!llvm.ptr, i8, i64) -> ()
  %v = llvm.load volatile %p : !llvm.ptr -> i64
  return %v : i64
}""",
    "table": """
func.func @table(%n: i64) -> i64 {
  cf.switch %n : i64, [default: ^d, 0: ^a, 1: ^b, 2: ^c, 3: ^e, 4: ^f]
^a:
  "llvm.inline_asm"() <{asm_string = "nop", constraints = "", has_side_effects}> : () -> ()
  %va = arith.constant 100 : i64
  return %va : i64
^b:
  "llvm.inline_asm"() <{asm_string = "nop;nop", constraints = "", has_side_effects}> : () -> ()
  %vb = arith.constant 7 : i64
  return %vb : i64
^c:
  "llvm.inline_asm"() <{asm_string = "nop;nop;nop", constraints = "", has_side_effects}> : () -> ()
  %vc = arith.constant 42 : i64
  return %vc : i64
^e:
  "llvm.inline_asm"() <{asm_string = "pause", constraints = "", has_side_effects}> : () -> ()
  %ve = arith.constant 3 : i64
  return %ve : i64
^f:
  "llvm.inline_asm"() <{asm_string = "pause;nop", constraints = "", has_side_effects}> : () -> ()
  %vf = arith.constant 9 : i64
  return %vf : i64
^d:
  %vd = arith.constant -1 : i64
  return %vd : i64
}""",
}  # fmt: skip
NAMES = {"constants": "constants", "memset": "memset_", "table": "table"}
WANTED = {
    "constants": lambda n: 48 * n,
    "memset": lambda n: 0x0101010101010101 if n >= 3 else None,
    "table": lambda n: {0: 100, 1: 7, 2: 42, 3: 3, 4: 9}.get(n, -1),
}


@functools.cache
def object_of(kind: str) -> bytes:
    module = object_code.lowered(TEXTS[kind], "")
    return object_code._object_code(module, NAMES[kind], 3)


@pytest.mark.parametrize("kind", TEXTS)
def test_what_llvm_writes_runs(kind):
    code = LoadedCode(object_of(kind))
    address, size = code.functions[NAMES[kind]]
    assert 0 < size <= code.mapped_bytes
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    for n in (0, 1, 3, 4, 29):
        wanted = WANTED[kind](n)
        if wanted is not None:
            assert run(n) == wanted


def test_memory_is_never_writable_and_executable():
    code = LoadedCode(object_of("constants"))
    address, _ = code.functions["constants"]
    (rights,) = [
        line.split()[1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)
    ]
    assert rights == "r-xp"


# ---------------------------------------------------------------- fields of the file

SECTION, SYMBOL, RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), "<QQq"
FIELDS = {"type": 1, "flags": 2, "address": 3, "offset": 4, "bytes": 5, "link": 6, "info": 7,
          "alignment": 8, "record": 9}  # fmt: skip


def sections(file: bytes) -> list[int]:
    """Where the headers of the sections are."""
    (start,) = struct.unpack_from("<Q", file, 40)
    (count,) = struct.unpack_from("<H", file, 60)
    return [start + SECTION.size * k for k in range(count)]


def with_section(file: bytes, pick, **values: int) -> bytes:
    """`file` with other values in the first header for which `pick(row)` is true."""
    for at in sections(file):
        row = list(SECTION.unpack_from(file, at))
        if pick(row):
            for name, value in values.items():
                row[FIELDS[name]] = value
            return file[:at] + SECTION.pack(*row) + file[at + SECTION.size :]
    raise AssertionError("no such section")


def table(file: bytes, kind: int, skip: int = 0) -> tuple[int, int]:
    """Where the records of the section of type `kind` begin and end that has code beside it."""
    for at in sections(file):
        row = SECTION.unpack_from(file, at)
        if row[1] == kind and row[5] > skip:
            return row[4], row[4] + row[5]
    raise AssertionError("no such section")


def patched(file: bytes, at: int, form: str, value: int) -> bytes:
    data = struct.pack("<" + form, value)
    return file[:at] + data + file[at + len(data) :]


def is_code(row):
    return row[1] == 1 and row[2] & 4 and row[5]


def of_type(kind):
    return lambda row: row[1] == kind


def symbol(file: bytes, name: bytes) -> int:
    """Where the record of a symbol is."""
    begin, end = table(file, 2)
    strings = next(SECTION.unpack_from(file, at) for at in sections(file)
                   if SECTION.unpack_from(file, at)[1] == 3)  # fmt: skip
    for at in range(begin, end, SYMBOL.size):
        start = strings[4] + SYMBOL.unpack_from(file, at)[0]
        if file[start : file.index(b"\0", start)] == name:
            return at
    raise AssertionError("no such symbol")


HUGE = 2**64 - 8
DAMAGE = {
    "not ELF": lambda f: b"\x7fELG" + f[4:],
    "32 bits": lambda f: patched(f, 4, "B", 1),
    "big endian": lambda f: patched(f, 5, "B", 2),
    "another ELF version": lambda f: patched(f, 6, "B", 2),
    "an ABI with indirect functions": lambda f: patched(f, 7, "B", 3),
    "a shared library": lambda f: patched(f, 16, "H", 3),
    "AArch64": lambda f: patched(f, 18, "H", 183),
    "segments": lambda f: patched(f, 56, "H", 1),
    "headers beyond the end": lambda f: patched(f, 40, "Q", len(f) - 8),
    "headers far beyond": lambda f: patched(f, 40, "Q", HUGE),
    "records of another size": lambda f: patched(f, 58, "H", 65),
    "no sections": lambda f: patched(f, 60, "H", 0),
    "too many sections": lambda f: patched(f, 60, "H", 0xFFFF),
    "a name table that is none": lambda f: patched(f, 62, "H", 0xFF),
    "code beyond the end": lambda f: with_section(f, is_code, offset=len(f) - 1),
    "a length that wraps": lambda f: with_section(f, is_code, bytes=HUGE),
    "an offset that wraps": lambda f: with_section(f, is_code, offset=HUGE),
    "writable code": lambda f: with_section(f, is_code, flags=7),
    "thread-local code": lambda f: with_section(f, is_code, flags=0x406),
    "constructors": lambda f: with_section(f, is_code, type=14),
    "memory without contents": lambda f: with_section(f, is_code, type=8),
    "a placed section": lambda f: with_section(f, is_code, address=4096),
    "an alignment of 3": lambda f: with_section(f, is_code, alignment=3),
    "an alignment of 2^40": lambda f: with_section(f, is_code, alignment=1 << 40),
    "code that is data": lambda f: with_section(f, is_code, flags=2),
    "symbols of another size": lambda f: with_section(f, of_type(2), record=25),
    "half a symbol": lambda f: with_section(f, of_type(2), bytes=25),
    "symbols without names": lambda f: with_section(f, of_type(2), link=99),
    "names without an end": lambda f: with_section(f, of_type(3), bytes=1, offset=1),
    "relocations of nothing": lambda f: with_section(f, of_type(4), info=99),
    "relocations without symbols": lambda f: with_section(f, of_type(4), link=1),
    "a relocation's place": lambda f: patched(f, table(f, 4)[0], "Q", HUGE),
    "a 32-bit relocation": lambda f: patched(f, table(f, 4)[0] + 8, "I", 10),
    "a symbol's number": lambda f: patched(f, table(f, 4)[0] + 12, "I", 0x7FFFFFFF),
    "a symbol's name": lambda f: patched(f, symbol(f, b"memset_"), "I", 0x7FFFFFFF),
    "an indirect function": lambda f: patched(f, symbol(f, b"memset_") + 4, "B", 0x1A),
    "a unique symbol": lambda f: patched(f, symbol(f, b"memset_") + 4, "B", 0xA2),
    "a common symbol": lambda f: patched(f, symbol(f, b"memset_") + 6, "H", 0xFFF2),
    "a symbol's section": lambda f: patched(f, symbol(f, b"memset_") + 6, "H", 0x7FFF),
    "a symbol's value": lambda f: patched(f, symbol(f, b"memset_") + 8, "Q", HUGE),
    "a symbol's size": lambda f: patched(f, symbol(f, b"memset_") + 16, "Q", HUGE),
    "another library function": lambda f: f.replace(b"\0memset\0", b"\0system\0"),
    "nothing": lambda f: b"",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(name):
    file = object_of("memset")
    check_object_code(file)
    damaged = DAMAGE[name](file)
    assert damaged != file
    for refuse in (check_object_code, LoadedCode):
        with pytest.raises(ObjectCodeError):
            refuse(damaged)


def test_no_part_of_a_file_is_taken_for_it():
    for kind in TEXTS:
        file = object_of(kind)
        for length in range(len(file)):
            with pytest.raises(ObjectCodeError):
                check_object_code(file[:length])


LIMITS = [0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
          2**48, 2**63 - 1, 2**63, HUGE, 2**64 - 1]  # fmt: skip


def mutated(file: bytes, random_: random.Random) -> bytes:
    out = bytearray(file)
    for _ in range(random_.choice((1, 1, 2, 4))):
        at = random_.randrange(len(out))
        match random_.randrange(6):
            case 0:
                out[at] ^= 1 << random_.randrange(8)
            case 1:
                out[at] = random_.randrange(256)
            case 2 | 3:  # a field
                size = random_.choice((2, 4, 8))
                at -= at % size
                value = random_.choice([*LIMITS, len(file), len(file) - 1, random_.randrange(4096)])
                out[at : at + size] = (value % 256**size).to_bytes(size, "little")
            case 4:
                del out[at : at + random_.randrange(1, 64)]
                out = out or bytearray(b"\0")
            case 5:
                other = random_.randrange(len(out))
                out[at : at + 24] = out[other : other + 24]
    return bytes(out)


def accepted(count: int, seed: int) -> float:
    """The share of random mutations that are loaded; the others are refused."""
    random_ = random.Random(seed)
    files = [object_of(kind) for kind in TEXTS]
    kept = 0
    for _ in range(count):
        file = mutated(random_.choice(files), random_)
        try:
            check_object_code(file)
        except ObjectCodeError:
            with pytest.raises(ObjectCodeError):
                LoadedCode(file)
            continue
        kept += 1
        code = LoadedCode(file)
        for address, size in code.functions.values():
            assert sum(ctypes.string_at(address, size)) >= 0  # there is memory
    return kept / count


def test_mutations():
    assert 0.05 < accepted(4000, 0) < 0.9  # instructions may be anything; headers may not


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_mutations(seed):
    assert 0.05 < accepted(10_000, seed) < 0.9


def test_llvm_takes_no_signals():
    """When it writes its first file, it has handlers of its own put in place of Python's."""
    out = python("""
        import ctypes, signal
        from pathlib import Path
        from shlo_disc.lower.cpu import codegen, object_code
        from tests.lower.test_code_lifetime import ANSWER
        def caught():
            lines = Path("/proc/self/status").read_text().splitlines()
            return [line for line in lines if line.startswith("SigCgt")]
        seen = []
        signal.signal(signal.SIGTERM, lambda *_: seen.append("term"))
        before = caught()
        for n in range(2):
            codegen.compile_functions([ANSWER.format(n)])
        assert caught() == before
        signal.raise_signal(signal.SIGTERM)
        assert seen == ["term"]
        print("kept")
    """, SHLO_DISC_CACHE="0")  # fmt: skip
    assert out == "kept"
