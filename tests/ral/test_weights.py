"""Packed copies of weights that change between calls: versions, freezing, and when they go."""

import gc
import threading
import weakref

import numpy as np
import pytest

import shlo_disc
from shlo_disc import ral
from tests.ral.test_pack_cache import DIRECT, FILL, READY
from tests.ral.test_tensors import array_of, tensor_of

pytestmark = pytest.mark.usefixtures("no_packs")


class Model:
    """The program x + 2 w of the stand-ins, whose packed copy of w is 2 w, and its calls."""

    def __init__(self, standins, tensors, weights=None, **options):
        self.kept = []
        self.kind = tensors.Tensor
        self.weights = weights or ral.Weights(self.keep)
        bridge = ral.TensorBridge(tensors.Tensor)
        self.call = ral.TensorCall(standins.pack(), bridge, self.weights, **options)

    def keep(self, array):
        self.kept.append(type(array))
        return object()

    def status(self, w, *versions, fresh=True):
        """What the program was told of a packed copy; `fresh`: the result must be that of w now."""
        n = w.describe()[0][0] if isinstance(w, self.kind) else len(w)
        x = np.arange(n, dtype="f4")
        y, status = self.call([x, w], versions)
        now = array_of(w, "f4") if isinstance(w, self.kind) else np.array(w)
        if fresh:
            np.testing.assert_array_equal(array_of(y, "f4"), x + 2 * now)
        return int(array_of(status, "i4")[()])


def weight(tensors, n=5):
    memory = np.arange(n, dtype="f4")
    return memory, tensor_of(tensors.Tensor, memory)


def test_a_copy_serves_as_long_as_the_version(standins, tensors):
    model = Model(standins, tensors, versioned=[1])
    memory, w = weight(tensors)
    assert [model.status(w, 0) for _ in range(3)] == [FILL, READY, READY]
    for version in range(1, 6):
        memory += 1
        # A changed weight is packed when it comes a second time: training changes it at every step.
        assert [model.status(w, version) for _ in range(4)] == [DIRECT, FILL, READY, READY]
    for version in range(6, 12):
        memory += 1
        assert model.status(w, version) == DIRECT
    assert [model.status(w, 11) for _ in range(2)] == [FILL, READY]
    assert model.weights.count == 1
    assert ral.pack_stats()["packs"] == 1


def test_the_caller_vouches_for_a_version(standins, tensors):
    """The other side of the promise: few elements may change without being seen."""
    model = Model(standins, tensors, versioned=[1])
    memory, w = weight(tensors, 100)
    model.status(w, 3)
    memory[0] += 1
    assert model.status(w, 3, fresh=False) == READY
    assert [model.status(w, 4) for _ in range(2)] == [DIRECT, FILL]


@pytest.mark.parametrize("shape", [(1,), (5,), (100,), (3, 1), (1, 7), (40, 50), (4, 5, 6)])
def test_most_changes_are_seen_without_a_version(standins, tensors, shape):
    """PyTorch counts no writes through `.data`; a sample of the elements is compared."""
    memory = np.zeros(shape, "f4")
    model = Model(standins, tensors, versioned=[1])
    for view in (memory.reshape(-1), memory.reshape(-1)[::-1], memory.reshape(-1)[::2]):
        w = tensor_of(tensors.Tensor, view)
        x = np.zeros(len(view), "f4")
        for k in range(3):
            memory[...] = k
            found = []
            for _ in range(3):
                y, status = model.call([x, w], [0])
                np.testing.assert_array_equal(array_of(y, "f4"), 2 * view)
                found.append(int(array_of(status, "i4")[()]))
            assert found == ([DIRECT, FILL, READY] if k else [FILL, READY, READY])


def test_a_frozen_weight_is_packed_once(standins, tensors):
    model = Model(standins, tensors, frozen=[1])
    memory, w = weight(tensors)
    assert [model.status(w) for _ in range(3)] == [FILL, READY, READY]
    memory += 1
    assert model.status(w, fresh=False) == READY
    model.weights.clear()
    assert model.weights.count == ral.pack_stats()["packs"] == 0
    assert [model.status(w) for _ in range(2)] == [FILL, READY]


