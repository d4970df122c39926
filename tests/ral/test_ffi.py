"""Executables as custom calls inside jax.jit."""

import gc
import itertools
import os
import shlex
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shlo_disc import ral
from shlo_disc.ral import _ral
from tests.children import at_once

fingerprints = itertools.count(1000)


@pytest.fixture(scope="module", autouse=True)
def target():
    jax.ffi.register_ffi_target(ral.FFI_TARGET, ral.ffi_handler(), platform="cpu")


alive = []


def registered(exe):
    """The fingerprint of an executable, which stays alive."""
    alive.append(exe)
    return registered_weakly(exe)


def registered_weakly(exe):
    fingerprint = next(fingerprints)
    exe.register_ffi(fingerprint)
    return fingerprint


def custom_call(fingerprint, *results, **attributes):
    call = jax.ffi.ffi_call(ral.FFI_TARGET, results)
    return lambda *args: call(*args, executable=np.int64(fingerprint), **attributes)


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def test_inside_jit(standins):
    fingerprint = registered(standins.add1())
    f = jax.jit(lambda x: custom_call(fingerprint, like(x))(x * 2)[0] + 1)
    for shape in ((1, 1), (3, 4), (7, 301), (0, 5), (64, 1000)):
        x = jnp.arange(np.prod(shape), dtype="f4").reshape(shape)
        np.testing.assert_array_equal(f(x), 2 * x + 2)


@pytest.mark.parametrize("dtype", ["bool", "i1", "i4", "u2", "u4", "f2", "bfloat16", "f4", "c8"])
def test_dtypes(standins, dtype):
    x = jnp.arange(9).astype(dtype)
    fingerprint = registered(standins.copy(x.dtype, 1))
    (y,) = jax.jit(custom_call(fingerprint, like(x)))(x)
    np.testing.assert_array_equal(y, x)


