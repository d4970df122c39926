"""`shlo_disc.jit` as an API: arguments of every kind, the cache, stages, statements of sizes,
errors."""

# ruff: noqa: E501 - messages are tested by their full text

from __future__ import annotations

import inspect
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.children import at_once


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


# ---- the wrapper ------------------------------------------------------------------------------


def test_decorator_with_and_without_options():
    @shlo_disc.jit
    def f(x):
        """Doc."""
        return x

    @shlo_disc.jit(name="other")
    def g(x):
        return x

    assert f.__name__ == "f"
    assert f.__doc__ == "Doc."
    assert f.__wrapped__(3) == 3
    assert inspect.signature(f) == inspect.signature(f.__wrapped__)
    assert repr(f).startswith("<shlo_disc.jit of <function")
    assert f(ones(3)).shape == (3,)
    assert g.lower(ones(3)).name == "other"


class Model(NamedTuple):
    w: jax.Array

    @shlo_disc.jit
    def apply(self, x):
        return x @ self.w


def test_a_method_takes_self_as_a_pytree():
    model = Model(jnp.ones((4, 2)))
    assert model.apply(ones(3, 4)).shape == (3, 2)
    assert Model.apply(model, ones(7, 4)).shape == (7, 2)
    assert Model.apply.cache_info().misses == 1


def test_pytrees_keywords_and_none():
    @shlo_disc.jit
    def f(p, *rest, scale=1.0, skip=None):
        out = {"a": p["w"] * scale, "b": [r + 1 for r in rest]}
        return out if skip is None else (out, skip)

    out = f({"w": ones(3)}, ones(2), ones(5), scale=2.0)
    assert out["a"].tolist() == [2, 2, 2]
    assert [b.shape for b in out["b"]] == [(2,), (5,)]
    out, skip = f({"w": ones(3)}, scale=2.0, skip=ones(1))
    assert skip.shape == (1,)
    assert f.cache_info().misses == 2


def test_keywords_in_another_order_are_the_same_call():
    f = shlo_disc.jit(lambda *, a, b: a - b)
    f(a=ones(3), b=ones(3))
    f(b=ones(4), a=ones(4))
    assert f.cache_info() == (1, 1, None, 1)


def test_types_of_results_are_those_of_jax():
    def f(x):
        return x * 2.0, x.astype(jnp.int32), x > 0, jnp.float32(1) * 2

    for x in (ones(3), ones(3, dtype=jnp.bfloat16), ones(3, dtype=np.int8), np.float64(3)):
        got, want = shlo_disc.jit(f)(x), jax.jit(f)(x)
        assert [g.dtype for g in got] == [w.dtype for w in want]


def test_python_numbers_are_weakly_typed(standin):
    f = shlo_disc.jit(lambda x, s: x * s)
    assert f(ones(3, dtype=jnp.bfloat16), 2.0).dtype == jnp.bfloat16
    assert f(ones(3, dtype=jnp.bfloat16), np.float32(2)).dtype == np.float32
    assert f(ones(4, dtype=jnp.bfloat16), 5).dtype == jnp.bfloat16
    assert f(ones(4, dtype=jnp.bfloat16), 3.0).dtype == jnp.bfloat16
    assert f.cache_info().misses == 3
    assert not any(made.exported.out_avals[0].weak_type for made in standin)
    shlo_disc.jit(lambda s: s * 2)(3.0)
    assert standin[-1].exported.out_avals[0].weak_type


def test_float64_is_canonical():
    f = shlo_disc.jit(lambda x: x * 2)
    assert f(np.ones(3)).dtype == np.float32
    assert f(ones(4)).dtype == np.float32
    assert f.cache_info().misses == 1
    with jax.enable_x64(True):
        assert f(np.ones(3)).dtype == np.float64
        assert f(np.ones(5)).dtype == np.float64
    assert f.cache_info().misses == 2


def test_configuration_is_part_of_the_key():
    f = shlo_disc.jit(lambda x: x @ x.T)
    f(ones(3, 4))
    with jax.default_matmul_precision("float32"):
        f(ones(3, 4))
        f(ones(5, 4))
    assert f.cache_info().misses == 2


