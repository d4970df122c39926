"""FFI targets of the user's, called from compiled programs as XLA calls them."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ShapeMismatchError, UnsupportedError
from shlo_disc.base.errors import ForeignCallError
from tests.children import at_once
from tests.ffi.building import registered

F32 = jnp.float32


@pytest.fixture(scope="module", autouse=True)
def handlers():
    """All handlers, registered under `test_ffi.NAME`."""
    return registered()


def call(name, *results, **options):
    return jax.ffi.ffi_call(
        f"test_ffi.{name}", results if len(results) > 1 else results[0], **options
    )


def like(x, *shape):
    return jax.ShapeDtypeStruct(shape or x.shape, x.dtype)


def affine(x, shift):
    y, sums = call("affine", like(x), jax.ShapeDtypeStruct(x.shape[:1], F32))(
        x, shift, scale=np.float32(2)
    )
    return y, sums


def compared(function, *calls, compilations=1, exact=True):
    """One function of ours, equal to jax.jit at every call."""
    ours, theirs = shlo_disc.jit(function), jax.jit(function)
    for arguments in calls:
        got, want = ours(*arguments), theirs(*arguments)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            check = np.testing.assert_array_equal if exact else np.testing.assert_allclose
            check(g, w, **({} if exact else {"rtol": 1e-5}))
    assert ours.cache_info().misses == compilations
    return ours


def values(*shape, dtype="f4"):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape) / 4


def test_one_compilation_for_all_sizes():
    def program(x, shift):
        y, sums = affine(jnp.sin(x) + 1, shift * 2)
        return y * 3, sums[:, None] + x

    compared(
        program,
        *[(values(*shape), values(1) + 1) for shape in ((3, 4), (7, 1), (1, 301), (64, 65))],
        exact=False,
    )


@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "i8", "u2", "u8", "f2", "f8", "bfloat16"])
def test_every_element_type(dtype):
    def program(x):
        return call("dump", like(x))(x, number=np.int32(7))

    with jax.enable_x64(True):
        want = np.frombuffer(b"number=4x1:\x07\0\0\0;", np.uint8)
        x = jnp.zeros(64, dtype)
        got = np.asarray(shlo_disc.jit(program)(x)).view(np.uint8)[: want.size]
    np.testing.assert_array_equal(got, want)


ATTRIBUTES = {
    "a bool": True,
    "b": np.int8(-3),
    "c": np.int64(-(2**63)),
    "d": 2.5,
    "e": np.float32(-0.0),
    "f": "text with \u20ac",
    "g": np.arange(3, dtype=np.int64),
    "h": np.full(5, np.nan, np.float32),
    "i": {"z": 1, "a": "x", "c": 2.5},
    "k": np.zeros(0, np.float64),
    "l": np.uint32(2**32 - 1),
    "m": np.array([[1, 2], [3, 4]], np.uint8),
    "o": np.array([2**63, 1], np.uint64),
    "q": "",
}  # fmt: skip


def test_attributes_of_all_types():
    """The bytes a handler sees are those that XLA shows it."""

    def program(x):
        return call("dump", jax.ShapeDtypeStruct((1024,), np.uint8))(x, **ATTRIBUTES)

    with jax.enable_x64(True):
        compared(program, (values(3),), (values(5),))


def test_attributes_in_text():
    """Forms that JAX does not write, or XLA does not read."""
    text = """
      func.func @main(%x: tensor<3xf32>) -> tensor<64xui8> {
        %y = stablehlo.custom_call @test_ffi.dump(%x) {mhlo.backend_config =
          {z = array<i16: 1, 2>, a = {c = {d = "e"}, b = array<i1: true>},
           f = dense<[1.5, 2.0]> : tensor<2xf16>, h = 1.5 : bf16}}
          : (tensor<3xf32>) -> tensor<64xui8>
        return %y : tensor<64xui8>
      }"""
    (got,) = shlo_disc.compile(text)(values(3))
    want = b"a={b=1x1:\1;c={d=e;};};f=10x2:\0\x3e\0\x40;h=16x1:\xc0\x3f;z=3x2:\1\0\2\0;"
    assert bytes(np.asarray(got)).rstrip(b"\0") == want.rstrip(b"\0")


def test_layouts():
    def program(x):
        seen, sizes = jax.ffi.ffi_call(
            "test_ffi.memory",
            (like(x), jax.ShapeDtypeStruct((3,), np.int64)),
            input_layouts=[(1, 2, 0)],
            output_layouts=[(2, 0, 1), None],
        )(x)
        return seen, sizes, x + 1

    with jax.enable_x64(True):
        compared(program, *[(values(*shape),) for shape in ((2, 3, 4), (1, 1, 5), (7, 2, 2))])


def test_results_in_the_memory_of_operands():
    """The handler writes two elements; the others are the operand's, which stays what it was."""

    def bump(x):
        return call("bump", like(x), input_output_aliases={0: 0})(x)

    def program(x, y):
        twice = bump(bump(x * 2))
        return twice, bump(x), x, bump(y)[::-1] + y

    calls = [(values(n), values(n) + 1) for n in (1, 2, 3, 64, 1001)]
    f = compared(program, *calls)
    text = f.lower(*calls[0]).compile().as_text()
    in_place = [line for line in text.splitlines() if 'disc.buffers = ["inplace"]' in line]
    assert len(in_place) == 2, "copies only where an operand lives on"