def test_declarations_are_those_of_the_installed_xla():
    here = Path(__file__).parent
    source = here.parents[1] / "shlo_disc" / "ral" / "src" / "core"
    includes = [f"-I{source}", f"-I{jax.ffi.include_dir()}"]
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    command = [*compiler, "-std=c++17", "-fsyntax-only", *includes, str(here / "xla_ffi_abi.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_inside_scan_and_cond(standins):
    add1 = custom_call(registered(standins.add1()), jax.ShapeDtypeStruct((2, 3), "float32"))

    def step(x, _):
        return jax.lax.cond(x[0, 0] < 5, lambda a: add1(a)[0], lambda a: a, x), None

    y, _ = jax.jit(lambda x: jax.lax.scan(step, x, length=10))(jnp.zeros((2, 3)))
    np.testing.assert_array_equal(y, np.full((2, 3), 5))


def refused(f, *args):
    with pytest.raises(Exception, match="shlo_disc") as error:
        jax.block_until_ready(jax.jit(f)(*args))
    return str(error.value)


def test_errors_name_the_cause(standins):
    fingerprint = registered(standins.add1())
    x = jnp.ones((2, 3))
    add1 = custom_call(fingerprint, like(x))
    text = refused(add1, jnp.ones((2, 3), "int32"))
    assert "INVALID_ARGUMENT" in text
    assert "argument 0 ('x'): dtype is int32, the program takes float32" in text
    assert "argument 0 ('x'): rank is 1" in refused(add1, jnp.ones(6))
    assert "x.shape[0] != 13" in refused(add1, jnp.ones((13, 3)))
    assert "x.shape[1] != 13" in refused(add1, jnp.ones((3, 13)))
    assert "takes 1 arguments and has 1 results, the custom call has 2 and 1" in refused(add1, x, x)
    text = refused(custom_call(fingerprint, jax.ShapeDtypeStruct((2, 4), "float32")), x)
    assert "result 0 is float32[2,3], the custom call says float32[2,4]" in text
    text = refused(custom_call(fingerprint, jax.ShapeDtypeStruct((2, 3), "int32")), x)
    assert "the custom call says int32[2,3]" in text
    text = refused(custom_call(-5, like(x)), x)
    assert "NOT_FOUND" in text
    assert "program -5 was not compiled in this process" in text
    call = jax.ffi.ffi_call(ral.FFI_TARGET, like(x))
    assert "no i64 attribute 'executable'" in refused(call, x)
    assert "no i64 attribute 'executable'" in refused(lambda a: call(a, executable="one"), x)
    # After all that it still works.
    np.testing.assert_array_equal(jax.jit(add1)(x)[0], x + 1)


def test_sizes_come_by_attribute(standins):
    exe = standins.executable(
        "carrier",
        [("float32", (-1,)), ("float32", (-1,))],
        [("float32", 1, False), ("int32", 0, False)],
    )
    x = jnp.arange(3.0)
    results = (like(x), jax.ShapeDtypeStruct((), "int32"))
    fingerprint = registered(exe)

    def with_sizes(sizes, dtype=np.int64):
        return custom_call(fingerprint, *results, sizes=np.array(sizes, dtype))

    y, is_null = jax.jit(with_sizes([3]))(x)
    assert is_null == 1
    np.testing.assert_array_equal(y, x)
    assert "argument 1: rank is 2, the program takes 1" in refused(with_sizes([3, 1]), x)
    assert "guard 0 does not hold" in refused(with_sizes([4]), x)
    assert "not an array of i64" in refused(with_sizes([3], np.int32), x)


def test_a_program_that_is_gone_is_an_error(standins):
    fingerprint = registered_weakly(standins.add1())
    text = refused(custom_call(fingerprint, jax.ShapeDtypeStruct((2, 2), "f4")), jnp.ones((2, 2)))
    assert f"NOT_FOUND: shlo_disc: program {fingerprint} was not compiled in this process" in text
    assert "or its function is gone; trace the function again" in text


def test_an_equal_program_takes_the_place_of_one_that_is_gone(standins):
    first, second = standins.add1(), standins.add1()
    fingerprint = registered_weakly(first)
    second.register_ffi(fingerprint)
    x = jnp.ones((2, 2))
    del first
    np.testing.assert_array_equal(jax.jit(custom_call(fingerprint, like(x)))(x)[0], x + 1)


def test_an_xla_executable_owns_its_program(standins):
    before = _ral.ffi_registered()
    exe = standins.add1()
    fingerprint = registered_weakly(exe)
    x = jnp.ones((2, 2))
    compiled = jax.jit(custom_call(fingerprint, like(x))).lower(x).compile()
    jitted = jax.jit(lambda x: custom_call(fingerprint, like(x))(x)[0] * 2)
    np.testing.assert_array_equal(jitted(x), 2 * x + 2)
    del exe
    assert _ral.ffi_registered() == before + 1
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x)[0], x + 1)
        np.testing.assert_array_equal(jitted(x), 2 * x + 2)
    del compiled
    gc.collect()
    np.testing.assert_array_equal(jitted(x), 2 * x + 2)
    del jitted
    gc.collect()
    assert _ral.ffi_registered() == before


def test_many_programs_come_and_go(standins):
    before = _ral.ffi_registered()
    for _ in range(500):
        registered_weakly(standins.add1())
    assert _ral.ffi_registered() == before


def test_arguments_are_not_packed_but_constants_are(standins):
    x, w = jnp.ones(5), jnp.arange(5.0)
    results = (like(x), jax.ShapeDtypeStruct((), "int32"))
    f = jax.jit(custom_call(registered(standins.pack("ffi")), *results))
    for _ in range(4):
        y, status = f(x, w)
        assert status == 0
        np.testing.assert_array_equal(y, x + 2 * w)
    exe = standins.executable(
        "pack_constant",
        [("float32", (-1,))],
        [("float32", 1, False), ("int32", 0, False)],
        constants=[np.asarray(w)],
        pack_layouts=["ffi"],
    )
    g = jax.jit(custom_call(registered(exe), *results))
    assert [int(g(x)[1]) for _ in range(3)] == [2, 1, 1]


def test_from_many_threads(standins, bridge):
    exe = standins.add1()
    fingerprint = registered(exe)
    f = jax.jit(lambda x: custom_call(fingerprint, like(x))(x)[0] * 1)

    def work(seed):
        x = jnp.full((seed + 1, 40), float(seed))
        for _ in range(20):
            assert (np.asarray(f(x)) == seed + 1).all()
            assert (np.asarray(exe.call(bridge, [f(x)])[0]) == seed + 2).all()

    at_once(work, range(8))