def test_unversioned_weights_are_packed_in_no_call(standins, tensors):
    model = Model(standins, tensors)
    memory, w = weight(tensors)
    for _ in range(4):
        memory += 1
        assert model.status(w) == DIRECT
    assert model.weights.count == 0
    assert model.kept == []


def test_other_memory_is_another_weight(standins, tensors):
    model = Model(standins, tensors, versioned=[1])
    _, w = weight(tensors)
    assert [model.status(w, 0) for _ in range(2)] == [FILL, READY]
    for k in range(3):
        w.set_(np.full(5, 10 + k, "f4"))
        assert [model.status(w, 0) for _ in range(3)] == [DIRECT, FILL, READY]


def test_other_sizes_and_strides_at_one_address(standins, tensors):
    model = Model(standins, tensors, versioned=[1])
    wide = np.arange(12, dtype="f4")
    w = tensor_of(tensors.Tensor, wide)
    assert [model.status(w, 0) for _ in range(2)] == [FILL, READY]
    w.set_(wide[:6])
    assert [model.status(w, 0) for _ in range(3)] == [DIRECT, FILL, READY]
    w.set_(wide[::2])  # as long as before
    statuses = []
    for _ in range(3):
        y, status = model.call([np.zeros(6, "f4"), w], [0])
        np.testing.assert_array_equal(array_of(y, "f4"), 2 * wide[::2])
        statuses.append(int(array_of(status, "i4")[()]))
    assert statuses == [DIRECT, FILL, READY]


def test_an_address_is_not_taken_by_another_weight_while_a_copy_lives(standins, tensors):
    """`keep` holds the memory that a weight had: nothing else can lie there."""
    model = Model(standins, tensors, versioned=[1])
    held = []

    def keep(array):
        held.append(weakref.ref(owner := Owner(array)))
        return owner

    class Owner:
        def __init__(self, array):
            self.array = array_of(array, "f4")

    model.weights = ral.Weights(keep)
    model.call = ral.TensorCall(
        standins.pack(), ral.TensorBridge(tensors.Tensor), model.weights, versioned=[1]
    )
    _, w = weight(tensors)
    model.status(w, 0)
    assert held[0]() is not None
    w.set_(np.full(5, 7, "f4"))
    model.status(w, 0)  # seen once: nothing is kept of the old memory, nor yet of the new one
    assert held[0]() is None
    model.status(w, 0)
    assert held[1]() is not None
    del w
    gc.collect()
    assert held[1]() is None


@pytest.mark.parametrize("way", ["weight", "weights", "clear"])
def test_copies_go(standins, tensors, way):
    before = ral.pack_stats()
    held = ral.pool_stats()["in_use_blocks"]
    model = Model(standins, tensors, versioned=[1])
    _, w = weight(tensors, 1000)
    _, other = weight(tensors, 1000)
    for _ in range(3):
        model.status(w, 0)
        model.status(other, 0)
    assert ral.pack_stats()["packs"] == before["packs"] + 2
    assert ral.pack_stats()["bytes"] >= before["bytes"] + 8000
    if way == "weight":
        del w, other
        assert model.weights.count == 0
    elif way == "weights":
        del model
    else:
        model.weights.clear()
    gc.collect()
    after = ral.pack_stats()
    for key in ("packs", "bytes", "owners"):
        assert after[key] == before[key]
    assert ral.pool_stats()["in_use_blocks"] == held


def test_a_weight_that_dies_after_the_table(standins, tensors):
    """Callbacks of weak references are collected before the first of them runs."""
    model = Model(standins, tensors, versioned=[1])
    _, w = weight(tensors)
    model.status(w, 0)
    box = [model]
    del model
    reference = weakref.ref(w, lambda _: box.clear())  # the latest reference is called first
    del w
    gc.collect()
    assert reference() is None
    assert box == []
    assert ral.pack_stats()["packs"] == 0


def test_weights_are_shared_between_programs(standins, tensors):
    weights = ral.Weights(lambda array: object())
    first, second = (Model(standins, tensors, weights, versioned=[1]) for _ in range(2))
    memory, w = weight(tensors)
    assert [first.status(w, 0), second.status(w, 0)] == [FILL, READY]
    memory += 1
    assert [first.status(w, 1), second.status(w, 1), first.status(w, 1)] == [DIRECT, FILL, READY]


