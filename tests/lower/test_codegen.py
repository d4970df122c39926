"""Machine code from kernel texts: once for equal ones, on threads, and what happens on errors."""

from __future__ import annotations

import ctypes
import os
import threading

import pytest

import shlo_disc
from shlo_disc.base.errors import InternalError
from shlo_disc.ir.mlir import kernel_context
from shlo_disc.lower import background
from shlo_disc.lower.cpu import codegen, object_code
from shlo_disc.lower.cpu.builder import COLD
from shlo_disc.lower.plan import ONCE, named

pytestmark = pytest.mark.usefixtures("compiled_anew")

ANSWER = """
func.func @KERNEL(%args: !llvm.ptr) -> i64 {{
  %answer = arith.constant {} : i64
  return %answer : i64
}}
"""


def called(function: codegen.Function) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address)(None)


@pytest.fixture
def compilations(monkeypatch):
    """The names of what is compiled."""
    names = []
    compile_ = codegen._compile

    def recording(source, **more):
        names.extend(source.names)
        return compile_(source, **more)

    monkeypatch.setattr(codegen, "_compile", recording)
    return names


def test_equal_texts_are_compiled_once_and_in_any_order(compilations):
    texts = [ANSWER.format(n) for n in (7001, 7002, 7001, 7003)]
    with codegen.Builder() as builder:
        builder.add(texts[3])
        functions = builder.functions(texts)
    assert [called(f) for f in functions] == [7001, 7002, 7001, 7003]
    assert sorted(compilations) == sorted({codegen.function_name(t) for t in texts})
    assert codegen.compile_functions(texts[:1]) == functions[:1]
    assert len(compilations) == 3


def test_what_is_not_begun_is_given_up_when_writing_fails(compilations, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    compile_ = codegen._compile

    def slow(*args, **more):
        begun.set()
        assert go_on.wait(60)
        return compile_(*args, **more)

    monkeypatch.setattr(codegen, "_compile", slow)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})

    def written():
        with codegen.Builder() as builder:
            for n in range(8):
                builder.add(ANSWER.format(7100 + n))
            assert begun.wait(60)
            threading.Timer(0.2, go_on.set).start()
            raise KeyError("an emitter failed")

    with pytest.raises(KeyError, match="an emitter failed"):
        written()
    assert len(compilations) == 1


def test_what_does_not_lower_is_named():
    text = """
func.func @KERNEL(%args: !llvm.ptr) {
  %a = "tensor.empty"() : () -> tensor<2xf32>
  "test.use"(%a) : (tensor<2xf32>) -> ()
  return
}
"""
    with pytest.raises(InternalError, match=r"tensor\.empty|test\.use"):
        codegen.compile_functions([text])


def test_what_is_made_quickly_and_made_again_is_left_unoptimised():
    plain = ANSWER.format(1)
    once = ANSWER.format(2).replace(" {", f" attributes {{{ONCE}}} {{", 1)
    cold = named(plain, f"K{COLD}_sine")

    def unoptimised(*texts, quickly=True):
        module = object_code.lower_to_llvm("".join(texts), kernel_context(), quickly=quickly)
        functions = [view.operation for view in module.body.operations]
        return ["optnone" in str(f.attributes.get("passthrough")) for f in functions]

    assert unoptimised(plain, cold) == [True, True]
    assert unoptimised(plain, cold, quickly=False) == [False, False]
    assert unoptimised(once, cold) == [False, False]
    assert unoptimised(named(once, "ONCE"), plain) == [False, True]


def test_engines_go_in_the_background_and_few_wait_for_that(monkeypatch):
    monkeypatch.setenv("SHLO_DISC_COMPILE_AHEAD", "1")
    monkeypatch.setattr(object_code, "_MOST_IDLE_ENGINES", 2)
    assert shlo_disc.finish_compiling(120)
    later = []
    once = ANSWER.replace(" {{", f" attributes {{{{{ONCE}}}}} {{{{", 1)  # no better code follows
    monkeypatch.setattr(object_code, "free_later", later.append)
    with codegen.Builder() as builder:
        for number, waiting in enumerate((1, 2, 2, 2), 7300):
            (function,) = builder.functions([once.format(number)])
            assert len(object_code._idle_engines) == waiting
            assert called(function) == number
    assert later == [object_code._free_an_engine]
    background.free_later(*later)
    assert shlo_disc.finish_compiling(120)
    assert not object_code._idle_engines


def test_a_builder_makes_a_context_a_thread(monkeypatch):
    made = []

    def counted():
        made.append(threading.get_ident())
        return kernel_context()

    monkeypatch.setattr(object_code, "kernel_context", counted)
    with codegen.Builder() as builder:
        for number in range(8):
            builder.functions([ANSWER.format(7400 + number)])
    assert len(made) == len(set(made)) < 8