def test_typed_keys():
    def f(key, x):
        a, b = jax.random.split(key)
        return a, x + jax.random.uniform(b, x.shape)

    g = shlo_disc.jit(f)
    for n in (3, 5):
        key = jax.random.key(n)
        got, want = g(key, ones(n)), f(key, ones(n))
        assert got[0].dtype == want[0].dtype
        assert (jax.random.key_data(got[0]) == jax.random.key_data(want[0])).all()
        np.testing.assert_allclose(got[1], want[1], rtol=1e-6)
    assert g.cache_info().misses == 1
    np.testing.assert_allclose(jax.jit(g)(key, ones(5))[1], want[1], rtol=1e-6)


def test_arrays_without_order_are_taken():
    f = shlo_disc.jit(lambda x: x + 1)
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(f(x), x + 1)
    np.testing.assert_array_equal(f(x[::-1]), x[::-1] + 1)


def test_disable_jit_runs_the_function():
    seen = []
    f = shlo_disc.jit(lambda x: seen.append(type(x)) or x)
    with jax.disable_jit():
        f(ones(3))
    assert seen == [np.ndarray]
    assert f.cache_info().misses == 0


# ---- static arguments -------------------------------------------------------------------------


def test_static_arguments_by_position_and_name():
    @shlo_disc.jit(static_argnums=(1,), static_argnames=("mode",))
    def f(x, n, *, mode="add"):
        return x + n if mode == "add" else x * n

    assert f(ones(3), 2).tolist() == [3, 3, 3]
    assert f(ones(2), 2).tolist() == [3, 3]
    assert f(ones(2), 5, mode="mul").tolist() == [5, 5]
    assert f(ones(2), 2.0).tolist() == [3, 3]
    # The numbers 2 and 2.0 give equal programs, of which one is compiled.
    assert f.cache_info() == (1, 2, None, 3)


def test_static_position_implies_the_name():
    f = shlo_disc.jit(lambda x, n: x * n, static_argnums=1)
    assert f(ones(2), n=3).tolist() == [3, 3]
    g = shlo_disc.jit(lambda n, x: x * n, static_argnames="n")
    assert g(3, ones(2)).tolist() == [3, 3]
    assert g(3, ones(4)).tolist() == [3] * 4
    assert g.cache_info().misses == 1


def test_static_arguments_must_hash():
    f = shlo_disc.jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(ValueError, match=r"^static argument n is a list, which cannot be hashed$"):
        f(ones(3), [1])


# ---- the cache --------------------------------------------------------------------------------


def test_cache_info_counts_compilations(standin):
    f = shlo_disc.jit(lambda x: x * 2)
    assert f.cache_info() == (0, 0, None, 0)
    for n in (3, 4, 3, 5):
        f(ones(n))
    assert f.cache_info() == (3, 1, None, 1)
    assert len(standin) == 1
    f(ones(3, 3))
    assert f.cache_info() == (3, 2, None, 2)
    f.cache_clear()
    assert f.cache_info() == (0, 0, None, 0)
    f(ones(3))
    assert f.cache_info().currsize == 1
    f.clear_cache()


def test_lowering_does_not_compile_and_calls_share(standin):
    f = shlo_disc.jit(lambda x: x * 2)
    lowered = f.lower(jax.ShapeDtypeStruct((3,), np.float32))
    assert "stablehlo.multiply" in lowered.as_text()
    assert "stablehlo.multiply" in lowered.as_text("stablehlo")
    assert not standin
    compiled = lowered.compile()
    assert compiled(ones(5)).shape == (5,)
    assert compiled.as_text("asm") == lowered.as_text("asm")
    f(ones(7))
    assert len(standin) == 1
    assert f.cache_info().misses == 1


def test_a_compilation_runs_the_function_twice():
    """Once with symbols, and once at the call's sizes for the comparison."""
    runs = []

    @shlo_disc.jit
    def f(x, w):
        runs.append(isinstance(x.shape[0], int))
        return jnp.tanh(x @ w).sum(0)

    for rows in (3, 7, 1):
        f(ones(rows, 4), ones(4, 5))
    assert runs == [False, True]
    assert f.cache_info().misses == 1


