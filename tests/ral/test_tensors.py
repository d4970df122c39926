"""Tensors of a framework: read and made through DLPack's C table, beside NumPy."""

import ctypes
import gc
import itertools
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from shlo_disc.base.errors import ChangedArrayError, DeviceError, ShapeMismatchError
from tests.ral.test_call import DTYPES, FLOAT8, SHAPES, filled

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
FLOAT8_CODES = {name: code for code, name in enumerate(FLOAT8, 7)}


def code_of(dtype):
    dtype = np.dtype(dtype)
    if dtype == ml_dtypes.bfloat16:
        return 4
    return FLOAT8_CODES.get(dtype.name, CODES.get(dtype.kind))


def raw(array):
    """The same memory in a type of which NumPy makes buffers."""
    if array.dtype.kind in "biufc" and array.dtype.name not in FLOAT8:
        return array
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)


def tensor_of(kind, array, device=1):
    return kind(raw(array), code_of(array.dtype), array.dtype.itemsize * 8, device)


def array_of(tensor, dtype):
    sizes, code, bits, _ = tensor.describe()
    assert (code, bits) == (code_of(dtype), np.dtype(dtype).itemsize * 8)
    return np.frombuffer(tensor.bytes(), dtype).reshape(sizes)


def same_bits(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert got.tobytes() == want.tobytes()


def caller(executable, kind, **options):
    weights = options.pop("weights", ral.Weights(lambda array: object()))
    return ral.TensorCall(executable, ral.TensorBridge(kind), weights, **options)


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOAT8], ids=lambda d: np.dtype(d).name)
def test_every_dtype_comes_through(standins, tensors, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype) if dtype in FLOAT8 else dtype)
    for shape in SHAPES:
        executable = standins.copy(dtype, len(shape))
        call = caller(executable, tensors.Tensor)
        want = filled(shape, dtype)
        for _ in range(2):
            (got,) = call([tensor_of(tensors.Tensor, want)])
            assert type(got) is tensors.Tensor
            same_bits(array_of(got, dtype), want)
            (again,) = call([got])
            same_bits(array_of(again, dtype), want)
            (plain,) = executable.run_numpy([got])
            same_bits(plain, want)
        (mixed,) = call([want])
        same_bits(array_of(mixed, dtype), want)
        assert executable.copies == ([0], 0)


