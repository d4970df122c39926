"""The clean-up as a whole: whole JAX programs mean the same after it, at several sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from shlo_disc.base import flags
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import at, ir, new_context, ops_of, replace, stablehlo, walk
from shlo_disc.passes.base import Pipeline
from shlo_disc.passes.pipeline import CLEANUP


def layer_norm(x):
    y = x - x.mean(-1, keepdims=True)
    return y / jnp.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def strided(x):
    return x[::2, 1:], jnp.pad(x, ((1, x.shape[0]), (0, 2)))


PROGRAMS = {
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "layer_norm": layer_norm,
    "transposed_product": lambda x: x @ x.T,
    "split_heads": lambda x: x.reshape(x.shape[0], 2, 2).transpose(1, 0, 2).reshape(-1),
    "size_as_data": lambda x: x / x.shape[0] + jnp.arange(4) * x.shape[0],
    "strided": strided,
    "tril": lambda x: jnp.tril(x @ x.T, -1),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumulative_backwards": lambda x: jax.lax.cummax(x, 0, reverse=True),
    "cumlogsumexp": lambda x: jax.lax.cumlogsumexp(x, 0),
    "sliding_product": lambda x: jax.lax.reduce_window(
        x, 1.0, jax.lax.mul, (x.shape[0] // 2 + 1, 1), (1, 1), "VALID"
    ),
    "pooled": lambda x: jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (3, 2), (2, 1), "SAME", (2, 1), (1, 2)
    ),
    "convolved": lambda x: jax.lax.conv_general_dilated(
        x[None, None], jnp.ones((2, 1, 3, 2)), (2, 1), "SAME", rhs_dilation=(1, 2)
    ),
    "transposed_convolution": lambda x: jax.lax.conv_transpose(
        x[None, :, :], jnp.ones((3, 4, 2)), (2,), "SAME"
    ),
    "concatenated": lambda x: jnp.concatenate([x, x[:1], 2 * x], 0),
    "lookup": lambda x: x[jnp.arange(x.shape[0]) // 2],
    "mixed_types": lambda x: x.astype(jnp.bfloat16).astype(jnp.float32).astype(jnp.int32),
    "scanned": lambda x: jax.lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * i, jnp.zeros(4)),
    "scan_of_rows": lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), x)[1],
    "window_where_data_says": lambda x: jax.lax.dynamic_slice(
        x, (x[0, 0].astype(jnp.int32) + 1, 1), (x.shape[0] // 2, 2)
    ),
    "rolled": lambda x: jnp.roll(x, x[0, 0].astype(jnp.int32), 0),
    "gradient": jax.grad(lambda x: (jnp.tanh(x @ x.T) / 4).sum()),
    "vmapped": jax.vmap(lambda r: jnp.outer(r, r)[1:]),
}


def cleaned(f):
    (b,) = export.symbolic_shape("b")
    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct((b, 4), jnp.float32))
    module = ingest(exported, new_context())
    with module.context, ir.Location.unknown(), flags.overridden(spec=1):
        Pipeline(CLEANUP).run(module)
    return module


def windowed(scan, shapes, sizes):
    """The scan as a reduction over windows, for the interpreter."""
    value, init = scan.operands
    axis = scan.attributes["dimension"].value
    size = shapes.shape(value)[axis].evaluate(sizes)
    rank = value.type.rank
    padding = np.zeros((rank, 2), np.int64)
    padding[axis, int(scan.attributes["reverse"].value)] = max(size - 1, 0)
    window = [size if d == axis else 1 for d in range(rank)]
    with at(scan):
        new = ir.Operation.create(
            "stablehlo.reduce_window",
            results=[value.type],
            operands=[value, init],
            attributes={
                "window_dimensions": ir.DenseI64ArrayAttr.get(window),
                "padding": ir.DenseElementsAttr.get(padding),
            },
            regions=1,
        )
    scan.regions[0].blocks[0].append_to(new.regions[0])
    return new.results[0]


def instantiated(module, sizes):
    """The text of `module` with every symbolic size a constant, for the interpreter."""
    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(str(module))
        for scan in ops_of(copy, "disc.scan"):
            replace(scan, windowed(scan, analyze(copy), sizes))
        for guard in ops_of(copy, "disc.guard"):
            guard.erase()
        for op in ops_of(copy, "disc.shape", "disc.sizes", "disc.dim"):
            kind = ir.RankedTensorType(op.results[0].type)
            texts = [op.attributes["dim"]] if op.name == "disc.dim" else op.attributes["dims"]
            numbers = [Expr.parse(ir.StringAttr(t).value).evaluate(sizes) for t in texts]
            attributes = [ir.IntegerAttr.get(kind.element_type, n) for n in numbers]
            with at(op):
                constant = ir.Operation.create(
                    "stablehlo.constant",
                    results=[kind],
                    attributes={"value": ir.DenseElementsAttr.get(attributes, kind)},
                )
            replace(op, *constant.results)
        return copy


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_means_the_same(name):
    f = PROGRAMS[name]
    module = cleaned(f)
    for size in (1, 2, 3, 8):
        x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
        want = jax.tree.leaves(jax.jit(f)(x))
        copy = instantiated(module, {"b": size})
        with copy.context, ir.Location.unknown():
            argument = ir.DenseElementsAttr.get(x)
            got = [np.array(r) for r in stablehlo.eval_module(copy, [argument])]
        for a, b in zip(want, got, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_shape_arithmetic_is_left_and_a_second_run_changes_nothing(name):
    module = cleaned(PROGRAMS[name])
    names: set[str] = set()
    walk(module, lambda op: names.add(op.name))
    assert "stablehlo.get_dimension_size" not in names
    assert "stablehlo.custom_call" not in names
    text = str(module)
    with module.context, ir.Location.unknown():
        Pipeline(CLEANUP).run(module)
    assert str(module) == text


def test_a_kernel_reads_what_is_spread_and_not_its_copies():
    (b,) = export.symbolic_shape("b")
    exported = export.export(jax.jit(lambda x, w: x + w))(
        jax.ShapeDtypeStruct((b, b, 4), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.float32)
    )
    module = ingest(exported, new_context())
    with module.context, ir.Location.unknown():
        Pipeline(CLEANUP).run(module)
    (broadcast,) = ops_of(module, "stablehlo.dynamic_broadcast_in_dim")
    (main,) = module.body.operations
    assert broadcast.operands[0] == main.arguments[1]
    assert not ops_of(module, "stablehlo.reshape", "stablehlo.dynamic_reshape")
