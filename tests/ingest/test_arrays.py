"""Arrays with operators, compiled at symbolic sizes, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import shlo_disc
from shlo_disc.ingest.arrays import Array, loop
from shlo_disc.ir.mlir import ir, new_context

KINDS = "tensor<?x3xf32>", "tensor<?x3xi64>", "tensor<?x3xi64>"


def _doubled_thrice(x):
    return loop([Array.size(0), x], lambda k, _: k < 3, lambda k, y: [k + 1, y * 2])[1]


CASES = {
    "arithmetic": (
        lambda x, i, j: 1 / (x * x + 1) - (-x) / 2,
        lambda x, i, j: 1 / (x * x + 1) + x / 2,
    ),
    "integers": (
        lambda x, i, j: 7 - i * j // 2 + i % 5,
        lambda x, i, j: 7 - i * j // 2 + np.fmod(i, 5),
    ),
    "neutral": (lambda x, i, j: (0 + i - 0) * 1 // 1, lambda x, i, j: i),
    "comparison": (
        lambda x, i, j: ((i < j) & ~i.equals(3) | i.differs(j) ^ (i >= 2)).where(i, -1),
        lambda x, i, j: np.where((i < j) & (i != 3) | (i != j) ^ (i >= 2), i, -1),
    ),
    "bounds": (
        lambda x, i, j: i.maximum(j).minimum(6),
        lambda x, i, j: np.minimum(np.maximum(i, j), 6),
    ),
    "sizes": (
        lambda x, i, j: i.iota(0) * x.sizes[0] + (2 * x.sizes[0] - x.extent(1)) + i.iota(1),
        lambda x, i, j: np.arange(len(x))[:, None] * len(x) + 2 * len(x) - 3 + np.arange(3) + 0 * i,
    ),
    "slices": (
        lambda x, i, j: x.slice([0, 1], [x.sizes[0], 3]).transpose([1, 0]).first([1, x.sizes[0]]),
        lambda x, i, j: x[:, 1:2].T,
    ),
    "reduction": (
        lambda x, i, j: x.reduce("maximum", [1]).spread([0], x),
        lambda x, i, j: np.broadcast_to(x.max(1, keepdims=True), x.shape),
    ),
    "entries": (
        lambda x, i, j: x.written(x.entry(Array.size(0)) * 2, Array.size(1)),
        lambda x, i, j: np.concatenate([x[:1], 2 * x[:1], x[2:]]),
    ),
    "dot": (
        lambda x, i, j: x.dot(x, 0, 0),
        lambda x, i, j: x.T @ x,
    ),
    "batches": (
        lambda x, i, j: x.reshape([x.sizes[0], 3, 1]).dot(
            x.reshape([x.sizes[0], 1, 3]), 2, 1, batch=1
        ),
        lambda x, i, j: x[:, :, None] * x[:, None],
    ),
    "pad": (
        lambda x, i, j: x.pad([(0, 1), (2, 0)], Array.constant(5, "f32")),
        lambda x, i, j: np.pad(x, [(0, 1), (2, 0)], constant_values=5),
    ),
    "join": (
        lambda x, i, j: Array.join([x, x * 2], 1),
        lambda x, i, j: np.concatenate([x, x * 2], 1),
    ),
    "scatter": (
        lambda x, i, j: i.flat().scatter(i.iota(1).flat(), i.flat(), "add"),
        lambda x, i, j: i.reshape(-1) + np.r_[i.sum(0), np.zeros(i.size - 3, i.dtype)],
    ),
    "loop": (lambda x, i, j: _doubled_thrice(x), lambda x, i, j: x * 8),
}
"""What is written, and the same of NumPy."""


@pytest.mark.parametrize("name", CASES)
def test_arrays_do_what_those_of_numpy_do(name):
    written, wanted = CASES[name]
    with new_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            kinds = [ir.Type.parse(kind) for kind in KINDS]
            function = ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get("main"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(kinds, kinds)),
                },
                regions=1,
            )
        block = function.regions[0].blocks.append(*kinds)
        with ir.InsertionPoint(block):
            found = written(*map(Array, block.arguments))
            ir.Operation.create("func.return", operands=[found])
        kind = ir.FunctionType.get(kinds, [found.type])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        program = shlo_disc.compile(str(module))
    rng = np.random.default_rng(3)
    for n in (2, 5):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        i, j = rng.integers(0, 9, (2, n, 3))
        (got,) = program(x, i, j)
        np.testing.assert_allclose(np.asarray(got), wanted(x, i, j), rtol=1e-5, atol=1e-6)


def test_sizes_that_types_tell_are_numbers():
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @main(%x: tensor<?x3xf32>) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            x = Array(block.arguments[0])
            first, last = x.sizes
            assert last == 3
            assert isinstance(first, Array)
            assert first + 0 is first
            assert x == block.arguments[0]
