"""What the front end hands to the compiler, beside what `jax.export` would."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import shlo_disc
from shlo_disc.base.errors import ShapeMismatchError, UnsupportedError
from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax.calls import lowered as module
from shlo_disc.jax.calls.lowered import lowered_module
from shlo_disc.jax.sizes.symbolic import SizeScope
from shlo_disc.jax_private.sizes import max_size, min_size

REAL = True

BIG = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)


def specs(*shapes, constraints=(), dtype=np.float32):
    scope = export.SymbolicScope(constraints)
    return [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for shape in shapes
    ]


def test_constraints_of_the_scope_are_told():
    given = specs("b, t", constraints=["t >= 2", "mod(b, 4) == 0", "t <= 512"])
    made = lowered_module("f", jax.jit(lambda x: x[:, 1:] * 2), given, {})
    assert made.dims == ((Expr.symbol("b"), Expr.symbol("t")),)
    told = made.source().constraints
    assert "t - 2 >= 0" in told
    assert "-t + 512 >= 0" in told
    assert "mod(b, 4) == 0" in told


def test_a_constraint_on_a_size_no_argument_has():
    scope = SizeScope(["q >= 2"], {"b": 3, "q": 2})
    (b,) = export.symbolic_shape("b", scope=scope)
    with pytest.raises(ValueError, match="no argument has the size q"):
        lowered_module("f", jax.jit(lambda x: x), [jax.ShapeDtypeStruct((b,), np.float32)], {})


def test_sizes_that_arguments_do_not_determine():
    with pytest.raises(ValueError, match="do not determine"):
        lowered_module("f", jax.jit(lambda x: x), specs("b*t"), {})


def test_an_operation_has_the_innermost_line_alone():
    def inner(x):
        return jnp.tanh(x)

    made = lowered_module("f", jax.jit(lambda x: inner(inner(x))), specs("b, t"), {})
    code = inner.__code__
    assert f'"{code.co_filename}":{code.co_firstlineno + 1}:' in made.data
    assert "callsite" not in made.data


PROGRAMS = {
    "attention": (
        lambda x: jax.nn.softmax(x @ x.T / 3) @ x,
        ["t, 8"],
        [(5, 8)],
    ),
    "scan": (lambda x: jax.lax.scan(lambda c, r: (c + r, c * r), x[0], x), ["t, d"], [(7, 3)]),
    "sums": (lambda x, y: jnp.concatenate([x, y]) * x.shape[0], ["a", "a + c"], [(2,), (5,)]),
    "large constant": (lambda x: x @ BIG, ["b, 300"], [(3, 300)]),
    "key": (lambda x: x + jax.random.uniform(jax.random.key(3), x.shape), ["b, 5"], [(4, 5)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_kernels_as_of_an_export(name):
    function, shapes, sizes = PROGRAMS[name]
    jitted, given = jax.jit(function), specs(*shapes)
    made = lowered_module(name, jitted, given, {})
    assert isinstance(made.data, str) == (name != "large constant")
    ours = shlo_disc.compile(made.source())
    theirs = shlo_disc.compile(export.export(jitted)(*given))
    assert str(ours.as_text("kernels")) == str(theirs.as_text("kernels"))
    arguments = [np.linspace(0, 1, np.prod(s), dtype=np.float32).reshape(s) for s in sizes]
    for got, want in zip(ours(*arguments), theirs(*arguments), strict=True):
        np.testing.assert_array_equal(got, want)


def test_text_with_locations_for_a_key_too():
    def draw(key, x):
        return x + jax.random.normal(key, x.shape)

    f = shlo_disc.jit(draw)
    key, x = jax.random.key(1), np.ones((3, 4), np.float32)
    np.testing.assert_allclose(f(key, x), draw(key, x), rtol=1e-5)
    assert "test_lowered.py:" in str(f.explain())
    assert "<module>" not in str(f.explain())


def test_a_newer_stablehlo_of_jax_is_read_as_an_artifact(monkeypatch):
    given = specs("b, t", constraints=["t >= 2"])
    jitted = jax.jit(lambda x: jnp.tanh(x[:, 1:]) + x.shape[0])
    made = lowered_module("f", jitted, given, {})
    x = np.ones((3, 4), np.float32)
    for version, kind in (("0.0.1", str), ("99.0.0", bytes)):
        monkeypatch.setattr(module, "stablehlo_version", lambda version=version: version)
        source = made.source()
        assert isinstance(source.data_for(source.data, "1.0.0"), kind)
        executable = shlo_disc.compile(source)
        np.testing.assert_allclose(executable(x)[0], np.tanh(x[:, 1:]) + 3, rtol=1e-6)
        with pytest.raises(ShapeMismatchError, match="compiled for t - 2 >= 0"):
            executable(np.ones((3, 1), np.float32))
        assert "jax.global_constant" in made.mlir_module()


def test_the_text_of_a_version_can_be_compiled():
    f = shlo_disc.jit(lambda x: x[:, 1:] * x.shape[1], constraints=["t >= 3"], shapes=["b, t"])
    x = np.ones((2, 5), np.float32)
    text = f.lower(x).as_text()
    assert 'disc.shape = ["b", "t"]' in text
    assert "disc.constraints" in text
    again = shlo_disc.compile(text)
    np.testing.assert_array_equal(again(x)[0], x[:, 1:] * 5)
    with pytest.raises(ShapeMismatchError):
        again(np.ones((2, 2), np.float32))
    assert "stablehlo.multiply" in str(f.lower(x).compiler_ir())


def test_callbacks_are_calls_that_the_program_owns():
    def f(x):
        return jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), x.dtype), x)

    for sizes in ("3", "n, 2"):
        lowered = lowered_module("f", jax.jit(f), specs(sizes), {})
        (callback,) = lowered.callbacks
        assert callback.target in str(lowered.data)


def test_unknown_custom_calls_are_refused_with_their_line():
    def f(x):
        return jax.ffi.ffi_call("nobody_knows", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(
        UnsupportedError, match=r"test_lowered\.py:\d+: custom_call @nobody_knows: no FFI target"
    ):
        shlo_disc.jit(f)(np.ones(3, np.float32))


def test_typed_keys_of_an_exported_program():
    """Taken and given as `Exported.call` takes and gives them; words are keys, too."""

    def f(key, keys, x):
        return jax.random.normal(key, (4,)) + x.sum(), jax.random.fold_in(key, 2), keys[::-1]

    for implementation in ("threefry2x32", "rbg"):
        key = jax.random.key(3, impl=implementation)
        (n,) = export.symbolic_shape("n")
        exported = export.export(jax.jit(f))(
            *(
                jax.ShapeDtypeStruct(s, t)
                for s, t in (((), key.dtype), ((n,), key.dtype), ((n,), "f"))
            )
        )
        compiled = shlo_disc.compile(exported)
        for size in (3, 5):
            args = key, jax.random.split(key, size), np.ones(size, np.float32)
            for ours, theirs in zip(compiled(*args), exported.call(*args), strict=True):
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
                    ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        words = compiled(jax.random.key_data(key), *args[1:])
        np.testing.assert_array_equal(words[0], compiled(*args)[0])
        with pytest.raises(TypeError, match="argument 0 is of type key"):
            compiled(jax.random.key(0, impl="unsafe_rbg"), *args[1:])


def sizes_of(n, m, larger, smaller):
    """Numbers that JAX computes from sizes, all signs included."""
    return [
        (n - 6) // 4, (n - 6) % 4, (n - 6) // -3, -(-n // 4) * m, (n * m - 20) // m, (n - 9) % m,
        larger(n - 5, m), smaller(n * n, 3 * m + 1), n**2 * m - 7,
    ]  # fmt: skip


def test_sizes_are_computed_without_a_trace_for_each():
    def function(x):
        found = sizes_of(*x.shape, max_size, min_size)
        return jnp.stack([jnp.asarray(size, np.int32) for size in found])

    made = lowered_module("f", jax.jit(function), specs("n, m"), {})
    assert "call @" not in made.mlir_module()
    compiled = shlo_disc.compile(made.mlir_module())
    for n, m in [(1, 1), (2, 3), (6, 1), (7, 5), (13, 4)]:
        (found,) = compiled(np.zeros((n, m), np.float32))
        assert list(np.asarray(found)) == sizes_of(n, m, max, min)