def test_compiled_refuses_what_it_is_not_for():
    compiled = shlo_disc.jit(lambda x, y: x + y).lower(ones(3), ones(3)).compile()
    with pytest.raises(shlo_disc.ShapeMismatchError, match="argument y: dimension 0 is 4, but"):
        compiled(ones(3), ones(4))
    with pytest.raises(TypeError, match="other types or another structure"):
        compiled(ones(3), ones(3, 3))


def test_equal_programs_are_compiled_once(standin):
    def f(x):
        return x * 2

    keep = [shlo_disc.jit(f), shlo_disc.jit(f)]
    for g in keep:
        g(ones(3))
    assert len(standin) == 1


def test_many_threads_compile_once(standin):
    f = shlo_disc.jit(lambda x: jnp.tanh(x).sum())

    def work(n):
        for k in range(1, 5):
            np.testing.assert_allclose(f(ones(n + k)), np.tanh(1.0) * (n + k), rtol=1e-5)

    at_once(work, range(8))
    assert len(standin) == 1


def test_shapes_remembered_are_bounded(monkeypatch):
    from shlo_disc.jax import function as module

    monkeypatch.setattr(module, "_MAX_ENTRIES", 3)
    f = shlo_disc.jit(lambda x: x * 2)
    for n in range(1, 9):
        f(ones(n))
        assert len(f._entries) <= 3
    assert f.cache_info().misses == 1


# ---- stated sizes -----------------------------------------------------------------------------


def test_stated_sizes_keep_their_names():
    f = shlo_disc.jit(lambda x, y: x @ y, shapes=("b, t", None))
    text = f.lower(ones(2, 3), ones(3, 4)).pattern.text()
    assert text.startswith("  x: (b, t)\n  y: (t, d")


def test_underscore_is_the_size_of_the_call():
    f = shlo_disc.jit(lambda x: x * 2, shapes=("b, _",))
    f(ones(2, 3))
    f(ones(4, 3))
    assert f.cache_info().misses == 1
    f(ones(4, 5))
    assert f.cache_info().misses == 2


def test_stated_prefix_ellipsis_and_names():
    f = shlo_disc.jit(lambda p, x: p["a"] + p["b"] + x, shapes={"p": "n, ...", "x": ("n, 4")})
    f({"a": ones(3, 4), "b": ones(3, 4)}, ones(3, 4))
    f({"a": ones(5, 4), "b": ones(5, 4)}, ones(5, 4))
    assert f.cache_info().misses == 1


