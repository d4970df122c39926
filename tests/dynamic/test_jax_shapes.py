"""The sizes the analysis finds for programs JAX exports, against `jax.eval_shape`.

Every program is read twice: as ingested, with its shape arithmetic, and after resolve-shapes.
"""

# ruff: noqa: E501 - one program is one line

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from shlo_disc.base.errors import ShapeMismatchError
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.dynamic.shape_program import shape_program
from shlo_disc.dynamic.shapes import analyze
from shlo_disc.ingest import ingest
from shlo_disc.ir.mlir import ir, new_context
from shlo_disc.passes.resolve_shapes import ResolveShapes

CONV = {"dimension_numbers": ("NWC", "WIO", "NWC")}


def conv(padding, **options):
    def run(x):
        return lax.conv_general_dilated(
            x, jnp.ones((3, 2, 5)), padding=padding, **{"window_strides": (2,), **CONV, **options}
        )

    return run


def attention(x):
    b, t, d = x.shape
    q = k = v = x.reshape(b, t, 2, d // 2)
    s = jnp.einsum("bthd,bshd->bhts", q, k)
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e9)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), v).reshape(b, t, d)


def scan(x):
    return lax.scan(
        lambda c, row: (c + row, (c * row).sum(-1)), jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1)
    )


def while_loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))


def cond(x):
    return lax.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, x)