def test_results_in_donated_arguments():
    def program(x):
        return call("bump", like(x), input_output_aliases={0: 0})(x)

    f = shlo_disc.jit(program, donate_argnums=0)
    for n in (3, 1001):
        x = jnp.asarray(values(n))
        want = np.asarray(jax.jit(program)(values(n)))
        np.testing.assert_array_equal(f(x), want)
        assert x.is_deleted()


def test_unaligned_arguments():
    """NumPy's memory may begin anywhere; a handler sees aligned memory."""
    whole = values(1000)

    def program(x):
        return call("checked", like(x))(x)

    f = shlo_disc.jit(program)
    for start in range(5):
        np.testing.assert_array_equal(f(whole[start : start + 900]), whole[start : start + 900] / 2)


def test_thread_pool_scratch_and_context():
    """XLA gives its handlers on CPUs no scratch memory, so NumPy tells what is right."""
    f = shlo_disc.jit(lambda x: call("pooled", jax.ShapeDtypeStruct((1,), F32))(jnp.sqrt(x)))
    for n in (1, 5, 10000):
        want = np.sqrt(values(n)).sum(dtype=np.float64)
        np.testing.assert_allclose(f(values(n)), [want], rtol=1e-6)
    assert f.cache_info().misses == 1


def test_an_asynchronous_handler():
    def program(x):
        return call("later", like(x))(x) * 2

    f = shlo_disc.jit(program)
    for n in (1, 7):
        np.testing.assert_array_equal(f(values(n)), values(n) * 2)
    with pytest.raises(ForeignCallError, match=r"test_targets.py.*@test_ffi.later failed: later"):
        f(values(3) - 1)


def test_states(handlers):
    """An instantiation for every call in the program; its state is there in every run."""

    def program(x):
        power = call("power", like(x))
        return power(x, exponent=np.int64(2)) + power(x, exponent=np.int64(3))

    with jax.enable_x64(True):
        want = jax.jit(program)(values(3))
        jax.clear_caches()
        gc.collect()
        before = handlers.powers()
        f = shlo_disc.jit(program)
        np.testing.assert_array_equal(f(values(3)), want)
        assert f(values(8)).shape == (8,)
        assert handlers.powers() == before + 2
        del f
        gc.collect()
        assert handlers.powers() == before
        with pytest.raises(UnsupportedError, match=r"cannot be called: a negative exponent"):
            shlo_disc.jit(lambda x: call("power", like(x))(x, exponent=np.int64(-1)))(values(3))


def test_an_error_names_the_line_and_spoils_nothing():
    def program(x):
        return jnp.exp(call("checked", like(x))(x - 2))

    f = shlo_disc.jit(program)
    good = f(values(9) + 2)
    for _ in range(2):
        with pytest.raises(ForeignCallError) as caught:
            f(values(5) + 1)
    text = str(caught.value)
    assert "test_targets.py:" in text, text
    assert "@test_ffi.checked failed: element 0 is negative (INVALID_ARGUMENT)" in text
    np.testing.assert_array_equal(f(values(9) + 2), good)
    inside = jax.jit(lambda x: f(x) + 1)
    np.testing.assert_array_equal(inside(values(9) + 2), good + 1)
    with pytest.raises(ValueError, match=r"INVALID_ARGUMENT.*@test_ffi.checked: element 0 is neg"):
        jax.block_until_ready(inside(values(9)))


@pytest.mark.parametrize("before", [False, True])
def test_an_error_ends_a_loop(before):
    """What a failed call leaves must not keep a loop running for ever."""

    def program(x):
        if before:
            x = call("checked", like(x))(x)

        def step(state):
            y = state if before else call("checked", like(state))(state)
            return y * 0

        return jax.lax.while_loop(lambda y: jnp.max(y) < 1, step, x)

    f = shlo_disc.jit(program)
    np.testing.assert_array_equal(
        f(values(3) + 2.5), values(3) + 2.5 if not before else (values(3) + 2.5) / 2
    )
    with pytest.raises(ForeignCallError, match=r"is negative"):
        f(values(3) - 1)


