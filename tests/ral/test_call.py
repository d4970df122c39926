"""The direct call: what goes in, what comes out, and what is refused."""

import ctypes
import gc
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shlo_disc import ral
from tests.children import at_once

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", ml_dtypes.bfloat16, "float32", "float64", "complex64", "complex128",
]  # fmt: skip
FLOAT8 = [
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip
SHAPES = [(), (0,), (1,), (7,), (0, 3), (3, 0), (1, 1), (2, 64), (5, 0, 2), (3, 1, 37)]


def filled(shape, dtype):
    flat = np.arange(int(np.prod(shape)))
    return (flat % 2 if dtype == "bool" else flat).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_every_dtype_comes_through(standins, bridge, dtype):
    with jax.enable_x64(True):
        for shape in SHAPES:
            exe = standins.copy(dtype, len(shape))
            want = filled(shape, dtype)
            for given in (want, jnp.asarray(want)):
                (got,) = exe.call(bridge, [given])
                assert type(got) is type(jnp.ones(()))
                assert got.shape == shape
                assert got.dtype == np.dtype(dtype)
                assert got.is_ready()
                np.testing.assert_array_equal(np.asarray(got), want)
                # What comes back is remembered: from the second on read without asking JAX.
                again = got
                for _ in range(3):
                    (again,) = exe.call(bridge, [again])
                    assert again.weak_type == got.weak_type
                np.testing.assert_array_equal(np.asarray(again), want)
                exe.call(bridge, [got])
                if want.size:
                    assert np.asarray(got).ctypes.data == got.unsafe_buffer_pointer()
            (plain,) = exe.run_numpy([want])
            assert type(plain) is np.ndarray
            assert plain.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(plain, want)


def test_64_bit_results_stay_64_bit_without_x64(standins, bridge):
    # A program exported under x64 runs in a process that is not.
    for dtype in ("float64", "int64", "uint64"):
        want = filled((4,), dtype)
        (got,) = standins.copy(dtype, 1).call(bridge, [want])
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(np.asarray(got), want)


def test_results_are_uncommitted_and_weak_as_declared(standins, bridge):
    for weak in (False, True):
        (got,) = standins.copy("float32", 1, weak=weak).call(bridge, [jnp.ones(3)])
        assert got.weak_type is weak
        assert not got._committed
        assert got.aval == jax.core.ShapedArray((3,), np.dtype("float32"), weak_type=weak)


def test_results_are_committed_where_an_argument_is(standins, bridge):
    device = jax.devices("cpu")[0]
    (got,) = standins.copy("float32", 1).call(bridge, [jax.device_put(np.ones(3, "f4"), device)])
    assert got._committed
    assert got.devices() == {device}


def test_result_is_zero_copy_aligned_and_usable_by_jax(standins, bridge):
    exe = standins.add1()
    x = jnp.arange(300.0).reshape(3, 100)
    (y,) = exe.call(bridge, [x])
    assert y.unsafe_buffer_pointer() % 64 == 0
    assert np.asarray(y).ctypes.data == y.unsafe_buffer_pointer()
    np.testing.assert_array_equal(jax.jit(lambda a: a * 2)(y), 2 * (x + 1))
    np.testing.assert_array_equal(exe.call(bridge, [y])[0], x + 2)


def test_argument_is_not_copied(standins):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    exe = standins.copy("float32", 2)
    assert np.shares_memory(x, x)
    before = ral.pool_stats()["in_use_bytes"]
    (y,) = exe.run_numpy([x])
    assert not np.shares_memory(x, y)
    assert ral.pool_stats()["in_use_bytes"] - before <= 256


def test_donation_and_deletion_of_results(standins, bridge):
    exe = standins.add1()
    x = jnp.ones((4, 50))
    (y,) = exe.call(bridge, [x])
    z = jax.jit(lambda a: a + 1, donate_argnums=0)(y)
    np.testing.assert_array_equal(z, np.full((4, 50), 3.0))
    with pytest.raises(ral.ArgumentError, match="deleted"):
        exe.call(bridge, [y])
    (y,) = exe.call(bridge, [x])
    y.delete()
    with pytest.raises(ral.ArgumentError, match="deleted") as error:
        exe.call(bridge, [y])
    assert error.value.args == (0, "deleted", "has been deleted or donated")


def test_waits_for_asynchronous_arguments(standins, bridge):
    exe = standins.add1()
    slow = jax.jit(lambda a: a @ a @ a @ a)
    a = jnp.eye(700) * 2
    slow(a).block_until_ready()
    for _ in range(3):
        (y,) = exe.call(bridge, [slow(a)])
        np.testing.assert_array_equal(np.diagonal(y), np.full(700, 17.0))


def test_numpy_layouts(standins, bridge):
    exe = standins.add1()
    base = np.arange(48, dtype="f4").reshape(6, 8)
    raw = np.zeros(4 * 12 + 1, np.uint8)[1:].view("f4").reshape(3, 4)
    read_only = base.copy()
    read_only.flags.writeable = False
    for x in (base.T, base[::2], base[:, ::-1], base[1:1], raw, np.asfortranarray(base), read_only):
        np.testing.assert_array_equal(exe.call(bridge, [x])[0], x + 1)
        np.testing.assert_array_equal(exe.run_numpy([x])[0], x + 1)


def test_python_and_numpy_scalars(standins):
    for dtype, value in (("float32", 2.5), ("bool", True), ("int32", -7), ("complex64", 1j)):
        exe = standins.copy(dtype, 0)
        for given in (value, np.dtype(dtype).type(value)):
            assert exe.run_numpy([given])[0] == value
    assert standins.copy(ml_dtypes.bfloat16, 0).run_numpy([1.5])[0] == 1.5


@pytest.mark.parametrize(
    ("dtype", "value", "what"),
    [
        ("float32", 1, "is a Python int, the program takes float32"),
        ("int32", 1.0, "is a Python float, the program takes int32"),
        ("int32", True, "is a Python bool, the program takes int32"),
        ("bool", 1, "is a Python int, the program takes bool"),
    ],
)
def test_scalars_of_another_kind_are_refused(standins, dtype, value, what):
    with pytest.raises(ral.ArgumentError) as error:
        standins.copy(dtype, 0).run_numpy([value])
    assert error.value.args == (0, "dtype", what)


def test_integer_out_of_range_is_refused(standins):
    with pytest.raises(ral.ArgumentError) as error:
        standins.copy("int8", 0).run_numpy([300])
    assert error.value.args[1] == "value"


class ByDLPack:
    """An array of another library: nothing but the protocol."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_dlpack(standins, bridge):
    base = np.arange(48, dtype="f4").reshape(6, 8)
    raw = np.zeros(4 * 12 + 2, np.uint8)[2:].view("f4").reshape(3, 4)
    for x in (base, base.T, base[::2], base[:, 1:3], base[1:1], raw):
        np.testing.assert_array_equal(standins.add1().call(bridge, [ByDLPack(x)])[0], x + 1)
    for x in (jnp.arange(5, dtype="bfloat16"), jnp.array([True, False]), jnp.arange(3, dtype="u2")):
        (got,) = standins.copy(x.dtype, 1).run_numpy([ByDLPack(x)])
        np.testing.assert_array_equal(got, x)
    with pytest.raises(ral.ArgumentError) as error:
        standins.add1().run_numpy([ByDLPack(base, (2, 0))])
    assert error.value.args[1] == "device"
    with pytest.raises(ral.ArgumentError) as error:
        standins.add1().run_numpy([ByDLPack(base.astype("f8"))])
    assert error.value.args == (0, "dtype", "dtype is float64, the program takes float32")


@pytest.mark.parametrize("dtype", FLOAT8)
def test_dlpack_of_8_bit_floats(standins, dtype):
    x = jnp.asarray([1, 2, 0.5], dtype)
    (got,) = standins.copy(np.dtype(dtype), 1).run_numpy([ByDLPack(x)])
    np.testing.assert_array_equal(got, np.asarray(x))


class Capsule(ctypes.Structure):
    """A DLManagedTensor of one dimension without an owner."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip

    def __dlpack__(self, **options):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self), b"dltensor", None)

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize(
    ("dtype", "code", "bits", "lanes"),
    [
        ("int4", 0, 4, 1), ("uint4", 1, 4, 1), ("int2", 0, 2, 1), ("uint2", 1, 2, 1),
        ("float4_e2m1fn", 17, 4, 1), ("float6_e2m3fn", 15, 6, 1), ("bool", 6, 1, 1),
        ("int8", 0, 4, 2), ("float32", 2, 32, 4),
    ],
)  # fmt: skip
def test_dlpack_of_packed_elements_is_refused(standins, dtype, code, bits, lanes):
    """Several of them may share a byte, where a program has one each."""
    memory, sizes = ctypes.create_string_buffer(64), (ctypes.c_int64 * 1)(3)
    leaf = Capsule(
        ctypes.addressof(memory), (1, 0), 1, code, bits, lanes,
        ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip
    with pytest.raises(ral.ArgumentError) as error:
        standins.copy(np.dtype(dtype), 1).run_numpy([leaf])
    told = f"its DLPack type has code {code}, {bits} bits and {lanes} lanes, the program takes "
    advice = "; elements below 8 bits may be packed: pass a numpy array" if bits < 8 else ""
    assert error.value.args == (0, "dtype", f"{told}{np.dtype(dtype)}{advice}")


@pytest.mark.parametrize("device", ["cpu", None, (1,), (1, 0, 0), ("a", "b")])
def test_a_dlpack_device_that_is_none_is_refused(standins, device):
    with pytest.raises(ral.ArgumentError) as error:
        standins.add1().run_numpy([ByDLPack(np.ones((2, 2), "f4"), device)])
    told = f"is a ByDLPack whose __dlpack_device__ gives {device}, not a device type and a number"
    assert error.value.args == (0, "type", told)


def test_a_dlpack_capsule_that_is_none_is_refused(standins):
    class Taken(ByDLPack):
        def __dlpack__(self, **options):
            return self.array

    capsule = np.ones((2, 2), "f4").__dlpack__()
    np.from_dlpack(Taken(capsule))
    for given in (3, capsule):
        with pytest.raises(ral.ArgumentError) as error:
            standins.add1().run_numpy([Taken(given)])
        assert error.value.args == (
            0, "type", "is a Taken whose __dlpack__ gives no capsule that is new"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("leaf", "kind", "what"),
    [
        (np.ones((2, 3)), "dtype", "dtype is float64, the program takes float32"),
        (np.ones((2, 3), ">i4"), "dtype", "dtype is >i4, the program takes float32"),
        (np.ones(3, "f4"), "rank", "rank is 1, the program takes 2"),
        (np.ones((2, 3), "f4"), "size", "dimension 1 is 3, the program takes 4"),
        ("text", "type", "is a str, not an array (jax.Array, numpy or __dlpack__)"),
        (None, "type", "is a NoneType, not an array (jax.Array, numpy or __dlpack__)"),
        (np.ndarray, "type", "is a type, not an array (jax.Array, numpy or __dlpack__)"),
        ([1.0], "type", "is a list, not an array (jax.Array, numpy or __dlpack__)"),
    ],
)
def test_what_does_not_fit_is_refused(standins, bridge, leaf, kind, what):
    exe = standins.copy("float32", 2, sizes=(-1, 4))
    for call in (lambda: exe.call(bridge, [leaf]), lambda: exe.run_numpy([leaf])):
        with pytest.raises(ral.ArgumentError) as error:
            call()
        assert error.value.args == (0, kind, what)
    if isinstance(leaf, np.ndarray) and leaf.dtype == "f4":
        with pytest.raises(ral.ArgumentError) as error:
            exe.call(bridge, [jnp.asarray(leaf)])
        assert error.value.args == (0, kind, what)


def test_key_arrays_are_refused(standins, bridge):
    with pytest.raises(ral.ArgumentError):
        standins.copy("uint32", 1).call(bridge, [jax.random.key(0)])


def test_count_of_arguments(standins, bridge):
    x = np.ones((2, 2), "f4")
    for leaves in ([], [x, x]):
        with pytest.raises(ral.ArgumentError) as error:
            standins.add1().call(bridge, leaves)
        assert error.value.args[:2] == (-1, "count")
    with pytest.raises(TypeError, match="must be a sequence"):
        standins.add1().call(bridge, 3)


def test_guards(standins, bridge):
    exe = standins.add1()
    with pytest.raises(ral.GuardError) as error:
        exe.call(bridge, [np.ones((13, 2), "f4")])
    assert error.value.args == (0, "x.shape[0] != 13", ((13, 2),))
    with pytest.raises(ral.GuardError) as error:
        exe.run_numpy([np.ones((2, 13), "f4")])
    assert error.value.args == (1, "x.shape[1] != 13", ((2, 13),))


def test_impossible_result_size_is_an_error_of_ours(standins):
    exe = standins.executable(
        "copy", [("float32", (-1,))], [("float32", 1, False)], prepare="negative"
    )
    with pytest.raises(RuntimeError, match="bug of shlo_disc"):
        exe.run_numpy([np.ones(3, "f4")])


def test_bad_executables_are_refused(standins):
    with pytest.raises(TypeError, match="not supported"):
        standins.copy("M8[s]", 1)
    with pytest.raises(IndexError):
        standins.add1(packable=[1])
    with pytest.raises(IndexError, match="unread"):
        standins.add1(unread=[1])


def test_an_unread_argument_needs_its_type_alone(standins, bridge):
    exe = standins.executable(
        "copy",
        [("float32", (-1,), "x"), ("float32", (-1,), "y")],
        [("float32", 1, False)],
        prepare="copy1",
        constants=[np.array([4])],
        unread=[1],
    )
    x, y = jnp.arange(3.0), jnp.ones(5)
    for _ in range(3):  # the first time, with a record, and from a record
        np.testing.assert_array_equal(exe.call(bridge, [x, y])[0], x)
    y.delete()
    np.testing.assert_array_equal(exe.call(bridge, [x, y])[0], x)
    other = jnp.ones(6)
    other.delete()
    np.testing.assert_array_equal(exe.call(bridge, [x, other])[0], x)
    for bad in (jnp.ones((2, 2)), jnp.ones(3, jnp.int32)):
        bad.delete()
        with pytest.raises(ral.ArgumentError):
            exe.call(bridge, [x, bad])
    with pytest.raises(ral.ArgumentError, match="deleted"):
        exe.call(bridge, [other, x])


def test_errors_leak_nothing(standins, bridge):
    exe = standins.add1()
    x = jnp.ones((4, 4))
    gc.collect()
    before = ral.pool_stats()["in_use_blocks"]
    for _ in range(20):
        exe.call(bridge, [x])
        for bad in (np.ones((13, 2), "f4"), np.ones(3), "text"):
            with pytest.raises((ral.ArgumentError, ral.GuardError)):
                exe.call(bridge, [bad])
    gc.collect()
    assert ral.pool_stats()["in_use_blocks"] == before


def test_sixteen_threads_at_different_shapes(standins, bridge):
    exe = standins.add1()

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(25):
            x = rng.standard_normal(rng.integers(0, 80, 2)).astype("f4")
            if 13 in x.shape:
                continue
            leaf = jnp.asarray(x) if seed % 2 else x
            (y,) = exe.call(bridge, [leaf])
            np.testing.assert_array_equal(np.asarray(y), x + 1)

    at_once(work, range(16))


def test_gil_is_released_while_running(standins):
    # The slow fill of a pack sleeps 100 ms in native code; Python goes on meanwhile.
    exe = standins.executable(
        "pack_constant",
        [("float32", (-1,))],
        [("float32", 1, False), ("int32", 0, False)],
        constants=[np.ones(17, "f4")],
        pack_layouts=["gil"],
    )
    steps = 0
    thread = threading.Thread(target=exe.run_numpy, args=([np.ones(17, "f4")],))
    thread.start()
    while thread.is_alive():
        steps += 1
        thread.join(0.001)
    assert steps > 10
