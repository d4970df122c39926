"""Machine code is freed with its last owner, and kept as long as anything may run it."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shlo_disc.lower.cpu import codegen, object_code
from tests.children import python

pytestmark = pytest.mark.usefixtures("compiled_anew", "no_recent_code")

ANSWER = """
func.func @KERNEL(%args: !llvm.ptr) -> i64 {{
  %answer = arith.constant {} : i64
  return %answer : i64
}}
"""


PAGE = mmap.PAGESIZE


def called(function: codegen.Function) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address)(None)


def mapped(address: int) -> bool:
    """Is there executable memory at `address`?"""
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, rights = line.split()[:2]
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= address < high:
            return "x" in rights
    return False


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_code_is_unmapped_with_its_function_without_the_garbage_collector():
    gc.disable()
    try:
        (function,) = codegen.compile_functions([ANSWER.format(9001)])
        address = function.address
        assert called(function) == 9001
        assert mapped(address)
        del function
        assert not mapped(address)
    finally:
        gc.enable()


def test_equal_texts_share_code_until_the_last_owner_goes():
    text = ANSWER.format(9002)
    (first,) = codegen.compile_functions([text])
    (second,) = codegen.compile_functions([text])
    assert first is second
    gone = weakref.ref(first)
    del first
    assert called(second) == 9002
    del second
    assert gone() is None
    (again,) = codegen.compile_functions([text])
    assert called(again) == 9002


def test_functions_of_one_module_live_together():
    prepare, run = codegen.compile_host(
        "func.func @prepare() -> i64 {\n%a = arith.constant 1 : i64\nreturn %a : i64\n}\n"
        "func.func @run() -> i64 {\n%a = arith.constant 2 : i64\nreturn %a : i64\n}\n"
    )
    del prepare
    assert called(run) == 2


def test_a_builder_that_gives_up_keeps_nothing():
    before = len(codegen._functions)

    def fail():
        with codegen.Builder() as builder:
            for n in range(4):
                builder.add(ANSWER.format(9100 + n))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert len(codegen._functions) == before


def test_engines_come_and_go_in_threads():
    wrong = []

    def work(seed: int) -> None:
        for n in range(6):
            answer = 9200 + (seed + n) % 5  # other threads want the same ones
            (function,) = codegen.compile_functions([ANSWER.format(answer)])
            if called(function) != answer:
                wrong.append(answer)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, seed) for seed in range(4)]:
            future.result(120)
    assert not wrong
    assert threading.active_count() < 50


def test_memory_of_many_functions_that_are_gone():
    def cycle(n: int) -> None:
        (function,) = codegen.compile_functions([ANSWER.format(10_000 + n)])
        assert called(function) == 10_000 + n

    for n in range(20):
        cycle(n)
    object_code._trim()
    count, before = mappings(), resident_bytes()
    for n in range(20, 100):
        cycle(n)
    object_code._trim()
    assert mappings() - count < 20  # one for each function that stays
    assert resident_bytes() - before < 80 * 200_000  # an engine that stays takes 780 kB


HOST = """
func.func @prepare() -> i64 {{
  %a = arith.constant {0} : i64
  return %a : i64
}}
func.func @run() -> i64 {{
  %a = arith.constant {0} : i64
  return %a : i64
}}
"""


def test_recent_texts_are_compiled_once(monkeypatch):
    compiled = []
    original = codegen._compile
    monkeypatch.setattr(
        codegen, "_compile", lambda *a, **k: (compiled.append(a[0]), original(*a, **k))[1]
    )
    codegen.RECENT.resize(8 << 20)
    for _ in range(2):
        (function,) = codegen.compile_functions([ANSWER.format(9501)])
        prepare, run = codegen.compile_host(HOST.format(9502))
        assert [called(f) for f in (function, prepare, run)] == [9501, 9502, 9502]
        del function, prepare, run
    assert len(compiled) == 2


def test_the_oldest_code_goes_first():
    codegen.RECENT.resize(3 * PAGE + PAGE // 2)  # each takes a page
    texts = [ANSWER.format(9600 + k) for k in range(5)]

    def alive() -> list[bool]:
        return [codegen.function_name(text) in codegen._functions for text in texts]

    for text in texts[:3]:
        codegen.compile_functions([text])
    codegen.compile_functions([texts[0]])  # is used again
    codegen.compile_functions([texts[3]])
    assert alive() == [True, False, True, True, False]
    (used,) = codegen.compile_functions([texts[2]])
    codegen.RECENT.resize(0)
    assert alive() == [False, False, True, False, False]
    assert called(used) == 9602


END = """
import atexit
from tests.lower.test_code_lifetime import ANSWER, codegen
(kept,) = codegen.compile_functions([ANSWER.format(9701)])
class AtTheEnd:
    def __del__(self, functions=[kept]):
        functions.clear()
codegen.RECENT.resize(0)
codegen.last = AtTheEnd()
del kept
"""


def test_the_interpreter_ends_in_silence():
    """Code that is alive then is freed when the names of its module may be gone."""
    assert python(END, 120, quiet=True) == ""