def test_transformations_and_control_flow():
    @jax.custom_jvp
    def half(x):
        return call("checked", like(x), vmap_method="broadcast_all")(x)

    half.defjvp(lambda p, t: (half(p[0]), t[0] / 2))

    def program(x, n):
        y = jax.lax.fori_loop(0, n, lambda _, y: half(y) + 1, x)
        y = jax.lax.cond(n > 2, half, lambda v: v * 3, y)
        return jax.lax.scan(lambda c, v: (c + half(v), half(c)), jnp.zeros_like(x[0]), y)

    calls = [(values(k, 4), n) for k, n in ((3, 1), (5, 3), (1, 4))]
    compared(program, *calls)

    def batched(x):
        return jax.vmap(half)(x).sum()

    compared(batched, (values(3, 5),), (values(2, 7),), exact=False)
    compared(jax.grad(lambda x: jnp.sum(half(x) ** 2)), (values(3),), (values(6),))
    ours = shlo_disc.jit(half)
    np.testing.assert_array_equal(jax.vmap(ours)(values(3, 4)), values(3, 4) / 2)
    np.testing.assert_array_equal(jax.grad(lambda x: ours(x).sum())(values(4)), np.full(4, 0.5))


def test_calls_that_differ_in_attributes_alone_are_not_confused():
    """XLA finds a program by a number, which tells programs of one text apart."""

    def scaled(by):
        def program(x):
            y, _ = call("affine", like(x), jax.ShapeDtypeStruct(x.shape[:1], F32))(
                x, jnp.ones(1), scale=np.float32(by)
            )
            return y

        return shlo_disc.jit(program)

    x = values(3, 4)
    f, g = scaled(2), scaled(3)
    np.testing.assert_array_equal(f(x), x * 2 + 1)
    np.testing.assert_array_equal(g(x), x * 3 + 1)
    for _ in range(2):  # what XLA compiled first, and what it compiled last
        np.testing.assert_array_equal(jax.jit(lambda x: f(x) + 0)(x), x * 2 + 1)
        np.testing.assert_array_equal(jax.jit(lambda x: g(x) + 0)(x), x * 3 + 1)


def test_from_many_threads():
    f = shlo_disc.jit(lambda x: affine(x, jnp.ones(1))[0] + call("checked", like(x))(x))
    g = shlo_disc.jit(lambda x: call("checked", like(x))(x))

    def work(seed):
        for k in range(40):
            x = values(seed + 1, k % 5 + 1)
            np.testing.assert_array_equal(f(x), x * 2 + 1 + x / 2)
            with pytest.raises(ForeignCallError, match="element 0 is negative"):
                g(x - 1)

    at_once(work, range(8))


def test_functions_of_later_versions_of_the_api():
    f = shlo_disc.jit(lambda x: call("later_api", like(x))(x))
    np.testing.assert_array_equal(f(np.zeros(3, np.float32)), np.ones(3, np.float32))


def test_what_cannot_be_called_is_refused():
    def missing(x):
        return jax.ffi.ffi_call("test_ffi.nowhere", like(x))(x)

    with pytest.raises(UnsupportedError, match=r"@test_ffi.nowhere: no FFI target of this name"):
        shlo_disc.jit(missing)(values(3))
    with pytest.raises(ForeignCallError, match=r"only XLA's own runtime has"):
        shlo_disc.jit(lambda x: call("streamed", like(x))(x))(values(3))

    def effect(x):
        return call("checked", like(x), has_side_effect=True)(x)

    with pytest.raises(UnsupportedError, match=r"side effect"):
        shlo_disc.jit(effect)(values(3))
    text = """
      func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
        %y = stablehlo.custom_call @TARGET(%x) {mhlo.backend_config = {}, operand_layouts =
          [dense<LAYOUT> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>],
          indices_of_shape_operands = dense<1> : tensor<1xi64>} : (tensor<?xf32>) -> tensor<?xf32>
        return %y : tensor<?xf32>
      }"""
    callback = text.replace("TARGET", "xla_ffi_python_cpu_callback").replace("LAYOUT", "0")
    with pytest.raises(UnsupportedError, match=r"calls back into Python"):
        shlo_disc.compile(
            callback.replace("tensor<?", "tensor<3").replace(
                "indices_of_shape_operands = dense<1> : tensor<1xi64>", "mhlo.note"
            )
        )


def test_a_program_is_explained():
    f = shlo_disc.jit(lambda x: call("checked", like(x))(x))
    f(values(3))
    assert "@test_ffi.checked" in f.explain()
    profile = f.lower(values(3)).compile().executable.profile(values(3), calls=2)
    assert "@test_ffi.checked" in str(profile)


def test_shapes_are_checked_as_elsewhere():
    def program(x):
        return call("checked", like(x))(x)

    exe = shlo_disc.compile(jax.export.export(jax.jit(program), disabled_checks=[
        jax.export.DisabledSafetyCheck.custom_call("test_ffi.checked")])(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("2*n"), F32)))  # fmt: skip
    np.testing.assert_array_equal(exe(values(4))[0], values(4) / 2)
    with pytest.raises(ShapeMismatchError):
        exe(values(3))