def test_two_models_of_one_program(standins, tensors):
    model = Model(standins, tensors, versioned=[1])
    pairs = [weight(tensors) for _ in range(3)]
    for _, w in pairs:
        assert model.status(w, 0) == FILL
    for _ in range(2):
        assert [model.status(w, 0) for _, w in pairs] == [READY] * 3
    assert model.weights.count == 3


def test_numpy_arrays_may_be_weights(standins, tensors):
    model = Model(standins, tensors, versioned=[1])
    w = np.arange(5, dtype="f4")
    assert [model.status(w, 0) for _ in range(2)] == [FILL, READY]
    w += 1
    assert [model.status(w, 1) for _ in range(3)] == [DIRECT, FILL, READY]
    strided = np.arange(10, dtype="f4")[::2]
    assert [model.status(strided, 0) for _ in range(2)] == [FILL, READY]


def test_what_is_no_weight(standins, tensors):
    class Other:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self):
            return np.arange(5, dtype="f4").__dlpack__()

    model = Model(standins, tensors, versioned=[1])
    with pytest.raises(ral.ArgumentError, match="weights are numpy arrays and tensors") as error:
        model.call([np.ones(5, "f4"), Other()], [0])
    assert error.value.args[:2] == (1, "type")


def test_errors_of_keep_are_the_callers(standins, tensors):
    def keep(array):
        raise LookupError("not today")

    model = Model(standins, tensors, ral.Weights(keep), versioned=[1])
    _, w = weight(tensors)
    for _ in range(2):
        with pytest.raises(LookupError, match="not today"):
            model.status(w, 0)
    assert model.weights.count == 0
    with pytest.raises(TypeError, match="must be callable"):
        ral.Weights(3)


def test_memory_that_changes_while_it_is_kept_is_not_packed(standins, tensors):
    memories = [np.full(5, k, "f4") for k in range(3)]
    w = tensor_of(tensors.Tensor, memories[0])

    def keep(array):
        array.set_(memories[1])
        return object()

    model = Model(standins, tensors, ral.Weights(keep), versioned=[1])
    with pytest.raises(ral.ArgumentError, match="was given other memory") as error:
        model.status(w, 0)
    assert error.value.args[:2] == (1, "changed")
    assert model.weights.count == 0


def test_threads_with_their_own_versions(standins, tensors):
    """Calls run while others change weights and drop copies; each has the elements it saw."""
    model = Model(standins, tensors, versioned=[1])
    failures = []

    def run(seed):
        try:
            memory, w = weight(tensors, 64)
            for version in range(60):
                memory[:] = 1000 * seed + version
                for _ in range(3):
                    model.status(w, version)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        model.weights.clear()
        ral.pack_clear()
    for thread in threads:
        thread.join()
    assert failures == []
    gc.collect()
    assert model.weights.count == 0


DENSE = """func.func @main(%x: tensor<?x64xf32>, %w: tensor<64x96xf32>, %v: tensor<96x32xf32>)
    -> tensor<?x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x64xf32>, tensor<64x96xf32>) -> tensor<?x96xf32>
  %1 = stablehlo.tanh %0 : tensor<?x96xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0]
    : (tensor<?x96xf32>, tensor<96x32xf32>) -> tensor<?x32xf32>
  return %2 : tensor<?x32xf32>
}"""


def test_a_compiled_program_with_changing_weights(tensors):
    run = shlo_disc.compile(DENSE)
    assert run.packable == (1, 2)
    weights = ral.Weights(lambda tensor: object())  # the arrays below live as long as the tensors
    call = run.tensor_call(tensors.Tensor, versioned=[2], frozen=[1], weights=weights)
    made = np.random.default_rng(0)
    w, v = made.standard_normal((64, 96), "f4"), made.standard_normal((96, 32), "f4")
    tw, tv = tensor_of(tensors.Tensor, w), tensor_of(tensors.Tensor, v)
    for version in range(4):
        for rows in (1, 7, 33, 1):
            x = made.standard_normal((rows, 64), "f4")
            (got,) = call((tensor_of(tensors.Tensor, x), tw, tv), (version,))
            want = np.tanh(x.astype("f8") @ w) @ v
            np.testing.assert_allclose(array_of(got, "f4"), want, rtol=1e-3, atol=1e-3)
        assert weights.count == 2
        v *= -1.5
    del tw, tv
    assert weights.count == 0
