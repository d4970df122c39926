"""Programs for AArch64 that are compiled on another machine."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import DeviceError, UnsupportedError
from shlo_disc.lower.cpu import foreign_code
from shlo_disc.lower.cpu.foreign_code import HOST_FUNCTIONS, Objects
from shlo_disc.lower.cpu.machine import OTHERS, machine_of
from shlo_disc.ral import check_object_code

TARGET = "cpu:aarch64"

pytestmark = pytest.mark.skipif(
    machine_of("aarch64").is_this_one, reason="this machine runs code of AArch64"
)


def exported(function, *specs: str) -> jax.export.Exported:
    scope = export.SymbolicScope()
    sizes = [export.symbolic_shape(spec, scope=scope) for spec in specs]
    shapes = [jax.ShapeDtypeStruct(each, jnp.float32) for each in sizes]
    return export.export(jax.jit(function))(*shapes)


def layer(x, w):
    return jax.nn.gelu(x @ w) - x.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def program():
    return shlo_disc.compile(exported(layer, "n, 64", "64, 32"), target=TARGET)


def test_the_machine_has_what_every_one_has():
    machine = machine_of("aarch64")
    assert (machine.vector_bytes, machine.vector_registers, machine.has_fma) == (16, 32, True)
    assert machine.lanes(4) == 4
    assert machine_of("").is_this_one


def test_all_code_is_made(program):
    objects = Objects(machine_of("aarch64"))
    host = objects.of_host(program.host.text)
    assert all(name.encode() in host for name in HOST_FUNCTIONS)
    kernels = [objects.of_kernel(kernel.text) for kernel in program.host.kernels]
    assert kernels
    for file in (host, *kernels):
        check_object_code(file, "aarch64")
        assert b".eh_frame" not in file  # nothing is unwound
    name = objects.kernel_name(program.host.kernels[0].text)
    assert name.encode() in kernels[0]


def test_objects_are_the_same_every_time(program, own_store):
    text = program.host.kernels[0].text
    first = Objects(machine_of("aarch64")).of_kernel(text)
    shlo_disc.cache.clear()

    foreign_code.RECENT.clear()
    assert Objects(machine_of("aarch64")).of_kernel(text) == first


def test_texts_have_no_words_of_another_machine(program):
    def scores(q, k, v):
        return jax.nn.softmax(q @ k.T) @ v

    attention = shlo_disc.compile(exported(scores, "n, 64", "n, 64", "n, 64"), target=TARGET)
    for one in (program, attention):
        texts = [one.host.text, *(kernel.text for kernel in one.host.kernels)]
        assert not [text for text in texts if "x86" in text or '"=v,0"' in text]


def test_products_use_multiply_adds_of_vectors(program):
    assert "fmla\tv" in program.as_text("asm")
    assert "llvm.fma.v4f32" in program.as_text("llvm")


def test_the_loop_of_products_keeps_its_sums_in_registers():
    product = shlo_disc.compile(exported(jnp.matmul, "n, 768", "768, 768"), target=TARGET)
    labels, shortest = {}, 1000
    lines = product.as_text("asm").splitlines()
    for number, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = number
        branch = re.search(r"\tb\.ne\t(\.LBB\w+)", line)
        if branch and branch[1] in labels:
            body = lines[labels[branch[1]] + 1 : number + 1]
            if sum("fmla" in one for one in body) == 24:  # 8 rows of 12 columns
                shortest = min(shortest, len(body))
    assert shortest <= 40  # with the loads of 3 registers of B and 8 elements of A


def test_a_call_here_is_refused(program):
    x, w = np.ones((3, 64), "f4"), np.ones((64, 32), "f4")
    with pytest.raises(DeviceError, match="has code for another machine: save it"):
        program.run_numpy([x, w])
    with pytest.raises(DeviceError, match="has code for another machine"):
        program(x, w)


def test_only_foreign_machines_have_objects():
    with pytest.raises(UnsupportedError, match=r"'cpu:riscv' is unknown; .* avx512, aarch64"):
        machine_of("riscv")
    assert [*OTHERS] == ["aarch64"]


def test_what_does_not_compile_is_told():
    with pytest.raises(shlo_disc.InternalError, match=r"LLVM did not accept|a process ended"):
        Objects(machine_of("aarch64")).of_kernel(
            """func.func @KERNEL(%a: i64) {
              %0 = llvm.inline_asm has_side_effects "", "=v,0" %a : (i64) -> i64
              return
            }"""
        )