# name: (function, shapes, constraints, symbols)
PROGRAMS = {
    "layer_norm": (lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True), ["b, t, 8"], ()),
    "flatten": (lambda x: x.reshape(-1, x.shape[-1]), ["b, t, 8"], ()),
    "flatten_all": (lambda x: (x.ravel(), x.T), ["b, t"], ()),
    "split_last": (lambda x: x.reshape(x.shape[0], x.shape[1] // 4, 4), ["b, 4*t"], ()),
    "split_mod": (lambda x: x.reshape(x.shape[0], x.shape[1] // 4, 4), ["b, t"], ("mod(t, 4) == 0",)),
    "quarter": (lambda x: x[:, : x.shape[1] // 4], ["b, t"], ()),
    "drop": (lambda x: (x[:, 1:], x[:, :-1], x[:, ::2], x[:, ::-1]), ["b, t"], ()),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (0, -x.shape[1] % 8))), ["b, t"], ()),
    "pad_interior": (lambda x: lax.pad(x, 0.0, [(0, 0, 1), (2, 1, 2)]), ["b, t"], ()),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x], 1), ["b, t", "b, u"], ()),
    "outer": (lambda x, y: x[:, None] * y[None], ["b", "t"], ()),
    "repeat": (lambda x: (jnp.tile(x, (2, 3)), jnp.repeat(x, 3, 1), jnp.roll(x, 1, 1)), ["b, t"], ()),
    "conv_same": (conv("SAME"), ["b, t, 2"], ()),
    "conv_valid": (conv("VALID"), ["b, t, 2"], ("t >= 3",)),
    "conv_dilated": (conv([(1, 2)], rhs_dilation=(2,), lhs_dilation=(3,)), ["b, t, 2"], ("t >= 3",)),
    "pool": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME"),
        ["b, t"],
        (),
    ),
    "attention": (attention, ["b, t, 8"], ()),
    "top_k": (lambda x: lax.top_k(x, 3), ["b, t"], ("t >= 3",)),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0)), ["b, t"], ()),
    "embedding": (lambda i, e: e[i], ["b, t", "40, 8"], ()),
    "scatter": (lambda x, i: jnp.zeros((x.shape[0] + 1, 3)).at[i].add(1.0), ["b", "t"], ()),
    "positions": (lambda x, p: x + p[: x.shape[1]], ["b, t, 4", "16, 4"], ("t <= 16",)),
    "scan": (scan, ["b, t, 8"], ()),
    "while": (while_loop, ["b, t"], ()),
    "cond": (cond, ["b, t"], ()),
    "arange": (lambda x: jnp.arange(x.shape[0] * 2 + 1) * x.shape[1], ["b, t"], ()),
    "linspace": (lambda x: jnp.linspace(0, 1, x.shape[0] + 2), ["b, t"], ()),
    "eye": (lambda x: (jnp.eye(x.shape[0]), jnp.tri(x.shape[0], x.shape[1])), ["b, t"], ()),
    "gradient": (jax.grad(lambda x: (jnp.tanh(x) @ x.T).sum()), ["b, t"], ()),
    "vmap": (jax.vmap(lambda x: x @ x.T), ["b, t, u"], ()),
    "dot_batched": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), ["b, t, 4", "b, 4, u"], ()),
    "dynamic_slice": (lambda x: lax.dynamic_slice(x, (0, 1), (1, 2)), ["b, t"], ("t >= 2",)),
    "dynamic_update": (lambda x, y: lax.dynamic_update_slice(x, y, (0, 1)), ["b, t", "b, 1"], ()),
    "select": (lambda x: jnp.where(x > 0, x, x.shape[0] * 1.0), ["b, t"], ()),
    "random": (lambda x: jax.random.normal(jax.random.key(0), x.shape), ["b, t"], ()),
    "maximum": (lambda x: jnp.zeros((jax.core.max_dim(*x.shape), 2)), ["b, t"], ()),
    "remainder": (lambda x: jnp.zeros((x.shape[0] % 3 + 1, x.shape[1] // 2 + x.shape[0])), ["b, t"], ()),
    "negative_floor": (lambda x: jnp.zeros(((x.shape[0] - 7) // 3 + 5,)), ["b, t"], ()),
    "by_a_symbol": (lambda x: x.reshape(x.shape[0] * x.shape[1] // x.shape[1], -1), ["b, t"], ()),
    "cumsum": (lambda x: jnp.cumsum(x, 1), ["b, t"], ()),
}  # fmt: skip

VALUES = {"b": (1, 2, 5, 16), "t": (1, 4, 7, 13, 64), "u": (1, 3)}
INTEGER = {"embedding": [0], "scatter": [1]}


@pytest.fixture(scope="module", params=list(PROGRAMS))
def program(request):
    function, shapes, constraints = PROGRAMS[request.param]
    scope = export.SymbolicScope(constraints)
    specs = [
        jax.ShapeDtypeStruct(
            export.symbolic_shape(s, scope=scope),
            np.int32 if k in INTEGER.get(request.param, ()) else np.float32,
        )
        for k, s in enumerate(shapes)
    ]
    return function, specs, export.export(jax.jit(function))(*specs)


def assignments(specs):
    names = sorted({n for s in specs for d in s.shape if not isinstance(d, int) for n in _names(d)})
    for values in itertools.product(*(VALUES[n] for n in names)):
        yield dict(zip(names, values, strict=True))


def _names(dim):
    return [n for n in VALUES if n in str(dim)]


def concrete(specs, values):
    def size(d):
        return d if isinstance(d, int) else eval(str(d), {}, dict(values))

    return [jax.ShapeDtypeStruct(tuple(size(d) for d in s.shape), s.dtype) for s in specs]


def compare(module, function, specs, constraints):
    analysis = analyze(module)
    (main,) = module.body.operations
    worked_out = shape_program(main.operation, analysis)
    tried = 0
    for values in assignments(specs):
        arguments = concrete(specs, values)
        sizes = [a.shape for a in arguments]
        allowed = all(eval(c.replace("mod(t, 4)", "t % 4"), {}, dict(values)) for c in constraints)
        if not allowed:
            with pytest.raises(ShapeMismatchError):
                worked_out.evaluate(sizes)
            continue
        try:
            expected = [x.shape for x in jax.tree.leaves(jax.eval_shape(function, *arguments))]
        except (TypeError, ValueError):
            continue  # JAX refuses these sizes when it sees them
        symbols, results = worked_out.evaluate(sizes)
        assert symbols == {n: v for n, v in values.items() if n in symbols}
        assert results == expected, values
        tried += 1
    assert tried >= 2
    return analysis


def test_results_have_the_sizes_jax_gives(program, request):
    function, specs, exported = program
    name = request.node.callspec.params["program"]
    constraints = PROGRAMS[name][2]
    context = new_context()
    module = ingest(exported, context)
    with context, ir.Location.unknown():
        before = compare(module, function, specs, constraints)
        for shape in (before.shape(v) for v in _values(module)):
            assert all(n.symbols() <= set(VALUES) for n in shape)
        ResolveShapes().run(module, KnownShapes(module))
        compare(module, function, specs, constraints)


def _values(module):
    found = []

    def visit(op):
        for result in op.results:
            if isinstance(result.type, ir.RankedTensorType):
                found.append(result)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def test_shape_arithmetic_folds_to_the_notation_of_jax():
    scope = export.SymbolicScope()
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("b, t", scope=scope), np.float32)
    found = {}
    for text, function in {
        "floordiv(t, 4)": lambda b, t: t // 4,
        "mod(t, 4)": lambda b, t: t % 4,
        "floordiv(t + 3, 4)": lambda b, t: -(-t // 4),
        "floordiv(b*t, 3)": lambda b, t: b * t // 3,
        "floordiv(t, b)": lambda b, t: t // b,
        "max(b - 3, 0)": lambda b, t: jax.core.max_dim(b - 3, 0),
        "min(b, t)": jax.core.min_dim,
        "floordiv(b + 1, 3) + 2": lambda b, t: (b - 5) // 3 + 4,
        "mod(b + 1, 3)": lambda b, t: (b - 5) % 3,
    }.items():
        context = new_context()
        exported = export.export(jax.jit(lambda x, f=function: jnp.zeros((f(*x.shape),))))(spec)
        module = ingest(exported, context)
        with context, ir.Location.unknown():
            analysis = analyze(module)
            (main,) = module.body.operations
            last = main.operation.regions[0].blocks[0].operations
            (size,) = analysis.shape(last[len(last) - 1].operation.operands[0])
            found[text] = str(size)
    assert found == {text: text for text in found}