def test_a_divisible_size_shapes_the_program():
    @shlo_disc.jit(shapes=("b, t",), constraints=("t % 4 == 0", "t <= 16"))
    def f(x):
        return x.reshape(x.shape[0], x.shape[1] // 4, 4).sum(-1)

    assert f(ones(2, 8)).shape == (2, 2)
    assert f(ones(1, 16)).shape == (1, 4)
    assert f.cache_info().misses == 1


STATED = [
    ({"shapes": ("b, t", "b")}, (ones(2, 3), ones(4)), "<lambda>: argument y: dimension 0 is 4, but b = 2 (b = 2 was read from dimension 0 of argument x)"),
    ({"shapes": ("b, t",), "constraints": ("t % 4 == 0",)}, (ones(2, 7), ones(4)), "<lambda>: t % 4 == 0 does not hold: 3 == 0 is false (t = 7 was read from dimension 1 of argument x)"),
    ({"shapes": ("b, 4",)}, (ones(2, 3), ones(4)), "<lambda>: argument x: dimension 1 is 3, but must be 4"),
    ({"shapes": ("b",)}, (ones(2, 3), ones(4)), "argument x has shape (2, 3), but shapes states 1 sizes: 'b'"),
    ({"shapes": ("2*b, t",)}, (ones(3, 3), ones(4)), "<lambda>: argument x: dimension 0 is 3, but 2*b is a multiple of 2"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "args", "text"), STATED)
def test_a_call_that_breaks_what_was_stated(options, args, text):
    f = shlo_disc.jit(lambda x, y: (x, y), **options)
    with pytest.raises(shlo_disc.ShapeMismatchError) as error:
        f(*args)
    assert str(error.value) == text


def test_a_statement_is_kept_after_a_good_call():
    f = shlo_disc.jit(lambda x, y: (x, y), shapes=("b", "b"))
    f(ones(2), ones(2))
    with pytest.raises(
        shlo_disc.ShapeMismatchError, match="argument y: dimension 0 is 3, but b = 2"
    ):
        f(ones(2), ones(3))


def test_a_stated_size_that_must_be_constant():
    f = shlo_disc.jit(lambda x: sum(x[k] for k in range(x.shape[0])), shapes=("b, _",))
    with pytest.raises(jax.errors.InconclusiveDimensionOperation) as error:
        f(ones(3, 2))
    assert "a Python integer of b" in str(error.value)
    assert "the size b was stated in `shapes`" in str(error.value)


def test_dynamic_true_and_false():
    def loop(x):
        return sum(x[k] for k in range(x.shape[0]))

    f = shlo_disc.jit(loop, dynamic=True)
    with pytest.raises(jax.errors.InconclusiveDimensionOperation) as error:
        f(ones(3, 2))
    assert "a Python integer of d0" in str(error.value)
    assert "dynamic=True keeps every size a symbol" in str(error.value)
    g = shlo_disc.jit(lambda x: x * 2, dynamic=False)
    for n in (2, 3, 2):
        g(ones(n))
    assert g.cache_info() == (1, 2, None, 2)
    assert "x: (2)" in g.explain()


# ---- errors -----------------------------------------------------------------------------------

NOT_AN_ARRAY = (
    "; every leaf of an argument must be an array or a number. Values that are not arrays can be "
    "given with static_argnums or static_argnames."
)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: f({"w": ["text"]}, 1), "argument p['w'][0] is of type str"),
        (lambda f: f({"w": 1}, np.array(["a"])), "argument x is of type ndarray of dtype <U1"),
        (lambda f: f({"w": 1}, x=object()), "argument x is of type object"),
    ],
)
def test_an_argument_that_is_no_array(call, text):
    with pytest.raises(TypeError) as error:
        call(shlo_disc.jit(lambda p, x: x))
    assert str(error.value) == text + NOT_AN_ARRAY


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"dynamic": "maybe"}, ValueError, "dynamic must be 'auto', 'checked', True or False, got 'maybe'"),
        ({"constraints": "b >= 2"}, ValueError, "constraints need shapes, which give the sizes their names"),
        ({"shapes": ("b",), "constraints": "b"}, ValueError, "constraint 'b': expected two sizes with >=, <=, >, < or == between them"),
        ({"shapes": ("b",), "constraints": "2 >= 1"}, ValueError, "constraint '2 >= 1' names no symbol"),
        ({"static_argnames": "y"}, ValueError, "static_argnames ['y'] are not arguments of"),
    ],
)  # fmt: skip
def test_bad_options(options, error, text):
    with pytest.raises(error) as raised:
        shlo_disc.jit(lambda x: x, **options)
    assert str(raised.value).startswith(text)


def test_what_is_not_callable():
    with pytest.raises(TypeError, match=r"^shlo_disc.jit needs a function, got 3$"):
        shlo_disc.jit(3)


def test_constraint_on_an_unknown_size():
    f = shlo_disc.jit(lambda x: x, shapes=("b",), constraints=("t >= 2",))
    with pytest.raises(
        ValueError, match=r"^constraint 't >= 2' names t, which no entry of shapes has$"
    ):
        f(ones(3))


def test_the_functions_own_error_is_raised_as_it_is():
    class Own(Exception):
        pass

    def f(x):
        raise Own("no")

    with pytest.raises(Own) as error:
        shlo_disc.jit(f)(ones(3))
    assert str(error.value) == "no"