def test_results_are_dense_and_aligned_and_give_their_memory_back(standins, tensors):
    call = caller(standins.add1(), tensors.Tensor)
    gc.collect()
    held = ral.pool_stats()["in_use_blocks"]
    x = np.ones((30, 50), "f4")
    results = [call([tensor_of(tensors.Tensor, x)])[0] for _ in range(5)]
    assert ral.pool_stats()["in_use_blocks"] == held + 5
    assert all(result.describe()[3] % 64 == 0 for result in results)
    threads = [threading.Thread(target=results.pop) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert ral.pool_stats()["in_use_blocks"] == held


def test_a_result_that_no_tensor_is_made_of(standins, tensors):
    call = caller(standins.add1(), tensors.Tensor)
    gc.collect()
    held = ral.pool_stats()["in_use_blocks"]
    tensors.refuse_results(True)
    try:
        with pytest.raises(BufferError, match="no tensor is made of this"):
            call([np.ones((3, 5), "f4")])
    finally:
        tensors.refuse_results(False)
    assert ral.pool_stats()["in_use_blocks"] == held


@pytest.mark.parametrize("table", ["usual", "lending", "newer"])
def test_tables(standins, tensors, table):
    kind = type(table, (tensors.Tensor,), {"__dlpack_c_exchange_api__": getattr(tensors, table)})
    call = caller(standins.add1(), kind)
    x = np.arange(15, dtype="f4").reshape(3, 5)
    tensor = tensor_of(kind, x)
    for _ in range(3):
        (got,) = call([tensor])
        np.testing.assert_array_equal(array_of(got, "f4"), x + 1)
        assert tensors.counts()[0] == 0
    with pytest.raises(ral.GuardError):
        call([tensor_of(kind, np.ones((13, 2), "f4"))])
    assert tensors.counts()[0] == 0


def test_a_table_is_looked_up_once(standins, tensors):
    class Counting(type):
        looked_up = 0

        def __getattribute__(cls, name):
            if name == "__dlpack_c_exchange_api__":
                Counting.looked_up += 1
            return super().__getattribute__(name)

    kind = Counting("kind", (tensors.Tensor,), {})
    call = caller(standins.add1(), kind)
    tensor = tensor_of(kind, np.ones((3, 5), "f4"))
    for _ in range(5):
        call([tensor])
    assert Counting.looked_up == 1


def test_more_types_than_are_remembered(standins, tensors):
    x = np.arange(15, dtype="f4").reshape(3, 5)
    executable = standins.add1()
    kinds = [type(f"kind{i}", (tensors.Tensor,), {}) for i in range(150)]
    for kind in [*kinds, *kinds[::-7]]:
        (got,) = executable.run_numpy([tensor_of(kind, x)])
        np.testing.assert_array_equal(got, x + 1)


@pytest.mark.parametrize("table", ["misnamed", "lacking"])
def test_a_malformed_table_is_refused(standins, tensors, table):
    kind = type(table, (tensors.Tensor,), {"__dlpack_c_exchange_api__": getattr(tensors, table)})
    with pytest.raises(TypeError, match=r"capsule named|lacks functions"):
        ral.TensorBridge(kind)
    with pytest.raises(ral.ArgumentError, match="cannot be read") as error:
        standins.add1().run_numpy([tensor_of(kind, np.ones((3, 5), "f4"))])
    assert error.value.args[:2] == (0, "type")


def test_a_table_of_an_unknown_version_is_as_none(standins, tensors):
    """DLPack wants it so: such a type has `__dlpack__`, too."""
    kind = type("future", (tensors.Tensor,), {"__dlpack_c_exchange_api__": tensors.future})
    x = np.arange(15, dtype="f4").reshape(3, 5)
    with pytest.raises(TypeError, match="has no __dlpack_c_exchange_api__ of DLPack 1"):
        ral.TensorBridge(kind)
    with pytest.raises(ral.ArgumentError, match="not an array"):
        standins.add1().run_numpy([tensor_of(kind, x)])
    kind.__dlpack_device__ = lambda self: (1, 0)
    kind.__dlpack__ = lambda self: x.__dlpack__()
    (got,) = standins.add1().run_numpy([tensor_of(kind, x)])
    np.testing.assert_array_equal(got, x + 1)


def test_a_managed_tensor_of_an_unknown_version_is_given_back(standins, tensors):
    kind = type("odd", (tensors.Tensor,), {"__dlpack_c_exchange_api__": tensors.lending_future})
    with pytest.raises(ral.ArgumentError, match="a tensor of DLPack version 2, not 1"):
        standins.add1().run_numpy([tensor_of(kind, np.ones((3, 5), "f4"))])
    assert tensors.counts()[0] == 0


def test_types_without_a_table(tensors):
    for kind in (object, np.ndarray, int):
        with pytest.raises(TypeError, match="has no __dlpack_c_exchange_api__"):
            ral.TensorBridge(kind)


@pytest.mark.parametrize(
    ("make", "kind", "match"),
    [
        (lambda t: tensor_of(t, np.ones((3, 5), "f4"), 2), "device", r"DLPack device \(2, 0\)"),
        (lambda t: tensor_of(t, np.ones((3, 5), "f8")), "dtype", "dtype is float64, .*float32"),
        (lambda t: tensor_of(t, np.ones(3, "f4")), "rank", "rank is 1, the program takes 2"),
        (lambda t: t(np.ones((3, 5), "u1"), 17, 4), "dtype", "code 17, 4 bits and 1 lanes"),
        (lambda t: t.__new__(t), "type", "cannot be read: a tensor without memory"),
        (lambda t: tensor_of(t, np.ones((3, 5), "f4")).forget(), "type", "Tensor without memory"),
        (lambda t: t, "type", "not an array"),
    ],
)
def test_what_does_not_fit_is_refused(standins, tensors, make, kind, match):
    call = caller(standins.add1(), tensors.Tensor)
    with pytest.raises(ral.ArgumentError, match=match) as error:
        call([make(tensors.Tensor)])
    assert error.value.args[:2] == (0, kind)
    (got,) = call([tensor_of(tensors.Tensor, np.ones((3, 5), "f4"))])
    np.testing.assert_array_equal(array_of(got, "f4"), np.full((3, 5), 2, "f4"))


def test_numbers_of_arguments_that_do_not_fit(standins, tensors):
    executable = standins.pack()
    with pytest.raises(IndexError, match="does not exist"):
        caller(executable, tensors.Tensor, versioned=[2])
    with pytest.raises(ValueError, match="argument 1 is named twice"):
        caller(executable, tensors.Tensor, versioned=[1], frozen=[1])
    call = caller(executable, tensors.Tensor, versioned=[1])
    wrong = {(): ValueError, (1, 2): ValueError, (-1,): ValueError, ("a",): TypeError}
    for versions, error in {**wrong, (2**70,): OverflowError, 3: TypeError}.items():
        with pytest.raises(error):
            call([np.ones(3, "f4"), np.ones(3, "f4")], versions)


# --- strides -------------------------------------------------------------------------------------

BASE = np.arange(5 * 6 * 7 * 8, dtype=np.int64).reshape(5, 6, 7, 8)


def strided(dtype):
    base = BASE.astype(dtype)
    wide = np.arange(130 * 67, dtype=np.int64).astype(dtype).reshape(130, 67)
    yield from (base.transpose(axes) for axes in itertools.permutations(range(4)))
    yield base[::2, 1:4, :, ::3]
    yield base[:, :, 3, :]
    yield base[..., 2]
    yield base[:, 0]
    yield np.broadcast_to(base[0, 0], (4, 3, 7, 8))
    yield np.broadcast_to(base[0, 0, :, :1], (7, 8))
    yield base[::-1, :, ::-1]
    yield np.broadcast_to(wide[:, :1], (130, 67))  # every element fills a row
    yield np.broadcast_to(wide[:1, ::2], (130, 34))  # every row is the first one
    yield wide.T
    yield wide[1:, 3:].T
    yield wide[::-1].T
    yield wide[:, ::5]
    yield wide[:1].T
    yield np.asfortranarray(base)
    yield base.reshape(10, 3, 7, 8)[:, 1]


ELEMENTS = {
    "uint8": "ui8", "float16": "f16", "float32": "f32", "int64": "i64",
    "complex128": "complex<f64>",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_strides_are_copied_and_counted(tensors, dtype):
    compiled = {}
    for rank in range(1, 5):
        kind = f"tensor<{'?x' * rank}{ELEMENTS[dtype]}>"
        text = f"func.func @main(%x: {kind}) -> {kind} {{ return %x : {kind} }}"
        compiled[rank] = shlo_disc.compile(text, names=["x"])
    copied = dict.fromkeys(compiled, 0)
    for want in strided(dtype):
        executable = compiled[want.ndim]
        call = executable.tensor_call(tensors.Tensor)
        for given in (tensor_of(tensors.Tensor, want), want):
            (got,) = call([given])
            np.testing.assert_array_equal(array_of(got, dtype), want)
            copied[want.ndim] += 0 if want.flags.c_contiguous else want.nbytes
            assert executable.copies.bytes == copied[want.ndim]
    for rank, executable in compiled.items():
        assert set(executable.copies.calls) == ({"x"} if copied[rank] else set())
        told = "copied before it was read, not being dense: x in" in executable.explain()
        assert told == bool(copied[rank])


def test_a_large_strided_argument_is_copied_by_several_threads(tensors):
    t = "tensor<?x?x?xf32>"
    run = shlo_disc.compile(f"func.func @main(%x: {t}) -> {t} {{ return %x : {t} }}")
    call = run.tensor_call(tensors.Tensor)
    base = np.random.default_rng(0).standard_normal((130, 200, 65), np.float32)
    for axes in itertools.permutations(range(3)):
        want = base.transpose(axes)
        (got,) = call([tensor_of(tensors.Tensor, want)])
        np.testing.assert_array_equal(array_of(got, "f4"), want)


def test_misaligned_memory_is_copied(standins, tensors):
    executable = standins.add1()
    memory = np.zeros(4 * 15 + 1, np.uint8)
    x = np.ndarray((3, 5), "f4", memory, 1)
    x[...] = np.arange(15).reshape(3, 5)
    for given in (tensor_of(tensors.Tensor, x), x, tensor_of(tensors.Tensor, x[:, ::2])):
        (got,) = executable.run_numpy([given])
        np.testing.assert_array_equal(got[:, 0], x[:, 0] + 1)
    assert executable.copies == ([3], 2 * 60 + 36)


# --- memory during a call ------------------------------------------------------------------------


def test_arguments_live_as_long_as_the_call(standins, tensors):
    """The list that holds the only reference is emptied while the program runs."""
    executable = standins.pack()
    call = caller(executable, tensors.Tensor)
    n = 17  # which the stand-in takes 0.1 s for
    died = threading.Event()

    class Watched(tensors.Tensor):
        pass

    leaves = [tensor_of(Watched, np.full(n, k, "f4")) for k in (1, 2)]
    for leaf in leaves:
        weakref.finalize(leaf, died.set)
    del leaf
    busy = []
    thread = threading.Thread(target=lambda: busy.append(call(tuple(leaves))))
    thread.start()
    leaves.clear()
    thread.join()
    np.testing.assert_array_equal(array_of(busy[0][0], "f4"), np.full(n, 5, "f4"))
    assert died.wait(5)


def other_memory_during_a_call(standins, tensors):
    """A call that runs for 0.1 s, and one of its tensors that gets other memory meanwhile."""
    weights = ral.Weights(lambda array: object())
    call = caller(standins.pack(), tensors.Tensor, weights=weights, frozen=[1])
    first, second = np.full(17, 1, "f4"), np.full(17, 9, "f4")
    x = tensor_of(tensors.Tensor, first)
    w = tensor_of(tensors.Tensor, np.full(17, 2, "f4"))
    timer = threading.Timer(0.03, x.set_, [second])
    timer.start()
    try:
        return call([x, w])
    finally:
        timer.join()


def test_other_memory_during_a_call_is_told(standins, tensors):
    gc.collect()
    ral.pack_clear()
    with pytest.raises(ral.ArgumentError, match="given other memory by another thread") as error:
        other_memory_during_a_call(standins, tensors)
    assert error.value.args[:2] == (0, "changed")


# --- of a compiled program -----------------------------------------------------------------------

DENSE = """func.func @main(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %n: tensor<i64>)
    -> (tensor<?x?xf32>, tensor<i64>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %m = stablehlo.add %n, %n : tensor<i64>
  return %y, %m : tensor<?x?xf32>, tensor<i64>
}"""


def test_a_compiled_program(tensors):
    run = shlo_disc.compile(DENSE, names=["x", "w", "n"])
    call = run.tensor_call(tensors.Tensor)
    assert call.tensor_type is tensors.Tensor
    made = np.random.default_rng(1)
    for m, k, n in ((1, 1, 1), (3, 5, 7), (0, 4, 4), (4, 0, 4), (33, 64, 65)):
        x, w = made.standard_normal((m, k), "f4"), made.standard_normal((k, n), "f4")
        got, twice = call((tensor_of(tensors.Tensor, x), tensor_of(tensors.Tensor, w), 2**40 + n))
        np.testing.assert_allclose(array_of(got, "f4"), x @ w, rtol=1e-4, atol=1e-4)
        assert array_of(twice, "i8") == 2 * (2**40 + n)
    x = tensor_of(tensors.Tensor, np.ones((3, 5), "f4"))
    with pytest.raises(ShapeMismatchError, match="dimension"):
        call((x, x, 1))
    with pytest.raises(DeviceError, match=r"argument 1 \('w'\): is in the memory of DLPack device"):
        call((x, tensor_of(tensors.Tensor, np.ones((5, 5), "f4"), 2), 1))
    with pytest.raises(TypeError, match="the program takes 3 arguments, the call has 2"):
        call((x, x))
    with pytest.raises(TypeError, match="need weights"):
        run.tensor_call(tensors.Tensor, frozen=[1])
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            call((x, tensor_of(tensors.Tensor, np.ones((5, 5), "f4")), number))


def test_other_memory_is_an_error_of_the_user(tensors):
    run = shlo_disc.compile(DENSE, names=["x", "w", "n"])
    call = run.tensor_call(tensors.Tensor)
    before, after = np.ones((300, 300), "f4"), np.ones((300, 300), "f4")
    x = tensor_of(tensors.Tensor, before)
    stop = threading.Event()

    def swap():
        for memory in itertools.cycle((after, before)):
            x.set_(memory)
            if stop.wait(0.0001):
                return

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        with pytest.raises(ChangedArrayError, match=r"argument [01] \('[xw]'\): was given other"):
            call_often(lambda: call((x, x, 1)))
    finally:
        stop.set()
        thread.join()


def call_often(call):
    for _ in range(2000):
        call()


def test_a_result_type_that_dlpack_lacks(tensors):
    t = "tensor<?xi4>"
    run = shlo_disc.compile(f"func.func @main(%x: {t}) -> {t} {{ return %x : {t} }}")
    with pytest.raises(TypeError, match="result 0 has elements of type int4, which DLPack"):
        run.tensor_call(tensors.Tensor)


def test_sizes_from_data(tensors):
    from tests.test_data_sized import POSITIVE, positive

    run = shlo_disc.compile(POSITIVE)
    assert isinstance(run, shlo_disc.DataSizedExecutable)
    call = run.tensor_call(tensors.Tensor)
    for n in (0, 1, 5, 100):
        wide = np.random.default_rng(n).standard_normal(2 * n, np.float32)
        for x in (wide[:n], wide[::2]):
            got = call([tensor_of(tensors.Tensor, x)])
            for ours, theirs in zip(got, positive(x), strict=True):
                np.testing.assert_array_equal(array_of(ours, theirs.dtype), theirs)
    with pytest.raises(TypeError, match="2 arguments were given"):
        call([tensor_of(tensors.Tensor, x), 1])
    with pytest.raises(TypeError, match="dtype is float64"):
        call([tensor_of(tensors.Tensor, x.astype("f8"))])


def test_guards_of_regions_that_do_not_run(tensors):
    from tests.test_region_sizes import BRANCHES

    run = shlo_disc.compile(BRANCHES)
    call = run.tensor_call(tensors.Tensor)
    x, y = np.arange(4, dtype="f4"), np.arange(5, dtype="f4")
    arguments = [x, y, np.int32(5), np.array([2], "i4")]
    want = run.run_numpy(arguments)
    given = [
        tensor_of(tensors.Tensor, a) if a.ndim == 1 and a.dtype == "f4" else a for a in arguments
    ]
    for ours, theirs in zip(call(given), want, strict=True):
        np.testing.assert_array_equal(array_of(ours, theirs.dtype), theirs)


def test_numpy_views(tensors):
    x = np.arange(24, dtype="f4").reshape(4, 6)
    for array in (x, x.T, x[:, ::2], x[:0], x[:1, :1].reshape(())):
        tensor = tensor_of(tensors.Tensor, array)
        view = ral.numpy_view(tensor, np.dtype("f4"))
        np.testing.assert_array_equal(view, array)
        assert not view.flags.writeable
        assert view.base is tensor
        if array.size:
            assert view.ctypes.data == array.ctypes.data
    for other in (x, 3, tensor_of(tensors.Tensor, x, 2), tensor_of(tensors.Tensor, x.view("i4"))):
        assert ral.numpy_view(other, np.dtype("f4")) is other


def test_a_call_is_collected_in_a_cycle(standins, tensors):
    class Holder:
        pass

    holder = Holder()
    holder.call = caller(
        standins.add1(), tensors.Tensor, weights=ral.Weights(lambda array, held=holder: held)
    )
    died = weakref.ref(holder)
    del holder
    gc.collect()
    assert died() is None


def test_the_table_is_the_one_of_dlpack(tensors):
    """Layout of the structures: the capsule's first words are the version and no older table."""
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = ctypes.pythonapi.PyCapsule_GetPointer(tensors.usual, b"dlpack_exchange_api")
    major, minor = (ctypes.c_uint32 * 2).from_address(address)
    assert (major, minor) == (1, 3)