def test_shapes_that_do_not_fit_raise_what_jax_raises():
    def f(x, y):
        return x @ y

    with pytest.raises(TypeError) as want:
        jax.jit(f)(ones(2, 3), ones(4, 5))
    with pytest.raises(TypeError) as got:
        shlo_disc.jit(f)(ones(2, 3), ones(4, 5))
    assert str(got.value) == str(want.value)
    g = shlo_disc.jit(f)
    g(ones(2, 3), ones(3, 5))
    with pytest.raises(TypeError) as got:
        g(ones(2, 3), ones(4, 5))
    assert str(got.value) == str(want.value)


def test_explain_names_sizes_reasons_and_lines():
    def f(x):
        for _ in range(x.shape[1]):
            x = x + 1
        return x

    g = shlo_disc.jit(f)
    assert g.explain() == "f has not been called yet"
    g(ones(3, 2))
    line = f.__code__.co_firstlineno + 1
    text = g.explain()
    assert text.startswith(
        "version 1 of f: d0\n  x: (d0, 2)\nassumes\n  d1 = 2 (dimension 1 of x): the program uses a "
        f"Python integer of d1 ({__file__}:{line})\nf: 0 kernels, "
    )
    assert len(g.guards()) == 1


def test_a_condition_only_the_compiler_knows(standin, monkeypatch, caplog):
    f = shlo_disc.jit(lambda x: x * 2)
    f(ones(3))

    def refuse(self, leaves):
        raise shlo_disc.ShapeMismatchError("t is odd")

    monkeypatch.setattr(standin[0], "call_leaves", refuse.__get__(standin[0]))
    with caplog.at_level("WARNING", "shlo_disc"):
        assert f(ones(5)).shape == (5,)
    assert "compiling for shapes ((5,),) only, because t is odd" in caplog.text
    assert f.cache_info().misses == 2


def test_an_object_with_an_array_inside():
    class Wrapped:
        def __init__(self, x):
            self.x = x

        def __jax_array__(self):
            return jnp.asarray(self.x)

    f = shlo_disc.jit(lambda x: x * 2)
    assert f(Wrapped(ones(3))).shape == (3,)
    assert f(Wrapped(ones(5))).shape == (5,)
    assert f.cache_info().misses == 1


def test_a_shape_that_ran_keeps_its_version():
    """A later version may fit it, too, and add in another order."""

    def version_of(f, *shapes):
        f._forget_entries()
        outer = jax.jit(f)
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        f(*arrays)
        outer(*arrays)
        return next(reversed(f._entries.values())).version

    f = shlo_disc.jit(lambda x, y: (x + y).sum())
    pairs = [((1,), (1,)), ((3,), (3,)), ((1,), (4,)), ((5,), (1,))]
    versions = [version_of(f, *pair) for pair in pairs]
    compiled = f.cache_info().misses
    assert compiled == 3
    patterns = [version.pattern for version in versions]
    fitting = [p for p in dict.fromkeys(patterns) if p.solve(pairs[0]) is not None]
    assert len(fitting) > 1
    assert [version_of(f, *pair) for pair in pairs] == versions
    assert f.cache_info().misses == compiled


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_arrays_of_64_bits_without_x64(dtype):
    """A jax.Array would be cut to 32 bits; NumPy's arrays are converted, as by jax.jit."""
    host = np.array([2**40 + 3, 2, 7]).astype(dtype)
    f = shlo_disc.jit(lambda x: {"twice": x["w"] * 2})
    with jax.enable_x64(True):
        wide = jnp.asarray(host)
        np.testing.assert_array_equal(f({"w": wide})["twice"], host * 2)
    with jax.enable_x64(False):
        narrow = dtype[:-2] + "32"
        for _ in range(2):
            with pytest.raises(TypeError, match=rf"argument x\['w'\] .* {dtype}.*'{narrow}'"):
                f({"w": wide})
            for array in (host, wide.astype(narrow)):
                ours, theirs = f({"w": array})["twice"], jax.jit(lambda x: x * 2)(array)
                assert ours.dtype == theirs.dtype == narrow
                np.testing.assert_array_equal(ours, theirs)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(f({"w": wide})["twice"], host * 2)
